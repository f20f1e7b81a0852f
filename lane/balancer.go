package lane

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Policy is how a [Balancer] picks among targets that are equally near and healthy.
type Policy int

// Policies.
const (
	// RoundRobin takes turns, by weight.
	RoundRobin Policy = iota
	// LeastRequests takes the target with the fewest requests in flight for its
	// weight; of many targets it compares two at random.
	LeastRequests
)

// Outcome is how a request ended, for passive health.
type Outcome int

// Outcomes.
const (
	// Success: the target answered, with whatever status of its own.
	Success Outcome = iota
	// Failure: the target broke off, timed out or said that it cannot serve.
	Failure
	// Refused: no connection to the target could be made; nothing was sent.
	Refused
	// Neutral: the request ended for a reason that says nothing of the target, such
	// as its caller going away.
	Neutral
)

// Limits of passive health.
const (
	ejectAfter      = 5 // failures in a row
	firstEjection   = time.Second
	longestEjection = 30 * time.Second
	// maxTracked bounds the targets and sets that a balancer remembers. Past it,
	// those that are healthy and idle are forgotten.
	maxTracked = 4096
	// compareAll is up to how many targets LeastRequests compares all of them.
	compareAll = 8
)

// Balancer picks one target of a [Choice] and remembers which targets fail. A target
// that refuses a connection, or fails five times in a row, is ejected for a second,
// doubled each time up to 30 s; then one request tries it. Ejected targets are passed
// over while the choice has a better one, first in the own room, then in others of the
// same lane; where all are ejected they are used all the same, so that trouble in a
// lane never moves its traffic elsewhere.
//
// Methods may be called at once. A Balancer starts no goroutine and reads no clock.
type Balancer struct {
	policy Policy
	// unwell counts the targets that have failed and not succeeded since; while it
	// is zero, Next need not look at health at all.
	unwell atomic.Int64

	mu      sync.RWMutex
	turns   map[setKey]*atomic.Uint64  // guarded by mu
	targets map[targetKey]*targetState // guarded by mu
}

type setKey struct {
	service, protocol string
	lane              Name
}

type targetKey struct{ service, name, protocol, address string }

type targetState struct {
	inflight atomic.Int64

	mu        sync.Mutex
	failures  int       // in a row
	ejections int       // in a row
	until     time.Time // ejected until then; zero: not ejected
	probing   bool      // one request is trying the target
	credit    int       // of weighted turns
}

// NewBalancer makes a balancer. An unknown policy is RoundRobin.
func NewBalancer(policy Policy) *Balancer {
	return &Balancer{policy: policy, turns: map[setKey]*atomic.Uint64{}, targets: map[targetKey]*targetState{}}
}

// Next picks a target of c and counts a request to it; the caller must call
// [Balancer.Done] once for each target it gets. Targets for which avoid (may be nil)
// is true are left out: a retry gives those that it has tried. Next returns nil if
// nothing is left.
func (b *Balancer) Next(c Choice, now time.Time, avoid func(*Target) bool) *Target {
	if len(c.Targets) == 0 {
		return nil
	}
	near := c.Targets
	if c.Local > 0 && c.Local < len(near) {
		near = near[:c.Local]
	}
	turn := b.turn(c)
	if b.unwell.Load() == 0 && avoid == nil {
		return b.take(b.choose(near, turn))
	}
	// From best to worst: healthy and near, healthy, anyone near, anyone.
	for _, tier := range [...]struct {
		of      []*Target
		healthy bool
	}{{near, true}, {c.Targets, true}, {near, false}, {c.Targets, false}} {
		candidates := make([]*Target, 0, len(tier.of))
		for _, t := range tier.of {
			if (avoid == nil || !avoid(t)) && (!tier.healthy || b.usable(t, now)) {
				candidates = append(candidates, t)
			}
		}
		if len(candidates) > 0 {
			t := b.choose(candidates, turn)
			b.probe(t, now)
			return b.take(t)
		}
	}
	return nil
}

// Done reports how a request to a target of [Balancer.Next] ended.
func (b *Balancer) Done(t *Target, o Outcome, now time.Time) {
	s := b.state(t)
	if b.policy == LeastRequests {
		s.inflight.Add(-1)
	}
	if o == Success && b.unwell.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	wasUnwell := s.unwell()
	switch o {
	case Success:
		s.failures, s.ejections, s.until = 0, 0, time.Time{}
	case Failure, Refused:
		s.failures++
		if o == Refused || s.probing || s.failures >= ejectAfter {
			s.eject(now)
		}
	case Neutral:
	}
	s.probing = false
	if unwell := s.unwell(); unwell != wasUnwell {
		if unwell {
			b.unwell.Add(1)
		} else {
			b.unwell.Add(-1)
		}
	}
}

