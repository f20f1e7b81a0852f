package demo

import (
	"context"
	"errors"
	"net"

	"github.com/laneway-dev/laneway/integrations/laneotel"
	"github.com/laneway-dev/laneway/integrations/lanethrift"
	"github.com/laneway-dev/laneway/internal/demo/demothrift"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

type thriftChain struct{ service *service }

// Call implements demothrift.Chain.
func (c thriftChain) Call(ctx context.Context) (*demothrift.CallReply, error) {
	ctx, span := c.service.serving(ctx, fromThrift(ctx))
	defer span.End()
	reply := c.service.visit(ctx)
	out := &demothrift.CallReply{Error: reply.Error}
	for _, v := range reply.Visits {
		out.Visits = append(out.Visits, &demothrift.Visit{
			ServiceName: v.Service, Instance: v.Instance, Lane: string(v.Lane),
			Protocol: v.Protocol, Color: string(v.Color), Reason: string(v.Reason),
		})
	}
	return out, nil
}

func serveThrift(ctx context.Context, listener net.Listener, s *service) error {
	server := lanethrift.NewServer(listener, demothrift.NewChainProcessor(thriftChain{service: s}))
	served := make(chan error, 1)
	go func() { served <- server.Serve() }() //nolint:contextcheck // calls have contexts of their own
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	err := server.Shutdown(stopping)
	if ended := <-served; !errors.Is(ended, lanethrift.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

type thriftCaller struct{ client *lanethrift.Client }

func newThriftCaller(service string, lc *laneclient.Client) *thriftCaller {
	return &thriftCaller{client: lanethrift.NewClient(lc, service, lanethrift.WithObserver(laneotel.Observe))}
}

func (c *thriftCaller) call(ctx context.Context) (Reply, error) {
	// A generated client is not for concurrent calls; what it is made of is.
	in, err := demothrift.NewChainClient(c.client).Call(toThrift(ctx))
	if err != nil {
		return Reply{}, err
	}
	reply := Reply{Error: in.Error}
	for _, v := range in.Visits {
		reply.Visits = append(reply.Visits, Visit{
			Service: v.ServiceName, Instance: v.Instance, Lane: lane.Name(v.Lane),
			Protocol: v.Protocol, Color: lane.Name(v.Color), Reason: lane.Reason(v.Reason),
		})
	}
	return reply, nil
}

func (c *thriftCaller) close() error { return c.client.Close() }
