package httpgw

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/internal/telemetry"
)

// ErrExposed is returned by [Gateway.Run] where the inside would listen beyond
// loopback without client certificates.
var ErrExposed = errors.New("the inside listener believes colors and is a proxy: it listens on loopback only, or with mutual TLS")

// Listeners are what [Gateway.Run] serves. Either may be nil. Run closes them.
type Listeners struct {
	Edge   net.Listener
	Inside net.Listener
}

// Run serves until ctx ends, then drains: it closes the listeners, tells HTTP/2
// clients to go away and HTTP/1.1 clients that their connection closes, lets what is
// under way finish within Config.Drain, and cuts off the rest. It returns nil after
// a clean end, an error where the drain deadline has passed or a listener has
// failed, and [ErrExposed], serving nothing, where the inside is exposed. Run may be
// called once.
func (g *Gateway) Run(ctx context.Context, l Listeners) error {
	if l.Inside != nil && g.cfg.InsideTLS == nil && !loopback(l.Inside.Addr()) {
		return errors.Join(fmt.Errorf("%s: %w", l.Inside.Addr(), ErrExposed), closeListeners(l))
	}
	var servers []*http.Server
	failed := make(chan error, 2) // one for each listener
	serve := func(listener net.Listener, handler http.Handler, config *tls.Config) {
		if listener == nil {
			return
		}
		s := g.newServer(handler, config)
		listener = &serverListener{listener, &g.leaving}
		servers = append(servers, s)
		go func() { // ends with the server's Shutdown or Close below
			if config != nil {
				failed <- s.ServeTLS(listener, "", "")
				return
			}
			failed <- s.Serve(listener)
		}()
	}
	serve(l.Edge, g.Edge(), g.cfg.EdgeTLS)
	serve(l.Inside, g.Inside(), g.cfg.InsideTLS)
	var err error
	running := len(servers)
	select {
	case <-ctx.Done():
	case err = <-failed:
		running--
	}
	// The drain has a deadline of its own: ctx has ended.
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.Drain)
	defer cancel()
	err = errors.Join(err, g.shutdown(drain, servers))
	for range running {
		if e := <-failed; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	g.leaving.Wait()
	g.pool.close()
	g.h2.CloseIdleConnections()
	return err
}

// shutdown drains all servers at once, then the tunnels, which have had the same
// time, and closes what is left.
func (g *Gateway) shutdown(ctx context.Context, servers []*http.Server) error {
	done := make(chan error, len(servers))
	for _, s := range servers {
		go func() {
			err := s.Shutdown(ctx)
			if err != nil {
				err = errors.Join(fmt.Errorf("drain: requests were cut off: %w", err), s.Close())
			}
			done <- err
		}()
	}
	var err error
	for range servers {
		err = errors.Join(err, <-done)
	}
	g.tunnels.drain(ctx) // no request is left that could become one
	return err
}

func (g *Gateway) newServer(handler http.Handler, config *tls.Config) *http.Server {
	s := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       keepAliveTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		TLSConfig:         config.Clone(),
		HTTP2:             http2Config(),
		Protocols:         new(http.Protocols),
		ConnContext:       withConn,
		ErrorLog:          telemetry.LibraryLog(g.cfg.Log),
	}
	s.Protocols.SetHTTP1(true)
	if config != nil {
		s.Protocols.SetHTTP2(true)
	} else {
		s.Protocols.SetUnencryptedHTTP2(true)
	}
	return s
}

func closeListeners(l Listeners) error {
	var err error
	for _, listener := range []net.Listener{l.Edge, l.Inside} {
		if listener != nil {
			err = errors.Join(err, listener.Close())
		}
	}
	return err
}

// loopback reports whether nobody but this machine can connect to an address.
func loopback(a net.Addr) bool {
	switch a := a.(type) {
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// serverListener gives connections that linger.
type serverListener struct {
	net.Listener
	lingering *sync.WaitGroup
}

// Accept waits for the next connection.
func (l *serverListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http looks at it
	}
	return &serverConn{Conn: conn, lingering: l.lingering}, nil
}

// serverConn is a client's connection. Where the client was still sending when its
// request had been answered, Close only says that no more is to come, and goes on
// reading for a moment: the kernel answers bytes for a closed socket with a reset,
// which may destroy the answer before the client has read it.
type serverConn struct {
	net.Conn
	lingering *sync.WaitGroup
	lingers   atomic.Bool
	closed    atomic.Bool
}

// linger makes Close linger.
func (c *serverConn) linger() { c.lingers.Store(true) }

// Close closes the connection, soon.
func (c *serverConn) Close() error {
	if !c.lingers.Load() || c.closed.Swap(true) || c.CloseWrite() != nil {
		return c.Conn.Close() //nolint:wrapcheck // passed on
	}
	c.lingering.Go(func() { // ends by the deadline; Run waits for it
		defer c.Conn.Close()
		if c.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
			_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes)
		}
	})
	return nil
}

// CloseWrite ends the direction to the client.
func (c *serverConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite() //nolint:wrapcheck // passed on
	}
	return errors.ErrUnsupported
}

type connKey struct{}

// withConn makes the connection known to its requests.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return context.WithValue(ctx, connKey{}, conn)
}
