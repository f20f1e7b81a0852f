package consume

import (
	"fmt"
	"math"
	"slices"

	"github.com/laneway-dev/laneway/lane"
)

// run is one cursor while this process holds it.
type run struct {
	p       *partition
	id      uint64
	cursor  lane.Name
	lane    lane.Name // for whose members
	session string    // under which it is held

	pos    int64   // the next offset neither handed to a consumer nor skipped
	seen   int64   // the first offset that no fetch has examined
	redo   []int64 // what the note left and was not fetched again yet, ascending, below pos
	knows  bool    // all that was left is known by now, of which others were not told
	flight flight

	buf      []*Message // fetched and not used
	fetching bool
	asked    uint64 // when, by the Core's ids, the fetch under way was asked for
	floor    int64  // where the log must not end below, by what was known then

	// doubtful: messages below that offset may have been dispatched by a holder that was
	// lost. It is the end of the log, which the first fetch after the take shows; the note
	// hands it on.
	lostBefore bool
	doubtful   int64

	stopping bool
	cut      bool // what is in flight is waited for no longer
	timed    bool // a handover timer is armed
	why      Why  // it stops

	noted   Note // as stored
	noteRev uint64
	changed bool   // pos or what is unsettled, since noted
	due     uint64 // the round of notes, by the Core's ids, since which its own waits; 0: none
}

// base reports whether r runs a color for the baseline, behind main.
func (r *run) base() bool { return r.cursor != Main && r.lane == lane.Baseline }

// limit is the offset that the position may not pass.
func (r *run) limit() int64 {
	switch {
	case !r.base():
		return math.MaxInt64
	case r.p.main == nil:
		return 0
	}
	return r.p.main.pos
}

// note is what holds of the cursor now.
func (r *run) note() *Note {
	left := make([]int64, 0, len(r.redo)+r.flight.open)
	left = append(left, r.redo...)
	left = r.flight.left(left)
	slices.Sort(left)
	if len(left) == 0 {
		left = nil
	}
	return &Note{Pos: r.pos, Left: left, Doubtful: r.doubt(), extra: r.noted.extra}
}

// doubt is what a note says of messages that may have been dispatched before.
func (r *run) doubt() int64 {
	switch {
	case r.lostBefore: // the end of the log is not known yet
		return doubtfulAll
	case r.doubtful > r.pos:
		return r.doubtful
	}
	return 0
}

// settledBelow reports whether everything of the cursor below its position is settled.
func (r *run) settledBelow() bool { return len(r.redo) == 0 && r.flight.open == 0 }

func (r *run) setPos(pos int64) {
	if pos > r.pos {
		r.pos = pos
		r.changed = true
	}
}

// readAt is the offset that the next fetch begins at.
func (r *run) readAt() int64 {
	if len(r.redo) > 0 {
		return r.redo[0]
	}
	return max(r.seen, r.pos)
}

// room reports whether the window has room for one more message.
func (r *run) room(c *Core) bool {
	return r.flight.open == 0 || r.flight.open < c.cfg.Window && r.flight.bytes < c.cfg.WindowBytes
}

// fetched takes in what a fetch gave.
func (c *Core) fetched(e *Fetched) {
	r := c.runs[e.Run]
	if r == nil || !r.fetching {
		return // it was given up meanwhile
	}
	r.fetching = false
	p := r.p
	if e.Failed {
		r.asked = 0
		c.advance(r)
		return
	}
	if p.halted {
		return
	}
	if !e.Cached {
		p.bounds = e.Bounds
		if p.truncated(r) {
			c.halt(p)
			return
		}
		p.sawEnd(r.asked)
		c.missing(r, e.Bounds.First)
	}
	r.buf, r.seen = e.Messages, max(e.Next, r.seen)
	c.advance(r)
}

// sawEnd notes where the log ends for the runs that began before it was asked for.
func (p *partition) sawEnd(asked uint64) {
	see := func(r *run) {
		if r.lostBefore && r.id <= asked {
			r.lostBefore, r.doubtful = false, max(r.doubtful, p.bounds.End)
			p.look = true
		}
	}
	for _, r := range p.colors {
		see(r)
	}
	if p.main != nil {
		see(p.main)
	}
}

// truncated reports whether the log is another one than that which the record and the notes
// speak of.
func (p *partition) truncated(r *run) bool {
	return p.bounds.End < r.floor || p.record.Epoch != "" && p.bounds.Epoch != p.record.Epoch
}

