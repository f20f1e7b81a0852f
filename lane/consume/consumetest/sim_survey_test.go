package consumetest

import (
	"flag"
	"regexp"
	"strings"
	"testing"
)

var surveyFlag = flag.Bool("survey", false, "TestSimulation goes on after a violation and lists the kinds of them")

// survey runs all seeds and lists one of each kind of violation, and how many.
func survey(t *testing.T, from, n uint64) {
	digits := regexp.MustCompile(`[0-9.]+[a-z0-9.]*s\b|@?\d+|"[a-z-]*"|\([^()]*\)|\{[^}]*\}`)
	kinds := map[string]int{}
	cover := newCoverage()
	for seed := from; seed < from+n; seed++ {
		r := Simulate(Config{Seed: seed})
		cover.Add(&r.Coverage)
		if r.Violation == nil {
			continue
		}
		kind := r.Violation.Rule + " " + digits.ReplaceAllString(r.Violation.What, "#")
		if kinds[kind]++; kinds[kind] == 1 {
			t.Logf("seed %d: %s", seed, r.Violation)
		}
	}
	for kind, n := range kinds {
		t.Logf("%4d times %s", n, kind)
	}
	var table strings.Builder
	cover.Print(&table)
	t.Log(table.String())
}
