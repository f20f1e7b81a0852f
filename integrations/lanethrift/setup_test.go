package lanethrift

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/integrations/lanethrift/internal/echo"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }

// until polls a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// directory is a lane.Directory whose picture a test sets.
type directory struct{ *lanetest.Directory }

func newDirectory() directory { return directory{&lanetest.Directory{}} }

func (d directory) set(instances ...*lane.Instance) {
	d.SetInput(lane.Input{
		Room: "west",
		Lanes: []lane.Lane{
			{Name: "green"}, {Name: "shade", Parent: "green"}, {Name: "strict-load"},
		},
		Instances: instances,
	})
}

// handler says which instance it is and what color it saw.
type handler struct {
	name    string
	block   chan struct{} // "block" waits for it
	blocked chan struct{} // gets a value when a "block" has begun
	ended   chan struct{} // gets a value when the context of a "wait" has ended
	told    chan string
}

func newHandler(name string) *handler {
	return &handler{
		name: name, block: make(chan struct{}), blocked: make(chan struct{}, 100),
		ended: make(chan struct{}, 100), told: make(chan string, 1),
	}
}

func (h *handler) Say(ctx context.Context, text string) (*echo.Seen, error) {
	switch text {
	case "block":
		h.blocked <- struct{}{}
		<-h.block
	case "wait":
		h.blocked <- struct{}{}
		<-ctx.Done()
		h.ended <- struct{}{}
		return nil, ctx.Err()
	case "refuse":
		return nil, &echo.Refused{Why: "asked to"}
	case "fail":
		return nil, errors.New("asked to")
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

func (h *handler) Climb(_ context.Context, tree *echo.Tree) (*echo.Tree, error) { return tree, nil }

// running is an instance of service echo.
type running struct {
	*handler
	*lane.Instance
	server   *Server
	accepted *atomic.Int64
}

// countingListener counts the connections that were made to it.
type countingListener struct {
	net.Listener
	accepted *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}

// start runs an instance until the test ends.
func start(t testing.TB, name string, in lane.Name, transport string, options ...ServerOption) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, listener, name, in, transport, options...)
}

func startOn(t testing.TB, listener net.Listener, name string, in lane.Name, transport string, options ...ServerOption) *running {
	t.Helper()
	accepted := new(atomic.Int64)
	h := newHandler(name)
	r := &running{
		handler: h, accepted: accepted,
		server: NewServer(countingListener{listener, accepted}, echo.NewEchoProcessor(h), options...),
		Instance: &lane.Instance{
			Service: "echo", Name: name, Lane: in, Room: "west", State: lane.Ready,
			Endpoints: []lane.Endpoint{{Protocol: lane.Thrift, Transport: transport, Address: listener.Addr().String()}},
		},
	}
	if in != lane.Baseline {
		r.Generation = 1
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve() }()
	t.Cleanup(func() {
		r.stop(t)
		if err := <-served; !errors.Is(err, ErrServerClosed) {
			t.Errorf("Serve of %s = %v, want ErrServerClosed", name, err)
		}
	})
	return r
}

func (r *running) stop(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := r.server.Shutdown(ctx); err != nil {
		t.Errorf("shut %s down: %v", r.name, err)
	}
}

// open is how many connections the server has.
func (r *running) open() int {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return len(r.server.conns)
}

func dialTo(t testing.TB, instances ...*running) (directory, *Client) {
	t.Helper()
	return dialWith(t, nil, instances...)
}

func dialWith(t testing.TB, options []Option, instances ...*running) (directory, *Client) {
	t.Helper()
	d := newDirectory()
	var all []*lane.Instance
	for _, r := range instances {
		all = append(all, r.Instance)
	}
	d.set(all...)
	c := NewClient(d, "echo", options...)
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

func wantSeen(t *testing.T, ctx context.Context, c *Client, instance, color string) { //nolint:revive // t comes first here
	t.Helper()
	seen, err := say(ctx, c, "hello")
	if err != nil {
		t.Errorf("color %q: %v, want %s", lane.From(ctx), err, instance)
	} else if seen.Instance != instance || seen.Color != color || seen.Text != "hello" {
		t.Errorf("color %q: %+v, want %s with color %q", lane.From(ctx), seen, instance, color)
	}
}
