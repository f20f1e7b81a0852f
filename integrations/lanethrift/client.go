package lanethrift

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/lane"
)

// Limits of a [Client].
const (
	// DefaultMaxConns is how many calls to one instance may be under way; further ones
	// wait.
	DefaultMaxConns = 64
	// DefaultTimeout ends calls whose context has no deadline.
	DefaultTimeout = 30 * time.Second

	maxIdle     = 16 // connections kept for one instance
	maxAttempts = 3  // targets that a call is tried on
	idleTimeout = time.Minute
	dialTimeout = 3 * time.Second
	needTimeout = 5 * time.Second
)

// Client calls one service in the lane that each call's color asks for. It is a
// thrift.TClient for generated clients. Call may be called at once; see the package
// comment on generated clients.
type Client struct {
	*config
	dir     lane.Directory
	service string
	among   *lane.Balancer
	thrift  *thrift.TConfiguration

	known  atomic.Bool // the directory has the instances
	mu     sync.Mutex
	pools  map[poolKey]*pool // guarded by mu
	closed bool              // guarded by mu
	calls  sync.WaitGroup
	cancel func()         // of the subscription
	ending sync.WaitGroup // of connections to instances that have left
}

type poolKey struct{ name, address, transport string }

type config struct {
	policy   lane.Policy
	maxConns int
	timeout  time.Duration
	compact  bool
	dial     dialFunc
	observe  lane.Observer // may be nil
}

// Option changes a [Client] that [NewClient] makes.
type Option func(*config)

// WithPolicy sets how an instance is chosen among equals. Default: lane.RoundRobin.
func WithPolicy(p lane.Policy) Option { return func(c *config) { c.policy = p } }

// WithMaxConns bounds the connections to one instance, and so the calls to it that are
// under way. Default: [DefaultMaxConns]; below 1 counts as 1.
func WithMaxConns(n int) Option { return func(c *config) { c.maxConns = max(n, 1) } }

// WithTimeout ends calls whose context has no deadline. Default, also for zero and less:
// [DefaultTimeout].
func WithTimeout(d time.Duration) Option {
	return func(c *config) {
		if d > 0 {
			c.timeout = d
		}
	}
}

// WithCompact speaks the compact protocol instead of the binary one. Peers that do not
// tell the protocols apart, most but those of THeader, need to be set to the same.
func WithCompact() Option { return func(c *config) { c.compact = true } }

// WithDialer makes connections by dial, which is given "tcp" and an instance's address:
// for TLS, tls.Dialer's DialContext. It may be called at once and is given three seconds.
// Default: net.Dialer's.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(c *config) { c.dial = dial }
}

// WithObserver has o told of every choice, with the context of the call, before it is
// sent: for example laneotel.Observe, which notes it on the span of that context.
func WithObserver(o lane.Observer) Option { return func(c *config) { c.observe = o } }

// NewClient makes a client of a service. It does no I/O; Close it.
func NewClient(dir lane.Directory, service string, options ...Option) *Client {
	c := &Client{
		config: &config{maxConns: DefaultMaxConns, timeout: DefaultTimeout, dial: new(net.Dialer).DialContext},
		dir:    dir, service: service, pools: map[poolKey]*pool{},
	}
	for _, o := range options {
		o(c.config)
	}
	c.among = lane.NewBalancer(c.policy)
	c.thrift = configuration()
	if c.compact {
		c.thrift.THeaderProtocolID = thrift.THeaderProtocolIDPtrMust(thrift.THeaderProtocolCompact)
	}
	c.cancel = dir.Subscribe(c.prune)
	return c
}

// configuration bounds what peers send, and what is sent to them. A binary message needs
// its version: without, the first bytes of anything are the length of a name.
func configuration() *thrift.TConfiguration {
	return &thrift.TConfiguration{
		MaxFrameSize: MaxFrameBytes, MaxMessageSize: MaxFrameBytes,
		TBinaryStrictRead: new(true), TBinaryStrictWrite: new(true),
	}
}

