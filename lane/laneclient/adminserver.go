package laneclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxAdminConns is how many connections the listener of Config.AdminListen has at
	// once. More wait until one of them has ended.
	maxAdminConns       = 16
	adminHeaderBytes    = 16 << 10
	adminHeaderTimeout  = 5 * time.Second
	adminRequestTimeout = 2 * needTimeout
	adminIdleTimeout    = 10 * time.Second
)

// checkAdminListen says what is wrong with a Config.AdminListen.
func checkAdminListen(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" || !loopback(host) {
		return fmt.Errorf("is %q: want a loopback address and a port, as in 127.0.0.1:0; elsewhere serve Client.AdminHandler yourself, behind what keeps strangers out, and say where in Admin", address)
	}
	return nil
}

// loopback reports whether a host is this machine's own, for nobody else.
func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// adminServer serves Client.AdminHandler for Config.AdminListen.
type adminServer struct {
	listener net.Listener
	server   *http.Server
}

func newAdminServer(ctx context.Context, address string, c *Client) (*adminServer, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("laneclient: AdminListen: %w", err)
	}
	return &adminServer{
		listener: &boundedListener{Listener: l, free: make(chan struct{}, maxAdminConns), closed: make(chan struct{})},
		server: &http.Server{
			Handler:           forThisMachine(c.AdminHandler()),
			ReadHeaderTimeout: adminHeaderTimeout, ReadTimeout: adminRequestTimeout, WriteTimeout: adminRequestTimeout,
			IdleTimeout: adminIdleTimeout, MaxHeaderBytes: adminHeaderBytes,
			ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		},
	}, nil
}

func (a *adminServer) address() string { return a.listener.Addr().String() }

// run serves until ctx ends.
func (a *adminServer) run(ctx context.Context, log *slog.Logger) {
	stop := context.AfterFunc(ctx, func() { _ = a.server.Close() })
	defer stop()
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		log.WarnContext(ctx, "admin listener has ended: this process cannot be asked any more", "error", err)
	}
}

// forThisMachine refuses requests under names that lead here by somebody else's doing:
// a page in a browser must not read the answers.
func forThisMachine(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if !loopback(host) {
			WriteProblem(w, NewProblem(http.StatusForbidden, "ask by the loopback address of this listener, not by another name"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// boundedListener has at most cap(free) connections at once.
type boundedListener struct {
	net.Listener
	free   chan struct{} // holds one for each connection
	once   sync.Once
	closed chan struct{}
}

// Accept waits for its turn first.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &boundedConn{Conn: conn, free: l.free}, nil
}

// Close also wakes an Accept that waits.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn makes room for another one when it is closed.
type boundedConn struct {
	net.Conn
	free <-chan struct{}
	once sync.Once
}

// Close closes the connection.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.free })
	return err
}
