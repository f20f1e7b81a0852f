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
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// pool keeps connections of HTTP/1.1 to upstreams for requests without a body, most of
// all. They are written and their answers read by the goroutine that serves the client:
// the transport of net/http has two more for each connection, and handing over to them
// and back is half of what a short request costs. What needs them (a body that is sent
// while the answer comes, Expect, Upgrade) takes the transport.
type pool struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

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

// roundTrip sends a request without a body and reads the head of its answer; the
// answer's body must be read or closed. A kept connection that turns out to be dead
// before a byte has come is replaced once where the request may be repeated. interim is
// called with interim answers.
func (p *pool) roundTrip(out *http.Request, interim func(int, textproto.MIMEHeader) error) (*http.Response, error) {
	ctx := out.Context()
	for conn := p.take(out.URL.Host); conn != nil; conn = nil {
		resp, err := conn.exchange(ctx, out, interim)
		if err == nil || conn.got || ctx.Err() != nil || !idempotent(out.Method) {
			return resp, err
		}
	}
	raw, err := p.dial(ctx, "tcp", out.URL.Host)
	if err != nil {
		return nil, err //nolint:wrapcheck // neverSent looks at it
	}
	conn := &poolConn{Conn: raw, pool: p, address: out.URL.Host, quiet: quiet(raw)}
	conn.in, conn.out = bufio.NewReader(conn), bufio.NewWriter(raw)
	return conn.exchange(ctx, out, interim)
}

// exchange closes the connection where it fails.
func (c *poolConn) exchange(ctx context.Context, out *http.Request, interim func(int, textproto.MIMEHeader) error) (*http.Response, error) {
	stop := context.AfterFunc(ctx, func() {
		_ = c.SetDeadline(time.Unix(1, 0)) // whoever reads or writes gets an error
	})
	fail := func(err error) (*http.Response, error) {
		stop()
		return nil, errors.Join(err, c.Close())
	}
	c.limit, c.got = maxResponseHeaderBytes, false
	if err := writeRequest(c.out, out); err != nil {
		return fail(err)
	}
	for {
		resp, err := http.ReadResponse(c.in, out)
		switch {
		case err != nil:
			return fail(err)
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return fail(errUnasked)
		case resp.StatusCode < http.StatusOK: // the header's limit is for all of them together
			if err := interim(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return fail(err)
			}
			continue
		}
		c.limit = unlimited
		body := &poolBody{ReadCloser: resp.Body, conn: c, stop: stop, last: resp.Close}
		resp.Body = body
		if body.ReadCloser == http.NoBody {
			body.finish(true)
		}
		return resp, nil
	}
}

// writeRequest writes the head of a request. Of its parts the header has been checked
// by who read it; the rest is checked here.
func writeRequest(w *bufio.Writer, out *http.Request) error {
	if !httpguts.ValidHeaderFieldName(out.Method) || !httpguts.ValidHostHeader(out.Host) {
		return errors.New("the request's method or host cannot be sent")
	}
	for _, s := range [...]string{out.Method, " ", out.URL.RequestURI(), " HTTP/1.1\r\nHost: ", out.Host, "\r\n"} {
		_, _ = w.WriteString(s) // Flush tells of errors
	}
	switch out.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch: // RFC 9110, section 8.6
		_, _ = w.WriteString("Content-Length: 0\r\n")
	}
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

// poolBody gives its connection back at the end of the answer.
type poolBody struct {
	io.ReadCloser
	conn *poolConn
	stop func() bool
	last bool // the connection ends with this answer
	over bool
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
	if b.stop() && whole && !b.last && b.conn.in.Buffered() == 0 {
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
