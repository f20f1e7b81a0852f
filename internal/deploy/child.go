package deploy

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
)

// runChild starts the direct child, tells of its end by closing exited, and reaps
// it when leftovers is closed: until then its process id, which is that of its
// group, cannot become a stranger's.
func (s *supervisor) runChild(spawned chan<- error, reaped chan<- Exit, leftovers <-chan struct{}) {
	// The thread must live as long as the child, and must not be left to others:
	// see supervise. It ends with this goroutine, being still locked.
	runtime.LockOSThread()
	if err := s.spawn(); err != nil {
		spawned <- err
		return
	}
	spawned <- nil
	stops, controlled := make(chan syscall.Signal), make(chan struct{})
	go func() { defer close(controlled); s.controlJob(stops) }()
	sig, end := awaitChange(s.proc)
	for ; sig != 0; sig, end = awaitChange(s.proc) {
		stops <- sig
	}
	close(stops)
	<-controlled
	close(s.exited)
	<-leftovers
	reaped <- s.reap(end)
}

// reap takes the child's exit status, where end is not it already.
func (s *supervisor) reap(end *syscall.WaitStatus) Exit {
	if end == nil {
		state, err := s.proc.Wait()
		if err != nil {
			return Exit{Code: 1}
		}
		ws, ok := state.Sys().(syscall.WaitStatus)
		if !ok {
			return Exit{Code: state.ExitCode()}
		}
		end = &ws
	}
	if end.Signaled() {
		return Exit{Code: 128 + int(end.Signal()), Signal: end.Signal()}
	}
	return Exit{Code: end.ExitStatus()}
}

func (s *supervisor) spawn() error {
	path, err := lookPath(s.cfg.Cmd[0])
	if err != nil {
		return err
	}
	stdin := s.cfg.Stdin
	stdout, stderr, after, err := s.outputs()
	if err == nil && stdin == nil {
		stdin, err = os.Open(os.DevNull)
		if err == nil {
			after = append(after, stdin)
		}
	}
	defer func() {
		for _, c := range after {
			_ = c.Close()
		}
	}()
	if err != nil {
		return err
	}
	s.tty = terminalOf(s.cfg.Stdin, stdout, stderr)
	s.proc, err = os.StartProcess(path, s.cfg.Cmd, &os.ProcAttr{
		Dir: s.cfg.Dir, Env: s.cfg.environ(), Files: []*os.File{stdin, stdout, stderr}, Sys: sysProcAttr(),
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", s.cfg.Cmd[0], err)
	}
	return nil
}

// signal sends sig to the direct child; what a terminal would send to all of the
// foreground, to the whole group.
func (s *supervisor) signal(sig os.Signal) error {
	n, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v: not one that can be sent", sig)
	}
	select {
	case <-s.exited:
		return os.ErrProcessDone
	default:
	}
	if n == syscall.SIGINT || n == syscall.SIGQUIT || n == syscall.SIGWINCH {
		return syscall.Kill(-s.proc.Pid, n)
	}
	return s.proc.Signal(n)
}

// signalGroup sends sig to the whole group. It may be gone.
func (s *supervisor) signalGroup(sig syscall.Signal) { _ = syscall.Kill(-s.proc.Pid, sig) }

// kill ends the whole group at once.
func (s *supervisor) kill() error { return syscall.Kill(-s.proc.Pid, syscall.SIGKILL) }

// endGroup ends what the child has left in its process group: TERM, then KILL at
// the drain deadline. It returns when none of the group runs.
func (s *supervisor) endGroup() {
	if !groupRuns(s.proc.Pid) {
		return
	}
	deadline := s.deadline()
	_ = syscall.Kill(-s.proc.Pid, syscall.SIGTERM)
	const slowest = 50 * time.Millisecond
	for delay := time.Millisecond; groupRuns(s.proc.Pid); delay = min(2*delay, slowest) {
		if time.Now().After(deadline) {
			s.log.Warn("left processes behind that did not end, killed")
			_ = s.kill()
			deadline = time.Now().Add(time.Second) // once more for what was forked meanwhile
		}
		time.Sleep(delay)
	}
}
