//go:build unix

package deploy

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laneway-dev/laneway/internal/telemetry"
)

// A child's process group is in the background of the terminal, so that Ctrl-C
// comes to the supervisor, which takes the instance out of the choice before it
// passes it on. A group in the background is stopped when it reads the terminal or
// changes its settings: then the terminal is lent to it for good, and Ctrl-C is the
// child's own, as it must be for whatever talks with a person.

// resumeAnyway is after how long a supervisor that wanted to be stopped, and was
// not, goes on with its child: in a group that no shell looks after, a terminal
// stops nobody.
const resumeAnyway = 500 * time.Millisecond

// terminal is the one that a child was started at. It belongs to the goroutine of
// supervisor.controlJob. The zero terminal is none.
type terminal struct {
	file   *os.File
	lent   bool // the child is in the foreground, or was as it stopped
	wanted bool // the child waits for the terminal
}

// terminalOf is the controlling terminal of this process, if one of the files is it.
func terminalOf(files ...*os.File) terminal {
	for _, f := range files {
		if f == nil {
			continue
		}
		if _, err := foreground(f); err == nil {
			return terminal{file: f}
		}
	}
	return terminal{}
}

// foreground is the process group that a terminal belongs to now. It fails for all
// but the controlling terminal.
func foreground(f *os.File) (int, error) { return unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP) }

// ours reports whether this process is in the foreground.
func (t *terminal) ours() bool {
	group, err := foreground(t.file)
	return err == nil && group == syscall.Getpgrp()
}

// give makes a group the foreground.
func (t *terminal) give(group int) {
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, group) // one that has hung up needs none
}

// takeBack brings this process into the foreground again where it has left it.
func (t *terminal) takeBack() {
	if t.lent {
		t.lent = false
		t.give(syscall.Getpgrp())
	}
}

// controlJob does for the child what a shell does for its jobs, until it has ended:
// it lends it the terminal, and stops and goes on together with it. stops are the
// signals that have stopped the child.
func (s *supervisor) controlJob(stops <-chan syscall.Signal) {
	if s.tty.file == nil {
		for range stops {
		}
		return
	}
	// To change the foreground from the background gets a process the signal TTOU,
	// which would stop it.
	signal.Ignore(syscall.SIGTTOU)
	pressed := make(chan os.Signal, 1) // Ctrl-Z
	signal.Notify(pressed, syscall.SIGTSTP)
	defer signal.Stop(pressed)
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	anyway := time.NewTimer(0)
	anyway.Stop()
	defer anyway.Stop()
	t := &s.tty
	defer t.takeBack()
	for {
		select {
		case <-pressed:
			s.signalGroup(syscall.SIGTSTP)
		case sig, running := <-stops:
			if !running {
				return
			}
			reads := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
			switch {
			case reads && t.ours():
				t.lend(s.proc.Pid)
				s.signalGroup(syscall.SIGCONT)
				continue
			case reads && t.lent:
				s.signalGroup(syscall.SIGCONT) // it has been told of before it was lent the terminal
				continue
			case reads:
				t.wanted = true
			case sig == syscall.SIGTSTP, t.lent:
				t.wanted = t.lent
			default:
				continue // somebody has stopped the child alone, and will continue it
			}
			t.takeBack()
			anyway.Reset(resumeAnyway)
			s.log.Debug("stopped at the terminal", telemetry.KeyReason, sig.String())
			// A signal that does not stop a group without a shell, as STOP would; and not
			// TSTP, which the runtime does not leave to its default again.
			_ = syscall.Kill(0, syscall.SIGTTIN)
		case <-continued:
			anyway.Stop()
			s.resume()
		case <-anyway.C:
			s.resume()
		}
	}
}

// lend has the child's group be the foreground.
func (t *terminal) lend(group int) {
	t.lent, t.wanted = true, false
	t.give(group)
}

// resume goes on after a stop.
func (s *supervisor) resume() {
	if t := &s.tty; t.wanted && t.ours() {
		t.lend(s.proc.Pid)
	}
	s.signalGroup(syscall.SIGCONT)
}
