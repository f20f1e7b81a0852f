package lanegrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/lane"
)

type serverConfig struct {
	aliases []string
	trust   func(context.Context) bool
	key     any // under which a context has the metadata of a call that came in
}

// ServerOption changes what [ServerOptions] sets up.
type ServerOption func(*serverConfig)

// WithAliases names metadata keys, in lower case, that a color is also read from, after
// those of package lane. They are never written.
func WithAliases(keys ...string) ServerOption {
	return func(c *serverConfig) { c.aliases = keys }
}

// WithTrust limits from whom a color is believed and lane.ExplainHeader answered; trusted
// gets the call's context, with its peer and metadata. Default: everybody, since a service
// is called by services; the gateway's edge is where colors from outside are dropped.
func WithTrust(trusted func(context.Context) bool) ServerOption {
	return func(c *serverConfig) { c.trust = trusted }
}

// ServerOptions returns the interceptors that put the color of a call into its handler's
// context (lane.From). A call with lane.ExplainHeader "1" is answered with
// lane.RouteHeader trailers for the calls that its handler made with its context.
func ServerOptions(options ...ServerOption) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServerInterceptor(options...)),
		grpc.ChainStreamInterceptor(StreamServerInterceptor(options...)),
	}
}

func newServerConfig(options []ServerOption) *serverConfig {
	c := &serverConfig{key: incomingKey()}
	for _, o := range options {
		o(c)
	}
	return c
}

// UnaryServerInterceptor is the unary half of [ServerOptions].
func UnaryServerInterceptor(options ...ServerOption) grpc.UnaryServerInterceptor {
	c := newServerConfig(options)
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, trail := c.incoming(ctx)
		resp, err := next(ctx, req)
		if lines := trail.Lines(); len(lines) > 0 {
			_ = grpc.SetTrailer(ctx, metadata.MD{lane.RouteHeader: lines}) // fails only where the call is gone
		}
		return resp, err
	}
}

// StreamServerInterceptor is the streaming half of [ServerOptions].
func StreamServerInterceptor(options ...ServerOption) grpc.StreamServerInterceptor {
	c := newServerConfig(options)
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, trail := c.incoming(stream.Context())
		err := next(srv, serverStream{ServerStream: stream, ctx: ctx})
		if lines := trail.Lines(); len(lines) > 0 {
			stream.SetTrailer(metadata.MD{lane.RouteHeader: lines})
		}
		return err
	}
}

// incoming gives ctx the color of the call, and a trail where the caller asks for one.
func (c *serverConfig) incoming(ctx context.Context) (context.Context, *lane.Trail) {
	if c.trust != nil && !c.trust(ctx) {
		return ctx, nil
	}
	headers := c.headers(ctx)
	color, _ := lane.Extract(headers, c.aliases...)
	explain := lane.WantsRoute(headers)
	if color != lane.Baseline {
		ctx = lane.With(ctx, color)
	}
	if !explain {
		return ctx, nil
	}
	return lane.WithTrail(ctx)
}

// serverStream is a stream with a context of its own.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // grpc hands a stream's context out by a method
}

func (s serverStream) Context() context.Context { return s.ctx }
