package lane_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

var (
	cases = flag.Int("lane.cases", 100_000, "random choices that TestPickModel makes")
	seed  = flag.Uint64("lane.seed", 0, "seed of TestPickModel; 0: from the clock")
)

// naivePick is Pick as a reader of the rules would write it: it looks at everything at
// every call. TestPickModel holds Pick to it.
func naivePick(in lane.Input, service string, color lane.Name, protocol string) lane.Choice {
	c := lane.Choice{Service: service, Color: color}
	find := func(name lane.Name) (lane.Lane, bool) { // the last of a name wins
		for _, l := range slices.Backward(in.Lanes) {
			if l.Name == name && name != lane.Baseline {
				return l, true
			}
		}
		return lane.Lane{}, false
	}
	serving := func(name lane.Name) (targets []*lane.Target) {
		l, known := find(name)
		if name != lane.Baseline && (!known || l.State != lane.Ready && l.State != lane.Creating) {
			return nil
		}
		seen := map[string]bool{}
		for _, i := range slices.Backward(in.Instances) {
			if i.Service != service || seen[i.Name] {
				continue
			}
			seen[i.Name] = true
			if i.Lane != name || i.State != lane.Ready || name != lane.Baseline && i.Generation != l.Generation {
				continue
			}
			for _, e := range i.Endpoints {
				if e.Protocol == protocol {
					targets = append(targets, &lane.Target{Instance: i, Endpoint: e})
					break
				}
			}
		}
		return targets
	}
	decide := func(name lane.Name, reason lane.Reason) bool {
		targets := serving(name)
		if len(targets) == 0 {
			return false
		}
		local := func(t *lane.Target) bool { return in.Room == "" || t.Room == in.Room }
		slices.SortFunc(targets, func(a, b *lane.Target) int {
			if local(a) != local(b) {
				if local(a) {
					return -1
				}
				return 1
			}
			return strings.Compare(a.Name, b.Name)
		})
		for _, t := range targets {
			if local(t) {
				c.Local++
			}
		}
		c.Lane, c.Targets, c.Reason = name, targets, reason
		return true
	}
	baseline := func(reason lane.Reason) lane.Choice {
		if !decide(lane.Baseline, reason) {
			c.Reason = lane.ReasonNone
		}
		return c
	}

	if color == lane.Baseline { // rule 3
		return baseline(lane.ReasonPlain)
	}
	if strings.HasPrefix(string(color), "strict-") { // rule 2
		if !decide(color, lane.ReasonStrict) {
			c.Reason = lane.ReasonStrictNo
		}
		return c
	}
	l, known := find(color)
	if !known { // rule 5
		return baseline(lane.ReasonUnknown)
	}
	if l.State == lane.Ended {
		return baseline(lane.ReasonEnded)
	}
	walked := map[lane.Name]bool{} // rule 1
	for at := l; ; {
		walked[at.Name] = true
		reason := lane.ReasonParent
		if at.Name == color {
			reason = lane.ReasonLane
		}
		if decide(at.Name, reason) {
			return c
		}
		next, known := find(at.Parent)
		if !known || walked[next.Name] || next.Name.Strict() {
			return baseline(lane.ReasonBaseline)
		}
		at = next
	}
}

// randomInput makes a registry that is as often wrong as right: parents that do not
// exist or run in circles, strict lanes in chains, old generations, lanes and instances
// in every state, twice the same name, instances of lanes nobody knows.
func randomInput(r *rand.Rand) lane.Input {
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	in := lane.Input{Revision: r.Uint64(), Room: pick("", "east", "west", "east")}
	names := randomNames
	for range r.IntN(16) {
		in.Lanes = append(in.Lanes, lane.Lane{
			Name:       names[r.IntN(len(names))],
			Parent:     names[r.IntN(len(names))],
			Generation: uint64(1 + r.IntN(4)/3),
			State:      lane.State(pick("ready", "ready", "ready", "ready", "creating", "creating", "draining", "ended", "", "odd")),
		})
	}
	for range r.IntN(20) {
		i := &lane.Instance{
			Service:    pick("a", "b"),
			Name:       pick("i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8"),
			Lane:       names[r.IntN(len(names))],
			Generation: uint64(1 + r.IntN(4)/3),
			Room:       pick("", "east", "west"),
			State:      lane.State(pick("ready", "ready", "ready", "ready", "draining", "")),
			Weight:     r.IntN(3),
		}
		for range 1 + r.IntN(3) - r.IntN(2) {
			i.Endpoints = append(i.Endpoints, lane.Endpoint{Protocol: pick("http", "http", "grpc"), Address: fmt.Sprint(r.IntN(100))})
		}
		in.Instances = append(in.Instances, i)
	}
	return in
}

// randomNames has the zero name twice, so that about every fifth is the baseline's.
var randomNames = []lane.Name{"", "", "aaa", "bbb", "ccc", "ddd", "eee", "strict-x", "strict-y", "Not-A-Name"}

func TestPickModel(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	reasons := map[lane.Reason]int{}
	for n := range *cases / 10 {
		caseSeed := s + uint64(n)
		in := randomInput(rand.New(rand.NewPCG(caseSeed, 1)))
		snapshot := lane.NewSnapshot(in)
		for m := range 10 {
			r := rand.New(rand.NewPCG(caseSeed, uint64(2+m)))
			service, protocol := []string{"a", "b", "none"}[r.IntN(3)], []string{"http", "grpc"}[r.IntN(2)]
			color := append(randomNames, "unknown", "strict-unknown")[r.IntN(len(randomNames)+2)]
			got, want := lane.Pick(snapshot, service, color, protocol), naivePick(in, service, color, protocol)
			if show(got) != show(want) {
				t.Fatalf("again with -lane.seed=%d -lane.cases=10\nservice %s, color %q, protocol %s\ngot  %s\nwant %s\nregistry %s",
					caseSeed, service, color, protocol, show(got), show(want), showInput(in))
			}
			if (got.Err() == nil) != (len(got.Targets) > 0) {
				t.Fatalf("again with -lane.seed=%d: error %v of %s", caseSeed, got.Err(), show(got))
			}
			reasons[got.Reason]++
		}
	}
	if *cases < 10_000 {
		return
	}
	// A generator that never makes a case tests nothing about it.
	for _, reason := range []lane.Reason{
		lane.ReasonPlain, lane.ReasonLane, lane.ReasonParent, lane.ReasonBaseline, lane.ReasonUnknown,
		lane.ReasonEnded, lane.ReasonStrict, lane.ReasonStrictNo, lane.ReasonNone,
	} {
		if reasons[reason] < *cases/1000 {
			t.Errorf("only %d of %d cases end in %s", reasons[reason], *cases, reason)
		}
	}
}

func show(c lane.Choice) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %q: lane %q, %s, %d near of", c.Service, c.Color, c.Lane, c.Reason, c.Local)
	for _, t := range c.Targets {
		fmt.Fprintf(&b, " %s(%s %s %s)", t.Name, t.Room, t.Protocol, t.Address)
	}
	return b.String()
}

func showInput(in lane.Input) string {
	var b strings.Builder
	fmt.Fprintf(&b, "room %q", in.Room)
	for _, l := range in.Lanes {
		fmt.Fprintf(&b, "\n  lane %+v", l)
	}
	for _, i := range in.Instances {
		fmt.Fprintf(&b, "\n  instance %+v", *i)
	}
	return b.String()
}
