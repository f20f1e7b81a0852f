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

// grpcCarrier is metadata that comes in.
type grpcCarrier struct{ metadata.MD }

// Get returns the first value.
func (c grpcCarrier) Get(key string) string {
	if values := c.MD.Get(key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// Set replaces a value.
func (c grpcCarrier) Set(key, value string) { c.MD.Set(key, value) }

// Keys lists what there is.
func (c grpcCarrier) Keys() []string { return nil }

// thriftCarrier is the THeader info headers of a context, of those that came in and
// those that go out.
type thriftCarrier struct{ ctx context.Context }

// Get returns a header.
func (c *thriftCarrier) Get(key string) string {
	value, _ := thrift.GetHeader(c.ctx, key)
	return value
}

// Set adds a header to those that go out.
func (c *thriftCarrier) Set(key, value string) {
	c.ctx = thrift.SetHeader(c.ctx, key, value)
	c.ctx = thrift.SetWriteHeaderList(c.ctx, append(thrift.GetWriteHeaderList(c.ctx), key))
}

// Keys lists what there is.
func (c *thriftCarrier) Keys() []string { return nil }
