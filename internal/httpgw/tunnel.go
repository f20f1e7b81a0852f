package httpgw

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/lane"
)

// tunnels are the connections that have left the HTTP server's hands: upgraded
// ones and those of CONNECT. Each is served by its handler's goroutine; a drain
// waits for them and then closes them.
type tunnels struct {
	mu     sync.Mutex
	open   map[*tunnel]struct{}
	closed bool          // new ones are refused
	empty  chan struct{} // closed when none is open any more; nil: nobody waits
}

// tunnel joins two connections.
type tunnel struct {
	a, b io.ReadWriteCloser
}

func (t *tunnel) close() {
	_ = t.a.Close() // either may be closed already
	_ = t.b.Close()
}

func (ts *tunnels) add(t *tunnel) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.closed {
		return false
	}
	if ts.open == nil {
		ts.open = map[*tunnel]struct{}{}
	}
	ts.open[t] = struct{}{}
	return true
}

func (ts *tunnels) remove(t *tunnel) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.open, t)
	if ts.empty != nil && len(ts.open) == 0 {
		close(ts.empty)
		ts.empty = nil
	}
}

// drain takes no new tunnel, waits until all have ended, or ctx has, and then closes
// them.
func (ts *tunnels) drain(ctx context.Context) {
	ts.mu.Lock()
	ts.closed = true
	if len(ts.open) == 0 {
		ts.mu.Unlock()
		return
	}
	empty := make(chan struct{})
	ts.empty = empty
	ts.mu.Unlock()
	select {
	case <-empty:
		return
	case <-ctx.Done():
	}
	ts.mu.Lock()
	for t := range ts.open {
		t.close()
	}
	ts.mu.Unlock()
	<-empty
}

// run copies in both directions until both have ended, or nothing has moved for
// idle. The end of one direction is passed on.
func (ts *tunnels) run(t *tunnel, idle time.Duration) {
	if !ts.add(t) {
		t.close()
		return
	}
	defer ts.remove(t)
	defer t.close()
	began := time.Now()
	var moved atomic.Int64
	var timer *time.Timer
	var mu sync.Mutex // timer may fire before it is assigned
	mu.Lock()
	timer = time.AfterFunc(idle, func() {
		mu.Lock()
		defer mu.Unlock()
		still := time.Since(began) - time.Duration(moved.Load())
		if still >= idle {
			t.close()
			return
		}
		timer.Reset(idle - still)
	})
	mu.Unlock()
	defer timer.Stop()
	touch := func() { moved.Store(int64(time.Since(began))) }
	other := make(chan struct{})
	go func() {
		defer close(other)
		pump(t.a, t.b, touch)
	}()
	pump(t.b, t.a, touch)
	<-other
}

// pump copies one direction. At its end the other side is told; where it cannot be
// told apart from the whole connection, or the end is an error, all is closed.
func pump(to, from io.ReadWriteCloser, touch func()) {
	buf := make([]byte, copyBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			touch()
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
			touch()
		}
		if err == nil {
			continue
		}
		half, ok := to.(interface{ CloseWrite() error })
		if !errors.Is(err, io.EOF) || !ok || half.CloseWrite() != nil {
			_ = to.Close()
			_ = from.Close()
		}
		return
	}
}

// clientConn is a hijacked connection with what the server had read ahead.
type clientConn struct {
	net.Conn
	ahead *bufio.Reader
}

func (c *clientConn) Read(p []byte) (int, error) {
	if c.ahead.Buffered() > 0 {
		return c.ahead.Read(p)
	}
	return c.Conn.Read(p)
}

// CloseWrite ends the direction to the client.
func (c *clientConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// hijack takes the client's connection over.
func (c *call) hijack() (*clientConn, error) {
	c.g.leaving.Add(1) // before the server may forget us
	conn, rw, err := c.rc.Hijack()
	if err != nil {
		c.g.leaving.Done()
		return nil, fmt.Errorf("take over the client's connection: %w", err)
	}
	c.hijacked = true
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("take over the client's connection: %w", err)
	}
	return &clientConn{Conn: conn, ahead: rw.Reader}, nil
}

// errUnasked is returned for an answer 101 that nobody asked for.
var errUnasked = errors.New("the upstream switched protocols unasked")

// switches reports whether an answer 101 is to what the client asked for: RFC 9110,
// section 7.8.
func (c *call) switches(resp *http.Response) bool {
	if c.upgrade == "" || len(resp.Header["Upgrade"]) == 0 || !httpguts.HeaderValuesContainsToken(resp.Header["Connection"], "Upgrade") {
		return false
	}
	for _, line := range resp.Header["Upgrade"] {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.Trim(protocol, " \t"); protocol != "" && !listed(c.upgrade, protocol) {
				return false
			}
		}
	}
	return true
}

