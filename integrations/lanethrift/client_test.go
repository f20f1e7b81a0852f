package lanethrift

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/integrations/lanethrift/internal/echo"
	"github.com/laneway-dev/laneway/lane"
)

func TestEveryTransport(t *testing.T) {
	t.Parallel()
	for _, compact := range []bool{false, true} {
		for _, transport := range []string{"", TransportHeader, TransportFramed, TransportBuffered} {
			t.Run(fmt.Sprintf("transport=%s,compact=%v", transport, compact), func(t *testing.T) {
				t.Parallel()
				var options []Option
				if compact {
					options = append(options, WithCompact())
				}
				r := start(t, "e1", "", transport)
				_, c := dialWith(t, options, r)
				want := "green"
				if transport == TransportFramed || transport == TransportBuffered {
					want = "" // no headers: plain
				}
				for range 5 {
					wantSeen(t, lane.With(t.Context(), "green"), c, "e1", want)
					wantSeen(t, t.Context(), c, "e1", "")
				}
				tree := &echo.Tree{Leaves: []string{strings.Repeat("leaf", 100_000)}}
				got, err := echo.NewEchoClient(c).Climb(t.Context(), tree)
				if err != nil || got.Leaves[0] != tree.Leaves[0] {
					t.Errorf("a large message: %v", err)
				}
				if err := echo.NewEchoClient(c).Tell(t.Context(), "one way"); err != nil {
					t.Fatal(err)
				}
				if got := <-r.told; got != "one way" {
					t.Errorf("told %q", got)
				}
				wantSeen(t, t.Context(), c, "e1", "")
				if n := r.accepted.Load(); n != 1 {
					t.Errorf("%d connections for calls one after the other, want one", n)
				}
			})
		}
	}
}

func TestUnknownTransport(t *testing.T) {
	t.Parallel()
	_, c := dialTo(t, start(t, "e1", "", "carrier-pigeon"))
	if _, err := say(t.Context(), c, ""); err == nil || !strings.Contains(err.Error(), `"carrier-pigeon"`) {
		t.Errorf("error %v, want one that names the transport", err)
	}
}

func TestRoutesByLane(t *testing.T) {
	t.Parallel()
	base, green, strict := start(t, "e1", "", ""), start(t, "e2", "green", ""), start(t, "e3", "strict-load", "")
	d, c := dialTo(t, base, green, strict)
	for color, want := range map[lane.Name]string{"": "e1", "green": "e2", "shade": "e2", "blue": "e1", "strict-load": "e3"} {
		wantSeen(t, lane.With(t.Context(), color), c, want, string(color))
	}
	d.set(base.Instance)
	wantSeen(t, lane.With(t.Context(), "green"), c, "e1", "green") // passed on all the same
	if green, blue := d.Uses("green"), d.Uses("blue"); green != 2 || blue != 1 {
		t.Errorf("green was used %d times and blue %d: want every color noted", green, blue)
	}
	if n := d.Needed("echo"); n != 1 {
		t.Errorf("the directory was asked %d times for the service, want once", n)
	}
}

func TestProcessColor(t *testing.T) {
	t.Parallel()
	d, c := dialTo(t, start(t, "e1", "", ""), start(t, "e2", "green", ""))
	d.SetProcess("green")
	wantSeen(t, t.Context(), c, "e2", "green")
	wantSeen(t, lane.Plain(t.Context()), c, "e1", "")
}

func TestNoInstance(t *testing.T) {
	t.Parallel()
	d, c := dialTo(t, start(t, "e1", "", ""))
	for range 2 {
		for color, want := range map[lane.Name]string{
			"strict-load":  "no instance of echo in strict lane strict-load",
			"strict-never": "no instance of echo in strict lane strict-never",
		} {
			wantNone(t, lane.With(t.Context(), color), c, want)
		}
		d.set()
		wantNone(t, t.Context(), c, "no instance of echo in the baseline")
	}
}

func wantNone(t *testing.T, ctx context.Context, c *Client, want string) { //nolint:revive // t comes first here
	t.Helper()
	_, err := say(ctx, c, "")
	var exception thrift.TApplicationException
	var none *lane.NoInstanceError
	if !errors.As(err, &exception) || !errors.As(err, &none) {
		t.Fatalf("error %T %v, want a TApplicationException and a NoInstanceError", err, err)
	}
	if exception.Error() != want {
		t.Errorf("text %q, want %q", exception.Error(), want)
	}
}

