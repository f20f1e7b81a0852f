package lane

import (
	"fmt"
	"math"
	"testing"
)

// TestHealthOverSnapshots: a new picture of the same targets changes nothing of what is
// known of them.
func TestHealthOverSnapshots(t *testing.T) {
	b := steady(RoundRobin)
	refuse(t, b, choiceOf(t, "", Instance{}, Instance{}), "i0", t0)
	for range 5 {
		wantSpread(t, spread(b, choiceOf(t, "", Instance{}, Instance{}), t0, 2), map[string]int{"i1": 2})
	}
	// An outcome that comes with a target of an older snapshot counts, too.
	old := b.Next(choiceOf(t, "", Instance{}, Instance{}), t0, nil)
	c := choiceOf(t, "", Instance{}, Instance{}, Instance{})
	spread(b, c, t0, 4)
	b.Done(old, Refused, t0)
	wantSpread(t, spread(b, c, t0, 4), map[string]int{"i2": 4})
}

func TestTargetsThatLeftAreForgotten(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastRequests} {
		b := steady(policy)
		var under []*Target
		for n := range 1000 {
			c := choiceOf(t, "", Instance{Name: fmt.Sprintf("gone%d", n)}, Instance{Name: "stays"})
			refuse(t, b, c, fmt.Sprintf("gone%d", n), t0)
			under = append(under, b.Next(c, t0, func(o *Target) bool { return o.Name == "stays" }))
		}
		c := choiceOf(t, "", Instance{Name: "stays"})
		b.Done(b.Next(c, t0, nil), Success, t0)
		for _, target := range under { // requests that end after their target left
			b.Done(target, Failure, t0)
		}
		s := b.known(c.Targets[0])
		s.mu.Lock()
		if len(s.states) != 1 {
			t.Errorf("policy %d: %d targets are remembered, 1 exists", policy, len(s.states))
		}
		s.mu.Unlock()
	}
}

// TestCountOverSnapshots: requests under way are not forgotten when their target leaves
// and comes back.
func TestCountOverSnapshots(t *testing.T) {
	b := steady(LeastRequests)
	both := choiceOf(t, "", Instance{}, Instance{})
	for range 10 {
		b.Next(both, t0, func(o *Target) bool { return o.Name != "i0" })
	}
	b.Next(choiceOf(t, "", Instance{Name: "i1"}), t0, nil)
	again := choiceOf(t, "", Instance{}, Instance{})
	for range 5 {
		if got := b.Next(again, t0, nil).Name; got != "i1" {
			t.Errorf("%s got a request, although i0 has ten under way", got)
		}
	}
	// It is as good as ever, and as bad.
	refuse(t, b, again, "i0", t0)
	for range 20 {
		if got := b.Next(again, t0, nil).Name; got != "i1" {
			t.Errorf("%s got a request, although it has refused one", got)
		}
	}
}

// TestSameTargetsOtherRoom: a caller may take the room out of a choice.
func TestSameTargetsOtherRoom(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "west", Instance{Room: "west"}, Instance{Room: "east"})
	wantSpread(t, spread(b, c, t0, 4), map[string]int{"i0": 4})
	c.Local = 0
	wantSpread(t, spread(b, c, t0, 4), map[string]int{"i0": 2, "i1": 2})
}

// TestDraw: the second draw is never the first one again, and the others have their share.
func TestDraw(t *testing.T) {
	for _, targets := range [][]Instance{make([]Instance, 3), {{Weight: 1}, {Weight: 2}, {Weight: 3}}, {{Weight: 5}, {Weight: 1}}} {
		c := choiceOf(t, "", targets...)
		states := map[targetID]*targetState{}
		for _, target := range c.Targets {
			states[idOf(target)] = &targetState{}
		}
		v := newView(c.Targets, c.Local, states)
		for other := -1; other < len(targets); other++ {
			got := make([]int, len(targets))
			sum, n := uint64(0), uint64(60_000)
			for i, target := range c.Targets {
				if i != other {
					sum += weight(target)
				}
			}
			for i := range n {
				got[v.draw(mix(i), other)]++
			}
			for i, target := range c.Targets {
				want := int(n * weight(target) / sum)
				if i == other {
					want = 0
				}
				if math.Abs(float64(got[i]-want)) > 700 || i == other && got[i] > 0 {
					t.Errorf("beside %d: %d was drawn %d times, want about %d", other, i, got[i], want)
				}
			}
		}
	}
}

func TestIdleSetsAreForgotten(t *testing.T) {
	b := steady(RoundRobin)
	c := choiceOf(t, "", Instance{})
	lanes := func() (n int) {
		for _, sets := range *b.services.Load() {
			n += len(sets.lanes)
		}
		return n
	}
	at := t0
	for n := range 10_000 {
		c.Lane = Name(fmt.Sprintf("lane-%d", n))
		c.Service = fmt.Sprintf("service-%d", n%100)
		b.Next(c, at, nil)
		at = at.Add(forgetAfter / 100)
		if got := lanes(); got > 300 {
			t.Fatalf("%d sets are remembered after %d lanes, of which 100 were used in the last %v", got, n+1, forgetAfter)
		}
	}
	at = at.Add(2 * forgetAfter)
	b.Next(Choice{Service: "last", Lane: "green", Targets: c.Targets}, at, nil)
	if got := len(*b.services.Load()); got > 2 {
		t.Errorf("%d services are remembered, want the last", got)
	}
}

// TestFirstOutcomeCounts: making a set forgets old ones, not the one that it is made for.
func TestFirstOutcomeCounts(t *testing.T) {
	for _, color := range []Name{Baseline, "green"} {
		b, c := steady(RoundRobin), choiceOf(t, "", Instance{Lane: color}, Instance{Lane: color})
		first := b.Next(c, t0, nil)
		b.Done(first, Refused, t0)
		if got := spread(b, c, t0, 4); got[first.Name] != 0 {
			t.Errorf("color %q: got %v after %s refused", color, got, first.Name)
		}
	}
}

func BenchmarkBalancer(b *testing.B) {
	for name, policy := range map[string]Policy{"round-robin": RoundRobin, "least-requests": LeastRequests} {
		for kind, targets := range map[string][]Instance{"same": make([]Instance, 10), "weighted": {{Weight: 10}, {Weight: 20}, {Weight: 30}, {Weight: 5}}} {
			b.Run(name+"/"+kind, func(b *testing.B) {
				b.ReportAllocs()
				balancer, c := NewBalancer(policy), choiceOf(b, "", targets...)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						balancer.Done(balancer.Next(c, t0, nil), Success, t0)
					}
				})
			})
		}
	}
}
