package lane_test

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// world is a registry that changes at random, and the changes since the last snapshot.
type world struct {
	r         *rand.Rand
	room      string
	revision  uint64
	services  map[string]bool
	lanes     map[lane.Name]lane.Lane
	instances map[lane.InstanceID]*lane.Instance
	changes   lane.Changes
}

func newWorld(r *rand.Rand) *world {
	return &world{
		r: r, room: []string{"", "east", "west"}[r.IntN(3)], services: map[string]bool{},
		lanes: map[lane.Name]lane.Lane{}, instances: map[lane.InstanceID]*lane.Instance{},
	}
}

// input is the whole of it.
func (w *world) input() lane.Input {
	return lane.Input{
		Revision: w.revision, Room: w.room, Services: slices.Sorted(maps.Keys(w.services)),
		Lanes: slices.Collect(maps.Values(w.lanes)), Instances: slices.Collect(maps.Values(w.instances)),
	}
}

// take returns what has changed since the last call.
func (w *world) take() lane.Changes {
	w.revision++
	c := w.changes
	c.Revision, w.changes = w.revision, lane.Changes{}
	return c
}

// change makes one change, or none. What is put and then gone is left to the order that
// Changes has: it is not put in the same one.
func (w *world) change() {
	some := randomInput(w.r) // as often wrong as right
	switch n := w.r.IntN(12); {
	case n < 3 && len(some.Lanes) > 0:
		l := some.Lanes[0]
		if l.Name != lane.Baseline {
			w.lanes[l.Name] = l
		}
		w.changes.Lanes = append(w.changes.Lanes, l)
	case n == 3:
		for name := range w.lanes {
			if !slices.ContainsFunc(w.changes.Lanes, func(l lane.Lane) bool { return l.Name == name }) {
				delete(w.lanes, name)
				w.changes.LanesGone = append(w.changes.LanesGone, name)
			}
			return
		}
	case n < 9 && len(some.Instances) > 0:
		i := some.Instances[0]
		w.instances[lane.InstanceID{Service: i.Service, Name: i.Name}] = i
		w.changes.Instances = append(w.changes.Instances, i)
	case n == 9:
		for id, i := range w.instances {
			if w.r.IntN(2) == 0 { // once more, after it has gone or without
				w.changes.Instances = append(w.changes.Instances, i)
				if w.r.IntN(2) == 0 {
					w.changes.InstancesGone = append(w.changes.InstancesGone, id)
				}
			} else if !slices.ContainsFunc(w.changes.Instances, func(o *lane.Instance) bool { return o.Service == id.Service && o.Name == id.Name }) {
				delete(w.instances, id)
				w.changes.InstancesGone = append(w.changes.InstancesGone, id)
			}
			return
		}
	case n == 10:
		s := []string{"a", "none"}[w.r.IntN(2)]
		w.services[s] = true
		w.changes.Services = append(w.changes.Services, s)
	case n == 11 && len(w.changes.Services) == 0:
		s := []string{"a", "b", "none"}[w.r.IntN(3)]
		delete(w.services, s)
		w.changes.ServicesGone = append(w.changes.ServicesGone, s)
	}
}

// picture is all that can be seen of a snapshot, in words.
func picture(s *lane.Snapshot, pick func(service string, color lane.Name, protocol string) lane.Choice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d, services %v\n", s.Revision(), s.Services())
	for _, service := range []string{"a", "b", "none"} {
		fmt.Fprintf(&b, "%s %v\n", service, s.HasService(service))
		for _, protocol := range []string{"http", "grpc"} {
			for _, color := range append(slices.Compact(slices.Clone(randomNames)), "unknown", "strict-unknown") {
				fmt.Fprintln(&b, show(pick(service, color, protocol)))
			}
			// All that count: what each lane's own color gets from that lane.
			counting := slices.Clone(pick(service, lane.Baseline, protocol).Targets)
			for _, name := range slices.Compact(slices.Clone(randomNames))[1:] {
				if c := pick(service, name, protocol); c.Lane == name {
					counting = append(counting, c.Targets...)
				}
			}
			if got, want := sorted(slices.Values(counting)), sorted(s.Targets(service, protocol)); got != want {
				fmt.Fprintf(&b, "targets are %s, those that count %s\n", got, want)
			}
		}
	}
	for _, name := range randomNames {
		l, known := s.Lane(name)
		fmt.Fprintf(&b, "%+v %v\n", l, known)
	}
	return b.String()
}

