package consumetest

import (
	"maps"
	"slices"

	"github.com/laneway-dev/laneway/lane/consume"
)

// recalled is told that an actor asks for what nobody has begun with of a run.
func (k *checker) recalled(a *actor, rc *consume.Recall) {
	r := a.runs[rc.Run]
	if r == nil || a.running[cursorAt{r.p.id, rc.Cursor}] != rc.Run {
		k.fail("RECALL", "%s asks for what is left of run %d, which it does not run", a.name, rc.Run)
		return
	}
	if n, more := r.p.with(a, rc.Run); n+more == 0 {
		k.fail("RECALL", "%s asks for what is left of cursor %q of %s, and there is nothing", a.name, rc.Cursor, r.p.name())
		return
	}
	so := true
	switch rc.Why {
	case consume.WhyHold:
		so = a.lost && a.policy == consume.LossHold
	case consume.WhyPaused:
		so = a.paused || a.view != nil && a.view.Group.Paused
	case consume.WhyNewSession:
		so = a.opening
	case consume.WhyStopping:
		so = a.stopping
	case consume.WhyReset:
		so = a.view != nil && a.view.Group.Reset != nil
	case consume.WhyBaseline:
		so = rc.Cursor == consume.Main
	case consume.WhyOwner, consume.WhyMainMoves:
		so = rc.Cursor != consume.Main
	case consume.WhyNoMember, consume.WhyBalance:
	default:
		so = false
	}
	if !so {
		k.fail("RECALL", "%s asks for what is left of cursor %q of %s: %s", a.name, rc.Cursor, r.p.name(), rc.Why)
	}
	r.recalled = true
	a.owesRecall = slices.DeleteFunc(a.owesRecall, func(id uint64) bool { return id == rc.Run })
}

// owesRecalls is told that an actor is to hand out nothing any more: it has to ask for all that
// its consumers have.
func (k *checker) owesRecalls(a *actor) {
	for _, at := range slices.SortedFunc(maps.Keys(a.running), cursorAt.compare) {
		id := a.running[at]
		r := a.runs[id]
		if n, _ := r.p.with(a, id); n > 0 {
			r.recalled = false
			a.owesRecall = append(a.owesRecall, id)
		}
	}
}

// recallsDone is told that a Core has done all that follows from an event.
func (k *checker) recallsDone(a *actor) {
	for _, id := range a.owesRecall {
		if r := a.runs[id]; a.running[cursorAt{r.p.id, r.cursor}] == id {
			k.fail("RECALL", "%s hands out nothing, and does not ask for what is left of cursor %q of %s", a.name, r.cursor, r.p.name())
		}
	}
	a.owesRecall = a.owesRecall[:0]
}

// waits is told that an actor waits for what is in flight of a cursor that it gives up: it has
// asked for what nobody has begun with.
func (k *checker) waits(a *actor, t consume.Timer) {
	if t.Kind != consume.TimerHandover {
		return
	}
	if r := a.runs[a.running[cursorAt{t.Partition, t.Cursor}]]; r != nil && !r.recalled {
		k.fail("RECALL", "%s waits for what is in flight of cursor %q of %s, and has not asked for what nobody has begun with", a.name, t.Cursor, r.p.name())
	}
}
