package lanethrift_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/integrations/lanethrift"
	"github.com/laneway-dev/laneway/integrations/lanethrift/internal/echo"
	"github.com/laneway-dev/laneway/lane"
)

// still is a directory in which nothing changes. In a program of yours the directory is
// what laneclient.Dial returns.
type still struct{ snapshot *lane.Snapshot }

func (s still) Snapshot() *lane.Snapshot         { return s.snapshot }
func (still) Need(context.Context, string) error { return nil }
func (still) Subscribe(func()) func()            { return func() {} }
func (still) Process() lane.Name                 { return lane.Baseline }
func (still) Used(lane.Name)                     {}

type handler struct{}

func (handler) Say(ctx context.Context, text string) (*echo.Seen, error) {
	return &echo.Seen{Color: string(lane.From(ctx)), Text: text}, nil
}
func (handler) Tell(context.Context, string) error { return nil }
func (handler) Climb(_ context.Context, tree *echo.Tree) (*echo.Tree, error) {
	return tree, nil
}

// One client reaches a service in every lane: the color of a call's context decides who
// gets it.
func Example() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	server := lanethrift.NewServer(listener, echo.NewEchoProcessor(handler{}))
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()

	endpoints := []lane.Endpoint{{Protocol: lane.Thrift, Transport: lanethrift.TransportHeader, Address: listener.Addr().String()}}
	client := lanethrift.NewClient(still{lane.NewSnapshot(lane.Input{
		Lanes: []lane.Lane{{Name: "green", Generation: 1, State: lane.Ready}},
		Instances: []*lane.Instance{
			{Service: "echo", Name: "echo-1", State: lane.Ready, Endpoints: endpoints},
			{Service: "echo", Name: "echo-2", Lane: "green", Generation: 1, State: lane.Ready, Endpoints: endpoints},
		},
	})}, "echo")

	for _, color := range []lane.Name{"green", "strict-load"} {
		ctx := lane.With(context.Background(), color)
		ctx = thrift.SetHeader(ctx, lane.ExplainHeader, "1")
		ctx = thrift.SetWriteHeaderList(ctx, []string{lane.ExplainHeader})
		calls := echo.NewEchoClient(client) // for one goroutine
		seen, err := calls.Say(ctx, "hello")
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Printf("%s, seen with color %s\n", seen.Text, seen.Color)
		route := calls.LastResponseMeta_().Headers[lane.RouteHeader]
		fmt.Println(strings.Split(route, "\n")[0])
	}

	stopping, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(client.Close(), server.Shutdown(stopping), <-served)
	// Output:
	// hello, seen with color green
	// service=echo lane=green instance=echo-2 rule=trusted reason=lane-instance
	// no instance of echo in strict lane strict-load
	// <nil> <nil> lanethrift: server is closed
}
