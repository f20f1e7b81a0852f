// Command thrift measures what routing by lane costs a Thrift call: processor time of
// client and server together, beside Apache Thrift's own client and TSimpleServer over
// THeader in the same process, one connection a caller. The kinds of call take turns, so
// that what else the machine does falls on all of them alike, and the median turn counts.
// It exits with 1 where a call by lane costs more than 1.25 times as much, plain, or 1.40
// times, colored: a call of Apache Thrift does little, so that a context with a deadline
// and two headers show.
//
//	go run ./bench/thrift
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

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/integrations/lanethrift"
	"github.com/laneway-dev/laneway/internal/demo/demothrift"
	"github.com/laneway-dev/laneway/lane"
)

const (
	callers         = 8 // at once
	lanes           = 100
	promisedPlain   = 1.25
	promisedColored = 1.40
)

func main() {
	rounds := flag.Int("rounds", 30, "how often the kinds of call take turns")
	calls := flag.Int("calls", 8000, "calls a turn")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *calls < callers {
		flag.Usage()
		os.Exit(2)
	}
	kept, err := run(*rounds, *calls)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err != nil || !kept {
		os.Exit(1)
	}
}

// kind is one kind of call.
type kind struct {
	name     string
	clients  []thrift.TClient // one for each caller
	ctx      context.Context  //nolint:containedctx // its color makes the kind
	promised float64          // ratio to the first kind; 0: none
	took     []float64        // nanoseconds of processor time for a call, turn by turn
}

func run(rounds, calls int) (bool, error) {
	peers, stopPeers, err := dialPeers()
	if err != nil {
		return false, err
	}
	defer stopPeers()
	routed, stopRouted, err := dialLanes()
	if err != nil {
		return false, err
	}
	defer stopRouted()
	ctx := context.Background()
	kinds := []*kind{
		{name: "Apache Thrift", clients: peers, ctx: ctx},
		{name: "by lane, plain", clients: routed, ctx: ctx, promised: promisedPlain},
		{name: "by lane, colored, own instance", clients: routed, ctx: lane.With(ctx, "lane-7"), promised: promisedColored},
		{name: "by lane, colored, falls back", clients: routed, ctx: lane.With(ctx, "empty"), promised: promisedColored},
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
	fmt.Printf("%-34s %14s %10s\n", "processor time, client and server", "us per call", "ratio")
	kept := true
	for _, k := range kinds {
		ratio := median(ratios(k.took, kinds[0].took))
		note := ""
		if k.promised > 0 && ratio > k.promised {
			note, kept = fmt.Sprintf("  promised: %.2f", k.promised), false
		}
		fmt.Printf("%-34s %14.2f %10.3f%s\n", k.name, median(k.took)/1000, ratio, note)
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
	for i := range callers {
		group.Go(func() {
			client := demothrift.NewChainClient(k.clients[i])
			for range calls / callers {
				ctx, cancel := context.WithTimeout(k.ctx, 10*time.Second)
				_, err := client.Call(ctx)
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

// handler answers with what an instance of the demo would.
type handler struct{}

func (handler) Call(ctx context.Context) (*demothrift.CallReply, error) {
	return &demothrift.CallReply{Visits: []*demothrift.Visit{{ServiceName: "order", Color: string(lane.From(ctx))}}}, nil
}

// dialPeers runs Apache Thrift's server and returns its clients.
func dialPeers() ([]thrift.TClient, func(), error) {
	cfg := &thrift.TConfiguration{}
	socket, err := thrift.NewTServerSocket("127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := thrift.NewTSimpleServer4(demothrift.NewChainProcessor(handler{}), socket,
		thrift.NewTTransportFactory(), thrift.NewTHeaderProtocolFactoryConf(cfg))
	if err := server.Listen(); err != nil {
		return nil, nil, err
	}
	go func() { _ = server.Serve() }()
	var clients []thrift.TClient
	var transports []thrift.TTransport
	stop := func() {
		for _, t := range transports {
			_ = t.Close()
		}
		_ = server.Stop()
	}
	for range callers {
		transport := thrift.NewTSocketFromAddrConf(socket.Addr(), cfg)
		if err := transport.Open(); err != nil {
			stop()
			return nil, nil, err
		}
		transports = append(transports, transport)
		protocol := thrift.NewTHeaderProtocolConf(transport, cfg)
		clients = append(clients, thrift.NewTStandardClient(protocol, protocol))
	}
	return clients, stop, nil
}

// dialLanes has a baseline and lanes beside it, all of whose instances are one server.
func dialLanes() ([]thrift.TClient, func(), error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	server := lanethrift.NewServer(listener, demothrift.NewChainProcessor(handler{}))
	go func() { _ = server.Serve() }()
	in := lane.Input{Lanes: []lane.Lane{{Name: "empty", Generation: 1, State: lane.Ready}}}
	add := func(name string, of lane.Name, generation uint64) {
		in.Instances = append(in.Instances, &lane.Instance{
			Service: "order", Name: name, Lane: of, Generation: generation, State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.Thrift, Address: listener.Addr().String()}},
		})
	}
	add("order-0", lane.Baseline, 0)
	for i := range lanes {
		name := lane.Name(fmt.Sprintf("lane-%d", i))
		in.Lanes = append(in.Lanes, lane.Lane{Name: name, Generation: 1, State: lane.Ready})
		add("in-"+string(name), name, 1)
	}
	client := lanethrift.NewClient(still{lane.NewSnapshot(in)}, "order")
	stop := func() {
		_ = client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}
	return slices.Repeat([]thrift.TClient{client}, callers), stop, nil
}

// still is a directory in which nothing changes.
type still struct{ snapshot *lane.Snapshot }

func (s still) Snapshot() *lane.Snapshot         { return s.snapshot }
func (still) Need(context.Context, string) error { return nil }
func (still) Subscribe(func()) func()            { return func() {} }
func (still) Process() lane.Name                 { return lane.Baseline }
func (still) Used(lane.Name)                     {}
