package lane_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// BenchmarkPick is plain traffic, the color of one lane that has an instance, of one that
// has none, and the colors of all lanes in random order, beside 1 to 10,000 lanes.
// bench/pick runs the same interleaved, for figures that can be compared.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		s := lane.NewSnapshot(wide(n))
		every := make([]lane.Name, 1<<14)
		for i := range every {
			every[i] = lane.Name(fmt.Sprintf("lane-%d", rand.IntN(n)))
		}
		for _, tc := range []struct {
			name    string
			service string
			colors  []lane.Name // a power of two of them
		}{
			{"plain", "order", []lane.Name{lane.Baseline}},
			{"own", "order", []lane.Name{"lane-0"}},
			{"fallback", "billing", []lane.Name{"lane-0"}},
			{"all", "order", every},
		} {
			b.Run(fmt.Sprintf("%s/lanes=%d", tc.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if c := lane.Pick(s, tc.service, tc.colors[i&(len(tc.colors)-1)], lane.HTTP); len(c.Targets) == 0 {
						b.Fatal(c.Err())
					}
				}
			})
		}
	}
}

// BenchmarkNewSnapshot is what a change of the registry costs a reader of 10,000 lanes.
func BenchmarkNewSnapshot(b *testing.B) {
	in := wide(10_000)
	for b.Loop() {
		lane.NewSnapshot(in)
	}
}

// BenchmarkChange is what a change costs a reader beside 1 to 10,000 lanes: an instance that
// joins a lane and one that leaves it, or a lane that comes and goes.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		s := lane.NewSnapshot(wide(n))
		i := &lane.Instance{
			Service: "order", Name: "another", Lane: "lane-0", Generation: 1, Room: "west", State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
		}
		b.Run(fmt.Sprintf("instance/lanes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s = s.With(lane.Changes{Instances: []*lane.Instance{i}}).
					With(lane.Changes{InstancesGone: []lane.InstanceID{{Service: "order", Name: "another"}}})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/change")
		})
		b.Run(fmt.Sprintf("lane/lanes=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s = s.With(lane.Changes{Lanes: []lane.Lane{{Name: "another", Generation: 1, State: lane.Ready}}}).
					With(lane.Changes{LanesGone: []lane.Name{"another"}})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/change")
		})
	}
}