func TestNeed(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	d, c := dialTo(t)
	d.SetNeedError(errors.New("out to lunch"))
	if _, err := say(t.Context(), c, ""); err == nil || !strings.Contains(err.Error(), "out to lunch") {
		t.Errorf("error %v, want the directory's", err)
	}
	d.set(r.Instance)
	wantSeen(t, t.Context(), c, "e1", "")
}

// TestHeaders has the caller's own headers kept, and the color's written as elsewhere.
func TestHeaders(t *testing.T) {
	t.Parallel()
	ctx := thrift.SetHeader(lane.With(t.Context(), "green"), "user", "7")
	ctx = thrift.SetHeader(ctx, lane.BaggageHeader, "a=1;p, v-traffic-lane=old,b=%20")
	ctx = thrift.SetHeader(ctx, "not-listed", "x")
	ctx = thrift.SetWriteHeaderList(ctx, []string{"user", lane.BaggageHeader, "not-set"})
	got := map[string]string{}
	collect := func(ctx context.Context) {
		clear(got)
		for _, key := range thrift.GetWriteHeaderList(ctx) {
			got[key], _ = thrift.GetHeader(ctx, key)
		}
	}
	sending, explained := outgoing(ctx, "green")
	collect(sending)
	want := map[string]string{"user": "7", lane.Header: "green", lane.BaggageHeader: "a=1;p,b=%20,v-traffic-lane=green"}
	if fmt.Sprint(got) != fmt.Sprint(want) || explained {
		t.Errorf("colored: %v, explained %v; want %v", got, explained, want)
	}
	sending, _ = outgoing(ctx, "")
	collect(sending)
	want = map[string]string{"user": "7", lane.BaggageHeader: "a=1;p,b=%20"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("plain: %v; want %v", got, want)
	}
}

