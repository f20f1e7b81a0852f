package lanethrift

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
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
	// MaxFrameBytes is the largest message that is read or written.
	MaxFrameBytes = 16 << 20

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

	mu     sync.Mutex
	pools  map[poolKey]*pool // guarded by mu
	closed bool              // guarded by mu
	calls  sync.WaitGroup
	cancel func() // of the subscription
}

type poolKey struct{ name, address, transport string }

type config struct {
	policy   lane.Policy
	maxConns int
	timeout  time.Duration
	compact  bool
}

// Option changes a [Client] that [NewClient] makes.
type Option func(*config)

// WithPolicy sets how an instance is chosen among equals. Default: lane.RoundRobin.
func WithPolicy(p lane.Policy) Option { return func(c *config) { c.policy = p } }

// WithMaxConns bounds the connections to one instance, and so the calls to it that are
// under way. Default: [DefaultMaxConns]; below 1 counts as 1.
func WithMaxConns(n int) Option { return func(c *config) { c.maxConns = max(n, 1) } }

// WithTimeout ends calls whose context has no deadline. Default: [DefaultTimeout].
func WithTimeout(d time.Duration) Option { return func(c *config) { c.timeout = d } }

// WithCompact speaks the compact protocol instead of the binary one.
func WithCompact() Option { return func(c *config) { c.compact = true } }

// NewClient makes a client of a service. It does no I/O; Close it.
func NewClient(dir lane.Directory, service string, options ...Option) *Client {
	c := &Client{
		config: &config{maxConns: DefaultMaxConns, timeout: DefaultTimeout},
		dir:    dir, service: service, pools: map[poolKey]*pool{},
	}
	for _, o := range options {
		o(c.config)
	}
	c.among = lane.NewBalancer(c.policy)
	protocol := thrift.THeaderProtocolBinary
	if c.compact {
		protocol = thrift.THeaderProtocolCompact
	}
	c.thrift = &thrift.TConfiguration{
		MaxFrameSize: MaxFrameBytes, MaxMessageSize: MaxFrameBytes, THeaderProtocolID: &protocol,
	}
	c.cancel = dir.Subscribe(c.prune)
	return c
}

// Call implements thrift.TClient. It blocks until the answer, or ctx ends, or, where ctx
// has no deadline, the client's time-out.
//
// Errors: a thrift.TApplicationException with the text of lane.NoInstanceError (which
// errors.As finds too) where nobody may serve; thrift's exceptions as the instance gave
// them; ctx's error, wrapped; [ErrClosed]. A call is sent to another instance only where
// no connection to the first could be made; what may have been sent is never sent again.
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

	target, choice, connection, pool, err := c.connect(ctx, color)
	if err != nil {
		return thrift.ResponseMeta{}, err
	}
	headers := writeHeaders(ctx)
	asked := headers[lane.ExplainHeader] == "1"
	trail := lane.TrailFrom(ctx)
	if trail != nil {
		headers[lane.ExplainHeader] = "1"
	}
	lane.Inject(headers, color)
	meta, err := connection.call(headers.context(ctx), method, args, result)
	pool.put(connection, broken(err))
	c.among.Done(target, outcome(ctx, err), time.Now())
	if asked || trail != nil {
		own := lane.Hop{
			Service: c.service, Lane: choice.Lane, Instance: target.Name,
			Rule: lane.OutgoingRule(ctx, process), Reason: choice.Reason,
		}
		meta = explain(meta, own, trail, asked)
	}
	return meta, err
}

// need makes sure that the instances of the service are known.
func (c *Client) need(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, needTimeout)
	defer cancel()
	return c.dir.Need(ctx, c.service)
}

