package consume

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Core is the protocol for one process and one group. It is not for more than one goroutine
// at a time.
type Core struct {
	cfg Config

	session  string
	past     map[string]bool // sessions that this process had and that were deleted
	lost     bool            // the lease may have run out
	stopping bool
	stopped  bool

	view      *View
	reached   uint64             // the revision that the view and the records are as of
	audiences []*audience        // of cfg.Topics
	members   map[string]Member  // of this process
	local     map[place]bool     // where they are, as far as they count
	anywhere  map[string]int     // how many read a topic, in any lane
	unknown   map[lane.Name]bool // strict colors whose lane is unknown: true once it has been for too long

	parts     []*partition // ascending
	byID      map[Partition]*partition
	runs      map[uint64]*run
	writes    map[uint64]*partition // by the ID of the write under way
	ids       uint64
	rebalance bool
	noting    bool // the note timer is armed
	noteEvery time.Duration

	nowhere partition // stands for none at all

	// What Step returns; used again.
	out        []Action
	dispatched []Dispatch
	fetches    []Fetch
	mirrors    []*run // whose notes took place, for the engine's own tools
}

// place is where a member reads: a topic in a lane.
type place struct {
	topic string
	lane  lane.Name
}

// NewCore makes a Core that holds nothing. The error is that of [Config.Validate].
func NewCore(cfg Config) (*Core, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	return &Core{
		cfg: cfg, noteEvery: cfg.NoteMin,
		past: map[string]bool{}, members: map[string]Member{}, local: map[place]bool{}, anywhere: map[string]int{},
		unknown: map[lane.Name]bool{}, byID: map[Partition]*partition{}, runs: map[uint64]*run{},
		writes: map[uint64]*partition{},
	}, nil
}

// Step takes one event and returns the actions that follow, in order. The slice and the
// actions are used again by the next Step.
func (c *Core) Step(e Event) []Action {
	c.out, c.dispatched, c.fetches = c.out[:0], c.dispatched[:0], c.fetches[:0]
	if c.stopped {
		return nil
	}
	p := c.take(e)
	c.showNoted()
	c.settle(p)
	return c.out
}

// take lets an event change what is known. It returns the one partition that is concerned,
// or nil where any may be.
func (c *Core) take(e Event) *partition {
	switch e := e.(type) {
	case *Fetched:
		return c.ofRun(e.Run, func() { c.fetched(e) })
	case *Settled:
		return c.ofRun(e.Run, func() { c.settled(e) })
	case *Returned:
		return c.ofRun(e.Run, func() { c.returned(e) })
	case *Failed:
		return c.ofRun(e.Run, func() { c.failed(e) })
	case *Answered:
		return c.answered(e)
	case *Fired:
		return c.fired(e.Timer)
	case *Recorded:
		return c.recorded(e)
	case *Resolved:
		return c.resolved(e)
	case *Viewed:
		c.viewed(e.View)
	case *Reached:
		return c.reach(e.Revision)
	case *Several:
		return c.several(e.Events)
	case *Opened:
		c.opened(e.Session)
	case *LeaseLost:
		c.leaseLost()
	case *Joined:
		c.joined(e.Member)
	case *Left:
		c.left(e.Member)
	case *Partitioned:
		c.partitioned(e)
	case *Stop:
		c.stopping = true
	}
	c.lookAtAll()
	return nil
}

// several takes events one after the other.
func (c *Core) several(events []Event) *partition {
	all := &c.nowhere
	for _, e := range events {
		switch p := c.take(e); {
		case all == &c.nowhere:
			all = p
		case p != &c.nowhere && p != all:
			all = nil
		}
	}
	return all
}

// ofRun does something with a run, and returns its partition.
func (c *Core) ofRun(id uint64, do func()) *partition {
	r := c.runs[id]
	if r == nil {
		return &c.nowhere
	}
	do()
	return r.p
}

func (c *Core) lookAtAll() {
	for _, p := range c.parts {
		p.look = true
	}
}

// settle makes the moves that are due, and lets cursors go on.
func (c *Core) settle(only *partition) {
	if c.rebalance && c.view != nil {
		c.rebalance = false
		c.assign()
		only = nil
	}
	if only != nil {
		c.due(only)
	} else {
		for _, p := range c.parts {
			c.due(p)
		}
	}
	if c.stopping && c.idle() {
		c.stopped = true
		c.emit(&Stopped{})
	}
}

// due reconciles a partition until nothing follows from it any more.
func (c *Core) due(p *partition) {
	for p.look {
		c.reconcile(p)
		if p.aud == nil {
			return
		}
		if p.main != nil {
			c.advance(p.main)
		}
		for _, r := range p.colors {
			c.advance(r)
		}
	}
	c.writeNotes(p)
}

// idle reports whether a process that stops has nothing left to give up. What it holds of a
// partition that was stopped goes with its session.
func (c *Core) idle() bool {
	if len(c.writes) > 0 {
		return false
	}
	for _, r := range c.runs {
		if !r.p.halted {
			return false
		}
	}
	return true
}

