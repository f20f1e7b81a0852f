package lanethrift

import (
	"context"
	"errors"
	"net"
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

// directory is a lane.Directory whose picture a test sets.
type directory struct {
	snapshot atomic.Pointer[lane.Snapshot]
	mu       sync.Mutex
	changed  []func() // guarded by mu
	process  lane.Name
}

func (d *directory) Snapshot() *lane.Snapshot           { return d.snapshot.Load() }
func (d *directory) Need(context.Context, string) error { return nil }
func (d *directory) Process() lane.Name                 { return d.process }
func (d *directory) Used(lane.Name)                     {}

func (d *directory) Subscribe(changed func()) func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changed = append(d.changed, changed)
	return func() {}
}

func (d *directory) set(instances ...*lane.Instance) {
	d.snapshot.Store(lane.NewSnapshot(lane.Input{
		Lanes:     []lane.Lane{{Name: "green", Generation: 1, State: lane.Ready}},
		Instances: instances,
	}))
	d.mu.Lock()
	changed := slices.Clone(d.changed)
	d.mu.Unlock()
	for _, f := range changed {
		f()
	}
}

// handler says which instance it is and what color it saw.
type handler struct {
	name  string
	block chan struct{} // "block" waits for it
	told  chan string
}

func (h *handler) Say(ctx context.Context, text string) (*echo.Seen, error) {
	switch text {
	case "block":
		<-h.block
	case "refuse":
		return nil, &echo.Refused{Why: "asked to"}
	case "panic":
		panic("asked to")
	}
	lane.TrailFrom(ctx).Add(lane.Hop{Service: "next", Instance: "next-1", Reason: lane.ReasonPlain}, nil)
	return &echo.Seen{Instance: h.name, Color: string(lane.From(ctx)), Text: text}, nil
}

func (h *handler) Tell(_ context.Context, text string) error {
	h.told <- text
	return nil
}

type running struct {
	*handler
	*lane.Instance
	server *Server
}

func start(t *testing.T, name string, in lane.Name, transport string, options ...ServerOption) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &handler{name: name, block: make(chan struct{}), told: make(chan string, 1)}
	r := &running{handler: h, server: NewServer(listener, echo.NewEchoProcessor(h), options...), Instance: &lane.Instance{
		Service: "echo", Name: name, Lane: in, State: lane.Ready,
		Endpoints: []lane.Endpoint{{Protocol: lane.Thrift, Transport: transport, Address: listener.Addr().String()}},
	}}
	if in != lane.Baseline {
		r.Generation = 1
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := r.server.Shutdown(ctx); err != nil {
			t.Errorf("shut %s down: %v", name, err)
		}
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve of %s = %v, want ErrServerClosed", name, err)
		}
	})
	return r
}

func dialTo(t *testing.T, instances ...*running) (*directory, *Client) {
	t.Helper()
	d := new(directory)
	var all []*lane.Instance
	for _, r := range instances {
		all = append(all, r.Instance)
	}
	d.set(all...)
	c := NewClient(d, "echo")
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return d, c
}

func say(ctx context.Context, c *Client, text string) (*echo.Seen, error) {
	return echo.NewEchoClient(c).Say(ctx, text)
}

func TestEveryTransportTwice(t *testing.T) {
	for _, transport := range []string{"", TransportHeader, TransportFramed, TransportBuffered} {
		t.Run("transport="+transport, func(t *testing.T) {
			_, c := dialTo(t, start(t, "e1", "", transport))
			for range 2 { // the second call uses the first one's connection
				seen, err := say(lane.With(t.Context(), "green"), c, "hello")
				if err != nil {
					t.Fatal(err)
				}
				want := "green"
				if transport == TransportFramed || transport == TransportBuffered {
					want = "" // no headers: plain
				}
				if seen.Instance != "e1" || seen.Color != want || seen.Text != "hello" {
					t.Errorf("seen %+v, want e1 with color %q", seen, want)
				}
			}
		})
	}
}

func TestRoutesByLane(t *testing.T) {
	base, green := start(t, "e1", "", ""), start(t, "e2", "green", "")
	d, c := dialTo(t, base, green)
	for _, test := range []struct {
		ctx  context.Context
		want string
	}{
		{t.Context(), "e1"},
		{lane.With(t.Context(), "green"), "e2"},
		{lane.With(t.Context(), "blue"), "e1"},
	} {
		if seen, err := say(test.ctx, c, ""); err != nil || seen.Instance != test.want {
			t.Errorf("color %q: %v %v, want %s", lane.From(test.ctx), seen, err, test.want)
		}
	}
	d.set(base.Instance)
	if seen, err := say(lane.With(t.Context(), "green"), c, ""); err != nil || seen.Instance != "e1" || seen.Color != "green" {
		t.Errorf("after the lane's instance left: %v %v, want e1 and the color passed on", seen, err)
	}
}

