package consumetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// How many seeds a broken variant may survive: of the simulation, and of real runners.
const (
	mutantSeeds       = 2000
	runnerMutantSeeds = 500
)

// caught is how a seed fails.
var caught = regexp.MustCompile(`seed (\d+): (\S+) at [^\n]*`)

// TestMutants breaks the protocol in every way that is known to be one, and demands that the
// simulation sees each. A broken variant is a patch in testdata/mutants over the source of
// package consume, or over the simulation's registry where it is the registry that does not
// compare; its first lines say what it breaks. To make one, change the source, diff -u, and
// change it back. A patch that does not fit the source any more fails.
func TestMutants(t *testing.T) {
	testMutants(t, "testdata/mutants/*.patch", 25, "^TestSimulation$", mutantSeeds)
}

// TestRunnerMutants does the same with what drives the protocol: a broken variant is one of
// package consume in which the core is as it should be, and [TestRunner] has to see it.
func TestRunnerMutants(t *testing.T) {
	testMutants(t, "testdata/mutants/runner/*.patch", 10, "^TestRunner$", runnerMutantSeeds)
}

func testMutants(t *testing.T, patches string, least int, test string, seeds int) {
	t.Helper()
	files, err := filepath.Glob(patches)
	if err != nil || len(files) < least {
		t.Fatalf("%d patches, %v: want at least %d", len(files), err, least)
	}
	if testing.Short() {
		files = files[:2] // each is built anew
	}
	var mu sync.Mutex
	var table []string
	t.Cleanup(func() {
		slices.Sort(table)
		t.Logf("caught, after how many seeds, as what:\n%s", strings.Join(table, "\n"))
	})
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".patch")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed, rule := runMutant(t, file, test, seeds)
			if seed == 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			table = append(table, fmt.Sprintf("%-40s %5d  %s", name, seed, rule))
		})
	}
}

// runMutant builds a test over a patched source and runs it. It gives the seed that
// failed first, and the rule that was broken; 0 where the test has failed.
func runMutant(t *testing.T, file, test string, seeds int) (seed int, rule string) {
	t.Helper()
	out, err := runPatched(t, file, test, seeds)
	m := caught.FindSubmatch(out)
	switch {
	case err == nil:
		t.Errorf("%d seeds do not see it", seeds)
	case m == nil:
		t.Errorf("it is not seen, but it fails: %v\n%s", err, out[:min(len(out), 3000)])
	default:
		seed, _ = strconv.Atoi(string(m[1]))
		return seed, string(m[2])
	}
	return 0, ""
}

// patched lays a patch over the source. It gives the name of a file for the overlay flag of the
// go command.
func patched(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := applyPatch(string(text), "..", t.TempDir())
	if err != nil {
		t.Fatalf("it does not fit the source any more: %v", err)
	}
	return overlay
}

// runPatched builds this package's tests over a patched source and runs some. The error is
// that of the tests.
func runPatched(t *testing.T, file, tests string, seeds int) ([]byte, error) {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "mutant.test")
	if out, err := command(t, "go", "test", "-c", "-overlay", patched(t, file), "-o", bin, "."); err != nil {
		t.Fatalf("it does not build: %v\n%s", err, out)
	}
	out, err := command(t, bin, "-test.run="+tests, "-test.cpu=1", "-seeds="+strconv.Itoa(seeds))
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	return out, err
}

// TestBrokenCheckers breaks the checker, and demands that its own tests, or what it is made
// to count, say so.
func TestBrokenCheckers(t *testing.T) {
	files, err := filepath.Glob("testdata/mutants/checker/*.patch")
	if err != nil || len(files) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	if testing.Short() {
		files = files[:1]
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".patch"), func(t *testing.T) {
			t.Parallel()
			if out, err := runPatched(t, file, "^(TestChecker.*|TestSimulation)$", 200); err == nil {
				t.Errorf("nobody sees it:\n%s", out)
			}
		})
	}
}

