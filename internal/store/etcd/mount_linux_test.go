package etcd_test

import (
	"fmt"
	"syscall"
)

// mountDisk makes dir a disk of its own, in memory.
func mountDisk(dir string, megabytes int) error {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", megabytes))
}

func unmountDisk(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }
