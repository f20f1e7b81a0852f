package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// hold has the file system keep blocks for the whole of a file and for more bytes beyond
// its end, so that writes to it succeed on a disk that others have filled. It does
// nothing where they are kept already.
func hold(path string, more int64) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return err
	}
	if stat.Blocks*512 >= stat.Size+more {
		return nil
	}
	// Twice as much as is asked for, so that this is seldom done.
	err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, stat.Size+2*more)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return nil // the file system cannot; the reserve is all there is
	}
	return err
}

// release gives back the locks that this process holds on files below dir, whoever in it
// took them.
func release(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, entry := range open {
		target, err := os.Readlink("/proc/self/fd/" + entry.Name())
		if err != nil || !strings.HasPrefix(target, dir+string(filepath.Separator)) {
			continue // closed since, or another's
		}
		var fd int
		if _, err := fmt.Sscan(entry.Name(), &fd); err != nil {
			return err
		}
		_ = unix.Flock(fd, unix.LOCK_UN)
		lock := unix.Flock_t{Type: unix.F_UNLCK}
		_ = unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &lock)
	}
	return nil
}
