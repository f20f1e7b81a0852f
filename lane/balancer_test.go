package lane

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"time"
)

// t0 is when the tests of the balancer begin.
var t0 = time.Unix(1_700_000_000, 0)

// choiceOf picks service "order" for the lane of the first target, from a snapshot that has
// the targets given, whose names are i0, i1, … where they have none.
func choiceOf(t testing.TB, room string, targets ...Instance) Choice {
	t.Helper()
	in := Input{Room: room}
	for n := range targets {
		i := targets[n]
		i.Service, i.State = "order", Ready
		if i.Name == "" {
			i.Name = fmt.Sprintf("i%d", n)
		}
		i.Endpoints = []Endpoint{{Protocol: HTTP, Address: i.Name + ":80"}}
		in.Instances = append(in.Instances, &i)
	}
	color := targets[0].Lane
	if color != Baseline {
		in.Lanes = []Lane{{Name: color, State: Ready}}
	}
	c := Pick(NewSnapshot(in), "order", color, HTTP)
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func steady(policy Policy) *Balancer {
	b := NewBalancer(policy)
	b.start = 0
	return b
}

// spread makes n requests one after the other and counts who got them.
func spread(b *Balancer, c Choice, now time.Time, n int) map[string]int {
	got := map[string]int{}
	for range n {
		t := b.Next(c, now, nil)
		got[t.Name]++
		b.Done(t, Success, now)
	}
	return got
}

func wantSpread(t *testing.T, got, want map[string]int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{}, Instance{})
	var order string
	for range 7 {
		target := b.Next(c, t0, nil)
		order += target.Name + " "
		b.Done(target, Success, t0)
	}
	if want := "i0 i1 i2 i0 i1 i2 i0 "; order != want {
		t.Errorf("order %q, want %q", order, want)
	}
}

func TestRoundRobinByWeight(t *testing.T) {
	for _, weights := range [][]int{{3, 1}, {5, 1, 1}, {1, 2, 3, 4}, {7, 7, 1}, {100, 99, 98}, {1, 0, -3}, {1, 2}, {64, 1, 1, 1, 1}} {
		var targets []Instance
		sum := 0
		want := map[string]int{}
		for n, w := range weights {
			targets = append(targets, Instance{Weight: w})
			want[fmt.Sprintf("i%d", n)] = max(w, 1)
			sum += max(w, 1)
		}
		b, c := steady(RoundRobin), choiceOf(t, "", targets...)
		// Exact over every period, wherever one starts.
		for range 3 {
			wantSpread(t, spread(b, c, t0, sum), want)
		}
	}
}

// TestRoundRobinIsSmooth: the light ones are mixed among the heavy one's turns, so that
// nobody waits for a long run of another to end.
func TestRoundRobinIsSmooth(t *testing.T) {
	for most, targets := range map[int][]Instance{
		3: {{Weight: 6}, {Weight: 2}, {Weight: 2}},
		5: {{Weight: 9}, {Weight: 1}, {Weight: 1}, {Weight: 1}},
	} {
		b, c := steady(RoundRobin), choiceOf(t, "", targets...)
		run, longest, last := 0, 0, ""
		for range 200 {
			target := b.Next(c, t0, nil)
			if target.Name != last {
				run, last = 0, target.Name
			}
			run++
			longest = max(longest, run)
			b.Done(target, Success, t0)
		}
		if longest > most {
			t.Errorf("%d turns in a row for one of weight %d beside lighter ones; at most %d wanted", longest, targets[0].Weight, most)
		}
	}
}

func TestRoundRobinHugeWeights(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{Weight: math.MaxInt}, Instance{Weight: math.MaxInt}, Instance{Weight: math.MaxInt / 2})
	got := spread(b, c, t0, 3000)
	if got["i0"] < 900 || got["i0"] != got["i1"] {
		t.Errorf("got %v", got)
	}
}

func TestTurnsOfServicesAreApart(t *testing.T) {
	b := steady(RoundRobin)
	c := choiceOf(t, "", Instance{}, Instance{})
	other := c
	other.Service = "billing"
	got := map[string]int{}
	for range 10 {
		got[b.Next(c, t0, nil).Name]++
		b.Next(other, t0, nil)
	}
	wantSpread(t, got, map[string]int{"i0": 5, "i1": 5})
}

