package consumetest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "the seed that TestSeed replays; 0: none")
	seedsFlag = flag.Uint64("seeds", 0, "how many seeds TestSimulation runs; 0: as many as CI does")
	fromFlag  = flag.Uint64("from", 1, "the first of them")
	fullFlag  = flag.Bool("full", false, "TestSeed does not shrink")
)

// replay is the command that shows a seed again.
func replay(seed uint64) string {
	return fmt.Sprintf("go test ./consume/consumetest -run '^TestSeed$' -v -seed %d", seed)
}

// sweep runs seeds on all processors and gives the first that fails, by number.
func sweep(from, n uint64, cfg Config) (Coverage, *Result) {
	total := newCoverage()
	var mu sync.Mutex
	var worst *Result
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			sum := newCoverage()
			for {
				i := next.Add(1) - 1
				if i >= n {
					break
				}
				c := cfg
				c.Seed = from + i
				r := Simulate(c)
				sum.Add(&r.Coverage)
				if r.Violation != nil {
					mu.Lock()
					if worst == nil || r.Seed < worst.Seed {
						worst = &r
					}
					mu.Unlock()
					next.Store(n)
				}
			}
			mu.Lock()
			total.Add(&sum)
			mu.Unlock()
		})
	}
	wg.Wait()
	return total, worst
}

// shortSeeds are run for every commit; how often what occurs is not looked at then.
const shortSeeds = 500

// TestSimulation runs many histories, each checked as a whole; and checks that all kinds of
// moves and faults were among them.
func TestSimulation(t *testing.T) {
	n := *seedsFlag
	full := n == 0
	if full {
		n = ciSeeds
	}
	if full && testing.Short() {
		n, full = shortSeeds, false
	}
	if *surveyFlag {
		survey(t, *fromFlag, n)
		return
	}
	cover, bad := sweep(*fromFlag, n, Config{})
	if bad != nil {
		t.Fatalf("seed %d: %s\nreplay: %s", bad.Seed, bad.Violation, replay(bad.Seed))
	}
	var table strings.Builder
	cover.Print(&table)
	t.Logf("%d seeds\n%s", n, table.String())
	if !full {
		return
	}
	for _, thin := range cover.Thin(ciCommon, ciRare) {
		t.Error(thin)
	}
}

// TestSeed replays one seed, makes it as small as it gets, and prints what happens in it.
func TestSeed(t *testing.T) {
	if *seedFlag == 0 {
		r := Simulate(Config{Seed: 1, Trace: true})
		if len(r.Trace) == 0 {
			t.Fatal("there is no trace")
		}
		return
	}
	cfg := Config{Seed: *seedFlag}
	r := Simulate(cfg)
	if r.Violation == nil {
		t.Logf("seed %d holds", cfg.Seed)
		return
	}
	if !*fullFlag {
		cfg = Shrink(cfg)
	}
	cfg.Trace = true
	r = Simulate(cfg)
	for _, line := range r.Trace {
		fmt.Fprintln(os.Stdout, line)
	}
	t.Fatalf("seed %d: %s", cfg.Seed, r.Violation)
}

// TestSimulationRepeats: a seed is one history, and a trace changes nothing in it.
func TestSimulationRepeats(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		a, b := Simulate(Config{Seed: seed, Trace: true}), Simulate(Config{Seed: seed, Trace: true})
		for i := range min(len(a.Trace), len(b.Trace)) {
			if a.Trace[i] != b.Trace[i] {
				t.Fatalf("seed %d, line %d: got\n%s\nand\n%s", seed, i, a.Trace[i], b.Trace[i])
			}
		}
		plain := Simulate(Config{Seed: seed})
		if len(a.Trace) != len(b.Trace) || plain.Coverage.Steps != a.Coverage.Steps {
			t.Fatalf("seed %d: %d and %d lines, %d and %d steps", seed, len(a.Trace), len(b.Trace), a.Coverage.Steps, plain.Coverage.Steps)
		}
	}
}

// TestShrink: what is not needed for a violation goes.
func TestShrink(t *testing.T) {
	t.Parallel()
	cfg := Config{Seed: 1}
	cfg.spoil = func(w *world) {
		w.sched.push(task{at: w.plan.until, do: func() {
			if w.result.Coverage.Faults[FaultCrash] > 0 {
				w.check.fail("TEST", "a process crashed")
			}
		}})
	}
	for Simulate(cfg).Violation == nil {
		cfg.Seed++
	}
	small := makePlan(cfg.Seed, true)
	before := len(small.ops)
	Shrink(cfg).edit(small)
	if len(small.ops) != 1 || small.ops[0].kind != opCrash || before < 10 {
		t.Fatalf("%d ops were made %d: %v", before, len(small.ops), small.ops)
	}
	if r := Simulate(Shrink(cfg)); r.Violation == nil || r.Violation.Rule != "TEST" {
		t.Fatalf("what was shrunk breaks %v", r.Violation)
	}
}

// TestSpoiltWorld: where the registry's word does not come through, or a consumer's, the quiet
// tail says so.
func TestSpoiltWorld(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*world){
		"nobody learns of changes": func(w *world) { w.reg.changed = func() {} },
		"a lane stays stuck": func(w *world) {
			stuck := w.plan.lanes[0]
			w.plan.stuck, w.unstuck = &stuck, false
			w.keepStuck = true
		},
	} {
		seen := false
		for seed := uint64(1); seed < 40 && !seen; seed++ {
			seen = Simulate(Config{Seed: seed, spoil: spoil}).Violation != nil
		}
		if !seen {
			t.Errorf("%s, and 40 seeds do not see it", name)
		}
	}
}
