package consume

import (
	"cmp"
	"slices"

	"github.com/laneway-dev/laneway/lane"
)

// partition is what a Core knows of one partition, and what it holds of it.
type partition struct {
	id    Partition
	topic *Topic
	retry bool // of the topic's retry topic
	aud   *audience

	record   *Record // nil: none is known
	revision uint64
	fresh    bool // read since the registry is in reach again
	told     Stored
	main     *run
	colors   []*run // ascending by cursor

	write *Propose // under way; it ends by its answer only
	// barren: the last write was refused though no revision had changed, since a session
	// lives that was thought gone. Taking from the gone waits for another picture.
	barren bool

	behind    bool   // a holder is not in the view, which is older than the record
	start     *int64 // where main begins by what the engine said
	epoch     string
	startOf   string // the reset that start is of; empty: it is the group's start
	asked     string // the reset that the engine is asked about
	resolving bool   // the engine is asked

	bounds    Bounds    // as the last fetch showed them
	at        lane.Name // the color that main waits at; zero: none
	deferred  bool      // a split waits for what is in flight
	stalled   bool      // main has stood still for long
	stallAt   int64
	watching  bool // a stall timer is armed
	resetting bool // a reset is asked for and not done
	halted    bool
	look      bool // moves may be due
	room      string
	noteDue   bool         // notes of runs may be due
	assigned  []assignment // ascending by cursor
}

// runs calls f for each run: colors first, then main.
func (p *partition) runs(f func(*run)) {
	for _, r := range slices.Clone(p.colors) {
		f(r)
	}
	if p.main != nil {
		f(p.main)
	}
}

// run gives the run of a cursor, or nil.
func (p *partition) run(cursor lane.Name) *run {
	if cursor == Main {
		return p.main
	}
	i, ok := slices.BinarySearchFunc(p.colors, cursor, func(r *run, c lane.Name) int { return cmp.Compare(r.cursor, c) })
	if !ok {
		return nil
	}
	return p.colors[i]
}

// under reports whether a split or merge of a color is under way: what becomes of its
// messages is not known.
func (p *partition) under(color lane.Name) bool {
	if p.write == nil || color == Main {
		return false
	}
	for _, m := range p.write.Moves {
		if m.Cursor == color && (m.Kind == Split || m.Kind == Merge) {
			return true
		}
	}
	return false
}

// concerns reports whether the write under way has a move of a cursor.
func (p *partition) concerns(cursor lane.Name, kind MoveKind) bool {
	return p.write != nil && slices.ContainsFunc(p.write.Moves, func(m Move) bool {
		return m.Cursor == cursor && m.Kind == kind
	})
}

// want notes that main waits at a color that should be split off.
func (p *partition) want(color lane.Name) {
	if p.at != color {
		p.at = color
		p.look = true
	}
}

// met reports whether a color that is run for the baseline can be merged, as far as the
// cursors go. Messages that may have been dispatched before are still flagged as its own.
func (p *partition) met(r *run) bool {
	return p.main != nil && r.pos == p.main.pos && r.settledBelow() && !r.lostBefore && r.doubtful <= r.pos
}

// learn takes in a record as it is at a revision. While a write is under way the record
// that the write compares is kept; but a run that is not named any more ends at once.
func (c *Core) learn(p *partition, s Stored) {
	if s.Revision < p.revision || s.Revision < p.told.Revision {
		return
	}
	p.told = s
	c.drop(p, s.Record)
	if p.write == nil {
		c.adopt(p)
	}
	p.barren = false
	p.look = true
}

// adopt makes the newest record the known one.
func (c *Core) adopt(p *partition) {
	if p.told.Revision <= p.revision {
		return
	}
	p.replace(p.told.Record, p.told.Revision)
	c.rebalance = true
	if p.main != nil {
		p.at = Main // main decides anew
	}
}

// replace makes a record the known one. A reset mends a partition that was stopped.
func (p *partition) replace(rec *Record, revision uint64) {
	if p.record != nil && rec != nil && rec.Reset != p.record.Reset {
		p.halted = false
	}
	p.record, p.revision = rec, revision
}

// drop ends every run that a record does not name.
func (c *Core) drop(p *partition, rec *Record) {
	p.runs(func(r *run) {
		if rec != nil {
			h, ok := rec.Holder(r.cursor)
			mine := h.Session == r.session || p.concerns(r.cursor, Take) && h.Session == p.write.Session
			if ok && mine && h.Lane == r.lane {
				return
			}
		}
		why := WhyGone
		if r.stopping {
			why = r.why
		}
		c.end(r, why)
	})
}

// begin starts a run where the note of its cursor says.
func (c *Core) begin(p *partition, m Move, session string, n StoredNote, lost bool) {
	c.ids++
	r := &run{p: p, id: c.ids, cursor: m.Cursor, lane: m.Lane, session: session, lostBefore: lost, noteRev: n.Revision}
	if n.Note != nil {
		r.noted = *n.Note
		r.pos, r.redo = n.Note.Pos, slices.Clone(n.Note.Left)
		r.doubtful = n.Note.Doubtful
		if r.doubtful == doubtfulAll { // the end was never seen, so it is looked up now
			r.lostBefore, r.doubtful = true, 0
		}
	} else { // somebody deleted it
		r.pos = p.record.Colors[m.Cursor].From
		r.lostBefore = true
		c.alarm(Alarm{Kind: AlarmNoNote, Partition: p.id, Cursor: m.Cursor, From: r.pos})
	}
	if m.Cursor == Main {
		p.main = r
		p.at, p.stalled = Main, false
	} else {
		i, _ := slices.BinarySearchFunc(p.colors, m.Cursor, func(r *run, c lane.Name) int { return cmp.Compare(r.cursor, c) })
		p.colors = slices.Insert(p.colors, i, r)
	}
	c.runs[r.id] = r
	c.armNote()
}

// end forgets a run. Its consumers are told where they still hold something.
func (c *Core) end(r *run, why Why) {
	p := r.p
	delete(c.runs, r.id)
	if r.cursor == Main {
		p.main, p.at = nil, Main
	} else {
		p.colors = slices.DeleteFunc(p.colors, func(o *run) bool { return o == r })
	}
	c.disarm(r)
	if !r.cut {
		c.emit(&Withdraw{Run: r.id, Cursor: r.cursor, In: r.flight.out, Why: why})
	}
	p.look = true
}

// resume lets a run go on that was cut, since it is not given up or set back for now: what its
// consumers had is handed out again.
func (c *Core) resume(r *run) {
	delete(c.runs, r.id)
	c.ids++
	r.id, r.cut, r.fetching = c.ids, false, false
	c.runs[r.id] = r
	for i := range r.flight.items {
		if it := &r.flight.items[i]; it.state == itemOut || it.state == itemStoring {
			it.redelivered = true
			r.flight.set(it, itemBack)
		}
	}
}

// disarm forgets the timer of a run that waits for its consumers.
func (c *Core) disarm(r *run) {
	if r.timed {
		r.timed = false
		c.emit(&Disarm{c.handover(r)})
	}
}

func (c *Core) handover(r *run) Timer {
	return Timer{Kind: TimerHandover, Partition: r.p.id, Cursor: r.cursor}
}
