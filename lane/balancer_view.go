package lane

import (
	"math/bits"
	"sort"
	"time"
)

// view is an immutable picture of a set: its targets, their health, and the part of them
// that requests are now spread over.
type view struct {
	targets []*Target // those of the choice, own room first
	local   int
	states  []*targetState // of targets, in their order
	ejected []bool         // of targets, in their order
	known   map[*Target]*targetState

	use       []int // indices of the targets in use; at least one
	reach     int   // ejected ones among the first reach targets would be preferred to those in use
	desperate bool  // all are ejected, and used all the same
	due       time.Time

	weights  []uint64 // of use, in its order; nil: all the same
	heaviest uint64
	sums     []uint64 // sums[i] = weights[0] + … + weights[i]
}

// newView lays out the targets of a choice. Its caller holds the mu of the set that
// states belong to.
func newView(targets []*Target, local int, states map[targetID]*targetState) *view {
	n := len(targets)
	v := &view{
		targets: targets,
		local:   local,
		states:  make([]*targetState, n),
		ejected: make([]bool, n),
		known:   make(map[*Target]*targetState, n),
		reach:   n,
	}
	for i, t := range targets {
		state := states[idOf(t)]
		v.states[i], v.known[t] = state, state
		v.ejected[i] = !state.until.IsZero()
	}
	v.useTier()
	v.weigh()
	for i := range v.reach {
		if due := v.states[i].due(); v.ejected[i] && (v.due.IsZero() || due.Before(v.due)) {
			v.due = due
		}
	}
	return v
}

// tiers lists from best to worst who may serve: healthy ones of the own room, healthy
// ones, anyone of the own room, anyone.
func (v *view) tiers() [4]tier {
	near := v.near()
	return [4]tier{{near, true}, {len(v.targets), true}, {near, false}, {len(v.targets), false}}
}

// tier is the first upTo targets, or the healthy ones of them.
type tier struct {
	upTo    int
	healthy bool
}

// near is how many targets count as near: all, where none is of the own room.
func (v *view) near() int {
	if v.local > 0 && v.local < len(v.targets) {
		return v.local
	}
	return len(v.targets)
}

func (v *view) useTier() {
	for _, tier := range v.tiers() {
		for i := range tier.upTo {
			if !tier.healthy || !v.ejected[i] {
				v.use = append(v.use, i)
			}
		}
		if len(v.use) > 0 {
			v.desperate = !tier.healthy
			v.reach = tier.upTo
			return
		}
	}
}

func (v *view) weigh() {
	same := true
	for _, i := range v.use {
		w := weight(v.targets[i])
		same = same && w == weight(v.targets[v.use[0]])
		v.heaviest = max(v.heaviest, w)
	}
	if same {
		return
	}
	v.weights = make([]uint64, len(v.use))
	v.sums = make([]uint64, len(v.use))
	sum := uint64(0)
	for n, i := range v.use {
		w := weight(v.targets[i])
		sum += w
		v.weights[n], v.sums[n] = w, sum
	}
}

// weight keeps products of two weights and sums of many within 64 bits.
func weight(t *Target) uint64 {
	const heaviest = 1 << 24
	return uint64(min(max(t.Weight, 1), heaviest))
}

// of reports whether v is of the choice's targets.
func (v *view) of(c Choice) bool {
	return len(v.targets) == len(c.Targets) && &v.targets[0] == &c.Targets[0] && v.local == c.Local
}

func (v *view) someDue(now time.Time) bool { return !v.due.IsZero() && !now.Before(v.due) }

// turn says who serves the turn of that number: each target in use is asked once a round,
// and one of weight w serves in w rounds of heaviest, evenly spread (a digital line). The
// heaviest serves in every round. serves is false where the one asked lets the turn pass.
func (v *view) turn(number uint64) (i int, serves bool) {
	n := uint64(len(v.use))
	k := number % n
	if v.weights == nil {
		return v.use[k], true
	}
	w, h := v.weights[k], v.heaviest
	round := (number/n + k*h/n) % h // lighter ones do not all serve in the same rounds
	return v.use[k], (round*w)%h >= h-w
}

// lightest draws two targets and returns the one with fewer requests for its weight. The
// draw is a hash of the turn's number, so that a run can be repeated.
func (v *view) lightest(number uint64) int {
	if len(v.use) == 1 {
		return v.use[0]
	}
	x := v.draw(mix(number), -1)
	y := v.draw(mix(^number), x)
	wx, wy := uint64(1), uint64(1)
	if v.weights != nil {
		wx, wy = v.weights[x], v.weights[y]
	}
	x, y = v.use[x], v.use[y]
	if uint64(v.states[y].inflight.Load())*wx < uint64(v.states[x].inflight.Load())*wy {
		return y
	}
	return x
}

// draw takes a position of use by weight, other than the one given, from 64 random bits.
func (v *view) draw(random uint64, other int) int {
	if v.weights == nil {
		n := uint64(len(v.use))
		if other >= 0 {
			n--
		}
		hi, _ := bits.Mul64(random, n)
		if other >= 0 && int(hi) >= other {
			hi++
		}
		return int(hi)
	}
	sum := v.sums[len(v.sums)-1]
	if other >= 0 {
		sum -= v.weights[other]
	}
	at, _ := bits.Mul64(random, sum)
	if other >= 0 && at >= v.sums[other]-v.weights[other] {
		at += v.weights[other]
	}
	return sort.Search(len(v.sums), func(i int) bool { return v.sums[i] > at })
}

// outside picks a target that is not avoided, from the best tier that has one, by weight
// or load; -1 if there is none.
func (v *view) outside(avoid func(*Target) bool, number uint64, policy Policy) int {
	for _, tier := range v.tiers() {
		chosen, sum := -1, uint64(0)
		for i := range tier.upTo {
			if tier.healthy && v.ejected[i] || avoid(v.targets[i]) {
				continue
			}
			w := weight(v.targets[i])
			sum += w
			if chosen < 0 {
				chosen = i
				continue
			}
			if policy == LeastRequests {
				if uint64(v.states[i].inflight.Load())*weight(v.targets[chosen]) < uint64(v.states[chosen].inflight.Load())*w {
					chosen = i
				}
				continue
			}
			// Each replaces the chosen one with its share of the weight so far: in the
			// end all have theirs (reservoir sampling).
			if at, _ := bits.Mul64(mix(number+uint64(i)), sum); at < w {
				chosen = i
			}
		}
		if chosen >= 0 {
			return chosen
		}
	}
	return -1
}

// mix is the finalizer of SplitMix64: it makes consecutive numbers look random.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
