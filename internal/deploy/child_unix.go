//go:build unix && !linux

package deploy

import (
	"os"
	"syscall"
)

// sysProcAttr puts the child into a process group of its own.
func sysProcAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// awaitExit blocks until the process has ended. Where there is no wait that
// leaves the process to be reaped later, it is reaped here.
func awaitExit(p *os.Process, _ terminal) { _, _ = p.Wait() }

// groupRuns reports whether a process of the group is there.
func groupRuns(pgid int) bool { return syscall.Kill(-pgid, 0) == nil }
