// Package laneotel joins lanes and OpenTelemetry: the color of a context and the baggage
// member of the same name, and attributes on spans that say which lane served and why.
//
// [Propagator] is for programs that pass everything on through OpenTelemetry. Put it around
// the propagators that the program has:
//
//	otel.SetTextMapPropagator(laneotel.Propagator(
//		propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}),
//		lc.Process()))
//
// OpenTelemetry does not know who is a third party, and would tell everybody of the color.
// So where calls also leave the cluster, let lanehttp have the last word: it replaces the
// color for services and removes it for others.
//
//	otelhttp.NewTransport(lanehttp.Transport(nil, lc, lanehttp.WithObserver(laneotel.Observe)))
//
// gRPC calls are noted in the same way, on the span that otelgrpc's stats handler starts for
// each attempt, or on the caller's own where there is none:
//
//	grpc.NewClient("lane:///order", append(lanegrpc.DialOptions(lc, lanegrpc.WithObserver(laneotel.Observe)),
//		grpc.WithStatsHandler(otelgrpc.NewClientHandler()), creds)...)
//
// Thrift calls too, on the span of the call's context, which is yours to start: there is no
// instrumentation of Thrift that would.
//
//	lanethrift.NewClient(lc, "order", lanethrift.WithObserver(laneotel.Observe))
//
// Where a server starts a span, of whatever protocol, [Annotate] notes color and lane on it.
//
// [Observe] notes a choice on the span of the call; [Middleware] notes the color on the
// span of the request that comes in. Attributes are [ColorKey], [LaneKey] and [ReasonKey].
//
// The package uses OpenTelemetry's API alone, never its SDK, starts nothing and keeps
// nothing. Everything in it may be called at once.
package laneotel
