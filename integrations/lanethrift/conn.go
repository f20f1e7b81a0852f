package lanethrift

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
)

// Transports that an endpoint may name.
const (
	TransportHeader   = "header"   // THeader; also where the endpoint names none
	TransportFramed   = "framed"   // a length before each message; no headers
	TransportBuffered = "buffered" // bare messages; no headers
)

const (
	bufferBytes = 4 << 10
	// readAhead is how much of what comes after a message may be read with it.
	readAhead = 64 << 10
)

// meteredConn is a connection whose deadlines are set by this package alone (thrift's
// socket would clear them at every read), and that counts what it carries. One goroutine
// uses it at a time.
type meteredConn struct {
	net.Conn
	guard    *frameGuard // nil where the peer is not told apart
	received int         // bytes of the present message
	sent     int         // bytes of the present message
}

// next begins a message.
func (c *meteredConn) next() { c.received, c.sent = 0, 0 }

// Read implements net.Conn. thrift bounds frames and strings, but neither the sum of what
// an unframed message is made of nor what undoes a THeader message.
func (c *meteredConn) Read(b []byte) (int, error) {
	if c.received > MaxFrameBytes+readAhead {
		return 0, errTooLong
	}
	n, err := c.Conn.Read(b)
	c.received += n
	if c.guard != nil {
		if refused := c.guard.see(b[:n]); refused != nil {
			return 0, refused
		}
	}
	return n, err
}

// Write implements net.Conn.
func (c *meteredConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent += n
	return n, err
}

// SetDeadline and its kin do nothing: see the type's comment.
func (*meteredConn) SetDeadline(time.Time) error      { return nil }
func (*meteredConn) SetReadDeadline(time.Time) error  { return nil }
func (*meteredConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn lets thrift's socket see whether the peer has closed, without reading.
func (c *meteredConn) SyscallConn() (syscall.RawConn, error) { return rawConn(c.Conn) }

// rawConn is the descriptor of a connection, also of one below TLS.
func rawConn(c net.Conn) (syscall.RawConn, error) {
	if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = wrapped.NetConn()
	}
	if raw, ok := c.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// conn is one connection to an instance. It serves one call at a time.
type conn struct {
	metered  *meteredConn
	raw      syscall.RawConn // nil where the connection has none
	socket   *thrift.TSocket
	client   *thrift.TStandardClient
	answered bool      // something has come in
	idle     time.Time // since when, while it is in a pool
}

// dialError says that no connection could be made: nothing was sent.
type dialError struct{ err error }

func (d *dialError) Error() string { return "connect: " + d.err.Error() }
func (d *dialError) Unwrap() error { return d.err }

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// newConn speaks a transport over a connection.
func newConn(raw net.Conn, transport string, cfg *thrift.TConfiguration) (*conn, error) {
	c := &conn{metered: &meteredConn{Conn: raw}}
	if transport == TransportHeader || transport == "" {
		c.metered.guard = &frameGuard{}
	}
	if descriptor, err := rawConn(raw); err == nil {
		c.raw = descriptor
	}
	c.socket = thrift.NewTSocketFromConnConf(c.metered, cfg)
	protocol, err := protocolOf(c.socket, transport, cfg)
	if err != nil {
		return nil, err
	}
	c.client = thrift.NewTStandardClient(protocol, protocol)
	return c, nil
}

func protocolOf(socket *thrift.TSocket, transport string, cfg *thrift.TConfiguration) (thrift.TProtocol, error) {
	var wrapped thrift.TTransport
	switch transport {
	case TransportHeader, "":
		return thrift.NewTHeaderProtocolConf(socket, cfg), nil
	case TransportFramed:
		wrapped = thrift.NewTFramedTransportConf(socket, cfg)
	case TransportBuffered:
		wrapped = thrift.NewTBufferedTransport(socket, bufferBytes)
	default:
		return nil, fmt.Errorf("transport %q: want %s, %s or %s", transport, TransportHeader, TransportFramed, TransportBuffered)
	}
	if cfg.GetTHeaderProtocolID() == thrift.THeaderProtocolCompact {
		return thrift.NewTCompactProtocolConf(wrapped, cfg), nil
	}
	return thrift.NewTBinaryProtocolConf(wrapped, cfg), nil
}

// alive reports whether the peer has kept the connection open, as far as can be seen.
func (c *conn) alive() bool {
	if c.raw == nil {
		return true
	}
	// A deadline of the last call that has passed would make the checks fail.
	if c.metered.Conn.SetReadDeadline(time.Time{}) != nil {
		return false
	}
	if !c.answered { // TLS may have bytes of its own that nobody has read yet
		return c.socket.IsOpen()
	}
	return quiet(c.raw) // what comes without a call is an alert, or of no call of ours
}

// reply is how a call ended.
type reply struct {
	meta thrift.ResponseMeta
	err  error
	sent bool // something was sent, perhaps not all
	keep bool // the connection is as it was before the call
}

// call makes one call that ends with ctx.
func (c *conn) call(ctx context.Context, method string, args, result thrift.TStruct) reply {
	c.metered.next()
	deadline, _ := ctx.Deadline() // none is the zero time, which clears
	if err := c.metered.Conn.SetDeadline(deadline); err != nil {
		return reply{err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = c.metered.Conn.SetDeadline(time.Unix(1, 0)) }) // breaks off reads and writes
	if result != nil {                                                                         // nil for calls that get no answer
		result = boundedResult{TStruct: result, received: c.received}
	}
	meta, err := c.client.Call(ctx, method, args, result)
	// Where ctx ended just as the answer came, the deadline above may hit the next call.
	undisturbed := stop()
	c.answered = c.answered || c.metered.received > 0
	r := reply{meta: meta, err: err, sent: c.metered.sent > 0, keep: undisturbed && !broken(err)}
	if err != nil && ctx.Err() != nil {
		r.err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	} else if err != nil && deadlinePassed(ctx, err) {
		// The connection's clock was a moment ahead of the context's.
		r.err = fmt.Errorf("%w (%w)", context.DeadlineExceeded, err)
	}
	return r
}

func deadlinePassed(ctx context.Context, err error) bool {
	deadline, bounded := ctx.Deadline()
	var timeout interface{ Timeout() bool }
	return bounded && errors.As(err, &timeout) && timeout.Timeout() && !time.Now().Before(deadline)
}

// broken reports whether a connection is of no further use: all but an answer leaves it
// at a place in the stream that nobody knows.
func broken(err error) bool {
	var answer thrift.TApplicationException
	if err == nil {
		return false
	}
	if !errors.As(err, &answer) {
		return true
	}
	switch answer.TypeId() {
	case thrift.BAD_SEQUENCE_ID, thrift.WRONG_METHOD_NAME, thrift.INVALID_MESSAGE_TYPE_EXCEPTION, thrift.PROTOCOL_ERROR,
		thrift.INVALID_TRANSFORM, thrift.INVALID_PROTOCOL, thrift.UNSUPPORTED_CLIENT_TYPE:
		return true
	}
	return false
}

func (c *conn) received() int { return c.metered.received }

func (c *conn) close() { _ = c.metered.Close() } // there is no one to tell
