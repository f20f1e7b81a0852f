package consume

import (
	"maps"
	"slices"

	"github.com/laneway-dev/laneway/lane"
)

// reconcile brings who holds a partition's cursors nearer to who should: it stops runs that
// are to be given up and proposes the moves that are due, all in one write.
func (c *Core) reconcile(p *partition) {
	p.look = false
	if p.aud == nil || !c.stopping && !c.decides() {
		return
	}
	p.resetting = c.resets(p)
	if p.halted && !p.resetting {
		return
	}
	c.mark(p)
	if !c.decides() || p.write != nil {
		return
	}
	if p.record == nil {
		c.create(p)
		return
	}
	b := &draft{c: c, p: p, write: Write{Partition: p.id, Session: c.session, IfRevision: p.revision}}
	if p.resetting && c.rewind(b) {
		c.propose(p, &b.write)
		return
	}
	c.releases(b)
	if !c.stopping {
		c.takes(b)
		c.splits(b)
		c.merges(b)
	}
	if b.write.Record != nil {
		c.propose(p, &b.write)
	}
}

// decides reports whether moves may be made: the registry is in reach, and the view knows
// of the session that would make them.
func (c *Core) decides() bool {
	return c.session != "" && !c.lost && c.view != nil && c.view.Sessions[c.session]
}

// mark stops the runs that are to be given up, and lets those go on that are not any more.
func (c *Core) mark(p *partition) {
	mark := func(r *run) {
		why := c.unwanted(r)
		switch {
		case why != "" && !r.stopping:
			r.stopping, r.why = true, why
			c.waitFor(r, why)
		case why == "" && r.stopping && !r.cut && !p.concerns(r.cursor, Release):
			r.stopping = false
			c.disarm(r)
		}
	}
	if p.main != nil { // first: colors that are run for the baseline go before it
		mark(p.main)
		switch {
		case p.resetting:
			c.waitFor(p.main, WhyReset)
		case p.main.cut && !p.main.stopping && !p.concerns(Main, Rewind):
			c.resume(p.main)
		case !p.main.stopping:
			c.disarm(p.main)
		}
	}
	for _, r := range p.colors {
		mark(r)
	}
}

// waitFor lets a run that is given up wait for its consumers: for what they have begun with, and
// not for ever.
func (c *Core) waitFor(r *run, why Why) {
	if r.flight.out > 0 && !r.cut && !r.timed {
		r.timed = true
		c.recall(r, why)
		c.emit(&Arm{c.handover(r), c.cfg.HandoverTimeout})
	}
}

// unwanted says why a run is to be given up; empty: it is not.
func (c *Core) unwanted(r *run) Why {
	p := r.p
	to := p.to(r.cursor)
	elsewhere := to != "" && to != c.session
	here := c.here(p, r.lane)
	switch {
	case c.stopping:
		return WhyStopping
	case r.cursor == Main:
		switch {
		case p.aud.baseline() && !here && c.anywhere[p.topic.Name] > 0:
			return WhyBaseline
		case c.anywhere[p.topic.Name] == 0:
			return WhyNoMember
		case elsewhere:
			return WhyBalance
		}
		return ""
	case p.resetting:
		return WhyReset
	}
	o := p.aud.owner(r.cursor)
	switch {
	case o.Lane != r.lane:
		return WhyOwner
	case r.base() && (p.main == nil || p.main.stopping):
		return WhyMainMoves
	case !here && !o.Dead:
		return WhyNoMember
	case !r.base() && elsewhere:
		return WhyBalance
	}
	return ""
}

// ready reports whether a run that is given up has nothing in flight any more.
func (r *run) ready() bool { return r.stopping && (r.flight.out == 0 || r.cut) }

// draft is a write that is being put together.
type draft struct {
	c     *Core
	p     *partition
	write Write
}

// record is the record as the write would leave it.
func (b *draft) record() *Record {
	if b.write.Record == nil {
		b.write.Record = b.p.record.Clone()
	}
	return b.write.Record
}

func (b *draft) full() bool { return len(b.write.Moves) >= b.c.cfg.MaxMoves }