func sorted(targets iter.Seq[*lane.Target]) string {
	var words []string
	for t := range targets {
		words = append(words, fmt.Sprintf("%s %s %q %s", t.Service, t.Name, t.Lane, t.Address))
	}
	slices.Sort(words)
	return strings.Join(words, ", ")
}

func pictureOf(s *lane.Snapshot) string {
	return picture(s, func(service string, color lane.Name, protocol string) lane.Choice {
		return lane.Pick(s, service, color, protocol)
	})
}

// TestChangesModel makes random changes one after the other, and holds every snapshot to
// one that is built from the whole, to the rules as a reader would write them, and in the
// end to what it was when it was new: nobody changes a snapshot that others have.
func TestChangesModel(t *testing.T) {
	t.Parallel()
	for n := range uint64(*cases / 4000) {
		seed := *seed + n
		w := newWorld(rand.New(rand.NewPCG(seed, 1)))
		s := lane.NewSnapshot(lane.Input{Room: w.room})
		var all []*lane.Snapshot
		var were []string
		for step := range 40 {
			for range 1 + w.r.IntN(4) {
				w.change()
			}
			changes := w.take()
			s = s.With(changes)
			in := w.input()
			whole := lane.NewSnapshot(in)
			got, want := pictureOf(s), pictureOf(whole)
			if got != want || strings.Contains(got, "targets are") {
				t.Fatalf("seed %d, step %d: after %+v\ngot  %s\nwant %s", seed, step, changes, got, want)
			}
			naive := picture(whole, func(service string, color lane.Name, protocol string) lane.Choice {
				return naivePick(in, service, color, protocol)
			})
			if got != naive {
				t.Fatalf("seed %d, step %d: after %+v\ngot  %s\nwant, by the rules, %s", seed, step, changes, got, naive)
			}
			all, were = append(all, s), append(were, got)
			if w.r.IntN(8) == 0 { // go on from an older one, whose changes are made up for
				s = rewound(all[w.r.IntN(len(all))], in)
			}
		}
		for i := range all {
			if got := pictureOf(all[i]); got != were[i] {
				t.Fatalf("seed %d: snapshot %d was\n%s\nand is\n%s", seed, i, were[i], got)
			}
		}
	}
}

// rewound returns a snapshot of the whole that is made from an older one.
func rewound(old *lane.Snapshot, in lane.Input) *lane.Snapshot {
	c := lane.Changes{Revision: in.Revision, Services: in.Services, Lanes: in.Lanes, Instances: in.Instances}
	c.ServicesGone = old.Services()
	c.LanesGone = randomNames[2:]
	for _, service := range []string{"a", "b"} {
		for n := range 8 {
			c.InstancesGone = append(c.InstancesGone, lane.InstanceID{Service: service, Name: fmt.Sprintf("i%d", n+1)})
		}
	}
	return old.With(c)
}

