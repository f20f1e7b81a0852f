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
	"syscall"
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

	// How long accepting pauses after an error that goes by, such as too many open files.
	firstPause, longestPause = 5 * time.Millisecond, time.Second
)

// ErrServerClosed is returned by [Server.Serve] after [Server.Shutdown].
var ErrServerClosed = errors.New("lanethrift: server is closed")

// serverConfig is what options change.
type serverConfig struct {
	aliases  []string
	trust    func(context.Context) bool // nil: everybody
	log      *slog.Logger
	maxConns int
	idle     time.Duration
	message  time.Duration
}

func newServerConfig(options []ServerOption) *serverConfig {
	c := &serverConfig{
		log:      slog.New(slog.DiscardHandler),
		maxConns: DefaultMaxServerConns, idle: DefaultIdleTimeout, message: DefaultMessageTimeout,
	}
	for _, o := range options {
		o(c)
	}
	return c
}

// ServerOption changes a [Server] that [NewServer] makes, or a [Middleware].
type ServerOption func(*serverConfig)

// WithAliases names info headers, in lower case, that a color is also read from, after
// those of package lane. They are never written.
func WithAliases(names ...string) ServerOption { return func(c *serverConfig) { c.aliases = names } }

// WithTrust limits from whom a color is believed and lane.ExplainHeader answered; trusted
// gets the call's context, with its info headers (thrift.GetHeader). Default: everybody,
// since a service is called by services; the gateway's edge is where colors from outside
// are dropped.
func WithTrust(trusted func(context.Context) bool) ServerOption {
	return func(c *serverConfig) { c.trust = trusted }
}

// WithLogger logs connections that end with an error, and panics. Default: discard.
func WithLogger(log *slog.Logger) ServerOption { return func(c *serverConfig) { c.log = log } }

// WithLimits bounds the connections served at once, the time a connection may be idle
// and the time one message may take; zero fields keep their defaults.
func WithLimits(maxConns int, idle, message time.Duration) ServerOption {
	return func(c *serverConfig) {
		c.maxConns = orDefault(maxConns, c.maxConns)
		c.idle = orDefault(idle, c.idle)
		c.message = orDefault(message, c.message)
	}
}

func orDefault[T int | time.Duration](given, standard T) T {
	if given > 0 {
		return given
	}
	return standard
}

// Server serves Thrift on a listener: THeader, framed and unframed clients, binary (with
// its version, as every current client sends it) and compact, told apart by their first
// bytes. Only THeader has headers, so calls of the others are plain.
//
// A peer that sends what is none of these, or a message over a limit ([MaxFrameBytes],
// [MaxDepth], [MaxAheadElements]), loses its connection and harms nobody else. The same
// goes for a handler that panics. A handler's context ends when its client has gone, as far as
// thrift.ServerConnectivityCheckInterval has generated code look, and when
// [Server.Shutdown] runs out of time.
type Server struct {
	*serverConfig
	listener  net.Listener
	processor thrift.TProcessor
	cfg       *thrift.TConfiguration

	// base is what handlers' contexts are made from; hurry ends it. It is the server's
	// own, not that of a call.
	base  context.Context //nolint:containedctx // see above
	hurry context.CancelFunc

	mu       sync.Mutex
	conns    map[*serverConn]struct{} // guarded by mu
	stopping bool                     // guarded by mu
	serving  sync.WaitGroup
}

// NewServer makes a server; it does not listen or accept yet. The server owns listener.
func NewServer(listener net.Listener, processor thrift.TProcessor, options ...ServerOption) *Server {
	s := &Server{
		serverConfig: newServerConfig(options),
		listener:     listener,
		processor:    thrift.WrapProcessor(processor, Middleware(options...)),
		cfg:          configuration(),
		conns:        map[*serverConn]struct{}{},
	}
	s.base, s.hurry = context.WithCancel(context.Background())
	return s
}

// Serve accepts connections until [Server.Shutdown], and then returns [ErrServerClosed]
// at once: Shutdown is what waits for calls in flight. Errors that go by, such as too many
// open files, are waited out; another one of the listener is returned.
func (s *Server) Serve() error {
	pause := time.Duration(0)
	for {
		raw, err := s.listener.Accept()
		if err == nil {
			pause = 0
			s.accept(raw)
			continue
		}
		if s.isStopping() {
			return ErrServerClosed
		}
		if !passing(err) {
			return fmt.Errorf("accept: %w", err)
		}
		pause = min(max(2*pause, firstPause), longestPause)
		s.log.Warn("cannot accept a Thrift connection for now", "error", err, "pause", pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.base.Done():
			timer.Stop()
		}
	}
}

