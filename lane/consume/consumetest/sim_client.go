package consumetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// client is one process's part in one group: a Core, and what is done for it.
type client struct {
	p       *process
	group   int
	core    *consume.Core
	by      *actor
	members []consume.Member
	timers  map[consume.Timer]int
	armed   int
	stopped bool
	hands   []*hand         // messages that are with consumers
	mail    []consume.Event // news of the registry that it was not told of yet
	writes  []*sentWrite
	// fickle are writes that were refused after a doubt though no revision had changed: a
	// copy that is under way may still take place, once a session has ended. Only these may
	// be repeated after an answer.
	fickle map[consume.Partition]*sentWrite
	counts map[string]int32 // partitions that it was told of

	toStop   map[string]bool
	watching bool
	dirty    bool
	seen     uint64
	lively   uint64
}

// hand is one message that is with a consumer.
type hand struct {
	run       uint64
	partition consume.Partition
	msg       *consume.Message
	lane      lane.Name
	over      bool
}

// sentWrite is a write that is not answered.
type sentWrite struct {
	w      *consume.Write
	first  consume.Write // as it was at first
	doubt  bool
	sentAt time.Duration
}

func (p *process) newClient(group int) *client {
	w := p.w
	cfg := w.plan.groups[group]
	core, err := consume.NewCore(cfg)
	if err != nil {
		panic(fmt.Sprintf("the simulation made a configuration that is not valid: %v", err))
	}
	cl := &client{
		p: p, group: group, core: core, timers: map[consume.Timer]int{}, counts: map[string]int32{}, toStop: map[string]bool{},
		fickle: map[consume.Partition]*sentWrite{},
	}
	cl.by = w.check.actor(group, fmt.Sprintf("p%d/%s", p.id, cfg.Group))
	inc := p.inc
	for _, t := range w.topicsOf(group) {
		w.sched.after(w.sched.delay(&p.net, 0), func() { cl.count(inc, t) })
	}
	for i, m := range p.w.plan.procs[p.id] {
		if m.group != group {
			continue
		}
		id := fmt.Sprintf("m%d.%d.%d", p.id, p.inc, i)
		w.sched.after(w.sched.delay(&p.net, 100), func() {
			if w.laneLives(m.lane) {
				p.post(inc, func() { cl.join(p.memberOf(m, id)) })
			}
		})
	}
	return cl
}

func (cl *client) reg() *regGroup { return cl.p.w.reg.groups[cl.group] }

// count tells a Core how many partitions a topic has.
func (cl *client) count(inc int, topic string) {
	n := int32(len(cl.p.w.engine.topics[topic]))
	cl.p.post(inc, func() {
		if n > cl.counts[topic] {
			cl.counts[topic] = n
			e := &consume.Partitioned{Topic: topic, Count: n}
			for i := range int(n) {
				e.Rooms = append(e.Rooms, cl.p.w.plan.room(i))
			}
			cl.step(e)
		}
	})
}

func (cl *client) join(m consume.Member) {
	if cl.p.stopping {
		return
	}
	cl.read()
	cl.p.checkClock() // what comes of that is for the members that there were
	cl.members = append(slices.DeleteFunc(cl.members, func(o consume.Member) bool { return o.ID == m.ID }), m)
	cl.by.members = cl.members
	cl.p.seq++
	joined := m
	joined.Session = cl.p.session
	cl.step(&consume.Joined{Member: joined})
	cl.p.sync()
}

func (cl *client) leave(id string) {
	cl.read()
	cl.p.checkClock()
	cl.members = slices.DeleteFunc(slices.Clone(cl.members), func(o consume.Member) bool { return o.ID == id })
	cl.by.members = cl.members
	cl.p.seq++
	cl.step(&consume.Left{Member: id})
	cl.p.sync()
}

// post tells a Core of something, unless the process is another one by then.
func (cl *client) post(inc int, e consume.Event) {
	cl.p.post(inc, func() { cl.step(e) })
}

