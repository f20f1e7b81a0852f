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

	"github.com/laneway-dev/laneway/test/command"
)

// built is the binary under test, set by TestMain before any test runs.
var built string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	if mode := os.Getenv(serviceMode); mode != "" {
		if err := services()[mode](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	path, remove, err := command.Build("..", buildFlags()...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer remove()
	built = path
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
	*command.Process
	stdout, stderr output
}

// startProcess starts the command with the arguments given. When the test ends it
// is asked to end, and killed where it does not.
func startProcess(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := new(process)
	cmd := exec.Command(built, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = &p.stdout, &p.stderr
	cmd.WaitDelay = 10 * time.Second
	var err error
	if p.Process, err = command.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Signal(syscall.SIGTERM)
		select {
		case <-p.Done:
		case <-time.After(20 * time.Second):
			t.Errorf("%s did not end within 20 s of TERM", p.Cmd)
			p.Kill()
		}
		if t.Failed() {
			t.Logf("%s\nstdout: %s\nstderr: %s", p.Cmd, p.stdout.String(), p.stderr.String())
		}
	})
	return p
}

// wait returns the exit status; 128 and more is not translated, a signal is -1.
func (p *process) wait(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.Done:
		return p.Cmd.ProcessState.ExitCode()
	case <-time.After(within):
		t.Fatalf("%s has not ended within %s\nstderr: %s", p.Cmd, within, p.stderr.String())
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
		case <-s.Done:
			t.Fatalf("%s has ended: %s\nstderr: %s", s.Cmd, s.Cmd.ProcessState, s.stderr.String())
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
