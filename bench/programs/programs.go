// Package programs runs the programs that benchmarks measure, each in a process of its own: the
// built command, its peers, and the benchmark itself once more, for what may share neither its
// processor time nor its connections.
package programs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// patience is how long a program may take until it is ready.
const patience = 30 * time.Second

// Server is `laneway server` with its embedded etcd and JetStream.
type Server struct {
	Dir     string // has all of its files, in data
	Control string // URL of its control API
	cmd     *exec.Cmd
}

// Serve starts the built command over a folder of its own, at free ports, and waits until it is
// ready.
func Serve(ctx context.Context, binary string) (s *Server, err error) {
	s = &Server{}
	if s.Dir, err = os.MkdirTemp("", "laneway-bench-"); err != nil {
		return nil, err
	}
	ready := filepath.Join(s.Dir, "ready.json")
	s.cmd = exec.CommandContext(ctx, binary, "server", "--data", filepath.Join(s.Dir, "data"), "--ready-file", ready,
		"--listen", "control=127.0.0.1:0", "--listen", "gateway=127.0.0.1:0", "--listen", "inside=127.0.0.1:0", "--listen", "nats=127.0.0.1:0")
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s (make build makes it): %w", binary, err), os.RemoveAll(s.Dir))
	}
	at, err := Addresses(ctx, ready)
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.Control = "http://" + at["control"]
	return s, nil
}

// Stop ends the server, and removes its folder.
func (s *Server) Stop() error { return errors.Join(End(s.cmd), os.RemoveAll(s.Dir)) }

// ProcessorTime is what the server has used so far.
func (s *Server) ProcessorTime() (time.Duration, error) { return ProcessorTime(s.cmd.Process.Pid) }

// Addresses waits for the file that a server writes when it is ready, and gives what is in it:
// addresses by listener.
func Addresses(ctx context.Context, readyFile string) (at map[string]string, err error) {
	err = Poll(ctx, patience, func() error {
		text, err := os.ReadFile(readyFile)
		if err != nil {
			return fmt.Errorf("the server is not ready: %w", err)
		}
		return json.Unmarshal(text, &at)
	})
	return at, err
}

// Again runs this very program with other arguments and more of an environment, and waits until
// it has called [UntilEnd]. end makes that return, and waits for the process.
func Again(ctx context.Context, env []string, arguments ...string) (end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, self, arguments...)
	c.Env, c.Stderr = append(os.Environ(), env...), os.Stderr
	stdin, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	end = func() error { return errors.Join(stdin.Close(), c.Wait()) }
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return nil, errors.Join(fmt.Errorf("%s %s is not ready: %w", filepath.Base(self), strings.Join(arguments, " "), err), end())
	}
	return end, nil
}

// UntilEnd is the other side of [Again]: it says that the process is ready, and returns when it
// is to end, or the one that started it has.
func UntilEnd() error {
	if _, err := fmt.Fprintln(os.Stdout, "ready"); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// End asks a process to end, and waits for it. Its status is of no interest any more.
func End(c *exec.Cmd) error {
	if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	_ = c.Wait()
	return nil
}

// Poll tries every few milliseconds until f succeeds, or else gives its last error.
func Poll(ctx context.Context, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("gave up: %w", err)
		}
	}
}

// ProcessorTime is what a process and its children have used so far: nginx works in one. Linux
// alone tells.
func ProcessorTime(pid int) (time.Duration, error) {
	const tick = 10 * time.Millisecond // USER_HZ is 100 wherever Linux runs
	ticks := 0
	for pids := []int{pid}; len(pids) > 0; pids = pids[1:] {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pids[0]))
		if err != nil {
			return 0, err
		}
		// Fields after the name, which may hold spaces: proc(5), utime and stime.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 13 {
			return 0, fmt.Errorf("/proc tells nothing of process %d: %q", pids[0], text)
		}
		user, err1 := strconv.Atoi(fields[11])
		system, err2 := strconv.Atoi(fields[12])
		children, err3 := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pids[0], pids[0]))
		if err := errors.Join(err1, err2, err3); err != nil {
			return 0, err
		}
		ticks += user + system
		for f := range strings.FieldsSeq(string(children)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return 0, err
			}
			pids = append(pids, child)
		}
	}
	return time.Duration(ticks) * tick, nil
}
