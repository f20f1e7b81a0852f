package consumetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// op does one thing of the plan. What it is about is drawn from its own salt.
func (w *world) op(o *op) {
	r := &stream{state: o.salt}
	switch o.kind {
	case opAppend:
		w.append(r)
		return
	case opLaneUp, opLaneDown:
		i := r.n(len(w.plan.lanes))
		if o.kind == opLaneUp {
			w.laneUp(i)
		} else {
			w.laneDown(i)
			if r.n(2) == 0 { // and it is created again, before its members have gone
				w.sched.after(r.between(0, 2*time.Second), func() { w.laneUp(i) })
			}
		}
		return
	case opGroupPause, opReset:
		w.groupOp(o.kind, r)
		return
	case opGrow, opRetain, opTruncate, opRecreate:
		w.logOp(o.kind, r)
		return
	case opDown:
		w.fault(FaultGoneAll)
		w.down(r.between(500*time.Millisecond, 3*w.plan.ttl/2))
		return
	case opSlow:
		w.slowTill = max(w.slowTill, w.sched.now+r.between(time.Second, 8*time.Second))
		return
	default: // of one process
	}
	p := w.procs[r.n(len(w.procs))]
	if p.up {
		w.processOp(o.kind, p, r)
	}
}

func (w *world) append(r *stream) {
	topics := w.plan.groups[0].Topics
	t := topics[r.n(len(topics))].Name
	logs := w.engine.topics[t]
	j := logs[r.n(len(logs))]
	ms, burst := w.plan.messages(r)
	if burst {
		w.feature(FeatureBurst)
	}
	for _, m := range ms {
		if !w.plan.bytes {
			m.Key, m.Headers = []byte(m.Color), []consume.Header{{Name: "n", Value: fmt.Append(nil, w.result.Coverage.Messages)}}
		}
		w.engine.append(j, m)
	}
}

// down takes the registry away from all.
func (w *world) down(d time.Duration) {
	w.downTill = max(w.downTill, w.sched.now+d)
	w.tracef("registry", "is gone for %v", d)
	w.sched.after(w.downTill-w.sched.now, func() {
		for _, p := range w.procs {
			p.reconnect()
		}
	})
}

// reconnect lets a process see what it missed.
func (p *process) reconnect() {
	for _, cl := range p.clients {
		if cl.dirty && !cl.watching {
			cl.watch()
		}
	}
}

func (w *world) processOp(kind opKind, p *process, r *stream) {
	w.tracef(p.name(), "%s", kind)
	switch kind {
	case opJoin:
		group := r.n(len(w.plan.groups))
		l := lane.Baseline
		if r.n(4) > 0 {
			l = w.plan.lanes[r.n(len(w.plan.lanes))]
			if !w.laneLives(l) {
				return
			}
		}
		m := w.plan.drawMember(r, group, l)
		id := fmt.Sprintf("m%d.%d.x%d", p.id, p.inc, r.n(1000))
		p.post(p.inc, func() { p.clients[group].join(p.memberOf(m, id)) })
	case opDuplicate:
		w.duplicate(p, r)
	case opLeave:
		cl := p.clients[r.n(len(p.clients))]
		if len(cl.members) > 0 {
			m := cl.members[r.n(len(cl.members))]
			grace := r.n(3) == 0 && !w.plan.graceless
			crash := r.n(4) == 0 && w.plan.rates != (rates{})
			p.post(p.inc, func() { w.leave(cl, m, grace, crash) })
		}
	case opCrash:
		w.fault(FaultCrash)
		p.kill()
		w.restartLater(p)
	case opStop:
		p.post(p.inc, p.stop)
	case opPause:
		w.fault(FaultPause)
		p.frozen = true
		inc := p.inc
		w.sched.after(r.between(100*time.Millisecond, 2*w.plan.ttl), func() {
			if p.inc == inc && p.frozen {
				w.tracef(p.name(), "goes on")
				p.thaw()
			}
		})
	case opCut:
		w.fault(FaultGoneOne)
		p.cutTill = max(p.cutTill, w.sched.now+r.between(500*time.Millisecond, 5*w.plan.ttl/2))
		w.sched.after(p.cutTill-w.sched.now, p.reconnect)
	case opLag:
		p.lagTill = w.sched.now + r.between(time.Second, 15*time.Second)
	case opExpire:
		if p.session != "" && w.reg.sessions[p.session] != nil {
			w.fault(FaultExpiry)
			w.check.revoked(p.session)
			w.endSession(p.session)
		}
	default:
	}
}

func (w *world) laneLives(l lane.Name) bool {
	if l == lane.Baseline {
		return true
	}
	is := w.reg.lanes[l]
	return is.Generation > 0 && !is.Ended
}