// step tells a Core of something. The clock is looked at first.
func (cl *client) step(e consume.Event) {
	if cl.stopped || cl.p.w.failed() {
		return
	}
	cl.read()
	cl.p.checkClock()
	cl.raw(e)
}

// tell tells a Core of news of the registry: one by one, or a little later and at once with
// what has come by then, as a process does that reads all that there is. They stay in order.
func (cl *client) tell(news ...consume.Event) {
	if cl.p.w.plan.alone || len(cl.mail) == 0 && cl.p.net.n(2) == 0 {
		for _, e := range news {
			cl.step(e)
		}
		return
	}
	if len(cl.mail) == 0 {
		cl.p.later(cl.p.net.between(0, 20*time.Millisecond), cl.read)
	}
	cl.mail = append(cl.mail, news...)
}

// read tells a Core at once of all news that have come.
func (cl *client) read() {
	news := cl.mail
	switch cl.mail = nil; len(news) {
	case 0:
	case 1:
		cl.step(news[0])
	default:
		cl.p.w.feature(FeatureSeveral)
		answers := 0
		for _, e := range news {
			if _, is := e.(*consume.Answered); is {
				answers++
			}
		}
		if answers > 1 {
			cl.p.w.feature(FeatureAnswers)
		}
		cl.step(&consume.Several{Events: news})
	}
}

func (cl *client) raw(e consume.Event) {
	w := cl.p.w
	if cl.stopped || w.failed() {
		return
	}
	w.result.Coverage.Steps++
	w.check.told(cl.by, w.sched.now, e)
	if w.tracing() {
		w.tracef(cl.by.name, "%s", describeEvent(e))
	}
	for _, a := range cl.core.Step(e) {
		if w.tracing() && !quietAction(a) {
			w.tracef(cl.by.name, "  -> %s", describeAction(a))
		}
		cl.do(a)
		if w.failed() {
			return
		}
	}
	w.check.stepped(cl.by)
	w.check.movesTold(cl.by)
	cl.nudge()
}

// do does what a Core asks for.
func (cl *client) do(a consume.Action) {
	w := cl.p.w
	switch a := a.(type) {
	case *consume.Propose:
		cl.propose(a.Write, a.Attempt)
	case *consume.Fetch:
		w.check.fetches(cl.by, a)
		w.engine.fetch(cl, *a)
	case *consume.Dispatch:
		cl.dispatch(a)
	case *consume.Withdraw:
		w.check.withdrawn(cl.by, w.sched.now, a)
	case *consume.Recall:
		w.check.recalled(cl.by, a)
		cl.recall(*a)
	case *consume.Requeue:
		w.check.requeued(cl.by, a.Run, a.Offset, a.Message)
		cl.store(a.Run, a.Offset, a.Message, 0)
	case *consume.Bury:
		w.check.buried(cl.by, w.sched.now, a)
		w.result.Coverage.Buries[a.Why]++
		cl.store(a.Run, a.Offset, a.Message, w.revive(cl, a))
	case *consume.Resolve:
		cl.resolve(*a)
	case *consume.Arm:
		cl.arm(a.Timer, a.After)
	case *consume.Disarm:
		delete(cl.timers, a.Timer)
	case *consume.Mirror:
		w.check.mirrored(cl.by, a)
		if cl.p.work.permille(w.rates().mirror) {
			w.fault(FaultMirror)
			w.mirrors[a.Partition] = int64(cl.p.work.n(100))
		}
	case *consume.Alarm:
		w.result.Coverage.Alarms[a.Kind]++
		w.check.alarmed(cl.by, a)
		if a.Kind == consume.AlarmHandover {
			w.relent(cl, a.Partition)
		}
	case *consume.Stopped:
		w.check.stopped(cl.by)
		cl.stopped = true
		cl.p.later(0, cl.p.stopped)
	case *consume.Moved:
		w.check.movedTold(cl.by, a.Write)
	case *consume.Refused:
	}
}

