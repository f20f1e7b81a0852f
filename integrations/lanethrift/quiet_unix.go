//go:build unix

package lanethrift

import "syscall"

// quiet reports whether a connection is open and nothing has come in on it, without
// reading and without waiting.
func quiet(raw syscall.RawConn) bool {
	var b [1]byte
	var n int
	var err error
	failed := raw.Read(func(fd uintptr) bool { // Go's descriptors do not block
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		return true
	})
	return failed == nil && n <= 0 && (err == syscall.EAGAIN || err == syscall.EWOULDBLOCK)
}
