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
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
)

const (
	instances = 3   // of the service in the baseline
	lanes     = 100 // with one instance each
	callers   = 8   // at once
)

func main() {
	rounds := flag.Int("rounds", 60, "how often the kinds of call take turns")
	calls := flag.Int("calls", 4000, "calls a turn")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *calls < callers {
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

// kind is one kind of call.
type kind struct {
	name     string
	client   grpc_health_v1.HealthClient
	ctx      context.Context //nolint:containedctx // its color makes the kind
	promised float64         // ratio to a plain call by round_robin; 0: none
	took     []float64       // nanoseconds of processor time for a call, turn by turn
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
	bare := &kind{name: "round_robin", client: peer, ctx: ctx}
	kinds := []*kind{
		bare,
		{name: "round_robin, with a color's headers", client: peer, ctx: metadata.AppendToOutgoingContext(ctx,
			lane.Header, "empty", lane.BaggageHeader, lane.BaggageMember+"=empty")},
		{name: "by lane, plain", client: routed, ctx: ctx, promised: 1.05},
		{name: "by lane, colored, own instance", client: routed, ctx: lane.With(ctx, "lane-7"), promised: 1.10},
		{name: "by lane, colored, falls back", client: routed, ctx: lane.With(ctx, "empty"), promised: 1.10},
	}
	for round := range rounds + 1 {
		for i := range kinds {
			k := kinds[(round+i)%len(kinds)] // nobody always comes after the same one
			took, err := turn(k, calls)
			if err != nil {
				return false, fmt.Errorf("%s: %w", k.name, err)
			}
			if round > 0 { // the first one makes connections
				k.took = append(k.took, took)
			}
		}
	}
	fmt.Printf("%-36s %12s %16s %10s\n", "processor time, client and server", "us per call", "to round_robin", "promised")
	kept := true
	for _, k := range kinds {
		ratio, promise := median(ratios(k.took, bare.took)), ""
		if k.promised > 0 {
			promise = fmt.Sprintf("%10.2f  kept", k.promised)
			if ratio > k.promised {
				promise, kept = fmt.Sprintf("%10.2f  broken", k.promised), false
			}
		}
		fmt.Printf("%-36s %12.2f %16.3f %s\n", k.name, median(k.took)/1000, ratio, promise)
	}
	return kept, nil
}

// ratios compares turns that were beside each other.
func ratios(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] / b[i]
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// turn makes calls from several goroutines and returns the processor time of one in
// nanoseconds.
func turn(k *kind, calls int) (float64, error) {
	runtime.GC()
	before := processorTime()
	var group sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		group.Go(func() {
			for range calls / callers {
				ctx, cancel := context.WithTimeout(k.ctx, 10*time.Second)
				_, err := k.client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
				cancel()
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	group.Wait()
	select {
	case err := <-errs:
		return 0, err
	default:
	}
	return float64(processorTime()-before) / float64(calls/callers*callers), nil
}

// processorTime is what the process has used so far, in nanoseconds.
func processorTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
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
	in := lane.Input{Lanes: []lane.Lane{{Name: "empty", Generation: 1, State: lane.Ready}}}
	add := func(name string, of lane.Name, generation uint64, address string) {
		in.Instances = append(in.Instances, &lane.Instance{
			Service: "order", Name: name, Lane: of, Generation: generation, State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.GRPC, Address: address}},
		})
	}
	var address string
	for i := range instances {
		a, stopServer, err := serve(lanegrpc.ServerOptions()...)
		if err != nil {
			stop()
			return nil, nil, err
		}
		stops = append(stops, stopServer)
		address = a
		add(fmt.Sprintf("order-%d", i), lane.Baseline, 0, address)
	}
	for i := range lanes {
		name := lane.Name(fmt.Sprintf("lane-%d", i))
		in.Lanes = append(in.Lanes, lane.Lane{Name: name, Generation: 1, State: lane.Ready})
		add("in-"+string(name), name, 1, address)
	}
	dir := still{lane.NewSnapshot(in)}
	conn, err := grpc.NewClient("lane:///order",
		append(lanegrpc.DialOptions(dir), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		stop()
		return nil, nil, err
	}
	stops = append(stops, func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn), stop, nil
}

// still is a directory in which nothing changes.
type still struct{ snapshot *lane.Snapshot }

func (s still) Snapshot() *lane.Snapshot         { return s.snapshot }
func (still) Need(context.Context, string) error { return nil }
func (still) Subscribe(func()) func()            { return func() {} }
func (still) Process() lane.Name                 { return lane.Baseline }
func (still) Used(lane.Name)                     {}