func (cl *client) arm(t consume.Timer, after time.Duration) {
	cl.p.w.check.waits(cl.by, t)
	cfg := &cl.p.w.plan.groups[cl.group]
	if most := map[consume.TimerKind]time.Duration{
		consume.TimerNote: consume.DefaultNoteMax, consume.TimerHandover: cfg.HandoverTimeout,
		consume.TimerStall: cfg.SplitPatience, consume.TimerUnknown: cfg.UnknownStrict,
	}[t.Kind]; after > most {
		cl.p.w.check.fail("TIME", "%s waits %v for %s", cl.by.name, after, t.Kind)
	}
	cl.armed++
	n := cl.armed
	cl.timers[t] = n
	cl.p.later(after, func() {
		if cl.timers[t] == n {
			delete(cl.timers, t)
			cl.step(&consume.Fired{Timer: t})
		}
	})
}

func (cl *client) resolve(r consume.Resolve) {
	w := cl.p.w
	reset := w.check.resolving(cl.by, r)
	if f := startFeature(r.Start.Kind); f != "" && !reset {
		w.feature(f)
	}
	inc := cl.p.inc
	w.sched.after(w.sched.delay(&cl.p.net, 20)+w.hesitates(cl), func() {
		offset, epoch := w.engine.resolve(r.Partition, r.Start)
		w.check.resolved(cl.group, r.Partition, offset)
		w.sched.after(w.sched.delay(&cl.p.net, 20), func() {
			cl.post(inc, &consume.Resolved{Partition: r.Partition, Offset: offset, Epoch: epoch})
		})
	})
}

// propose sends a write, a repeated one after a while.
func (cl *client) propose(wr *consume.Write, attempt int) {
	w := cl.p.w
	i := slices.IndexFunc(cl.writes, func(s *sentWrite) bool { return s.w.ID == wr.ID })
	if attempt == 1 && i < 0 {
		for _, o := range cl.writes {
			if o.w.Partition == wr.Partition && overlap(o.w, wr) {
				w.check.fail("ONE-WRITE", "%s sent write %d while write %d on %s is not answered", cl.by.name, wr.ID, o.w.ID, wr.Partition)
				return
			}
		}
		w.check.proposed(cl.by, wr)
		if w.plan.groups[cl.group].MaxMoves > 0 && len(wr.Moves) > 0 {
			w.feature(FeatureFewMoves)
		}
		cl.writes = append(cl.writes, &sentWrite{w: wr, first: cloneWrite(wr), sentAt: w.sched.now})
		i = len(cl.writes) - 1
	}
	if f := cl.fickle[wr.Partition]; i < 0 && f != nil && f.w.ID == wr.ID {
		cl.writes = append(cl.writes, f)
		i = len(cl.writes) - 1
	}
	delete(cl.fickle, wr.Partition)
	if i < 0 {
		w.check.fail("DOUBT", "%s repeats write %d, which was answered", cl.by.name, wr.ID)
		return
	}
	s := cl.writes[i]
	if !sameWrite(&s.first, wr) {
		w.check.fail("DOUBT", "%s repeats write %d changed", cl.by.name, wr.ID)
		return
	}
	send := func() { cl.send(s) }
	if attempt == 1 {
		send()
		return
	}
	cl.p.later(min(50*time.Millisecond<<min(attempt, 6), time.Second), send)
}

// overlap reports whether two writes may not be under way at once.
func overlap(a, b *consume.Write) bool {
	if a.Record != nil && b.Record != nil {
		return true
	}
	concerns := func(w *consume.Write, c lane.Name) bool {
		return slices.ContainsFunc(w.Notes, func(n consume.NoteWrite) bool { return n.Cursor == c }) ||
			slices.ContainsFunc(w.Moves, func(m consume.Move) bool { return m.Cursor == c })
	}
	return slices.ContainsFunc(a.Notes, func(n consume.NoteWrite) bool { return concerns(b, n.Cursor) }) ||
		slices.ContainsFunc(b.Notes, func(n consume.NoteWrite) bool { return concerns(a, n.Cursor) })
}

