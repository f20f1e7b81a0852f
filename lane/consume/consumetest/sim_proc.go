package consumetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// callTimeout is how long a process waits for an answer of the registry.
const callTimeout = 2 * time.Second

// process is one process. It does what a runner has to do, as the docs of the events say.
type process struct {
	w        *world
	id       int
	up       bool
	inc      int // how often it was started: what was meant for an earlier one is dropped
	frozen   bool
	backlog  []func()
	cutTill  time.Duration // from the registry
	lagTill  time.Duration // of its picture
	thawedAt time.Duration // when it last stood still till
	net      stream
	work     stream

	session  string
	opens    int
	lease    time.Duration // until when the session surely lives
	lost     bool
	stopping bool
	seq      uint64 // of the last word on its members
	synced   uint64
	syncing  bool
	clients  []*client
}

// margin is how much earlier than the registry a process counts its lease as run out.
func (p *process) margin() time.Duration { return p.w.plan.ttl * 3 / 10 }

// start starts a process that is down.
func (p *process) start() {
	p.inc++
	p.up, p.frozen, p.stopping, p.lost = true, false, false, false
	p.session, p.backlog, p.syncing = "", nil, false
	p.clients = nil
	p.w.tracef(p.name(), "starts")
	for g := range p.w.plan.groups {
		p.clients = append(p.clients, p.newClient(g))
	}
	p.open()
}

func (p *process) name() string { return fmt.Sprintf("p%d", p.id) }

// kill ends a process at once. What it sent is still under way.
func (p *process) kill() {
	p.up = false
	p.inc++
	for _, cl := range p.clients {
		p.w.check.crashed(cl.by)
	}
}

// post does something in the process, unless it is gone by then. A process that stands still
// does it when it goes on.
func (p *process) post(inc int, do func()) {
	switch {
	case !p.up || p.inc != inc:
	case p.frozen:
		p.backlog = append(p.backlog, do)
	default:
		do()
	}
}

// later is post, after a while.
func (p *process) later(d time.Duration, do func()) {
	inc := p.inc
	p.w.sched.after(d, func() { p.post(inc, do) })
}

// thaw lets a process go on that stood still.
func (p *process) thaw() {
	p.frozen, p.thawedAt = false, p.w.sched.now
	for _, cl := range p.clients {
		p.w.check.thawed(cl.by, p.w.sched.now)
	}
	inc, backlog := p.inc, p.backlog
	p.backlog = nil
	for _, do := range backlog {
		p.w.sched.after(p.w.sched.delay(&p.net, 0), func() { p.post(inc, do) })
	}
}

// request is one request to the registry. It may arrive more than once, late, or never.
type request struct {
	p        *process
	what     string
	write    *consume.Write // or nil
	apply    func() any
	answer   func(result any, ok bool)
	inc      int
	sent     time.Duration
	over     bool // it was answered, or is waited for no longer
	answered bool
}

// call sends a request and tells of its answer, or that none came in time.
func (p *process) call(what string, w *consume.Write, apply func() any, answer func(any, bool)) {
	rq := &request{p: p, what: what, write: w, apply: apply, answer: answer, inc: p.inc, sent: p.w.sched.now}
	r := p.w.rates()
	slow := r.slow
	if p.w.sched.now < p.w.slowTill {
		slow = 500
	}
	switch {
	case p.net.permille(r.lostRequest):
		p.w.fault(FaultLostRequest)
	case p.net.permille(r.late):
		p.w.hold(rq, p.net.between(time.Second, 25*time.Second))
	default:
		d := p.w.sched.delay(&p.net, slow)
		if d >= time.Second {
			p.w.fault(FaultSlow)
		}
		p.w.sched.after(d, rq.arrive)
	}
	if p.net.permille(r.copies) {
		p.w.hold(rq, p.net.between(time.Millisecond, 10*time.Second))
	}
	p.w.sched.after(callTimeout, func() {
		p.post(rq.inc, func() {
			if !rq.over {
				rq.over = true
				rq.answer(nil, false)
			}
		})
	})
}

