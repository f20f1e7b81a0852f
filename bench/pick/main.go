// Command pick measures what choosing an instance costs with 1, 100 and 10,000 lanes, and
// what a change of the registry costs whoever chooses.
// The three take turns, many times over, and the best time of each counts, so that what
// else the machine does falls on all of them alike. It exits with 1 where the promise is
// broken: traffic that is plain or of one color costs at most 1.2 times as much beside
// 10,000 lanes as beside one, no choice takes more than 100 ns, and no change more than a
// millisecond.
//
//	go run ./bench/pick
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

const (
	promisedTime  = 100.0 // ns
	promisedRatio = 1.2

	promisedChange = 1e6 // ns
	changes        = 20  // a turn
)

// scene is a kind of traffic. colors has a power of two of them.
type scene struct {
	name     string
	service  string
	colors   func(lanes int) []lane.Name
	sameCost bool // is promised not to grow with the lanes
}

var lanes = []int{1, 100, 10_000}

func scenes() []scene {
	one := func(color lane.Name) func(int) []lane.Name {
		return func(int) []lane.Name { return []lane.Name{color} }
	}
	return []scene{
		{"plain", "order", one(lane.Baseline), true},
		{"one color, its own instance", "order", one("lane-0"), true},
		{"one color, falls back", "billing", one("lane-0"), true},
		// What this costs more is the processor fetching another lane's memory each time.
		{"all colors in random order", "order", randomColors, false},
	}
}

func main() {
	rounds := flag.Int("rounds", 200, "how often the sizes take turns")
	picks := flag.Int("picks", 20_000, "choices a turn")
	flag.Parse()
	if flag.NArg() > 0 || *rounds < 1 || *picks < 1 {
		flag.Usage()
		os.Exit(2)
	}
	snapshots := make([]*lane.Snapshot, len(lanes))
	for i, n := range lanes {
		snapshots[i] = lane.NewSnapshot(registry(n))
	}
	fmt.Printf("%-32s %10s %10s %10s %16s\n", "ns per choice beside", "1 lane", "100", "10,000", "10,000 to 1")
	kept := true
	for _, s := range scenes() {
		best := measure(s, snapshots, *rounds, *picks)
		ratio := best[len(best)-1] / best[0]
		note := ""
		if best[len(best)-1] > promisedTime {
			note, kept = fmt.Sprintf("  promised: %.0f ns", promisedTime), false
		}
		if s.sameCost && ratio > promisedRatio {
			note, kept = fmt.Sprintf("  promised: %.1f", promisedRatio), false
		}
		fmt.Printf("%-32s %10.1f %10.1f %10.1f %16.2f%s\n", s.name, best[0], best[1], best[2], ratio, note)
	}
	fmt.Printf("\n%-32s %10s %10s %10s\n", "us per change beside", "1 lane", "100", "10,000")
	for _, e := range events() {
		best := measureChanges(e, snapshots, *rounds)
		note := ""
		if best[len(best)-1] > promisedChange {
			note, kept = fmt.Sprintf("  promised: %.0f us", promisedChange/1000), false
		}
		fmt.Printf("%-32s %10.1f %10.1f %10.1f%s\n", e.name, best[0]/1000, best[1]/1000, best[2]/1000, note)
	}
	if !kept {
		os.Exit(1)
	}
}

// event is a kind of change, and what undoes it.
type event struct {
	name       string
	do, undone lane.Changes
}

func events() []event {
	instance := func(of lane.Name) *lane.Instance {
		i := &lane.Instance{
			Service: "order", Name: "another", Lane: of, Room: "west", State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
		}
		if of != lane.Baseline {
			i.Generation = 1
		}
		return i
	}
	gone := lane.Changes{InstancesGone: []lane.InstanceID{{Service: "order", Name: "another"}}}
	return []event{
		{"instance joins, leaves lane", lane.Changes{Instances: []*lane.Instance{instance("lane-0")}}, gone},
		{"instance joins, leaves baseline", lane.Changes{Instances: []*lane.Instance{instance(lane.Baseline)}}, gone},
		{
			"lane comes, goes",
			lane.Changes{Lanes: []lane.Lane{{Name: "another", Generation: 1, State: lane.Ready}}},
			lane.Changes{LanesGone: []lane.Name{"another"}},
		},
	}
}

// measureChanges returns the best time of a change in nanoseconds for each snapshot.
func measureChanges(e event, snapshots []*lane.Snapshot, rounds int) []float64 {
	best := make([]float64, len(snapshots))
	for range rounds {
		for i, snapshot := range snapshots {
			began := time.Now()
			for range changes / 2 {
				snapshot = snapshot.With(e.do).With(e.undone)
			}
			took := float64(time.Since(began).Nanoseconds()) / changes
			if best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	return best
}

// measure returns the best time of a choice in nanoseconds for each snapshot.
func measure(s scene, snapshots []*lane.Snapshot, rounds, picks int) []float64 {
	best := make([]float64, len(snapshots))
	colors := make([][]lane.Name, len(snapshots))
	for i, n := range lanes {
		colors[i] = s.colors(n)
	}
	for range rounds {
		for i, snapshot := range snapshots {
			began := time.Now()
			pick(snapshot, s.service, colors[i], picks)
			took := float64(time.Since(began).Nanoseconds()) / float64(picks)
			if best[i] == 0 || took < best[i] {
				best[i] = took
			}
		}
	}
	return best
}

func pick(snapshot *lane.Snapshot, service string, colors []lane.Name, picks int) {
	mask := len(colors) - 1
	for i := range picks {
		if c := lane.Pick(snapshot, service, colors[i&mask], lane.HTTP); len(c.Targets) == 0 {
			fmt.Fprintln(os.Stderr, c.Err())
			os.Exit(1)
		}
	}
}

func randomColors(n int) []lane.Name {
	colors := make([]lane.Name, 1<<14)
	for i := range colors {
		colors[i] = lane.Name(fmt.Sprintf("lane-%d", rand.IntN(n))) //nolint:gosec // an order, no secret
	}
	return colors
}

// registry has two services with five instances each in the baseline, and n lanes with an
// instance of one of the two.
func registry(n int) lane.Input {
	in := lane.Input{Room: "west"}
	add := func(service, name string, of lane.Name, generation uint64) {
		in.Instances = append(in.Instances, &lane.Instance{
			Service: service, Name: name, Lane: of, Generation: generation, Room: "west", State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
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
