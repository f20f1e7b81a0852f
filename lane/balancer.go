package lane

import (
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Policy is how a [Balancer] picks among targets that are equally near and healthy.
type Policy int

// Policies.
const (
	// RoundRobin takes turns, by weight: of targets that weigh 3 and 1 each four turns
	// give three and one, evenly mixed.
	RoundRobin Policy = iota
	// LeastRequests looks at two targets, drawn by weight, and takes the one with fewer
	// requests in flight for its weight.
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

// Balancer picks one target of a [Choice] and remembers which targets fail.
//
// Targets of the own room come first; among them [Target.Weight] and the [Policy] decide.
// A target that refuses a connection, or fails five times in a row, is ejected: for a
// second at first, twice as long each time it fails again, 30 s at most. Then one request
// tries it, and its outcome lets the target back or ejects it again. Ejected targets are
// passed over while another of the choice is healthy, also if that is in another room;
// where all are ejected they are used all the same, so that trouble in a lane never moves
// its traffic elsewhere.
//
// What a balancer remembers is bounded by what there is: targets that have left the
// snapshot are forgotten with the next request to their set, and a set (the targets of
// one service, protocol and lane) when it was not used for a minute.
//
// All methods may be called at once. Next and Assign take no lock for plain traffic and do not
// allocate unless the targets or their health have changed. A Balancer starts no goroutine
// and reads no clock.
type Balancer struct {
	policy Policy
	// start is the number of every set's first turn. It differs between balancers, so
	// that many processes that start together do not all begin with the same target.
	start uint64
	// services is replaced, never changed: there are few, and reading it takes no lock.
	services atomic.Pointer[map[poolKey]*laneSets]

	mu    sync.Mutex // serializes writers of services
	swept time.Time  // guarded by mu: when idle sets were last forgotten
}

type poolKey struct{ service, protocol string }

// laneSets holds the sets of one service and protocol.
type laneSets struct {
	baseline set
	mu       sync.RWMutex
	lanes    map[Name]*set // guarded by mu
}

// forgetAfter is how long a set is remembered that nobody uses. It is longer than the
// longest ejection, so that nothing that still matters is forgotten.
const forgetAfter = time.Minute

// NewBalancer makes a balancer. An unknown policy is RoundRobin.
func NewBalancer(policy Policy) *Balancer {
	b := &Balancer{policy: policy, start: uint64(rand.Uint32())} //nolint:gosec // which target is first is no secret
	b.services.Store(&map[poolKey]*laneSets{})
	return b
}

// Next picks a target of c and counts a request to it; the caller must call
// [Balancer.Done] once for each target it gets. Targets for which avoid (may be nil)
// is true are left out: a retry gives those that it has tried. Next returns nil if
// nothing is left. avoid is called without a lock held, possibly several times for a
// target.
func (b *Balancer) Next(c Choice, now time.Time, avoid func(*Target) bool) *Target {
	return b.Assign(c, now, avoid).Target
}

// Assignment is a request that a [Balancer] counts for a target.
type Assignment struct {
	Target *Target // nil: there was none to be had
	by     *Balancer
	state  *targetState // of Target; nil where its requests in flight are counted
}

// Done is [Balancer.Done] for the assignment's target, at less cost: where all is well it
// looks nothing up and does not ask now for the time. It does nothing where there is no
// target.
func (a Assignment) Done(o Outcome, now func() time.Time) {
	if a.Target == nil {
		return
	}
	if a.state != nil && (o == Success || o == Neutral) && !a.state.troubled.Load() {
		return
	}
	a.by.Done(a.Target, o, now())
}

// Assign is [Balancer.Next] for callers that keep what they get until the request ends:
// they call Done of the assignment, or [Balancer.Done], once.
func (b *Balancer) Assign(c Choice, now time.Time, avoid func(*Target) bool) Assignment {
	if len(c.Targets) == 0 {
		return Assignment{}
	}
	s := b.set(c, now)
	s.touch(now)
	v := s.view.Load()
	if v == nil || !v.of(c) {
		v = s.renew(c)
	}
	turn := b.start + s.turn.Add(1) - 1
	if avoid != nil {
		return b.take(v, v.outside(avoid, turn, b.policy))
	}
	if v.someDue(now) {
		if i := s.try(v, now); i >= 0 {
			return b.take(v, i)
		}
		v = s.view.Load() // another request took the try
		if !v.of(c) {
			v = s.renew(c)
		}
	}
	if b.policy == LeastRequests {
		return b.take(v, v.lightest(turn))
	}
	for {
		if i, serves := v.turn(turn); serves {
			return b.take(v, i)
		}
		turn = b.start + s.turn.Add(1) - 1
	}
}

// take counts a request to target i of v; there is none if i is below 0.
func (b *Balancer) take(v *view, i int) Assignment {
	if i < 0 {
		return Assignment{}
	}
	if b.policy == LeastRequests {
		v.states[i].inflight.Add(1)
		return Assignment{Target: v.targets[i], by: b}
	}
	return Assignment{v.targets[i], b, v.states[i]}
}

// Done reports how a request to a target of [Balancer.Next] ended.
func (b *Balancer) Done(t *Target, o Outcome, now time.Time) {
	s := b.known(t)
	if s == nil {
		return // forgotten meanwhile
	}
	state := s.state(t)
	if state == nil {
		return
	}
	if b.policy == LeastRequests {
		s.leave(t, state)
	}
	// The healthy case, without a lock.
	if (o == Success || o == Neutral) && !state.troubled.Load() {
		return
	}
	s.note(state, o, now)
}

// set returns the set of a choice with targets, a new one if need be.
func (b *Balancer) set(c Choice, now time.Time) *set {
	key := poolKey{c.Service, c.Targets[0].Protocol}
	sets := (*b.services.Load())[key]
	if sets == nil {
		sets = b.addService(key, now)
	}
	if c.Lane == Baseline {
		return &sets.baseline
	}
	sets.mu.RLock()
	s := sets.lanes[c.Lane]
	sets.mu.RUnlock()
	if s != nil {
		return s
	}
	b.sweep(now)
	sets.mu.Lock()
	defer sets.mu.Unlock()
	if s = sets.lanes[c.Lane]; s == nil {
		s = &set{}
		s.touch(now)
		sets.lanes[c.Lane] = s
	}
	return s
}

// known returns the set that t belongs to, or nil.
func (b *Balancer) known(t *Target) *set {
	sets := (*b.services.Load())[poolKey{t.Service, t.Protocol}]
	if sets == nil {
		return nil
	}
	if t.Lane == Baseline {
		return &sets.baseline
	}
	sets.mu.RLock()
	defer sets.mu.RUnlock()
	return sets.lanes[t.Lane]
}

func (b *Balancer) addService(key poolKey, now time.Time) *laneSets {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := *b.services.Load()
	if sets := old[key]; sets != nil {
		return sets
	}
	sets := &laneSets{lanes: map[Name]*set{}}
	sets.baseline.touch(now) // in use, also if it is for a lane: not to be swept at once
	services := make(map[poolKey]*laneSets, len(old)+1)
	maps.Copy(services, old)
	services[key] = sets
	b.services.Store(&services)
	return sets
}

// sweep forgets the sets that were not used for forgetAfter, and services all of whose
// sets are forgotten. It does its work at most once in that time, and only when a new
// set comes up: without new ones, what is remembered does not grow.
func (b *Balancer) sweep(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.swept) < forgetAfter {
		return
	}
	b.swept = now
	old := *b.services.Load()
	services := make(map[poolKey]*laneSets, len(old))
	for key, sets := range old {
		if !sets.sweep(now) {
			services[key] = sets
		}
	}
	if len(services) != len(old) {
		b.services.Store(&services)
	}
}

// sweep reports whether nothing is left.
func (l *laneSets) sweep(now time.Time) (empty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, s := range l.lanes {
		if s.idle(now) {
			delete(l.lanes, name)
		}
	}
	return len(l.lanes) == 0 && l.baseline.idle(now)
}
