package lane_test

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// demo is a baseline of two services and a lane "green" that has one of them.
func demo() *lane.Snapshot {
	instance := func(service, name string, of lane.Name, generation uint64) *lane.Instance {
		return &lane.Instance{
			Service: service, Name: name, Lane: of, Generation: generation, State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: name + ".internal:80"}},
		}
	}
	return lane.NewSnapshot(lane.Input{
		Lanes: []lane.Lane{{Name: "green", Generation: 1, State: lane.Ready}},
		Instances: []*lane.Instance{
			instance("order", "order-1", lane.Baseline, 0),
			instance("order", "order-g", "green", 1),
			instance("billing", "billing-1", lane.Baseline, 0),
		},
	})
}

func ExamplePick() {
	s := demo()
	for _, color := range []lane.Name{lane.Baseline, "green", "typo", "strict-load"} {
		for _, service := range []string{"order", "billing"} {
			c := lane.Pick(s, service, color, lane.HTTP)
			if err := c.Err(); err != nil {
				fmt.Printf("%q %s: %v\n", color, service, err)
				continue
			}
			fmt.Printf("%q %s: %s, because %s\n", color, service, c.Targets[0].Name, c.Reason)
		}
	}
	// Output:
	// "" order: order-1, because plain
	// "" billing: billing-1, because plain
	// "green" order: order-g, because lane-instance
	// "green" billing: billing-1, because baseline-fallback
	// "typo" order: order-1, because unknown-color
	// "typo" billing: billing-1, because unknown-color
	// "strict-load" order: no instance of order in strict lane strict-load
	// "strict-load" billing: no instance of billing in strict lane strict-load
}

func ExampleBalancer() {
	b := lane.NewBalancer(lane.RoundRobin)
	c := lane.Pick(demo(), "order", "green", lane.HTTP)
	target := b.Next(c, time.Now(), nil)
	fmt.Println("send to", target.Address)
	b.Done(target, lane.Success, time.Now())
	// Output: send to order-g.internal:80
}

func ExampleInject() {
	h := http.Header{"Baggage": {"user=alice"}}
	lane.Inject(h, "green")
	fmt.Println(h.Get(lane.Header))
	fmt.Println(h.Get(lane.BaggageHeader))
	color, _ := lane.Extract(h)
	fmt.Println(color)
	// Output:
	// green
	// user=alice,v-traffic-lane=green
	// green
}

func ExampleOutgoing() {
	const process = "blue" // LANEWAY_LANE
	ctx := context.Background()
	fmt.Printf("%q\n", lane.Outgoing(ctx, process))
	fmt.Printf("%q\n", lane.Outgoing(lane.With(ctx, "green"), process))
	fmt.Printf("%q\n", lane.Outgoing(lane.Plain(ctx), process))
	// Output:
	// "blue"
	// "green"
	// ""
}

func ExampleGo() {
	ctx, cancel := context.WithCancel(lane.With(context.Background(), "green"))
	done := lane.Go(ctx, func(ctx context.Context) {
		fmt.Println(lane.From(ctx), ctx.Err())
	})
	cancel() // the request is over; what it started goes on
	<-done
	// Output: green <nil>
}

func ExampleHostLabel() {
	label := lane.HostLabel("green", "api")
	fmt.Println(label + ".lane.localhost")
	color, service, _ := lane.SplitHostLabel(label)
	fmt.Println(color, service)
	// Output:
	// green--api.lane.localhost
	// green api
}

func ExampleParseHop() {
	h, err := lane.ParseHop("service=order lane=green instance=order-7f rule=host reason=lane-instance")
	fmt.Println(h.Instance, h.Reason, err)
	// Output: order-7f lane-instance <nil>
}
