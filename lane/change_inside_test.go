package lane

import (
	"fmt"
	"testing"
)

// TestNothingIsLeft takes everything out again that was put in: what is gone must not take
// memory.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	in := Input{Services: []string{"order", "billing"}}
	var gone Changes
	for n := range 300 {
		name := Name(fmt.Sprintf("lane-%d", n))
		if n%3 > 0 {
			in.Lanes = append(in.Lanes, Lane{Name: name, Generation: 1, State: Ready})
		}
		in.Instances = append(in.Instances, &Instance{
			Service: fmt.Sprintf("service-%d", n%7), Name: string(name), Lane: name, Generation: 1, State: Ready,
			Endpoints: []Endpoint{{Protocol: HTTP}, {Protocol: fmt.Sprint(n % 5)}},
		})
		gone.LanesGone = append(gone.LanesGone, name)
		gone.InstancesGone = append(gone.InstancesGone, InstanceID{fmt.Sprintf("service-%d", n%7), string(name)})
	}
	gone.ServicesGone = in.Services
	s := NewSnapshot(in).With(gone)
	if s.lanes.Len() != 0 || s.services.Len() != 0 {
		t.Errorf("%d lanes and %d services are left", s.lanes.Len(), s.services.Len())
	}
	// Instances alone go: lanes stay, without sets, and services that are named, without pools.
	gone.LanesGone, gone.ServicesGone = nil, nil
	s = NewSnapshot(in).With(gone)
	if s.lanes.Len() != len(in.Lanes) || s.services.Len() != 2 {
		t.Errorf("%d lanes and %d services, want %d and 2", s.lanes.Len(), s.services.Len(), len(in.Lanes))
	}
	for name, l := range s.lanes.All() {
		if len(l.sets)+len(l.members) > 0 {
			t.Errorf("%s has %d sets of %d members", name, len(l.sets), len(l.members))
		}
	}
	// Lanes alone go: their targets no longer count, and pools of nobody are gone.
	s = NewSnapshot(in).With(Changes{LanesGone: names(in.Lanes)})
	for name, v := range s.services.All() {
		if len(v.pools) > 0 {
			t.Errorf("%s has %d pools of nobody", name, len(v.pools))
		}
	}
}

func names(lanes []Lane) []Name {
	var out []Name
	for _, l := range lanes {
		out = append(out, l.Name)
	}
	return out
}
