package consumetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// player is one process from its start to its end, with a runner in each group that it has
// members of. What it does after it has crashed does not count.
type player struct {
	play    *play
	slot    int
	name    string
	access  *consume.MemoryProcess
	roles   []*role
	net     stream
	gone    bool // it has crashed or ended
	leaving bool
	ended   bool // nothing of it runs any more
	cutTill time.Duration
	lagTill time.Duration
	ticks   bool // what comes from the registry comes together
}

// role is one runner: a process's part in one group.
type role struct {
	w       *player
	group   int
	cfg     *consume.Config
	by      *actor
	options consume.Options
	random  stream
	cancel  context.CancelFunc
	done    chan struct{}
	err     error // of Run, once done is closed

	generations map[string]uint64 // of members, by what the registry made of them
	sent        map[uint64]consume.Write
	moving      map[consume.Partition]int // writes with moves that are not answered
	asked       map[consume.Partition]asked
	lostAt      time.Duration
	stopped     bool
	desk        desk
}

// asked is what a start was at when it was asked for.
type asked struct {
	start consume.Start
	at    int64
}

// enter starts the process of a slot, if there is none.
func (p *play) enter(slot int) {
	if w := p.slots[slot]; w != nil && !w.gone {
		return
	}
	p.lives++
	w := &player{
		play: p, slot: slot, name: fmt.Sprintf("p%d.%d", slot, p.lives), access: p.reg.Connect(),
		net: stream{state: mixed(p.plan.seed, 13, uint64(p.lives))},
	}
	w.ticks = w.net.n(3) == 0
	p.slots[slot], p.all = w, append(p.all, w)
	p.notef(w.name, "starts")
	for g := range p.plan.groups {
		var ms []consume.Member
		for i, m := range p.plan.procs[slot] {
			if m.group != g || !p.living(m.lane) {
				continue
			}
			member := consume.Member{ID: fmt.Sprintf("m%d.%d.%d", slot, p.lives, i), Lane: m.lane}
			for _, t := range m.topics {
				member.Topics = append(member.Topics, p.plan.groups[g].Topics[t].Name)
			}
			ms = slices.Insert(ms, w.net.n(len(ms)+1), member)
		}
		if len(ms) > 0 {
			w.join(g, ms)
		}
	}
	if p.downTill > p.now() {
		w.cut(p.downTill - p.now())
	}
	if len(w.roles) == 0 {
		w.gone, w.ended = true, true
		w.access.Close()
	}
}

// enterLater starts a slot's process again after a while.
func (p *play) enterLater(slot int) {
	p.after(p.random.between(0, 12*time.Second), func() {
		if !p.quiet {
			p.enter(slot)
		}
	})
}

// join starts the runner of a group.
func (w *player) join(group int, members []consume.Member) {
	p := w.play
	r := &role{
		w: w, group: group, cfg: &p.plan.groups[group], random: stream{state: mixed(p.plan.seed, 14, uint64(p.lives), uint64(group))},
		done: make(chan struct{}), generations: map[string]uint64{}, sent: map[uint64]consume.Write{}, asked: map[consume.Partition]asked{},
		moving: map[consume.Partition]int{},
		desk:   newDesk(),
	}
	r.by = p.check.actor(group, w.name+"/"+r.cfg.Group)
	src := &roleSource{Memory: p.engine, r: r}
	r.options = consume.Options{
		Config: *r.cfg, Source: src, Topics: src, Registry: &roleRegistry{r}, Members: members, Observe: r.observe,
		Concurrency: 1 + r.random.n(6), KeyOrder: r.random.n(3) == 0, Handle: r.handle,
	}
	if r.random.n(4) == 0 {
		r.options.Handle, r.options.HandleBatch, r.options.Batch = nil, r.handleBatch, 1+r.random.n(5)
	}
	if r.random.n(4) == 0 {
		r.options.Grace = 3 * time.Second
	}
	runner, err := consume.NewRunner(r.options)
	if err != nil {
		p.check.fail("CONFIG", "%v", err)
		return
	}
	ctx, cancel := context.WithCancel(p.life)
	r.cancel = cancel
	w.roles = append(w.roles, r)
	go func() {
		defer close(r.done)
		r.err = runner.Run(ctx)
	}()
}

// in reports whether a process has a member in a lane.
func (w *player) in(l lane.Name) bool {
	return slices.ContainsFunc(w.roles, func(r *role) bool {
		return slices.ContainsFunc(r.options.Members, func(m consume.Member) bool { return m.Lane == l })
	})
}

