package laneclient_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// A process registers itself in a lane, and another one finds it.
func Example() {
	control := lanetest.OpenControl(1) // in a program: the environment names the real one, see FromEnv
	defer control.Close()
	control.AddLane("green")
	ctx := context.Background()

	cfg := control.Config()
	cfg.Service, cfg.Instance, cfg.Lane = "order", "order-7f", "green"
	cfg.Endpoints = []laneclient.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:8080"}}
	order, err := laneclient.Dial(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer order.Close()

	caller, err := laneclient.Dial(ctx, control.Config())
	if err != nil {
		log.Fatal(err)
	}
	defer caller.Close()
	if err := caller.Need(ctx, "order"); err != nil {
		log.Fatal(err)
	}
	choice := lane.Pick(caller.Snapshot(), "order", "green", lane.HTTP)
	fmt.Println(choice.Reason, choice.Targets[0].Name, choice.Targets[0].Address)
	// Output: lane-instance order-7f 127.0.0.1:8080
}

// A process that is asked who would get its calls: here by the SDK, as `laneway explain
// call --service pay --at order/order-7f` does.
func ExampleConfig_adminListen() {
	control := lanetest.OpenControl(1)
	defer control.Close()
	control.AddInstance("pay", "pay-1", "", "127.0.0.1:9000")
	ctx := context.Background()

	cfg := control.Config() // in a program: FromEnv()
	cfg.Service, cfg.Instance, cfg.NoListen = "order", "order-7f", true
	cfg.AdminListen = "127.0.0.1:0"
	order, err := laneclient.Dial(ctx, cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer order.Close()

	node := laneclient.NewAPI(laneclient.Config{Control: []string{"http://" + order.Admin()}})
	defer node.Close()
	e, err := laneclient.ExplainCall(ctx, node, "pay", "green", lane.HTTP)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(e.Node, "sends it to", e.Instances[0].Name, "by reason of", e.Reason)
	// Output: order-7f sends it to pay-1 by reason of unknown-color
}

// A program with a server of its own mounts the handler there, and says where that is.
func ExampleClient_AdminHandler() {
	control := lanetest.OpenControl(1)
	defer control.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	cfg := control.Config()
	cfg.Admin = l.Addr().String()
	lc, err := laneclient.Dial(context.Background(), cfg)
	if err != nil {
		log.Fatal(err)
	}
	defer lc.Close()

	mux := http.NewServeMux()
	mux.Handle("/v1/explain", lc.AdminHandler())
	mux.Handle("/healthz", lc.AdminHandler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close()

	resp, err := http.Get("http://" + lc.Admin() + "/healthz")
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	http.DefaultClient.CloseIdleConnections()
	// Output: 200 OK
}

// Single calls need no session.
func ExampleAPI() {
	control := lanetest.OpenControl(1)
	defer control.Close()
	api := laneclient.NewAPI(control.Config())
	ctx := context.Background()

	green, err := laneclient.CreateLane(ctx, api, &laneclient.Lane{Meta: laneclient.Meta{Name: "green"}, Owner: "ann"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(green.Name, green.Owner, green.Generation)
	_, err = laneclient.Get[laneclient.Lane](ctx, api, "blue")
	fmt.Println(laneclient.IsNotFound(err))
	// Output:
	// green ann 1
	// true
}