func (b *draft) move(m Move) { b.write.Moves = append(b.write.Moves, m) }

// note writes what holds of a run now.
func (b *draft) note(r *run) {
	b.write.Notes = append(b.write.Notes, NoteWrite{Cursor: r.cursor, Note: r.note(), Compare: true, IfRevision: r.noteRev})
	r.changed, r.due = false, 0
}

// main is the run of main where it may split, merge and take colors for the baseline.
func (b *draft) main() *run {
	r := b.p.main
	if r == nil || r.stopping || r.session != b.c.session || b.p.resetting {
		return nil
	}
	return r
}

// releases gives up what has nothing in flight any more: main only after, or with, the
// colors that are run for the baseline.
func (c *Core) releases(b *draft) {
	held := false
	for _, r := range b.p.colors {
		if r.ready() && !b.full() {
			b.note(r)
			b.record().setHolder(r.cursor, Holder{})
			b.move(Move{Kind: Release, Cursor: r.cursor, Why: r.why})
			continue
		}
		held = held || r.base()
	}
	if r := b.p.main; r != nil && r.ready() && !held && !b.full() {
		b.note(r)
		b.record().setHolder(Main, Holder{})
		b.move(Move{Kind: Release, Cursor: Main, Why: r.why})
	}
}

// takes takes the cursors that this process should run and nobody holds.
func (c *Core) takes(b *draft) {
	p := b.p
	c.renew(b)
	c.resumes(b)
	if h := p.record.Main; p.main == nil && !b.full() && c.takeable(p, h) && c.mine(p, Main) {
		why := WhyFree
		switch {
		case !p.aud.baseline():
			why = WhyCaretaker
		case !h.None():
			why = WhyGone
		}
		b.take(Main, lane.Baseline, h, why)
	}
	for _, color := range slices.Sorted(maps.Keys(p.record.Colors)) {
		h := p.record.Colors[color].Holder
		if b.full() || p.resetting || p.run(color) != nil || !c.takeable(p, h) {
			continue
		}
		o := p.aud.owner(color)
		if o.Lane == lane.Baseline {
			if b.main() == nil || !o.Dead && !c.here(p, lane.Baseline) {
				continue
			}
		} else if !c.mine(p, color) || !c.here(p, o.Lane) {
			continue
		}
		why := WhyFree
		switch {
		case o.Dead:
			why = WhyStrictEnded
		case !h.None():
			why = WhyGone
		}
		b.take(color, o.Lane, h, why)
	}
}

// resumes takes, as they are named, the cursors that name this session and are not run here: a
// Core before this one did not give them up. Nobody else can take them while the session
// lives, so those that others should run are given up next, with what their notes say.
func (c *Core) resumes(b *draft) {
	resume := func(cursor lane.Name, h Holder) {
		if h.Session == c.session && b.p.run(cursor) == nil && !b.full() {
			b.take(cursor, h.Lane, h, WhyNotRun)
		}
	}
	resume(Main, b.p.record.Main)
	for _, color := range slices.Sorted(maps.Keys(b.p.record.Colors)) {
		resume(color, b.p.record.Colors[color].Holder)
	}
}

// renew takes under the present session what this process runs under one that it lost. The
// run goes on: nobody else has held the cursor since, or the record would say so. Main is
// first: a color of the baseline is run by main's holder only.
func (c *Core) renew(b *draft) {
	renew := func(r *run) {
		if r.session == c.session || r.stopping || b.full() {
			return
		}
		b.note(r)
		b.take(r.cursor, r.lane, Holder{Session: r.session}, WhyNewSession)
	}
	if b.p.main != nil {
		renew(b.p.main)
	}
	for _, r := range b.p.colors {
		renew(r)
	}
}

func (b *draft) take(cursor, to lane.Name, from Holder, why Why) {
	b.record().setHolder(cursor, Holder{Session: b.c.session, Lane: to})
	b.move(Move{Kind: Take, Cursor: cursor, Lane: to, Why: why})
	b.write.Read = append(b.write.Read, cursor)
	b.gone(from)
}

