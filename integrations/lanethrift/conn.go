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

const bufferBytes = 4 << 10

// timedConn is a connection whose deadlines are set by this package alone: thrift's
// socket would clear them at every read.
type timedConn struct{ net.Conn }

func (timedConn) SetDeadline(time.Time) error      { return nil }
func (timedConn) SetReadDeadline(time.Time) error  { return nil }
func (timedConn) SetWriteDeadline(time.Time) error { return nil }

// SyscallConn lets thrift's socket see whether the peer has closed, without reading.
func (c timedConn) SyscallConn() (syscall.RawConn, error) {
	if raw, ok := c.Conn.(syscall.Conn); ok {
		return raw.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// conn is one connection to an instance. It serves one call at a time.
type conn struct {
	net    net.Conn
	socket *thrift.TSocket
	client *thrift.TStandardClient
	idle   time.Time // since when, while it is in a pool
}

// dial connects to an address and speaks the transport over it.
func dial(ctx context.Context, address, transport string, cfg *thrift.TConfiguration) (*conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &conn{net: raw, socket: thrift.NewTSocketFromConnConf(timedConn{raw}, cfg)}
	protocol, err := protocolOf(c.socket, transport, cfg)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
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

// alive reports whether the peer has kept the connection open.
func (c *conn) alive() bool {
	// A deadline of the last call that has passed would make the check fail.
	return c.net.SetReadDeadline(time.Time{}) == nil && c.socket.IsOpen()
}

// call makes one call that ends with ctx.
func (c *conn) call(ctx context.Context, method string, args, result thrift.TStruct) (thrift.ResponseMeta, error) {
	deadline, _ := ctx.Deadline() // none is the zero time, which clears
	if err := c.net.SetDeadline(deadline); err != nil {
		return thrift.ResponseMeta{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.net.SetDeadline(time.Unix(1, 0)) }) // breaks off reads and writes
	meta, err := c.client.Call(ctx, method, args, result)
	if !stop() && err == nil {
		// ctx ended just as the answer came: the deadline above may hit the next call.
		_ = c.net.SetDeadline(time.Time{})
	}
	if ended := context.Cause(ctx); err != nil && ended != nil {
		return meta, fmt.Errorf("%w (%w)", ended, err)
	}
	return meta, err
}

func (c *conn) close() { _ = c.net.Close() } // there is no one to tell
