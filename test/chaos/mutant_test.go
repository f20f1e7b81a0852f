package chaos

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/test/command"
)

// mutant is a way to break what is under test: a change of one of its files, and how it shows.
type mutant struct{ name, file, old, now, caught string }

func mutants() []mutant {
	return []mutant{
		{
			"a note leaves out one of what is unsettled", "lane/consume/run.go",
			"	left = r.flight.left(left)\n	slices.Sort(left)\n",
			"	left = r.flight.left(left)\n	slices.Sort(left)\n	left = left[min(1, len(left)):]\n",
			"lost ",
		},
		{
			"a release does not wait for what is in flight", "lane/consume/moves.go",
			"return r.stopping && (r.flight.out == 0 || r.cut)",
			"return r.stopping",
			"twice ",
		},
		{
			"who takes over from one that was killed does not say so", "lane/consume/run.go",
			"c.hand(r, m, o, m.Offset < r.doubtful)",
			"c.hand(r, m, o, false)",
			"unflagged ",
		},
		{
			"a message without a key has its place by turns, whatever its ID", "integrations/jetstream/append.go",
			"	case m.ID != \"\":\n		_, _ = h.Write([]byte(m.ID))\n",
			"	case m.ID != \"\" && n == 0:\n		_, _ = h.Write([]byte(m.ID))\n",
			"in the log more than once",
		},
		{
			"a group that is paused goes on", "lane/consume/run.go",
			"case r.stopping, r.cut, p.halted, c.paused(), p.resetting,",
			"case r.stopping, r.cut, p.halted, p.resetting,",
			"knew the group to be paused",
		},
	}
}

// TestMutants breaks the protocol, and demands that the proof on real processes sees it. Each
// takes more than a minute, so that there are few of them by default; the simulation has all.
// Whether they fit the source is looked at for all of them.
func TestMutants(t *testing.T) {
	for i, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			overlay := command.Overlay(t, filepath.Join("..", "..", filepath.FromSlash(m.file)), m.old, m.now)
			if i >= *mutantsFlag {
				return
			}
			bin := filepath.Join(t.TempDir(), "mutant.test")
			build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", bin, ".")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("it does not build: %v\n%s", err, out)
			}
			run := exec.CommandContext(t.Context(), bin, "-test.run=^TestChaos$", "-test.short", "-test.timeout=15m",
				"-duration=30s", "-messages=10000", "-patience=20s", "-keep="+t.TempDir())
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
