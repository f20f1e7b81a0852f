package lanegrpc

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/lane"
)

// DefaultDrain is how long streams may go on after their instance has left the registry.
const DefaultDrain = 30 * time.Second

// How connections are made: grpc's defaults wait up to two minutes before they try an
// instance again, and twenty seconds for one that does not answer. Connections are made
// for calls only, so a dead instance costs an attempt when the balancer tries it.
const (
	firstBackoff   = 200 * time.Millisecond
	longestBackoff = 5 * time.Second
	connectTimeout = 5 * time.Second
)

type config struct {
	dir     lane.Directory
	policy  lane.Policy
	drain   time.Duration
	observe lane.Observer // may be nil
	last    atomic.Pointer[coloredMetadata]
}

// coloredMetadata holds all the outgoing metadata of a call that has none but its color.
// grpc only reads it, so calls share it: most that follow each other have the same color.
type coloredMetadata struct {
	context.Context //nolint:containedctx // where grpc keeps metadata
	color           lane.Name
}

func (c *config) metadataOf(color lane.Name) *coloredMetadata {
	if last := c.last.Load(); last != nil && last.color == color {
		return last
	}
	md := metadata.MD{}
	lane.Inject(carrier(md), color)
	var pairs []string // grpc goes through them faster than through a map
	for key, values := range md {
		pairs = append(pairs, key, values[0])
	}
	made := &coloredMetadata{metadata.AppendToOutgoingContext(context.Background(), pairs...), color}
	c.last.Store(made)
	return made
}

// Option changes what [DialOptions] sets up.
type Option func(*config)

// WithPolicy sets how an instance is chosen among equals. Default: lane.RoundRobin.
func WithPolicy(p lane.Policy) Option { return func(c *config) { c.policy = p } }

// WithDrain sets how long streams on an instance that has left the registry may go on
// before they end with UNAVAILABLE; unary calls go on until they are answered or their
// deadline passes. Default: [DefaultDrain]; zero or less ends streams at once.
func WithDrain(d time.Duration) Option { return func(c *config) { c.drain = d } }

// WithObserver has o told of every choice, with the context of the call's attempt, before
// it is sent: for example laneotel.Observe, which notes it on the span of that context. o
// runs where grpc picks a connection, so it must not block.
func WithObserver(o lane.Observer) Option { return func(c *config) { c.observe = o } }