// TestRareMutants breaks what a simulation comes to too seldom, and demands that the
// scenarios see it.
func TestRareMutants(t *testing.T) {
	files, err := filepath.Glob("testdata/mutants/rare/*.patch")
	if err != nil || len(files) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".patch"), func(t *testing.T) {
			t.Parallel()
			out, err := command(t, "go", "test", "-count=1", "-overlay", patched(t, file), "-run=^TestScenarios$", "./scenario")
			if err == nil || !bytes.Contains(out, []byte("FAIL: TestScenarios/")) {
				t.Errorf("no scenario sees it: %v\n%s", err, out)
			}
		})
	}
}

// command runs a command to its end and gives what it printed.
func command(t *testing.T, name string, args ...string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out bytes.Buffer
	c := exec.CommandContext(ctx, name, args...)
	c.Stdout, c.Stderr = &out, &out
	c.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off")
	err := c.Run()
	return out.Bytes(), err
}

// applyPatch applies a unified diff to the files of a folder and leaves the results in
// another one. It gives the name of a file for the overlay flag of the go command. Line
// numbers are not looked at: the old lines of every hunk must be in the file exactly once.
func applyPatch(patch, from, to string) (overlay string, err error) {
	files := map[string]string{}
	var name string
	var old, now strings.Builder
	flush := func() error {
		if old.Len() == 0 && now.Len() == 0 {
			return nil
		}
		if n := strings.Count(files[name], old.String()); n != 1 {
			return fmt.Errorf("%s has these lines %d times:\n%s", name, n, old.String())
		}
		files[name] = strings.Replace(files[name], old.String(), now.String(), 1)
		old.Reset()
		now.Reset()
		return nil
	}
	begun := false
	for line := range strings.Lines(patch) {
		switch {
		case strings.HasPrefix(line, "--- "):
			if err := flush(); err != nil {
				return "", err
			}
			begun = true
		case !begun:
		case strings.HasPrefix(line, "+++ b/"):
			name = strings.TrimSpace(strings.TrimPrefix(line, "+++ b/"))
			source, err := os.ReadFile(filepath.Join(from, name))
			if err != nil {
				return "", err
			}
			files[name] = string(source)
		case strings.HasPrefix(line, "@@"):
			if err := flush(); err != nil {
				return "", err
			}
		case strings.HasPrefix(line, "-"):
			old.WriteString(line[1:])
		case strings.HasPrefix(line, "+"):
			now.WriteString(line[1:])
		default:
			line = strings.TrimPrefix(line, " ")
			old.WriteString(line)
			now.WriteString(line)
		}
	}
	if err := flush(); err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", errors.New("the patch changes nothing")
	}
	replace := map[string]string{}
	for name, text := range files {
		path, err := filepath.Abs(filepath.Join(from, name))
		if err != nil {
			return "", err
		}
		replace[path] = filepath.Join(to, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replace[path], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(to, "overlay.json")
	return overlay, os.WriteFile(overlay, data, 0o600)
}

// TestPatchesFit: the variants are too slow for every commit, but whether each still fits the
// source is seen at once.
func TestPatchesFit(t *testing.T) {
	var files []string
	for _, folder := range []string{".", "runner", "checker", "rare"} {
		found, err := filepath.Glob(filepath.Join("testdata", "mutants", folder, "*.patch"))
		if err != nil || len(found) == 0 {
			t.Fatalf("no patches in %s: %v", folder, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { patched(t, file) })
	}
}

// TestPatchMustFit: a patch whose lines are not in the source, or are there twice, is refused.
func TestPatchMustFit(t *testing.T) {
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "a.go"), []byte("one\ntwo\nthree\ntwo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, hunk string
		fits       bool
	}{
		{"fits", " one\n-two\n+2\n", true},
		{"is not there", "-four\n+4\n", false},
		{"is there twice", "-two\n+2\n", false},
	} {
		to := t.TempDir()
		_, err := applyPatch("what it breaks\n--- a/a.go\n+++ b/a.go\n@@ -1 +1 @@\n"+c.hunk, from, to)
		if (err == nil) != c.fits {
			t.Errorf("%s: %v", c.name, err)
		}
		if got, _ := os.ReadFile(filepath.Join(to, "a.go")); c.fits && string(got) != "one\n2\nthree\ntwo\n" {
			t.Errorf("%s: gives %q", c.name, got)
		}
	}
	if _, err := applyPatch("nothing at all", from, t.TempDir()); err == nil {
		t.Error("a patch without a change is let through")
	}
}