// TestIncomingHeadersStay: what a handler's context has of the call that came in is not
// sent on, but for the color.
func TestIncomingHeadersStay(t *testing.T) {
	t.Parallel()
	ctx := thrift.AddReadTHeaderToContext(t.Context(), thrift.THeaderMap{lane.Header: "green", "secret": "1"})
	sending, _ := outgoing(lane.With(ctx, "shade"), "shade")
	for _, key := range thrift.GetWriteHeaderList(sending) {
		if value, _ := thrift.GetHeader(sending, key); key == "secret" || key == lane.Header && value != "shade" {
			t.Errorf("header %s: %s is sent on", key, value)
		}
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	_, c := dialTo(t, start(t, "e1", "", ""))
	ctx := thrift.SetHeader(lane.With(t.Context(), "green"), lane.ExplainHeader, "1")
	ctx = thrift.SetWriteHeaderList(ctx, []string{lane.ExplainHeader})
	client := echo.NewEchoClient(c)
	for range 2 { // lines of one call must not show in the next
		if _, err := client.Say(ctx, ""); err != nil {
			t.Fatal(err)
		}
		want := "service=echo lane=- instance=e1 rule=trusted reason=baseline-fallback\n" +
			"service=next lane=- instance=next-1 rule=- reason=plain"
		if got := client.LastResponseMeta_().Headers[lane.RouteHeader]; got != want {
			t.Errorf("route:\n%s\nwant:\n%s", got, want)
		}
	}
	if _, err := client.Say(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	if got := client.LastResponseMeta_().Headers[lane.RouteHeader]; got != "" {
		t.Errorf("a call that did not ask got a route: %s", got)
	}
	traced, trail := lane.WithTrail(t.Context())
	if _, err := say(traced, c, ""); err != nil {
		t.Fatal(err)
	}
	if lines := trail.Lines(); len(lines) != 2 || !strings.Contains(lines[0], "instance=e1") {
		t.Errorf("trail %q, want this call and the one further on", lines)
	}
}

// TestUnaskedRoute has an instance tell a route that nobody asked for.
func TestUnaskedRoute(t *testing.T) {
	t.Parallel()
	sent := thrift.THeaderMap{lane.RouteHeader: "service=x", "own": "1"}
	got := routed(t.Context(), sent, nil)
	if len(got) != 1 || got["own"] != "1" || len(sent) != 2 {
		t.Errorf("got %v of %v", got, sent)
	}
}

func TestObserver(t *testing.T) {
	t.Parallel()
	type key struct{}
	var seen []string
	observe := func(ctx context.Context, c lane.Choice, target *lane.Target) {
		seen = append(seen, fmt.Sprint(ctx.Value(key{}), " ", c.Reason, " ", target.Name))
	}
	_, c := dialWith(t, []Option{WithObserver(observe)}, start(t, "e1", "", ""))
	ctx := context.WithValue(lane.With(t.Context(), "green"), key{}, "mine")
	wantSeen(t, ctx, c, "e1", "green")
	wantNone(t, lane.With(ctx, "strict-never"), c, "no instance of echo in strict lane strict-never")
	if want := []string{"mine baseline-fallback e1"}; !slices.Equal(seen, want) {
		t.Errorf("seen %q, want %q", seen, want)
	}
}

func TestConcurrentCalls(t *testing.T) {
	t.Parallel()
	_, c := dialWith(t, []Option{WithMaxConns(4)}, start(t, "e1", "", ""), start(t, "e2", "green", TransportFramed))
	var group sync.WaitGroup
	for i := range 32 {
		group.Go(func() {
			ctx, want := t.Context(), "e1"
			if i%2 == 1 {
				ctx, want = lane.With(ctx, "green"), "e2"
			}
			for range 20 {
				if seen, err := say(ctx, c, "x"); err != nil || seen.Instance != want {
					t.Errorf("%v %v, want %s", seen, err, want)
					return
				}
			}
		})
	}
	group.Wait()
}

// TestPolicy: an instance that is at work gets no further call where the other one is idle.
func TestPolicy(t *testing.T) {
	t.Parallel()
	one, other := start(t, "e1", "", ""), start(t, "e2", "", "")
	_, c := dialWith(t, []Option{WithPolicy(lane.LeastRequests)}, one, other)
	done := make(chan error, 1)
	go func() {
		_, err := say(t.Context(), c, "block")
		done <- err
	}()
	idle := "e1"
	select {
	case <-one.blocked:
		idle = "e2"
	case <-other.blocked:
	}
	for range 20 {
		wantSeen(t, t.Context(), c, idle, "")
	}
	close(one.block)
	close(other.block)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestMaxConns(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	_, c := dialWith(t, []Option{WithMaxConns(2)}, r)
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			if _, err := say(t.Context(), c, "block"); err != nil {
				t.Error(err)
			}
		})
	}
	<-r.blocked
	<-r.blocked
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := say(ctx, c, "third"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline's: both connections are in use", err)
	}
	if n := r.accepted.Load(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	close(r.block)
	group.Wait()
	wantSeen(t, t.Context(), c, "e1", "")
}

func TestExceptionsKeepTheConnection(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	_, c := dialTo(t, r)
	var refused *echo.Refused
	if _, err := say(t.Context(), c, "refuse"); !errors.As(err, &refused) {
		t.Errorf("error %v, want the declared exception", err)
	}
	var other thrift.TApplicationException
	if _, err := say(t.Context(), c, "fail"); !errors.As(err, &other) || other.TypeId() != thrift.INTERNAL_ERROR {
		t.Errorf("error %v, want an internal error", err)
	}
	_, err := c.Call(t.Context(), "no-such-method", &echo.EchoSayArgs{}, &echo.EchoSayResult{})
	if !errors.As(err, &other) || other.TypeId() != thrift.UNKNOWN_METHOD {
		t.Errorf("error %v, want an unknown method", err)
	}
	wantSeen(t, t.Context(), c, "e1", "")
	if n := r.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
}

// TestUnwritableArguments is the caller's mistake: the instance is not blamed.
func TestUnwritableArguments(t *testing.T) {
	t.Parallel()
	_, c := dialTo(t, start(t, "e1", "", ""), start(t, "e2", "", ""))
	for range 20 {
		if _, err := c.Call(t.Context(), "say", unwritable{}, &echo.EchoSayResult{}); err == nil {
			t.Fatal("no error")
		}
	}
	seen := map[string]bool{}
	for range 10 {
		s, err := say(t.Context(), c, "")
		if err != nil {
			t.Fatal(err)
		}
		seen[s.Instance] = true
	}
	if len(seen) != 2 {
		t.Errorf("only %v serve: the other was ejected", seen)
	}
}

type unwritable struct{}

func (unwritable) Read(context.Context, thrift.TProtocol) error  { return nil }
func (unwritable) Write(context.Context, thrift.TProtocol) error { return errors.New("no") }

func TestDeadline(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{TransportHeader, TransportFramed, TransportBuffered} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := start(t, "e1", "", transport)
			defer close(r.block)
			_, c := dialTo(t, r)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			if _, err := say(ctx, c, "block"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("error %v, want the deadline's", err)
			}
			wantSeen(t, t.Context(), c, "e1", "") // on a connection of its own
		})
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, transport := range []string{TransportHeader, TransportFramed, TransportBuffered} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			r := start(t, "e1", "", transport)
			defer close(r.block)
			_, c := dialTo(t, r)
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				<-r.blocked
				stop()
			}()
			if _, err := say(ctx, c, "block"); !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want the cancel's", err)
			}
			wantSeen(t, t.Context(), c, "e1", "") // on a connection of its own
		})
	}
}