// stop lets a process end as it should, and come again.
func (w *player) stop() {
	if w.gone || w.leaving {
		return
	}
	w.leaving = true
	w.play.notef(w.name, "stops")
	for _, r := range w.roles {
		if r.options.Grace > 0 {
			w.play.feature(FeatureGrace)
		}
		r.cancel()
	}
	w.play.ends.Go(w.await)
}

// crash ends a process without a word to anybody: what it sent is still under way.
func (w *player) crash() {
	p := w.play
	p.notef(w.name, "crashes")
	w.access.Cut()
	w.end()
	for _, r := range w.roles {
		r.cancel()
	}
	if !w.leaving {
		p.ends.Go(w.await)
	}
}

// end is the end of a process for the others.
func (w *player) end() {
	w.gone = true
	for _, r := range w.roles {
		w.play.check.crashed(r.by)
	}
}

// await waits until nothing of a process runs any more.
func (w *player) await() {
	for _, r := range w.roles {
		<-r.done
	}
	p := w.play
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range w.roles {
		if r.err != nil && p.closing && !w.gone {
			p.check.fail("STOP", "%s, with nothing in its way: %v", r.by.name, r.err)
		}
		if r.err == nil && !r.stopped && !w.gone && !p.failed() {
			p.check.fail("STOP", "%s has ended, and its core has not given up what it holds", r.by.name)
		}
	}
	w.ended = true
	if w.gone {
		return // its session ends by itself
	}
	p.notef(w.name, "has stopped")
	w.end()
	w.access.Close()
	if !p.quiet && p.life.Err() == nil {
		p.enterLater(w.slot)
	}
}

// cut takes the registry out of a process's reach for a while.
func (w *player) cut(d time.Duration) {
	p := w.play
	p.notef(w.name, "is cut off from the registry for %v", d)
	w.cutTill = max(w.cutTill, p.now()+d)
	w.access.Cut()
	p.after(d, w.mend)
}

func (w *player) mend() {
	if !w.gone && w.cutTill <= w.play.now() {
		w.access.Mend()
	}
}

// observe is told by the runner of each event, and of what followed.
func (r *role) observe(e consume.Event, actions []consume.Action) {
	p := r.w.play
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.w.gone || r.stopped || p.failed() {
		return
	}
	p.cover.Steps++
	p.note(r.by.name, e)
	r.heard(e)
	p.check.told(r.by, p.now(), e)
	for _, a := range actions {
		if p.failed() {
			return
		}
		if !quietAction(a) {
			p.note(r.by.name, a)
		}
		r.did(a)
	}
	if !p.failed() {
		p.check.stepped(r.by)
	}
}

// heard takes in what the checker does not look at itself.
func (r *role) heard(e consume.Event) {
	p := r.w.play
	switch e := e.(type) {
	case *consume.Opened:
		p.check.session(r.by, e.Session)
		r.by.members = slices.Clone(r.by.members)
		for i := range r.by.members { // they join anew, and are of the lane as it is until it is seen of which they are
			r.by.members[i].Generation = math.MaxUint64
		}
	case *consume.LeaseLost:
		r.lostAt = p.now()
		if r.by.policy == consume.LossHold {
			p.fault(FaultGoneHold)
		} else {
			p.fault(FaultGoneContinue)
		}
	case *consume.Joined:
		m := e.Member
		m.Generation = r.generations[m.ID]
		r.by.members = append(r.without(m.ID), m)
	case *consume.Left:
		r.by.members = r.without(e.Member)
	case *consume.Resolved:
		r.resolved(e)
	case *consume.Viewed:
		r.viewed(e.View)
	case *consume.Several:
		p.feature(FeatureSeveral)
		if answers := slices.DeleteFunc(slices.Clone(e.Events), func(e consume.Event) bool {
			_, is := e.(*consume.Answered)
			return !is
		}); len(answers) > 1 {
			p.feature(FeatureAnswers)
		}
		for _, one := range e.Events {
			r.heard(one)
		}
	case *consume.Answered:
		r.answered(e)
	case *consume.Settled:
		r.reported(e.Run, e.Offset, saidAck)
	case *consume.Failed:
		r.reported(e.Run, e.Offset, saidFail)
	case *consume.Returned:
		r.reported(e.Run, e.Offset, saidReturn)
	}
}

// without are its members but one.
func (r *role) without(id string) []consume.Member {
	return slices.DeleteFunc(slices.Clone(r.by.members), func(m consume.Member) bool { return m.ID == id })
}

