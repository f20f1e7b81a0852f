package coloring

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func count(owner []int16, i int) int {
	n := 0
	for _, o := range owner {
		if int(o) == i {
			n++
		}
	}
	return n
}

// Each lane gets exactly its share; a slot has one owner by construction.
func TestSlotsGiveExactShares(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		left := slotCount
		var shares []int
		for range 1 + r.IntN(9) {
			s := r.IntN(left + 1)
			shares, left = append(shares, s), left-s
		}
		if r.IntN(3) == 0 {
			shares[len(shares)-1] += left // all of it given
		}
		owner := slots(shares)
		for i, s := range shares {
			if got := count(owner, i); got != s {
				t.Fatalf("seed %d: shares %v: lane %d got %d slots, want %d", seed, shares, i, got, s)
			}
		}
		runs := spans(owner)
		for s := range slotCount {
			if got := laneAt(runs, s); got != int(owner[s]) {
				t.Fatalf("seed %d: shares %v: slot %d: spans say %d, want %d", seed, shares, s, got, owner[s])
			}
		}
	}
}

// moved counts the slots that had an owner and have another, or none.
func moved(before, after []int16) int {
	n := 0
	for s := range before {
		if before[s] != after[s] && before[s] != -1 {
			n++
		}
	}
	return n
}

// A raised share keeps what it had and moves nobody, where the doc of slots
// promises it.
func TestRaisedShareMovesNobody(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		n := 1 + r.IntN(4)
		shares := make([]int, n)
		// The first and the fourth grow towards each other, and so do the second and
		// the third; with two lanes, the two do.
		limit := slotCount
		if n > 2 {
			limit = slotCount / 2
		}
		pair := func(i int) int {
			if n <= 2 {
				return 1 - i
			}
			return 3 - i
		}
		for i := range shares {
			room := limit
			if p := pair(i); p < i && p >= 0 {
				room -= shares[p]
			}
			shares[i] = r.IntN(room + 1)
		}
		i := r.IntN(n)
		room := limit - shares[i]
		if p := pair(i); p >= 0 && p < n {
			room -= shares[p]
		}
		raised := append([]int(nil), shares...)
		raised[i] += r.IntN(room + 1)
		if got := moved(slots(shares), slots(raised)); got != 0 {
			t.Fatalf("seed %d: %v to %v: %d slots changed owner", seed, shares, raised, got)
		}
	}
}

// Beyond that, only a neighbor that has grown past the middle gives way, and a lane
// never loses what it had by being raised.
func TestRaisedShareKeepsItsOwn(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		shares := []int{r.IntN(4000), r.IntN(2000), r.IntN(2000), r.IntN(1000)}
		i := r.IntN(len(shares))
		raised := append([]int(nil), shares...)
		raised[i] += r.IntN(1000)
		before, after := slots(shares), slots(raised)
		for s := range before {
			if int(before[s]) == i && int(after[s]) != i {
				t.Fatalf("seed %d: %v to %v: slot %d was lost by the lane that was raised", seed, shares, raised, s)
			}
		}
	}
}

// Appending a lane moves nobody while there is room.
func TestAppendedLaneMovesNobody(t *testing.T) {
	t.Parallel()
	for _, shares := range [][]int{{1000}, {1000, 2000}, {1000, 2000, 500}, {500, 500, 500, 500, 500, 500}} {
		if got := moved(slots(shares), slots(append(append([]int(nil), shares...), 700))); got != 0 {
			t.Errorf("%v and one more: %d slots changed owner", shares, got)
		}
	}
}

// The assignment is a contract between versions: these values must not change.
func TestSlotOfIsFixed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule, key string
		want      int
	}{
		// Computed by another program from the doc of slotOf.
		{"canary", "user-1", 6360}, {"canary", "user-2", 1031}, {"canary", "", 4758}, {"", "user-1", 7032},
	} {
		if got := slotOf(c.rule, c.key); got != c.want {
			t.Errorf("slotOf(%q, %q) = %d, want %d", c.rule, c.key, got, c.want)
		}
	}
}

func TestSlotsAreEven(t *testing.T) {
	t.Parallel()
	const keys = 100_000
	var tenths [10]int
	for n := range keys {
		tenths[slotOf("canary", fmt.Sprint("user-", n))*10/slotCount]++
	}
	for i, n := range tenths {
		if n < keys/10*95/100 || n > keys/10*105/100 {
			t.Errorf("tenth %d of the slots has %d of %d keys", i, n, keys)
		}
	}
}

func TestRuleNamesAreIndependent(t *testing.T) {
	t.Parallel()
	both := 0
	for n := range 20_000 {
		key := fmt.Sprint(n)
		if slotOf("a", key) < 1000 && slotOf("b", key) < 1000 {
			both++
		}
	}
	if both < 130 || both > 280 { // 1 % of 20,000 is 200
		t.Errorf("%d keys are in the first tenth of both rules, want about 200", both)
	}
}

func BenchmarkSlots(b *testing.B) {
	for _, n := range []int{1, 4, 100} {
		shares := make([]int, n)
		for i := range shares {
			shares[i] = slotCount / n
		}
		b.Run(fmt.Sprint("lanes=", n), func(b *testing.B) {
			for b.Loop() {
				slots(shares)
			}
		})
	}
}
