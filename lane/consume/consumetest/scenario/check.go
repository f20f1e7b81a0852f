package scenario

import (
	"fmt"
	"maps"
	"slices"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// invariants watches a scenario: what the protocol promises, looked at after every step with
// an eye that sees everything.
type invariants struct {
	w      *stage
	faults []string

	start   map[consume.Partition]int64
	broken  map[consume.Partition]bool // the engine lost its log: nothing is promised
	fates   map[*consume.Message]*fate
	firsts  map[strand]int64 // the highest first dispatch
	terms   map[term]int64   // the highest dispatch of a holder
	zombies map[string]bool  // sessions that are over, or may be
}

// fate is what became of a message.
type fate struct {
	times    int // dispatched, since a reset
	settled  bool
	out      bool // with a consumer
	returned bool // by a consumer, since it was dispatched
	freed    bool // its holder was lost since it was dispatched
	by       string
	lane     lane.Name
}

// strand is one color in one partition: what order is about.
type strand struct {
	p     consume.Partition
	color lane.Name
}

// term is a strand as one holder dispatches it, be it by main or by the color's own cursor.
type term struct {
	strand
	session string
	lane    lane.Name
}

func newInvariants(w *stage) *invariants {
	return &invariants{
		w: w, start: map[consume.Partition]int64{}, broken: map[consume.Partition]bool{},
		fates: map[*consume.Message]*fate{}, firsts: map[strand]int64{}, terms: map[term]int64{},
		zombies: map[string]bool{},
	}
}

// fault notes what is broken, and shows it where it happened.
func (v *invariants) fault(format string, args ...any) {
	s := fmt.Sprintf(format, args...)
	if !slices.Contains(v.faults, s) {
		v.faults = append(v.faults, s)
		v.w.say("BROKEN %s", s)
	}
}

func (v *invariants) fate(m *consume.Message) *fate {
	f := v.fates[m]
	if f == nil {
		f = &fate{}
		v.fates[m] = f
	}
	return f
}

// log is all of a partition that is still there.
func (v *invariants) log(p consume.Partition) []*consume.Message {
	b, _ := v.w.engine.Peek(p, 0, consume.Filter{All: true}, 1<<20)
	return b.Messages
}

// lost: a process is lost, or may be. What it has given out may be given out again.
func (v *invariants) lost(p *process) {
	v.zombies[p.session] = true
	v.ended(p)
}

// ended: what a process ran is over, and what it had in flight is lost.
func (v *invariants) ended(p *process) {
	maps.DeleteFunc(v.terms, func(t term, _ int64) bool { return t.session == p.session })
	for _, f := range v.fates {
		if f.by == p.session {
			f.freed, f.out = true, false
		}
	}
}

// cut: a process waits no longer for what is in flight with a run.
func (v *invariants) cut(run uint64, p *process) {
	for _, h := range p.out {
		if h.Run == run {
			f := v.fate(h.Message)
			f.freed, f.out = true, false
		}
	}
}

func (v *invariants) dispatched(p *process, h *handed) {
	f, at := v.fate(h.Message), where(h.Message)
	zombie := v.zombies[p.session]
	if !zombie {
		v.rightLane(p, h, at)
		if f.times > 0 && !f.returned && !f.freed {
			v.fault("I3: %s was given to %s, and no one gave it back", at, laneWords(f.lane))
		}
		if f.times > 0 && !h.Redelivered {
			v.fault("I3: %s was given out before, and nothing says so", at)
		}
		v.order(p, h, f, at)
	}
	f.times++
	f.out, f.returned, f.freed = true, false, zombie
	f.by, f.lane = p.session, h.Lane
}

// rightLane: the record names this session, and this lane.
func (v *invariants) rightLane(p *process, h *handed, at string) {
	want := consume.Holder{Session: p.session, Lane: h.Lane}
	for _, s := range v.w.registry.Records(v.w.cfg.Group) {
		if s.Partition != h.Partition {
			continue
		}
		if got, _ := s.Record.Holder(h.Cursor); got != want {
			v.fault("I2: %s goes to %s by %s, but %s is with %s", at, laneWords(h.Lane), p.name, cursorWords(h.Cursor), v.w.holder(got))
		}
		if s.Record.Owns(h.Color, h.Offset) != (h.Cursor != consume.Main) {
			v.fault("%s is dispatched by %s, whose it is not", at, cursorWords(h.Cursor))
		}
	}
}

func (v *invariants) order(p *process, h *handed, f *fate, at string) {
	s := strand{h.Partition, h.Color}
	if f.times == 0 {
		if last, ok := v.firsts[s]; ok && h.Offset < last {
			v.fault("I4: %s is first given out after %d of its color", at, last)
		}
		v.firsts[s] = max(v.firsts[s], h.Offset)
	}
	t := term{s, p.session, h.Lane}
	if last, ok := v.terms[t]; ok && h.Offset <= last && !f.returned && !f.freed {
		v.fault("I4: %s gives out %s after %d", p.name, at, last)
	}
	v.terms[t] = max(v.terms[t], h.Offset)
	if !v.w.cfg.Ordered {
		return
	}
	for m, o := range v.fates {
		if o.out && !o.freed && m.Partition == h.Partition && m.Color == h.Color && o.lane != h.Lane {
			v.fault("I4: %s goes to %s while %s is with %s", at, laneWords(h.Lane), where(m), laneWords(o.lane))
		}
	}
}

func (v *invariants) returned(h *handed) {
	f := v.fate(h.Message)
	f.returned, f.out = true, false
}

func (v *invariants) settled(m *consume.Message) {
	f := v.fate(m)
	f.settled, f.out = true, false
}

// wrote looks at writes that took place.
func (v *invariants) wrote(w *consume.Write, a *consume.Answer) {
	if a.Outcome != consume.Done {
		return
	}
	for _, m := range w.Moves {
		switch m.Kind {
		case consume.Create:
			v.start[w.Partition] = w.Notes[0].Note.Pos
		case consume.Rewind:
			v.start[w.Partition] = m.From
			for msg, f := range v.fates {
				if msg.Partition == w.Partition {
					f.settled, f.times = false, 0 // it is as if it were new
				}
			}
			for s := range v.firsts {
				if s.p == w.Partition {
					delete(v.firsts, s)
				}
			}
			for t := range v.terms {
				if t.p == w.Partition {
					delete(v.terms, t)
				}
			}
		case consume.Take, consume.Release, consume.Split, consume.Merge:
		}
	}
	v.notes()
}

// notes: I1 in its safe form. Were every process to die now, no message would be lost: none
// that is not settled is settled by the note of the cursor whose it is.
func (v *invariants) notes() {
	for _, s := range v.w.registry.Records(v.w.cfg.Group) {
		p := s.Partition
		if v.broken[p] {
			continue
		}
		for _, m := range v.log(p) {
			if m.Offset < v.start[p] || v.fate(m).settled {
				continue
			}
			cursor := consume.Main
			if s.Record.Owns(m.Color, m.Offset) {
				cursor = m.Color
			}
			if n := v.w.registry.Note(v.w.cfg.Group, p, cursor).Note; n != nil && n.Settled(m.Offset) {
				v.fault("I1: %s %s is not settled, but the note of %s says so", where(m), colorWords(m.Color), cursorWords(cursor))
			}
		}
	}
}

// total tells how many messages are settled, and which are not.
func (v *invariants) total() {
	all, done, times := 0, 0, 0
	for _, topic := range v.w.topicsRead() {
		for i := range v.w.counts[topic] {
			p := consume.Partition{Topic: topic, Index: i}
			for _, m := range v.log(p) {
				if m.Offset < v.start[p] {
					continue
				}
				f := v.fate(m)
				all++
				times += f.times
				if f.settled {
					done++
				} else {
					v.w.say("%s %s waits", where(m), colorWords(m.Color))
				}
			}
		}
	}
	v.w.say("%d of %d messages are settled, in %d dispatches", done, all, times)
}
