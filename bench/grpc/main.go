// Command grpc measures what routing by lane costs a gRPC call: processor time of client
// and server together, beside grpc-go's own round_robin in the same process. The kinds of
// call take turns, so that what else the machine does falls on all of them alike, and the
// median turn counts. It exits with 1 where the promise is broken: a plain call costs at
// most 1.05 times as much as a plain call by round_robin, a colored one 1.10 times.
//
// A colored call carries two headers more than the call that it is compared with. What
// these cost grpc, whoever sends them, is printed too: round_robin that carries the same.
//
//	go run ./bench/grpc
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/laneway-dev/laneway/bench/turns"
	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
)

// instances is how many the baseline has.
const instances = 3

func main() {
	rounds := flag.Int("rounds", 60, "how often the kinds of call take turns")
	calls := flag.Int("calls", 4000, "calls a turn")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *calls < turns.Callers {
		flag.Usage()
		os.Exit(2)
	}
	kept, err := run(*rounds, *calls)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if !kept {
		os.Exit(1)
	}
}

func run(rounds, calls int) (bool, error) {
	ctx := context.Background()
	peer, stopPeer, err := dialRoundRobin()
	if err != nil {
		return false, err
	}
	defer stopPeer()
	routed, stopRouted, err := dialLanes()
	if err != nil {
		return false, err
	}
	defer stopRouted()
	by := func(client grpc_health_v1.HealthClient) func(context.Context, int) error {
		return func(ctx context.Context, _ int) error {
			_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
			return err
		}
	}
	bare := &turns.Kind{Name: "round_robin", Call: by(peer), Ctx: ctx}
	kinds := []*turns.Kind{
		bare,
		{Name: "round_robin, with a color's headers", Call: by(peer), Ctx: metadata.AppendToOutgoingContext(ctx,
			lane.Header, string(turns.FallsBack), lane.BaggageHeader, lane.BaggageMember+"="+string(turns.FallsBack))},
		{Name: "by lane, plain", Call: by(routed), Ctx: ctx, Promised: 1.05},
		{Name: "by lane, colored, own instance", Call: by(routed), Ctx: lane.With(ctx, turns.OwnInstance), Promised: 1.10},
		{Name: "by lane, colored, falls back", Call: by(routed), Ctx: lane.With(ctx, turns.FallsBack), Promised: 1.10},
	}
	if err := turns.Take(kinds, rounds, calls); err != nil {
		return false, err
	}
	return turns.Compare(os.Stdout, kinds, bare), nil
}

// serve runs an instance and returns its address.
func serve(options ...grpc.ServerOption) (string, func(), error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := grpc.NewServer(options...)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	return listener.Addr().String(), server.Stop, nil
}

func dialRoundRobin() (grpc_health_v1.HealthClient, func(), error) {
	var stops []func()
	stop := func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	state := resolver.State{}
	for range instances {
		address, stopServer, err := serve()
		if err != nil {
			stop()
			return nil, nil, err
		}
		stops = append(stops, stopServer)
		state.Addresses = append(state.Addresses, resolver.Address{Addr: address})
	}
	addresses := manual.NewBuilderWithScheme("bench")
	addresses.InitialState(state)
	conn, err := grpc.NewClient("bench:///order", grpc.WithResolvers(addresses),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		stop()
		return nil, nil, err
	}
	stops = append(stops, func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), stop, nil
}

// dialLanes has the baseline of dialRoundRobin and lanes beside it, all of whose
// instances are one server.
func dialLanes() (grpc_health_v1.HealthClient, func(), error) {
	var stops []func()
	stop := func() {
		for _, s := range slices.Backward(stops) {
			s()
		}
	}
	var addresses []string
	for range instances {
		address, stopServer, err := serve(lanegrpc.ServerOptions()...)
		if err != nil {
			stop()
			return nil, nil, err
		}
		stops = append(stops, stopServer)
		addresses = append(addresses, address)
	}
	conn, err := grpc.NewClient("lane:///"+turns.Service, append(lanegrpc.DialOptions(turns.Directory(lane.GRPC, addresses...)),
		grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	stops = append(stops, func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), stop, nil
}
