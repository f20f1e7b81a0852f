package lane_test

import (
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

func TestTargetSame(t *testing.T) {
	target := func(service, name, protocol, address string) *lane.Target {
		return &lane.Target{
			Instance: &lane.Instance{Service: service, Name: name, State: lane.Ready},
			Endpoint: lane.Endpoint{Protocol: protocol, Address: address},
		}
	}
	one := target("order", "o1", lane.HTTP, "h:1")
	later := target("order", "o1", lane.HTTP, "h:1") // of another snapshot
	later.State, later.Weight, later.Room, later.Lane, later.Generation = lane.Draining, 7, "east", "green", 2
	var none *lane.Target
	for name, tc := range map[string]struct {
		a, b *lane.Target
		want bool
	}{
		"itself":           {one, one, true},
		"of a later time":  {one, later, true},
		"other service":    {one, target("cart", "o1", lane.HTTP, "h:1"), false},
		"other name":       {one, target("order", "o2", lane.HTTP, "h:1"), false},
		"other protocol":   {one, target("order", "o1", lane.GRPC, "h:1"), false},
		"other address":    {one, target("order", "o1", lane.HTTP, "h:2"), false},
		"none":             {one, nil, false},
		"none of none":     {none, nil, true},
		"none with no one": {none, target("", "", "", ""), false},
	} {
		if tc.a.Same(tc.b) != tc.want || tc.b.Same(tc.a) != tc.want {
			t.Errorf("%s: got %v and %v, want %v", name, tc.a.Same(tc.b), tc.b.Same(tc.a), tc.want)
		}
	}
}

func TestTakesNew(t *testing.T) {
	for state, want := range map[lane.State]bool{
		lane.Creating: true, lane.Ready: true, lane.Draining: false, lane.Ended: false, "": false, "paused": false,
	} {
		if got := state.TakesNew(); got != want {
			t.Errorf("%q: got %v, want %v", state, got, want)
		}
		s := lane.NewSnapshot(lane.Input{
			Lanes: []lane.Lane{{Name: "green", Generation: 1, State: state}},
			Instances: []*lane.Instance{{
				Service: "order", Name: "o1", Lane: "green", Generation: 1, State: lane.Ready,
				Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "h:1"}},
			}},
		})
		if got := len(lane.Pick(s, "order", "green", lane.HTTP).Targets) > 0; got != want {
			t.Errorf("a lane that is %q serves: %v, want %v", state, got, want)
		}
	}
}