// halt stops a partition for good: nothing that is known of it holds.
func (c *Core) halt(p *partition) {
	if p.halted {
		return
	}
	p.halted = true
	c.alarm(Alarm{Kind: AlarmTruncated, Partition: p.id})
}

// missing counts what retention has deleted before this cursor came to it.
func (c *Core) missing(r *run, first int64) {
	c.lostLeft(r, first)
	if from := max(r.pos, r.seen); first > from && len(r.redo) == 0 {
		c.alarm(Alarm{Kind: AlarmRetention, Partition: r.p.id, Cursor: r.cursor, From: from, Count: first - from})
		r.seen = first
	}
}

// lostLeft gives up what was left below an offset, which is not in the log any more: an alarm for each
// stretch of offsets, since what lies between was settled.
func (c *Core) lostLeft(r *run, below int64) {
	for len(r.redo) > 0 && r.redo[0] < below {
		n := 1
		for n < len(r.redo) && r.redo[n] < below && r.redo[n] == r.redo[n-1]+1 {
			n++
		}
		c.alarm(Alarm{Kind: AlarmRetention, Partition: r.p.id, Cursor: r.cursor, From: r.redo[0], Count: int64(n)})
		r.redo = r.redo[n:]
		r.changed = true
		r.knowsLeft()
	}
}

// knowsLeft goes on with what waits until all that was left is known: an ordered split, and
// the colors that are run for the baseline.
func (r *run) knowsLeft() {
	if len(r.redo) == 0 {
		r.knows = true
		r.p.look = r.p.look || r.p.deferred
	}
}

// dispatches reports whether r may hand out messages now.
func (c *Core) dispatches(r *run) bool {
	switch p := r.p; {
	case r.stopping, r.cut, p.halted, c.paused(), p.resetting, p.concerns(Main, Rewind):
		return false
	case c.lost:
		return c.cfg.OnLoss == LossContinue
	case r.session != c.session, p.under(r.cursor):
		return false
	}
	return true
}

// advance moves a cursor as far as it goes: it skips what is not its own, hands out what
// is, and asks for more.
func (c *Core) advance(r *run) {
	if !c.dispatches(r) {
		return
	}
	before := r.pos
	c.again(r)
	for len(r.buf) > 0 {
		if !c.use(r, r.buf[0]) {
			break
		}
		r.buf = r.buf[1:]
	}
	if len(r.buf) == 0 {
		c.exhausted(r)
	}
	knows := r.knows
	r.knows = false
	if r.cursor != Main {
		return
	}
	if r.pos != before || knows {
		c.mainMoved(r.p)
	}
	c.watchStall(r.p)
}

// mainMoved lets the colors that are run for the baseline follow main.
func (c *Core) mainMoved(p *partition) {
	p.stalled = false
	for _, r := range p.colors {
		if r.base() {
			c.advance(r)
			p.look = p.look || p.met(r)
		}
	}
}

// exhausted goes on when all that was fetched is used.
func (c *Core) exhausted(r *run) {
	r.buf = nil
	c.lostLeft(r, r.seen) // examined, and not there any more
	if len(r.redo) == 0 {
		r.setPos(min(r.seen, r.limit()))
	}
	c.fetch(r)
}

// fetch asks for more, where more could be used.
func (c *Core) fetch(r *run) {
	from := r.readAt()
	if r.fetching || len(r.redo) == 0 && (!r.room(c) || from >= r.limit() && r.base()) {
		return
	}
	most := c.cfg.Fetch
	if n := len(r.redo); n > 0 {
		most = int(min(int64(most), r.redo[n-1]-from+1))
	}
	first := r.asked == 0
	r.fetching, r.asked, r.floor = true, c.ids, r.pos
	for _, e := range r.p.record.Colors {
		r.floor = max(r.floor, e.From)
	}
	if r.seen < from {
		r.seen = from
	}
	c.emitFetch(Fetch{
		Run: r.id, Partition: r.p.id, Cursor: r.cursor, From: from, Max: most,
		Filter: Filter{All: r.cursor == Main, Color: r.cursor}, Bounds: first || r.p.unsure(),
	})
}

// unsure reports whether the end of the log has to be known. A color that is run for the
// baseline may never fetch by itself: main sees it for it.
func (p *partition) unsure() bool {
	if p.main != nil && p.main.lostBefore {
		return true
	}
	return slices.ContainsFunc(p.colors, func(r *run) bool { return r.lostBefore })
}

