package lane

import "hash/maphash"

// laneIndex finds lanes by name. It is a table with linear probing and not a map: it costs
// the same for one lane and for ten thousand, and touches less memory on the way.
type laneIndex struct {
	seed    maphash.Seed
	slots   []*laneEntry // at most half of them taken, a power of two of them
	entries []laneEntry  // in one piece; never moves
}

func newLaneIndex(lanes []Lane) laneIndex {
	size := 2
	for size < 2*len(lanes) {
		size *= 2
	}
	x := laneIndex{seed: maphash.MakeSeed(), slots: make([]*laneEntry, size), entries: make([]laneEntry, 0, len(lanes))}
	for _, l := range lanes {
		if l.Name == Baseline {
			continue
		}
		slot := x.slot(l.Name)
		if *slot == nil {
			x.entries = append(x.entries, laneEntry{})
			*slot = &x.entries[len(x.entries)-1]
		}
		(*slot).Lane = l
	}
	return x
}

// slot returns where the lane is, or where it would be.
func (x *laneIndex) slot(name Name) **laneEntry {
	last := uint64(len(x.slots) - 1)
	for i := maphash.String(x.seed, string(name)) & last; ; i = (i + 1) & last {
		if e := x.slots[i]; e == nil || e.Name == name {
			return &x.slots[i]
		}
	}
}

// find returns the lane of that name, or nil.
func (x *laneIndex) find(name Name) *laneEntry {
	if len(x.slots) == 0 {
		return nil
	}
	return *x.slot(name)
}
