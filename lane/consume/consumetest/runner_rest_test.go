package consumetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// tail lets nothing go wrong any more, mends what is broken, and checks that all is well in
// bounded time: first for all but a lane that is stuck, then for all.
func (p *play) tail() {
	if p.over() {
		return
	}
	p.mu.Lock()
	p.notef("play", "from here on nothing goes wrong")
	p.quiet = true
	p.repair()
	p.mu.Unlock()
	cfg := &p.plan.groups[0]
	bound := 8*p.plan.ttl + 4*cfg.HandoverTimeout + 60*time.Second
	if p.plan.stuck != nil {
		p.settleDown("I5", bound, p.plan.stuck)
	}
	close(p.unjam)
	p.settleDown("I1", bound, nil)
	pause.For(p.life, tailAfter)
	p.settleDown("I1", bound, nil) // it was too early where a member was not known yet
	p.calm(bound)
	if p.over() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cover.ended(p.plan, p.truth(nil), p.down())
	p.check.finalCounts(p.appended)
}

// settleDown waits until all is well.
func (p *play) settleDown(rule string, bound time.Duration, stuck *lane.Name) {
	for end := p.now() + bound; ; {
		pause.For(p.life, tailLook)
		p.mu.Lock()
		var missing *missing
		if !p.failed() {
			missing = p.missing(stuck)
		}
		if missing != nil && p.now() >= end {
			if missing.rule == "I1" {
				missing.rule = rule
			}
			p.check.fail(missing.rule, "after %v of quiet: %s", bound, missing.what)
		}
		done := missing == nil || p.failed()
		p.mu.Unlock()
		if done {
			return
		}
	}
}

