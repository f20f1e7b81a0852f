package lanegrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/laneway-dev/laneway/lane"
)

// connections are the entries of all targets. It is immutable.
type connections struct {
	entries map[entryKey]*entry
	// present finds the entries by the targets of the snapshot for which this was made:
	// that takes no look at their names.
	present map[*lane.Target]*entry
}

func newConnections(size int) *connections {
	return &connections{make(map[entryKey]*entry, size), make(map[*lane.Target]*entry, size)}
}

// of returns the entry of a target, also of one of another snapshot; nil if there is none.
func (c *connections) of(t *lane.Target) *entry {
	if e := c.present[t]; e != nil {
		return e
	}
	return c.entries[keyOf(t)]
}

type entryKey struct{ name, address string }

func keyOf(t *lane.Target) entryKey { return entryKey{t.Name, t.Address} }

// entry is an instance and the connection to it.
type entry struct {
	target *lane.Target // as it was when the entry was made; snapshots have newer ones
	sc     balancer.SubConn
	state  atomic.Int32 // connectivity.State

	mu      sync.Mutex
	err     error              // why the last attempt to connect failed, nil after a success; guarded by mu
	attempt *lane.Target       // given by the balancer to the attempt under way; guarded by mu
	streams map[*call]struct{} // in flight; guarded by mu
	gone    bool               // has left and its drain is over; guarded by mu
}

func (e *entry) ready() bool { return connectivity.State(e.state.Load()) == connectivity.Ready }

// failed reports whether the last attempt to connect failed and no new one may be made yet.
func (e *entry) failed() bool {
	return connectivity.State(e.state.Load()) == connectivity.TransientFailure
}

// shut reports whether the instance has left and the connection takes nothing new.
func (e *entry) shut() bool { return connectivity.State(e.state.Load()) == connectivity.Shutdown }

// connect makes the connection if nobody does so yet. It is true where the attempt is
// now what the balancer counts t for: connected reports its outcome.
func (e *entry) connect(t *lane.Target) (attempt bool) {
	// grpc's own next state comes after this one: it leaves Idle only by Connect.
	if !e.state.CompareAndSwap(int32(connectivity.Idle), int32(connectivity.Connecting)) {
		return false
	}
	e.mu.Lock()
	attempt = e.attempt == nil
	if attempt {
		e.attempt = t
	}
	e.mu.Unlock()
	e.sc.Connect()
	return attempt
}

// connected notes what became of the connection. The target is nil, or one whose attempt
// is now over.
func (e *entry) connected(s balancer.SubConnState) (*lane.Target, lane.Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var o lane.Outcome
	switch s.ConnectivityState {
	case connectivity.Ready:
		e.err, o = nil, lane.Success
	case connectivity.TransientFailure:
		e.err, o = s.ConnectionError, lane.Refused
	case connectivity.Shutdown:
		o = lane.Neutral
	default:
		return nil, lane.Neutral
	}
	t := e.attempt
	e.attempt = nil
	return t, o
}

// end cancels the streams that are still in flight and takes no more.
func (e *entry) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	for c := range e.streams {
		c.cancel(&goneError{e.target})
	}
}

// busy reports whether streams are in flight.
func (e *entry) busy() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.streams) > 0
}

// add notes that a stream was opened. It is false where the instance is gone for good.
func (e *entry) add(c *call) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.gone {
		return false
	}
	e.streams[c] = struct{}{}
	return true
}

func (e *entry) remove(c *call) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.streams, c)
}

func (e *entry) lastError() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// goneError is why a stream was ended that outlasted its instance's drain.
type goneError struct{ target *lane.Target }

func (g *goneError) Error() string {
	where := "the baseline"
	if g.target.Lane != lane.Baseline {
		where = "lane " + string(g.target.Lane)
	}
	return fmt.Sprintf("instance %s of %s in %s has left", g.target.Name, g.target.Service, where)
}

// cause turns the error of a stream that was ended because its instance left into what
// that is; other errors stay as they are.
func cause(ctx context.Context, err error) error {
	var gone *goneError
	if err == nil || !errors.As(context.Cause(ctx), &gone) {
		return err
	}
	return status.Error(codes.Unavailable, gone.Error())
}
