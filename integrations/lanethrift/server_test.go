package lanethrift

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/integrations/lanethrift/internal/echo"
	"github.com/laneway-dev/laneway/lane"
)

// peer is a bare connection to an instance.
func peer(t *testing.T, r *running) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Endpoints[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantHangUp reads until the server ends the connection.
func wantHangUp(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server kept the connection")
	}
}

// message is what a client of a transport sends for a call of say.
func message(t testing.TB, transport, text string, headers ...string) []byte {
	t.Helper()
	buffer := thrift.NewTMemoryBuffer()
	var p thrift.TProtocol
	cfg := configuration()
	switch transport {
	case TransportHeader:
		header := thrift.NewTHeaderProtocolConf(buffer, cfg)
		for i := 0; i < len(headers); i += 2 {
			header.SetWriteHeader(headers[i], headers[i+1])
		}
		p = header
	case TransportFramed:
		p = thrift.NewTBinaryProtocolConf(thrift.NewTFramedTransportConf(buffer, cfg), cfg)
	case TransportBuffered:
		p = thrift.NewTBinaryProtocolConf(buffer, cfg)
	case "compact":
		p = thrift.NewTCompactProtocolConf(buffer, cfg)
	case "framed compact":
		p = thrift.NewTCompactProtocolConf(thrift.NewTFramedTransportConf(buffer, cfg), cfg)
	}
	ctx := context.Background()
	err := errors.Join(
		p.WriteMessageBegin(ctx, "say", thrift.CALL, 7),
		(&echo.EchoSayArgs{Text: text}).Write(ctx, p),
		p.WriteMessageEnd(ctx),
		p.Flush(ctx),
	)
	if err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

// TestOnePort has every kind of peer on the same port, also byte by byte.
func TestOnePort(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	for _, transport := range []string{TransportHeader, TransportFramed, TransportBuffered, "compact", "framed compact"} {
		for _, chunk := range []int{1, 3, 1000} {
			c := peer(t, r)
			sent := message(t, transport, "hi", lane.Header, "green")
			for len(sent) > 0 {
				n := min(chunk, len(sent))
				if _, err := c.Write(sent[:n]); err != nil {
					t.Fatal(err)
				}
				sent = sent[n:]
			}
			// A peer that has closed its half counts as gone; so first the answer.
			var answer []byte
			for part := make([]byte, 1000); !bytes.Contains(answer, []byte("e1")); {
				n, err := c.Read(part)
				answer = append(answer, part[:n]...)
				if err != nil {
					t.Fatalf("%s by %d: %v after %q", transport, chunk, err, answer)
				}
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			rest, err := io.ReadAll(c)
			if err != nil {
				t.Errorf("%s by %d: %v", transport, chunk, err)
			}
			answer = append(answer, rest...)
			color := bytes.Contains(answer, []byte("green"))
			if !bytes.Contains(answer, []byte("e1")) || color != (transport == TransportHeader) {
				t.Errorf("%s by %d: answer %q", transport, chunk, answer)
			}
		}
	}
}

func TestServerOptions(t *testing.T) {
	t.Parallel()
	trusting := start(t, "e1", "", "", WithAliases("x-color"))
	wary := start(t, "e2", "", "", WithTrust(func(ctx context.Context) bool {
		secret, _ := thrift.GetHeader(ctx, "x-secret")
		return secret == "1"
	}))
	for _, test := range []struct {
		server  *running
		headers []string
		color   string
	}{
		{trusting, []string{"x-color", "green"}, "green"},
		{trusting, []string{"x-color", "NO LANE"}, ""},
		{trusting, []string{"x-color", "green", lane.Header, "shade"}, "shade"},
		{trusting, []string{lane.BaggageHeader, "a=b,v-traffic-lane=green"}, "green"},
		{wary, []string{lane.Header, "green", lane.ExplainHeader, "1"}, ""},
		{wary, []string{lane.Header, "green", "x-secret", "1"}, "green"},
	} {
		c := peer(t, test.server)
		if _, err := c.Write(message(t, TransportHeader, "hi", test.headers...)); err != nil {
			t.Fatal(err)
		}
		p := thrift.NewTHeaderProtocolConf(thrift.NewTSocketFromConnConf(c, nil), configuration())
		if _, _, _, err := p.ReadMessageBegin(t.Context()); err != nil {
			t.Fatal(err)
		}
		result := &echo.EchoSayResult{}
		if err := result.Read(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if got := result.GetSuccess().GetColor(); got != test.color {
			t.Errorf("%v: color %q, want %q", test.headers, got, test.color)
		}
		if route := p.GetReadHeaders()[lane.RouteHeader]; route != "" {
			t.Errorf("%v: told the route %q", test.headers, route)
		}
	}
}

func TestBadPeers(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "", WithLimits(0, 0, 100*time.Millisecond))
	_, c := dialTo(t, r)
	manyHeaders := make([]string, 0, 2*(maxHeaders+1))
	for i := range maxHeaders + 1 {
		manyHeaders = append(manyHeaders, fmt.Sprintf("h%d", i), "v")
	}
	for name, sent := range map[string][]byte{
		"http":            []byte("GET / HTTP/1.1\r\n\r\n"),
		"tls":             []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
		"old binary":      []byte("\x00\x00\x00\x03say\x01\x00\x00\x00\x00\x00"),
		"huge frame":      []byte("\x7f\xff\xff\xff\x80\x01\x00\x01"),
		"frame over max":  binary.BigEndian.AppendUint32(nil, MaxFrameBytes+1),
		"zero frame":      []byte("\x00\x00\x00\x00\x00\x00\x00\x00"),
		"cut header":      []byte("\x00\x00\x00\x0e\x0f\xff\x00\x00\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00"),
		"unknown inside":  []byte("\x00\x00\x00\x12\x0f\xff\x00\x00\x00\x00\x00\x01\x00\x01\x7f\x00\x00\x00\x80\x01\x00\x01"),
		"unknown zip":     []byte("\x00\x00\x00\x12\x0f\xff\x00\x00\x00\x00\x00\x01\x00\x01\x00\x01\x7f\x00\x80\x01\x00\x01"),
		"old, later on":   append(message(t, TransportBuffered, "hi"), "\x00\x00\x00\x03say\x01\x00\x00\x00\x00\x00"...),
		"half a call":     message(t, TransportBuffered, "hi")[:9],
		"half a frame":    message(t, TransportFramed, "hi")[:15],
		"one byte":        []byte("\x80"),
		"long name":       []byte("\x80\x01\x00\x01\x7f\xff\xff\xffname"),
		"many headers":    message(t, TransportHeader, "hi", manyHeaders...),
		"a lie of a list": lyingList(),
		"transforms":      compressed(t, maxTransforms+1),
		"overlong number": []byte("\x00\x00\x00\x20\x0f\xff\x00\x00\x00\x00\x00\x01\x00\x04\x80\x80\x80\x80\x80\x80\x00\x05\x01\x01\x01\x01\x01\x00\x00\x00\x00\x00\x80\x01\x00\x01"),
	} {
		t.Run(name, func(t *testing.T) {
			c := peer(t, r)
			if _, err := c.Write(sent); err != nil {
				t.Fatal(err)
			}
			wantHangUp(t, c)
		})
	}
	wantSeen(t, t.Context(), c, "e1", "")
}

func TestCompressed(t *testing.T) {
	t.Parallel()
	c := peer(t, start(t, "e1", "", ""))
	for range 3 {
		if _, err := c.Write(compressed(t, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 256)); err != nil {
			t.Fatal(err)
		}
	}

	server := NewServer(nil, echo.NewEchoProcessor(quietHandler{}))
	err := server.calls(server.conn(script{in: bytes.NewReader(compressed(t, maxTransforms+1))}))
	if !errors.Is(err, errTransforms) {
		t.Errorf("compressed too often: %v, want %v", err, errTransforms)
	}
}

// TestGuardSeesWhatThriftSees gives the guard the same bytes in pieces of every size.
func TestGuardSeesWhatThriftSees(t *testing.T) {
	t.Parallel()
	good := bytes.Join([][]byte{
		message(t, TransportHeader, "hi", "a", "b"), message(t, TransportFramed, strings.Repeat("x", 1000)),
		compressed(t, maxTransforms), message(t, "framed compact", ""),
		{0, 0, 0, 1, 7},
	}, nil)
	for _, test := range []struct {
		name   string
		bytes  []byte
		refuse bool
	}{
		{"all kinds", good, false},
		{"then too many transforms", append(bytes.Clone(good), compressed(t, maxTransforms+1)...), true},
		{"then a huge frame", append(bytes.Clone(good), 1, 0, 0, 1, 0), true},
		{"unframed, whatever follows", append(message(t, TransportBuffered, "hi"), compressed(t, maxTransforms+1)...), false},
		{"compact, whatever follows", append(message(t, "compact", "hi"), compressed(t, maxTransforms+1)...), false},
	} {
		for size := 1; size <= 64; size++ {
			g := &frameGuard{}
			var err error
			for rest := test.bytes; len(rest) > 0 && err == nil; {
				n := min(size, len(rest))
				err, rest = g.see(rest[:n]), rest[n:]
			}
			if (err != nil) != test.refuse {
				t.Errorf("%s by %d: %v, want refused: %v", test.name, size, err, test.refuse)
			}
		}
	}
}

// TestLargeLists: a list as long as its bytes is read, however long, where its length can
// be seen to be true.
func TestLargeLists(t *testing.T) {
	t.Parallel()
	leaves := make([]string, MaxAheadElements+2*readAhead)
	climb := func(transport string, n int) error {
		// Under the race detector, on a machine that has other work, this takes its time.
		const long = 5 * time.Minute
		_, c := dialWith(t, []Option{WithTimeout(long)}, start(t, "e1", "", transport, WithLimits(0, 0, long)))
		got, err := echo.NewEchoClient(c).Climb(t.Context(), &echo.Tree{Leaves: leaves[:n]})
		if err == nil && len(got.Leaves) != n {
			err = fmt.Errorf("%d leaves of %d came back", len(got.Leaves), n)
		}
		return err
	}
	for _, transport := range []string{TransportHeader, TransportFramed} {
		if err := climb(transport, len(leaves)); err != nil {
			t.Errorf("%s: %v", transport, err)
		}
	}
	if err := climb(TransportBuffered, MaxAheadElements); err != nil {
		t.Errorf("buffered, up to the limit: %v", err)
	}
	if err := climb(TransportBuffered, len(leaves)); err == nil {
		t.Error("buffered: the server made room for more than may come")
	}
}

// lyingList is a call of climb whose list says it has two thousand million elements.
func lyingList() []byte {
	b := []byte("\x80\x01\x00\x01\x00\x00\x00\x05climb\x00\x00\x00\x01")
	b = append(b, "\x0c\x00\x01"...)                              // field 1: a struct
	b = append(b, "\x0f\x00\x02\x0b\x7f\xff\xff\xff"...)          // its field 2: a list of strings
	return append(b, "\x00\x00\x00\x01x\x00\x00\x00\x01y\x00"...) // two of them
}

// TestSlowPeer sends a call byte by byte, without end: it has as long as for a message.
func TestSlowPeer(t *testing.T) {
	t.Parallel()
	const within = 200 * time.Millisecond
	r := start(t, "e1", "", "", WithLimits(0, 0, within))
	c := peer(t, r)
	began := time.Now()
	for _, b := range message(t, TransportFramed, strings.Repeat("long", 10_000)) {
		if _, err := c.Write([]byte{b}); err != nil {
			break
		}
		if time.Since(began) > patience {
			t.Fatal("the server is patient without end")
		}
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(began); took < within {
		t.Errorf("hung up after %v, before %v", took, within)
	}
}

func TestIdlePeer(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "", WithLimits(0, 50*time.Millisecond, 0))
	c := peer(t, r)
	wantHangUp(t, c)
	c = peer(t, r)
	if _, err := c.Write(message(t, TransportFramed, "hi")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	wantHangUp(t, c)
}

// TestPauseBetweenCalls: a connection that waits for its next call has longer than a
// message may take, and does not hold a shutdown up.
func TestPauseBetweenCalls(t *testing.T) {
	t.Parallel()
	const messageTime = 50 * time.Millisecond
	for _, transport := range []string{TransportHeader, TransportFramed, TransportBuffered, "compact", "framed compact"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := start(t, "e1", "", "", WithLimits(0, 0, messageTime))
			c := peer(t, r)
			for range 2 {
				if _, err := c.Write(message(t, transport, "hi")); err != nil {
					t.Fatal(err)
				}
				if _, err := c.Read(make([]byte, 256)); err != nil {
					t.Fatal(err)
				}
				<-time.NewTimer(2 * messageTime).C
			}
			began := time.Now()
			r.stop(t)
			if took := time.Since(began); took > patience/2 {
				t.Errorf("the shutdown took %v", took)
			}
		})
	}
}

// TestEndlessMessage is one that no frame bounds: a list that goes on and on.
func TestEndlessMessage(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	c := peer(t, r)
	head := []byte("\x80\x01\x00\x01\x00\x00\x00\x05climb\x00\x00\x00\x01\x0c\x00\x01\x0f\x00\x02\x0b\x00\x00\xff\xff")
	if _, err := c.Write(head); err != nil {
		t.Fatal(err)
	}
	megabyte := append([]byte("\x00\x10\x00\x00"), make([]byte, 1<<20)...)
	sent := len(head)
	for ; sent < 4*MaxFrameBytes; sent += len(megabyte) {
		if _, err := c.Write(megabyte); err != nil {
			break
		}
	}
	if sent > 2*MaxFrameBytes {
		t.Errorf("the server took %d bytes of one message", sent)
	}
}

// TestDeepMessage nests structs deeper than a stack should go, in both directions.
func TestDeepMessage(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	_, c := dialTo(t, r)
	if _, err := echo.NewEchoClient(c).Climb(t.Context(), tree(MaxDepth/2)); err != nil {
		t.Errorf("as deep as allowed: %v", err)
	}
	if _, err := echo.NewEchoClient(c).Climb(t.Context(), tree(MaxDepth+10)); err == nil {
		t.Error("the server read what was too deep")
	}
	read := thrift.NewTMemoryBuffer()
	p := thrift.NewTBinaryProtocolConf(read, configuration())
	if err := tree(MaxDepth+10).Write(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	var limit thrift.TProtocolException
	err := boundedResult{&echo.Tree{}, func() int { return 0 }}.Read(t.Context(), p)
	if !errors.As(err, &limit) || limit.TypeId() != thrift.DEPTH_LIMIT {
		t.Errorf("the client read what was too deep: %v", err)
	}
}

func tree(depth int) *echo.Tree {
	top := &echo.Tree{}
	for range depth - 1 {
		top = &echo.Tree{Child: top}
	}
	return top
}

func TestPanicEndsOnlyItsConnection(t *testing.T) {
	t.Parallel()
	var logged syncBuffer
	r := start(t, "e1", "", "", WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	_, c := dialTo(t, r)
	other := peer(t, r)
	if _, err := say(t.Context(), c, "panic"); err == nil {
		t.Error("a call whose handler panicked succeeded")
	}
	wantSeen(t, t.Context(), c, "e1", "")
	if _, err := other.Write(message(t, TransportFramed, "hi")); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(make([]byte, 100)); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if !strings.Contains(logged.String(), "asked to") {
		t.Errorf("the panic is not in the log: %s", logged.String())
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "", WithLimits(2, 0, 0))
	first, second := peer(t, r), peer(t, r)
	until(t, "two are served", func() bool { return r.open() == 2 })
	wantHangUp(t, peer(t, r))
	first.Close()
	until(t, "one has gone", func() bool { return r.open() == 1 })
	_ = second
	_, c := dialTo(t, r)
	wantSeen(t, t.Context(), c, "e1", "")
}

// TestClientGone ends the context of a handler whose client has gone, also after the time
// that a message may take.
func TestClientGone(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "", WithLimits(0, 0, 50*time.Millisecond))
	c := peer(t, r)
	if _, err := c.Write(message(t, TransportHeader, "wait")); err != nil {
		t.Fatal(err)
	}
	<-r.blocked
	select {
	case <-r.ended:
		t.Error("the context ended with the client there")
	case <-time.NewTimer(150 * time.Millisecond).C:
	}
	c.Close()
	<-r.ended
}

func TestShutdownFinishesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	_, c := dialTo(t, r)
	idle := peer(t, r)
	until(t, "the idle one is served", func() bool { return r.open() == 1 })
	answered := make(chan error, 1)
	go func() {
		_, err := say(context.Background(), c, "block")
		answered <- err
	}()
	<-r.blocked
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	wantHangUp(t, idle)
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown returned %v with a call in flight", err)
	default:
	}
	if _, err := net.Dial("tcp", r.Endpoints[0].Address); err == nil {
		t.Error("the server still accepts")
	}
	close(r.block)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestShutdownStopsAcceptingFirst: a client whose connection ended connects again at once,
// and is not to meet a server that is about to end.
func TestShutdownStopsAcceptingFirst(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	hungUp := make(chan struct{})
	r := startOn(t, closingListener{Listener: listener, hungUp: hungUp}, "e1", "", "")
	idle := peer(t, r)
	until(t, "the idle one is served", func() bool { return r.open() == 1 })
	go func() {
		defer close(hungUp)
		_, _ = io.Copy(io.Discard, idle) // ends with the connection
	}()
	if err := r.server.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	<-hungUp
}

// closingListener takes its time to close, and fails when a connection ends meanwhile.
type closingListener struct {
	net.Listener
	hungUp <-chan struct{}
}

func (l closingListener) Close() error {
	select {
	case <-l.hungUp:
		return errors.Join(errors.New("a connection ended while the server still accepted"), l.Listener.Close())
	case <-time.After(50 * time.Millisecond):
		return l.Listener.Close()
	}
}

// TestShutdownWithCallsReadAhead: the second of two calls that came in one packet is in
// flight like the first.
func TestShutdownWithCallsReadAhead(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	c := peer(t, r)
	both := append(message(t, TransportBuffered, "hi"), message(t, TransportBuffered, "block")...)
	if _, err := c.Write(both); err != nil {
		t.Fatal(err)
	}
	<-r.blocked
	stopped := make(chan error, 1)
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	until(t, "shutting down", r.server.isStopping)
	<-time.NewTimer(10 * thrift.ServerConnectivityCheckInterval).C // generated code looks at the connection
	close(r.block)
	answer, err := io.ReadAll(c)
	if err != nil || !bytes.Contains(answer, []byte("block")) {
		t.Errorf("answers %q, %v; want both", answer, err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestShutdownRunsOutOfTime(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	_, c := dialTo(t, r)
	answered := make(chan error, 1)
	go func() {
		_, err := say(context.Background(), c, "wait")
		answered <- err
	}()
	<-r.blocked
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown = %v, want the deadline's error", err)
	}
	<-r.ended // the handler was told
	if err := <-answered; err == nil {
		t.Error("the call was answered")
	}
}

// failingListener fails before it accepts.
type failingListener struct {
	net.Listener
	fails atomic.Int64
	err   error
}

func (l *failingListener) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", l.err)}
	}
	return l.Listener.Accept()
}

func TestAcceptErrors(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	short := &failingListener{Listener: listener, err: syscall.EMFILE}
	short.fails.Store(3)
	_, c := dialTo(t, startOn(t, short, "e1", "", ""))
	wantSeen(t, t.Context(), c, "e1", "") // when files are free again

	broken := &failingListener{Listener: listener, err: syscall.EINVAL}
	broken.fails.Store(1)
	if err := NewServer(broken, echo.NewEchoProcessor(newHandler("e2"))).Serve(); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Serve = %v, want the listener's error", err)
	}
}

