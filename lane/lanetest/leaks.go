package lanetest

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// leakWait is how long goroutines may take to end after the test.
const leakWait = 5 * time.Second

// CheckLeaks fails the test if, five seconds after its end, goroutines are left that
// were not there when CheckLeaks was called. Call it first, so that it looks after
// all clean-ups. Tests that run in parallel would see each other's goroutines: such
// packages use [CheckMain].
func CheckLeaks(t testing.TB) {
	t.Helper()
	before := map[string]bool{}
	for _, g := range goroutines() {
		before[g.id] = true
	}
	t.Cleanup(func() {
		if left := awaitNone(before); len(left) > 0 {
			t.Errorf("%d goroutines are left:\n\n%s", len(left), strings.Join(left, "\n\n"))
		}
	})
}

// CheckMain runs a package's tests and fails it if goroutines are left behind:
//
//	func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }
func CheckMain(m *testing.M) int {
	before := map[string]bool{}
	for _, g := range goroutines() {
		before[g.id] = true
	}
	code := m.Run()
	if code != 0 {
		return code
	}
	if left := awaitNone(before); len(left) > 0 {
		_, _ = fmt.Fprintf(os.Stderr, "%d goroutines are left:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		return 1
	}
	return 0
}

// awaitNone returns the stacks that are still there after leakWait.
func awaitNone(before map[string]bool) []string {
	deadline := time.Now().Add(leakWait)
	for {
		var left []string
		for _, g := range goroutines() {
			if !before[g.id] && !g.ours() {
				left = append(left, g.stack)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(5 * time.Millisecond)
	}
}

type goroutine struct{ id, stack string }

// ours reports whether a goroutine belongs to the testing machinery or the runtime.
func (g goroutine) ours() bool {
	return slices.ContainsFunc([]string{
		"testing.(*M).", "testing.(*T).Run", "testing.tRunner", "testing.runFuzz", "testing.(*F)",
		"os/signal.loop", "os/signal.signal_recv", "runtime.ensureSigM", "runtime/trace.Start", "testing/synctest",
		"internal/synctest", "lanetest.goroutines", "runtime.ReadTrace", "runtime/pprof",
	}, func(mark string) bool { return strings.Contains(g.stack, mark) })
}

// goroutines lists all goroutines with their stacks.
func goroutines() []goroutine {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var list []goroutine
	for text := range strings.SplitSeq(string(buf), "\n\n") {
		id, _, _ := strings.Cut(strings.TrimPrefix(text, "goroutine "), " ")
		list = append(list, goroutine{id, strings.TrimSpace(text)})
	}
	return list
}
