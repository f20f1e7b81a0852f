// Package test has the black-box tests: they build the command once and see it as
// users do, by its flags, its ports, its output and its exit status.
package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// built is the binary under test, set by TestMain before any test runs.
var built string

// builtBinary is the environment variable that names it to other processes of the tests.
const builtBinary = "TEST_BUILT"

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if mode := os.Getenv(serviceMode); mode != "" {
		if err := services()[mode](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if built = os.Getenv(builtBinary); built != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "laneway-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	built = filepath.Join(dir, "laneway")
	build := exec.Command("go", append(append([]string{"build"}, buildFlags()...), "-o", built, "./cmd/laneway")...)
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the command: %v\n%s", err, out)
		return 1
	}
	// What the caller's shell has set must not configure what is tested.
	for _, e := range os.Environ() {
		if key, _, _ := strings.Cut(e, "="); strings.HasPrefix(key, "LANEWAY_") || strings.HasPrefix(key, "OTEL_") {
			_ = os.Unsetenv(key)
		}
	}
	_ = os.Setenv(builtBinary, built)
	return m.Run()
}

// binary is the path of the command.
func binary(t *testing.T) string {
	t.Helper()
	return built
}

// poll calls check until it returns nil, and fails the test with its last error
// when that takes too long.
func poll(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", within, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a command that runs until it is ended.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{} // closed when it has ended
}

// startProcess starts the command with the arguments given. When the test ends it
// is asked to end, and killed where it does not.
func startProcess(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(built, args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = 10 * time.Second
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(20 * time.Second):
			t.Errorf("%s did not end within 20 s of TERM", p.cmd)
			p.signal(syscall.SIGKILL)
			<-p.done
		}
		if t.Failed() {
			t.Logf("%s\nstdout: %s\nstderr: %s", p.cmd, p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

// signal sends a signal; a process that has ended is no error.
func (p *process) signal(sig syscall.Signal) {
	select {
	case <-p.done:
	default:
		_ = p.cmd.Process.Signal(sig)
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// wait returns the exit status; 128 and more is not translated, a signal is -1.
func (p *process) wait(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("%s has not ended within %s\nstderr: %s", p.cmd, within, p.stderr.String())
		return 0
	}
}

// server is a `laneway server`.
type server struct {
	*process
	ready     string            // the file that it writes when it is ready
	addresses map[string]string // role: host:port
}

// url is the address of the control API.
func (s *server) url() string { return "http://" + s.addresses["control"] }

// startServer starts a server on free ports and returns when it is ready. Without
// --data among args, its data is in a directory of the test.
func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := launchServer(t, args...)
	s.await(t)
	return s
}

// launchServer is startServer that does not wait.
func launchServer(t *testing.T, args ...string) *server {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready.json")
	all := []string{"server", "--ready-file", ready}
	given := strings.Join(args, " ")
	for _, role := range []string{"control", "gateway", "inside", "nats"} {
		if !strings.Contains(given, role+"=") {
			all = append(all, "--listen", role+"=127.0.0.1:0")
		}
	}
	if !strings.Contains(given, "--data") {
		all = append(all, "--data", filepath.Join(dir, "data"))
	}
	return &server{process: startProcess(t, nil, append(all, args...)...), ready: ready}
}

// await returns when the server is ready.
func (s *server) await(t *testing.T) {
	t.Helper()
	poll(t, 30*time.Second, func() error {
		select {
		case <-s.done:
			t.Fatalf("%s has ended: %s\nstderr: %s", s.cmd, s.cmd.ProcessState, s.stderr.String())
		default:
		}
		text, err := os.ReadFile(s.ready)
		if err != nil {
			return err
		}
		return json.Unmarshal(text, &s.addresses)
	})
}

// cli runs a command against the server and returns what it wrote and its exit
// status.
func (s *server) cli(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	return cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, "", args...)
}

// must is cli for commands that have to succeed; it returns the standard output.
func (s *server) must(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, status := s.cli(t, args...)
	if status != 0 {
		t.Fatalf("laneway %s: exit status %d: %s", strings.Join(args, " "), status, stderr)
	}
	return stdout
}

// cli runs the command to its end.
func cli(t *testing.T, env []string, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, built, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// get sends a plain GET to an address under a host name.
func get(t *testing.T, address, host, path string) (status int, body string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	req.Host = host
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}