func TestNewBalancersStartApart(t *testing.T) {
	c := choiceOf(t, "", Instance{}, Instance{}, Instance{}, Instance{})
	first := map[string]int{}
	for range 200 {
		first[NewBalancer(RoundRobin).Next(c, t0, nil).Name]++
	}
	if len(first) != 4 {
		t.Errorf("200 balancers all began with one of %v", first)
	}
}

func TestOwnRoomFirst(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastRequests} {
		b := steady(policy)
		c := choiceOf(t, "west", Instance{Room: "east"}, Instance{Room: "west"}, Instance{Room: "east", Weight: 100}, Instance{Room: "west"})
		got := spread(b, c, t0, 100)
		if got["i1"]+got["i3"] != 100 || got["i1"] == 0 || got["i3"] == 0 {
			t.Errorf("policy %d: got %v, want all in room west", policy, got)
		}
	}
}

func TestNobodyInOwnRoom(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "north", Instance{Room: "east"}, Instance{Room: "west"})
	wantSpread(t, spread(b, c, t0, 10), map[string]int{"i0": 5, "i1": 5})
}

func TestOtherRoomWhereOwnIsEjected(t *testing.T) {
	b := steady(RoundRobin)
	c := choiceOf(t, "west", Instance{Room: "west"}, Instance{Room: "east"})
	refuse(t, b, c, "i0", t0)
	wantSpread(t, spread(b, c, t0, 10), map[string]int{"i1": 10})
	// Back in the own room as soon as a try has gone well.
	got := spread(b, c, t0.Add(firstEjection), 10)
	wantSpread(t, got, map[string]int{"i0": 10})
}

// TestOtherRoomIsNotTriedForNothing: an ejected target that would not be used anyway gets
// no try.
func TestOtherRoomIsNotTriedForNothing(t *testing.T) {
	b := steady(RoundRobin)
	c := choiceOf(t, "west", Instance{Room: "west"}, Instance{Room: "east"})
	refuse(t, b, c, "i0", t0)
	refuse(t, b, c, "i1", t0)
	at := t0.Add(longestEjection)
	target := b.Next(c, at, nil)
	b.Done(target, Success, at)
	wantSpread(t, spread(b, c, at, 10), map[string]int{target.Name: 10})
	if target.Name != "i0" {
		t.Errorf("%s got the first request, want the one of the own room", target.Name)
	}
}

// refuse makes requests until the named one has got one, which it refuses.
func refuse(t *testing.T, b *Balancer, c Choice, name string, now time.Time) {
	t.Helper()
	target := b.Next(c, now, func(o *Target) bool { return o.Name != name })
	if target == nil {
		t.Fatalf("%s is not in the choice", name)
	}
	b.Done(target, Refused, now)
}

func TestRefusedEjectsAtOnce(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{}, Instance{})
	refuse(t, b, c, "i1", t0)
	wantSpread(t, spread(b, c, t0, 10), map[string]int{"i0": 5, "i2": 5})
	wantSpread(t, spread(b, c, t0.Add(firstEjection-1), 10), map[string]int{"i0": 5, "i2": 5})
}

func TestFailuresInARowEject(t *testing.T) {
	fail := func(b *Balancer, c Choice, n int) {
		for range n {
			b.Done(b.Next(c, t0, func(o *Target) bool { return o.Name != "i0" }), Failure, t0)
		}
	}
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
	fail(b, c, ejectAfter-1)
	if got := spread(b, c, t0, 10); got["i0"] != 5 {
		t.Errorf("ejected after %d failures: %v", ejectAfter-1, got)
	}
	fail(b, c, ejectAfter-1) // the successes in between began the count anew
	if got := spread(b, c, t0, 10); got["i0"] != 5 {
		t.Errorf("a success did not begin the count anew: %v", got)
	}
	fail(b, c, ejectAfter)
	wantSpread(t, spread(b, c, t0, 10), map[string]int{"i1": 10})
}

func TestNeutralSaysNothing(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
	for range 10 * ejectAfter {
		b.Done(b.Next(c, t0, nil), Neutral, t0)
	}
	wantSpread(t, spread(b, c, t0, 10), map[string]int{"i0": 5, "i1": 5})
}

