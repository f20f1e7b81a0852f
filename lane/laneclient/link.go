package laneclient

import (
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// proof is the last answer that the control plane gave to this session.
type proof struct {
	session  string // empty: there is none
	revision uint64 // of the registry, read linearizably; not below it from then on
	at       time.Time
	replica  int    // that answered
	seq      uint64 // rises with every answer
	opened   uint64 // revision at which the session was opened
	lost     bool   // the session replaced one that the control plane had lost
	lasts    lease  // how long the session surely lasts
	reset    bool   // the registry is behind what the view had reached before: it is another one
}

// lease is until when a session surely lasts, by both clocks of this process: the steady
// one stands still while a machine sleeps, and the wall clock can be set back.
type lease struct{ steady, wall time.Time }

// leaseFrom is the lease of a session whose renewal was sent at a time.
func leaseFrom(sent time.Time, d time.Duration) lease {
	until := sent.Add(d)
	return lease{steady: until, wall: until.Round(0)}
}

// left is how long it still lasts, by the clock that says less.
func (l lease) left(now time.Time) time.Duration {
	return min(l.steady.Sub(now), l.wall.Sub(now.Round(0)))
}

// link is what the client's goroutines share.
type link struct {
	poke    chan struct{} // wakes the viewer; one token
	renew   chan struct{} // asks for a renewal now; one token
	mu      sync.Mutex
	changed chan struct{} // closed, and replaced, when anything below changes

	proof      proof
	last       string     // the last session that there was, which may be the present one
	leased     bool       // this process consumes: a session that may have run out is not used again
	spent      string     // a session that may have run out; it is deleted, and another one opened
	registered bool       // the instance is in the registry in its wanted state
	state      lane.State // that is wanted of the instance
	stateSeq   uint64     // rises when state is set
	stateDone  uint64     // stateSeq that has been written
	stateErr   error      // why the registry refuses the instance; nil: it does not
	failedSeq  uint64     // rises when an attempt to reach the control plane fails
	fatal      error      // an answer that trying again will not change
	lastErr    error
	lastErrAt  time.Time
	needs      map[string]struct{}
	reached    uint64 // by the view, in session reachedIn
	reachedIn  string
	covered    string // what the view holds: the selects of its model
	connected  bool
}

func newLink() *link {
	return &link{
		poke: make(chan struct{}, 1), renew: make(chan struct{}, 1), changed: make(chan struct{}),
		state: lane.Ready, stateSeq: 1, needs: map[string]struct{}{},
	}
}

// update changes what is shared, and wakes whoever waits for it.
func (l *link) update(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	close(l.changed)
	l.changed = make(chan struct{})
}

// read runs f, and returns a channel that is closed at the next change.
func (l *link) read(f func()) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	return l.changed
}

func (l *link) current() (p proof) {
	l.read(func() { p = l.proof })
	return p
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