func TestNoInstance(t *testing.T) {
	_, c := dialTo(t, start(t, "e1", "", ""))
	_, err := say(lane.With(t.Context(), "strict-load"), c, "")
	var exception thrift.TApplicationException
	var none *lane.NoInstanceError
	if !errors.As(err, &exception) || !errors.As(err, &none) {
		t.Fatalf("error %T %v, want a TApplicationException and a NoInstanceError", err, err)
	}
	if want := "no instance of echo in strict lane strict-load"; exception.Error() != want {
		t.Errorf("text %q, want %q", exception.Error(), want)
	}
}

func TestExplain(t *testing.T) {
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

func TestConcurrentCalls(t *testing.T) {
	_, c := dialTo(t, start(t, "e1", "", ""), start(t, "e2", "green", TransportFramed))
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

func TestExceptionsKeepTheConnection(t *testing.T) {
	_, c := dialTo(t, start(t, "e1", "", ""))
	var refused *echo.Refused
	if _, err := say(t.Context(), c, "refuse"); !errors.As(err, &refused) {
		t.Fatalf("error %v, want the exception", err)
	}
	if seen, err := say(t.Context(), c, "again"); err != nil || seen.Text != "again" {
		t.Errorf("after an exception: %v %v", seen, err)
	}
	if err := echo.NewEchoClient(c).Tell(t.Context(), "one way"); err != nil {
		t.Fatal(err)
	}
}

func TestPanicEndsOnlyItsConnection(t *testing.T) {
	_, c := dialTo(t, start(t, "e1", "", ""))
	if _, err := say(t.Context(), c, "panic"); err == nil {
		t.Error("a call whose handler panicked succeeded")
	}
	if _, err := say(t.Context(), c, "again"); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

func TestDeadline(t *testing.T) {
	r := start(t, "e1", "", "")
	defer close(r.block)
	_, c := dialTo(t, r)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := say(ctx, c, "block"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want the deadline's", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	if _, err := say(ctx, c, "block"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want the cancel's", err)
	}
	if seen, err := say(t.Context(), c, "next"); err != nil || seen.Text != "next" {
		t.Errorf("after a broken call: %v %v, want an answer of its own", seen, err)
	}
}

func TestRefusedGoesToAnotherOfTheLane(t *testing.T) {
	alive := start(t, "e1", "", "")
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := &lane.Instance{Service: "echo", Name: "e0", State: lane.Ready, Endpoints: []lane.Endpoint{{Protocol: lane.Thrift, Address: dead.Addr().String()}}}
	dead.Close()
	d, c := dialTo(t, alive)
	d.set(alive.Instance, gone)
	for range 10 {
		if seen, err := say(t.Context(), c, ""); err != nil || seen.Instance != "e1" {
			t.Fatalf("%v %v, want e1", seen, err)
		}
	}
	onlyGreen := *gone
	onlyGreen.Lane, onlyGreen.Generation = "green", 1
	d.set(alive.Instance, &onlyGreen)
	if seen, err := say(lane.With(t.Context(), "green"), c, ""); err == nil {
		t.Errorf("a lane whose only instance refuses fell back silently to %v", seen)
	}
}

func TestShutdownFinishesWhatIsInFlight(t *testing.T) {
	r := start(t, "e1", "", "")
	_, c := dialTo(t, r)
	answered := make(chan error, 1)
	begun := make(chan struct{})
	go func() {
		close(begun)
		_, err := say(context.Background(), c, "block")
		answered <- err
	}()
	<-begun
	stopped := make(chan error, 1)
	for { // until the call has reached the handler
		r.server.mu.Lock()
		busy := false
		for sc := range r.server.conns {
			sc.mu.Lock()
			busy = busy || !sc.waiting
			sc.mu.Unlock()
		}
		r.server.mu.Unlock()
		if busy {
			break
		}
	}
	go func() { stopped <- r.server.Shutdown(context.Background()) }()
	select {
	case err := <-stopped:
		t.Fatalf("Shutdown returned %v with a call in flight", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(r.block)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestBadPeers(t *testing.T) {
	r := start(t, "e1", "", "", WithLimits(0, 0, 100*time.Millisecond))
	_, c := dialTo(t, r)
	for name, bytes := range map[string]string{
		"http":        "GET / HTTP/1.1\r\n\r\n",
		"huge frame":  "\x7f\xff\xff\xff\x80\x01\x00\x01",
		"zero frame":  "\x00\x00\x00\x00\x00\x00\x00\x00",
		"cut header":  "\x00\x00\x00\x0e\x0f\xff\x00\x00\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00",
		"half a call": "\x80\x01\x00\x01\x00\x00\x00\x03sa",
	} {
		t.Run(name, func(t *testing.T) {
			peer, err := net.Dial("tcp", r.Endpoints[0].Address)
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			if _, err := peer.Write([]byte(bytes)); err != nil {
				t.Fatal(err)
			}
			if err := peer.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			buffer := make([]byte, 1024)
			for err == nil {
				_, err = peer.Read(buffer)
			}
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the server kept the connection")
			}
		})
	}
	if _, err := say(t.Context(), c, ""); err != nil {
		t.Errorf("after bad peers: %v", err)
	}
}

func TestClosedClient(t *testing.T) {
	_, c := dialTo(t, start(t, "e1", "", ""))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := say(t.Context(), c, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
}
