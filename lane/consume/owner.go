package consume

import "github.com/laneway-dev/laneway/lane"

// maxChain is how many parents of a lane are looked at: more than a tree of lanes may have.
const maxChain = 64

// strict reports whether a color is a strict lane's. A value that is no lane name is no
// strict color, whatever it begins with.
func strict(color lane.Name) bool { return color.Strict() && color.Valid() }

// owner says to whom a color's messages of a topic go by a view (the words' table of the
// protocol). members has, for each lane, how many members count for the topic.
func owner(v *View, members map[lane.Name]int, color lane.Name, unknownTooLong bool) Owner {
	if color == Main {
		return Owner{Reason: lane.ReasonPlain}
	}
	l, known := v.Lanes[color]
	if strict(color) {
		switch {
		case known && l.Ended:
			return Owner{Reason: lane.ReasonEnded, Dead: true}
		case !known && unknownTooLong:
			return Owner{Reason: lane.ReasonUnknown, Dead: true}
		case known && members[color] > 0:
			return Owner{Lane: color, Reason: lane.ReasonStrict}
		}
		return Owner{Lane: color, Reason: lane.ReasonStrictNo}
	}
	if !known {
		return Owner{Reason: lane.ReasonUnknown}
	}
	reason := lane.ReasonLane
	at := color
	for range maxChain {
		if !l.Ended && members[at] > 0 {
			return Owner{Lane: at, Reason: reason}
		}
		if l.Parent == lane.Baseline || l.Parent.Strict() { // a strict lane is no parent
			break
		}
		at, reason = l.Parent, lane.ReasonParent
		if l, known = v.Lanes[at]; !known {
			break
		}
	}
	if v.Lanes[color].Ended {
		return Owner{Reason: lane.ReasonEnded}
	}
	return Owner{Reason: lane.ReasonBaseline}
}