// calm waits for a while in which no cursor changes hands.
func (p *play) calm(bound time.Duration) {
	moves := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.moves
	}
	for end := p.now() + bound; p.now() < end; {
		before := moves()
		if pause.For(p.life, tailAfter); p.over() || moves() == before {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.check.fail("CALM", "all is quiet, and cursors still change hands after %v", bound)
}

// repair heals all that is broken. Processes with members of lanes that are over, or are there
// again, come anew, as they do that are deployed; some that have others stay.
func (p *play) repair() {
	p.downTill, p.slowTill = min(p.downTill, p.now()), 0
	for _, g := range p.plan.groups {
		to := p.reg.View(g.Group).Group
		to.Paused = false
		p.reg.SetGroup(g.Group, to)
	}
	up := 0
	for _, w := range p.slots {
		if w == nil || w.gone {
			continue
		}
		w.cutTill, w.lagTill = min(w.cutTill, p.now()), 0
		w.mend()
		if w.stale() && (len(w.roles) == 1 && len(w.roles[0].options.Members) == 1 || p.random.n(2) == 0) {
			w.stop()
		}
		if !w.leaving {
			up++
		}
	}
	for i, w := range p.slots {
		if (w == nil || w.gone || w.leaving) && (!p.plan.downInEnd || up == 0) {
			up++
			p.after(p.random.between(0, 5*time.Second), func() { p.replace(i) })
		}
	}
	if !p.plan.bareEnd {
		p.staff()
	}
	for _, l := range p.held {
		p.after(p.random.between(0, 5*time.Second), l.arrive)
	}
	p.held = nil
}

// replace starts a slot's process, in a slot of its own where the one before has not ended.
func (p *play) replace(slot int) {
	if w := p.slots[slot]; w != nil && !w.gone {
		p.slots, p.plan.procs = append(p.slots, nil), append(p.plan.procs, p.plan.procs[slot])
		slot = len(p.slots) - 1
	}
	p.enter(slot)
}

// stale reports whether a process has members whose lane is over, or was created again since.
func (w *player) stale() bool {
	for _, r := range w.roles {
		lanes := w.play.reg.View(r.cfg.Group).Lanes
		for _, m := range r.options.Members {
			l := lanes[m.Lane]
			if g := r.generations[m.ID]; m.Lane != lane.Baseline && (l.Ended || g > 0 && g < l.Generation) {
				return true
			}
		}
	}
	return false
}

// staff sees to it that every group has a member in the baseline that reads all topics.
func (p *play) staff() {
	var ms []memberPlan
	for g := range p.plan.groups {
		m := memberPlan{group: g}
		for t := range p.plan.groups[g].Topics {
			m.topics = append(m.topics, t)
		}
		ms = append(ms, m)
	}
	p.slots, p.plan.procs = append(p.slots, nil), append(p.plan.procs, ms)
	p.enter(len(p.slots) - 1)
}

// missing is what is not as it has to be; nil: all is well.
func (p *play) missing(stuck *lane.Name) *missing {
	t := p.truth(stuck)
	if m := p.check.atRest(t); m != nil {
		return m
	}
	for _, w := range p.slots {
		if w == nil || w.gone {
			continue
		}
		if w.leaving {
			if stuck == nil {
				return missed("STOP", "%s does not end", w.name)
			}
			continue
		}
		id, _ := w.access.Session()
		for _, r := range w.roles {
			if at, is := r.desk.unheard(); is {
				return missed("HANDLER", "%s is not told what became of offset %d of run %d", r.by.name, at.offset, at.run)
			}
			for _, m := range r.options.Members {
				if p.living(m.Lane) && !slices.ContainsFunc(t.groups[r.group].members, func(o consume.Member) bool {
					return o.ID == m.ID && o.Session == id
				}) {
					return missed("JOIN", "%s, a member in %q, has not joined", m.ID, m.Lane)
				}
			}
		}
	}
	return nil
}

// truth is how things are, for the last checks.
func (p *play) truth(stuck *lane.Name) *truth {
	view := p.reg.View(p.plan.groups[0].Group)
	t := &truth{now: p.now(), lanes: view.Lanes, stuck: stuck, alive: func(session string) bool { return view.Sessions[session] }}
	for _, g := range p.check.groups {
		v := p.reg.View(g.cfg.Group)
		tg := truthGroup{members: v.Members, partitions: map[string]int32{}, reset: v.Group.Reset}
		for _, topic := range g.topics {
			tg.partitions[topic], _ = p.engine.Partitions(p.life, topic)
			for i := range tg.partitions[topic] {
				p.look(consume.Partition{Topic: topic, Index: i})
			}
		}
		t.groups = append(t.groups, tg)
	}
	for _, w := range p.slots {
		if w != nil && !w.gone {
			for _, r := range w.roles {
				t.actors = append(t.actors, r.by)
			}
		}
	}
	return t
}

// down is how many processes are.
func (p *play) down() (n int) {
	for _, w := range p.slots {
		if w == nil || w.gone {
			n++
		}
	}
	return n
}

// close lets all processes end, which they have to do cleanly, and waits until nothing of them
// runs any more.
func (p *play) close() {
	p.mu.Lock()
	select {
	case <-p.unjam:
	default:
		close(p.unjam)
	}
	p.quiet, p.closing = true, !p.failed()
	for _, w := range p.all {
		w.stop()
	}
	p.mu.Unlock()
	p.ends.Wait()
	_ = p.engine.Close()
	if p.over() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.plan.groups {
		for _, s := range p.reg.Records(g.Group) {
			if !s.Record.Main.None() && p.reg.View(g.Group).Sessions[s.Record.Main.Session] {
				p.check.fail("STOP", "all have stopped, and %s of %s is %s", s.Partition, g.Group, describeRecord(s.Record))
			}
		}
	}
}

// playOut plays a seed in a bubble.
func playOut(ctx context.Context, seed uint64) *play {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	p := newPlay(life, seed)
	p.run()
	return p
}

func (p *play) String() string {
	var s strings.Builder
	for i := range p.trace {
		fmt.Fprintln(&s, &p.trace[i])
	}
	fmt.Fprintf(&s, "%10.4f checker  VIOLATION %s\n", p.check.violation.At.Seconds(), p.check.violation)
	return s.String()
}