// Call implements thrift.TClient. It blocks until the answer, or ctx ends, or, where ctx
// has no deadline, the client's time-out.
//
// Errors: a thrift.TApplicationException with the text of lane.NoInstanceError (which
// errors.As finds too) where nobody may serve; thrift's exceptions as the instance gave
// them; ctx's error, wrapped; [ErrClosed]. A call is sent to another instance only where
// no connection to the first could be made, three in all and of the same lane; what may
// have been sent is never sent again.
func (c *Client) Call(ctx context.Context, method string, args, result thrift.TStruct) (thrift.ResponseMeta, error) {
	if !c.enter() {
		return thrift.ResponseMeta{}, ErrClosed
	}
	defer c.calls.Done()
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.timeout)
		defer cancel()
	}
	if err := c.need(ctx); err != nil {
		return thrift.ResponseMeta{}, fmt.Errorf("learn of service %s: %w", c.service, err)
	}
	process := c.dir.Process()
	color := lane.Outgoing(ctx, process)
	c.dir.Used(color)
	sending, explained := outgoing(ctx, color)

	on, err := c.connect(ctx, color)
	if err != nil {
		return thrift.ResponseMeta{}, err
	}
	if c.observe != nil {
		c.observe(ctx, on.choice, on.target)
	}
	r := on.conn.call(sending, method, args, result)
	on.pool.put(on.conn, !r.keep)
	c.among.Done(on.target, r.outcome(), time.Now())
	var lines []string
	if explained {
		own, further := on.choice.Hop(on.target, lane.OutgoingRule(ctx, process)), splitLines(r.meta.Headers[lane.RouteHeader])
		lane.TrailFrom(ctx).Add(own, further)
		lines = lane.AppendHops(nil, own, further)
	}
	r.meta.Headers = routed(ctx, r.meta.Headers, lines)
	return r.meta, r.err
}

// need makes sure that the instances of the service are known. The directory is asked
// until it has known them once.
func (c *Client) need(ctx context.Context) error {
	if c.known.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, needTimeout)
	defer cancel()
	if err := c.dir.Need(ctx, c.service); err != nil {
		return err
	}
	c.known.Store(true)
	return nil
}

// connected is a call's place: who gets it, over which connection.
type connected struct {
	choice lane.Choice
	target *lane.Target
	pool   *pool
	conn   *conn
}

// connect picks a target that a connection can be had to, and counts the call to it.
func (c *Client) connect(ctx context.Context, color lane.Name) (connected, error) {
	var tried []*lane.Target
	for {
		choice := lane.Pick(c.dir.Snapshot(), c.service, color, lane.Thrift)
		if err := choice.Err(); err != nil {
			return connected{}, noInstance(err)
		}
		var avoid func(*lane.Target) bool
		if len(tried) > 0 {
			avoid = func(t *lane.Target) bool { return contains(tried, t) }
		}
		target := c.among.Next(choice, time.Now(), avoid)
		if target == nil { // others have come and all that were tried are back
			target, tried = c.among.Next(choice, time.Now(), nil), nil
		}
		p, err := c.pool(target)
		if err != nil {
			c.among.Done(target, lane.Neutral, time.Now())
			return connected{}, err
		}
		connection, err := p.get(ctx, func(ctx context.Context) (*conn, error) { return c.open(ctx, target) })
		if err == nil {
			return connected{choice, target, p, connection}, nil
		}
		var refused *dialError
		switch {
		case errors.Is(err, errLeft): // the snapshot has changed meanwhile
			c.among.Done(target, lane.Neutral, time.Now())
			continue
		case ctx.Err() != nil, !errors.As(err, &refused):
			// The caller's time was over, in the queue for a connection or while one was
			// made: that says nothing certain of the target.
			c.among.Done(target, lane.Neutral, time.Now())
			return connected{}, fmt.Errorf("call %s instance %s: %w", c.service, target.Name, err)
		}
		c.among.Done(target, lane.Refused, time.Now())
		tried = append(tried, target)
		if len(tried) >= min(maxAttempts, len(choice.Targets)) {
			return connected{}, fmt.Errorf("call %s instance %s: %w", c.service, target.Name, err)
		}
	}
}

