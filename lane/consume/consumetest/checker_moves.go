package consumetest

import (
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// landing is a write that took place, with what the registry holds after it.
type landing struct {
	group    int
	by       *actor
	at, sent time.Duration
	write    *consume.Write
	record   *consume.Record
	revision uint64
	notes    map[lane.Name]*consume.Note
	alive    func(session string) bool
}

// landed checks a write by what it changed, not by what it says of itself.
func (k *checker) landed(l landing) {
	p := k.groups[l.group].part(l.write.Partition)
	if len(l.write.Moves) > 0 {
		l.by.landed[l.write.ID] = true
	}
	before := p.record
	was := make([]lane.Name, len(p.messages))
	noted := make([]bool, len(p.messages))
	for i, f := range p.messages {
		was[i], noted[i] = owning(before, f.msg), p.noted(f)
	}
	oldNotes := p.notes
	p.record, p.revision, p.notes = l.record, l.revision, l.notes
	if before == nil {
		k.created(p, &l)
	}
	rewound := before != nil && before.Reset != l.record.Reset
	for _, n := range l.write.Notes {
		if n.Note != nil && !rewound {
			l.by.lowest[cursorAt{p.id, n.Cursor}] = lowest(n.Note)
		}
	}
	if rewound {
		p.reset = checkReset{revision: l.revision, before: before, write: l.write.ID, by: l.by}
		for i, f := range p.messages {
			f.earlier = f.settled && noted[i]
		}
		k.emptied(p, &l)
		k.rewound(p)
	} else if before != nil {
		k.writers(p, &l, before, oldNotes)
	}
	k.holders(p, &l, before)
	for _, n := range l.write.Notes {
		if n.Note != nil && n.Note.Doubtful < 0 { // it was proposed before the end was seen
			if p.open[n.Cursor] = true; p.losses == 0 {
				k.fail("NOTE", "%s: the note of cursor %q says that all may have been dispatched, and nothing was lost", p.name(), n.Cursor)
			}
		}
	}
	for i, f := range p.messages {
		if rewound {
			break
		}
		now := p.noted(f)
		if noted[i] && !now && !f.gone && !f.foreign {
			k.fail("NOTE", "%s: the note said that %d is settled, and after write %d of %s it says so no longer", p.name(), f.msg.Offset, l.write.ID, l.by.name)
		}
		if to := owning(p.record, f.msg); to != was[i] && f.n > 0 && !f.loose && !f.exempt() {
			k.fail("STRUCT", "%s: %d was dispatched and is not settled, and it went from cursor %q to %q", p.name(), f.msg.Offset, was[i], to)
		} else if to != was[i] && f.n > 0 && !f.loose && !now && !f.gone {
			k.fail("STRUCT", "%s: %d is settled, and it went from cursor %q to %q whose note does not say so", p.name(), f.msg.Offset, was[i], to)
		}
	}
	k.safe(p)
}

// lowest is the lowest offset that a note does not settle.
func lowest(n *consume.Note) int64 {
	if len(n.Left) > 0 {
		return n.Left[0]
	}
	return n.Pos
}

// safe checks that no unsettled message is settled by its cursor's note.
func (k *checker) safe(p *checkPart) {
	for _, f := range p.messages {
		if !f.exempt() && p.noted(f) {
			k.fail("I1", "%s: %d is not settled, and the note of cursor %q says that it is: %s", p.name(), f.msg.Offset,
				owning(p.record, f.msg), describeNote(p.notes[owning(p.record, f.msg)]))
			return
		}
	}
	for _, c := range slices.Sorted(maps.Keys(p.notes)) {
		n := p.notes[c]
		if n.Pos < 0 || len(n.Left) > 0 && (!slices.IsSorted(n.Left) || n.Left[len(n.Left)-1] >= n.Pos) {
			k.fail("NOTE", "%s: the note of cursor %q is %s", p.name(), c, describeNote(n))
		}
	}
	if p.notes[consume.Main] == nil {
		k.fail("NOTE", "%s: there is no note of main", p.name())
	}
	for _, c := range slices.Sorted(maps.Keys(p.record.Colors)) {
		if p.notes[c] == nil {
			k.fail("NOTE", "%s: there is no note of %s, which is split off", p.name(), c)
		}
	}
}

func (k *checker) created(p *checkPart, l *landing) {
	n := l.notes[consume.Main]
	if n == nil || !slices.Contains(p.resolved, n.Pos) || len(n.Left) > 0 || len(l.record.Colors) > 0 {
		k.fail("I1", "%s: is created with %s and main's note %s; the engine said %v", p.name(), describeRecord(l.record), describeNote(n), p.resolved)
		return
	}
	p.start = n.Pos
	for _, f := range p.messages {
		f.gone = f.gone || f.msg.Offset < p.start
	}
}

// emptied checks that a reset finds nothing in flight: what its consumers have was given back,
// or has outlasted its time.
func (k *checker) emptied(p *checkPart, l *landing) {
	for _, f := range p.messages {
		for i := range f.hands {
			if h := &f.hands[i]; h.by == l.by && h.live() {
				k.fail("I3", "%s: %s resets while %d is in flight", p.name(), l.by.name, f.msg.Offset)
				return
			}
		}
	}
}

// rewound begins the history of a partition anew. Whoever has something of it with consumers was cut
// off before, and goes on until it learns of that.
func (k *checker) rewound(p *checkPart) {
	n := p.notes[consume.Main]
	if n == nil || len(n.Left) > 0 || len(p.record.Colors) > 0 || !slices.Contains(p.resolved, n.Pos) {
		k.fail("NOTE", "%s: a reset leaves %s and main's note %s; the engine said %v", p.name(), describeRecord(p.record), describeNote(n), p.resolved)
		return
	}
	p.start = n.Pos
	p.losses++
	clear(p.first)
	clear(p.open)
	clear(p.doubtEnd)
	if t := p.terms[consume.Main]; t != nil {
		p.terms[consume.Main] = &term{cursor: t.cursor, session: t.session, lane: t.lane, from: p.start, last: map[lane.Name]int64{}}
	}
	for _, f := range p.messages {
		if f.msg.Offset < p.start {
			f.settled = true
			continue
		}
		f.settled, f.permit, f.n, f.loose, f.doubt = false, true, 0, true, false
	}
}

// writers checks that a note is written by who holds its cursor, before the write or by it.
func (k *checker) writers(p *checkPart, l *landing, before *consume.Record, notes map[lane.Name]*consume.Note) {
	for _, n := range l.write.Notes {
		old, _ := holderOf(before, n.Cursor)
		now, there := holderOf(l.record, n.Cursor)
		main := before.Main.Session == l.write.Session
		_, wasThere := holderOf(before, n.Cursor)
		switch split := !wasThere && there; {
		case split:
			if !main || n.Note == nil || n.Note.Pos != l.record.Colors[n.Cursor].From || len(n.Note.Left) > 0 {
				k.fail("NOTE", "%s: %s splits %s with note %s", p.name(), l.by.name, n.Cursor, describeNote(n.Note))
			}
		case !slices.Contains(l.by.sessions, old.Session) && now.Session != l.write.Session:
			k.fail("NOTE", "%s: %s writes the note of cursor %q, which %s holds", p.name(), l.by.name, n.Cursor, old)
		case now.Session != old.Session && !now.None() && !slices.Contains(l.by.sessions, old.Session) && notes[n.Cursor] != nil && n.Note != nil &&
			!sameNote(n.Note, notes[n.Cursor]):
			k.fail("NOTE", "%s: %s takes cursor %q and writes its note", p.name(), l.by.name, n.Cursor)
		}
	}
}

// holders checks every change of hands.
func (k *checker) holders(p *checkPart, l *landing, before *consume.Record) {
	cursors := []lane.Name{consume.Main}
	for c := range l.record.Colors {
		cursors = append(cursors, c)
	}
	if before != nil {
		for c := range before.Colors {
			if _, still := l.record.Colors[c]; !still {
				cursors = append(cursors, c)
			}
		}
	}
	slices.Sort(cursors[1:])
	for _, c := range cursors {
		old, was := holderOf(before, c)
		now, is := holderOf(l.record, c)
		switch {
		case was && !is:
			k.merged(p, l, c, old, before)
		case !was && is && before != nil:
			k.split(p, l, c, before)
		}
		if was && is && old == now {
			continue
		}
		if was && !old.None() && is && now.None() {
			k.released(p, l, c, old, before)
		}
		if is && !now.None() {
			k.taken(p, l, c, old, now, before)
		} else {
			delete(p.terms, c)
		}
	}
	for c, e := range l.record.Colors { // before main is given up, so are the colors that are behind it
		if h := e.Holder; !h.None() && h.Lane == lane.Baseline && h.Session != l.record.Main.Session &&
			before != nil && before.Main.Session == h.Session && l.write.Session == h.Session {
			k.fail("STRUCT", "%s: %s gives up main and still runs %s for the baseline", p.name(), l.by.name, c)
		}
	}
}

func (k *checker) taken(p *checkPart, l *landing, c lane.Name, old, now consume.Holder, before *consume.Record) {
	switch {
	case !old.None() && old.Session == now.Session:
		k.fail("MOVE", "%s: cursor %q goes from %s to %s without a release", p.name(), c, old, now)
	case !old.None() && l.alive(old.Session):
		k.fail("MOVE", "%s: cursor %q is taken from %s, whose session lives", p.name(), c, old)
	case now.Session != l.write.Session:
		k.fail("MOVE", "%s: %s lets %s hold cursor %q", p.name(), l.by.name, now, c)
	case c == consume.Main && now.Lane != lane.Baseline:
		k.fail("I2", "%s: main is taken for %q", p.name(), now.Lane)
	case c != consume.Main && now.Lane != lane.Baseline && !k.mayRun(now.Lane, c):
		k.fail("I2", "%s: %s is taken for %q, which never could own it", p.name(), c, now.Lane)
	case c != consume.Main && now.Lane == lane.Baseline && l.record.Main.Session != now.Session:
		k.fail("MOVE", "%s: %s is taken for the baseline by %s, and main is held by %s", p.name(), c, now, l.record.Main)
	}
	t := &term{cursor: c, session: now.Session, lane: now.Lane, last: map[lane.Name]int64{}}
	if n := p.notes[c]; n != nil {
		t.from = n.Pos
		if len(n.Left) > 0 {
			k.counts.takesWithLeft++
		}
	}
	if !old.None() {
		own := slices.Contains(l.by.sessions, old.Session)
		if prev := p.terms[c]; prev != nil {
			prev.taken, prev.record = p.revision, before
			p.past[c] = append(p.past[c], prev)
			if own {
				p.carry(prev, t)
			}
		}
		k.loss(p, c, own)
	}
	p.terms[c] = t
	if main := p.terms[consume.Main]; c != consume.Main && main != nil && now.Lane == lane.Baseline {
		delete(main.last, c)
	}
}

// carry lets a process keep, under another session, what its consumers have and have given back.
func (p *checkPart) carry(from, to *term) {
	for _, f := range p.messages {
		for i := range f.hands {
			if h := &f.hands[i]; h.term == from && (h.live() || h.state == given) {
				h.term = to
			}
		}
	}
}

// loss sets free what the lost holder had handed out and had not noted when it was replaced.
// Where it is the same process under another session, nobody else was cut off.
func (k *checker) loss(p *checkPart, c lane.Name, own bool) {
	p.losses++
	p.open[c] = true
	k.counts.lossyTakes++
	for _, f := range p.messages {
		if owning(p.record, f.msg) != c || p.noted(f) {
			continue
		}
		f.doubt = f.doubt || !own
		if f.n > 0 {
			f.permit, f.loose = true, true
		}
	}
}

// released checks that nothing of the cursor is in flight that did not outlast its time.
func (k *checker) released(p *checkPart, l *landing, c lane.Name, old consume.Holder, before *consume.Record) {
	if !slices.Contains(l.by.sessions, old.Session) {
		k.fail("MOVE", "%s: %s releases cursor %q of %s", p.name(), l.by.name, c, old)
	}
	for _, f := range p.messages {
		if owning(before, f.msg) != c {
			continue
		}
		for i := range f.hands {
			if h := &f.hands[i]; h.by == l.by && h.live() {
				k.fail("I4", "%s: %s releases cursor %q while %d is in flight", p.name(), l.by.name, c, f.msg.Offset)
				return
			}
		}
	}
}

// split checks that the color begins where main stands: below it everything of the color has
// been main's.
func (k *checker) split(p *checkPart, l *landing, c lane.Name, before *consume.Record) {
	if before.Main.Session != l.write.Session {
		k.fail("MOVE", "%s: %s splits %s off, and main is held by %s", p.name(), l.by.name, c, before.Main)
		return
	}
	from := l.record.Colors[c].From
	p.doubtEnd[c] = p.doubtEnd[consume.Main]
	if delete(p.open, c); p.open[consume.Main] {
		p.open[c] = true
	}
	if p.g.cfg.Ordered {
		for _, f := range p.messages {
			if f.msg.Color == c && f.msg.Offset < from && f.n > 0 && !f.exempt() {
				k.fail("I4+", "%s: %s is split off from %d, and the baseline has not settled %d", p.name(), c, from, f.msg.Offset)
			}
		}
	}
	main := p.terms[consume.Main]
	if main == nil || p.broken {
		return
	}
	if from < main.from {
		k.fail("STRUCT", "%s: %s is split off from %d, and main began at %d", p.name(), c, from, main.from)
		return
	}
	for _, f := range p.messages {
		if m := f.msg; m.Color == c && m.Offset >= main.from && m.Offset < from && !f.exempt() && (f.n == 0 || f.loose) {
			k.fail("STRUCT", "%s: %s is split off from %d, and main has not come to %d", p.name(), c, from, m.Offset)
			return
		}
		if m := f.msg; m.Color == c && m.Offset >= from && f.n > 0 && !f.loose && owning(before, m) == consume.Main && !f.gone {
			k.fail("STRUCT", "%s: %s is split off from %d, and main has dispatched %d", p.name(), c, from, m.Offset)
			return
		}
	}
}

func (k *checker) merged(p *checkPart, l *landing, c lane.Name, old consume.Holder, before *consume.Record) {
	if before.Reset != l.record.Reset {
		if t := p.terms[c]; t != nil { // whoever ran it, cut off, may go on until it learns of that
			t.taken, t.record = p.revision, before
			p.past[c] = append(p.past[c], t)
			if l.alive(t.session) {
				k.fail("MOVE", "%s: %s resets while %s runs %s", p.name(), l.by.name, t.session, c)
			}
		}
		return
	}
	n := p.notes[consume.Main]
	switch {
	case old.Session != l.write.Session || before.Main.Session != l.write.Session || old.Lane != lane.Baseline:
		k.fail("MOVE", "%s: %s merges %s, which %s holds, and %s main", p.name(), l.by.name, c, old, before.Main)
	case p.notes[c] != nil:
		k.fail("NOTE", "%s: %s is merged, and its note is still there", p.name(), c)
	case n != nil && len(n.Left) > 0:
		k.counts.mergesWithLeft++
	}
}
