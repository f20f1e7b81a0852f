package consumetest

import (
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// What would seldom meet by chance is made to meet here: what comes right then, and not at another
// time, is what a Core could be wrong about.

// squeeze lets a message come to a log before a cursor of it is taken from a lost holder, but after a
// fetch of the one that takes it was read: that has seen another end of the log.
func (w *world) squeeze(cl *client, wr *consume.Write) {
	if w.quiet || w.plan.apart || len(wr.Gone) == 0 || !slices.ContainsFunc(w.engine.read, func(f *fetching) bool {
		return f.cl == cl && f.inc == cl.p.inc && f.f.Partition == wr.Partition
	}) || cl.p.net.n(2) == 0 {
		return
	}
	for _, m := range wr.Moves {
		if m.Kind == consume.Take && !w.engine.journal(wr.Partition).closed && w.check.groups[cl.group].origin[wr.Partition.Topic] == wr.Partition.Topic {
			w.feature(FeatureSqueezed)
			w.engine.append(w.engine.journal(wr.Partition), &consume.Message{Color: m.Cursor, Value: []byte{'a'}})
		}
	}
}

// interrupt lets a consumer that a message was taken from say something of it while the next one has it.
func (cl *client) interrupt(h *hand) (late bool) {
	for _, o := range slices.Clone(cl.hands) {
		if cl.p.w.plan.apart || o == h || o.over || o.partition != h.partition || o.msg != h.msg || cl.p.w.stuckNow(o.lane) {
			continue
		}
		var e consume.Event
		switch cl.p.work.n(3) {
		case 0:
			e = &consume.Returned{Run: o.run, Offset: o.msg.Offset}
		case 1:
			e = &consume.Failed{Run: o.run, Offset: o.msg.Offset, Error: "no"}
		default:
			e = &consume.Settled{Run: o.run, Offset: o.msg.Offset}
		}
		late = true
		cl.p.later(cl.p.work.between(0, interrupted/2), func() { cl.finish(o, e) })
	}
	return late
}

// silent reports whether nobody hears what a consumer says of a message that was taken from it.
func (cl *client) silent(h *hand) bool {
	w := cl.p.w
	_, _, with := w.check.withConsumer(cl.by, h.run, h.msg.Offset)
	if with == nil || with.state != cut {
		return false
	}
	if !w.plan.apart {
		w.feature(FeatureLateWord)
	}
	return w.plan.apart
}

// interrupted is how long at least a consumer has a message that another one still speaks of.
const interrupted = 40 * time.Millisecond

// upset lets a group begin again while one of its consumers takes longer than the group waits for it,
// now and then. A log that is to be another one at some time is left alone by resets.
func (w *world) upset(group int, r *stream) {
	if w.quiet || w.plan.apart || w.resets > 1 || r.n(6) > 0 || slices.ContainsFunc(w.plan.ops, func(o op) bool {
		return o.kind == opTruncate || o.kind == opRecreate
	}) {
		return
	}
	w.sched.after(r.between(0, 100*time.Millisecond), func() {
		if !w.quiet {
			w.reset(group, r)
		}
	})
}

// relent calls a reset off when a group has just waited for its consumers long enough, now and then; before
// the engine has said where it is to begin.
func (w *world) relent(cl *client, id consume.Partition) {
	g := cl.reg()
	reset := g.group.Reset
	if w.quiet || w.plan.apart || reset == nil || cl.p.net.n(4) == 0 {
		return
	}
	if _, named := reset.Offsets[id]; named {
		w.calledOff, w.relents = true, reset
		w.sched.after(cl.p.net.between(0, 20*time.Millisecond), func() { w.callOff(g, reset) })
	}
}

// hesitates is how much longer the engine takes to say where a reset begins that is to be called off.
func (w *world) hesitates(cl *client) time.Duration {
	if w.relents == nil || w.relents != cl.reg().group.Reset {
		return 0
	}
	return cl.p.net.between(50*time.Millisecond, time.Second)
}

// revive lets a strict lane come again while a message of it is on its way to the dead letters, and the
// process that sends it there is lost: the next one has to send it there, too. It gives how
// much longer the way is.
func (w *world) revive(cl *client, b *consume.Bury) time.Duration {
	i := slices.Index(w.plan.lanes, b.Color)
	if w.quiet || w.plan.apart || w.plan.rates == (rates{}) || i < 0 || b.Why != consume.BuryStrictEnded || cl.p.net.n(2) > 0 {
		return 0
	}
	p, inc := cl.p, cl.p.inc
	w.feature(FeatureRevived)
	w.sched.after(p.net.between(0, 100*time.Millisecond), func() { w.laneUp(i) })
	w.sched.after(p.net.between(0, time.Second), func() {
		if p.up && p.inc == inc && !w.quiet {
			w.fault(FaultCrash)
			p.kill()
			w.restartLater(p)
		}
	})
	return p.net.between(time.Second, 3*time.Second)
}

// nudges is of how many steps one is followed by a nudge.
const nudges = 5

// nudge tells a Core again of the picture that it has, now and then. What it does then it could have done
// before: it was asleep, and something else would have woken it some time later.
func (cl *client) nudge() {
	w := cl.p.w
	if cl.by.view == nil || cl.stopped || w.result.Coverage.Steps%nudges > 0 {
		return
	}
	for _, a := range cl.core.Step(&consume.Viewed{View: cl.by.view}) {
		if urgent(a) {
			w.check.fail("WAKE", "%s, told of nothing new, does at last: %s", cl.by.name, describeAction(a))
			return
		}
		cl.do(a)
	}
}

// urgent reports whether an action may not wait for the next note or picture: merges may, and timers.
func urgent(a consume.Action) bool {
	switch a := a.(type) {
	case *consume.Arm, *consume.Disarm:
		return false
	case *consume.Propose:
		return slices.ContainsFunc(a.Moves, func(m consume.Move) bool { return m.Kind != consume.Merge })
	}
	return true
}