// Ejected reports whether t is passed over at the time now.
func (b *Balancer) Ejected(t *Target, now time.Time) bool {
	if b.unwell.Load() == 0 {
		return false
	}
	return !b.usable(t, now)
}

func (s *targetState) unwell() bool { return s.failures > 0 || !s.until.IsZero() }

func (s *targetState) eject(now time.Time) {
	if now.Before(s.until) {
		return // requests that were under way when it was ejected prolong nothing
	}
	d := firstEjection << min(s.ejections, 8)
	s.ejections++
	s.until = now.Add(min(d, longestEjection))
	s.failures = 0
}

// usable reports whether t is not ejected, or is due for a try that nobody makes yet.
func (b *Balancer) usable(t *Target, now time.Time) bool {
	s := b.state(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until.IsZero() || !now.Before(s.until) && !s.probing
}

// probe notes that the request about to be sent tries an ejected target.
func (b *Balancer) probe(t *Target, now time.Time) {
	s := b.state(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.until.IsZero() && !now.Before(s.until) {
		s.probing = true
	}
}

func (b *Balancer) take(t *Target) *Target {
	if b.policy == LeastRequests {
		b.state(t).inflight.Add(1)
	}
	return t
}

func (b *Balancer) choose(of []*Target, turn uint64) *Target {
	if len(of) == 1 {
		return of[0]
	}
	if b.policy == LeastRequests {
		return b.leastRequests(of, turn)
	}
	first := weight(of[0])
	for _, t := range of[1:] {
		if weight(t) != first {
			return b.weighted(of)
		}
	}
	return of[turn%uint64(len(of))]
}

// weighted takes smooth turns: everybody gains its weight, the richest serves and pays
// the sum.
func (b *Balancer) weighted(of []*Target) *Target {
	var best *targetState
	var chosen *Target
	sum, bestCredit := 0, 0
	for _, t := range of {
		s := b.state(t)
		w := weight(t)
		sum += w
		s.mu.Lock()
		s.credit += w
		credit := s.credit
		s.mu.Unlock()
		if best == nil || credit > bestCredit {
			best, chosen, bestCredit = s, t, credit
		}
	}
	best.mu.Lock()
	best.credit -= sum
	best.mu.Unlock()
	return chosen
}

func (b *Balancer) leastRequests(of []*Target, turn uint64) *Target {
	if len(of) > compareAll {
		return b.lighter(of[rand.IntN(len(of))], of[rand.IntN(len(of))])
	}
	// Start at another one each time, so that idle targets take turns.
	best := of[turn%uint64(len(of))]
	for i := range of[1:] {
		best = b.lighter(best, of[(turn+uint64(i)+1)%uint64(len(of))])
	}
	return best
}

// lighter returns the one with fewer requests for its weight, x where they are equal.
func (b *Balancer) lighter(x, y *Target) *Target {
	if b.state(y).inflight.Load()*int64(weight(x)) < b.state(x).inflight.Load()*int64(weight(y)) {
		return y
	}
	return x
}

func weight(t *Target) int { return max(t.Weight, 1) }

// turn numbers the requests of one set of targets. Each set has a count of its own:
// with a shared one, a caller that alternates between two services would always meet
// the same target of each.
func (b *Balancer) turn(c Choice) uint64 {
	key := setKey{c.Service, c.Targets[0].Protocol, c.Lane}
	b.mu.RLock()
	n := b.turns[key]
	b.mu.RUnlock()
	if n == nil {
		b.mu.Lock()
		if n = b.turns[key]; n == nil {
			if len(b.turns) >= maxTracked {
				clear(b.turns) // loses nothing but whose turn it is
			}
			n = new(atomic.Uint64)
			b.turns[key] = n
		}
		b.mu.Unlock()
	}
	return n.Add(1) - 1
}

func (b *Balancer) state(t *Target) *targetState {
	key := targetKey{t.Service, t.Name, t.Protocol, t.Address}
	b.mu.RLock()
	s := b.targets[key]
	b.mu.RUnlock()
	if s != nil {
		return s
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if s = b.targets[key]; s == nil {
		if len(b.targets) >= maxTracked {
			b.forget()
		}
		s = new(targetState)
		b.targets[key] = s
	}
	return s
}

// forget drops what is healthy and idle. Its caller holds mu.
func (b *Balancer) forget() {
	for key, s := range b.targets {
		s.mu.Lock()
		idle := s.inflight.Load() == 0 && !s.unwell()
		s.mu.Unlock()
		if idle {
			delete(b.targets, key)
		}
	}
}