func (c *Core) paused() bool { return c.view == nil || c.view.Group.Paused }

func (c *Core) opened(session string) {
	if c.session != "" {
		c.past[c.session] = true
	}
	c.session = session
	c.forgetPast()
	c.countMembers()
	if !c.lost {
		return
	}
	c.lost = false
	c.alarm(Alarm{Kind: AlarmRegistryBack})
	for _, p := range c.parts {
		if !p.fresh { // nobody said what its record is now
			p.runs(func(r *run) { c.end(r, WhyGone) })
		}
	}
	// Somebody else may hold what the records still gave to the old session.
	c.recallAll(WhyNewSession)
}

// forgetPast drops sessions of this process that no record names any more.
func (c *Core) forgetPast() {
	named := map[string]bool{}
	for _, p := range c.parts {
		if p.write != nil {
			named[p.write.Session] = true
		}
		if p.record == nil {
			continue
		}
		named[p.record.Main.Session] = true
		for _, e := range p.record.Colors {
			named[e.Holder.Session] = true
		}
	}
	maps.DeleteFunc(c.past, func(session string, _ bool) bool { return !named[session] })
}

func (c *Core) leaseLost() {
	if c.lost || c.session == "" {
		return
	}
	c.lost = true
	c.alarm(Alarm{Kind: AlarmRegistry})
	for _, p := range c.parts {
		p.fresh, p.resetting = false, false
		p.runs(c.keep)
	}
	if c.cfg.OnLoss == LossHold {
		c.recallAll(WhyHold)
	}
}

// recall asks for what nobody has begun with of a run, which hands out nothing for now.
func (c *Core) recall(r *run, why Why) {
	if r.flight.out > 0 && !r.cut {
		c.emit(&Recall{Run: r.id, Cursor: r.cursor, Why: why})
	}
}

func (c *Core) recallAll(why Why) {
	for _, p := range c.parts {
		p.runs(func(r *run) { c.recall(r, why) })
	}
}

// keep lets a run go on that waits to be given up or set back, when nobody can take it for now.
func (c *Core) keep(r *run) {
	if c.stopping || r.p.concerns(r.cursor, Release) || r.p.concerns(Main, Rewind) {
		return // it may be somebody else's, or begin elsewhere
	}
	r.stopping = false
	c.disarm(r)
	if r.cut {
		c.resume(r)
	}
}

func (c *Core) joined(m Member) {
	c.members[m.ID] = m
	c.countMembers()
}

func (c *Core) left(id string) {
	delete(c.members, id)
	c.countMembers()
}

// here reports whether this process has a member of a lane that counts for a partition.
func (c *Core) here(p *partition, l lane.Name) bool { return c.local[place{p.topic.Name, l}] }

// countMembers finds out where this process has members. One of a lane that is over, or that
// was created again since it joined, does not count.
func (c *Core) countMembers() {
	clear(c.local)
	clear(c.anywhere)
	for id, m := range c.members {
		if c.view != nil {
			for i := range c.view.Members { // the registry knows its generation
				if v := &c.view.Members[i]; v.ID == id && v.Session == c.session {
					m.Generation = v.Generation
				}
			}
		}
		for _, t := range m.Topics {
			c.anywhere[t]++
			if c.lasts(&m) {
				c.local[place{t, m.Lane}] = true
			}
		}
	}
}

// lasts reports whether a member of this process is of the lane as it is now. A generation
// that is not known yet is taken for the present one.
func (c *Core) lasts(m *Member) bool {
	if m.Lane == lane.Baseline || c.view == nil {
		return true
	}
	l, known := c.view.Lanes[m.Lane]
	return known && !l.Ended && (m.Generation == 0 || m.Generation == l.Generation)
}

func (c *Core) viewed(v *View) {
	if c.view != nil && v.Revision < c.view.Revision {
		return
	}
	paused := c.paused()
	c.view = v
	if c.paused() && !paused {
		c.recallAll(WhyPaused)
	}
	c.reached = max(c.reached, v.Revision)
	for _, color := range slices.Sorted(maps.Keys(c.unknown)) {
		if v.known(color) {
			delete(c.unknown, color)
			c.emit(&Disarm{Timer{Kind: TimerUnknown, Cursor: color}})
		}
	}
	c.countMembers()
	c.hear()
	for _, p := range c.parts {
		p.barren = false
		p.at = Main // main decides anew
	}
}

// reach notes how far the picture has got. A cursor whose holder is not in the view can be
// taken once the view is as new as the record.
func (c *Core) reach(revision uint64) *partition {
	if revision <= c.reached {
		return &c.nowhere
	}
	c.reached = revision
	waits := false
	for _, p := range c.parts {
		if p.behind && p.revision <= revision {
			p.behind, p.look, waits = false, true, true
		}
	}
	if !waits {
		return &c.nowhere
	}
	return nil
}

