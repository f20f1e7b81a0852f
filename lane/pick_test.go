package lane_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// registry reads a registry from lines of words, for tests that a person can read:
//
//	lane green            lane child parent=green state=draining generation=2
//	b B1                  b B2 lane=green room=west state=draining generation=1 protocol=grpc
//
// A word without "=" after the first two is not allowed. Defaults: ready, generation 1
// where a lane is given, http.
func registry(t testing.TB, room, text string) *lane.Snapshot {
	t.Helper()
	in := lane.Input{Revision: 7, Room: room}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		set := map[string]string{"state": "ready", "protocol": lane.HTTP}
		for _, w := range words[2:] {
			key, value, ok := strings.Cut(w, "=")
			if !ok {
				t.Fatalf("line %q: word %q", line, w)
			}
			set[key] = value
		}
		generation := uint64(0)
		if words[0] == "lane" || set["lane"] != "" {
			generation = 1
		}
		if set["generation"] != "" {
			if _, err := fmt.Sscan(set["generation"], &generation); err != nil {
				t.Fatal(err)
			}
		}
		if words[0] == "lane" {
			in.Lanes = append(in.Lanes, lane.Lane{
				Name: lane.Name(words[1]), Parent: lane.Name(set["parent"]),
				Generation: generation, State: lane.State(set["state"]),
			})
			continue
		}
		in.Instances = append(in.Instances, &lane.Instance{
			Service: words[0], Name: words[1], Lane: lane.Name(set["lane"]), Generation: generation,
			Room: set["room"], State: lane.State(set["state"]),
			Endpoints: []lane.Endpoint{{Protocol: set["protocol"], Address: words[1] + ":80"}},
		})
	}
	return lane.NewSnapshot(in)
}

// wantPick checks one choice, given as "reason lane targets…".
func wantPick(t *testing.T, s *lane.Snapshot, service string, color lane.Name, want string) {
	t.Helper()
	c := lane.Pick(s, service, color, lane.HTTP)
	got := string(c.Reason)
	if c.Lane != lane.Baseline {
		got += " " + string(c.Lane)
	}
	for _, target := range c.Targets {
		got += " " + target.Name
	}
	if got != want {
		t.Errorf("%s for color %q: %q, want %q", service, color, got, want)
	}
	if c.Color != color || c.Service != service { // rule 4
		t.Errorf("%s for color %q: the choice says %s, %q", service, color, c.Service, c.Color)
	}
}

func TestRule1OrdinaryLanesFallBack(t *testing.T) {
	s := registry(t, "", `
		lane green
		lane child parent=green
		lane leaf parent=child
		a A1
		a A2 lane=leaf
		b B1
		b B2 lane=green
		c C1
		d D3 lane=child
	`)
	wantPick(t, s, "a", "leaf", "lane-instance leaf A2")
	wantPick(t, s, "b", "leaf", "parent green B2")
	wantPick(t, s, "b", "child", "parent green B2")
	wantPick(t, s, "b", "green", "lane-instance green B2")
	wantPick(t, s, "c", "leaf", "baseline-fallback C1")
	wantPick(t, s, "a", "green", "baseline-fallback A1") // never down to a child
	wantPick(t, s, "d", "leaf", "parent child D3")
	wantPick(t, s, "d", "green", "none")
	wantPick(t, s, "nobody", "green", "none")
}

func TestRule1States(t *testing.T) {
	s := registry(t, "", `
		lane new state=creating
		lane going state=draining
		lane behind parent=going
		lane top
		lane middle parent=top state=draining
		lane low parent=middle
		b B1
		b B-new lane=new
		b B-going lane=going
		b B-top lane=top
		b B-middle lane=middle
		c C1 state=draining
		c C2
		d D1
		d D2 lane=top state=draining
	`)
	wantPick(t, s, "b", "new", "lane-instance new B-new")
	wantPick(t, s, "b", "going", "baseline-fallback B1")
	wantPick(t, s, "b", "behind", "baseline-fallback B1")
	wantPick(t, s, "b", "low", "parent top B-top") // over the draining one
	wantPick(t, s, "b", "middle", "parent top B-top")
	wantPick(t, s, "c", "", "plain C2")
	wantPick(t, s, "d", "top", "baseline-fallback D1")
}

func TestRule1Generations(t *testing.T) {
	s := registry(t, "", `
		lane green generation=2
		b B1
		b old lane=green generation=1
		c C1
		c old lane=green generation=1
		c new lane=green generation=2
		c future lane=green generation=3
		d D1 generation=9
	`)
	wantPick(t, s, "b", "green", "baseline-fallback B1")
	wantPick(t, s, "c", "green", "lane-instance green new")
	wantPick(t, s, "d", "green", "baseline-fallback D1")
}

