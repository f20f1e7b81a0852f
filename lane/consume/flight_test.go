package consume

import (
	"math/rand/v2"
	"testing"
)

// TestFlightFinds: an item is found by its offset as long as it is not settled, whatever was looked
// for before and whatever was added, settled and closed up since.
func TestFlightFinds(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		var f flight
		open := map[int64]bool{}
		next := int64(0)
		for range 300 {
			if r.IntN(3) > 0 {
				next += 1 + r.Int64N(3)
				f.add(item{offset: next, msg: &Message{Offset: next}, state: itemOut})
				open[next] = true
			}
			from := r.Int64N(next + 2)
			for o := from; o < from+r.Int64N(4); o++ { // also beside it, as most are
				it := f.find(o)
				if (it != nil) != open[o] || it != nil && it.msg.Offset != o {
					t.Fatalf("seed %d: %d is found as %+v, and it is there: %v", seed, o, it, open[o])
				}
				if it != nil && r.IntN(2) == 0 {
					f.set(it, itemDone)
					delete(open, o)
				}
			}
		}
	}
}