// gone lets the write take place only if a holder's session has ended.
func (b *draft) gone(h Holder) {
	if !h.None() && h.Session != b.c.session && !slices.Contains(b.write.Gone, h.Session) {
		b.write.Gone = append(b.write.Gone, h.Session)
	}
}

// free reports whether nobody else runs a cursor that has no run here and this holder: there is
// none, or its session is gone from the registry, or it is this process, which does not run it.
func (c *Core) free(p *partition, h Holder) bool {
	return h.Session == c.session || c.takeable(p, h)
}

// takeable reports whether a cursor may be taken from a holder that is another process, or none.
func (c *Core) takeable(p *partition, h Holder) bool {
	return h.None() || h.Session != c.session && !p.barren && c.gone(p, h.Session)
}

// gone reports whether a session that a record names has ended. A view that is older than
// the record may not know yet of a session that is new.
func (c *Core) gone(p *partition, session string) bool {
	if c.past[session] {
		return true
	}
	if c.view.Sessions[session] {
		return false
	}
	p.behind = c.reached < p.revision
	return !p.behind
}

// mine reports whether a cursor is this process's to take.
func (c *Core) mine(p *partition, cursor lane.Name) bool {
	if p.to(cursor) != c.session {
		return false
	}
	return cursor != Main || c.anywhere[p.topic.Name] > 0 &&
		(!p.aud.baseline() || c.here(p, lane.Baseline))
}

// splits splits off the colors that are not the baseline's.
func (c *Core) splits(b *draft) {
	p, r := b.p, b.main()
	if r == nil {
		return
	}
	p.deferred = false
	for _, color := range p.aud.eager {
		b.split(r, color, WhyLaneMember)
	}
	if p.at != Main {
		b.split(r, p.at, WhyMessage)
	}
	if p.stalled {
		for _, color := range p.aud.lazy {
			b.split(r, color, WhyStalled)
		}
	}
	c.watchStall(p)
}

func (b *draft) split(r *run, color lane.Name, why Why) {
	rec := b.p.record
	if b.write.Record != nil {
		rec = b.write.Record
	}
	if _, there := rec.Colors[color]; there || b.full() {
		return
	}
	if o := b.p.aud.owner(color); o.Lane == lane.Baseline {
		return
	}
	if b.c.cfg.Ordered && (len(r.redo) > 0 || r.flight.has(func(it *item) bool { return it.msg.Color == color })) {
		b.p.deferred = true
		return // it is with the baseline still; main waits at its next message
	}
	rec = b.record()
	if rec.Colors == nil {
		rec.Colors = map[lane.Name]Entry{}
	}
	rec.Colors[color] = Entry{From: r.pos}
	b.write.Notes = append(b.write.Notes, NoteWrite{Cursor: color, Note: &Note{Pos: r.pos, Doubtful: r.doubt()}})
	b.move(Move{Kind: Split, Cursor: color, From: r.pos, Why: why})
}

// idle reports whether a run has used all that there is and waits for more. It will come to
// every message that there will be.
func (r *run) idle() bool { return len(r.buf) == 0 && r.fetching }

// stuck reports whether main may never come to a message of a color that waits.
func (p *partition) stuck() bool {
	if p.main == nil || p.main.idle() || p.record == nil {
		return false
	}
	return slices.ContainsFunc(p.aud.lazy, func(color lane.Name) bool {
		_, there := p.record.Colors[color]
		return !there
	})
}

// watchStall looks again after a while whether main stands where it stood.
func (c *Core) watchStall(p *partition) {
	if !p.watching && !p.stalled && p.stuck() {
		p.watching, p.stallAt = true, p.main.pos
		c.emit(&Arm{Timer{Kind: TimerStall, Partition: p.id}, c.cfg.SplitPatience})
	}
}

func (c *Core) stallFired(p *partition) {
	p.watching = false
	p.look = true
	p.stalled = p.main != nil && p.main.pos == p.stallAt && p.stuck()
}

