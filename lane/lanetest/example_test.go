package lanetest_test

import (
	"context"
	"fmt"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

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
