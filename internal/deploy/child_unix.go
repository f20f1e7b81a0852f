//go:build unix && !linux

package deploy

import (
	"errors"
	"os"
	"syscall"
)

// sysProcAttr puts the child into a process group of its own.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitChange blocks until the process has ended, or has been stopped by a signal.
// Where there is no wait that leaves the process to be reaped later, it is reaped
// here, and end is how it has ended.
func awaitChange(p *os.Process) (stopped syscall.Signal, end *syscall.WaitStatus) {
	for {
		var ws syscall.WaitStatus
		_, err := syscall.Wait4(p.Pid, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, nil
		case ws.Stopped():
			return ws.StopSignal(), nil
		case ws.Exited() || ws.Signaled():
			return 0, &ws
		}
	}
}

// groupRuns reports whether a process of the group is there.
func groupRuns(pgid int) bool { return syscall.Kill(-pgid, 0) == nil }