func (cl *client) send(s *sentWrite) {
	w, g := cl.p.w, cl.reg()
	wr, sent := s.first, s.sentAt
	cl.p.call("write", &wr, func() any {
		w.squeeze(cl, &wr)
		a := w.reg.move(g, &wr)
		w.landed(cl, &wr, &a, sent)
		return &a
	}, func(result any, ok bool) {
		a := &consume.Answer{Outcome: consume.Doubt}
		if ok {
			a, _ = result.(*consume.Answer)
			cl.writes = slices.DeleteFunc(cl.writes, func(o *sentWrite) bool { return o == s })
			if s.doubt && a.Outcome == consume.Conflict && a.Revision == wr.IfRevision {
				cl.fickle[wr.Partition] = s
			}
			if s.doubt && len(wr.Moves) > 0 {
				w.result.Coverage.InDoubt += len(wr.Moves)
			}
		} else {
			s.doubt = true
		}
		cl.tell(&consume.Answered{Write: wr.ID, Answer: *a})
	})
}

// watch lets the process see what has changed in the registry, in order, some time later.
func (cl *client) watch() {
	if cl.watching {
		cl.dirty = true
		return
	}
	p, w := cl.p, cl.p.w
	if !p.up || w.downTill > w.sched.now || p.cutTill > w.sched.now {
		cl.dirty = true
		return
	}
	cl.watching, cl.dirty = true, false
	inc := p.inc
	lag := w.sched.delay(&p.net, w.rates().stale)
	if p.lagTill > w.sched.now {
		lag += p.net.between(time.Second, 6*time.Second)
	}
	if lag >= time.Second {
		w.fault(FaultStale)
	}
	w.sched.after(w.sched.delay(&p.net, 0), func() {
		if p.inc != inc {
			return
		}
		g := cl.reg()
		v := w.reg.picture(g)
		var stored []consume.Stored
		for _, id := range g.order {
			if s := g.stored[id]; s.revision > cl.seen {
				stored = append(stored, consume.Stored{Partition: id, Record: s.record, Revision: s.revision})
			}
		}
		cl.seen = v.Revision
		same := cl.lively == g.viewed && p.net.n(8) > 0 // sessions, members and lanes are as before
		cl.lively = g.viewed
		w.sched.after(lag, func() {
			p.post(inc, func() { cl.see(v, stored, same) })
		})
	})
}

func (cl *client) see(v *consume.View, stored []consume.Stored, same bool) {
	first := cl.p.net.n(2) == 0
	var news []consume.Event
	if first && !same {
		news = append(news, &consume.Viewed{View: v})
	}
	for _, s := range stored {
		news = append(news, &consume.Recorded{Stored: s})
	}
	switch {
	case same:
		news = append(news, &consume.Reached{Revision: v.Revision})
	case !first:
		news = append(news, &consume.Viewed{View: v})
	}
	cl.tell(news...)
	cl.watching = false
	if cl.dirty {
		cl.watch()
	}
	for _, m := range cl.members {
		if l := v.Lanes[m.Lane]; m.Lane != lane.Baseline && (l.Ended || l.Generation > m.Generation) && !cl.toStop[m.ID] {
			cl.stopMember(m.ID)
		}
	}
}

// stopMember tells a member to stop, whose lane is over. As a rule it does so after a while.
func (cl *client) stopMember(id string) {
	cl.toStop[id] = true
	if cl.p.net.n(5) == 0 {
		return // nobody counts it any more
	}
	cl.p.later(cl.p.net.between(0, 3*time.Second), func() {
		if slices.ContainsFunc(cl.members, func(o consume.Member) bool { return o.ID == id }) {
			cl.leave(id)
		}
	})
}

// store keeps a message that failed in another topic, however long that takes.
func (cl *client) store(run uint64, offset int64, m *consume.Message, longer time.Duration) {
	w, inc := cl.p.w, cl.p.inc
	w.sched.after(w.sched.delay(&cl.p.work, 20)+longer, func() {
		w.engine.store(m)
		w.sched.after(w.sched.delay(&cl.p.work, 20), func() {
			cl.post(inc, &consume.Settled{Run: run, Offset: offset})
		})
	})
}

