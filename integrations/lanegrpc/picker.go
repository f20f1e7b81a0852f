package lanegrpc

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laneway-dev/laneway/lane"
)

// picker picks for one call. It reads the present snapshot and the present connections;
// the balancer publishes a new one only so that blocked calls pick again.
type picker struct {
	scope
	among *lane.Balancer
	all   *atomic.Pointer[connections]
}

// Pick implements balancer.Picker.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	out := callFrom(info.Ctx)
	if out == nil { // a ClientConn without our interceptors: its calls still have a color
		out = &call{color: lane.Outgoing(info.Ctx, p.dir.Process())}
	}
	choice := lane.Pick(p.dir.Snapshot(), p.service, out.color, lane.GRPC)
	if err := choice.Err(); err != nil {
		return balancer.PickResult{}, err // fails fast as UNAVAILABLE; wait-for-ready waits
	}
	all := p.all.Load()
	now := time.Now()
	var to lane.Assignment
	if e := out.waits; e != nil && !e.failed() {
		// The call stays with the connection that it waits for: every change of any
		// connection has it pick again, and it is not to make another one each time.
		to = p.among.Assign(choice, now, func(t *lane.Target) bool { return all.of(t) != e })
	}
	if to.Target == nil {
		to = p.among.Assign(choice, now, nil)
	}
	if e := all.of(to.Target); e != nil && e.ready() {
		return p.send(info.Ctx, out, e, to, choice)
	}
	return p.pickUnconnected(info.Ctx, out, all, to, choice, now)
}

// pickUnconnected goes on from a target that is not connected: it is now being connected
// to, and the call waits for that, unless another one that is as near is connected already.
// Targets that cannot be connected to are passed over while there are others.
func (p *picker) pickUnconnected(ctx context.Context, out *call, all *connections, to lane.Assignment, choice lane.Choice, now time.Time) (balancer.PickResult, error) {
	var tried []*lane.Target
	var last error
	for ; to.Target != nil; to = p.among.Assign(choice, now, func(o *lane.Target) bool { return contains(tried, o) }) {
		t := to.Target
		e := all.of(t)
		switch {
		case e == nil || e.shut(): // snapshot and connections are of different times: a new picker comes
			p.among.Done(t, lane.Neutral, now)
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		case e.ready():
			return p.send(ctx, out, e, to, choice)
		case e.failed():
			p.among.Done(t, lane.Refused, now)
			last = &unreachableError{target: t, err: e.lastError()}
			tried = append(tried, t)
			continue
		}
		failedBefore := e.lastError() != nil
		if !e.connect(t) {
			p.among.Done(t, lane.Neutral, now)
		}
		near := func(o *lane.Target) bool {
			return failedBefore || !local(choice, t) || local(choice, o)
		}
		other := p.among.Assign(choice, now, func(o *lane.Target) bool {
			connection := all.of(o)
			return connection == nil || !connection.ready() || !near(o)
		})
		if other.Target != nil {
			return p.send(ctx, out, all.of(other.Target), other, choice)
		}
		out.waits = e
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{}, fmt.Errorf("no connection to %s: %w", p.service, last)
}

// local reports whether t is of the own room.
func local(c lane.Choice, t *lane.Target) bool {
	return contains(c.Targets[:c.Local], t)
}

func contains(targets []*lane.Target, t *lane.Target) bool {
	return slices.ContainsFunc(targets, t.Same)
}

// send gives the call to an entry. ctx is that of the call's attempt.
func (p *picker) send(ctx context.Context, out *call, e *entry, to lane.Assignment, choice lane.Choice) (balancer.PickResult, error) {
	if out.stream && !e.add(out) {
		p.among.Done(to.Target, lane.Neutral, time.Now())
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	out.waits = nil
	if out.explained() {
		out.sent = &sent{choice, to.Target}
	}
	if p.observe != nil {
		p.observe(ctx, choice, to.Target)
	}
	return balancer.PickResult{SubConn: e.sc, Done: func(info balancer.DoneInfo) {
		if out.stream {
			e.remove(out)
		}
		to.Done(outcome(info), time.Now)
	}}, nil
}

// outcome says what a call's end tells of its instance.
func outcome(info balancer.DoneInfo) lane.Outcome {
	switch status.Code(info.Err) {
	case codes.OK:
		if !info.BytesReceived {
			return lane.Neutral // the connection went before the call was sent
		}
		return lane.Success
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
