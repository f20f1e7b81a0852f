package chaos

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/test/command"
)

// mutant is a way to break package consume: a change of one of its files, and how it shows.
type mutant struct{ name, file, old, now, caught string }

func mutants() []mutant {
	return []mutant{
		{
			"a note leaves out one of what is unsettled", "run.go",
			"	left = r.flight.left(left)\n	slices.Sort(left)\n",
			"	left = r.flight.left(left)\n	slices.Sort(left)\n	left = left[min(1, len(left)):]\n",
			"lost ",
		},
		{
			"a release does not wait for what is in flight", "moves.go",
			"return r.stopping && (r.flight.out == 0 || r.cut)",
			"return r.stopping",
			"twice ",
		},
		{
			"who takes over from one that was killed does not say so", "run.go",
			"c.hand(r, m, o, m.Offset < r.doubtful)",
			"c.hand(r, m, o, false)",
			"unflagged ",
		},
	}
}

// TestMutants breaks the protocol, and demands that the proof on real processes sees it. Each
// takes more than a minute, so that there are few of them by default; the simulation has all.
// Whether they fit the source is looked at for all of them.
func TestMutants(t *testing.T) {
	for i, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			overlay := command.Overlay(t, filepath.Join("..", "..", "lane", "consume", m.file), m.old, m.now)
			if i >= *mutantsFlag {
				return
			}
			bin := filepath.Join(t.TempDir(), "mutant.test")
			build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", bin, ".")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("it does not build: %v\n%s", err, out)
			}
			run := exec.CommandContext(t.Context(), bin, "-test.run=^TestChaos$", "-test.short", "-test.timeout=15m",
				"-duration=20s", "-messages=10000", "-patience=20s", "-keep="+t.TempDir())
			out, err := run.CombinedOutput()
			if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
				t.Fatal(err)
			}
			if err == nil || !strings.Contains(string(out), m.caught) {
				t.Errorf("it is not seen, want %q: %v\n%s", m.caught, err, out[:min(len(out), 5000)])
			}
		})
	}
}
