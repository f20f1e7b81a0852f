package httpgw

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// pool keeps connections of HTTP/1.1 to upstreams. They are written and their answers read
// by the goroutine that serves the client, but for a request's body (see [sending]): the
// transport of net/http has two more for each connection, and handing over to them and back
// is half of what a short request costs. It also takes what an upstream sends too much for
// the answer to the next request, if that is quick to come.
type pool struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	buffers sync.Pool // of *buffer

	mu     sync.Mutex
	idle   map[string][]*poolConn // by address, the one that was used last at the end
	sweep  *time.Timer            // nil: none is idle
	closed bool
}

// poolConn is one connection. It belongs to whoever took it.
type poolConn struct {
	net.Conn
	pool    *pool
	address string
	in      *bufio.Reader
	out     *bufio.Writer
	limit   int64 // how many bytes may still be read
	got     bool  // a byte of the present answer has been read
	since   time.Time
	quiet   func() bool // nothing is to be read
}

// errHeaderBytes is returned where an upstream's header is too long.
var errHeaderBytes = fmt.Errorf("the response's header has over %d bytes", maxResponseHeaderBytes)

const unlimited = 1 << 62

// Read reads from the connection, up to limit.
func (c *poolConn) Read(p []byte) (int, error) {
	if c.limit <= 0 {
		return 0, errHeaderBytes
	}
	if int64(len(p)) > c.limit {
		p = p[:c.limit]
	}
	n, err := c.Conn.Read(p)
	c.limit -= int64(n)
	c.got = c.got || n > 0
	return n, err //nolint:wrapcheck // bufio looks at it
}

// roundTrip sends a request, with u as its body (nil: it has none), and reads the head of its
// answer; the answer's body must be read or closed. That of a 101 is the connection, as an
// io.ReadWriteCloser. A kept connection that turns out to be dead before a byte has come is
// replaced once where the request may be repeated. interim is called with interim answers.
func (p *pool) roundTrip(out *http.Request, u *upload, interim func(int, textproto.MIMEHeader) error) (*http.Response, error) {
	ctx, address := out.Context(), dialAddress(out.URL)
	for conn := p.take(address); conn != nil; conn = nil {
		resp, err := conn.exchange(ctx, out, u, interim)
		if err == nil || conn.got || ctx.Err() != nil || !idempotent(out.Method) || u.failed() || !u.replayable() {
			return resp, err
		}
	}
	raw, err := p.dial(ctx, "tcp", address)
	if err != nil {
		return nil, err //nolint:wrapcheck // neverSent looks at it
	}
	conn := &poolConn{Conn: raw, pool: p, address: address, quiet: quiet(raw)}
	conn.in, conn.out = bufio.NewReader(conn), bufio.NewWriter(raw)
	return conn.exchange(ctx, out, u, interim)
}

// dialAddress is the host and port of an http URL.
func dialAddress(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	return net.JoinHostPort(u.Hostname(), "80")
}

// exchange closes the connection where it fails.
func (c *poolConn) exchange(ctx context.Context, out *http.Request, u *upload, interim func(int, textproto.MIMEHeader) error) (*http.Response, error) {
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetDeadline(time.Unix(1, 0)) // whoever reads or writes gets an error
	})
	var s *sending
	fail := func(err error) (*http.Response, error) {
		stop()
		s.giveUp()
		return nil, errors.Join(err, c.Close())
	}
	c.limit, c.got = maxResponseHeaderBytes, false
	if err := writeRequest(c.out, out, u); err != nil {
		return fail(err)
	}
	if u != nil {
		s = newSending(c, out, u)
		go s.run() // ends as [sending] says
	}
	for {
		resp, err := http.ReadResponse(c.in, out)
		switch {
		case err != nil:
			return fail(err)
		case resp.StatusCode == http.StatusSwitchingProtocols:
			c.limit = unlimited
			if !stop() {
				return fail(context.Cause(ctx))
			}
			s.settle(wantedNo)
			resp.Body = &switchedConn{c}
			return resp, nil
		case resp.StatusCode < http.StatusOK: // the header's limit is for all of them together
			if resp.StatusCode == http.StatusContinue {
				s.settle(wantedYes)
			}
			if err := interim(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return fail(err)
			}
			continue
		}
		s.settle(wantedNo)
		c.limit = unlimited
		body := &poolBody{ReadCloser: resp.Body, conn: c, sending: s, stop: stop, last: resp.Close}
		resp.Body = body
		if body.ReadCloser == http.NoBody {
			body.finish(true)
		}
		return resp, nil
	}
}

// switchedConn is a connection after an answer 101.
type switchedConn struct{ *poolConn }

// Read reads what has come with the answer, and then on.
func (c *switchedConn) Read(p []byte) (int, error) {
	return c.in.Read(p) //nolint:wrapcheck // passed on
}

// CloseWrite ends the direction to the upstream.
func (c *switchedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // passed on
	}
	return errors.ErrUnsupported
}

