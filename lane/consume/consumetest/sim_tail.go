package consumetest

import (
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// The quiet tail: how often it is looked whether all is well, and for how long at most.
const (
	tailLook  = 2 * time.Second
	tailAfter = 3 * time.Second // once all is well, for what may come late
)

// tail lets nothing go wrong any more, mends what is broken, and checks that all is well in
// bounded time: first for all but a lane that is stuck, then for all.
func (w *world) tail() {
	if w.failed() {
		return
	}
	w.tracef("world", "from here on nothing goes wrong")
	w.quiet = true
	w.repair()
	cfg := &w.plan.groups[0]
	bound := 8*w.plan.ttl + 4*cfg.HandoverTimeout + 60*time.Second
	if w.plan.stuck != nil {
		w.settleDown("I5", bound, w.plan.stuck)
		if !w.failed() {
			w.isolation()
		}
	}
	w.unstick()
	w.settleDown("I1", bound, nil)
	w.sched.runUntil(w.sched.now+tailAfter, w.failed)
	if w.failed() {
		return
	}
	w.settleDown("I1", bound, nil) // it was too early where a member was not known yet
	if w.failed() {
		return
	}
	w.calm(bound)
	if w.failed() {
		return
	}
	down := 0
	for _, p := range w.procs {
		if !p.up {
			down++
		}
	}
	w.result.Coverage.ended(w.plan, w.truth(nil), down)
	w.check.finalCounts(w.counted())
}

// calm waits for a while in which no cursor changes hands. Members that leave with grace and
// sessions that nobody uses may end late, but not for ever.
func (w *world) calm(bound time.Duration) {
	for end := w.sched.now + bound; w.sched.now < end && !w.failed(); {
		before := w.moves
		w.sched.runUntil(w.sched.now+tailAfter, w.failed)
		if w.moves == before {
			return
		}
	}
	w.check.fail("CALM", "all is quiet, and cursors still change hands after %v", bound)
}

// settleDown runs until all is well.
func (w *world) settleDown(rule string, bound time.Duration, stuck *lane.Name) {
	for end := w.sched.now + bound; !w.failed(); {
		w.sched.runUntil(w.sched.now+tailLook, w.failed)
		if w.failed() {
			return
		}
		missing := w.check.atRest(w.truth(stuck))
		if missing == nil {
			return
		}
		if w.sched.now >= end {
			if missing.rule == "I1" {
				missing.rule = rule
			}
			w.check.fail(missing.rule, "after %v of quiet: %s", bound, missing.what)
			return
		}
	}
}

// repair heals all that is broken.
func (w *world) repair() {
	w.downTill, w.slowTill = min(w.downTill, w.sched.now), 0
	up := 0
	for _, p := range w.procs {
		p.cutTill, p.lagTill = min(p.cutTill, w.sched.now), 0
		if p.up && !p.stopping {
			up++
		}
	}
	for i := range w.reg.groups {
		w.reg.groups[i].group.Paused = false
	}
	w.reg.touch()
	for _, p := range w.procs {
		if p.up && p.frozen {
			p.thaw()
		}
		if !p.up && (!w.plan.downInEnd || up == 0) {
			up++
			p.start()
		}
		p.reconnect()
	}
	if !w.plan.bareEnd {
		w.staff()
	}
	for _, rq := range w.held {
		w.sched.after(w.random.between(0, 5*time.Second), rq.arrive)
	}
	w.held = nil
}

// staff sees to it that every group has a member in the baseline that reads all topics.
func (w *world) staff() {
	for g := range w.plan.groups {
		start := w.random.n(len(w.procs))
		for i := range w.procs {
			p := w.procs[(start+i)%len(w.procs)]
			if p.up && !p.stopping {
				m := memberPlan{group: g}
				for t := range w.plan.groups[g].Topics {
					m.topics = append(m.topics, t)
				}
				p.post(p.inc, func() { p.clients[g].join(p.memberOf(m, fmt.Sprintf("staff%d", g))) })
				break
			}
		}
	}
}

// unstick lets the consumers of a stuck lane go on.
func (w *world) unstick() {
	if w.keepStuck {
		return
	}
	w.unstuck = true
	for _, p := range w.procs {
		for _, cl := range p.clients {
			for i, h := range cl.hands {
				cl.consume(h, i)
			}
		}
	}
}

// truth is how things are, for the last checks.
func (w *world) truth(stuck *lane.Name) *truth {
	t := &truth{now: w.sched.now, lanes: w.reg.lanes, stuck: stuck}
	for i, g := range w.reg.groups {
		tg := truthGroup{members: g.members, partitions: map[string]int32{}, reset: g.group.Reset}
		for _, topic := range w.topicsOf(i) {
			tg.partitions[topic] = int32(len(w.engine.topics[topic]))
		}
		t.groups = append(t.groups, tg)
	}
	t.alive = func(session string) bool { return w.reg.sessions[session] != nil }
	for _, p := range w.procs {
		if !p.up {
			continue
		}
		for _, cl := range p.clients {
			if !cl.stopped {
				t.actors = append(t.actors, cl.by)
			}
		}
	}
	return t
}

// counted is how many messages of each color the groups were to read, by the engine's own
// count.
func (w *world) counted() map[lane.Name]int {
	all := map[lane.Name]int{}
	for g := range w.plan.groups {
		for _, topic := range w.topicsOf(g) {
			for color, n := range w.engine.counts[topic] {
				all[color] += n
			}
		}
	}
	return all
}