// connect picks a target that a connection can be had to, and counts the call to it.
func (c *Client) connect(ctx context.Context, color lane.Name) (*lane.Target, lane.Choice, *conn, *pool, error) {
	var tried []*lane.Target
	for {
		choice := lane.Pick(c.dir.Snapshot(), c.service, color, lane.Thrift)
		if err := choice.Err(); err != nil {
			return nil, choice, nil, nil, &noInstance{TApplicationException: thrift.NewTApplicationException(thrift.UNKNOWN_APPLICATION_EXCEPTION, err.Error()), cause: err}
		}
		target := c.among.Next(choice, time.Now(), func(t *lane.Target) bool { return contains(tried, t) })
		if target == nil {
			target, tried = c.among.Next(choice, time.Now(), nil), nil
		}
		p, err := c.pool(target)
		if err != nil {
			c.among.Done(target, lane.Neutral, time.Now())
			return nil, choice, nil, nil, err
		}
		connection, err := p.get(ctx, func(ctx context.Context) (*conn, error) {
			return dial(ctx, target.Address, target.Transport, c.thrift)
		})
		if err == nil {
			return target, choice, connection, p, nil
		}
		c.among.Done(target, outcome(ctx, err), time.Now())
		tried = append(tried, target)
		if ctx.Err() != nil || !refused(err) || len(tried) >= min(maxAttempts, len(choice.Targets)) {
			return nil, choice, nil, nil, fmt.Errorf("call %s instance %s: %w", c.service, target.Name, err)
		}
	}
}

func contains(tried []*lane.Target, t *lane.Target) bool {
	return slices.ContainsFunc(tried, func(o *lane.Target) bool { return o.Name == t.Name && o.Address == t.Address })
}

func (c *Client) pool(t *lane.Target) (*pool, error) {
	key := poolKey{t.Name, t.Address, t.Transport}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	p := c.pools[key]
	if p == nil {
		p = newPool(c.maxConns)
		c.pools[key] = p
	}
	return p, nil
}

// prune closes the pools of instances that have left.
func (c *Client) prune() {
	present := map[poolKey]bool{}
	for t := range c.dir.Snapshot().Targets(c.service, lane.Thrift) {
		present[poolKey{t.Name, t.Address, t.Transport}] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, p := range c.pools {
		if !present[key] {
			p.close()
			delete(c.pools, key)
		}
	}
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
// idempotent.
func (c *Client) Close() error {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	c.mu.Unlock()
	c.calls.Wait()
	if already {
		return nil
	}
	c.cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pools {
		p.close()
	}
	return nil
}

// explain adds this call to the trail and, where the caller asked for it, to its headers.
func explain(meta thrift.ResponseMeta, own lane.Hop, trail *lane.Trail, asked bool) thrift.ResponseMeta {
	further := splitLines(meta.Headers[lane.RouteHeader])
	trail.Add(own, further)
	if asked {
		headers := thrift.THeaderMap{lane.RouteHeader: joinLines(append([]string{own.String()}, further...))}
		for key, value := range meta.Headers {
			if key != lane.RouteHeader {
				headers[key] = value
			}
		}
		meta.Headers = headers
	}
	return meta
}

// noInstance is the exception for a service that nobody serves.
type noInstance struct {
	thrift.TApplicationException
	cause error
}

func (n *noInstance) Unwrap() error { return n.cause }

// broken reports whether a connection is of no further use: all but an answer leaves it
// at a place in the stream that nobody knows.
func broken(err error) bool {
	var answer thrift.TApplicationException
	if err == nil {
		return false
	}
	if !errors.As(err, &answer) {
		return true
	}
	switch answer.TypeId() {
	case thrift.BAD_SEQUENCE_ID, thrift.WRONG_METHOD_NAME, thrift.INVALID_MESSAGE_TYPE_EXCEPTION, thrift.PROTOCOL_ERROR:
		return true
	}
	return false
}

func outcome(ctx context.Context, err error) lane.Outcome {
	switch {
	case !broken(err):
		return lane.Success
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, ErrClosed):
		return lane.Neutral
	case refused(err):
		return lane.Refused
	default:
		return lane.Failure
	}
}

// refused reports whether no connection was made, so that nothing was sent.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
