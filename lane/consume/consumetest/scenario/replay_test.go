package scenario

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the traces of the scenarios")

// TestScenarios replays every scenario and compares its trace.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Replay(script)
			if err != nil {
				t.Error(err)
			}
			if got == nil || bytes.Equal(got, script) {
				return
			}
			if *update {
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			was, is := strings.Split(string(script), "\n"), strings.Split(string(got), "\n")
			for i := range was {
				if i >= len(is) || was[i] != is[i] {
					t.Errorf("line %d: got %q, want %q\nIf that is as it should be: go test -run TestScenarios -update",
						i+1, strings.Join(is[min(i, len(is)):min(i+1, len(is))], ""), was[i])
					return
				}
			}
			t.Errorf("the trace goes on: %q", is[len(was):])
		})
	}
}