// viewed lets a member have the generation that the registry shows: after a lost session it may
// have joined a newer one, which is seen before its own answer has come.
func (r *role) viewed(v *consume.View) {
	ms := slices.Clone(r.by.members)
	for i := range ms {
		for _, m := range v.Members {
			if n := len(r.by.sessions); n > 0 && m.ID == ms[i].ID && m.Session == r.by.sessions[n-1] {
				ms[i].Generation = m.Generation
			}
		}
	}
	r.by.members = ms
}

// answered looks whether a Core is told that there is no answer though a move took place.
func (r *role) answered(e *consume.Answered) {
	w, sent := r.sent[e.Write]
	switch {
	case !sent:
		r.w.play.check.fail("ANSWER", "%s is told of an answer to write %d, which it has not made", r.by.name, e.Write)
	case e.Outcome == consume.Doubt:
		r.w.play.cover.InDoubt += len(w.Moves)
	case len(w.Moves) > 0:
		r.moving[w.Partition]--
	}
}

// did is told of what a runner is about to do.
func (r *role) did(a consume.Action) {
	p := r.w.play
	switch a := a.(type) {
	case *consume.Propose:
		if a.Attempt == 1 {
			p.check.proposed(r.by, a.Write)
			r.sent[a.ID] = cloneWrite(a.Write)
			if len(a.Moves) > 0 {
				r.moving[a.Partition]++
			}
			if r.cfg.MaxMoves > 0 && len(a.Moves) > 0 {
				p.feature(FeatureFewMoves)
			}
		}
	case *consume.Fetch:
		p.check.fetches(r.by, a)
	case *consume.Dispatch:
		p.check.dispatched(r.by, p.now(), a)
		p.cover.dispatched(r.by, r.cfg, a)
		if r.moving[a.Partition] > 0 {
			p.cover.Meanwhile++
		}
		r.desk.add(a)
	case *consume.Withdraw:
		p.check.withdrawn(r.by, p.now(), a)
		r.desk.cut(a.Run, p.now())
	case *consume.Recall:
		p.check.recalled(r.by, a)
		r.desk.recall(a.Run, p.now())
	case *consume.Requeue:
		p.check.requeued(r.by, a.Run, a.Offset, a.Message)
		r.desk.store(a.Run, a.Offset, a.ID)
	case *consume.Bury:
		p.check.buried(r.by, p.now(), a)
		p.cover.Buries[a.Why]++
		r.desk.store(a.Run, a.Offset, a.ID)
	case *consume.Resolve:
		reset := p.check.resolving(r.by, *a)
		if f := startFeature(a.Start.Kind); f != "" && !reset {
			p.feature(f)
		}
		r.asked[a.Partition] = asked{a.Start, p.standsAt(a.Partition, a.Start)}
	case *consume.Mirror:
		p.check.mirrored(r.by, a)
	case *consume.Alarm:
		p.cover.Alarms[a.Kind]++
		p.check.alarmed(r.by, a)
	case *consume.Stopped:
		p.check.stopped(r.by)
		r.stopped = true // nothing follows, whatever its core is told while its members leave
	case *consume.Arm:
		p.check.waits(r.by, a.Timer)
	case *consume.Moved, *consume.Refused, *consume.Disarm:
	}
}

// standsAt is the offset that a start stands for now.
func (p *play) standsAt(id consume.Partition, s consume.Start) int64 {
	b, _ := p.engine.Bounds(p.life, id)
	switch s.Kind {
	case consume.StartLatest:
		return b.End
	case consume.StartTime:
		at, _ := p.engine.At(p.life, id, s.Time)
		return at
	case consume.StartOffset:
		return min(max(s.Offset, b.First), b.End)
	case consume.StartEarliest:
	}
	return b.First
}

// resolved checks what a runner has made of a start: a log only grows, at both ends.
func (r *role) resolved(e *consume.Resolved) {
	p := r.w.play
	a, was := r.asked[e.Partition]
	if now := p.standsAt(e.Partition, a.start); !p.closed[e.Partition] && (!was || e.Offset < a.at || e.Offset > now) {
		p.check.fail("START", "%s begins with %s at %d: %+v was %d and is %d", r.by.name, e.Partition, e.Offset, a.start, a.at, now)
	}
	p.check.resolved(r.group, e.Partition, e.Offset)
}

// verdict is what a consumer is to make of a message.
type verdict struct {
	takes time.Duration
	says  said
	heeds bool // it gives the message back when its context ends
	holds bool // it settles later than it returns
}

var errFailed = errors.New("no") // what the checker knows

