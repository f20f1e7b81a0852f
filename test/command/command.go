// Package command builds the command for the tests that see it from outside, and starts
// processes for them. Only tests below this folder import it.
package command

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// builtVar names the command to other processes of the same tests, which need not build it.
const builtVar = "TEST_BUILT"

// Build builds the command from the root of the repository, with flags for the go command
// beside its own, and returns its path; remove takes it away again. A process that was
// started by one that had built it gets the same one. What the caller's shell has set to
// configure the command is taken out of the environment: it must not configure what is
// tested. To be called by TestMain, before there are other goroutines.
func Build(root string, flags ...string) (path string, remove func(), err error) {
	if path = os.Getenv(builtVar); path != "" {
		return path, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "laneway-test-")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "laneway")
	args := append(append([]string{"build"}, flags...), "-o", path, "./cmd/laneway")
	build := exec.CommandContext(context.Background(), "go", args...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		remove()
		return "", nil, fmt.Errorf("build the command: %w\n%s", err, out)
	}
	for _, e := range os.Environ() {
		if key, _, _ := strings.Cut(e, "="); strings.HasPrefix(key, "LANEWAY_") || strings.HasPrefix(key, "OTEL_") {
			_ = os.Unsetenv(key)
		}
	}
	_ = os.Setenv(builtVar, path)
	return path, remove, nil
}

// Process is a process under test. Its methods may be called at once.
type Process struct {
	Cmd  *exec.Cmd
	Done <-chan struct{} // closed when it has ended, and Cmd.ProcessState is there
}

// Start starts a command and waits for it beside its caller, who has to see to it that it
// ends.
func Start(cmd *exec.Cmd) (*Process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait()
	}()
	return &Process{Cmd: cmd, Done: done}, nil
}

// Ended reports whether the process has ended.
func (p *Process) Ended() bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// Signal sends a signal; a process that has ended is no error.
func (p *Process) Signal(sig syscall.Signal) { _ = p.Cmd.Process.Signal(sig) }

// Kill ends the process as a crash would, and returns when it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Done
}

// Ports for servers that come back at the same address. Those from 20000 on `laneway run`
// gives away, and from 32768 on Linux, to outgoing connections: one of them might have it by
// then.
const firstPort, ports = 10_000, 10_000

// FreeAddress is one on loopback that was free just now.
func FreeAddress(t *testing.T) string {
	t.Helper()
	for range 1000 {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+rand.IntN(ports)))
		if err == nil {
			defer func() { _ = l.Close() }()
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}