// duplicate lets a process join a member by the ID of one that is there.
func (w *world) duplicate(p *process, r *stream) {
	group := r.n(len(w.plan.groups))
	all := w.reg.groups[group].members
	if len(all) == 0 {
		return
	}
	m := all[r.n(len(all))]
	if m.Session == "" || !w.laneLives(m.Lane) {
		return
	}
	w.fault(FaultDuplicate)
	p.post(p.inc, func() { p.clients[group].join(m) })
}

// leave takes a member away; with grace, it counts for some time still.
func (w *world) leave(cl *client, m consume.Member, grace, crash bool) {
	if grace && w.reg.sessions[cl.p.session] != nil && w.downTill <= w.sched.now && cl.p.cutTill <= w.sched.now {
		g := cl.reg()
		w.reg.tombstone(g, m)
		w.feature(FeatureGrace)
		w.sched.after(3*time.Second, func() { w.reg.buryTombstone(g, m.ID) })
	}
	cl.leave(m.ID)
	if crash && !slices.ContainsFunc(cl.members, func(o consume.Member) bool { return o.Lane == m.Lane }) {
		w.fault(FaultConsumerCrash)
		cl.consumerCrash(m.Lane)
	}
}

func (w *world) groupOp(kind opKind, r *stream) {
	group := r.n(len(w.plan.groups))
	g := w.reg.groups[group]
	if kind == opGroupPause {
		g.group.Paused = !g.group.Paused
		w.tracef("registry", "%s paused: %v", g.name, g.group.Paused)
		if g.group.Paused {
			w.feature(FeaturePaused)
		}
		w.reg.touch()
		return
	}
	w.reset(group, r)
}

// reset lets a group begin elsewhere, and calls that off again at times.
func (w *world) reset(group int, r *stream) {
	g := w.reg.groups[group]
	w.resets++
	reset := &consume.Reset{ID: fmt.Sprintf("r%d", w.resets), Offsets: map[consume.Partition]int64{}}
	for _, id := range g.order {
		j := w.engine.journal(id)
		if !j.closed && r.n(3) > 0 && g.stored[id].record.Epoch == j.epoch {
			reset.Offsets[id] = j.first + int64(r.n(int(j.end-j.first)+1))
		}
	}
	g.group.Reset = reset
	w.tracef("registry", "%s is to begin again at %v", g.name, reset.Offsets)
	w.reg.touch()
	if r.n(2) == 0 {
		w.calledOff = true
		w.sched.after(r.between(0, 4*time.Second), func() { w.callOff(g, reset) })
	}
}

// callOff takes a reset back, as far as it is not done.
func (w *world) callOff(g *regGroup, reset *consume.Reset) {
	if g.group.Reset == reset {
		g.group.Reset = nil
		w.feature(FeatureCalledOff)
		w.tracef("registry", "reset %s is called off", reset.ID)
		w.reg.touch()
	}
}

func (w *world) logOp(kind opKind, r *stream) {
	topics := w.plan.groups[0].Topics
	t := topics[r.n(len(topics))].Name
	logs := w.engine.topics[t]
	j := logs[r.n(len(logs))]
	switch kind {
	case opGrow:
		if len(logs) < 4 {
			w.fault(FaultGrowth)
			w.grow(t, int32(len(logs)+1))
		}
	case opRetain:
		if len(j.messages) > 0 && !j.closed {
			w.fault(FaultRetention)
			w.engine.retain(j, 1+r.n(len(j.messages)))
		}
	case opTruncate, opRecreate:
		w.breakLog(kind, j, r)
	default:
	}
}

func (w *world) grow(topic string, to int32) {
	w.engine.ensure(topic, to)
	for _, p := range w.procs {
		for _, cl := range p.clients {
			inc := p.inc
			w.sched.after(p.net.between(0, 3*time.Second), func() { cl.count(inc, topic) })
		}
	}
}

// breakLog makes another log of one. It is left alone while some group has no record of it or
// is told to begin again, since nobody could tell that it is another one.
func (w *world) breakLog(kind opKind, j *journal, r *stream) {
	end := j.end
	if w.calledOff {
		return // a reset may still land
	}
	for _, g := range w.reg.groups {
		s := g.stored[j.id]
		if s == nil || j.closed || s.record.Epoch != j.epoch {
			return
		}
		if g.group.Reset != nil {
			if _, named := g.group.Reset.Offsets[j.id]; named {
				return
			}
		}
		end = min(end, s.notes[consume.Main].note.Pos)
	}
	if kind == opRecreate {
		w.fault(FaultRecreated)
		w.engine.recreate(j)
		return
	}
	if end <= j.first {
		return
	}
	w.fault(FaultTruncated)
	w.engine.truncate(j, max(j.first, end-1-int64(r.n(2))))
}