func TestRule1ParentsThatDoNotExist(t *testing.T) {
	s := registry(t, "", `
		lane orphan parent=gone
		lane one parent=two
		lane two parent=three
		lane three parent=one
		lane tail parent=one
		lane self parent=self
		b B1
		c C1
		c C3 lane=three
	`)
	wantPick(t, s, "b", "orphan", "baseline-fallback B1")
	for _, color := range []lane.Name{"one", "two", "three", "tail", "self"} {
		wantPick(t, s, "b", color, "baseline-fallback B1")
	}
	for _, color := range []lane.Name{"one", "two", "tail"} {
		wantPick(t, s, "c", color, "parent three C3")
	}
	wantPick(t, s, "c", "three", "lane-instance three C3")
}

func TestRule1OwnRoomFirst(t *testing.T) {
	s := registry(t, "west", `
		lane green
		b B1 room=east
		b B2 room=west
		b B3 room=west
		b B4
		c C1 room=east lane=green
		c C2 room=west
	`)
	c := lane.Pick(s, "b", lane.Baseline, lane.HTTP)
	if c.Local != 2 {
		t.Errorf("%d targets are local, want 2", c.Local)
	}
	wantPick(t, s, "b", "", "plain B2 B3 B1 B4")
	// The lane comes before the room.
	wantPick(t, s, "c", "green", "lane-instance green C1")
}

func TestRule2StrictLanesNeverFallBack(t *testing.T) {
	s := registry(t, "", `
		lane strict-load parent=green
		lane strict-done state=ended
		lane strict-going state=draining
		lane green
		lane under parent=strict-load
		b B1
		b B2 lane=strict-load
		b B3 lane=green
		b B4 lane=strict-unknown
		b B5 lane=strict-done
		b B6 lane=strict-going
		c C1
		c C2 lane=green
		d D1 lane=strict-load generation=2
	`)
	wantPick(t, s, "b", "strict-load", "strict-instance strict-load B2")
	wantPick(t, s, "c", "strict-load", "strict-none")
	wantPick(t, s, "d", "strict-load", "strict-none")
	wantPick(t, s, "b", "strict-unknown", "strict-none") // not known (yet): the name says it
	wantPick(t, s, "b", "strict-never-heard-of", "strict-none")
	wantPick(t, s, "b", "strict-done", "strict-none")
	wantPick(t, s, "b", "strict-going", "strict-none")
	wantPick(t, s, "nobody", "strict-load", "strict-none")
	wantPick(t, s, "b", "strict-", "strict-none") // malformed, and still not the baseline
	wantPick(t, s, "b", "strict-UPPER", "strict-none")
	// A strict lane is nobody's parent.
	wantPick(t, s, "b", "under", "baseline-fallback B1")
	wantPick(t, nil, "b", "strict-load", "strict-none")
}

func TestRule3PlainGoesToTheBaseline(t *testing.T) {
	s := registry(t, "", `
		lane green
		b B1
		b B2 lane=green
		c C2 lane=green
	`)
	wantPick(t, s, "b", "", "plain B1")
	wantPick(t, s, "c", "", "none")
	wantPick(t, nil, "b", "", "none")
	wantPick(t, &lane.Snapshot{}, "b", "", "none")
}

// TestRule4ColorIsPassedOn walks the five services of the demo: whatever serves a hop, the
// next one can enter the lane again.
func TestRule4ColorIsPassedOn(t *testing.T) {
	s := registry(t, "", `
		lane green
		a A1
		b B1
		b B2 lane=green
		c C1
		d D1
		d D2 lane=green
		e E1
	`)
	color := lane.Name("green")
	var path []string
	for _, service := range []string{"a", "b", "c", "d", "e"} {
		c := lane.Pick(s, service, color, lane.HTTP)
		path = append(path, c.Targets[0].Name)
		color = c.Color
	}
	if got := strings.Join(path, " → "); got != "A1 → B2 → C1 → D2 → E1" {
		t.Errorf("path %s", got)
	}
}

func TestRule5UnknownColors(t *testing.T) {
	s := registry(t, "", `
		lane done state=ended
		lane after parent=done
		b B1
		b B2 lane=gone
		b B3 lane=done
		c C1 lane=done
	`)
	wantPick(t, s, "b", "typo", "unknown-color B1")
	wantPick(t, s, "b", "gone", "unknown-color B1") // an instance alone makes no lane
	wantPick(t, s, "b", "done", "ended-lane B1")
	wantPick(t, s, "b", "after", "baseline-fallback B1")
	wantPick(t, s, "b", "Not A Lane", "unknown-color B1")
	wantPick(t, s, "c", "typo", "none")
	wantPick(t, s, "c", "done", "none")
	wantPick(t, nil, "b", "green", "none")
}

