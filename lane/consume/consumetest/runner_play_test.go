package consumetest

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// play is one seed of [TestRunner]: processes with real runners that come and go over an engine
// and a registry in memory, in the virtual time of a bubble. The plan is that of a simulation;
// how goroutines interleave nobody decides.
type play struct {
	plan   *plan
	engine *consume.Memory
	reg    *consume.MemoryRegistry
	wire   *consume.MemoryProcess // by which writes come to the registry
	life   context.Context
	start  time.Time
	unjam  chan struct{} // closed when the lane that is stuck goes on

	// mu is held for a moment only, never over anything that takes time: a goroutine that waits
	// for a mutex does not let the bubble's time pass.
	mu       sync.Mutex
	check    *checker
	cover    Coverage
	random   stream
	trace    []traced
	known    map[consume.Partition]int64 // up to where the checker was told of a log
	appended map[lane.Name]int           // messages that the groups were to read
	stored   map[string]bool             // IDs of the copies that the engine took
	nth      map[string]int              // how often a group's consumers had a message
	slots    []*player
	all      []*player      // that there ever were
	ends     sync.WaitGroup // of processes
	lives    int
	held     []*letter
	quiet    bool
	closing  bool // all is well, and all stop
	downTill time.Duration
	slowTill time.Duration
	resets   int
	called   bool                       // a reset was taken back, or will be
	closed   map[consume.Partition]bool // logs that are another one now: nothing is appended any more
	moves    int                        // that took place
}

// traced is one line of a trace, written when it is asked for.
type traced struct {
	at   time.Duration
	who  string
	what any // a text, an event or an action
}

func newPlay(ctx context.Context, seed uint64) *play {
	p := &play{
		plan: makePlan(seed, true), life: ctx, start: time.Now(), unjam: make(chan struct{}),
		engine: consume.NewMemory(consume.MemoryConfig{}), cover: newCoverage(), random: stream{state: mixed(seed, 12)},
		known: map[consume.Partition]int64{}, closed: map[consume.Partition]bool{}, appended: map[lane.Name]int{}, stored: map[string]bool{}, nth: map[string]int{},
	}
	p.plan.without(func(l lane.Name) bool { return !l.Valid() }) // the engine takes none
	if p.random.n(4) == 0 {                                      // more at once than a simulation has
		p.plan.bursts = true
		for i := range p.plan.groups {
			g := &p.plan.groups[i]
			g.Window, g.WindowBytes, g.Fetch = 5+p.random.n(100), 0, 1+p.random.n(100)
		}
	}
	p.reg = consume.NewMemoryRegistry(consume.MemoryRegistryConfig{TTL: p.plan.ttl, Margin: p.plan.ttl * 3 / 10})
	p.wire = p.reg.Connect()
	p.check = newChecker(p.plan.groups)
	p.check.clock = func() (time.Duration, int) { return p.now(), p.cover.Steps }
	for _, t := range p.plan.groups[0].Topics {
		_ = p.engine.Ensure(ctx, consume.TopicSpec{Name: t.Name, Partitions: p.plan.parts[t.Name]}) // it cannot fail
	}
	for i, up := range p.plan.up {
		if up {
			p.laneUp(i)
		}
	}
	p.slots = make([]*player, len(p.plan.procs))
	return p
}

func (p *play) now() time.Duration { return time.Since(p.start) }

func (p *play) failed() bool { return p.check.violation != nil }

// over is failed for who does not hold the lock.
func (p *play) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed()
}

func (p *play) notef(who, format string, args ...any) {
	p.trace = append(p.trace, traced{p.now(), who, fmt.Sprintf(format, args...)})
}

// note keeps what an event or an action says now: its owner uses it again.
func (p *play) note(who string, what any) {
	is := reflect.ValueOf(what).Elem()
	kept := reflect.New(is.Type())
	kept.Elem().Set(is)
	p.trace = append(p.trace, traced{p.now(), who, kept.Interface()})
}

func (t *traced) String() string {
	what := ""
	switch w := t.what.(type) {
	case string:
		what = w
	case consume.Event:
		what = describeEvent(w)
	case consume.Action:
		what = "  -> " + describeAction(w)
	}
	return fmt.Sprintf("%10.4f %-8s %s", t.at.Seconds(), t.who, what)
}

// delay is how long something takes.
func (p *play) delay(r *stream, slow int) time.Duration {
	var s scheduler
	return s.delay(r, slow)
}

// after does something later, under the lock, unless the play is over by then.
func (p *play) after(d time.Duration, do func()) {
	time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.failed() && p.life.Err() == nil {
			do()
		}
	})
}

func (p *play) rates() rates {
	if p.quiet {
		return rates{}
	}
	return p.plan.rates
}

func (p *play) fault(f Fault) { p.cover.Faults[f]++ }

func (p *play) feature(f Feature) { p.cover.Features[f]++ }

