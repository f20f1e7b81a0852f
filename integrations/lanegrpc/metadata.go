package lanegrpc

import (
	"context"

	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/lane"
)

// carrier is gRPC metadata as a lane.Carrier; its keys are in lower case already.
type carrier metadata.MD

func (c carrier) Values(key string) []string { return c[key] }
func (c carrier) Set(key, value string)      { c[key] = []string{value} }
func (c carrier) Del(key string)             { delete(c, key) }

// incomingCarrier is the metadata of a call that came in, to be read only. It copies
// the values that are asked for, not all there are.
type incomingCarrier struct {
	ctx context.Context //nolint:containedctx // grpc keeps a call's metadata in its context
}

func (c incomingCarrier) Values(key string) []string {
	return metadata.ValueFromIncomingContext(c.ctx, key)
}
func (incomingCarrier) Set(string, string) {}
func (incomingCarrier) Del(string)         {}

// colored reports whether md says anything of colors, so that plain calls without any
// keep their metadata as it is.
func colored(md metadata.MD) bool {
	return len(md[lane.Header])+len(md[lane.BaggageHeader])+len(md[lane.SignatureHeader]) > 0
}
