package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPythonInLane puts a service in Python, that knows no SDK, into the place of
// the demo's B2: called over gRPC by one in Go, calling over Thrift another.
func TestPythonInLane(t *testing.T) {
	t.Parallel()
	d := keepDemo(t)
	if err := syscall.Kill(d.pids["B2"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	d.until(t, "B2 has ended")

	python := filepath.Join(strings.TrimSpace(runIn(t, "..", nil, "tools/venv.sh")), "bin", "python")
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: run make setup", err)
	}
	cmd := exec.Command(binary(t), "run", "--control", d.control, "--lane", "green", "--service", "b",
		"--instance", "B2", "--listen", "grpc=0", "--", python, "py/b2.py")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })

	const host = "green--a.lane.localhost"
	poll(t, 20*time.Second, func() error {
		if got, want := d.path(t, host), "A1 B2 C1 D2 E1"; got != want {
			return fmt.Errorf("got %s, want %s", got, want)
		}
		return nil
	})
	var hops []demoHop
	for _, v := range d.visits(t, host) {
		hops = append(hops, demoHop{v.Service, v.Instance, v.Protocol, v.Reason})
		if v.Color != "green" {
			t.Errorf("%s saw color %q, want green", v.Instance, v.Color)
		}
	}
	// The first reason is the gateway's, of which the services know nothing.
	if want := slices.Concat([]demoHop{{"a", "A1", "http", ""}}, demoGreen[1:]); !slices.Equal(hops, want) {
		t.Errorf("got %v, want %v", hops, want)
	}
	if got, want := d.path(t, "a.lane.localhost"), "A1 B1 C1 D1 E1"; got != want {
		t.Errorf("plain: got %s, want %s", got, want)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("asked to end: %v, want exit status 0", err)
	}
	poll(t, 5*time.Second, func() error {
		if got, want := d.path(t, host), "A1 B1 C1 D2 E1"; got != want {
			return fmt.Errorf("the program in Python has ended: got %s, want %s", got, want)
		}
		return nil
	})
}