// run plays what the plan has, and then the quiet tail.
func (p *play) run() {
	p.mu.Lock()
	for i := range p.slots {
		p.after(p.delay(&p.random, 100), func() { p.enter(i) })
	}
	p.mu.Unlock()
	for i := range p.plan.ops {
		o := &p.plan.ops[i]
		pause.For(p.life, o.at-p.now())
		if p.over() {
			break
		}
		p.mu.Lock()
		p.op(o)
		p.mu.Unlock()
	}
	pause.For(p.life, p.plan.until-p.now())
	p.tail()
	p.close()
}

// op does one thing of the plan, with the lock held.
func (p *play) op(o *op) {
	r := &stream{state: o.salt}
	switch o.kind {
	case opAppend:
		p.append(r)
	case opLaneUp:
		p.laneUp(r.n(len(p.plan.lanes)))
	case opLaneDown:
		p.laneDown(r.n(len(p.plan.lanes)), r)
	case opGroupPause, opReset:
		p.groupOp(o.kind, r)
	case opGrow, opRetain, opTruncate, opRecreate:
		p.logOp(o.kind, r)
	case opDown:
		p.fault(FaultGoneAll)
		d := r.between(500*time.Millisecond, 3*p.plan.ttl/2)
		p.notef("registry", "is gone for %v", d)
		p.downTill = max(p.downTill, p.now()+d)
		for _, w := range p.slots {
			if w != nil && !w.gone {
				w.cut(d)
			}
		}
	case opSlow:
		p.slowTill = max(p.slowTill, p.now()+r.between(time.Second, 8*time.Second))
	case opJoin:
		p.guest(r)
	default: // of one process
		if w := p.slots[r.n(len(p.slots))]; w != nil && !w.gone {
			p.processOp(o.kind, w, r)
		}
	}
}

func (p *play) processOp(kind opKind, w *player, r *stream) {
	switch kind {
	case opLeave, opStop:
		w.stop()
	case opCrash:
		p.fault(FaultCrash)
		w.crash()
		p.enterLater(w.slot)
	case opCut:
		p.fault(FaultGoneOne)
		w.cut(r.between(500*time.Millisecond, 5*p.plan.ttl/2))
	case opLag:
		w.lagTill = p.now() + r.between(time.Second, 15*time.Second)
	case opExpire:
		if id, _ := w.access.Session(); id != "" {
			p.fault(FaultExpiry)
			p.notef(w.name, "session %s is ended", id)
			p.check.revoked(id)
			p.reg.End(id)
		}
	default:
	}
}

// maxSlots bounds how many processes there are at once.
const maxSlots = 7

// guest is a process with one member that comes besides.
func (p *play) guest(r *stream) {
	group, l := r.n(len(p.plan.groups)), lane.Baseline
	if r.n(4) > 0 {
		l = p.plan.lanes[r.n(len(p.plan.lanes))]
	}
	m := p.plan.drawMember(r, group, l)
	at := slices.IndexFunc(p.slots, func(w *player) bool { return w != nil && w.ended })
	switch {
	case at >= 0:
		p.plan.procs[at] = []memberPlan{m}
	case len(p.slots) < maxSlots:
		at = len(p.slots)
		p.slots, p.plan.procs = append(p.slots, nil), append(p.plan.procs, []memberPlan{m})
	default:
		return
	}
	p.enter(at)
}

func (p *play) append(r *stream) {
	topics := p.plan.groups[0].Topics
	t := topics[r.n(len(topics))].Name
	parts, _ := p.engine.Partitions(p.life, t)
	id := consume.Partition{Topic: t, Index: int32(r.n(int(parts)))}
	if p.closed[id] {
		return
	}
	ms, burst := p.plan.messages(r)
	if burst {
		p.feature(FeatureBurst)
	}
	for _, m := range ms {
		m.Partition, m.Key = id, []byte{byte('a' + r.n(5))}
		if err := p.engine.Append(p.life, m); err != nil {
			p.check.fail("ENGINE", "append: %v", err)
			return
		}
		p.look(id)
	}
}

// look tells the checker of what a log has got, before anybody can do anything with it.
func (p *play) look(id consume.Partition) {
	b, err := p.engine.Peek(id, p.known[id], consume.Filter{All: true}, 1<<20)
	if err != nil || p.closed[id] {
		return
	}
	p.known[id] = b.Next
	for _, m := range b.Messages {
		p.cover.Messages++
		p.notef("engine", "has %s", describe(m))
		for _, g := range p.check.groups {
			if g.origin[id.Topic] != "" {
				p.appended[m.Color]++
			}
		}
		p.check.appended(m)
	}
}

func (p *play) laneUp(i int) {
	name, parent := p.plan.lanes[i], lane.Baseline
	if up := p.plan.parents[i]; up >= 0 {
		parent = p.plan.lanes[up]
	}
	if p.reg.CreateLane(name, parent) != nil {
		return // it is there
	}
	p.notef("registry", "lane %s is there, parent %q", name, parent)
	p.check.laneUp(name, parent)
}

