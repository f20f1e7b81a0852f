package laneclient

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// routes is all that a snapshot decides for a few services and colors, in words.
func routes(s *lane.Snapshot) string {
	var b strings.Builder
	fmt.Fprintln(&b, s.Services())
	for _, service := range []string{"order", "billing", "user"} {
		for _, color := range []lane.Name{"", "aaa", "bbb", "ccc", "strict-x"} {
			for _, protocol := range []string{lane.HTTP, lane.GRPC} {
				c := lane.Pick(s, service, color, protocol)
				fmt.Fprintf(&b, "%s %q %s: %q %s %d", service, color, protocol, c.Lane, c.Reason, c.Local)
				for _, t := range c.Targets {
					fmt.Fprintf(&b, " %s@%s*%d", t.Name, t.Address, t.Weight)
				}
				fmt.Fprintln(&b)
			}
		}
		var targets []string
		for t := range s.Targets(service, lane.HTTP) {
			targets = append(targets, t.Name+"@"+t.Address)
		}
		slices.Sort(targets)
		fmt.Fprintln(&b, targets)
	}
	return b.String()
}

// randomChange is one event as a watch has it.
func randomChange(r *rand.Rand, revision uint64) change {
	word := func(words ...string) string { return words[r.IntN(len(words))] }
	e := Event{Type: EventPut, Revision: revision}
	if r.IntN(3) == 0 {
		e.Type = EventDelete
	}
	service, laneName := word("order", "billing", "user"), word("aaa", "bbb", "ccc", "strict-x")
	var obj any
	switch r.IntN(6) {
	case 0, 1:
		e.Kind, e.Name = KindLanes, laneName
		obj = &Lane{
			Meta: Meta{Name: laneName, Revision: revision}, Parent: word("", "aaa", "bbb"), Generation: uint64(1 + r.IntN(2)),
			State: word("ready", "ready", "draining", "ended"), LastUse: time.Unix(int64(revision), 0),
		}
	case 2:
		e.Kind, e.Name = KindServices, service
		obj = &Service{Meta: Meta{Name: service}}
	default:
		name := word("i1", "i2", "i3")
		e.Kind, e.Name = KindInstances, service+"/"+name
		i := &Instance{
			Meta: Meta{Name: name, Revision: revision}, Service: service, Lane: word("", "", laneName), Generation: uint64(1 + r.IntN(2)),
			Room: word("", "east", "west"), State: word("ready", "ready", "ready", "draining"), Weight: r.IntN(2), Static: r.IntN(4) == 0,
			Health: word("", HealthPassing, HealthFailing), Since: time.Unix(int64(revision), 0),
		}
		if i.Lane == "" {
			i.Generation = 0
		}
		for range 1 + r.IntN(2) {
			i.Endpoints = append(i.Endpoints, Endpoint{Protocol: word(lane.HTTP, lane.GRPC), Address: fmt.Sprint(r.IntN(9))})
		}
		obj = i
	}
	if e.Type == EventDelete {
		obj = nil
	}
	return change{Event: e, obj: obj}
}

// TestRoutingModel feeds models with random changes, has them hold, inherit and let go, and
// goes on from clones: the snapshot of each view is what one of the whole would be, and
// older views stay as they were.
func TestRoutingModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		room := []string{"", "east"}[r.IntN(2)]
		selects := strings.Join([]string{selectInstances}, selectSeparator)
		m, now := newModel("s", selects), time.Unix(1, 0)
		view := &View{}
		var other *model
		var views []*View
		var were []string
		for step := range uint64(150) {
			if err := m.apply(randomChange(r, step)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(time.Second)
			switch r.IntN(20) {
			case 0: // two that go on from the same, in turns
				other = m.clone()
			case 3, 4, 5:
				if other != nil {
					m, other = other, m
				}
			case 1: // read anew, in another session: some of what was there is held
				next := newModel("t", selects)
				for range r.IntN(6) {
					if err := next.apply(randomChange(r, step)); err != nil {
						t.Fatal(err)
					}
				}
				next.markAll()
				if r.IntN(2) == 0 {
					next.hold(m, now.Add(10*time.Second))
				} else {
					next.inherit(m)
				}
				m = next
			case 2:
				m.release(now)
			}
			if r.IntN(3) > 0 || !m.dirty() {
				continue
			}
			next := *view
			m.fill(&next, room)
			view = &next
			got, want := routes(view.Snapshot), routes(m.routing.whole(m, room))
			if got != want {
				t.Fatalf("seed %d, step %d: got\n%s\nwant\n%s", seed, step, got, want)
			}
			instances := 0
			for name, i := range view.Instances.All() {
				if m.inst.Get(name) != i {
					t.Fatalf("seed %d, step %d: %s is not the model's", seed, step, name)
				}
				instances++
			}
			if instances != m.inst.Len() || view.Held != len(m.held) || view.Lanes.Len() != m.lanes.Len() || view.Services.Len() != m.services.Len() {
				t.Fatalf("seed %d, step %d: the view has other objects than the model", seed, step)
			}
			views, were = append(views, view), append(were, got)
		}
		for n, v := range views {
			if got := routes(v.Snapshot); got != were[n] {
				t.Fatalf("seed %d: view %d was\n%s\nand is\n%s", seed, n, were[n], got)
			}
		}
	}
}

// TestNamesThatDiffer: objects whose own names are not those of their events do no harm.
func TestNamesThatDiffer(t *testing.T) {
	t.Parallel()
	m, v := newModel("s", selectInstances), &View{}
	apply := func(e Event, obj any) {
		t.Helper()
		if err := m.apply(change{Event: e, obj: obj}); err != nil {
			t.Fatal(err)
		}
		m.fill(v, "")
		if got, want := routes(v.Snapshot), routes(m.routing.whole(m, "")); got != want {
			t.Fatalf("after %+v: got\n%s\nwant\n%s", e, got, want)
		}
	}
	at := func(service, name string) *Instance {
		return &Instance{Meta: Meta{Name: name}, Service: service, State: "ready", Endpoints: []Endpoint{{Protocol: lane.HTTP, Address: name}}}
	}
	put, gone := Event{Type: EventPut, Kind: KindInstances, Name: "order/o1"}, Event{Type: EventDelete, Kind: KindInstances, Name: "order/o1"}
	apply(put, at("order", "another"))
	apply(put, at("billing", "o1"))
	apply(put, at("order", "o1"))
	apply(put, at("user", "u1"))
	apply(gone, nil)
	apply(gone, nil)
	put, gone = Event{Type: EventPut, Kind: KindLanes, Name: "aaa"}, Event{Type: EventDelete, Kind: KindLanes, Name: "aaa"}
	apply(put, &Lane{Meta: Meta{Name: "bbb"}, State: "ready"})
	apply(put, &Lane{Meta: Meta{Name: "ccc"}, State: "ready"})
	apply(gone, nil)
}