// TestHalfOpen: of many requests at once, one tries the target that may come back.
func TestHalfOpen(t *testing.T) {
	for _, tc := range []struct {
		outcome Outcome
		want    map[string]int // of ten more requests after the try
	}{
		{Success, map[string]int{"i0": 5, "i1": 5}},
		{Failure, map[string]int{"i1": 10}},
		{Refused, map[string]int{"i1": 10}},
	} {
		b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
		refuse(t, b, c, "i0", t0)
		at := t0.Add(firstEjection)
		var tried *Target
		for range 10 {
			if target := b.Next(c, at, nil); target.Name == "i0" {
				if tried != nil {
					t.Fatal("two requests tried it at once")
				}
				tried = target
			}
		}
		if tried == nil {
			t.Fatal("no request tried it")
		}
		b.Done(tried, tc.outcome, at)
		wantSpread(t, spread(b, c, at, 10), tc.want)
	}
}

func TestHalfOpenNeutralTriesAgain(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
	refuse(t, b, c, "i0", t0)
	at := t0.Add(firstEjection)
	for range 3 {
		target := b.Next(c, at, nil)
		if target.Name != "i0" {
			t.Fatalf("%s got the request, want the try of i0", target.Name)
		}
		b.Done(target, Neutral, at)
	}
}

// TestHalfOpenWithoutEnd: a try that never ends does not keep the target out for ever.
func TestHalfOpenWithoutEnd(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
	refuse(t, b, c, "i0", t0)
	at := t0.Add(firstEjection)
	if got := b.Next(c, at, nil).Name; got != "i0" {
		t.Fatalf("%s got the request, want the try of i0", got)
	}
	wantSpread(t, spread(b, c, at.Add(tryWithin-1), 10), map[string]int{"i1": 10})
	if got := b.Next(c, at.Add(tryWithin), nil).Name; got != "i0" {
		t.Errorf("%s got the request, want another try of i0", got)
	}
}

func TestEjectionGrowsToItsCap(t *testing.T) {
	for _, outcome := range []Outcome{Refused, Failure} {
		ejectionGrows(t, outcome)
	}
}

func ejectionGrows(t *testing.T, outcome Outcome) {
	t.Helper()
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
	refuse(t, b, c, "i0", t0)
	at, want := t0, firstEjection
	for n := range 12 {
		if got := spread(b, c, at.Add(want-1), 4); got["i0"] != 0 {
			t.Fatalf("ejection %d is shorter than %v", n+1, want)
		}
		at = at.Add(want)
		target := b.Next(c, at, nil)
		if target.Name != "i0" {
			t.Fatalf("ejection %d is longer than %v", n+1, want)
		}
		b.Done(target, outcome, at)
		want = min(2*want, longestEjection)
	}
}

// TestComingAndGoing: a target that is well for a moment only does not start with the
// shortest ejection again; one that was well for long does.
func TestComingAndGoing(t *testing.T) {
	for _, tc := range []struct {
		well time.Duration
		want time.Duration
	}{
		{time.Second, 4 * firstEjection},
		{longestEjection, firstEjection},
	} {
		b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
		refuse(t, b, c, "i0", t0)
		at := t0.Add(firstEjection)
		b.Done(b.Next(c, at, nil), Refused, at) // the second one: 2 s
		at = at.Add(2 * firstEjection)
		b.Done(b.Next(c, at, nil), Success, at) // back
		at = at.Add(tc.well)
		refuse(t, b, c, "i0", at)
		if got := spread(b, c, at.Add(tc.want-1), 4); got["i0"] != 0 {
			t.Errorf("well for %v: ejected for less than %v", tc.well, tc.want)
		}
		if got := spread(b, c, at.Add(tc.want), 4); got["i0"] == 0 {
			t.Errorf("well for %v: ejected for more than %v", tc.well, tc.want)
		}
	}
}

// TestOldRequestsAndEjection: what was under way when a target was ejected neither brings
// it back nor prolongs its ejection.
func TestOldRequestsAndEjection(t *testing.T) {
	only := func(o *Target) bool { return o.Name != "i0" }
	for _, o := range []Outcome{Success, Failure, Refused} {
		b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
		var old []*Target
		for range ejectAfter {
			old = append(old, b.Next(c, t0, only))
		}
		refuse(t, b, c, "i0", t0)
		for _, target := range old {
			b.Done(target, o, t0.Add(firstEjection/2))
		}
		if got := spread(b, c, t0.Add(firstEjection-1), 4); got["i0"] != 0 {
			t.Errorf("outcome %d of an old request brought the target back", o)
		}
		if got := spread(b, c, t0.Add(firstEjection), 4); got["i0"] == 0 {
			t.Errorf("outcome %d of an old request prolonged the ejection", o)
		}
	}
}

