package control

import "net"

// sendBufferBytes bounds what the kernel takes for a client that does not read; by
// itself it would take megabytes. It is enough for a megabyte a second at 50 ms away.
const sendBufferBytes = 64 << 10

// Listener wraps the listener that a server of [Control.Handler] accepts from: what
// a client of the API has not read takes at most 128 KiB of the kernel's memory, past
// which its watch is slow, and cut off when it takes nothing for ten seconds. Without
// it, thousands of watches that nobody reads cost megabytes each before they are
// noticed. Connections that are not TCP pass as they are. Close and Addr are those of l.
func Listener(l net.Listener) net.Listener { return boundedListener{l} }

type boundedListener struct{ net.Listener }

func (l boundedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(sendBufferBytes) // a connection that is gone already fails by itself
	}
	return conn, err
}
