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