// dispatch hands a message to a consumer, which settles it, gives it back or fails, some
// time later, as the message and chance want it.
func (cl *client) dispatch(d *consume.Dispatch) {
	w := cl.p.w
	nth := w.check.dispatched(cl.by, w.sched.now, d)
	if w.failed() {
		return
	}
	if slices.ContainsFunc(cl.writes, func(s *sentWrite) bool { return s.w.Partition == d.Partition && len(s.w.Moves) > 0 }) {
		w.result.Coverage.Meanwhile++
	}
	w.result.Coverage.dispatched(cl.by, &w.plan.groups[cl.group], d)
	if room := w.plan.room(int(d.Partition.Index)); room != "" && room == w.plan.room(cl.p.id) {
		w.feature(FeatureRoom)
	}
	h := &hand{run: d.Run, partition: d.Partition, msg: d.Message, lane: d.Lane}
	cl.hands = append(cl.hands, h)
	if w.stuckNow(d.Lane) {
		return
	}
	if cl.interrupt(h) {
		cl.p.later(interrupted, func() { cl.consume(h, nth) })
		return
	}
	cl.consume(h, nth)
}

func (cl *client) consume(h *hand, nth int) {
	w := cl.p.w
	r := &stream{state: mixed(w.plan.seed, 7, uint64(cl.group), uint64(len(h.partition.Topic)), uint64(h.partition.Index),
		uint64(h.msg.Offset), uint64(nth))}
	d := w.sched.delay(r, 30)
	cfg := &w.plan.groups[cl.group]
	rates := w.rates()
	if r.permille(rates.slowConsumer) {
		w.fault(FaultSlowConsumer)
		d = cfg.HandoverTimeout + r.between(0, 3*time.Second)
		w.upset(cl.group, &stream{state: r.next()})
	}
	if w.probing {
		d = probeSettles
	}
	var e consume.Event
	switch k := r.n(1000); {
	case k < rates.giveBack && nth < 5:
		e = &consume.Returned{Run: h.run, Offset: h.msg.Offset}
		w.feature(FeatureGivenBack)
	case k < rates.giveBack+rates.fail && nth < 5:
		w.feature(FeatureFailed)
		e = &consume.Failed{Run: h.run, Offset: h.msg.Offset, Error: "no"}
	default:
		e = &consume.Settled{Run: h.run, Offset: h.msg.Offset}
	}
	cl.p.later(d, func() { cl.finish(h, e) })
}

func (cl *client) finish(h *hand, e consume.Event) {
	if h.over {
		return
	}
	h.over = true
	if i := slices.Index(cl.hands, h); i >= 0 {
		cl.hands = slices.Delete(cl.hands, i, i+1)
	}
	if !cl.silent(h) {
		cl.step(e)
	}
}

// recall gives back some of what a run has with consumers: what these have not begun with.
func (cl *client) recall(rc consume.Recall) {
	r := &stream{state: mixed(cl.p.w.plan.seed, 16, uint64(cl.group), uint64(cl.p.id), uint64(cl.p.inc), rc.Run)}
	for _, h := range slices.Clone(cl.hands) {
		if h.run != rc.Run || r.n(3) > 0 || cl.p.w.plan.eager {
			continue
		}
		cl.p.w.feature(FeatureRecalled)
		cl.p.later(r.between(0, 10*time.Millisecond), func() {
			cl.finish(h, &consume.Returned{Run: h.run, Offset: h.msg.Offset})
		})
	}
}

// consumerCrash lets all that is with the consumers of a lane come back.
func (cl *client) consumerCrash(l lane.Name) {
	for _, h := range slices.Clone(cl.hands) {
		if h.lane == l {
			cl.p.later(cl.p.work.between(0, 50*time.Millisecond), func() {
				cl.finish(h, &consume.Returned{Run: h.run, Offset: h.msg.Offset})
			})
		}
	}
}