// laneDown ends a lane. As a rule its members go, and at times it is there again before.
func (p *play) laneDown(i int, r *stream) {
	name := p.plan.lanes[i]
	if !p.living(name) {
		return
	}
	_ = p.reg.EndLane(name)
	p.notef("registry", "lane %s is over", name)
	if r.n(2) == 0 {
		p.after(r.between(0, 2*time.Second), func() { p.laneUp(i) })
	}
	for _, w := range p.slots { // one that has other members stays more often
		if w != nil && !w.gone && w.in(name) && r.n(5) > len(w.roles[0].options.Members)-1 {
			p.after(r.between(0, 3*time.Second), w.stop)
		}
	}
}

func (p *play) living(l lane.Name) bool {
	is, known := p.reg.View(p.plan.groups[0].Group).Lanes[l]
	return l == lane.Baseline || known && !is.Ended
}

func (p *play) groupOp(kind opKind, r *stream) {
	name := p.plan.groups[r.n(len(p.plan.groups))].Group
	to := p.reg.View(name).Group
	if kind == opGroupPause {
		if to.Paused = !to.Paused; to.Paused {
			p.feature(FeaturePaused)
		}
		p.notef("registry", "%s paused: %v", name, to.Paused)
		p.reg.SetGroup(name, to)
		return
	}
	p.resets++
	to.Reset = &consume.Reset{ID: fmt.Sprintf("r%d", p.resets), Offsets: map[consume.Partition]int64{}}
	for _, s := range p.reg.Records(name) {
		if b, err := p.engine.Bounds(p.life, s.Partition); err == nil && r.n(3) > 0 && !p.closed[s.Partition] {
			to.Reset.Offsets[s.Partition] = b.First + int64(r.n(int(b.End-b.First)+1))
		}
	}
	p.notef("registry", "%s is to begin again at %v", name, to.Reset.Offsets)
	p.reg.SetGroup(name, to)
	if r.n(2) == 0 {
		p.called = true
		p.after(r.between(0, 4*time.Second), func() {
			if now := p.reg.View(name).Group; now.Reset != nil && now.Reset.ID == to.Reset.ID {
				now.Reset = nil
				p.feature(FeatureCalledOff)
				p.notef("registry", "reset %s is called off", to.Reset.ID)
				p.reg.SetGroup(name, now)
			}
		})
	}
}

func (p *play) logOp(kind opKind, r *stream) {
	topics := p.plan.groups[0].Topics
	t := topics[r.n(len(topics))].Name
	parts, _ := p.engine.Partitions(p.life, t)
	switch kind {
	case opGrow:
		if parts < 4 {
			p.fault(FaultGrowth)
			p.notef("engine", "%s has a partition more", t)
			_ = p.engine.Grow(p.life, t, parts+1)
		}
	case opRetain:
		id := consume.Partition{Topic: t, Index: int32(r.n(int(parts)))}
		p.look(id)
		b, _ := p.engine.Bounds(p.life, id)
		if b.End > b.First && !p.closed[id] {
			p.fault(FaultRetention)
			first := b.First + 1 + int64(r.n(int(b.End-b.First)))
			p.notef("engine", "retention: %s begins at %d", id, first)
			_ = p.engine.Retain(id, first)
			p.check.deleted(id, 0, first, true)
		}
	case opTruncate:
		id := consume.Partition{Topic: t, Index: int32(r.n(int(parts)))}
		if first, end, ok := p.mayBreak(id); ok && end > first {
			end = max(first, end-1-int64(r.n(2)))
			p.fault(FaultTruncated)
			p.notef("engine", "truncated: %s ends at %d", id, end)
			p.check.deleted(id, end, p.known[id], false)
			p.breakLog(id)
			_ = p.engine.Truncate(id, end)
		}
	case opRecreate:
		p.recreate(t, parts)
	default:
	}
}

// recreate deletes a topic and creates it again.
func (p *play) recreate(topic string, parts int32) {
	for i := range parts {
		if _, _, ok := p.mayBreak(consume.Partition{Topic: topic, Index: i}); !ok {
			return
		}
	}
	p.fault(FaultRecreated)
	p.notef("engine", "created again: %s", topic)
	for i := range parts {
		id := consume.Partition{Topic: topic, Index: i}
		p.check.deleted(id, 0, p.known[id], false)
		p.breakLog(id)
	}
	_ = p.engine.Recreate(topic)
}

func (p *play) breakLog(id consume.Partition) {
	p.closed[id] = true
	p.check.broke(id)
}

// mayBreak reports whether a log may become another one: not while some group has no record of it
// or is told to begin again, since nobody could tell then. All groups have noted that they are
// beyond end.
func (p *play) mayBreak(id consume.Partition) (first, end int64, ok bool) {
	p.look(id)
	b, _ := p.engine.Bounds(p.life, id)
	end = b.End
	for _, g := range p.check.groups {
		part := g.part(id)
		if part.record == nil || part.broken || p.called || part.record.Epoch != b.Epoch {
			return 0, 0, false
		}
		if reset := p.reg.View(g.cfg.Group).Group.Reset; reset != nil {
			if _, named := reset.Offsets[id]; named {
				return 0, 0, false
			}
		}
		end = min(end, part.notes[consume.Main].Pos)
	}
	return b.First, end, true
}
