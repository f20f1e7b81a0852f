//go:build unix

package httpgw

import (
	"errors"
	"net"
	"syscall"
)

// quiet reports whether nothing is to be read from a connection, not even its end. It
// does not block. What it finds to read is lost: the connection is of no use then.
func quiet(conn net.Conn) bool {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	nothing := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, err := syscall.Read(int(fd), b[:]) //nolint:gosec // a file descriptor fits
		nothing = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && nothing
}
