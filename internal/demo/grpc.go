package demo

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/integrations/laneotel"
	"github.com/laneway-dev/laneway/internal/demo/demopb"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

type grpcChain struct {
	demopb.UnimplementedChainServer
	service *service
}

// Call implements demopb.ChainServer.
func (c grpcChain) Call(ctx context.Context, _ *demopb.CallRequest) (*demopb.CallReply, error) {
	ctx, span := c.service.serving(ctx, fromGRPC(ctx))
	defer span.End()
	reply := c.service.visit(ctx)
	out := &demopb.CallReply{Error: reply.Error}
	for _, v := range reply.Visits {
		out.Visits = append(out.Visits, &demopb.Visit{
			Service: v.Service, Instance: v.Instance, Lane: string(v.Lane),
			Protocol: v.Protocol, Color: string(v.Color), Reason: string(v.Reason),
		})
	}
	return out, nil
}

func serveGRPC(ctx context.Context, listener net.Listener, s *service) error {
	server := grpc.NewServer(lanegrpc.ServerOptions()...) //nolint:contextcheck // calls have contexts of their own
	demopb.RegisterChainServer(server, grpcChain{service: s})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	hurry := time.AfterFunc(stopTimeout, server.Stop)
	defer hurry.Stop()
	server.GracefulStop()
	return <-served
}

type grpcCaller struct {
	conn  *grpc.ClientConn
	chain demopb.ChainClient
}

func newGRPCCaller(service string, lc *laneclient.Client) (*grpcCaller, error) {
	options := append(lanegrpc.DialOptions(lc, lanegrpc.WithObserver(laneotel.Observe)), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("lane:///"+service, options...)
	if err != nil {
		return nil, err
	}
	return &grpcCaller{conn: conn, chain: demopb.NewChainClient(conn)}, nil
}

func (c *grpcCaller) call(ctx context.Context) (Reply, error) {
	in, err := c.chain.Call(toGRPC(ctx), &demopb.CallRequest{})
	if err != nil {
		return Reply{}, err
	}
	reply := Reply{Error: in.GetError()}
	for _, v := range in.GetVisits() {
		reply.Visits = append(reply.Visits, Visit{
			Service: v.GetService(), Instance: v.GetInstance(), Lane: lane.Name(v.GetLane()),
			Protocol: v.GetProtocol(), Color: lane.Name(v.GetColor()), Reason: lane.Reason(v.GetReason()),
		})
	}
	return reply, nil
}

func (c *grpcCaller) close() error { return c.conn.Close() }