// pastDeadline is a context whose deadline has passed and whose timer has not fired yet.
type pastDeadline struct{ context.Context }

func (pastDeadline) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }
func (pastDeadline) Err() error                  { return nil }
func (pastDeadline) Done() <-chan struct{}       { return nil }

// TestDialAtDeadline: a dialer that gives up a moment before its context ends says nothing
// of the instance.
func TestDialAtDeadline(t *testing.T) {
	t.Parallel()
	dial := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
	}
	_, c := dialWith(t, []Option{WithDialer(dial)}, start(t, "e1", "", ""))
	var refused *dialError
	_, err := c.open(pastDeadline{t.Context()}, &lane.Target{})
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, &refused) {
		t.Errorf("error %v, want the deadline's", err)
	}
	if _, err := c.open(t.Context(), &lane.Target{}); !errors.As(err, &refused) {
		t.Errorf("error %v, want that no connection was made", err)
	}
}

func TestDefaultTimeout(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	defer close(r.block)
	_, c := dialWith(t, []Option{WithTimeout(30 * time.Millisecond)}, r)
	if _, err := say(t.Context(), c, "block"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the default deadline's", err)
	}
}

// TestLateCancel races the end of a context with the answer: the next call must not be
// hit by it.
func TestLateCancel(t *testing.T) {
	t.Parallel()
	_, c := dialTo(t, start(t, "e1", "", ""))
	for i := range 300 {
		ctx, cancel := context.WithCancel(t.Context())
		timer := time.AfterFunc(time.Duration(i)*time.Microsecond, cancel)
		_, err := say(ctx, c, "x")
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Fatalf("canceled call: %v", err)
		}
		if _, err := say(t.Context(), c, "y"); err != nil {
			t.Fatalf("the call after: %v", err)
		}
		timer.Stop()
		cancel()
	}
}

// refusing is an instance that nobody listens for.
func refusing(t *testing.T, name string, in lane.Name) *lane.Instance {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	i := &lane.Instance{
		Service: "echo", Name: name, Lane: in, Room: "west", State: lane.Ready,
		Endpoints: []lane.Endpoint{{Protocol: lane.Thrift, Address: listener.Addr().String()}},
	}
	if in != lane.Baseline {
		i.Generation = 1
	}
	return i
}

func TestRefusedGoesToAnotherOfTheLane(t *testing.T) {
	t.Parallel()
	alive := start(t, "e1", "", "")
	d, c := dialTo(t, alive)
	d.set(alive.Instance, refusing(t, "e0", ""))
	for range 10 {
		wantSeen(t, t.Context(), c, "e1", "")
	}
	d.set(alive.Instance, refusing(t, "e0", "green"), refusing(t, "e2", "green"))
	for range 5 {
		seen, err := say(lane.With(t.Context(), "green"), c, "")
		if err == nil {
			t.Fatalf("a lane whose instances refuse fell back silently to %v", seen)
		}
		var op *net.OpError
		if !errors.As(err, &op) || !strings.Contains(err.Error(), "call echo instance e") {
			t.Errorf("error %v, want one that names the instance and what failed", err)
		}
	}
	wantSeen(t, t.Context(), c, "e1", "")
}

// TestNothingIsSentTwice cuts the connection after a call has been read.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			calls.Add(1)
			_ = c.Close()
		}
	}()
	d, c := dialTo(t)
	cutting := func(name string) *lane.Instance {
		return &lane.Instance{Service: "echo", Name: name, State: lane.Ready, Endpoints: []lane.Endpoint{
			{Protocol: lane.Thrift, Address: listener.Addr().String()},
		}}
	}
	d.set(cutting("e1"), cutting("e2"))
	if _, err := say(t.Context(), c, ""); err == nil {
		t.Error("no error")
	}
	if n := calls.Load(); n != 1 {
		t.Errorf("the call was sent %d times", n)
	}
}

