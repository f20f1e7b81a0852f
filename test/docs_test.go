package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// indented returns the lines of a Markdown file that stand as code below a heading, in
// blocks.
func indented(t *testing.T, file, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", file))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut("\n"+string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("%s has no heading %q", file, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks [][]string
	inside := false
	for line := range strings.Lines(section) {
		code, isCode := strings.CutPrefix(strings.TrimRight(line, "\n"), "    ")
		switch {
		case isCode && !inside:
			blocks = append(blocks, []string{code})
		case isCode:
			blocks[len(blocks)-1] = append(blocks[len(blocks)-1], code)
		}
		inside = isCode
	}
	return blocks
}

// reader is somebody with a server and the command on the path.
type reader struct {
	*server
	bin string
}

// shell runs a line as a reader would type it, against the server of the test.
func shell(ctx context.Context, s reader, dir, line string) (string, error) {
	line = strings.ReplaceAll(line, ":7780", ":"+port(s.addresses["gateway"]))
	line = strings.ReplaceAll(line, ":7781", ":"+port(s.addresses["inside"]))
	command := exec.CommandContext(ctx, "bash", "-c", line)
	command.Dir = dir
	command.Env = append(os.Environ(), "LANEWAY_CONTROL="+s.url(), "PATH="+s.bin+":"+os.Getenv("PATH"), "TMPDIR="+dir)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	out, err := command.CombinedOutput()
	return string(out), err
}

// TestReadme types what the README tells a newcomer to type, but for the ports.
func TestReadme(t *testing.T) {
	s := reader{startServer(t), filepath.Dir(binary(t))}
	blocks := indented(t, "README.md", "## Try it with your own service")
	if len(blocks) != 3 {
		t.Fatalf("README.md has %d blocks to try, want 3: build and serve, run, ask", len(blocks))
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(blocks[1]))
	for _, line := range blocks[1] {
		go func() {
			out, err := shell(ctx, s, dir, line)
			if ctx.Err() != nil {
				err = nil // ended by the test
			} else {
				err = fmt.Errorf("%s ended: %w: %s", line, errors.Join(err), out)
			}
			ended <- err
		}()
	}
	t.Cleanup(func() {
		cancel()
		for range blocks[1] {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	})
	asked := 0
	for _, line := range blocks[2] {
		line, want, found := strings.Cut(line, "#")
		if !found {
			continue
		}
		asked++
		poll(t, 20*time.Second, func() error {
			out, err := shell(ctx, s, dir, strings.Replace(line, "curl", "curl -sS", 1))
			if err == nil && strings.TrimSpace(out) != strings.TrimSpace(want) {
				err = fmt.Errorf("%s printed %q, want %q", line, out, want)
			}
			return err
		})
	}
	if asked != 2 {
		t.Errorf("README.md has %d lines that say what they answer, want 2", asked)
	}
}

// TestColoringGuide applies the rules of the guide and asks as it says.
func TestColoringGuide(t *testing.T) {
	s := reader{startServer(t), filepath.Dir(binary(t))}
	dir := t.TempDir()
	for name, of := range map[string]string{"base": "", "changed": "green"} {
		startProcess(t, []string{"LANEWAY_CONTROL=" + s.url()}, "run", "--service", "hello", "--lane", of, "--instance", name,
			"--", "sh", "-c", "mkdir -p "+dir+"/"+name+" && cd "+dir+"/"+name+" && echo "+name+" > index.html && exec python3 -m http.server $PORT")
	}
	// Until the baseline has an instance the gateway answers in its place, and curl is content.
	poll(t, 20*time.Second, func() error {
		out, err := shell(t.Context(), s, dir, "curl -sS http://hello.lane.localhost:7780/")
		if err == nil && strings.TrimSpace(out) != "base" {
			err = fmt.Errorf("the baseline answers %q, want base", out)
		}
		return err
	})
	var rules, lines []string
	for _, block := range indented(t, "docs/guides/coloring.md", "# Coloring requests") {
		for _, line := range block {
			switch {
			case strings.HasPrefix(line, "laneway "), strings.HasPrefix(line, "curl "):
				lines = append(lines, line)
			default:
				rules = append(rules, line)
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(strings.Join(rules, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		want := "" // anything
		switch {
		case strings.Contains(line, "green"):
			want = "changed"
		case strings.Contains(line, "laneway apply"):
			want = "3 changed"
		}
		poll(t, 20*time.Second, func() error {
			out, err := shell(t.Context(), s, dir, line)
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("%s printed %q, want %q in it", line, out, want)
			}
			return err
		})
	}
	if len(lines) < 5 {
		t.Errorf("the guide has %d lines to type, want 5 or more", len(lines))
	}
	asks := 0
	for _, block := range indented(t, "docs/guides/coloring.md", "## Who would get it?") {
		for _, line := range block {
			asks++
			want := "lane-instance"
			if strings.Contains(line, "gren") {
				want = "x-laneway-route: service=hello lane=- instance=base rule=trusted reason=unknown-color"
			}
			if out, err := shell(t.Context(), s, dir, line); err != nil || !strings.Contains(strings.ToLower(out), want) {
				t.Errorf("%s printed %q, %v, want %q in it", line, out, err, want)
			}
		}
	}
	if asks != 3 {
		t.Errorf("the guide asks %d times, want 3", asks)
	}
}

// TestMessagesGuide types the commands of the guide.
func TestMessagesGuide(t *testing.T) {
	t.Parallel()
	s := reader{startServer(t), filepath.Dir(binary(t))}
	blocks := indented(t, "docs/guides/messages.md", "## With the command")
	if len(blocks) != 1 || len(blocks[0]) < 5 {
		t.Fatalf("the guide has %q to type, want five lines", blocks)
	}
	for _, line := range blocks[0] {
		if out, err := shell(t.Context(), s, t.TempDir(), line); err != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}