// passing reports whether accepting may work again without anybody doing anything.
func passing(err error) bool {
	for _, passes := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET} {
		if errors.Is(err, passes) {
			return true
		}
	}
	return false
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

func (s *Server) conn(raw net.Conn) *serverConn {
	return &serverConn{
		meteredConn: meteredConn{Conn: raw, guard: &frameGuard{}},
		idleFor:     s.idle, messageFor: s.message, waiting: true,
	}
}

func (s *Server) accept(raw net.Conn) {
	c := s.conn(raw)
	if !s.add(c) {
		_ = raw.Close() // over the limit or stopping: the peer sees it end
		return
	}
	go s.serve(c)
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
	if err := s.handshake(c); err != nil {
		return err
	}
	protocol := thrift.NewTHeaderProtocolConf(thrift.NewTSocketFromConnConf(c, s.cfg), s.cfg)
	in := &bounded{TProtocol: protocol, received: func() int { return c.received }, began: c.begin}
	response := thrift.TResponseHelper{THeaderResponseHelper: thrift.NewTHeaderResponseHelper(protocol)}
	for {
		if !c.wait() {
			return nil // shutting down
		}
		if err := protocol.ReadFrame(s.base); err != nil {
			return ignoreEOF(err)
		}
		protocol.ClearWriteHeaders() // those of the answer before
		headers := protocol.GetReadHeaders()
		if len(headers) > maxHeaders {
			return fmt.Errorf("a call with %d headers; at most %d are read", len(headers), maxHeaders)
		}
		ctx := thrift.AddReadTHeaderToContext(thrift.SetResponseHelper(s.base, response), headers)
		ok, err := s.processor.Process(ctx, in, protocol)
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

// handshake completes that of TLS: a peer has as much time for it as for a message.
func (s *Server) handshake(c *serverConn) error {
	shaking, ok := c.Conn.(interface{ HandshakeContext(context.Context) error })
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.base, s.message)
	defer cancel()
	return shaking.HandshakeContext(ctx)
}

func ignoreEOF(err error) error {
	var t thrift.TTransportException
	if errors.Is(err, io.EOF) || errors.As(err, &t) && (t.TypeId() == thrift.END_OF_FILE || t.TypeId() == thrift.NOT_OPEN) {
		return nil
	}
	return err
}

// Shutdown stops accepting, closes connections that wait for a call, and returns when the
// calls in flight have ended. When ctx ends first, their connections are closed, their
// contexts canceled and ctx's error returned; handlers that do not return are not waited
// for.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	// A client whose connection ends connects again at once: not to here.
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.mu.Lock()
	for c := range s.conns {
		c.stop()
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.serving.Wait(); close(done) }()
	defer s.hurry()
	select {
	case <-done:
		return err
	case <-ctx.Done():
	}
	s.hurry()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close() // its handler finds out
	}
	s.mu.Unlock()
	return errors.Join(err, context.Cause(ctx))
}

// serverConn sets the deadlines of a connection: a long one while it waits for a call, a
// short one for each message.
type serverConn struct {
	meteredConn
	idleFor, messageFor time.Duration

	mu       sync.Mutex
	waiting  bool // for the first byte of a call; guarded by mu
	stopping bool // guarded by mu
}

// wait begins the wait for a call. It is false when the connection is to end instead.
func (c *serverConn) wait() bool {
	c.next()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = true
	if c.stopping {
		return false
	}
	return c.Conn.SetReadDeadline(time.Now().Add(c.idleFor)) == nil
}

// begin ends the wait: there is a call, or a part of one. It is called when bytes come and
// when a call is read, for that may have come together with the one before.
func (c *serverConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting {
		c.waiting = false
		_ = c.Conn.SetReadDeadline(time.Now().Add(c.messageFor)) // a closed connection fails at the next read
	}
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
	n, err := c.meteredConn.Read(b)
	if n > 0 {
		c.begin()
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

// SyscallConn lets generated code see whether the client has gone while its handler runs.
// The message has come in by then, and its deadline, which may have passed, would make
// that check fail.
func (c *serverConn) SyscallConn() (syscall.RawConn, error) {
	c.mu.Lock()
	if !c.waiting {
		_ = c.Conn.SetReadDeadline(time.Time{}) // a closed connection fails in the check
	}
	c.mu.Unlock()
	return rawConn(c.Conn)
}