func TestProtocols(t *testing.T) {
	s := lane.NewSnapshot(lane.Input{
		Lanes: []lane.Lane{{Name: "green", Generation: 1, State: lane.Ready}},
		Instances: []*lane.Instance{
			{Service: "b", Name: "B1", State: lane.Ready, Endpoints: []lane.Endpoint{
				{Protocol: lane.HTTP, Address: "h:1"}, {Protocol: lane.Thrift, Transport: "header", Address: "h:2"}, {Protocol: lane.HTTP, Address: "h:3"},
			}},
			{Service: "b", Name: "B2", Lane: "green", Generation: 1, State: lane.Ready, Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "h:4"}}},
			{Service: "b", Name: "B3", Lane: "green", Generation: 1, State: lane.Ready},
		},
	})
	// The lane has an instance, but none of the protocol: it falls back.
	c := lane.Pick(s, "b", "green", lane.Thrift)
	if c.Reason != lane.ReasonBaseline || len(c.Targets) != 1 || c.Targets[0].Address != "h:2" || c.Targets[0].Transport != "header" {
		t.Errorf("thrift: %s", show(c))
	}
	c = lane.Pick(s, "b", lane.Baseline, lane.HTTP)
	if len(c.Targets) != 1 || c.Targets[0].Address != "h:1" {
		t.Errorf("http: %s; want the first endpoint of the protocol, once", show(c))
	}
	if c = lane.Pick(s, "b", "green", lane.GRPC); c.Reason != lane.ReasonNone {
		t.Errorf("grpc: %s", show(c))
	}
}

func TestChoiceErr(t *testing.T) {
	s := registry(t, "", "b B1")
	for color, want := range map[lane.Name]string{
		"":            "no instance of order in the baseline",
		"green":       "no instance of order in the baseline",
		"strict-load": "no instance of order in strict lane strict-load",
	} {
		err := lane.Pick(s, "order", color, lane.HTTP).Err()
		var none *lane.NoInstanceError
		if !errors.As(err, &none) || err.Error() != want || none.Color != color || none.Service != "order" {
			t.Errorf("color %q: %v, want %q", color, err, want)
		}
	}
	if err := lane.Pick(s, "b", lane.Baseline, lane.HTTP).Err(); err != nil {
		t.Errorf("a choice with targets has the error %v", err)
	}
}

func TestSnapshotKnows(t *testing.T) {
	s := lane.NewSnapshot(lane.Input{
		Revision: 42, Services: []string{"idle"},
		Lanes: []lane.Lane{
			{Name: "green", Generation: 1, State: lane.Ready},
			{Name: "green", Generation: 2, State: lane.Draining}, // the later one wins
			{Name: lane.Baseline, State: lane.Ready},             // no lane
		},
		Instances: []*lane.Instance{
			{Service: "b", Name: "B1", State: lane.Draining, Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "h:1"}}},
			{Service: "c", Name: "C1", State: lane.Ready, Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "h:1"}}},
			{Service: "c", Name: "C1", State: lane.Ready, Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "h:2"}}},
		},
	})
	if got := fmt.Sprint(s.Services()); got != "[b c idle]" || s.Revision() != 42 {
		t.Errorf("services %s at revision %d", got, s.Revision())
	}
	for service, want := range map[string]bool{"b": true, "idle": true, "c": true, "d": false, "": false} {
		if s.HasService(service) != want {
			t.Errorf("service %q: known %v, want %v", service, !want, want)
		}
	}
	if l, ok := s.Lane("green"); !ok || l.Generation != 2 || l.State != lane.Draining {
		t.Errorf("lane green is %+v, %v", l, ok)
	}
	if _, ok := s.Lane(lane.Baseline); ok {
		t.Error("the baseline is a lane")
	}
	var addresses []string
	for target := range s.Targets("c", lane.HTTP) {
		addresses = append(addresses, target.Address)
	}
	if fmt.Sprint(addresses) != "[h:2]" {
		t.Errorf("targets of c: %v, want the later one of the same name", addresses)
	}
	var none *lane.Snapshot
	if none.Revision() != 0 || none.HasService("b") || none.Services() != nil {
		t.Error("a nil snapshot knows something")
	}
	if _, ok := none.Lane("green"); ok {
		t.Error("a nil snapshot knows a lane")
	}
	for range none.Targets("b", lane.HTTP) {
		t.Error("a nil snapshot has targets")
	}
}