// arrive is when a request, or a copy, comes to the registry.
func (rq *request) arrive() {
	w := rq.p.w
	if until := max(w.downTill, rq.p.cutTill); until > w.sched.now {
		if rq.p.net.n(2) == 0 {
			w.sched.after(until-w.sched.now+w.sched.delay(&rq.p.net, 0), rq.arrive)
		}
		return
	}
	if rq.write != nil {
		w.countLate(rq)
	}
	result := rq.apply()
	r := w.rates()
	if rq.p.net.permille(r.lostReply) {
		w.fault(FaultLostReply)
		return
	}
	w.sched.after(w.sched.delay(&rq.p.net, r.slow/2), func() {
		if rq.p.cutTill > w.sched.now || w.downTill > w.sched.now {
			return
		}
		rq.p.post(rq.inc, func() {
			if !rq.over {
				rq.over, rq.answered = true, true
				rq.answer(result, true)
			}
		})
	})
}

// open opens a session, until one is open.
func (p *process) open() {
	p.opens++
	id, sent := fmt.Sprintf("s%d.%d.%d", p.id, p.inc, p.opens), p.w.sched.now
	p.call("open "+id, nil, func() any {
		if p.w.reg.sessions[id] == nil && !p.w.buried[id] {
			p.w.reg.open(id, p.w.sched.now, p.w.plan.ttl)
			p.w.watchSession(id)
		}
		return nil
	}, func(_ any, ok bool) {
		lease := sent + p.w.plan.ttl - p.margin()
		if !ok || lease <= p.w.sched.now {
			p.later(p.net.between(10*time.Millisecond, 500*time.Millisecond), p.open)
			return
		}
		p.opened(id, lease)
	})
}

func (p *process) opened(id string, lease time.Duration) {
	p.session, p.lease, p.lost = id, lease, false
	for _, cl := range p.clients {
		p.w.check.session(cl.by, id)
	}
	for _, cl := range p.clients {
		cl.read()
		cl.raw(&consume.Opened{Session: id})
	}
	p.watchLease()
	p.renewLater(id)
	p.seq++
	p.sync()
	for _, cl := range p.clients {
		cl.watch()
	}
}

// watchLease tells of the lease's end when a clock shows it.
func (p *process) watchLease() {
	id := p.session
	p.later(p.lease-p.w.sched.now, func() {
		if p.session == id && !p.lost && !p.checkClock() {
			p.watchLease()
		}
	})
}

// checkClock reports whether the lease has run out, and tells of it at once.
func (p *process) checkClock() bool {
	if p.session == "" || p.lost || p.w.sched.now < p.lease {
		return p.lost
	}
	p.lost = true
	for _, cl := range p.clients {
		if cl.by.policy == consume.LossHold {
			p.w.fault(FaultGoneHold)
		} else {
			p.w.fault(FaultGoneContinue)
		}
		cl.raw(&consume.LeaseLost{})
		p.w.goesOn(cl)
	}
	if p.net.n(2) == 0 {
		p.reread(func() { p.deleteSession(p.open) })
	} else {
		p.deleteSession(func() { p.reread(p.open) })
	}
	return true
}

// reread reads all records from the registry itself, until that is done.
func (p *process) reread(then func()) {
	p.call("read records", nil, func() any {
		var all [][]consume.Stored
		for _, cl := range p.clients {
			var s []consume.Stored
			g := cl.reg()
			for _, id := range g.order {
				s = append(s, consume.Stored{Partition: id, Record: g.stored[id].record, Revision: g.stored[id].revision})
			}
			all = append(all, s)
		}
		return all
	}, func(result any, ok bool) {
		if !ok {
			p.later(p.net.between(50*time.Millisecond, time.Second), func() { p.reread(then) })
			return
		}
		all, _ := result.([][]consume.Stored)
		for i, cl := range p.clients {
			cl.read()
			var news []consume.Event
			for _, s := range all[i] {
				news = append(news, &consume.Recorded{Stored: s, Fresh: true})
			}
			if len(news) > 1 && !p.w.plan.alone && p.net.n(2) == 0 {
				news = []consume.Event{&consume.Several{Events: news}}
			}
			for _, e := range news {
				cl.raw(e)
			}
		}
		then()
	})
}

