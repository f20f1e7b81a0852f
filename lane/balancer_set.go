package lane

import (
	"sync"
	"sync/atomic"
	"time"
)

// Limits of passive health. They are part of [Balancer]'s documentation.
const (
	ejectAfter      = 5 // failures in a row
	firstEjection   = time.Second
	longestEjection = 30 * time.Second
	// tryWithin is how long a try of an ejected target may last before another request
	// tries it too: the first may be a stream of hours.
	tryWithin = longestEjection
)

// set is what a balancer remembers of the targets of one service, protocol and lane.
// Requests read view; whatever changes targets or health builds a new one under mu.
type set struct {
	view atomic.Pointer[view] // nil before the first request
	turn atomic.Uint64        // counts the requests
	used atomic.Int64         // unix second of the last request

	mu     sync.Mutex
	states map[targetID]*targetState // guarded by mu; of view's targets, and of those that left with requests in flight
}

// targetID is what makes two targets of a set the same over snapshots, as [Target.Same]
// has it: service and protocol are the set's.
type targetID struct{ name, address string }

func idOf(t *Target) targetID { return targetID{t.Name, t.Address} }

// targetState is the health of one target. Its fields but the atomic ones are guarded by
// the set's mu.
type targetState struct {
	inflight atomic.Int64 // counted for LeastRequests only
	troubled atomic.Bool  // failures > 0 or ejected; written with mu held

	failures  int       // in a row
	ejections int       // in a row, for the length of the next one
	until     time.Time // ejected until then; zero: not ejected
	tryUntil  time.Time // one request is trying the ejected target; zero: none
	returned  time.Time // when the last ejection was over
	gone      bool      // left the snapshot; kept for the requests in flight
}

func (s *set) touch(now time.Time) {
	if second := now.Unix(); s.used.Load() != second {
		s.used.Store(second)
	}
}

// idle reports whether nothing is lost when s is forgotten.
func (s *set) idle(now time.Time) bool {
	if now.Unix()-s.used.Load() < int64(forgetAfter/time.Second) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, state := range s.states {
		if state.inflight.Load() > 0 {
			return false
		}
	}
	return true
}

// renew builds the view of a choice whose targets the present view does not have.
func (s *set) renew(c Choice) *view {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.view.Load(); v != nil && v.of(c) {
		return v // built by another request meanwhile
	}
	states := make(map[targetID]*targetState, len(c.Targets))
	for _, t := range c.Targets {
		id := idOf(t)
		state := s.states[id]
		if state == nil {
			state = &targetState{}
		}
		state.gone = false
		states[id] = state
	}
	for id, state := range s.states {
		if states[id] == nil && state.inflight.Load() > 0 {
			state.gone = true
			states[id] = state
		}
	}
	s.states = states
	v := newView(c.Targets, c.Local, states)
	s.view.Store(v)
	return v
}

// rebuild makes the view anew after a change of health. Its caller holds mu.
func (s *set) rebuild() {
	old := s.view.Load()
	s.view.Store(newView(old.targets, old.local, s.states))
}

// state returns what is known of t, or nil.
func (s *set) state(t *Target) *targetState {
	if v := s.view.Load(); v != nil {
		if state := v.known[t]; state != nil {
			return state
		}
	}
	s.mu.Lock() // t is of an older snapshot
	defer s.mu.Unlock()
	return s.states[idOf(t)]
}

// leave takes one request off the count of t.
func (s *set) leave(t *Target, state *targetState) {
	for {
		n := state.inflight.Load()
		if n == 0 {
			return // the request was counted on a state that is forgotten
		}
		if !state.inflight.CompareAndSwap(n, n-1) {
			continue
		}
		if n > 1 {
			return
		}
		break
	}
	if v := s.view.Load(); v != nil && v.known[t] != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if id := idOf(t); state.gone && s.states[id] == state && state.inflight.Load() == 0 {
		delete(s.states, id)
	}
}

// try gives the request at hand to an ejected target that is due, one request to each.
// It returns the target's index in v, or -1 where other requests were first or v is no
// longer the present view.
func (s *set) try(v *view, now time.Time) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view.Load() != v {
		return -1
	}
	for i := range v.reach {
		state := v.states[i]
		if due := state.due(); !due.IsZero() && !now.Before(due) {
			state.tryUntil = now.Add(tryWithin)
			s.rebuild()
			return i
		}
	}
	return -1
}

// note takes an outcome into account.
func (s *set) note(state *targetState, o Outcome, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.view.Load()
	if v == nil || state.gone {
		return
	}
	wasEjected, trying := !state.until.IsZero(), !state.tryUntil.IsZero()
	if wasEjected && !trying && !v.desperate {
		return // a request from before the ejection: says nothing of the present
	}
	switch o {
	case Success:
		state.failures, state.until, state.tryUntil = 0, time.Time{}, time.Time{}
		if wasEjected {
			state.returned = now
		}
	case Failure, Refused:
		if wasEjected && now.Before(state.until) {
			return // many that fail at once prolong nothing
		}
		state.failures++
		if o == Refused || wasEjected || state.failures >= ejectAfter {
			state.eject(now)
		}
	case Neutral:
		if !trying {
			return
		}
		state.tryUntil = time.Time{} // it was no try: the next request makes one
	}
	state.troubled.Store(state.failures > 0 || !state.until.IsZero())
	if wasEjected || !state.until.IsZero() {
		s.rebuild()
	}
}

func (s *targetState) eject(now time.Time) {
	// One that comes and goes is ejected longer and longer; one that was well for as
	// long as the longest ejection starts anew.
	if !s.returned.IsZero() && s.until.IsZero() && now.Sub(s.returned) >= longestEjection {
		s.ejections = 0
	}
	s.until = now.Add(min(firstEjection<<min(s.ejections, 10), longestEjection))
	s.ejections++
	s.failures = 0
	s.tryUntil = time.Time{}
}

// due is when an ejected target may be tried (again); zero if it is not ejected.
func (s *targetState) due() time.Time {
	if s.until.IsZero() {
		return time.Time{}
	}
	if s.tryUntil.After(s.until) {
		return s.tryUntil
	}
	return s.until
}