// judge draws what becomes of a message, by what it is and how often a consumer had it.
func (r *role) judge(d *consume.Delivery) verdict {
	p := r.w.play
	key := fmt.Sprintf("%d/%s@%d", r.group, d.Partition, d.Offset)
	nth := p.nth[key]
	p.nth[key]++
	s := &stream{state: mixed(p.plan.seed, 15, uint64(r.group), uint64(len(d.Partition.Topic)), uint64(d.Partition.Index), uint64(d.Offset), uint64(nth))}
	v := verdict{takes: p.delay(s, 30), says: saidAck, heeds: s.n(2) == 0, holds: s.n(8) == 0}
	rates := p.rates()
	if s.permille(rates.slowConsumer) {
		p.fault(FaultSlowConsumer)
		v.takes = r.cfg.HandoverTimeout + s.between(0, 3*time.Second)
	}
	switch k := s.n(1000); {
	case k < rates.giveBack && nth < 5:
		v.says = saidReturn
		p.feature(FeatureGivenBack)
	case k < rates.giveBack+rates.fail && nth < 5:
		v.says = saidFail
		p.feature(FeatureFailed)
	}
	return v
}

// stuck reports whether the consumers of a lane settle nothing at present.
func (p *play) stuck(l lane.Name) bool {
	if p.plan.stuck == nil || *p.plan.stuck != l {
		return false
	}
	select {
	case <-p.unjam:
		return false
	default:
		return true
	}
}

// begin is called by a handler that begins with messages.
func (r *role) begin(ds ...*consume.Delivery) (all []*errand, ok bool) {
	p := r.w.play
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.w.gone || p.failed() {
		return nil, false
	}
	for _, d := range ds {
		all = append(all, &errand{d: d, verdict: r.judge(d), at: r.begun(d), stuck: p.stuck(d.Lane)})
	}
	r.calls(all[0].at)
	return all, true
}

// errand is one message with its consumer.
type errand struct {
	d *consume.Delivery
	verdict
	at    *handing
	stuck bool
}

// work takes the time that a message takes.
func (r *role) work(ctx context.Context, t *errand) {
	if t.stuck {
		select {
		case <-r.w.play.unjam:
		case <-ctx.Done():
			t.says = saidReturn
			return
		}
	}
	if !t.heeds {
		ctx = context.WithoutCancel(ctx)
	}
	if !pause.For(ctx, t.takes) {
		t.says = saidReturn
	}
}

// say notes what a consumer says of a message; what follows says it.
func (r *role) say(t *errand) {
	if t.at != nil {
		r.w.play.mu.Lock()
		defer r.w.play.mu.Unlock()
		t.at.said = t.says
		if t.says == saidReturn || t.says == saidFail && !r.retries(t.d.Message) {
			r.returned(t.at, t.d.Message)
		}
	}
}

// retries reports whether a message that fails goes to a retry topic.
func (r *role) retries(m *consume.Message) bool {
	return slices.ContainsFunc(r.cfg.Topics, func(t consume.Topic) bool {
		return t.Retry != "" && (t.Name == m.Partition.Topic || t.Retry == m.Partition.Topic)
	})
}

// speak says it by the message's own methods.
func (r *role) speak(t *errand) {
	r.say(t)
	switch t.says {
	case saidReturn:
		t.d.Return()
	case saidFail:
		t.d.Fail(errFailed)
	default:
		t.d.Ack()
	}
}

// handle is the handler of messages that come one by one.
func (r *role) handle(ctx context.Context, d *consume.Delivery) error {
	all, ok := r.begin(d)
	if !ok {
		<-ctx.Done() // what is given back comes again at once
		return consume.ErrReturn
	}
	t := all[0]
	defer r.returns(t.at)
	if t.holds && !t.stuck {
		d.Hold()
		time.AfterFunc(t.takes, func() { r.speak(t) })
		return nil
	}
	r.work(ctx, t)
	r.say(t)
	switch t.says {
	case saidReturn:
		return consume.ErrReturn
	case saidFail:
		return errFailed
	case saidNothing, saidAck:
	}
	return nil
}

// handleBatch is the handler of messages that come together: it answers for some itself, and
// its return for the others.
func (r *role) handleBatch(ctx context.Context, ds []*consume.Delivery) error {
	all, ok := r.begin(ds...)
	if !ok {
		<-ctx.Done() // what is given back comes again at once
		return consume.ErrReturn
	}
	defer r.returns(all[0].at)
	r.work(ctx, all[0])
	for i, t := range all {
		if t.says == saidAck && i%2 == 0 {
			r.say(t)
		} else {
			r.speak(t)
		}
	}
	return nil
}
