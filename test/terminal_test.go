package test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// terminal is a program with a terminal of its own.
type terminal struct {
	in  io.Writer
	out output
	cmd *exec.Cmd
}

// startTerminal runs one command at a terminal, by script of util-linux. No shell stays
// between the two: some end by the signal of Ctrl-C whatever the command's own status is.
func startTerminal(t *testing.T, command string) *terminal {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	p := &terminal{cmd: exec.CommandContext(ctx, "script", "-qec", "exec "+command, "/dev/null")}
	p.cmd.Env = append(os.Environ(), "HISTFILE=", "SHELL=/bin/sh")
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// types sends what a person would type.
func (p *terminal) types(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(p.in, text); err != nil {
		t.Fatalf("%v: %s", err, p.out.String())
	}
}

// shows waits until the terminal has shown something.
func (p *terminal) shows(t *testing.T, want string) {
	t.Helper()
	poll(t, 20*time.Second, func() error {
		if !strings.Contains(p.out.String(), want) {
			return fmt.Errorf("got %q, want %q in it", p.out.String(), want)
		}
		return nil
	})
}

// TestRunGivesTheTerminalBack is about job control: a process that reads from a
// terminal can, and its supervisor has the terminal again afterwards.
func TestRunGivesTheTerminalBack(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	program := filepath.Join(t.TempDir(), "program")
	text := fmt.Sprintf("%s run --control %s --service tty --no-listen -- sh -c 'read x; echo got $x'\nread y\necho then $y\n", built, s.url())
	if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startTerminal(t, "sh "+program)
	p.shows(t, "msg=registered")
	p.types(t, "first\n")
	p.shows(t, "got first")
	p.types(t, "second\n")
	p.shows(t, "then second")
	if err := p.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, p.out.String())
	}
}

// TestRunStopsAtTheTerminal presses Ctrl-Z: the shell has the terminal, and with fg
// the process goes on.
func TestRunStopsAtTheTerminal(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startTerminal(t, "env PS1='prompt> ' TERM=dumb bash --norc --noprofile -i")
	p.shows(t, "prompt> ")
	p.types(t, fmt.Sprintf("%s run --control %s --service tty --no-listen -- sed -u s/a/b/\n", built, s.url()))
	p.shows(t, "msg=registered")
	p.types(t, "1a1\n")
	p.shows(t, "1b1")
	p.types(t, "\x1a")
	p.shows(t, "Stopped")
	p.types(t, "echo at the $((1+1))nd prompt\n")
	p.shows(t, "at the 2nd prompt")
	p.types(t, "fg\n2a2\n")
	p.shows(t, "2b2")
	p.types(t, "\x03")
	p.shows(t, "msg=ended")
	p.types(t, "exit 5\n")
	var exit *exec.ExitError
	if err := p.cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("%v, want exit status 5: %s", err, p.out.String())
	}
}

// atTerminal starts a service of this binary under `laneway run` at a terminal.
func (s *server) atTerminal(t *testing.T, mode string, flags ...string) *terminal {
	t.Helper()
	args := append([]string{"env", serviceMode + "=" + mode, built, "run", "--control", s.url()}, flags...)
	return startTerminal(t, strings.Join(append(args, "--", os.Args[0]), " "))
}

// exits waits until the program has ended and gives its status.
func (p *terminal) exits(t *testing.T) int {
	t.Helper()
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, p.out.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

const ctrlC, ctrlZ = "\x03", "\x1a"

// TestRunInterruptedAtTheTerminal presses Ctrl-C: the instance is out of the choice
// before its process closes its port, so that no request fails.
func TestRunInterruptedAtTheTerminal(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "slow", nil, "--service", "order", "--instance", "stays")
	s.registered(t, "order", "stays")
	p := s.atTerminal(t, "abrupt", "--service", "order", "--instance", "o1", "--lane", "green")
	s.registered(t, "order", "o1")
	l := s.load(t, http.MethodPost, "green--order.lane.localhost")
	poll(t, 20*time.Second, func() error {
		if !slices.Contains(l.who(), "o1") {
			return errors.New("o1 gets no request")
		}
		return nil
	})
	p.types(t, ctrlC)
	p.shows(t, "asked to end while draining")
	if status := p.exits(t); status != 5 {
		t.Errorf("exit status %d, want 5, the process's own: %s", status, p.out.String())
	}
	poll(t, 20*time.Second, func() error {
		if !slices.Contains(l.who(), "stays") {
			return errors.New("the baseline does not take over")
		}
		return nil
	})
	l.end()
	// How many it takes until the gateway follows is not promised to a busy machine.
	t.Logf("%d requests, %d failed, by %v", l.sent, len(l.failed), l.by)
}

