//go:build linux || darwin || freebsd

package etcd

import "golang.org/x/sys/unix"

// freeBytes is how much of dir's file system this process may still use.
func freeBytes(dir string) (uint64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, err
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize), nil //nolint:unconvert // types differ by system; both are counts
}