func (p *process) deleteSession(then func()) {
	id := p.session
	p.call("end "+id, nil, func() any {
		p.w.buried[id] = true
		p.w.endSession(id)
		return nil
	}, func(_ any, ok bool) {
		if !ok {
			p.later(p.net.between(50*time.Millisecond, time.Second), func() { p.deleteSession(then) })
			return
		}
		then()
	})
}

func (p *process) renewLater(id string) {
	p.later(p.w.plan.ttl/4, func() {
		if p.session != id || p.lost {
			return
		}
		p.renew(id)
		p.renewLater(id)
	})
}

func (p *process) renew(id string) {
	sent := p.w.sched.now
	p.call("renew", nil, func() any { return p.w.reg.renew(id, p.w.sched.now) }, func(result any, ok bool) {
		if !ok || p.session != id || p.lost {
			return
		}
		if alive, _ := result.(bool); !alive {
			p.lease = p.w.sched.now
			p.checkClock()
			return
		}
		p.lease = max(p.lease, sent+p.w.plan.ttl-p.margin())
		p.checkClock()
	})
}

// sync tells the registry of the process's members, until it knows.
func (p *process) sync() {
	if p.syncing || p.session == "" || p.synced == p.seq {
		return
	}
	p.syncing = true
	session, seq := p.session, p.seq
	var all [][]consume.Member
	for _, cl := range p.clients {
		ms := slices.Clone(cl.members)
		for i := range ms {
			ms[i].Session = session
		}
		all = append(all, ms)
	}
	p.call("members", nil, func() any {
		for i, ms := range all {
			p.w.reg.sync(p.w.reg.groups[i], session, seq, ms)
		}
		return nil
	}, func(_ any, ok bool) {
		p.syncing = false
		if ok && p.session == session {
			p.synced = max(p.synced, seq)
		}
		if p.session != session {
			p.synced = 0
		}
		p.later(p.net.between(0, 200*time.Millisecond), p.sync)
	})
}

// stop lets a process give up all that it holds, and end.
func (p *process) stop() {
	if p.stopping || p.w.quiet {
		return
	}
	p.stopping = true
	for _, cl := range p.clients {
		cl.step(&consume.Stop{})
		leave := func() {
			for len(cl.members) > 0 {
				cl.leave(cl.members[0].ID)
			}
		}
		if p.net.n(3) == 0 { // its members are slower
			p.later(p.net.between(0, time.Second), leave)
		} else {
			leave()
		}
	}
	p.seq++
	p.sync()
	p.stopped()
}

// stopped ends a process whose cores have all stopped.
func (p *process) stopped() {
	for _, cl := range p.clients {
		if !cl.stopped {
			return
		}
	}
	p.w.tracef(p.name(), "has stopped")
	p.kill()
	id := p.session
	p.w.sched.after(p.w.sched.delay(&p.net, 0), func() { p.w.endSession(id) })
	p.w.restartLater(p)
}

// memberOf makes a member of a process.
func (p *process) memberOf(m memberPlan, id string) consume.Member {
	cfg := &p.w.plan.groups[m.group]
	out := consume.Member{ID: id, Lane: m.lane, Room: p.w.plan.room(p.id)}
	if m.lane != lane.Baseline {
		out.Generation = p.w.reg.lanes[m.lane].Generation
	}
	for _, t := range m.topics {
		out.Topics = append(out.Topics, cfg.Topics[t].Name)
	}
	return out
}