// listed reports whether a protocol is among those of an Upgrade header.
func listed(upgrade, protocol string) bool {
	for asked := range strings.SplitSeq(upgrade, ",") {
		if strings.EqualFold(strings.Trim(asked, " \t"), protocol) {
			return true
		}
	}
	return false
}

// switchProtocols joins client and upstream after an answer 101 of [call.roundTrip].
func (c *call) switchProtocols(resp *http.Response, w *watch) error {
	upstream := resp.Body.(io.ReadWriteCloser) //nolint:forcetypeassert // see pool.roundTrip
	to := resp.Header["Upgrade"]
	w.stop() // the tunnel has a watch of its own
	h := resp.Header
	dropHops(h)
	c.routeLines(h, false)
	h["Connection"], h["Upgrade"] = []string{"Upgrade"}, to
	client, err := c.hijack()
	if err != nil {
		return err
	}
	defer client.Close()
	head := &http.Response{StatusCode: resp.StatusCode, ProtoMajor: 1, ProtoMinor: 1, Header: h}
	_ = client.SetWriteDeadline(time.Now().Add(headerTimeout))
	if err := head.Write(client); err != nil {
		return errors.Join(errClient, err)
	}
	_ = client.SetWriteDeadline(time.Time{})
	_, _, idle := c.timeouts()
	c.g.tunnels.run(&tunnel{a: client, b: upstream}, idle)
	return nil
}

// connect serves CONNECT: to an instance where the host is a service or route, else
// to the host itself.
func (c *call) connect(ctx context.Context, dir *lane.Snapshot) {
	address := c.r.URL.Host
	if address == "" {
		address = c.r.Host
	}
	if c.decision.Service != "" {
		if c.decision.Color != lane.Baseline {
			c.g.cfg.Used(c.decision.Color)
		}
		c.choice = lane.Pick(dir, c.decision.Service, c.decision.Color, lane.HTTP)
		c.startSpan(ctx)
		if err := c.choice.Err(); err != nil {
			c.fail(&failure{Status: http.StatusServiceUnavailable, Detail: err.Error()})
			return
		}
		c.target = c.g.balancer.Next(c.choice, c.g.now(), nil)
		address = c.target.Address
	} else if _, _, err := net.SplitHostPort(address); err != nil {
		c.fail(&failure{Status: http.StatusBadRequest, Detail: "CONNECT wants host:port"})
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var dialer net.Dialer
	upstream, err := dialer.DialContext(ctx, "tcp", address)
	if c.target != nil {
		outcome := lane.Success
		if err != nil {
			outcome = lane.Refused
		}
		defer func() { c.g.balancer.Done(c.target, outcome, c.g.now()) }()
	}
	if err != nil {
		c.cause = err
		c.fail(&failure{Status: http.StatusBadGateway, Detail: fmt.Sprintf("%s cannot be reached", clip(address))})
		return
	}
	defer upstream.Close()
	c.status = http.StatusOK
	if c.r.ProtoMajor == 1 {
		c.connectHTTP1(upstream)
		return
	}
	c.w.WriteHeader(http.StatusOK)
	if err := c.rc.Flush(); err != nil {
		return
	}
	c.g.tunnels.run(&tunnel{a: &streamConn{body: c.r.Body, w: c.w, rc: c.rc}, b: upstream.(*net.TCPConn)}, TunnelIdleTimeout) //nolint:forcetypeassert // "tcp"
}

func (c *call) connectHTTP1(upstream net.Conn) {
	client, err := c.hijack()
	if err != nil {
		c.fail(&failure{Status: http.StatusNotImplemented, Detail: "this connection cannot be tunneled"})
		return
	}
	defer client.Close()
	_ = client.SetWriteDeadline(time.Now().Add(headerTimeout))
	if _, err := io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	_ = client.SetWriteDeadline(time.Time{})
	c.g.tunnels.run(&tunnel{a: client, b: upstream.(*net.TCPConn)}, TunnelIdleTimeout) //nolint:forcetypeassert // "tcp"
}

// streamConn is an HTTP/2 stream of CONNECT as a connection.
type streamConn struct {
	body io.ReadCloser
	w    io.Writer
	rc   *http.ResponseController
	done atomic.Bool // the upstream has ended its direction
}

func (s *streamConn) Read(p []byte) (int, error) { return s.body.Read(p) }

func (s *streamConn) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, s.rc.Flush()
}

// CloseWrite ends the stream, whose own direction ends when the handler returns.
func (s *streamConn) CloseWrite() error {
	s.done.Store(true)
	return s.rc.SetReadDeadline(time.Unix(1, 0)) //nolint:wrapcheck // passed on
}

// Close ends both directions; it may be called more than once. A stream that has
// ended well is not reset.
func (s *streamConn) Close() error {
	past := time.Unix(1, 0)
	if s.done.Load() {
		return s.rc.SetReadDeadline(past) //nolint:wrapcheck // passed on
	}
	return errors.Join(s.rc.SetReadDeadline(past), s.rc.SetWriteDeadline(past))
}
