package consumetest

import (
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// noteBound is how long a cursor may have moved before a note of it is proposed, as long as
// nothing hinders it. That many move at once that the time between notes is stretched by more than
// this leaves is nothing that is played here.
func noteBound(cfg *consume.Config) time.Duration {
	least := cfg.NoteMin
	if least == 0 {
		least = consume.DefaultNoteMin
	}
	return least + time.Second
}

// moved is told that a cursor of an actor's moved: something of it was handed out or settled.
func (a *actor) moved(p *checkPart, cursor lane.Name, now time.Duration) {
	at := cursorAt{p.id, cursor}
	if _, since := a.unnoted[at]; since {
		return
	}
	a.unnoted[at] = now
	if len(a.unnoted) == 1 || now < a.oldest {
		a.oldest = now
	}
}

// noted is told of a note that an actor proposes.
func (a *actor) noted(w *consume.Write) {
	for _, n := range w.Notes {
		delete(a.unnoted, cursorAt{w.Partition, n.Cursor})
	}
}

// again lets the time begin anew for the cursors of a partition, or of all.
func (a *actor) again(id *consume.Partition, now time.Duration) {
	for at := range a.unnoted {
		if id == nil || at.p == *id {
			a.unnoted[at] = now
		}
	}
}

// keepsNotes checks that a note is written of each cursor that moved. It is looked at whenever
// an actor is told of something.
func (k *checker) keepsNotes(a *actor, now time.Duration) {
	bound := noteBound(&k.groups[a.group].cfg)
	if len(a.unnoted) == 0 || now-a.oldest <= bound {
		return
	}
	a.oldest = now
	for _, at := range slices.SortedFunc(maps.Keys(a.unnoted), cursorAt.compare) {
		p := k.groups[a.group].part(at.p)
		since := a.unnoted[at]
		h, _ := holderOf(p.record, at.cursor)
		switch {
		case len(a.sessions) == 0 || h.Session != a.sessions[len(a.sessions)-1]:
			delete(a.unnoted, at) // it is not its own, or not yet under this session
		case a.lost || p.broken || a.underWay[at.p] > 0:
			a.unnoted[at] = now
		case now-since > bound && !p.owesNote(a, at.cursor):
			delete(a.unnoted, at) // a note that was under way when it moved says all
		case now-since > bound:
			k.fail("NOTE", "%s: cursor %q moved %v ago, and %s has written no note of it", p.name(), at.cursor, now-since, a.name)
			return
		default:
			a.oldest = min(a.oldest, since)
		}
	}
}

// owesNote reports whether an actor knows of a cursor what its note does not say.
func (p *checkPart) owesNote(a *actor, cursor lane.Name) bool {
	n := p.notes[cursor]
	return slices.ContainsFunc(p.messages, func(f *fate) bool {
		return owning(p.record, f.msg) == cursor && slices.ContainsFunc(f.hands, func(h handed) bool {
			return h.by == a && (h.state == done && !p.noted(f) || h.live() && (n == nil || f.msg.Offset >= n.Pos))
		})
	})
}

// thawed is told that an actor goes on that stood still.
func (k *checker) thawed(a *actor, now time.Duration) { a.again(nil, now) }

// heedless checks that no note settles what a consumer of its writer's has still: what others say of
// the same message, whom it was taken from before, is passed over.
func (k *checker) heedless(a *actor, w *consume.Write) {
	p := k.groups[a.group].part(w.Partition)
	for _, n := range w.Notes {
		if n.Note == nil {
			continue
		}
		for _, f := range p.messages {
			if says(n.Note, f.msg.Offset) && slices.ContainsFunc(f.hands, func(h handed) bool {
				return h.by == a && h.live() && a.runs[h.run] != nil && a.runs[h.run].cursor == n.Cursor
			}) {
				k.fail("NOTE", "%s: %s proposes note %s of cursor %q, and a consumer has %d still (%s)", p.name(), a.name,
					describeNote(n.Note), n.Cursor, f.msg.Offset, describeHands(f))
				return
			}
		}
	}
}