func TestAllEjectedAreUsed(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastRequests} {
		b, c := steady(policy), choiceOf(t, "", Instance{}, Instance{})
		refuse(t, b, c, "i0", t0)
		refuse(t, b, c, "i1", t0)
		got := map[string]int{}
		for range 40 {
			target := b.Next(c, t0, nil)
			got[target.Name]++
			b.Done(target, Refused, t0)
		}
		if got["i0"] == 0 || got["i1"] == 0 {
			t.Errorf("policy %d: got %v, want both used", policy, got)
		}
		// The first that answers is back at once.
		target := b.Next(c, t0, nil)
		b.Done(target, Success, t0)
		wantSpread(t, spread(b, c, t0, 10), map[string]int{target.Name: 10})
	}
}

// TestAllEjectedForNoLonger: requests that go to ejected targets for want of better ones
// do not prolong the ejection.
func TestAllEjectedForNoLonger(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{})
	for range 40 {
		b.Done(b.Next(c, t0, nil), Refused, t0)
	}
	back := b.Next(c, t0, nil)
	b.Done(back, Success, t0)
	at := t0.Add(firstEjection)
	if target := b.Next(c, at, nil); target == back {
		t.Error("the other one is not tried after its first ejection")
	}
}

func TestSingleEjectedIsUsed(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{})
	for range 20 {
		target := b.Next(c, t0, nil)
		if target == nil {
			t.Fatal("the only target is not used")
		}
		b.Done(target, Refused, t0)
	}
}

func TestAvoid(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastRequests} {
		b := steady(policy)
		c := choiceOf(t, "west", Instance{Room: "west"}, Instance{Room: "west"}, Instance{Room: "east"})
		tried := map[string]bool{}
		var order []string
		for {
			target := b.Next(c, t0, func(o *Target) bool { return tried[o.Name] })
			if target == nil {
				break
			}
			if tried[target.Name] {
				t.Fatalf("policy %d: %s was to be avoided", policy, target.Name)
			}
			tried[target.Name] = true
			order = append(order, target.Name)
			b.Done(target, Neutral, t0)
		}
		if len(order) != 3 || order[2] != "i2" {
			t.Errorf("policy %d: tried %v, want all, the far one last", policy, order)
		}
	}
}

func TestAvoidPrefersHealthy(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{}, Instance{})
	refuse(t, b, c, "i1", t0)
	for range 20 {
		target := b.Next(c, t0, func(o *Target) bool { return o.Name == "i0" })
		if target.Name != "i2" {
			t.Fatalf("%s got a retry, want the healthy one", target.Name)
		}
		b.Done(target, Success, t0)
	}
}

func TestAvoidByWeight(t *testing.T) {
	b, c := steady(RoundRobin), choiceOf(t, "", Instance{}, Instance{Weight: 3}, Instance{Weight: 1})
	got := map[string]int{}
	for range 4000 {
		target := b.Next(c, t0, func(o *Target) bool { return o.Name == "i0" })
		got[target.Name]++
		b.Done(target, Success, t0)
	}
	if got["i1"] < 2800 || got["i1"] > 3200 {
		t.Errorf("got %v, want about 3000 and 1000", got)
	}
}

func TestNothingToPick(t *testing.T) {
	b := NewBalancer(RoundRobin)
	if got := b.Next(Choice{}, t0, nil); got != nil {
		t.Errorf("picked %v of nothing", got)
	}
	c := choiceOf(t, "", Instance{})
	if got := b.Next(c, t0, func(*Target) bool { return true }); got != nil {
		t.Errorf("picked %v although all are avoided", got)
	}
}

func TestLeastRequestsByLoad(t *testing.T) {
	b, c := steady(LeastRequests), choiceOf(t, "", Instance{}, Instance{})
	var busy []*Target // i0 gets ten that do not end
	for range 10 {
		busy = append(busy, b.Next(c, t0, func(o *Target) bool { return o.Name != "i0" }))
	}
	got := map[string]int{}
	for range 10 {
		got[b.Next(c, t0, nil).Name]++
	}
	if got["i1"] < 9 {
		t.Errorf("got %v beside ten under way on i0", got)
	}
	for _, target := range busy {
		b.Done(target, Success, t0)
	}
	got = map[string]int{}
	for range 8 {
		got[b.Next(c, t0, nil).Name]++
	}
	if got["i0"] < 7 {
		t.Errorf("got %v after i0's ended", got)
	}
}