// use decides about the message at the head of what was fetched. It reports false where
// the cursor has to wait.
func (c *Core) use(r *run, m *Message) bool {
	if m.Offset < r.pos {
		c.useLeft(r, m)
		return true
	}
	limit := r.limit()
	if m.Offset >= limit {
		if len(r.redo) == 0 {
			r.setPos(limit)
		}
		return false
	}
	c.lostLeft(r, r.pos) // all of it is examined
	r.setPos(m.Offset)
	var o Owner
	switch {
	case r.cursor == Main:
		skip, wait := c.mainHas(r, m, &o)
		if skip {
			r.setPos(m.Offset + 1)
		}
		if skip || wait {
			return skip
		}
	case m.Color != r.cursor:
		r.setPos(m.Offset + 1)
		return true
	case r.base() && r.p.main.leaves(m.Color):
		return false
	default:
		o = r.p.aud.owner(m.Color)
	}
	if c.cfg.Filter != nil && !c.cfg.Filter(m) {
		r.setPos(m.Offset + 1)
		return true
	}
	if !r.room(c) || !c.hand(r, m, o, m.Offset < r.doubtful) {
		return false
	}
	r.setPos(m.Offset + 1)
	return true
}

// useLeft takes in a message below the position: one that the note left is put beside those
// that were given back, since who gets it is decided as theirs; others are settled.
func (c *Core) useLeft(r *run, m *Message) {
	c.lostLeft(r, m.Offset)
	if len(r.redo) == 0 || r.redo[0] != m.Offset {
		return
	}
	r.redo = r.redo[1:]
	r.flight.add(item{offset: m.Offset, msg: m, state: itemAgain, redelivered: true})
	r.knowsLeft()
	c.again(r)
}

// leaves reports whether main still has to dispatch a message of a color again. What it has
// not fetched may be of any color.
func (r *run) leaves(color lane.Name) bool {
	if len(r.redo) > 0 {
		return true
	}
	return r.flight.again > 0 &&
		r.flight.has(func(it *item) bool { return it.state == itemAgain && it.msg.Color == color })
}

// mainHas decides whether a message at main's position is main's. Where it must wait, the
// partition says for which color.
func (c *Core) mainHas(r *run, m *Message, o *Owner) (skip, wait bool) {
	p := r.p
	if m.Color == Main {
		*o = Owner{Reason: lane.ReasonPlain}
		return false, false
	}
	if p.under(m.Color) { // a split or merge of it that is not answered
		return false, true
	}
	if p.record.Owns(m.Color, m.Offset) {
		return true, false
	}
	*o = p.aud.owner(m.Color)
	if _, there := p.record.Colors[m.Color]; there { // below from: main's, whoever owns the color
		o.Dead = o.Dead || strict(m.Color) // and a strict color was main's only to be buried
		return false, false
	}
	if o.Lane != lane.Baseline {
		p.want(m.Color)
		return false, true
	}
	if c.lost && (strict(m.Color) || !c.view.known(m.Color)) { // only known ordinary colors go on as before
		return false, true
	}
	return false, false
}

// again dispatches what was given back and what was left, ascending.
func (c *Core) again(r *run) {
	if r.flight.again == 0 || !c.dispatches(r) {
		return
	}
	for i := 0; i < len(r.flight.items) && r.flight.again > 0; i++ {
		it := &r.flight.items[i]
		if it.state != itemBack && it.state != itemAgain {
			continue
		}
		o := r.p.aud.owner(it.msg.Color)
		if r.cursor == Main && strict(it.msg.Color) {
			o.Dead = true // it was on its way to the dead letters, and belongs to no other cursor
		}
		if r.base() && (it.offset >= r.limit() || it.state == itemAgain && r.p.main.leaves(it.msg.Color)) {
			return
		}
		c.give(r, it, o)
	}
}

// hand gives out a message for the first time in this run. It reports false where there is
// nobody to give it to.
func (c *Core) hand(r *run, m *Message, o Owner, redelivered bool) bool {
	if !c.canGive(r, m.Color, o) {
		return false
	}
	r.flight.add(item{offset: m.Offset, msg: m, state: itemBack, redelivered: redelivered})
	r.changed = true
	return c.give(r, &r.flight.items[len(r.flight.items)-1], o)
}

// canGive reports whether there is somebody to give a message to.
func (c *Core) canGive(r *run, color lane.Name, o Owner) bool {
	if r.lane == lane.Baseline && strict(color) {
		return o.Dead && !c.lost // never to the baseline
	}
	return c.here(r.p, r.lane)
}

