package deploy

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// sysProcAttr puts the child into a process group of its own, and has the kernel
// kill it when its supervisor dies without having been able to.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitChange blocks until the process has ended, which it leaves to be reaped, or
// has been stopped by a signal.
func awaitChange(p *os.Process) (stopped syscall.Signal, end *syscall.WaitStatus) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || info.Code != cldStopped:
			return 0, nil
		}
		// Take the news of the stop, which would be told again and again. If the process
		// has been killed meanwhile, this reaps it.
		var ws syscall.WaitStatus
		if pid, err := syscall.Wait4(p.Pid, &ws, syscall.WUNTRACED|syscall.WNOHANG, nil); err != nil || pid != p.Pid {
			continue // it goes on already
		}
		if !ws.Stopped() {
			return 0, &ws
		}
		return ws.StopSignal(), nil
	}
}

// cldStopped is si_code of a child that has stopped: CLD_STOPPED of waitid(2).
const cldStopped = 5

// groupRuns reports whether a process of the group runs. Zombies do not: the
// leader is one until it is reaped, and others may be where nobody reaps orphans.
func groupRuns(pgid int) bool {
	if syscall.Kill(-pgid, 0) != nil {
		return false
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	for _, dir := range procs {
		if c := dir.Name()[0]; c < '0' || c > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + dir.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (comm) state ppid pgrp …; comm may hold anything, ')' too.
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(fields) < 3 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
			continue
		}
		if n, err := strconv.Atoi(string(fields[2])); err == nil && n == pgid {
			return true
		}
	}
	return false
}