// hear makes the audiences of the present view.
func (c *Core) hear() {
	c.audiences = c.audiences[:0]
	tooLong := map[lane.Name]bool{}
	for color, long := range c.unknown {
		if long {
			tooLong[color] = true
		}
	}
	for i := range c.cfg.Topics {
		c.audiences = append(c.audiences, newAudience(c.view, &c.cfg.Topics[i], tooLong))
	}
	for _, p := range c.parts {
		c.listen(p)
	}
	c.rebalance = true
}

// listen gives a partition the audience of its topic.
func (c *Core) listen(p *partition) {
	for i, a := range c.audiences {
		if p.topic == &c.cfg.Topics[i] {
			p.aud = a
		}
	}
}

func (c *Core) recorded(e *Recorded) *partition {
	p := c.partition(e.Partition)
	if p == nil {
		return &c.nowhere
	}
	p.fresh = p.fresh || e.Fresh
	c.learn(p, e.Stored)
	return p
}

func (c *Core) resolved(e *Resolved) *partition {
	p := c.byID[e.Partition]
	if p == nil || !p.resolving {
		return &c.nowhere
	}
	start := e.Offset
	p.start, p.startOf, p.epoch, p.resolving = &start, p.asked, e.Epoch, false
	p.look = true
	return p
}

func (c *Core) partitioned(e *Partitioned) {
	for i := range e.Count {
		p := c.partition(Partition{e.Topic, i})
		if p == nil {
			return
		}
		if int(i) < len(e.Rooms) {
			p.room = e.Rooms[i]
		}
	}
	c.rebalance = true
}

// partition finds a partition of the group, or begins to know it. Nil: its topic is not the
// group's.
func (c *Core) partition(id Partition) *partition {
	if p := c.byID[id]; p != nil {
		return p
	}
	t, retry, ok := c.cfg.origin(id.Topic)
	if !ok {
		return nil
	}
	p := &partition{id: id, topic: t, retry: retry, fresh: true, look: true}
	c.byID[id] = p
	i, _ := slices.BinarySearchFunc(c.parts, id, func(p *partition, id Partition) int {
		return cmp.Or(cmp.Compare(p.id.Topic, id.Topic), cmp.Compare(p.id.Index, id.Index))
	})
	c.parts = slices.Insert(c.parts, i, p)
	c.listen(p)
	c.rebalance = true
	return p
}

func (c *Core) fired(t Timer) *partition {
	p := c.byID[t.Partition]
	switch t.Kind {
	case TimerNote:
		c.noteRound()
		return &c.nowhere
	case TimerUnknown:
		if _, waits := c.unknown[t.Cursor]; waits {
			c.unknown[t.Cursor] = true
			c.hear()
			c.lookAtAll()
		}
		return nil
	case TimerHandover:
		if p != nil {
			c.handoverFired(p, t.Cursor)
		}
	case TimerStall:
		if p != nil {
			c.stallFired(p)
		}
	}
	if p == nil {
		return &c.nowhere
	}
	return p
}

// handoverFired gives up waiting for what is in flight.
func (c *Core) handoverFired(p *partition, cursor lane.Name) {
	r := p.run(cursor)
	if r == nil || !r.timed {
		return
	}
	r.timed = false
	if r.flight.out == 0 || !r.stopping && !p.resetting {
		return
	}
	r.cut = true
	p.look = true
	why := r.why
	if !r.stopping {
		why = WhyReset
	}
	c.alarm(Alarm{Kind: AlarmHandover, Partition: p.id, Cursor: cursor, Count: int64(r.flight.out)})
	c.emit(&Withdraw{Run: r.id, Cursor: cursor, In: r.flight.out, Why: why})
}

// countStrangers counts how long strict colors that are split off have had no lane. The time
// begins anew with each process that comes to hold main.
func (c *Core) countStrangers(strangers map[lane.Name]bool) {
	for _, color := range slices.Sorted(maps.Keys(strangers)) {
		if _, counting := c.unknown[color]; !counting {
			c.unknown[color] = false
			c.emit(&Arm{Timer{Kind: TimerUnknown, Cursor: color}, c.cfg.UnknownStrict})
		}
	}
	for _, color := range slices.Sorted(maps.Keys(c.unknown)) {
		tooLong := c.unknown[color]
		if strangers[color] || tooLong && len(c.unknown) <= maxOwners {
			continue
		}
		delete(c.unknown, color)
		if !tooLong {
			c.emit(&Disarm{Timer{Kind: TimerUnknown, Cursor: color}})
		}
	}
}

func (c *Core) emit(a Action) { c.out = append(c.out, a) }

func (c *Core) alarm(a Alarm) { c.emit(&a) }

func (c *Core) emitDispatch(d Dispatch) {
	c.dispatched = append(c.dispatched, d)
	c.emit(&c.dispatched[len(c.dispatched)-1])
}

func (c *Core) emitFetch(f Fetch) {
	c.fetches = append(c.fetches, f)
	c.emit(&c.fetches[len(c.fetches)-1])
}