// DialOptions returns what a grpc.NewClient for "lane:///SERVICE" needs to route by dir:
// resolver, balancer, interceptors and back-off. Transport credentials are yours to add.
// A default service config of your own, given after these, must name [BalancerName] in
// its loadBalancingConfig, or calls are not routed by lane. Instances are connected to
// directly, whatever proxy the environment names.
//
// Calls fail with UNAVAILABLE and the text of lane.NoInstanceError where nobody may serve,
// and with "no connection to SERVICE" where nobody of the chosen lane can be reached: they
// are never sent to another lane because of that. Wait-for-ready calls wait in both cases.
func DialOptions(dir lane.Directory, options ...Option) []grpc.DialOption {
	c := &config{dir: dir, drain: DefaultDrain}
	for _, o := range options {
		o(c)
	}
	return []grpc.DialOption{
		grpc.WithResolvers(builder{c}),
		grpc.WithNoProxy(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"` + BalancerName + `":{}}]}`),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: firstBackoff, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestBackoff},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithChainUnaryInterceptor(c.unary),
		grpc.WithChainStreamInterceptor(c.streams),
	}
}

// call is the context of one call, and what the interceptors and the picker tell each
// other of it.
type call struct {
	context.Context                  //nolint:containedctx // it is one
	metadata        *coloredMetadata // nil where the context has all

	color  lane.Name
	rule   lane.Rule
	trail  *lane.Trail // of the request that caused the call; may be nil
	asked  bool        // the caller itself wants the route
	stream bool
	cancel context.CancelCauseFunc // of a stream

	// Written by the picker before the call is sent, once for each attempt.
	waits *entry // the connection that the call waits for
	sent  *sent  // nil: not sent, or nobody asks
}

// sent says who got a call, and why.
type sent struct {
	choice lane.Choice
	target *lane.Target
}

type callKey struct{}

// Value implements context.Context: it finds the call itself, and its metadata.
func (c *call) Value(key any) any {
	if _, ours := key.(callKey); ours {
		return c
	}
	if c.metadata != nil {
		if value := c.metadata.Value(key); value != nil {
			return value
		}
	}
	return c.Context.Value(key)
}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// begin makes the context of a call, with its color in the metadata.
func (c *config) begin(ctx context.Context) (context.Context, *call) {
	process := c.dir.Process()
	out := &call{color: lane.Outgoing(ctx, process), trail: lane.TrailFrom(ctx)}
	c.dir.Used(out.color)
	md, _ := metadata.FromOutgoingContext(ctx) // a copy: it may be changed
	out.asked = lane.WantsRoute(carrier(md))
	switch {
	case md == nil && out.trail == nil && out.color != lane.Baseline:
		out.metadata = c.metadataOf(out.color)
	case out.color != lane.Baseline || colored(md) || out.trail != nil:
		if md == nil {
			md = metadata.MD{}
		}
		lane.Inject(carrier(md), out.color)
		if out.trail != nil {
			md[lane.ExplainHeader] = []string{"1"}
		}
		ctx = metadata.NewOutgoingContext(ctx, md)
	}
	if out.explained() {
		out.rule = lane.OutgoingRule(ctx, process)
	}
	out.Context = ctx
	return out, out
}

func (c *call) explained() bool { return c.asked || c.trail != nil }

// unary hands a call on. Route lines of the instance reach the caller parsed and bounded,
// and only where it asked for them.
func (c *config) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	ctx, out := c.begin(ctx)
	var lines []string
	var err error
	if out.explained() {
		var trailer metadata.MD
		err = invoke(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Trailer(&trailer))...)
		lines = out.lines(trailer)
	} else {
		err = invoke(ctx, method, req, reply, cc, opts...)
	}
	for _, o := range opts {
		if t, ok := o.(grpc.TrailerCallOption); ok {
			*t.TrailerAddr = out.routed(*t.TrailerAddr, lines)
		}
	}
	return err
}

// routed returns the trailer as the caller gets it: with the lines, where it asked for
// them, and without what the instance sent.
func (c *call) routed(trailer metadata.MD, lines []string) metadata.MD {
	sent := len(trailer[lane.RouteHeader]) > 0
	wanted := c.asked && len(lines) > 0
	if !sent && !wanted {
		return trailer
	}
	out := trailer.Copy() // grpc hands the same map out again
	delete(out, lane.RouteHeader)
	if wanted {
		out[lane.RouteHeader] = lines
	}
	return out
}

// lines notes the call in the trail of its request and returns its route, nearest first.
func (c *call) lines(trailer metadata.MD) []string {
	if c.sent == nil {
		return nil
	}
	own := c.sent.choice.Hop(c.sent.target, c.rule)
	further := trailer[lane.RouteHeader]
	c.trail.Add(own, further)
	return lane.AppendHops(nil, own, further)
}

func (c *config) streams(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, out := c.begin(ctx)
	out.stream = true
	ctx, out.cancel = context.WithCancelCause(ctx)
	stream, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		err = cause(ctx, err)
		out.cancel(nil)
		return nil, err
	}
	return &clientStream{ClientStream: stream, call: out, single: !desc.ServerStreams}, nil
}

// clientStream says why a stream was ended and explains its route at its end. What grpc
// asks of a stream's user, to read to the end or to cancel, is what frees its context.
type clientStream struct {
	grpc.ClientStream
	call   *call
	single bool // the server sends one message

	over  bool // only RecvMsg's goroutine touches it
	lines []string
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.single {
		return nil
	}
	err = cause(s.Context(), err)
	if !s.over {
		s.over = true
		if s.call.explained() {
			s.lines = s.call.lines(s.ClientStream.Trailer())
		}
		s.call.cancel(nil)
	}
	return err
}

// SendMsg implements grpc.ClientStream.
func (s *clientStream) SendMsg(m any) error {
	return cause(s.Context(), s.ClientStream.SendMsg(m))
}

// Trailer implements grpc.ClientStream.
func (s *clientStream) Trailer() metadata.MD {
	return s.call.routed(s.ClientStream.Trailer(), s.lines)
}