// TestMiddlewareElsewhere runs it in thrift's own server.
func TestMiddlewareElsewhere(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr()
	listener.Close()
	processor := thrift.WrapProcessor(echo.NewEchoProcessor(newHandler("e1")), Middleware())
	socket := thrift.NewTServerSocketFromAddrTimeout(address, 0)
	server := thrift.NewTSimpleServer4(processor, socket, thrift.NewTTransportFactory(), thrift.NewTHeaderProtocolFactoryConf(configuration()))
	if err := server.Listen(); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve() }()
	d := newDirectory()
	d.set(&lane.Instance{Service: "echo", Name: "e1", State: lane.Ready, Endpoints: []lane.Endpoint{{Protocol: lane.Thrift, Address: address.String()}}})
	c := NewClient(d, "echo")
	ctx := lane.With(t.Context(), "green")
	wantSeen(t, ctx, c, "e1", "green")
	client := echo.NewEchoClient(c)
	asking := thrift.SetWriteHeaderList(thrift.SetHeader(ctx, lane.ExplainHeader, "1"), []string{lane.ExplainHeader})
	for _, ctx := range []context.Context{asking, ctx} {
		if _, err := client.Say(ctx, ""); err != nil {
			t.Fatal(err)
		}
		route := client.LastResponseMeta_().Headers[lane.RouteHeader]
		if (route != "") != (ctx == asking) {
			t.Errorf("asked %v, route %q", ctx == asking, route)
		}
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
