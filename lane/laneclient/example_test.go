package laneclient_test

import (
	"context"
	"fmt"
	"log"

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
