package coloring

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
)

// slotCount is into how many slots the keys of a rule are hashed: one slot is a
// hundredth of a percent.
const slotCount = 10000

// slotOf gives the slot of a key under a rule: the first 8 bytes, big endian, of
// SHA-256 over the rule's name, a zero byte and the key, modulo 10,000. It is part
// of what gateways of different versions must agree on and must not change.
func slotOf(rule, key string) int {
	var buf [128]byte
	text := append(buf[:0], rule...)
	text = append(text, 0)
	text = append(text, key...)
	sum := sha256.Sum256(text)
	return int(binary.BigEndian.Uint64(sum[:8]) % slotCount)
}

// slotsFor turns a percentage into a number of slots.
func slotsFor(percent float64) int { return int(math.Round(percent * slotCount / 100)) }

// slots says which lane of a rule owns each slot: an index into the rule's list,
// or -1.
//
// Each lane has a home and a direction, by its place in the list: the first grows
// up from slot 0, the second down from the last slot, the third and fourth up and
// down from the middle, the next from the quarters, and so on. A slot that two
// lanes would own goes to the one whose home is nearer (at equal distance to the
// earlier one); the other skips it and takes the next beyond.
//
// So a raised share keeps its slots and takes free ones, as long as two lanes that
// grow towards each other fit between their homes: always where there are two
// lanes, and for three or four where each such pair has at most half. Beyond that a
// lane whose share has grown into the neighborhood of another gives way when that
// one grows. No rule without memory can do better: with three lanes, let the first
// own x and either of the others the rest; both would have to own the same slots,
// and they would not be disjoint.
//
// Because a lane's home follows from its place, lanes are added at the end, and one
// that is over is left where it is or removed from the end.
func slots(shares []int) []int16 {
	owner := make([]int16, slotCount)
	for s := range owner {
		owner[s] = -1
	}
	distance := make([]int32, slotCount)
	next := make([]int, len(shares)) // how far from home each lane has looked
	need := make([]int, len(shares))
	copy(need, shares)
	// Stable matching, lanes proposing: the outcome does not depend on the order of
	// proposals.
	queue := make([]int, 0, 2*len(shares))
	for i := range shares {
		queue = append(queue, i)
	}
	for len(queue) > 0 {
		i := queue[0]
		queue = queue[1:]
		for need[i] > 0 && next[i] < slotCount {
			d := next[i]
			next[i]++
			s := slotAt(i, d)
			switch was := int(owner[s]); {
			case was < 0:
			case int32(d) > distance[s] || int32(d) == distance[s] && i > was:
				continue
			default:
				need[was]++
				queue = append(queue, was)
			}
			owner[s], distance[s] = int16(i), int32(d)
			need[i]--
		}
	}
	return owner
}

// slotAt is the d-th slot from the home of the i-th lane.
func slotAt(i, d int) int {
	// The van der Corput sequence: 0, 1/2, 1/4, 3/4, 1/8, …
	point := int(uint64(bits.Reverse32(uint32(i/2))) * slotCount >> 32)
	if i%2 == 0 {
		return (point + d) % slotCount
	}
	return (point - 1 - d + 2*slotCount) % slotCount
}

// span is a run of slots of one lane.
type span struct {
	from int16 // the run ends where the next one begins
	lane int16 // index into the rule's lanes, or -1
}

// spans compresses what [slots] gives.
func spans(owner []int16) []span {
	var out []span
	for s, l := range owner {
		if len(out) == 0 || out[len(out)-1].lane != l {
			out = append(out, span{from: int16(s), lane: l})
		}
	}
	return out
}

// laneAt gives the lane that owns a slot, or -1.
func laneAt(runs []span, slot int) int {
	lo, hi := 0, len(runs)
	for lo+1 < hi {
		if mid := (lo + hi) / 2; int(runs[mid].from) <= slot {
			lo = mid
		} else {
			hi = mid
		}
	}
	return int(runs[lo].lane)
}
