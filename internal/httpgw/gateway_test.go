package httpgw_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// world is a gateway on loopback in front of instances, on a registry that the test
// writes.
type world struct {
	t      *testing.T
	edge   string // host:port
	inside string
	gw     *httpgw.Gateway
	stop   func() error // ends Run and gives its error

	open      atomic.Int32 // connections of serveRaw
	view      atomic.Pointer[laneclient.View]
	used      chan lane.Name
	lanes     []lane.Lane
	services  []string
	instances []*lane.Instance
	routes    []laneclient.Route
	rules     []laneclient.Rule
}

func newWorld(t *testing.T, change func(*httpgw.Config)) *world {
	t.Helper()
	w := &world{t: t, used: make(chan lane.Name, 1000)}
	cfg := httpgw.Config{
		Views: w.view.Load, Node: "gw-1", Drain: 5 * time.Second,
		Used: func(n lane.Name) {
			select {
			case w.used <- n:
			default:
			}
		},
	}
	if change != nil {
		change(&cfg)
	}
	gw, err := httpgw.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w.gw = gw
	w.publish()
	l := httpgw.Listeners{Edge: listen(t), Inside: listen(t)}
	w.edge, w.inside = l.Edge.Addr().String(), l.Inside.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- gw.Run(ctx, l) }()
	var ended atomic.Bool
	w.stop = func() error {
		cancel()
		ended.Store(true)
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Second):
			t.Error("Run did not end")
			return nil
		}
	}
	t.Cleanup(func() {
		if !ended.Load() {
			if err := w.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
	})
	return w
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// publish makes what the test has written the present view.
func (w *world) publish() {
	prior := w.view.Load()
	v := &laneclient.View{Routes: append([]laneclient.Route(nil), w.routes...), Rules: append([]laneclient.Rule(nil), w.rules...), Revision: 1}
	if prior != nil {
		v.Revision = prior.Revision + 1
	}
	v.Snapshot = lane.NewSnapshot(lane.Input{
		Revision: v.Revision, Lanes: append([]lane.Lane(nil), w.lanes...), Services: append([]string(nil), w.services...),
		Instances: append([]*lane.Instance(nil), w.instances...),
	})
	w.view.Store(v)
}

// lane adds ready lanes.
func (w *world) lane(names ...lane.Name) {
	for _, n := range names {
		w.lanes = append(w.lanes, lane.Lane{Name: n, Generation: 1, State: lane.Ready})
	}
	w.publish()
}

// instance registers an address.
func (w *world) instance(service, name string, in lane.Name, protocol, address string) {
	i := &lane.Instance{
		Service: service, Name: name, Lane: in, State: lane.Ready,
		Endpoints: []lane.Endpoint{{Protocol: protocol, Address: address}},
	}
	if in != lane.Baseline {
		i.Generation = 1
	}
	w.instances = append(w.instances, i)
	w.publish()
}

// serve starts an HTTP/1.1 instance.
func (w *world) serve(service, name string, in lane.Name, h http.Handler) {
	w.t.Helper()
	s := httptest.NewServer(h)
	w.t.Cleanup(s.Close)
	w.instance(service, name, in, lane.HTTP, s.Listener.Addr().String())
}

// echo answers with the instance's name and the color that it got.
func echo(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		color, _ := lane.Extract(r.Header)
		w.Header().Set("X-Instance", name)
		w.Header().Set("X-Color", string(color))
		_, _ = io.WriteString(w, name+" "+string(color))
	})
}

// client speaks to the gateway without a proxy and without following redirects.
func (w *world) client() *http.Client {
	tr := &http.Transport{DisableCompression: true}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// get asks one of the listeners, with headers as "key: value".
func (w *world) get(listener, host, path string, headers ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://"+listener+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Host = host
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Add(k, v)
	}
	return w.doWith(w.client(), req)
}

func TestRoutesByLane(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("api", "A1", "", echo("A1"))
	w.serve("api", "A2", "green", echo("A2"))
	w.serve("pay", "P1", "", echo("P1"))
	for _, c := range []struct{ host, body string }{
		{"api.lane.localhost", "A1 "},
		{"API.Lane.Localhost:7780", "A1 "},
		{"green--api.lane.localhost", "A2 green"},
		{"green--pay.lane.localhost", "P1 green"},
		{"gone--api.lane.localhost", "A1 gone"},
	} {
		if resp, body := w.get(w.edge, c.host, "/"); resp.StatusCode != http.StatusOK || body != c.body {
			t.Errorf("%s: got %d %q, want %q", c.host, resp.StatusCode, body, c.body)
		}
	}
	if n := <-w.used; n != "green" {
		t.Errorf("used %q, want green", n)
	}
}

func TestTrustedPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *httpgw.Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	w.lane("green")
	w.serve("api", "A1", "", echo("A1"))
	w.serve("api", "A2", "green", echo("A2"))
	resp, body := w.get(w.edge, "api.lane.localhost", "/", "v-traffic-lane: green", "x-laneway-explain: 1")
	if body != "A2 green" {
		t.Errorf("got %q, want the trusted color", body)
	}
	want := "service=api lane=green instance=A2 rule=trusted reason=lane-instance"
	if got := resp.Header.Values("X-Laneway-Route"); len(got) != 1 || got[0] != want {
		t.Errorf("route %q, want %q", got, want)
	}
}

func routeTo(name, host, path, service, prefix, newHost string) laneclient.Route {
	r := laneclient.Route{Meta: laneclient.Meta{Name: name}, Host: host, Path: path, Service: service}
	if prefix != "" || newHost != "" {
		r.Rewrite = &laneclient.Rewrite{Prefix: prefix, Host: newHost}
	}
	return r
}

// gather gives a metric's values by their labels.
func gather(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[strings.Join(labels, ",")] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// serveRaw registers an instance that treats each connection as it likes; the
// connection is closed when it returns.
func (w *world) serveRaw(service, name string, handle func(conn net.Conn, in *bufio.Reader)) {
	w.t.Helper()
	l := listen(w.t)
	var wg sync.WaitGroup
	var open sync.Map // of net.Conn
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			open.Store(conn, nil)
			wg.Go(func() {
				w.open.Add(1)
				defer w.open.Add(-1)
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
				handle(conn, bufio.NewReader(conn))
			})
		}
	})
	w.t.Cleanup(func() {
		_ = l.Close()
		open.Range(func(conn, _ any) bool { _ = conn.(net.Conn).Close(); return true })
		wg.Wait()
	})
	w.instance(service, name, "", lane.HTTP, l.Addr().String())
}