// TestRestartedServer: connections that the peer has closed are seen before they are used.
func TestRestartedServer(t *testing.T) {
	t.Parallel()
	first := start(t, "e1", "", "")
	_, c := dialTo(t, first)
	wantSeen(t, t.Context(), c, "e1", "")
	first.stop(t)
	listener, err := net.Listen("tcp", first.Endpoints[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	startOn(t, listener, "e1", "", "")
	wantSeen(t, t.Context(), c, "e1", "")
}

// TestUnaskedBytes: what a peer sends without a call makes its connection useless.
func TestUnaskedBytes(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	_, c := dialTo(t, r)
	wantSeen(t, t.Context(), c, "e1", "")
	r.server.mu.Lock()
	for sc := range r.server.conns {
		if _, err := sc.Conn.Write([]byte("hello?")); err != nil {
			t.Error(err)
		}
	}
	r.server.mu.Unlock()
	until(t, "a connection of its own", func() bool {
		wantSeen(t, t.Context(), c, "e1", "")
		return r.accepted.Load() == 2
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	secure := httptest.NewTLSServer(nil) // for its certificate
	defer secure.Close()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	r := startOn(t, tls.NewListener(plain, &tls.Config{Certificates: secure.TLS.Certificates}), "e1", "", "")
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: roots}}
	_, c := dialWith(t, []Option{WithDialer(dialer.DialContext)}, r)
	if err := echo.NewEchoClient(c).Tell(t.Context(), "one way"); err != nil {
		t.Fatal(err)
	}
	<-r.told
	for range 5 {
		wantSeen(t, lane.With(t.Context(), "green"), c, "e1", "green")
	}
	if n := r.accepted.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
}

// TestChurn changes the registry under load: no call fails that has a living instance.
func TestChurn(t *testing.T) {
	t.Parallel()
	base := start(t, "e1", "", "")
	greens := []*lane.Instance{start(t, "g1", "green", "").Instance, start(t, "g2", "green", TransportFramed).Instance}
	d, c := dialWith(t, []Option{WithMaxConns(2)}, base)
	var stop atomic.Bool
	var calls atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = lane.With(ctx, "green")
			}
			for !stop.Load() {
				seen, err := say(ctx, c, "x")
				if err != nil {
					t.Errorf("call: %v", err)
					return
				}
				if i%2 == 1 && seen.Instance != "e1" {
					t.Errorf("a plain call got to %s", seen.Instance)
				}
				calls.Add(1)
			}
		})
	}
	for i := range 60 {
		at := calls.Load()
		d.set(append(greens[:i%3:i%3], base.Instance)...)
		until(t, "calls go on", func() bool { return calls.Load() > at+20 || t.Failed() })
	}
	stop.Store(true)
	group.Wait()
}

// TestInFlightOutlivesItsInstance: a call is answered though its instance has left.
func TestInFlightOutlivesItsInstance(t *testing.T) {
	t.Parallel()
	base, green := start(t, "e1", "", ""), start(t, "e2", "green", "")
	d, c := dialWith(t, []Option{WithMaxConns(1)}, base, green)
	ctx := lane.With(t.Context(), "green")
	answered := make(chan string, 2)
	ask := func(text string) {
		seen, err := say(ctx, c, text)
		answered <- fmt.Sprint(seen, err)
	}
	go ask("block")
	<-green.blocked
	go ask("queued") // waits for the one connection
	d.set(base.Instance)
	if got, want := <-answered, fmt.Sprint(&echo.Seen{Instance: "e1", Color: "green", Text: "queued"}, nil); got != want {
		t.Errorf("the call that waited: %s, want %s", got, want)
	}
	close(green.block)
	if got, want := <-answered, fmt.Sprint(&echo.Seen{Instance: "e2", Color: "green", Text: "block"}, nil); got != want {
		t.Errorf("the call in flight: %s, want %s", got, want)
	}
	until(t, "its connection is closed", func() bool { return green.open() == 0 })
}

func TestClose(t *testing.T) {
	t.Parallel()
	r := start(t, "e1", "", "")
	d, c := dialTo(t, r)
	answered := make(chan error, 1)
	go func() {
		_, err := say(context.Background(), c, "block")
		answered <- err
	}()
	<-r.blocked
	closed := make(chan error, 1)
	go func() { closed <- c.Close() }()
	until(t, "new calls are refused", func() bool {
		_, err := say(t.Context(), c, "")
		return errors.Is(err, ErrClosed)
	})
	select {
	case err := <-closed:
		t.Fatalf("Close returned %v with a call in flight", err)
	default:
	}
	close(r.block)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	until(t, "all connections are closed", func() bool { return r.open() == 0 })
	if n := d.Subscribers(); n != 0 {
		t.Errorf("%d subscriptions left", n)
	}
}
