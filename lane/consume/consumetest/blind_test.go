package consumetest

import (
	"slices"
	"strings"
	"testing"
)

// blindSeeds is how many seeds show that a simulation sees nothing; the bounds are as many
// times smaller as there are fewer of them than CI runs.
const blindSeeds = 500

// TestBlindSimulations: a simulation in which nothing goes wrong, and one whose scheduler
// never interleaves, are caught by the bounds of what has to occur; the real one is not.
func TestBlindSimulations(t *testing.T) {
	common, rare := max(ciCommon*blindSeeds/ciSeeds, 2), max(ciRare*blindSeeds/ciSeeds, 1)
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
