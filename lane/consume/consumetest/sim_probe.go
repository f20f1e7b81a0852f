package consumetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// Probes of what must not wait: messages that are appended where nothing stands before them.
const (
	probeRounds  = 5
	probeRest    = 4 * time.Second         // between them: what was handed out before is settled
	probeBound   = 1600 * time.Millisecond // an append, and a fetch and an answer for each probe of a partition
	probeSettles = 2 * time.Second         // how long a probe's consumer takes
)

// probe is a message that some cursor has to hand out soon.
type probe struct {
	p      *checkPart
	f      *fate
	cursor lane.Name
	holder consume.Holder
	term   *term
}

// isolation looks whether a lane that is stuck delays others, while its consumers hold all that
// its window takes, and while it is given to somebody else.
func (w *world) isolation() {
	stuck := *w.plan.stuck
	w.probing, w.sched.brisk = true, true
	for round := 0; round < probeRounds && !w.failed(); round++ {
		w.fill(stuck)
		w.sched.runUntil(w.sched.now+probeRest/2, w.failed)
		lively, moves := w.reg.lively, w.moves
		w.sched.runUntil(w.sched.now+probeRest/2, w.failed)
		if w.reg.lively != lively || w.moves != moves || !w.agreed() {
			continue // something else goes on
		}
		before := w.truth(&stuck)
		w.churn(stuck, round)
		var sent []probe
		for g := range w.plan.groups {
			for _, p := range w.check.groups[g].order {
				sent = append(sent, w.probe(before, g, p)...)
			}
		}
		w.sched.runUntil(w.sched.now+probeBound, w.failed)
		for _, s := range sent {
			if h, _ := holderOf(s.p.record, s.cursor); h != s.holder || s.p.terms[s.cursor] != s.term || s.p.broken {
				continue // it was moved, or reset, and has other things before it
			}
			w.feature(FeatureProbe)
			if s.f.n == 0 && !s.f.exempt() {
				w.check.fail("I5", "%s: %s waits for %v, and only the consumers of %q are stuck", s.p.name(), describe(s.f.msg), probeBound, stuck)
			}
		}
	}
	w.sched.runUntil(w.sched.now+probeRest, w.failed)
	w.probing, w.sched.brisk = false, false
}

// agreed reports whether the registry's members are those that the processes have. Two that join a
// member by one ID never agree.
func (w *world) agreed() bool {
	for _, p := range w.procs {
		if !p.up {
			continue
		}
		for g, cl := range p.clients {
			n := 0
			for _, m := range w.reg.groups[g].members {
				if m.Session != p.session {
					continue
				}
				n++
				if !slices.ContainsFunc(cl.members, func(o consume.Member) bool { return o.ID == m.ID && o.Lane == m.Lane }) {
					return false
				}
			}
			if n != len(cl.members) {
				return false
			}
		}
	}
	return true
}

// fill gives the stuck lane more than its window takes, where it has a cursor of its own.
func (w *world) fill(stuck lane.Name) {
	for g := range w.plan.groups {
		for _, p := range w.check.groups[g].order {
			h, there := holderOf(p.record, stuck)
			if !there || h.None() || h.Lane != stuck || p.broken || p.g.origin[p.id.Topic] != p.id.Topic {
				continue
			}
			for range p.g.cfg.Window + 1 {
				w.engine.append(w.engine.journal(p.id), &consume.Message{Color: stuck, Value: []byte{'a'}})
			}
		}
	}
}

// churn lets the stuck lane's members leave, or others come.
func (w *world) churn(stuck lane.Name, round int) {
	p := w.procs[w.random.n(len(w.procs))]
	group := w.random.n(len(w.plan.groups))
	leave := stuck != lane.Baseline && w.random.n(2) == 0
	for _, q := range w.procs {
		if !q.up || q.stopping {
			continue
		}
		for _, m := range slices.Clone(q.clients[group].members) {
			if leave && m.Lane == stuck {
				q.clients[group].leave(m.ID)
			}
		}
	}
	if leave || !p.up || p.stopping || !w.laneLives(stuck) {
		return
	}
	m := memberPlan{group: group, lane: stuck}
	for t := range w.plan.groups[group].Topics {
		m.topics = append(m.topics, t)
	}
	p.clients[group].join(p.memberOf(m, fmt.Sprintf("m%d.%d.p%d", p.id, p.inc, round)))
}

