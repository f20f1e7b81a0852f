//go:build unix

package httpgw

import (
	"errors"
	"net"
	"syscall"
)

// quiet returns a function that reports whether nothing is to be read from a
// connection, not even its end. It does not block and may not be called at once. What
// it finds to read is lost: the connection is of no use then.
func quiet(conn net.Conn) func() bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return func() bool { return true }
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return func() bool { return false }
	}
	var b [1]byte
	var nothing bool
	read := func(fd uintptr) bool {
		_, err := syscall.Read(int(fd), b[:])
		nothing = errors.Is(err, syscall.EAGAIN)
		return true // do not wait
	}
	return func() bool {
		nothing = false
		return raw.Read(read) == nil && nothing
	}
}