// open connects to a target. Its error is ctx's, perhaps wrapped, or a [*dialError].
func (c *Client) open(ctx context.Context, t *lane.Target) (*conn, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	raw, err := c.dial(dialing, "tcp", t.Address)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if deadlinePassed(ctx, err) { // the dialer's clock was a moment ahead of the context's
			return nil, fmt.Errorf("%w (%w)", context.DeadlineExceeded, err)
		}
		return nil, &dialError{err}
	}
	made, err := newConn(raw, t.Transport, c.thrift)
	if err != nil {
		return nil, errors.Join(&dialError{err}, raw.Close())
	}
	return made, nil
}

func contains(tried []*lane.Target, t *lane.Target) bool {
	return slices.ContainsFunc(tried, t.Same)
}

func keyOf(t *lane.Target) poolKey { return poolKey{t.Name, t.Address, t.Transport} }

func (c *Client) pool(t *lane.Target) (*pool, error) {
	key := keyOf(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.pools[key]; p != nil {
		return p, nil
	}
	if c.closed {
		return nil, ErrClosed
	}
	// The lock orders this with prune: an instance that has left meanwhile gets no pool.
	for present := range c.dir.Snapshot().Targets(c.service, lane.Thrift) {
		if keyOf(present) == key {
			p := newPool(c.maxConns)
			c.pools[key] = p
			return p, nil
		}
	}
	return gonePool(), nil
}

// prune closes the pools of instances that have left. It is called by the directory, which
// must not wait until connections are closed.
func (c *Client) prune() {
	if idle := c.left(); len(idle) > 0 {
		c.ending.Go(func() { closeAll(idle) })
	}
}

// left takes out the pools of instances that have left, and returns their idle connections.
func (c *Client) left() (idle []*conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	present := make(map[poolKey]bool, len(c.pools))
	for t := range c.dir.Snapshot().Targets(c.service, lane.Thrift) {
		present[keyOf(t)] = true
	}
	for key, p := range c.pools {
		if !present[key] {
			idle = append(idle, p.close()...)
			delete(c.pools, key)
		}
	}
	return idle
}

func (c *Client) enter() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.calls.Add(1)
	}
	return !c.closed
}

// Close refuses new calls, waits for those under way and closes all connections. It is
// idempotent, and must not be called from a call's own handler.
func (c *Client) Close() error {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	c.mu.Unlock()
	c.calls.Wait()
	if already {
		return nil
	}
	c.cancel() // from here on nothing is pruned
	c.mu.Lock()
	var idle []*conn
	for _, p := range c.pools {
		idle = append(idle, p.close()...)
	}
	c.mu.Unlock()
	closeAll(idle)
	c.ending.Wait()
	return nil
}

// noInstanceError is the exception for a service that nobody serves.
type noInstanceError struct {
	thrift.TApplicationException
	cause error
}

func noInstance(err error) error {
	return &noInstanceError{
		TApplicationException: thrift.NewTApplicationException(thrift.INTERNAL_ERROR, err.Error()),
		cause:                 err,
	}
}

func (n *noInstanceError) Unwrap() error { return n.cause }

// outcome says what a call's end tells of its instance.
func (r reply) outcome() lane.Outcome {
	switch {
	case !broken(r.err):
		return lane.Success
	case errors.Is(r.err, context.Canceled):
		return lane.Neutral // the caller went away
	case !r.sent && !errors.Is(r.err, context.DeadlineExceeded):
		return lane.Neutral // the arguments could not be written, or the connection was old
	default:
		return lane.Failure
	}
}
