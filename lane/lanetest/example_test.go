package lanetest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// A lane's consumer gets the messages of its lane, and the baseline's gets the rest: what
// sends and what consumes is tested in one process, without a server.
func Example() {
	ctx := context.Background()
	control := lanetest.OpenControl(1) // in a test: NewControl(t)
	defer control.Close()
	control.AddLane("green")
	engine := consume.NewMemory(consume.MemoryConfig{})

	// start is what a program does when it starts, but for where control plane and engine are.
	got := make(chan string)
	start := func(instance, in string) (*laneclient.Client, *consume.Consumer) {
		cfg := control.Config() // in a program: laneclient.FromEnv()
		cfg.Service, cfg.Instance, cfg.Lane, cfg.NoListen = "billing", instance, in, true
		lc, err := laneclient.Dial(ctx, cfg)
		if err != nil {
			log.Fatal(err)
		}
		c, err := consume.Run(ctx, engine, lc, "orders", "billing", func(ctx context.Context, d *consume.Delivery) error {
			got <- fmt.Sprintf("%s has %s, color %q", instance, d.Value, lane.From(ctx))
			return nil
		}, consume.WithPartitions(1))
		if err != nil {
			log.Fatal(err)
		}
		control.AwaitConsumer("billing", "orders", lane.Name(in))
		return lc, c
	}
	base, c1 := start("billing-1", "")
	green, c2 := start("billing-2", "green")

	producer := consume.NewProducer(engine, base)
	for _, ctx := range []context.Context{ctx, lane.With(ctx, "green")} {
		if err := producer.Send(ctx, consume.Outgoing{Topic: "orders", Value: []byte("an order")}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-got)
	}
	_ = c2.Close(ctx)
	_ = green.Close()
	if err := producer.Send(lane.With(ctx, "green"), consume.Outgoing{Topic: "orders", Value: []byte("another")}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(<-got)
	_ = c1.Close(ctx)
	_ = base.Close()
	// Output:
	// billing-1 has an order, color ""
	// billing-2 has an order, color "green"
	// billing-1 has another, color "green"
}

// A Directory stands in for the control plane's client where code only routes.
func ExampleDirectory() {
	d := lanetest.NewDirectory(
		[]lane.Lane{{Name: "green"}},
		&lane.Instance{Service: "order", Name: "o1", Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}}},
		&lane.Instance{Service: "order", Name: "o2", Lane: "green", Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:2"}}},
	)
	fmt.Println(lane.Pick(d.Snapshot(), "order", "green", lane.HTTP).Targets[0].Name)
	d.Remove("order", "o2")
	fmt.Println(lane.Pick(d.Snapshot(), "order", "green", lane.HTTP).Targets[0].Name)
	// Output:
	// o2
	// o1
}

// A Control is a control plane whose outages are under the test's control.
func ExampleControl() {
	control := lanetest.OpenControl(1) // in a test: NewControl(t)
	defer control.Close()
	control.AddInstance("order", "o1", "", "127.0.0.1:1")
	cfg := control.Config()
	cfg.All = true
	lc, err := laneclient.Dial(context.Background(), cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lc.Close()
	control.Stop()
	fmt.Println(lane.Pick(lc.Snapshot(), "order", "", lane.HTTP).Reason)
	// Output: plain
}
