package lanegrpc

import (
	"context"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/lane"
)

// carrier is gRPC metadata as a lane.Carrier; its keys are in lower case already.
type carrier metadata.MD

func (c carrier) Values(key string) []string { return c[key] }
func (c carrier) Set(key, value string)      { c[key] = []string{value} }
func (c carrier) Del(key string)             { delete(c, key) }

// incomingCarrier is the metadata of a call that came in, to be read only, as grpc hands
// it out: a copy of each value that is asked for, and a look at every key for one that is
// not there.
type incomingCarrier struct {
	ctx context.Context //nolint:containedctx // grpc keeps a call's metadata in its context
}

func (c incomingCarrier) Values(key string) []string {
	return metadata.ValueFromIncomingContext(c.ctx, key)
}
func (incomingCarrier) Set(string, string) {}
func (incomingCarrier) Del(string)         {}

// headers returns the metadata of a call that came in, to be read only. Most calls say
// nothing of colors, and to find that out through grpc costs more than all the rest of
// what is done for a call; so the metadata is taken from where grpc takes it.
func (c *serverConfig) headers(ctx context.Context) lane.Carrier {
	if md, ok := ctx.Value(c.key).(metadata.MD); ok {
		return carrier(md)
	}
	return incomingCarrier{ctx} // there is none, or another version of grpc keeps it otherwise
}

// incomingKey asks grpc for the metadata of a context that notes by which key it was asked.
func incomingKey() any {
	asked := &asked{}
	metadata.ValueFromIncomingContext(asked, lane.Header)
	return asked.key
}

// asked is a context that never ends and has nothing but what it was asked for.
type asked struct{ key any }

func (*asked) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (*asked) Done() <-chan struct{}                   { return nil }
func (*asked) Err() error                              { return nil }

// Value implements context.Context.
func (a *asked) Value(key any) any {
	a.key = key
	return nil
}

// colored reports whether md says anything of colors, so that plain calls without any
// keep their metadata as it is.
func colored(md metadata.MD) bool {
	return len(md[lane.Header])+len(md[lane.BaggageHeader])+len(md[lane.SignatureHeader]) > 0
}
