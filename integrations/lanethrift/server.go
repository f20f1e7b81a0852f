package lanethrift

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
)

// Limits of a [Server].
const (
	// DefaultMaxServerConns is how many connections are served at once; further ones are
	// closed at once.
	DefaultMaxServerConns = 4096
	// DefaultIdleTimeout closes a connection that sends nothing between calls.
	DefaultIdleTimeout = 10 * time.Minute
	// DefaultMessageTimeout is how long one message may take to come in from its first
	// byte on, and to go out: a peer that trickles holds a connection no longer.
	DefaultMessageTimeout = 30 * time.Second
)

// ErrServerClosed is returned by [Server.Serve] after [Server.Shutdown].
var ErrServerClosed = errors.New("lanethrift: server is closed")

// ServerOption changes a [Server] that [NewServer] makes.
type ServerOption func(*Server)

// WithAliases names further info headers to read a color from.
func WithAliases(names ...string) ServerOption { return func(s *Server) { s.aliases = names } }

// WithLogger logs connections that end with an error, and panics. Default: discard.
func WithLogger(log *slog.Logger) ServerOption { return func(s *Server) { s.log = log } }

// WithLimits bounds the connections served at once, the time a connection may be idle
// and the time one message may take; zero fields keep their defaults.
func WithLimits(maxConns int, idle, message time.Duration) ServerOption {
	return func(s *Server) {
		s.maxConns = orDefault(maxConns, s.maxConns)
		s.idle = orDefault(idle, s.idle)
		s.message = orDefault(message, s.message)
	}
}

func orDefault[T int | time.Duration](given, standard T) T {
	if given > 0 {
		return given
	}
	return standard
}

// Server serves Thrift on a listener: THeader, framed and unframed clients, binary and
// compact, told apart by their first bytes. A peer that sends what is none of these, or a
// message over [MaxFrameBytes], loses its connection and harms nobody else. A handler is
// not told that its client has gone: give what it does a deadline.
type Server struct {
	listener  net.Listener
	processor thrift.TProcessor
	cfg       *thrift.TConfiguration
	aliases   []string
	log       *slog.Logger
	maxConns  int
	idle      time.Duration
	message   time.Duration

	mu       sync.Mutex
	conns    map[*serverConn]struct{} // guarded by mu
	stopping bool                     // guarded by mu
	serving  sync.WaitGroup
}

// NewServer makes a server; it does not listen or accept yet. The server owns listener.
func NewServer(listener net.Listener, processor thrift.TProcessor, options ...ServerOption) *Server {
	s := &Server{
		listener: listener, log: slog.New(slog.DiscardHandler), conns: map[*serverConn]struct{}{},
		maxConns: DefaultMaxServerConns, idle: DefaultIdleTimeout, message: DefaultMessageTimeout,
		cfg: &thrift.TConfiguration{MaxFrameSize: MaxFrameBytes, MaxMessageSize: MaxFrameBytes},
	}
	for _, o := range options {
		o(s)
	}
	s.processor = thrift.WrapProcessor(processor, Middleware(s.aliases...))
	return s
}

// Serve accepts connections until [Server.Shutdown], and then returns [ErrServerClosed]
// at once: Shutdown is what waits for calls in flight. Another error is the listener's.
func (s *Server) Serve() error {
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			s.mu.Lock()
			stopping := s.stopping
			s.mu.Unlock()
			if stopping {
				return ErrServerClosed
			}
			return fmt.Errorf("accept: %w", err)
		}
		c := &serverConn{Conn: raw, idleFor: s.idle, messageFor: s.message, waiting: true}
		if !s.add(c) {
			_ = raw.Close() // over the limit or stopping: the peer sees it end
			continue
		}
		go s.serve(c)
	}
}

func (s *Server) add(c *serverConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping || len(s.conns) >= s.maxConns {
		return false
	}
	s.conns[c] = struct{}{}
	s.serving.Add(1)
	return true
}

func (s *Server) serve(c *serverConn) {
	defer s.serving.Done()
	defer func() {
		if p := recover(); p != nil { // a handler's panic ends its connection only
			s.log.Error("panic in a Thrift handler", "panic", p, "stack", string(debug.Stack()))
		}
		_ = c.Close() // the peer may be gone already
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	if err := s.calls(c); err != nil {
		s.log.Debug("Thrift connection ended", "peer", c.RemoteAddr().String(), "error", err)
	}
}

// calls serves the calls of one connection, one after the other.
func (s *Server) calls(c *serverConn) error {
	protocol := thrift.NewTHeaderProtocolConf(thrift.NewTSocketFromConnConf(c, s.cfg), s.cfg)
	for {
		ctx := thrift.SetResponseHelper(context.Background(),
			thrift.TResponseHelper{THeaderResponseHelper: thrift.NewTHeaderResponseHelper(protocol)})
		if !c.wait() {
			return nil // shutting down
		}
		if err := protocol.ReadFrame(ctx); err != nil {
			return ignoreEOF(err)
		}
		ctx = thrift.AddReadTHeaderToContext(ctx, protocol.GetReadHeaders())
		ok, err := s.processor.Process(ctx, protocol, protocol)
		var application thrift.TApplicationException
		switch {
		case err != nil && errors.As(err, &application) && application.TypeId() == thrift.UNKNOWN_METHOD:
			continue // answered; the message was read to its end
		case err != nil && !ok:
			return ignoreEOF(err)
		case !ok:
			return nil
		}
	}
}

func ignoreEOF(err error) error {
	var t thrift.TTransportException
	if errors.Is(err, io.EOF) || errors.As(err, &t) && (t.TypeId() == thrift.END_OF_FILE || t.TypeId() == thrift.NOT_OPEN) {
		return nil
	}
	return err
}

// Shutdown stops accepting, closes connections that wait for a call, and returns when the
// calls in flight have ended. When ctx ends first, their connections are closed and its
// error returned; handlers that do not return are not waited for.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for c := range s.conns {
		c.stop()
	}
	s.mu.Unlock()
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	done := make(chan struct{})
	go func() { s.serving.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close() // its handler finds out
	}
	s.mu.Unlock()
	return errors.Join(err, context.Cause(ctx))
}

// serverConn sets the deadlines of a connection: a long one while it waits for a call, a
// short one for each message. thrift's own, which would clear them, are ignored.
type serverConn struct {
	net.Conn
	idleFor, messageFor time.Duration

	mu       sync.Mutex
	waiting  bool // for the first byte of a call; guarded by mu
	stopping bool // guarded by mu
}

// wait begins the wait for a call. It is false when the connection is to end instead.
func (c *serverConn) wait() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = true
	if c.stopping {
		return false
	}
	return c.Conn.SetReadDeadline(time.Now().Add(c.idleFor)) == nil
}

// stop ends the connection if no call is under way, else after it.
func (c *serverConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopping = true
	if c.waiting {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes the read
	}
}

// Read implements net.Conn.
func (c *serverConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.mu.Lock()
		if c.waiting {
			c.waiting = false
			_ = c.Conn.SetReadDeadline(time.Now().Add(c.messageFor)) // a closed connection fails at the next read
		}
		c.mu.Unlock()
	}
	return n, err
}

// Write implements net.Conn.
func (c *serverConn) Write(b []byte) (int, error) {
	if err := c.Conn.SetWriteDeadline(time.Now().Add(c.messageFor)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// SetDeadline and its kin do nothing: see the type's comment.
func (c *serverConn) SetDeadline(time.Time) error      { return nil }
func (c *serverConn) SetReadDeadline(time.Time) error  { return nil }
func (c *serverConn) SetWriteDeadline(time.Time) error { return nil }
