package lanegrpc_test

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// One connection reaches a service in every lane: the color of a call's context decides
// who gets it. In a program of yours the directory is what laneclient.Dial returns.
func Example() {
	server := grpc.NewServer(lanegrpc.ServerOptions()...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	endpoints := []lane.Endpoint{{Protocol: lane.GRPC, Address: listener.Addr().String()}}
	directory := lanetest.NewDirectory([]lane.Lane{{Name: "green"}},
		&lane.Instance{Service: "order", Name: "order-1", Endpoints: endpoints},
		&lane.Instance{Service: "order", Name: "order-2", Lane: "green", Endpoints: endpoints})

	conn, err := grpc.NewClient("lane:///order",
		append(lanegrpc.DialOptions(directory), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)

	for _, color := range []lane.Name{"", "green", "strict-load"} {
		ctx := metadata.AppendToOutgoingContext(lane.With(context.Background(), color), lane.ExplainHeader, "1")
		var trailer metadata.MD
		if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer)); err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(trailer[lane.RouteHeader][0])
	}
	// Output:
	// service=order lane=- instance=order-1 rule=- reason=plain
	// service=order lane=green instance=order-2 rule=trusted reason=lane-instance
	// rpc error: code = Unavailable desc = no instance of order in strict lane strict-load
}
