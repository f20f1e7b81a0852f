package lane

import (
	"fmt"
	"testing"
)

// TestLaneIndex looks up every lane, and names that are not there, in indices of all sizes
// about the powers of two at which they grow.
func TestLaneIndex(t *testing.T) {
	for n := range 70 {
		lanes := []Lane{{Name: Baseline, Generation: 9}} // passed over
		for i := range n {
			lanes = append(lanes, Lane{Name: Name(fmt.Sprintf("lane-%d", i)), Generation: 1})
		}
		for i := range n { // a later one wins
			lanes = append(lanes, Lane{Name: Name(fmt.Sprintf("lane-%d", i)), Generation: uint64(i + 2)})
		}
		x := newLaneIndex(lanes)
		if len(x.entries) != n {
			t.Errorf("%d entries of %d lanes", len(x.entries), n)
		}
		for i := range n {
			name := Name(fmt.Sprintf("lane-%d", i))
			if e := x.find(name); e == nil || e.Name != name || e.Generation != uint64(i+2) {
				t.Errorf("%d lanes: found %+v as %s", n, e, name)
			}
		}
		for _, name := range []Name{Baseline, "lane", "lane-70", "lane-0 "} {
			if e := x.find(name); e != nil {
				t.Errorf("%d lanes: found %+v as %q", n, e, name)
			}
		}
	}
	if e := new(laneIndex).find("green"); e != nil {
		t.Errorf("the zero index has %+v", e)
	}
}