// merges gives main back the colors whose cursors stand where main stands.
func (c *Core) merges(b *draft) {
	p, main := b.p, b.main()
	if main == nil {
		return
	}
	merged := false
	for _, r := range p.colors {
		if !r.base() || r.stopping || r.session != c.session || !p.met(r) || b.full() {
			continue
		}
		delete(b.record().Colors, r.cursor)
		b.write.Notes = append(b.write.Notes, NoteWrite{Cursor: r.cursor, Compare: true, IfRevision: r.noteRev})
		b.move(Move{Kind: Merge, Cursor: r.cursor, Why: WhyMet})
		merged = true
	}
	if merged {
		b.note(main)
	}
}

// create makes the record and main's note, and takes main, in one.
func (c *Core) create(p *partition) {
	if c.stopping || p.barren || !c.mine(p, Main) {
		return
	}
	start, why := c.cfg.Start, WhyNewGroup
	if p.retry || p.topic.Partitions > 0 && p.id.Index >= p.topic.Partitions {
		start, why = Start{}, WhyNewPart
	}
	if !c.knowsStart(p, start, "") {
		return
	}
	c.propose(p, &Write{
		Partition: p.id, Session: c.session,
		Record: &Record{Main: Holder{Session: c.session}, Epoch: p.epoch},
		Notes:  []NoteWrite{{Cursor: Main, Note: &Note{Pos: *p.start}, Compare: true}},
		Read:   []lane.Name{Main},
		Moves:  []Move{{Kind: Create, Cursor: Main, Why: why}, {Kind: Take, Cursor: Main, Why: WhyFree}},
	})
}

// knowsStart reports whether the engine has said where a start is in its log, and asks it if
// not. The answer has no name, so there is one question at a time.
func (c *Core) knowsStart(p *partition, start Start, reset string) bool {
	if p.start != nil && p.startOf == reset {
		return true
	}
	if !p.resolving {
		p.resolving, p.asked = true, reset
		c.emit(&Resolve{Partition: p.id, Start: start})
	}
	return false
}

// resets reports whether a reset of a partition is asked for and not done.
func (c *Core) resets(p *partition) bool {
	if c.view == nil || c.view.Group.Reset == nil || p.record == nil {
		return false
	}
	r := c.view.Group.Reset
	_, named := r.Offsets[p.id]
	return named && p.record.Reset != r.ID
}

// rewind lets main begin elsewhere, and takes all colors back into it: what they had is what
// the reset says now. It waits until nobody runs a color and nothing of main is in flight,
// then asks the engine how far the log goes, since what was read last may be old, and reports
// whether the write is ready.
func (c *Core) rewind(b *draft) bool {
	p, r := b.p, b.p.main
	colors := slices.Sorted(maps.Keys(p.record.Colors))
	if r == nil || r.stopping || r.session != c.session || len(p.colors) > 0 || r.flight.out > 0 && !r.cut ||
		slices.ContainsFunc(colors, func(color lane.Name) bool { return !c.free(p, p.record.Colors[color].Holder) }) {
		p.start = nil // it would be old by then
		return false
	}
	to := c.view.Group.Reset
	if !c.knowsStart(p, Start{Kind: StartOffset, Offset: to.Offsets[p.id]}, to.ID) {
		return false
	}
	at := *p.start
	p.start = nil // another write asks anew
	rec := b.record()
	for _, color := range colors {
		b.gone(p.record.Colors[color].Holder)
	}
	for _, color := range colors[:min(len(colors), c.cfg.MaxMoves)] { // what stays is written over by a split
		b.write.Notes = append(b.write.Notes, NoteWrite{Cursor: color})
	}
	rec.Colors, rec.Epoch, rec.Reset = nil, p.epoch, to.ID
	b.write.Notes = append(b.write.Notes, NoteWrite{Cursor: Main, Note: &Note{Pos: at}, Compare: true, IfRevision: r.noteRev})
	b.write.Read = append(b.write.Read, Main)
	b.move(Move{Kind: Rewind, Cursor: Main, From: at, Why: WhyReset})
	return true
}
