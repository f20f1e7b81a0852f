//go:build !linux

package etcd_test

import "syscall"

func mountDisk(string, int) error { return syscall.EPERM }

func unmountDisk(string) error { return nil }