// probe appends messages for every cursor of a partition that must not wait: its holder and
// its owner are there, are not stuck, and stay, and nothing stands before them.
func (w *world) probe(before *truth, group int, p *checkPart) []probe {
	stuck := *w.plan.stuck
	if p.record == nil || p.broken || p.g.origin[p.id.Topic] != p.id.Topic {
		return nil
	}
	now := w.truth(&stuck)
	var sent []probe
	for _, c := range p.cursors() {
		h, _ := holderOf(p.record, c)
		owner, _ := rightfulOwner(before.lanes, before.groups[group].members, before.alive, p.id.Topic, c)
		a := before.actorOf(group, h.Session)
		switch after, _ := rightfulOwner(now.lanes, now.groups[group].members, now.alive, p.id.Topic, c); {
		case h.None() || !before.alive(h.Session) || a == nil || !before.sits(group, h, p.id.Topic):
			continue
		case owner != after || owner != h.Lane || c.Strict() || c == stuck || w.stuckNow(h.Lane):
			continue
		case c != consume.Main && h.Lane == lane.Baseline: // it may be given back to main
			continue
		case !p.waits(a, c, 1):
			continue
		}
		for range min(p.fits(), 2) {
			w.engine.append(w.engine.journal(p.id), &consume.Message{Color: c, Value: []byte{'a'}})
			sent = append(sent, probe{p, p.messages[len(p.messages)-1], c, h, p.terms[c]})
		}
	}
	return sent
}

// sits reports whether a holder has a member of its lane, by the registry.
func (t *truth) sits(group int, h consume.Holder, topic string) bool {
	return slices.ContainsFunc(t.groups[group].members, func(m consume.Member) bool {
		return m.Session == h.Session && m.Lane == h.Lane && slices.Contains(m.Topics, topic)
	})
}

// fits is how many messages of one byte a window takes.
func (p *checkPart) fits() int {
	if most := int(p.g.cfg.WindowBytes); most > 0 {
		return min(p.g.cfg.Window, most)
	}
	return p.g.cfg.Window
}

// waits reports whether a cursor of this process's has nothing before a message that comes now:
// all that there is of it was handed out in its present run, or is noted as settled, and is
// settled but for less than its window takes; and it has read to the end of the log.
func (p *checkPart) waits(a *actor, c lane.Name, window int) bool {
	run, open := a.running[cursorAt{p.id, c}], 0
	for _, f := range p.messages {
		if f.gone || f.foreign || owning(p.record, f.msg) != c || p.noted(f) {
			continue
		}
		n := len(f.hands)
		if n == 0 || f.hands[n-1].by != a || f.hands[n-1].run != run {
			return false
		}
		if f.hands[n-1].state != done {
			open++
		}
	}
	last := int64(-1)
	if n := len(p.messages); n > 0 {
		last = p.messages[n-1].msg.Offset
	}
	r := a.runs[run]
	return r != nil && open < window && r.from > last
}

// lostBound is when a message is handed out by a process that has lost the registry: an append,
// two fetches and their answers, 300 ms each at worst.
const lostBound = 1600 * time.Millisecond

// goesOn looks whether a process of a group that continues hands out what comes while it has
// lost the registry. It is asked right after it was told so.
func (w *world) goesOn(cl *client) {
	a, p := cl.by, cl.p
	if a.policy != consume.LossContinue || w.plan.rates.fetch > 0 {
		return // a fetch may take long
	}
	for _, part := range w.check.groups[cl.group].order {
		if part.g.origin[part.id.Topic] != part.id.Topic || !w.goes(cl, part) || !part.waits(a, consume.Main, part.fits()) {
			continue
		}
		w.engine.append(w.engine.journal(part.id), &consume.Message{Value: []byte{'a'}})
		f, holder, inc, run := part.messages[len(part.messages)-1], part.record.Main, p.inc, a.running[cursorAt{part.id, consume.Main}]
		w.sched.after(lostBound, func() {
			if p.inc != inc || p.frozen || p.thawedAt+lostBound > w.sched.now || !w.goes(cl, part) ||
				part.record.Main != holder || a.running[cursorAt{part.id, consume.Main}] != run {
				return
			}
			w.feature(FeatureLostProbe)
			if len(f.hands) == 0 && !f.exempt() {
				w.check.fail("LOST", "%s has lost the registry, the group continues, and %s waits for %v", a.name, describe(f.msg), lostBound)
			}
		})
		return // a message for one partition is enough
	}
}

// goes reports whether a process that lost the registry has to go on with main of a partition.
func (w *world) goes(cl *client, p *checkPart) bool {
	a, topic := cl.by, p.g.origin[p.id.Topic]
	if !a.lost || p.record == nil || p.broken || a.halted[p.id] || a.running[cursorAt{p.id, consume.Main}] == 0 || cl.stopped || cl.p.stopping ||
		a.view == nil || a.view.Group.Paused || !slices.Contains(a.sessions, p.record.Main.Session) || !a.reads(lane.Baseline, topic) {
		return false
	}
	// With a move under way it may have given main up, or set it back.
	return !slices.ContainsFunc(cl.writes, func(s *sentWrite) bool { return s.w.Partition == p.id && len(s.w.Moves) > 0 })
}