func TestSnapshotAt(t *testing.T) {
	s := registry(t, "", "lane green\nb B2 lane=green")
	later := s.At(9)
	if s.Revision() != 7 || later.Revision() != 9 {
		t.Errorf("revisions %d and %d, want 7 and 9", s.Revision(), later.Revision())
	}
	wantPick(t, later, "b", "green", "lane-instance green B2")
	var none *lane.Snapshot
	if got := none.At(9).Revision(); got != 9 {
		t.Errorf("revision %d of a nil snapshot at 9", got)
	}
}

func TestTargetsStopWhenTold(t *testing.T) {
	s := registry(t, "", "lane green\nb B1\nb B2\nb B3 lane=green\nb B4 lane=green")
	for stop := 1; stop <= 4; stop++ {
		n := 0
		for range s.Targets("b", lane.HTTP) {
			if n++; n == stop {
				break
			}
		}
		if n != stop {
			t.Errorf("%d targets seen, want %d", n, stop)
		}
	}
}

// TestLaneOfManyServices: each service of a lane that has many gets its own.
func TestLaneOfManyServices(t *testing.T) {
	for _, n := range []int{1, 7, 8, 9, 16, 17, 100, 257} {
		text := "lane green\n"
		for i := range n {
			text += fmt.Sprintf("s%d b%d\n", i, i)
			if i%3 > 0 || n == 1 {
				text += fmt.Sprintf("s%d g%d lane=green\n", i, i)
			}
		}
		s := registry(t, "", text)
		for i := range n {
			if i%3 > 0 || n == 1 {
				wantPick(t, s, fmt.Sprintf("s%d", i), "green", fmt.Sprintf("lane-instance green g%d", i))
			} else {
				wantPick(t, s, fmt.Sprintf("s%d", i), "green", fmt.Sprintf("baseline-fallback b%d", i))
			}
		}
	}
}

// TestDeepChainIsLinear: a snapshot of lanes that hang one below the other costs what as
// many lanes side by side do. A chain kept per lane would take gigabytes.
func TestDeepChainIsLinear(t *testing.T) {
	const depth = 20_000
	in := lane.Input{Instances: []*lane.Instance{{Service: "b", Name: "B1", State: lane.Ready, Endpoints: []lane.Endpoint{{Protocol: lane.HTTP}}}}}
	for n := range depth {
		l := lane.Lane{Name: lane.Name(fmt.Sprintf("lane-%d", n)), Generation: 1, State: lane.Ready}
		if n > 0 {
			l.Parent = in.Lanes[n-1].Name
		}
		in.Lanes = append(in.Lanes, l)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := lane.NewSnapshot(in)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 1000*depth {
		t.Errorf("%d bytes for %d lanes", used, depth)
	}
	wantPick(t, s, "b", in.Lanes[depth-1].Name, "baseline-fallback B1")
}

func TestPickDoesNotAllocate(t *testing.T) {
	s := registry(t, "west", `
		lane green
		lane child parent=green
		lane done state=ended
		lane strict-load
		b B1 room=west
		b B2 lane=green
		c C1 lane=strict-load
	`)
	for _, color := range []lane.Name{"", "green", "child", "done", "typo", "strict-load", "strict-typo"} {
		for _, service := range []string{"b", "c", "nobody"} {
			if n := testing.AllocsPerRun(100, func() { lane.Pick(s, service, color, lane.HTTP) }); n > 0 {
				t.Errorf("%s for color %q: %v allocations", service, color, n)
			}
		}
	}
}

// TestNewSnapshotIsQuick bounds what a change of the registry costs its readers.
func TestNewSnapshotIsQuick(t *testing.T) {
	in := wide(10_000)
	began := time.Now()
	lane.NewSnapshot(in)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a snapshot of 10,000 lanes took %v", took)
	}
}

// wide is a registry with n lanes of one instance each, of two services, and five
// instances of each in the baseline.
func wide(n int) lane.Input {
	in := lane.Input{Room: "west"}
	add := func(service, name string, in2 lane.Name, generation uint64) {
		in.Instances = append(in.Instances, &lane.Instance{
			Service: service, Name: name, Lane: in2, Generation: generation, Room: "west", State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: name + ":80"}},
		})
	}
	for i := range 5 {
		add("order", fmt.Sprintf("order-%d", i), lane.Baseline, 0)
		add("billing", fmt.Sprintf("billing-%d", i), lane.Baseline, 0)
	}
	for i := range n {
		name := lane.Name(fmt.Sprintf("lane-%d", i))
		in.Lanes = append(in.Lanes, lane.Lane{Name: name, Generation: 1, State: lane.Ready})
		add([]string{"order", "billing"}[i%2], "in-"+string(name), name, 1)
	}
	return in
}
