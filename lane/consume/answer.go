package consume

import (
	"cmp"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// propose sends a write. It is the partition's only one until it is answered.
func (c *Core) propose(p *partition, w *Write) {
	c.ids++
	w.ID, w.Group = c.ids, c.cfg.Group
	p.write = &Propose{Write: w, Attempt: 1}
	c.writes[w.ID] = p
	c.emit(p.write)
}

// answered ends a write, or repeats it as it was.
func (c *Core) answered(e *Answered) *partition {
	p := c.writes[e.Write]
	if p == nil {
		return nil // a second answer
	}
	w := p.write.Write
	if e.Outcome == Doubt || p.fickle(&e.Answer) {
		p.write = &Propose{Write: w, Attempt: p.write.Attempt + 1}
		c.emit(p.write)
		return p
	}
	delete(c.writes, e.Write)
	p.look = true
	before := p.revision
	switch {
	case e.Outcome == Done:
		c.landed(p, w, &e.Answer, w.Record)
	case c.shows(p, w, e.Record):
		c.landed(p, w, &e.Answer, e.Record)
	default:
		c.refused(p, w, &e.Answer)
	}
	c.drop(p, p.record)
	if c.lost {
		p.runs(c.keep)
	}
	c.rebalance = c.rebalance || p.revision != before
	return p
}

// fickle reports whether a refusal does not end the doubt about a write that was sent before.
// Revisions never come back, so a refusal by them is one for all copies; but a session that
// lives now may be gone when a copy arrives. One of the writer's that has ended never lives
// again: then that is final.
func (p *partition) fickle(a *Answer) bool {
	w := p.write.Write
	if p.write.Attempt == 1 || a.Outcome != Conflict || a.Ended || a.Revision != w.IfRevision || len(w.Gone) == 0 {
		return false
	}
	for _, n := range w.Notes {
		if n.Compare && noteOf(a.Notes, n.Cursor).Revision != n.IfRevision {
			return false
		}
	}
	return true
}

// shows reports whether a record, read when the write was refused, shows that the write had
// landed before. Nobody else makes this session a holder, so one take that shows is enough
// for the whole, and where none does, what it took is not held; without a take every move
// has to show. The record that the write compares is still the known one.
func (c *Core) shows(p *partition, w *Write, rec *Record) bool {
	if rec == nil || len(w.Moves) == 0 {
		return false
	}
	takes, shown := false, true
	for _, m := range w.Moves {
		ok := c.showsMove(p, w, rec, m)
		if m.Kind == Take {
			takes = true
			if ok {
				return true
			}
		}
		shown = shown && ok
	}
	return !takes && shown
}

func (c *Core) showsMove(p *partition, w *Write, rec *Record, m Move) bool {
	h, there := rec.Holder(m.Cursor)
	switch m.Kind {
	case Take:
		if p.record != nil {
			if before, _ := p.record.Holder(m.Cursor); h == before {
				return false // it was named before: that proves nothing
			}
		}
		return h == Holder{Session: w.Session, Lane: m.Lane}
	case Release:
		before, _ := p.record.Holder(m.Cursor)
		return !there || h.Session != before.Session
	case Split:
		return there && rec.Colors[m.Cursor].From == m.From
	case Merge:
		return !there
	case Rewind:
		return rec.Reset == w.Record.Reset
	case Create: // a take goes with it
	}
	return true
}

// landed goes on after a write that took place. rec is the record as it is now, or nil where
// it was not written.
func (c *Core) landed(p *partition, w *Write, a *Answer, rec *Record) {
	before := p.record
	p.write = nil
	if rec != nil && a.Revision > p.revision {
		p.replace(rec, a.Revision)
	}
	c.adopt(p)
	stored := func(cursor lane.Name) StoredNote { return noteOf(a.Notes, cursor) }
	for _, n := range w.Notes {
		if r := p.run(n.Cursor); r != nil && n.Note != nil {
			r.noted, r.noteRev = *n.Note, stored(n.Cursor).Revision
			if len(w.Moves) == 0 {
				c.mirrors = append(c.mirrors, r)
			}
		}
	}
	for _, m := range w.Moves {
		r := p.run(m.Cursor)
		switch m.Kind {
		case Take:
			if h, _ := p.record.Holder(m.Cursor); h != (Holder{Session: w.Session, Lane: m.Lane}) {
				continue // it was taken from this process again
			}
			if r != nil {
				r.session = w.Session
			} else if w.Session == c.session && !c.lost {
				lost := false
				if before != nil {
					h, _ := before.Holder(m.Cursor)
					lost = !h.None()
				}
				c.begin(p, m, w.Session, stored(m.Cursor), lost)
			}
		case Release:
			if r != nil {
				c.end(r, m.Why)
			}
		case Merge:
			if r != nil {
				c.end(r, m.Why)
			}
		case Split:
			p.at = Main
		case Rewind:
			if r != nil {
				c.end(r, m.Why)
			}
			p.resetting = false
			if w.Session == c.session && !c.lost {
				c.begin(p, Move{Cursor: Main}, w.Session, stored(Main), false)
			}
		case Create:
		}
	}
	if len(w.Moves) > 0 {
		p.at = Main // main decides anew
		c.emit(&Moved{w})
	}
}

// refused goes on after a write that did not take place: what was known is replaced by what
// is, and what is still due is proposed anew.
func (c *Core) refused(p *partition, w *Write, a *Answer) {
	p.write = nil
	p.barren = !a.Ended && a.Revision == w.IfRevision && (len(w.Gone) > 0 || w.IfRevision == 0)
	if p.barren && w.IfRevision == 0 { // main has a note, but the partition no record
		c.alarm(Alarm{Kind: AlarmNoNote, Partition: p.id})
	}
	if a.Revision > p.revision {
		p.replace(a.Record, a.Revision)
	}
	c.adopt(p)
	for _, n := range w.Notes {
		if r := p.run(n.Cursor); r != nil && n.Compare {
			s := noteOf(a.Notes, n.Cursor)
			r.noteRev, r.changed = s.Revision, true
			if s.Note != nil {
				r.noted = *s.Note
			}
		}
	}
	p.at = Main
	c.emit(&Refused{w})
}

func noteOf(notes []StoredNote, cursor lane.Name) StoredNote {
	for _, n := range notes {
		if n.Cursor == cursor {
			return n
		}
	}
	return StoredNote{Cursor: cursor}
}

// showNoted tells the engine what notes say, where what was told beside the answer does not give
// the cursor to somebody else.
func (c *Core) showNoted() {
	for _, r := range c.mirrors {
		if r.p.record == nil {
			continue
		}
		if h, _ := r.p.record.Holder(r.cursor); h.Session != r.session {
			continue
		}
		at := r.noted.Pos
		if len(r.noted.Left) > 0 {
			at = r.noted.Left[0]
		}
		c.emit(&Mirror{Partition: r.p.id, Cursor: r.cursor, Offset: at})
	}
	clear(c.mirrors)
	c.mirrors = c.mirrors[:0]
}

// armNote sees to it that notes are written while there are runs.
func (c *Core) armNote() {
	if !c.noting && len(c.runs) > 0 {
		c.noting = true
		c.emit(&Arm{Timer{Kind: TimerNote}, c.noteEvery})
	}
}

// noteRound writes the notes of cursors that have moved. The more there are, the longer it is
// to the next round.
func (c *Core) noteRound() {
	c.noting = false
	c.ids++ // the round's
	moving := 0
	for _, p := range c.parts {
		p.runs(func(r *run) {
			if !r.changed || r.session != c.session {
				return
			}
			moving++
			p.noteDue = true
			if r.due == 0 {
				r.due = c.ids
			}
		})
		c.writeNotes(p)
	}
	c.noteEvery = min(max(c.cfg.NoteMin, notePerCursor*time.Duration(moving)), c.cfg.NoteMax)
	c.armNote()
}

// writeNotes writes what is due of a partition, those first that wait longest. Where one write
// is not enough, or another one is under way, the rest follows its answer.
func (c *Core) writeNotes(p *partition) {
	if !p.noteDue || p.write != nil || p.halted || c.lost || c.session == "" {
		return
	}
	var due []*run
	p.runs(func(r *run) {
		if r.due > 0 && r.changed && r.session == c.session {
			due = append(due, r)
		}
	})
	if p.noteDue = len(due) > c.cfg.MaxMoves; len(due) == 0 {
		return
	}
	slices.SortStableFunc(due, func(a, b *run) int { return cmp.Compare(a.due, b.due) })
	b := draft{c: c, p: p, write: Write{Partition: p.id, Session: c.session, IfRevision: p.revision}}
	for _, r := range due[:min(len(due), c.cfg.MaxMoves)] {
		b.note(r)
	}
	c.propose(p, &b.write)
}
