package lanetest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/internal/pause"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Control is a control plane in memory: lanes, services, instances, routes, rules,
// sessions, engines, topics, groups with their members and cursors, watches, and
// explanations of calls, by the API that the real one has. It has one or more replicas
// over one registry. All methods may be called at once.
type Control struct {
	t         testing.TB // nil: outside a test
	reg       *registry
	replicas  []*Replica
	transport *memoryTransport
}

// NewControl starts a control plane with one replica; it ends with the test.
func NewControl(t testing.TB) *Control {
	t.Helper()
	return NewReplicas(t, 1)
}

// NewReplicas starts a control plane with n replicas; it ends with the test.
func NewReplicas(t testing.TB, n int) *Control {
	t.Helper()
	c := OpenControl(n)
	c.t = t
	t.Cleanup(c.Close)
	return c
}

// OpenControl starts a control plane with n replicas outside a test, for examples
// and tools. Helpers that would fail a test panic. The caller closes it.
func OpenControl(n int) *Control {
	c := &Control{reg: newRegistry()}
	c.transport = &memoryTransport{hosts: map[string]http.RoundTripper{}, up: c.up}
	for i := range n {
		r := &Replica{reg: c.reg, host: fmt.Sprintf("control-%d.test", i)}
		r.mux = r.routes()
		r.Start()
		c.replicas = append(c.replicas, r)
		c.transport.add(r.host, r)
	}
	return c
}

// Close ends the control plane. One that ends with a test need not be closed.
func (c *Control) Close() {
	c.Stop()
	c.reg.close()
}

func (c *Control) up(host string) bool {
	for _, r := range c.replicas {
		if r.host == host {
			return r.running()
		}
	}
	return false
}

// Config returns a Config that reaches the control plane in memory. The caller adds
// what else it needs.
func (c *Control) Config() laneclient.Config {
	return laneclient.Config{Control: c.URLs(), Transport: c.transport}
}

// URLs are those of the replicas; they mean something to Transport alone.
func (c *Control) URLs() []string {
	urls := make([]string, len(c.replicas))
	for n, r := range c.replicas {
		urls[n] = r.URL()
	}
	return urls
}

// Transport reaches the replicas without a network.
func (c *Control) Transport() http.RoundTripper { return c.transport }

// API makes calls in memory.
func (c *Control) API() *laneclient.API { return laneclient.NewAPI(c.Config()) }

// Replica returns the replica of that number, from 0.
func (c *Control) Replica(n int) *Replica { return c.replicas[n] }

// Listen serves the first replica on a port of loopback until the test ends, and
// returns its URL: for programs in other processes.
func (c *Control) Listen() string {
	c.t.Helper()
	s := httptest.NewServer(c.replicas[0])
	c.t.Cleanup(func() {
		c.replicas[0].Stop() // ends the watches that Close would wait for
		s.Close()
	})
	return s.URL
}

// Stop makes an outage: all replicas refuse connections and cut those that are
// open. Leases stop running out, as they do in a registry that is down as well; use
// KillSessions for one that is not.
func (c *Control) Stop() {
	c.reg.pause()
	for _, r := range c.replicas {
		r.Stop()
	}
}

// Start ends an outage. Leases begin anew.
func (c *Control) Start() {
	c.reg.resume()
	for _, r := range c.replicas {
		r.Start()
	}
}

// SetDelay makes every replica wait before each answer and before each chunk of a
// watch.
func (c *Control) SetDelay(d time.Duration) {
	for _, r := range c.replicas {
		r.SetDelay(d)
	}
}

// Compact forgets the history: every open watch gets a compacted event and ends, and
// none can begin at an earlier revision.
func (c *Control) Compact() {
	c.reg.mu.Lock()
	c.reg.compact(c.reg.rev)
	c.reg.mu.Unlock()
	for _, r := range c.replicas {
		r.compactWatches()
	}
}

// KillSessions ends all sessions at one revision, and all that is bound to one:
// instances, members of groups, and engines.
func (c *Control) KillSessions() {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	ids := make([]string, 0, len(c.reg.leases))
	for id := range c.reg.leases {
		ids = append(ids, id)
	}
	c.reg.end(ids...)
}

// Reset loses everything, as a registry in memory does when it is started again:
// revisions begin anew.
func (c *Control) Reset() {
	c.reg.mu.Lock()
	c.reg.clear()
	c.reg.mu.Unlock()
	for _, r := range c.replicas {
		r.compactWatches()
	}
}

// Revision is the registry's present one.
func (c *Control) Revision() uint64 {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	return c.reg.rev
}

