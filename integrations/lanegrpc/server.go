package lanegrpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/lane"
)

// ServerOptions returns the interceptors that put the color of a call into its handler's
// context (lane.From). A call with lane.ExplainHeader "1" is answered with
// lane.RouteHeader trailers for the calls that its handler made. Aliases are further
// metadata keys, in lower case, to read a color from; none are written.
func ServerOptions(aliases ...string) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(UnaryServerInterceptor(aliases...)),
		grpc.ChainStreamInterceptor(StreamServerInterceptor(aliases...)),
	}
}

// UnaryServerInterceptor is the unary half of [ServerOptions].
func UnaryServerInterceptor(aliases ...string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		ctx, trail := incoming(ctx, aliases)
		resp, err := next(ctx, req)
		if lines := trail.Lines(); len(lines) > 0 {
			_ = grpc.SetTrailer(ctx, metadata.MD{lane.RouteHeader: lines}) // fails only where the call is gone
		}
		return resp, err
	}
}

// StreamServerInterceptor is the streaming half of [ServerOptions].
func StreamServerInterceptor(aliases ...string) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		ctx, trail := incoming(stream.Context(), aliases)
		err := next(srv, serverStream{ServerStream: stream, ctx: ctx})
		if lines := trail.Lines(); len(lines) > 0 {
			stream.SetTrailer(metadata.MD{lane.RouteHeader: lines})
		}
		return err
	}
}

// incoming gives ctx the color of the call, and a trail where the caller asks for one.
func incoming(ctx context.Context, aliases []string) (context.Context, *lane.Trail) {
	md, ok := metadata.FromIncomingContext(ctx)
	if !ok {
		return ctx, nil
	}
	if color, _ := lane.Extract(carrier(md), aliases...); color != lane.Baseline {
		ctx = lane.With(ctx, color)
	}
	if first(md, lane.ExplainHeader) != "1" {
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
