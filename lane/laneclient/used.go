package laneclient

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/laneway-dev/laneway/lane"
)

const (
	usedSlots  = 1024 // a power of two
	usedProbes = 16   // slots that a name may stand in
)

// usedSet notes which lanes were used. Writers take no lock and, for a name that
// is there, do not allocate. It is bounded: where a name's slots are all taken, it
// is passed over and noted again after the next take.
type usedSet struct {
	seed  maphash.Seed
	table atomic.Pointer[usedTable]
}

type usedTable [usedSlots]atomic.Pointer[lane.Name]

func newUsedSet() *usedSet {
	u := &usedSet{seed: maphash.MakeSeed()}
	u.table.Store(&usedTable{})
	return u
}

func (u *usedSet) note(color lane.Name) {
	table := u.table.Load()
	at := maphash.String(u.seed, string(color))
	for n := range uint64(usedProbes) {
		slot := &table[(at+n)%usedSlots]
		name := slot.Load()
		if name == nil {
			kept := color // so that only a name that is new here is moved to the heap
			if slot.CompareAndSwap(nil, &kept) {
				return
			}
			name = slot.Load()
		}
		if *name == color {
			return
		}
	}
}

// take returns what was noted since the last take. A note that is made at the same
// moment may be lost; its lane is used again or it does not matter.
func (u *usedSet) take() []string {
	table := u.table.Swap(&usedTable{})
	var names []string
	for n := range table {
		if name := table[n].Load(); name != nil {
			names = append(names, string(*name))
		}
	}
	return names
}
