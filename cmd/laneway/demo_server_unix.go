//go:build unix && !linux

package main

import "syscall"

// demoServerAttr puts the server into a process group of its own, so that an
// interrupt of the terminal does not end it before the services.
func demoServerAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
