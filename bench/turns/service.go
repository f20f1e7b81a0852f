package turns

import (
	"context"
	"fmt"

	"github.com/laneway-dev/laneway/lane"
)

// Service is the service that is called.
const Service = "order"

// Colors of calls: one whose lane has an instance of the service, and one whose lane has none.
const (
	OwnInstance lane.Name = "lane-7"
	FallsBack   lane.Name = "empty"
)

// lanes is how many lanes have an instance each.
const lanes = 100

// Directory has the service, with an instance of the baseline at each address, and beside it
// lanes whose instances are all at the last one. Nothing in it changes.
func Directory(protocol string, addresses ...string) lane.Directory {
	in := lane.Input{Lanes: []lane.Lane{{Name: FallsBack, Generation: 1, State: lane.Ready}}}
	add := func(name string, of lane.Name, generation uint64, address string) {
		in.Instances = append(in.Instances, &lane.Instance{
			Service: Service, Name: name, Lane: of, Generation: generation, State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: protocol, Address: address}},
		})
	}
	for i, address := range addresses {
		add(fmt.Sprintf("%s-%d", Service, i), lane.Baseline, 0, address)
	}
	for i := range lanes {
		name := lane.Name(fmt.Sprintf("lane-%d", i))
		in.Lanes = append(in.Lanes, lane.Lane{Name: name, Generation: 1, State: lane.Ready})
		add("in-"+string(name), name, 1, addresses[len(addresses)-1])
	}
	return still{lane.NewSnapshot(in)}
}

// still is a directory in which nothing changes.
type still struct{ snapshot *lane.Snapshot }

func (s still) Snapshot() *lane.Snapshot         { return s.snapshot }
func (still) Need(context.Context, string) error { return nil }
func (still) Subscribe(func()) func()            { return func() {} }
func (still) Process() lane.Name                 { return lane.Baseline }
func (still) Used(lane.Name)                     {}