// give dispatches an item that is with nobody, or buries it.
func (c *Core) give(r *run, it *item, o Owner) bool {
	m := it.msg
	if !c.canGive(r, m.Color, o) {
		return false
	}
	if r.lane == lane.Baseline && strict(m.Color) {
		r.flight.set(it, itemStoring)
		why := BuryStrictEnded
		if o.Reason == lane.ReasonUnknown {
			why = BuryStrictUnknown
		}
		c.bury(r, m, why)
		return true
	}
	r.flight.set(it, itemOut)
	reason := o.Reason
	switch {
	case r.lane != lane.Baseline:
		reason = laneReason(r)
	case o.Lane != lane.Baseline: // below from, or left: the baseline's all the same
		reason = lane.ReasonBaseline
	}
	c.emitDispatch(Dispatch{
		Run: r.id, Cursor: r.cursor, Lane: r.lane, Message: m, Redelivered: it.redelivered, Reason: reason,
	})
	return true
}

// laneReason is why a lane gets messages of a color cursor that is run for it.
func laneReason(r *run) lane.Reason {
	switch {
	case r.cursor.Strict():
		return lane.ReasonStrict
	case r.cursor == r.lane:
		return lane.ReasonLane
	}
	return lane.ReasonParent
}

// settled, returned and failed take what a consumer says of a message in flight.
func (c *Core) settled(e *Settled) {
	r, it := c.inFlight(e.Run, e.Offset)
	if it == nil {
		return
	}
	r.flight.set(it, itemDone)
	c.freed(r)
}

func (c *Core) returned(e *Returned) {
	r, it := c.inFlight(e.Run, e.Offset)
	if it == nil || it.state != itemOut {
		return
	}
	c.giveBack(r, it)
}

func (c *Core) giveBack(r *run, it *item) {
	it.redelivered = true
	r.flight.set(it, itemBack)
	c.freed(r)
}

func (c *Core) failed(e *Failed) {
	r, it := c.inFlight(e.Run, e.Offset)
	if it == nil || it.state != itemOut {
		return
	}
	t := r.p.topic
	if t.Retry == "" {
		c.giveBack(r, it)
		return
	}
	r.flight.set(it, itemStoring)
	m := it.msg.follow(c, r)
	m.Error = e.Error
	m.Attempt++
	if n := it.msg.Attempt; n < len(c.cfg.RetryDelays) {
		m.Partition, m.Delay = Partition{t.Retry, -1}, c.cfg.RetryDelays[n]
		c.emit(&Requeue{Run: r.id, Offset: e.Offset, Message: m})
		return
	}
	m.Partition = Partition{t.Dead, -1}
	c.emit(&Bury{Run: r.id, Offset: e.Offset, Message: m, Why: BuryAttempts})
}

// bury sends a message that no lane may have to the dead letters.
func (c *Core) bury(r *run, m *Message, why BuryReason) {
	dead := m.follow(c, r)
	dead.Partition = Partition{r.p.topic.Dead, -1}
	c.emit(&Bury{Run: r.id, Offset: m.Offset, Message: dead, Why: why})
}

// follow is the message that goes on to a retry or dead-letter topic for this one: with its
// color, where it came from first, and an ID that a copy shares. What comes again by a reset is
// no copy: it has its tries anew.
func (m *Message) follow(c *Core, r *run) *Message {
	next := *m
	next.Offset, next.Delay = 0, 0
	next.ID = fmt.Sprintf("%s/%s/%d/%d", c.cfg.Group, m.Partition, m.Offset, m.Attempt)
	if reset := r.p.record.Reset; reset != "" {
		next.ID += "/" + reset
	}
	origin := Origin{Partition: m.Partition, Offset: m.Offset}
	if m.Origin != nil {
		origin = *m.Origin
	}
	origin.Group, origin.Lane = c.cfg.Group, r.lane
	next.Origin = &origin
	return &next
}

// inFlight finds a message that is with a consumer or being stored. A run that was cut takes
// no more news: its note may say already that the message is not settled.
func (c *Core) inFlight(id uint64, offset int64) (*run, *item) {
	r := c.runs[id]
	if r == nil || r.cut {
		return nil, nil
	}
	it := r.flight.find(offset)
	if it == nil || it.state != itemOut && it.state != itemStoring {
		return nil, nil
	}
	return r, it
}

// freed goes on after a message came back or was settled.
func (c *Core) freed(r *run) {
	r.changed = true
	p := r.p
	if r.stopping || p.deferred || p.resetting || r.base() && p.met(r) {
		p.look = true // a release may be ready, or a merge, or an ordered split
	}
	c.advance(r)
}