// TestChangesKeepWhatIsTheSame: what balancers and pools keep by a set or a target stays
// theirs while others come and go.
func TestChangesKeepWhatIsTheSame(t *testing.T) {
	t.Parallel()
	in := wide(20)
	s := lane.NewSnapshot(in)
	own, plain := lane.Pick(s, "order", "lane-4", lane.HTTP), lane.Pick(s, "order", lane.Baseline, lane.HTTP)
	for n := range 10 {
		name := lane.Name(fmt.Sprintf("new-%d", n))
		s = s.With(lane.Changes{
			Lanes: []lane.Lane{{Name: name, Generation: 1, State: lane.Ready}, {Name: "lane-4", Generation: 1, State: lane.Ready}},
			Instances: []*lane.Instance{
				in.Instances[0], // once more
				{
					Service: "order", Name: "in-" + string(name), Lane: name, Generation: 1, State: lane.Ready,
					Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
				},
				{
					Service: "billing", Name: "in-" + string(name), Lane: "lane-4", Generation: 1, State: lane.Ready,
					Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
				},
				{
					Service: "order", Name: "by-grpc", State: lane.Ready, Weight: n,
					Endpoints: []lane.Endpoint{{Protocol: lane.GRPC, Address: "127.0.0.1:1"}},
				},
			},
		})
		if c := lane.Pick(s, "order", name, lane.HTTP); c.Reason != lane.ReasonLane {
			t.Errorf("%s is served by %s", name, show(c))
		}
	}
	for _, before := range []lane.Choice{own, plain} {
		after := lane.Pick(s, "order", before.Color, lane.HTTP)
		if &before.Targets[0] != &after.Targets[0] {
			t.Errorf("the targets of color %q have changed: %s", before.Color, show(after))
		}
	}
}

// TestChangesAtOnce makes snapshots from one while others pick from it; the race detector
// looks on.
func TestChangesAtOnce(t *testing.T) {
	t.Parallel()
	s := lane.NewSnapshot(wide(200))
	before := show(lane.Pick(s, "order", "lane-0", lane.HTTP))
	var group sync.WaitGroup
	for n := range 4 {
		group.Go(func() {
			for m := range 50 {
				name := lane.Name(fmt.Sprintf("lane-%d", (7*m)%200))
				next := s.With(lane.Changes{LanesGone: []lane.Name{name}, Services: []string{fmt.Sprint(n)}, InstancesGone: []lane.InstanceID{{Service: "order", Name: "order-0"}}})
				if _, known := next.Lane(name); known {
					t.Errorf("%s is still there", name)
				}
				lane.Pick(s, "order", name, lane.HTTP)
			}
		})
	}
	group.Wait()
	if after := show(lane.Pick(s, "order", "lane-0", lane.HTTP)); after != before {
		t.Errorf("was %s\nand is %s", before, after)
	}
}

// TestCircles picks by colors whose parents run in circles of all lengths.
func TestCircles(t *testing.T) {
	t.Parallel()
	for tail := range 6 {
		for circle := range 9 {
			var in lane.Input
			n := tail + circle + 1
			for i := range n {
				next := i + 1
				if next == n {
					next = tail
				}
				in.Lanes = append(in.Lanes, lane.Lane{
					Name: lane.Name(fmt.Sprintf("l%02d", i)), Parent: lane.Name(fmt.Sprintf("l%02d", next)), Generation: 1, State: lane.Ready,
				})
			}
			add := func(name string, of lane.Name) {
				in.Instances = append(in.Instances, &lane.Instance{
					Service: "order", Name: name, Lane: of, Generation: 1, State: lane.Ready,
					Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
				})
			}
			add("base", lane.Baseline)
			in.Lanes = append(in.Lanes, lane.Lane{Name: "apart", Generation: 1, State: lane.Ready})
			add("apart", "apart") // else no lane would be looked at
			if c := lane.Pick(lane.NewSnapshot(in), "order", "l00", lane.HTTP); c.Reason != lane.ReasonBaseline {
				t.Errorf("%d lanes into a circle of %d: %s", tail, circle+1, show(c))
			}
			for i := 1; i < n; i++ {
				with := in
				with.Instances = slices.Clone(in.Instances)
				with.Instances = append(with.Instances, &lane.Instance{
					Service: "order", Name: "far", Lane: with.Lanes[i].Name, Generation: 1, State: lane.Ready,
					Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
				})
				if c := lane.Pick(lane.NewSnapshot(with), "order", "l00", lane.HTTP); c.Reason != lane.ReasonParent || c.Lane != with.Lanes[i].Name {
					t.Errorf("%d lanes into a circle of %d, instance in %s: %s", tail, circle+1, with.Lanes[i].Name, show(c))
				}
			}
		}
	}
}
