package consume

import (
	"github.com/laneway-dev/laneway/lane"
)

// Lane is what a group's process knows of a lane.
type Lane struct {
	Parent     lane.Name // zero: the baseline
	Generation uint64
	Ended      bool
}

// Member is one live consumer of a group, in the baseline or in a lane.
type Member struct {
	ID         string
	Session    string // empty: a tombstone, which counts as a member but runs nothing
	Lane       lane.Name
	Generation uint64 // of the lane when it joined; one of an older generation does not count
	Topics     []string
	Room       string
}

// Group is what everybody may change of a group while it runs.
type Group struct {
	Paused bool // nothing is dispatched; cursors stay with their holders
	// Reset asks that every partition begins again at an offset. ID names the request: a
	// partition whose record has it is done.
	Reset *Reset
}

// Reset is a request to begin again. A partition that Offsets does not name is left alone.
type Reset struct {
	ID      string
	Offsets map[Partition]int64
}

// View is a picture of the registry as it was at a revision. It is not changed after it was
// handed over. A view may be old; nothing rests on it but when a move is made. One rule
// binds whoever makes it: sessions and records come in one order, so a session that is not
// in the view, where that is as of a revision at or above that of a record which names it
// ([Reached]), is gone.
type View struct {
	Revision uint64
	Lanes    map[lane.Name]Lane
	Members  []Member
	Sessions map[string]bool // those that live
	Group    Group
}

// Owner says to whom a color's messages of a topic should go.
type Owner struct {
	Lane   lane.Name // zero: the baseline
	Reason lane.Reason
	// Dead: a strict color whose lane is over; its messages go to the dead-letter topic.
	Dead bool
}
