package lanegrpc

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"

	"github.com/laneway-dev/laneway/lane"
)

// BalancerName is the name of this package's policy in a gRPC service config.
const BalancerName = "laneway_lane"

// grpc looks balancers up in a registry of its own that only an init may write.
func init() { balancer.Register(balancerBuilder{}) }

type balancerBuilder struct{}

func (balancerBuilder) Name() string { return BalancerName }

func (balancerBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	b := &laneBalancer{cc: cc, leaving: map[*entry]*time.Timer{}}
	b.all.Store(newConnections(0))
	return b
}

// laneBalancer keeps a connection, not necessarily made, to every instance of a service
// in every lane. grpc calls its methods one at a time; changes of the directory come from
// another goroutine, so all that is not atomic is guarded by mu.
type laneBalancer struct {
	cc  balancer.ClientConn
	all atomic.Pointer[connections] // replaced, never changed

	mu      sync.Mutex
	scope   scope
	among   *lane.Balancer
	cancel  func() // of the subscription; nil before the first state
	leaving map[*entry]*time.Timer
	closed  bool
}

// UpdateClientConnState implements balancer.Balancer. The resolver sends one state, when
// the directory knows the service.
func (b *laneBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	given, ok := s.ResolverState.Attributes.Value(scopeKey{}).(scope)
	if !ok {
		return errors.New("lanegrpc: the state is not of this package's resolver: dial lane:///SERVICE with DialOptions")
	}
	b.mu.Lock()
	subscribed := b.cancel != nil
	if !subscribed {
		b.scope, b.among = given, lane.NewBalancer(given.policy)
	}
	b.mu.Unlock()
	if !subscribed {
		cancel := given.dir.Subscribe(b.rebuild)
		b.mu.Lock()
		b.cancel = cancel
		b.mu.Unlock()
	}
	b.rebuild()
	return nil
}

// rebuild makes the entries match the directory's snapshot. A snapshot in which nothing
// of the service has changed touches no connection.
func (b *laneBalancer) rebuild() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	before := b.all.Load()
	after := newConnections(len(before.entries))
	for t := range b.scope.dir.Snapshot().Targets(b.scope.service, lane.GRPC) {
		e := before.entries[keyOf(t)]
		if e == nil {
			e = b.connection(t)
		}
		if e != nil {
			after.entries[keyOf(t)], after.present[t] = e, e
		}
	}
	b.all.Store(after)
	for key, e := range before.entries {
		if after.entries[key] != e {
			b.leave(e)
		}
	}
	b.publish()
}

// connection makes the entry of a target; it does not connect.
func (b *laneBalancer) connection(t *lane.Target) *entry {
	e := &entry{target: t, streams: map[*call]struct{}{}}
	e.state.Store(int32(connectivity.Idle))
	sc, err := b.cc.NewSubConn( //nolint:staticcheck // the deprecation is of several addresses; ours has one
		[]resolver.Address{{Addr: t.Address}},
		balancer.NewSubConnOptions{StateListener: func(s balancer.SubConnState) { b.connected(e, s) }},
	)
	if err != nil {
		return nil // the ClientConn is closing
	}
	e.sc = sc
	return e
}

// connected notes what became of a connection and lets waiting calls pick again.
func (b *laneBalancer) connected(e *entry, s balancer.SubConnState) {
	if t, outcome := e.connected(s); t != nil {
		b.among.Done(t, outcome, time.Now())
	}
	e.state.Store(int32(s.ConnectivityState))
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed && s.ConnectivityState != connectivity.Shutdown {
		b.publish()
	}
}

// publish gives the ClientConn a picker, which makes blocked calls pick again. Its caller
// holds mu.
func (b *laneBalancer) publish() {
	var of [connectivity.Shutdown + 1]int
	for _, e := range b.all.Load().entries {
		of[connectivity.State(e.state.Load())]++
	}
	state := connectivity.Idle
	switch {
	case of[connectivity.Ready] > 0:
		state = connectivity.Ready
	case of[connectivity.Connecting] > 0:
		state = connectivity.Connecting
	case of[connectivity.Idle] == 0:
		state = connectivity.TransientFailure
	}
	b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: &picker{scope: b.scope, among: b.among, all: &b.all}})
}

// ResolverError implements balancer.Balancer: with nothing known yet, calls fail with it.
func (b *laneBalancer) ResolverError(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel == nil && !b.closed {
		b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: failing{err}})
	}
}

type failing struct{ err error }

func (f failing) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	return balancer.PickResult{}, f.err
}

// UpdateSubConnState implements balancer.Balancer; grpc calls the listeners instead.
func (b *laneBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle implements balancer.Balancer: connections are made by the first call.
func (b *laneBalancer) ExitIdle() {}

// Close implements balancer.Balancer. grpc ends what is in flight itself.
func (b *laneBalancer) Close() {
	b.mu.Lock()
	b.closed = true
	cancel := b.cancel
	for _, timer := range b.leaving {
		timer.Stop()
	}
	clear(b.leaving)
	b.mu.Unlock()
	if cancel != nil {
		cancel() // waits for a rebuild under way, so not with the lock held
	}
	for _, e := range b.all.Load().entries {
		e.sc.Shutdown()
	}
}

// leave closes an entry whose instance is no longer in the registry: nothing new is sent,
// calls may finish, and streams too for as long as the drain. Its caller holds mu.
func (b *laneBalancer) leave(e *entry) {
	e.sc.Shutdown() // grpc lets what is in flight finish
	if b.scope.drain <= 0 {
		e.end()
		return
	}
	if !e.busy() {
		return
	}
	b.leaving[e] = time.AfterFunc(b.scope.drain, func() {
		e.end()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.leaving, e)
	})
}
