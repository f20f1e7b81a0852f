package consumetest

import (
	"slices"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// explained checks what a write says of its moves, for people: as far as the record that it
// compares and its writer's own picture tell.
func (k *checker) explained(a *actor, w *consume.Write) {
	p := k.groups[a.group].part(w.Partition)
	for _, m := range w.Moves {
		if !slices.Contains(whys(), whyOf(m.Kind, m.Why)) && m.Why != consume.WhyNotRun || a.view == nil ||
			p.revision == w.IfRevision && !k.so(a, p, &m) {
			k.fail("WHY", "%s proposes %s; the record is %s", a.name, m, describeRecord(p.record))
			return
		}
	}
}

// so reports whether the reason of a move holds.
func (k *checker) so(a *actor, p *checkPart, m *consume.Move) bool {
	topic := p.g.origin[p.id.Topic]
	h, _ := holderOf(p.record, m.Cursor)
	own := slices.Contains(a.sessions, h.Session)
	present := len(a.sessions) > 0 && h.Session == a.sessions[len(a.sessions)-1]
	switch m.Why {
	case consume.WhyFree:
		return h.None()
	case consume.WhyGone:
		return !h.None() && !present
	case consume.WhyNewSession:
		return own && !present
	case consume.WhyNotRun:
		return present
	case consume.WhyCaretaker:
		return m.Cursor == consume.Main && !baseline(a.view, topic)
	case consume.WhyStrictEnded:
		l, known := a.view.Lanes[m.Cursor]
		return strict(m.Cursor) && (!known || l.Ended)
	case consume.WhyStopping:
		return a.stopping
	case consume.WhyNewGroup, consume.WhyNewPart:
		late := slices.ContainsFunc(p.g.cfg.Topics, func(t consume.Topic) bool { return t.Name == p.id.Topic && p.id.Index >= t.Partitions })
		return (m.Why == consume.WhyNewPart) == (late || topic != p.id.Topic)
	case consume.WhyLaneMember, consume.WhyMessage, consume.WhyStalled:
		f := p.find(m.From)
		there := slices.ContainsFunc(a.view.Members, func(o consume.Member) bool {
			l := a.view.Lanes[o.Lane]
			return o.Lane == m.Cursor && slices.Contains(o.Topics, topic) && (o.Session == "" || a.view.Sessions[o.Session]) &&
				!l.Ended && l.Generation == o.Generation
		})
		return there == (m.Why == consume.WhyLaneMember) && (m.Why != consume.WhyMessage || f != nil && f.msg.Color == m.Cursor)
	case consume.WhyOwner, consume.WhyReset:
		return m.Cursor != consume.Main || m.Kind == consume.Rewind
	case consume.WhyBaseline:
		return m.Cursor == consume.Main
	case consume.WhyMainMoves:
		return m.Cursor != consume.Main && h.Lane == lane.Baseline
	case consume.WhyPaused, consume.WhyHold: // of what is asked back
		return false
	case consume.WhyNoMember, consume.WhyBalance, consume.WhyMet:
	}
	return true
}

// movedTold is told that a Core says that a write took place. Where others came to the same by a write of
// theirs it may think so; but nobody else makes it a holder.
func (k *checker) movedTold(a *actor, w *consume.Write) {
	takes := slices.ContainsFunc(w.Moves, func(m consume.Move) bool { return m.Kind == consume.Take })
	if !a.landed[w.ID] && (takes || len(w.Moves) == 0) {
		k.fail("MOVED", "%s says that %s took place, and it did not, or has no moves", a.name, describeWrite(w))
	}
	delete(a.owesMoved, w.ID)
}

// movesTold is told that a Core has done all that follows from an event: it has said of every
// write with moves that took place that it did.
func (k *checker) movesTold(a *actor) {
	for id := range a.owesMoved {
		k.fail("MOVED", "%s does not say that its write %d of %s took place", a.name, id, a.wrote[id])
	}
}

// ending is a move that ends a run, as it was proposed.
type ending struct {
	write   uint64
	kind    consume.MoveKind
	why     consume.Why
	refused bool // it did not take place, or had done so before
}

// ending is told of a write that ends runs. Whose consumers are waited for no longer was given up
// for the reason that the move has; a reset may be called off, and then another reason follows.
func (k *checker) ending(a *actor, w *consume.Write) {
	for _, m := range w.Moves {
		at := cursorAt{w.Partition, m.Cursor}
		switch m.Kind {
		case consume.Take:
			delete(a.cutFor, at)
			delete(a.ends, at)
		case consume.Release, consume.Merge, consume.Rewind:
			if why, cut := a.cutFor[at]; cut && why != m.Why && why != consume.WhyReset {
				k.fail("WHY", "%s has given up cursor %q of %s, %s, and proposes %s", a.name, m.Cursor, w.Partition, why, m)
			}
			a.ends[at] = &ending{write: w.ID, kind: m.Kind, why: m.Why}
		case consume.Split, consume.Create:
		}
	}
}

// refused is told that a write was answered.
func (a *actor) refused(e *consume.Answered) {
	if e.Outcome != consume.Conflict {
		return
	}
	for _, end := range a.ends {
		end.refused = end.refused || end.write == e.Write
	}
}

// gaveUp checks what a withdrawal says of itself: where a move ends the run, what the move says; where
// its process is named no longer, that; and what may be where it waits for its consumers no longer.
func (k *checker) gaveUp(a *actor, r *checkRun, w *consume.Withdraw) {
	h, there := holderOf(r.p.record, r.cursor)
	named := there && slices.Contains(a.sessions, h.Session)
	at := cursorAt{r.p.id, r.cursor}
	e := a.ends[at]
	released := e != nil && e.kind == consume.Release && !e.refused
	var so bool
	switch {
	case w.Why == consume.WhyGone:
		so = !named && (!released || !a.landed[e.write])
	case e != nil && w.Why == e.why:
		so = true
	default: // a merge or a reset may be overtaken by what ends the run first
		so = !released && a.mayGiveUp(r, w.Why)
	}
	if !so {
		k.fail("WHY", "%s gives up cursor %q of %s: %s; the record is %s", a.name, r.cursor, r.p.name(), w.Why, describeRecord(r.p.record))
	}
	if named && e == nil {
		a.cutFor[at] = w.Why
	}
}

// mayGiveUp reports whether a reason may be one for which an actor stops a run.
func (a *actor) mayGiveUp(r *checkRun, why consume.Why) bool {
	switch why {
	case consume.WhyStopping:
		return a.stopping
	case consume.WhyReset:
		return a.rewinds[r.p.id]
	case consume.WhyBaseline:
		return r.cursor == consume.Main
	case consume.WhyOwner, consume.WhyMainMoves:
		return r.cursor != consume.Main
	case consume.WhyNoMember, consume.WhyBalance:
		return true
	default:
		return false
	}
}
