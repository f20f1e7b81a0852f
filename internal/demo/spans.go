package demo

import (
	"context"

	"github.com/apache/thrift/lib/go/thrift"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/integrations/laneotel"
)

// OpenTelemetry's own instrumentation of net/http and gRPC would do for those; there is
// none for Thrift, and so little to it that one way for all three is less.

// w3c carries trace context. Colors travel by the SDK.
func w3c() propagation.TextMapPropagator { return propagation.TraceContext{} }

// serving begins the span of a request that was read from carrier.
func (s *service) serving(ctx context.Context, carrier propagation.TextMapCarrier) (context.Context, trace.Span) {
	ctx, span := s.tracer.Start(w3c().Extract(ctx, carrier), "serve "+s.self.Service, trace.WithSpanKind(trace.SpanKindServer))
	laneotel.Annotate(ctx, s.self.Lane)
	return ctx, span
}

// calling calls the next service within a span, on which the SDK notes its choice.
func (s *service) calling(ctx context.Context) (Reply, error) {
	ctx, span := s.tracer.Start(ctx, "call the next of "+s.self.Service, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	reply, err := s.next.call(ctx)
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	return reply, err
}

// incoming reads what came with a call, by the name of a header.
type incoming func(key string) string

// Get returns a header.
func (f incoming) Get(key string) string { return f(key) }

// Set does nothing: what came in is as it is.
func (incoming) Set(string, string) {}

// Keys lists nothing: trace context knows its headers.
func (incoming) Keys() []string { return nil }

// fromGRPC reads the metadata of a call.
func fromGRPC(ctx context.Context) incoming {
	return func(key string) string {
		if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// toGRPC puts the trace context of ctx into the metadata of a call.
func toGRPC(ctx context.Context) context.Context {
	headers := propagation.MapCarrier{}
	w3c().Inject(ctx, headers)
	var pairs []string
	for key, value := range headers {
		pairs = append(pairs, key, value)
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// fromThrift reads the THeader info headers of a call.
func fromThrift(ctx context.Context) incoming {
	return func(key string) string {
		value, _ := thrift.GetHeader(ctx, key)
		return value
	}
}

// toThrift adds the trace context of ctx to the info headers of a call.
func toThrift(ctx context.Context) context.Context {
	headers := propagation.MapCarrier{}
	w3c().Inject(ctx, headers)
	for key, value := range headers {
		ctx = thrift.SetHeader(ctx, key, value) //nolint:fatcontext // thrift has a value for each header
	}
	return thrift.SetWriteHeaderList(ctx, append(thrift.GetWriteHeaderList(ctx), headers.Keys()...))
}