// Sessions are the ids of the sessions that live.
func (c *Control) Sessions() []string {
	c.reg.mu.Lock()
	defer c.reg.mu.Unlock()
	var ids []string
	for _, o := range c.reg.list(laneclient.KindSessions, nil) {
		ids = append(ids, o.name)
	}
	return ids
}

// AddLane creates a lane, in the parent if one is given. It fails the test if the
// control plane refuses.
func (c *Control) AddLane(name string, parent ...string) {
	l := &laneclient.Lane{Meta: laneclient.Meta{Name: name}}
	if len(parent) > 0 {
		l.Parent = parent[0]
	}
	_, err := laneclient.CreateLane(c.context(), c.API(), l)
	c.must("create lane "+name, err)
}

// AddInstance registers a static instance with an HTTP endpoint at each address. It
// fails the test if the control plane refuses.
func (c *Control) AddInstance(service, name, lane string, addresses ...string) {
	c.addInstance(c.API(), service, name, lane, addresses)
}

// AddInstanceAt is AddInstance at one replica, while others may not answer.
func (c *Control) AddInstanceAt(replica int, service, name, lane string, addresses ...string) {
	api := laneclient.NewAPI(laneclient.Config{Control: []string{c.replicas[replica].URL()}, Transport: c.transport})
	c.addInstance(api, service, name, lane, addresses)
}

func (c *Control) addInstance(api *laneclient.API, service, name, lane string, addresses []string) {
	i := &laneclient.Instance{Meta: laneclient.Meta{Name: name}, Service: service, Lane: lane}
	for _, a := range addresses {
		i.Endpoints = append(i.Endpoints, laneclient.Endpoint{Protocol: "http", Address: a})
	}
	_, err := laneclient.Put(c.context(), api, i)
	c.must("register "+service+"/"+name, err)
}

func (c *Control) must(what string, err error) {
	switch {
	case err == nil:
	case c.t == nil:
		panic(fmt.Sprintf("lanetest: %s: %v", what, err))
	default:
		c.t.Helper()
		c.t.Fatalf("%s: %v", what, err)
	}
}

// context lets helpers work in a test's clean-up, too.
func (c *Control) context() context.Context {
	if c.t == nil {
		return context.Background()
	}
	return context.WithoutCancel(c.t.Context())
}

// Replica is one replica of a [Control].
type Replica struct {
	reg  *registry
	host string
	mux  http.Handler

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // ends when the replica stops; nil while it is stopped
	cancel  context.CancelFunc
	epoch   chan struct{} // closed, and replaced, by compactWatches
	delay   time.Duration
	frozen  *picture // what it still sees; nil: the present
	watches int
}

// URL of the replica in memory.
func (r *Replica) URL() string { return "http://" + r.host }

// Stop makes the replica refuse connections and cut those that are open.
func (r *Replica) Stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancel != nil {
		r.cancel()
	}
	r.ctx, r.cancel = nil, nil
}

// Start makes the replica serve again.
func (r *Replica) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.epoch == nil {
		r.epoch = make(chan struct{})
	}
	if r.ctx == nil {
		r.ctx, r.cancel = context.WithCancel(context.Background())
	}
}

func (r *Replica) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ctx != nil
}

// SetDelay makes the replica wait before each answer and before each chunk of a
// watch.
func (r *Replica) SetDelay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Freeze makes the replica lag: its watches see nothing after the present revision
// until Thaw. It still writes, and still renews with the registry's true revision.
func (r *Replica) Freeze() {
	r.reg.mu.Lock()
	p := r.reg.picture()
	r.reg.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frozen = p
}

// Thaw ends Freeze.
func (r *Replica) Thaw() {
	r.mu.Lock()
	r.frozen = nil
	r.mu.Unlock()
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	r.reg.wake()
}

// Watches is how many watches are open at the replica.
func (r *Replica) Watches() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches
}

func (r *Replica) compactWatches() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.epoch)
	r.epoch = make(chan struct{})
}

// ServeHTTP serves the API.
func (r *Replica) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	stopped := r.ctx
	r.mu.Unlock()
	if stopped == nil {
		panic(http.ErrAbortHandler) // as if nobody were there
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	defer context.AfterFunc(stopped, cancel)()
	if !r.wait(ctx) {
		panic(http.ErrAbortHandler)
	}
	r.mux.ServeHTTP(w, req.WithContext(ctx))
	if stopped.Err() != nil {
		panic(http.ErrAbortHandler) // an answer that was under way does not arrive whole
	}
}

// wait lets the delay pass; false: the request is over.
func (r *Replica) wait(ctx context.Context) bool {
	r.mu.Lock()
	d, stopped := r.delay, r.ctx == nil
	r.mu.Unlock()
	if d <= 0 || stopped {
		return !stopped && ctx.Err() == nil
	}
	return pause.For(ctx, d) && r.running()
}
