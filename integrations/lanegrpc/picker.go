package lanegrpc

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/laneway-dev/laneway/lane"
)

// picker picks for one call. It reads the present snapshot and the present connections;
// the balancer publishes a new one only so that blocked calls pick again.
type picker struct {
	scope
	among   *lane.Balancer
	entries *atomic.Pointer[map[entryKey]*entry]
}

// Pick implements balancer.Picker.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	out := callFrom(info.Ctx)
	if out == nil { // a ClientConn without our interceptors: its calls still have a color
		out = &call{color: lane.Outgoing(info.Ctx, p.dir.Process()), cancel: func(error) {}}
	}
	choice := lane.Pick(p.dir.Snapshot(), p.service, out.color, lane.GRPC)
	if err := choice.Err(); err != nil {
		return balancer.PickResult{}, err // fails fast as UNAVAILABLE; wait-for-ready waits
	}
	entries := *p.entries.Load()
	now := time.Now()
	if e := out.entry; e != nil && e.ready() {
		// The call waited for this connection: it is not sent on to make another one.
		if p.among.Next(choice, now, func(t *lane.Target) bool { return !same(t, e.target) }) != nil {
			return p.send(out, e, choice)
		}
	}
	var tried []*lane.Target
	var last error
	for {
		var avoid func(*lane.Target) bool
		if len(tried) > 0 {
			avoid = func(t *lane.Target) bool { return contains(tried, t) }
		}
		t := p.among.Next(choice, now, avoid)
		if t == nil {
			return balancer.PickResult{}, fmt.Errorf("no connection to %s: %w", p.service, last)
		}
		e := entries[entryKey{t.Name, t.Address}]
		switch {
		case e == nil: // the snapshot is newer than the connections: a new picker comes
			p.among.Done(t, lane.Neutral, now)
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		case e.ready():
			return p.send(out, e, choice)
		case connectivity.State(e.state.Load()) == connectivity.TransientFailure:
			p.among.Done(t, lane.Refused, now)
			last = &unreachableError{target: t, err: e.lastError()}
			tried = append(tried, t)
		default: // idle or connecting: the call waits for this one
			p.among.Done(t, lane.Neutral, now)
			out.entry = e
			e.sc.Connect()
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
	}
}

func (e *entry) ready() bool { return connectivity.State(e.state.Load()) == connectivity.Ready }

func same(a, b *lane.Target) bool { return a.Name == b.Name && a.Address == b.Address }

func contains(tried []*lane.Target, t *lane.Target) bool {
	return slices.ContainsFunc(tried, func(other *lane.Target) bool { return same(other, t) })
}

// send gives the call to an entry.
func (p *picker) send(out *call, e *entry, choice lane.Choice) (balancer.PickResult, error) {
	if !e.add(out) {
		p.among.Done(e.target, lane.Neutral, time.Now())
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	out.entry, out.choice = e, choice
	return balancer.PickResult{SubConn: e.sc, Done: func(info balancer.DoneInfo) {
		e.remove(out)
		p.among.Done(e.target, outcome(info.Err), time.Now())
	}}, nil
}

// outcome says what a call's end tells of its instance.
func outcome(err error) lane.Outcome {
	switch status.Code(err) {
	case codes.Canceled:
		return lane.Neutral
	case codes.Unavailable, codes.DeadlineExceeded:
		return lane.Failure
	default:
		return lane.Success // it answered, with whatever status
	}
}

type unreachableError struct {
	target *lane.Target
	err    error
}

func (u *unreachableError) Error() string {
	return fmt.Sprintf("instance %s at %s: %v", u.target.Name, u.target.Address, u.err)
}

func (u *unreachableError) Unwrap() error { return u.err }
