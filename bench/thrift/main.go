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
	"slices"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/bench/turns"
	"github.com/laneway-dev/laneway/integrations/lanethrift"
	"github.com/laneway-dev/laneway/internal/demo/demothrift"
	"github.com/laneway-dev/laneway/lane"
)

const (
	promisedPlain   = 1.25
	promisedColored = 1.40
)

func main() {
	rounds := flag.Int("rounds", 30, "how often the kinds of call take turns")
	calls := flag.Int("calls", 8000, "calls a turn")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *calls < turns.Callers {
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
	by := func(clients []thrift.TClient) func(context.Context, int) error {
		chains := make([]*demothrift.ChainClient, len(clients))
		for i, c := range clients {
			chains[i] = demothrift.NewChainClient(c)
		}
		return func(ctx context.Context, caller int) error {
			_, err := chains[caller].Call(ctx)
			return err
		}
	}
	peer := &turns.Kind{Name: "Apache Thrift", Call: by(peers), Ctx: ctx}
	kinds := []*turns.Kind{
		peer,
		{Name: "by lane, plain", Call: by(routed), Ctx: ctx, Promised: promisedPlain},
		{Name: "by lane, colored, own instance", Call: by(routed), Ctx: lane.With(ctx, turns.OwnInstance), Promised: promisedColored},
		{Name: "by lane, colored, falls back", Call: by(routed), Ctx: lane.With(ctx, turns.FallsBack), Promised: promisedColored},
	}
	if err := turns.Take(kinds, rounds, calls); err != nil {
		return false, err
	}
	return turns.Compare(os.Stdout, kinds, peer), nil
}

// handler answers with what an instance of the demo would.
type handler struct{}

func (handler) Call(ctx context.Context) (*demothrift.CallReply, error) {
	return &demothrift.CallReply{Visits: []*demothrift.Visit{{ServiceName: turns.Service, Color: string(lane.From(ctx))}}}, nil
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
	for range turns.Callers {
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
	client := lanethrift.NewClient(turns.Directory(lane.Thrift, listener.Addr().String()), turns.Service)
	stop := func() {
		_ = client.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}
	return slices.Repeat([]thrift.TClient{client}, turns.Callers), stop, nil
}