// writeRequest writes the head of a request. Of its parts the header has been checked
// by who read it; the rest is checked here.
func writeRequest(w *bufio.Writer, out *http.Request, u *upload) error {
	if !httpguts.ValidHeaderFieldName(out.Method) || !httpguts.ValidHostHeader(out.Host) {
		return errors.New("the request's method or host cannot be sent")
	}
	for _, s := range [...]string{out.Method, " ", out.URL.RequestURI(), " HTTP/1.1\r\nHost: ", out.Host, "\r\n"} {
		_, _ = w.WriteString(s) // Flush tells of errors
	}
	writeFraming(w, out, u)
	for key, values := range out.Header {
		switch key {
		case "Host", "Content-Length", "Transfer-Encoding", "Trailer":
			continue
		}
		for _, v := range values {
			for _, s := range [...]string{key, ": ", v, "\r\n"} {
				_, _ = w.WriteString(s)
			}
		}
	}
	_, _ = w.WriteString("\r\n")
	return w.Flush() //nolint:wrapcheck // of the connection
}

// writeFraming says where the request ends.
func writeFraming(w *bufio.Writer, out *http.Request, u *upload) {
	switch {
	case u == nil:
		switch out.Method {
		case http.MethodPost, http.MethodPut, http.MethodPatch: // RFC 9110, section 8.6
			_, _ = w.WriteString("Content-Length: 0\r\n")
		}
	case out.ContentLength >= 0:
		_, _ = w.WriteString("Content-Length: ")
		_, _ = w.Write(strconv.AppendInt(w.AvailableBuffer(), out.ContentLength, 10))
		_, _ = w.WriteString("\r\n")
	default:
		_, _ = w.WriteString("Transfer-Encoding: chunked\r\n")
		for _, key := range u.names {
			_, _ = w.WriteString("Trailer: " + key + "\r\n")
		}
	}
}

// poolBody gives its connection back at the end of the answer.
type poolBody struct {
	io.ReadCloser
	conn    *poolConn
	sending *sending // of the request's body; nil: it had none
	stop    func() bool
	last    bool // the connection ends with this answer
	over    bool
}

// Read reads the body.
func (b *poolBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.finish(errors.Is(err, io.EOF))
	}
	return n, err //nolint:wrapcheck // passed on
}

// Close gives the connection up where the body has not been read to its end.
func (b *poolBody) Close() error {
	b.finish(false)
	return nil
}

func (b *poolBody) finish(whole bool) {
	if b.over {
		return
	}
	b.over = true
	// Where stop comes too late, the connection has a deadline, or is getting it.
	if b.stop() && whole && !b.last && b.conn.in.Buffered() == 0 && b.sending.ended() {
		b.conn.pool.put(b.conn)
		return
	}
	_ = b.conn.Close()
}

// take returns an idle connection that is good, as far as one can tell, or nil.
func (p *pool) take(address string) *poolConn {
	for {
		p.mu.Lock()
		list := p.idle[address]
		if len(list) == 0 {
			p.mu.Unlock()
			return nil
		}
		conn := list[len(list)-1]
		list[len(list)-1] = nil
		p.idle[address] = list[:len(list)-1]
		p.mu.Unlock()
		// What has come while nobody asked (the end, or an answer such as 408) must not
		// be taken for the answer to the next request.
		if conn.quiet() {
			return conn
		}
		_ = conn.Close()
	}
}

func (p *pool) put(conn *poolConn) {
	conn.since = time.Now()
	p.mu.Lock()
	list := p.idle[conn.address]
	if p.closed || len(list) >= maxIdlePerUpstream {
		p.mu.Unlock()
		_ = conn.Close()
		return
	}
	if p.idle == nil {
		p.idle = map[string][]*poolConn{}
	}
	p.idle[conn.address] = append(list, conn)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(upstreamIdle, p.expire)
	}
	p.mu.Unlock()
}

// expire closes what has been idle for too long.
func (p *pool) expire() {
	var old []*poolConn
	p.mu.Lock()
	for address, list := range p.idle {
		n := 0
		for n < len(list) && time.Since(list[n].since) >= upstreamIdle {
			n++
		}
		old = append(old, list[:n]...)
		if n == len(list) {
			delete(p.idle, address)
		} else {
			p.idle[address] = append([]*poolConn(nil), list[n:]...)
		}
	}
	switch {
	case p.closed:
	case len(p.idle) > 0:
		p.sweep.Reset(upstreamIdle / 3)
	default:
		p.sweep = nil
	}
	p.mu.Unlock()
	for _, conn := range old {
		_ = conn.Close()
	}
}

// close closes what is idle; connections that come back are closed.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	if p.sweep != nil {
		p.sweep.Stop()
	}
	p.mu.Unlock()
	for _, list := range idle {
		for _, conn := range list {
			_ = conn.Close()
		}
	}
}
