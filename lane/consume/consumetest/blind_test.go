package consumetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// blindSeeds is how many seeds show that a simulation sees nothing; the bounds are five times as many
// times smaller as there are fewer of them than CI runs.
const blindSeeds = 300

// TestBlindSimulations: a simulation in which nothing goes wrong, and one whose scheduler
// never interleaves, are caught by the bounds of what has to occur; the real one is not.
func TestBlindSimulations(t *testing.T) {
	common, rare := max(ciCommon*blindSeeds/ciSeeds/5, 2), 1 // a fifth, since rare things come in crowds
	for _, c := range []struct {
		name  string
		cfg   Config
		blind bool
	}{
		{"the real one", Config{}, false},
		{"nothing goes wrong", Config{NoFaults: true}, true},
		{"nothing interleaves", Config{Sequential: true}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cover, bad := sweep(1, blindSeeds, c.cfg)
			if bad != nil {
				t.Fatalf("seed %d: %s", bad.Seed, bad.Violation)
			}
			thin := cover.Thin(common, rare)
			t.Logf("%d bounds are not met: %s", len(thin), strings.Join(thin, "; "))
			if c.blind != (len(thin) > 0) {
				t.Errorf("%d bounds are not met", len(thin))
			}
			if fault := func(s string) bool { return strings.HasPrefix(s, "fault ") }; c.cfg.NoFaults && !slices.ContainsFunc(thin, fault) {
				t.Error("no fault is missed")
			}
		})
	}
}

// TestCheckerForgetsNoColor: whatever its color, a message that a note settles before it is
// settled is seen, and one that nobody is given in the end.
func TestCheckerForgetsNoColor(t *testing.T) {
	for _, color := range append([]lane.Name{lane.Baseline, strictLane, strictNone}, ordinary...) {
		h := newHistory(nil)
		h.append(color)
		h.land(h.p, nil, map[lane.Name]*consume.Note{consume.Main: noteOf(1)})
		if v := h.k.violation; v == nil || v.Rule != "I1" {
			t.Errorf("%q: a note settles what is not settled, and the checker says %v", color, v)
		}
		if color.Strict() {
			continue // it waits for its lane
		}
		h = newHistory(nil)
		h.append(color)
		h.see(h.p, lane.Baseline)
		members := h.p.view.Members
		members[0].Generation = 0
		got := h.k.atRest(&truth{
			lanes:  h.p.view.Lanes,
			groups: []truthGroup{{partitions: map[string]int32{"orders": 1}, members: members}},
			alive:  func(s string) bool { return h.alive[s] }, actors: []*actor{h.p, h.q},
		})
		if got == nil || got.rule != "I1" {
			t.Errorf("%q: nobody is given a message, and the checker says %+v", color, got)
		}
	}
}