// TestRunKillsTheDeafAtTheTerminal presses Ctrl-C for a process that does not care.
func TestRunKillsTheDeafAtTheTerminal(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.atTerminal(t, "deaf", "--service", "hard", "--instance", "h1", "--no-listen", "--drain", "1s")
	p.shows(t, "msg=registered")
	p.shows(t, "deaf ")
	p.types(t, ctrlC)
	if status := p.exits(t); status != 137 {
		t.Errorf("exit status %d, want 137: killed at the drain deadline: %s", status, p.out.String())
	}
}

// TestRunInterruptedTwice presses Ctrl-C while the first one still waits for the
// control plane, which does not answer: the second one goes to the process at once.
func TestRunInterruptedTwice(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.atTerminal(t, "signals", "--service", "signals", "--instance", "s1", "--no-listen")
	p.shows(t, "msg=registered")
	p.shows(t, "noting")
	s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	p.types(t, ctrlC)
	p.shows(t, "asked to end")
	p.types(t, ctrlC)
	if status := p.exits(t); status != 0 || strings.Count(p.out.String(), "got interrupt") != 2 {
		t.Errorf("exit status %d, want 0 and two interrupts: %s", status, p.out.String())
	}
}

// TestRunREPL has a program that reads the terminal: it gets Ctrl-C itself, which
// does not mean its end, so the instance stays.
func TestRunREPL(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.atTerminal(t, "repl", "--service", "repl", "--instance", "r1", "--no-listen")
	p.shows(t, "msg=registered")
	p.types(t, "one\n")
	p.shows(t, "read one")
	p.types(t, ctrlC)
	p.shows(t, "noted interrupt")
	p.types(t, "two\n")
	p.shows(t, "read two")
	if state := s.instances(t, "repl")["r1"].State; state != "ready" {
		t.Errorf("the instance is %q, want it ready", state)
	}
	p.types(t, "bye\n")
	if status := p.exits(t); status != 4 {
		t.Errorf("exit status %d, want 4: %s", status, p.out.String())
	}
}

// TestRunSuspendsAServer presses Ctrl-Z for a program that does not read the
// terminal: it stops too, goes on in the background, and ends with Ctrl-C once it is
// in the foreground again.
func TestRunSuspendsAServer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := startTerminal(t, "env PS1='prompt> ' TERM=dumb bash --norc --noprofile -i")
	p.shows(t, "prompt> ")
	p.types(t, fmt.Sprintf("%s=deaf %s run --control %s --service job --instance j1 --no-listen --drain 1s -- %s\n", serviceMode, built, s.url(), os.Args[0]))
	p.shows(t, "msg=registered")
	p.shows(t, "\ndeaf ")
	_, after, _ := strings.Cut(p.out.String(), "\ndeaf ")
	pid, err := strconv.Atoi(strings.Fields(after)[0])
	if err != nil {
		t.Fatal(err)
	}
	is := func(want byte) {
		t.Helper()
		poll(t, 20*time.Second, func() error {
			if got := processState(pid); (got == 'T') != (want == 'T') {
				return fmt.Errorf("process %d is in state %c, want %c: %s", pid, got, want, p.out.String())
			}
			return nil
		})
	}
	p.types(t, ctrlZ)
	p.shows(t, "Stopped")
	is('T')
	p.types(t, "bg; echo in the $((1+1))nd place\n")
	p.shows(t, "in the 2nd place")
	is('S')
	p.types(t, "fg; echo status $?\n")
	// It is in the foreground as soon as the shell has shown the command again.
	poll(t, 20*time.Second, func() error {
		if _, after, _ := strings.Cut(p.out.String(), "echo status"); !strings.Contains(after, " run --control") {
			return fmt.Errorf("not in the foreground: %s", p.out.String())
		}
		return nil
	})
	p.types(t, ctrlC)
	p.shows(t, "status 137")
	p.types(t, "exit 5\n")
	if status := p.exits(t); status != 5 {
		t.Errorf("exit status %d, want 5: %s", status, p.out.String())
	}
}

// processState is the letter of a process's state in /proc, or '-' where it is gone.
func processState(pid int) byte {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if _, rest, found := strings.Cut(string(stat), ") "); err == nil && found {
		return rest[0]
	}
	return '-'
}

// What a server tells a person to try next works with that server.
func TestServerTellsWhereItIs(t *testing.T) {
	t.Parallel()
	p := startTerminal(t, binary(t)+" server --registry mem --engine main=embedded --listen control=127.0.0.1:0 --listen gateway=127.0.0.1:0 --listen inside=127.0.0.1:0 --listen nats=127.0.0.1:0 --data "+t.TempDir())
	p.shows(t, "Ready. Try: laneway run --control http://127.0.0.1:")
	p.types(t, "\x03")
	if status := p.exits(t); status != 0 {
		t.Errorf("exit status %d, want 0: %s", status, p.out.String())
	}
}
