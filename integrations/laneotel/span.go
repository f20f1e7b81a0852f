package laneotel

import (
	"context"
	"net/http"

	"github.com/laneway-dev/laneway/lane"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of spans.
const (
	ColorKey  = attribute.Key("laneway.color")  // what the request carries; absent on plain traffic
	LaneKey   = attribute.Key("laneway.lane")   // whose instance served; "" is the baseline
	ReasonKey = attribute.Key("laneway.reason") // why: the words of lane.Reason
)

// Attributes says of a choice what there is to say of it. A choice of nobody has no
// LaneKey.
func Attributes(c lane.Choice) []attribute.KeyValue {
	attributes := make([]attribute.KeyValue, 0, 3)
	if c.Color != lane.Baseline {
		attributes = append(attributes, ColorKey.String(string(c.Color)))
	}
	if len(c.Targets) > 0 {
		attributes = append(attributes, LaneKey.String(string(c.Lane)))
	}
	return append(attributes, ReasonKey.String(string(c.Reason)))
}

// Observe notes a choice on the span of ctx, if that is recorded. It is a lane.Observer, for
// WithObserver of lanehttp, lanegrpc and lanethrift.
func Observe(ctx context.Context, c lane.Choice, _ *lane.Target) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(Attributes(c)...)
	}
}

// Annotate notes the color of ctx, and the lane of this process, on the span of ctx, if that
// is recorded. Servers of any protocol call it for each request; [Middleware] does it for
// HTTP.
func Annotate(ctx context.Context, process lane.Name) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	if color := lane.From(ctx); color != lane.Baseline {
		span.SetAttributes(ColorKey.String(string(color)))
	}
	span.SetAttributes(LaneKey.String(string(process)))
}

// Middleware takes the color of a request from the baggage of its context, where the
// context has none yet, and notes it on the request's span, as [Annotate] does. It stands
// within what starts the span and reads the baggage:
//
//	otelhttp.NewHandler(laneotel.Middleware(mux, lc.Process()), "order")
//
// With lanehttp.Middleware around it, that has the first word on the color.
func Middleware(next http.Handler, process lane.Name) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := FromBaggage(r.Context())
		Annotate(ctx, process)
		if ctx != r.Context() {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
