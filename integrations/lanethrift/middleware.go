package lanethrift

import (
	"context"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/lane"
)

// Middleware puts the color of a call into its handler's context (lane.From). A call with
// the info header lane.ExplainHeader "1" is answered with lane.RouteHeader, the lines of
// the calls that its handler made with its context, joined by newlines. [NewServer] applies
// it; it is exported for other servers:
//
//	processor = thrift.WrapProcessor(processor, lanethrift.Middleware())
//
// It needs a THeaderProtocol on both sides; calls of others are plain. Of the options,
// [WithAliases] and [WithTrust] matter to it.
func Middleware(options ...ServerOption) thrift.ProcessorMiddleware {
	c := newServerConfig(options)
	return func(_ string, next thrift.TProcessorFunction) thrift.TProcessorFunction {
		return thrift.WrappedTProcessorFunction{
			Wrapped: func(ctx context.Context, seqID int32, in, out thrift.TProtocol) (bool, thrift.TException) {
				if c.trust != nil && !c.trust(ctx) {
					return next.Process(ctx, seqID, in, out)
				}
				headers := readCarrier{ctx}
				explain := lane.WantsRoute(headers)
				if color, _ := lane.Extract(headers, c.aliases...); color != lane.Baseline {
					ctx = lane.With(ctx, color)
				}
				response, ok := thrift.GetResponseHelper(ctx)
				if !explain || !ok || response.THeaderResponseHelper == nil {
					return next.Process(ctx, seqID, in, out)
				}
				ctx, trail := lane.WithTrail(ctx)
				return next.Process(ctx, seqID, in, &explained{TProtocol: out, trail: trail, response: response})
			},
		}
	}
}

// explained adds the trail to the answer's headers when the answer begins: the handler
// has returned by then.
type explained struct {
	thrift.TProtocol
	trail    *lane.Trail
	response thrift.TResponseHelper
}

// WriteMessageBegin implements thrift.TProtocol.
func (e *explained) WriteMessageBegin(ctx context.Context, name string, kind thrift.TMessageType, seqID int32) error {
	if lines := e.trail.Lines(); len(lines) > 0 {
		e.response.SetHeader(lane.RouteHeader, joinLines(lines))
	}
	return e.TProtocol.WriteMessageBegin(ctx, name, kind, seqID)
}

// WriteMessageEnd implements thrift.TProtocol.
func (e *explained) WriteMessageEnd(ctx context.Context) error {
	err := e.TProtocol.WriteMessageEnd(ctx) // the answer is sent
	e.response.ClearHeaders()               // thrift would send them with the next one too
	return err
}
