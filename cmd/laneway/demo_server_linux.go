package main

import "syscall"

// demoServerAttr puts the server into a process group of its own, so that an
// interrupt of the terminal does not end it before the services, and has the
// kernel kill it when the demo dies without having been able to.
func demoServerAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