// TestLeastRequestsByWeight: both for requests that end at once and for many under way.
func TestLeastRequestsByWeight(t *testing.T) {
	weights := []Instance{{Weight: 1}, {Weight: 2}, {Weight: 5}}
	b, c := steady(LeastRequests), choiceOf(t, "", weights...)
	got := spread(b, c, t0, 8000)
	// Two different ones are drawn by weight, the first wins a tie: plain proportion.
	for n, want := range []int{1000, 2000, 5000} {
		if name := fmt.Sprintf("i%d", n); math.Abs(float64(got[name]-want)) > 150 {
			t.Errorf("idle: %s got %d of 8000, want about %d", name, got[name], want)
		}
	}
	got = map[string]int{}
	for range 8000 {
		got[b.Next(c, t0, nil).Name]++
	}
	for n, want := range []int{1000, 2000, 5000} {
		if name := fmt.Sprintf("i%d", n); math.Abs(float64(got[name]-want)) > 50 {
			t.Errorf("under way: %s got %d of 8000, want about %d", name, got[name], want)
		}
	}
}

// TestLeastRequestsIsLevel: with many targets the fullest is not far from the mean, which
// is what two choices give and one does not.
func TestLeastRequestsIsLevel(t *testing.T) {
	const targets, requests = 100, 10_000
	b, c := steady(LeastRequests), choiceOf(t, "", make([]Instance, targets)...)
	got := map[string]int{}
	for range requests {
		got[b.Next(c, t0, nil).Name]++
	}
	for name, n := range got {
		if n > requests/targets+10 {
			t.Errorf("%s has %d under way; the mean is %d", name, n, requests/targets)
		}
	}
}

func TestSameRunSameTargets(t *testing.T) {
	run := func() (names []string) {
		b, c := steady(LeastRequests), choiceOf(t, "", make([]Instance, 20)...)
		for n := range 200 {
			target := b.Next(c, t0, nil)
			names = append(names, target.Name)
			if n%3 == 0 {
				b.Done(target, Refused, t0)
			}
		}
		return names
	}
	if a, b := fmt.Sprint(run()), fmt.Sprint(run()); a != b {
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	avoided := map[string]bool{"i1": true}
	avoid := func(o *Target) bool { return avoided[o.Name] }
	for _, policy := range []Policy{RoundRobin, LeastRequests} {
		for name, targets := range map[string][]Instance{
			"same weights": make([]Instance, 5),
			"weights":      {{Weight: 1}, {Weight: 2}, {Weight: 30}},
		} {
			for _, color := range []Name{Baseline, "green"} {
				for n := range targets {
					targets[n].Lane = color
				}
				b, c := steady(policy), choiceOf(t, "", targets...)
				if c.Lane != color {
					t.Fatalf("the choice is of lane %q, want %q", c.Lane, color)
				}
				refuse(t, b, c, "i0", t0)
				for kind, f := range map[string]func(*Target) bool{"first": nil, "retry": avoid} {
					if n := testing.AllocsPerRun(100, func() {
						b.Done(b.Next(c, t0, f), Success, t0)
					}); n > 0 {
						t.Errorf("policy %d, %s, %s, color %q: %v allocations a request", policy, name, kind, color, n)
					}
				}
			}
		}
	}
}

// TestBalancerAtOnce lets the race detector see everything at once, and holds every
// answer to what must always be true: it is of the choice that was given.
func TestBalancerAtOnce(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastRequests} {
		b := NewBalancer(policy)
		choices := []Choice{
			choiceOf(t, "w", Instance{Room: "w"}, Instance{Room: "e"}, Instance{Weight: 4, Room: "w"}),
			choiceOf(t, "w", Instance{Room: "w"}, Instance{Room: "e"}),
			choiceOf(t, "", Instance{}),
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				now := t0
				for n := range 3000 {
					c := choices[(n/50+g)%len(choices)]
					target := b.Next(c, now, nil)
					found := false
					for _, o := range c.Targets {
						found = found || o == target
					}
					if !found {
						t.Errorf("got a target that is not of the choice")
						return
					}
					b.Done(target, Outcome((n+g)%4), now)
					now = now.Add(20 * time.Millisecond)
				}
			})
		}
		wg.Wait()
		if policy != LeastRequests {
			continue
		}
		for _, sets := range *b.services.Load() {
			for id, state := range sets.baseline.states {
				if n := state.inflight.Load(); n != 0 {
					t.Errorf("%v has %d requests under way after all have ended", id, n)
				}
			}
		}
	}
}
