package consume

import (
	"cmp"
	"slices"

	"github.com/laneway-dev/laneway/lane"
)

// audience is who reads one topic of a group by the present view, with what follows from it.
// It is made anew with every view.
type audience struct {
	view     *View
	members  map[lane.Name]int    // that count, tombstones too
	seats    map[lane.Name][]seat // sessions that can run a cursor for a lane, ascending
	everyone []seat               // all sessions with a member in any lane
	owners   map[lane.Name]Owner  // as far as asked for
	eager    []lane.Name          // colors whose own lane has a member, ascending
	lazy     []lane.Name          // other known colors whose owner is not the baseline, ascending
	unknown  map[lane.Name]bool   // strict colors that have been unknown too long
	buries   bool                 // there is a dead-letter topic
}

// seat is a session that can run cursors, and its room.
type seat struct{ session, room string }

func newAudience(v *View, t *Topic, unknown map[lane.Name]bool) *audience {
	a := &audience{
		view: v, members: map[lane.Name]int{}, seats: map[lane.Name][]seat{}, owners: map[lane.Name]Owner{},
		unknown: unknown, buries: t.Dead != "",
	}
	for i := range v.Members {
		m := &v.Members[i]
		if !slices.Contains(m.Topics, t.Name) || !counts(v, m) {
			continue
		}
		a.members[m.Lane]++
		if m.Session != "" {
			s := seat{m.Session, m.Room}
			a.seats[m.Lane] = append(a.seats[m.Lane], s)
			a.everyone = append(a.everyone, s)
		}
	}
	for l := range a.seats {
		a.seats[l] = tidySeats(a.seats[l])
	}
	a.everyone = tidySeats(a.everyone)
	for name := range v.Lanes {
		switch o := a.owner(name); {
		case o.Lane == lane.Baseline:
		case o.Lane == name && a.members[name] > 0:
			a.eager = append(a.eager, name)
		default:
			a.lazy = append(a.lazy, name)
		}
	}
	slices.Sort(a.eager)
	slices.Sort(a.lazy)
	return a
}

// counts reports whether a member is live, of a lane that lasts, and of its present
// generation.
func counts(v *View, m *Member) bool {
	if m.Session != "" && !v.Sessions[m.Session] {
		return false
	}
	if m.Lane == lane.Baseline {
		return true
	}
	l, known := v.Lanes[m.Lane]
	return known && !l.Ended && l.Generation == m.Generation
}

// tidySeats sorts seats and leaves one of each session.
func tidySeats(s []seat) []seat {
	slices.SortFunc(s, func(a, b seat) int {
		return cmp.Or(cmp.Compare(a.session, b.session), cmp.Compare(a.room, b.room))
	})
	return slices.CompactFunc(s, func(a, b seat) bool { return a.session == b.session })
}

// owner says to whom a color's messages should go. It does not allocate for a color that was
// asked for before.
func (a *audience) owner(color lane.Name) Owner {
	if color == Main {
		return Owner{Reason: lane.ReasonPlain}
	}
	if o, ok := a.owners[color]; ok {
		return o
	}
	if !color.Valid() { // no lane can have it
		return Owner{Reason: lane.ReasonUnknown}
	}
	o := owner(a.view, a.members, color, a.unknown[color])
	if o.Dead && !a.buries { // without a place for dead letters they wait as if the lane had no member
		o = Owner{Lane: color, Reason: lane.ReasonStrictNo}
	}
	if len(a.owners) < maxOwners || a.view.known(color) {
		a.owners[color] = o
	}
	return o
}

// maxOwners bounds how many colors nobody knows are remembered.
const maxOwners = 10_000

func (v *View) known(color lane.Name) bool {
	_, ok := v.Lanes[color]
	return ok
}

// baseline reports whether the baseline has a member.
func (a *audience) baseline() bool { return a.members[lane.Baseline] > 0 }

// able are the sessions that may run a cursor for its owner: main's, too, when the baseline
// has no member and any session of the group may hold it.
func (a *audience) able(cursor lane.Name, o Owner) []seat {
	if cursor == Main && !a.baseline() {
		return a.everyone
	}
	return a.seats[o.Lane]
}
