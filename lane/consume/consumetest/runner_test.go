package consumetest

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/laneway-dev/laneway/lane/consume"
)

// How many seeds TestRunner plays: as a rule, and for every commit; and how often each kind of
// move and fault, and each rare meeting, has to occur in all of them.
const (
	runnerSeeds  = 1000
	runnerShort  = 40
	runnerCommon = 15
	runnerRare   = 5
)

// TestRunner plays real runners over an engine and a registry in memory, in virtual time:
// processes with members in the baseline and in lanes start, stop and crash, their way to the
// registry loses, delays and repeats what they send, lanes come and go, groups begin again. The
// checker of the simulation judges them by what their cores are told and ask for and by what the
// registry holds; consumers and the engine are looked at besides. A seed decides what happens,
// but not how goroutines interleave: one that fails may have to be played several times.
func TestRunner(t *testing.T) {
	n, full := *seedsFlag, *seedsFlag == 0
	if full {
		if n = runnerSeeds; testing.Short() {
			n, full = runnerShort, false
		}
	}
	cover, bad := rehearse(t, *fromFlag, n)
	if bad != nil {
		t.Fatalf("%s\nseed %d: %s\nplay it again: %s", bad, bad.plan.seed, bad.check.violation, encore(bad.plan.seed))
	}
	var table strings.Builder
	cover.Print(&table)
	t.Logf("%d seeds\n%s", n, table.String())
	if full {
		for _, thin := range cover.Thin(runnerCommon, runnerRare) {
			if !slices.ContainsFunc(notPlayed(), func(what string) bool { return strings.HasPrefix(thin, what+": ") }) {
				t.Error(thin)
			}
		}
	}
}

// notPlayed is what only a simulation comes to: what a registry, an engine or a process in memory
// does not do, what a runner with its fixed members seldom does, and what is asked for on purpose.
func notPlayed() []string {
	return []string{
		"fault " + string(FaultPause), "fault " + string(FaultMirror), "fault " + string(FaultDuplicate),
		"fault " + string(FaultConsumerCrash), string(FeatureGap), string(FeatureCopy),
		string(FeatureRoom), string(FeatureAnswers), "move " + whyOf(consume.Release, consume.WhyNoMember), string(FeatureProbe), string(FeatureLostProbe),
		string(FeatureSqueezed), string(FeatureLateWord), string(FeatureRevived), "verdict on that is no name",
	}
}

// encore is the command that plays a seed again.
func encore(seed uint64) string {
	return fmt.Sprintf("go test ./consume/consumetest -run '^TestRunner$' -v -count 20 -from %d -seeds 1", seed)
}

// rehearse plays seeds on all processors and gives the first that fails, by time.
func rehearse(t *testing.T, from, n uint64) (Coverage, *play) {
	t.Helper()
	total := newCoverage()
	var mu sync.Mutex
	var bad *play
	var next atomic.Uint64
	t.Run("plays", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
					synctest.Test(t, func(t *testing.T) {
						p := playOut(t.Context(), from+i)
						mu.Lock()
						defer mu.Unlock()
						p.cover.finish(p.check)
						total.Add(&p.cover)
						if p.check.violation != nil && bad == nil {
							bad = p
							next.Store(n)
						}
					})
				}
			})
		}
	})
	return total, bad
}
