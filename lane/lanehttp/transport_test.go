package lanehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// world is a registry with real servers behind it: services order and billing in the
// baseline, order also in lane green, billing in strict-load.
type world struct {
	*lanetest.Directory
	client *http.Client
}

var lanes = []lane.Lane{{Name: "green"}, {Name: "child", Parent: "green"}, {Name: "strict-load"}}

func newWorld(t *testing.T, options ...lanehttp.Option) *world {
	t.Helper()
	var instances []*lane.Instance
	for _, s := range []*lanetest.Service{
		lanetest.NewService(t, "order", "O1", ""),
		lanetest.NewService(t, "order", "O2", "green"),
		lanetest.NewService(t, "billing", "B1", ""),
		lanetest.NewService(t, "billing", "B9", "strict-load"),
	} {
		instances = append(instances, s.Routing())
	}
	w := &world{Directory: lanetest.NewDirectory(lanes, instances...)}
	w.client = client(t, nil, w.Directory, options...)
	return w
}

func client(t testing.TB, base http.RoundTripper, dir lane.Directory, options ...lanehttp.Option) *http.Client {
	t.Helper()
	c := &http.Client{Transport: lanehttp.Transport(base, dir, options...), Timeout: 10 * time.Second}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func get(ctx context.Context, t testing.TB, c *http.Client, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return c.Do(r)
}

func (w *world) report(ctx context.Context, t *testing.T, url string) lanetest.Report {
	t.Helper()
	resp, err := get(ctx, t, w.client, url)
	if err != nil {
		t.Fatal(err)
	}
	return lanetest.ReadReport(t, resp)
}

func TestTransportRoutesByColor(t *testing.T) {
	w := newWorld(t)
	for _, tc := range []struct {
		ctx      context.Context
		process  lane.Name
		service  string
		instance string
		color    string
	}{
		{t.Context(), "", "order", "O1", ""},
		{lane.With(t.Context(), "green"), "", "order", "O2", "green"},
		{lane.With(t.Context(), "green"), "", "billing", "B1", "green"},    // the color goes on
		{lane.With(t.Context(), "child"), "", "order", "O2", "child"},      // of the parent
		{lane.With(t.Context(), "typo"), "", "order", "O1", "typo"},        // unknown: as plain, passed on
		{t.Context(), "green", "order", "O2", "green"},                     // of the process
		{lane.Plain(t.Context()), "green", "order", "O1", ""},              // plain on purpose
		{lane.With(t.Context(), "child"), "other", "order", "O2", "child"}, // the context's before the process's
		{lane.With(t.Context(), "strict-load"), "", "billing", "B9", "strict-load"},
	} {
		w.SetProcess(tc.process)
		got := w.report(tc.ctx, t, "http://"+tc.service+"/x?y=z")
		if got.Instance != tc.instance || got.Color != tc.color || got.Path != "/x" {
			t.Errorf("color %q in a process of %q: %s got %q for %s, want %s with %q",
				lane.From(tc.ctx), tc.process, got.Instance, got.Color, got.Path, tc.instance, tc.color)
		}
		if baggage := fmt.Sprint(got.Headers["Baggage"]); tc.color != "" && baggage != "[v-traffic-lane="+tc.color+"]" || tc.color == "" && baggage != "[]" {
			t.Errorf("color %q: baggage %s", tc.color, baggage)
		}
	}
	if w.Uses("green") != 3 || w.Needed("order") == 0 {
		t.Errorf("color green was noted %d times, service order asked for %d times", w.Uses("green"), w.Needed("order"))
	}
}

func TestTransportStrictNeverFallsBack(t *testing.T) {
	w := newWorld(t)
	base := &recorder{} // answers whatever host it is asked for
	w.client = client(t, base, w.Directory)
	defer func() {
		if len(base.got) > 0 {
			t.Errorf("%d requests went out", len(base.got))
		}
		// What certainly is no service is reached from a strict lane, too.
		resp, err := get(lane.With(t.Context(), "strict-load"), t, w.client, "http://localhost/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}()
	for _, service := range []string{"order", "nobody"} {
		for _, color := range []lane.Name{"strict-load", "strict-unknown"} {
			resp, err := get(lane.With(t.Context(), color), t, w.client, "http://"+service+"/")
			var none *lane.NoInstanceError
			if !errors.As(err, &none) || none.Reason != lane.ReasonStrictNo {
				t.Fatalf("%s in %s: %v, %v", service, color, resp, err)
			}
			if want := fmt.Sprintf("no instance of %s in strict lane %s", service, color); !strings.Contains(err.Error(), want) {
				t.Errorf("error %q, want it to say %q", err, want)
			}
		}
	}
}

func TestTransportNames(t *testing.T) {
	w := newWorld(t, lanehttp.WithDomain(".Lane.Example."))
	for _, host := range []string{"order", "order:9999", "ORDER", "order.lane.example", "order.lane.example:7780", "Order.Lane.Example"} {
		got := w.report(t.Context(), t, "http://"+host+"/")
		if got.Service != "order" || got.Host != host {
			t.Errorf("host %s was %s, which saw the host %s", host, got.Service, got.Host)
		}
	}
}

// recorder is a base transport that answers by itself and keeps what it was given.
type recorder struct {
	mu     sync.Mutex
	got    []*http.Request
	answer func(*http.Request) (*http.Response, error) // nil: 200
}

func (b *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	b.mu.Lock()
	b.got = append(b.got, r)
	b.mu.Unlock()
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	if b.answer != nil {
		return b.answer(r)
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

func (b *recorder) last(t *testing.T) *http.Request {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.got) == 0 {
		t.Fatal("no request came")
	}
	return b.got[len(b.got)-1]
}

func noSuchHost(host string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}}
}

// TestTransportThirdParties: what is no service gets the request as it is, and learns
// nothing of lanes, however it may be called.
func TestTransportThirdParties(t *testing.T) {
	base := &recorder{}
	dir := lanetest.NewDirectory(lanes, &lane.Instance{Service: "order", Name: "O1", Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}}})
	dir.SetProcess("green")
	c := client(t, base, dir, lanehttp.WithDomain("lane.example"), lanehttp.WithAliases("X-Env"))
	ctx := lane.With(t.Context(), "green")
	for _, url := range []string{
		"http://example.com/", "https://example.com/", "https://order/", "https://order.lane.example/", "http://localhost:80/", "http://127.0.0.1/", "http://[::1]:80/",
		"http://a.b.lane.example/", "http://lane.example/", "http://order.other.example/", "http://order./", "http://green--order.lane.example/",
		"http://or_der/", "http://redis:6379/", "http://" + strings.Repeat("a", 41) + "/",
	} {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{
			"Accept": {"*/*"}, "Baggage": {"a=1;p , v-traffic-lane=green,b=2"}, "V-Traffic-Lane": {"green"},
			"v-traffic-lane": {"green"}, "V-TRAFFIC-LANE-SIG": {"x"}, "x-env": {"green"}, "baggage": {"v-traffic-lane=green"},
			"X-Laneway-Explain": {"1"},
		}
		before := r.Header.Clone()
		resp, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		resp.Body.Close()
		got := base.last(t)
		if got.URL.String() != url {
			t.Errorf("%s went to %s", url, got.URL)
		}
		if want := (http.Header{"Accept": {"*/*"}, "Baggage": {"a=1;p ,b=2"}}); !reflect.DeepEqual(got.Header, want) {
			t.Errorf("%s got the header %v, want %v", url, got.Header, want)
		}
		if !reflect.DeepEqual(r.Header, before) {
			t.Errorf("%s: the caller's header is changed to %v", url, r.Header)
		}
	}
	if dir.Needed("redis") != 1 || dir.Needed("example") != 0 {
		t.Errorf("asked %d times for redis, %d for example", dir.Needed("redis"), dir.Needed("example"))
	}

	// Without anything of lanes in it, not even a copy is made.
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://example.com/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Baggage"] = []string{"a=1,,b=2"}
	if _, err := c.Transport.RoundTrip(r); err != nil {
		t.Fatal(err)
	}
	if base.last(t) != r {
		t.Error("a request without a color was copied")
	}
}

func TestTransportRedirectToThirdParty(t *testing.T) {
	var header http.Header
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { header = r.Header }))
	defer other.Close()
	service := httptest.NewServer(http.RedirectHandler(other.URL+"/there", http.StatusFound))
	defer service.Close()
	dir := lanetest.NewDirectory(lanes, at("order", "O1", "", service.URL))
	c := client(t, nil, dir)
	resp, err := get(lane.With(t.Context(), "green"), t, c, "http://order/here")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	for key := range header {
		if strings.Contains(strings.ToLower(key), "lane") || key == "Baggage" {
			t.Errorf("the third party got %s: %s", key, header[key])
		}
	}
	if got := resp.Request.URL.Path; got != "/there" {
		t.Errorf("ended at %s", got)
	}
}

// TestTransportRelativeRedirect: an answer is of the host that was asked, not of the
// instance's address.
func TestTransportRelativeRedirect(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/there" {
			http.Redirect(w, r, "/there", http.StatusFound)
			return
		}
		fmt.Fprint(w, r.Host)
	}))
	defer service.Close()
	c := client(t, nil, lanetest.NewDirectory(nil, at("order", "O1", "", service.URL)))
	resp, err := get(t.Context(), t, c, "http://order/here")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "order" || resp.Request.URL.String() != "http://order/there" {
		t.Errorf("host %q at %s, %v", body, resp.Request.URL, err)
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	first, err := get(t.Context(), t, c, "http://order/here")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Body.Close()
	if location, err := first.Location(); err != nil || location.String() != "http://order/there" {
		t.Errorf("location %s, %v", location, err)
	}
}

// at is an instance at the URL of a server.
func at(service, name string, of lane.Name, url string) *lane.Instance {
	return &lane.Instance{
		Service: service, Name: name, Lane: of,
		Endpoints: []lane.Endpoint{{Protocol: lane.HTTP, Address: strings.TrimPrefix(url, "http://")}},
	}
}

func TestTransportHostHeader(t *testing.T) {
	w := newWorld(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://order/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "shop.example.com"
	resp, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := lanetest.ReadReport(t, resp).Host; got != "shop.example.com" {
		t.Errorf("the service saw host %s", got)
	}
}

// TestTransportKeepsRequest: a RoundTripper must not change the request.
func TestTransportKeepsRequest(t *testing.T) {
	w := newWorld(t)
	r, err := http.NewRequestWithContext(lane.With(t.Context(), "green"), http.MethodPost, "http://order/p?q=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Baggage": {"a=1"}, "v-traffic-lane": {"blue"}, "X-Env": {"red"}}
	r.Trailer = http.Header{"X-Sum": nil}
	r.ContentLength = -1
	before := r.Clone(r.Context())
	resp, err := w.client.Transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if got := lanetest.ReadReport(t, resp); got.Color != "green" || got.Body != "body" {
		t.Errorf("the service got %q of color %q", got.Body, got.Color)
	}
	if resp.Request != r {
		t.Error("the answer is not that of the request")
	}
	if !reflect.DeepEqual(r.Header, before.Header) || r.URL.String() != before.URL.String() || r.Host != before.Host ||
		!reflect.DeepEqual(r.Trailer, before.Trailer) || r.ContentLength != before.ContentLength {
		t.Errorf("the request is changed to %v", r)
	}
}

// TestTransportReplacesHeaders: the context says what the color is, headers that somebody
// copied or wrote into the table do not.
func TestTransportReplacesHeaders(t *testing.T) {
	base := &recorder{}
	c := client(t, base, lanetest.NewDirectory(lanes, at("order", "O1", "", "h:1")), lanehttp.WithAliases("x-env"))
	for color, want := range map[lane.Name]http.Header{
		"":      {"Baggage": {"a=1"}},
		"green": {"Baggage": {"a=1,v-traffic-lane=green"}, "V-Traffic-Lane": {"green"}},
	} {
		r, err := http.NewRequestWithContext(lane.With(t.Context(), color), http.MethodGet, "http://order/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"baggage": {"a=1,v-traffic-lane=blue"}, "v-traffic-lane": {"blue"}, "v-Traffic-lane-Sig": {"s"}, "X-ENV": {"blue"}}
		if _, err := c.Transport.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		if got := base.last(t).Header; !reflect.DeepEqual(got, want) {
			t.Errorf("color %q: sent %v, want %v", color, got, want)
		}
	}
	r := &http.Request{Method: http.MethodGet, URL: base.last(t).URL}
	r.URL.Host = "order" // a request without a header table
	if _, err := c.Transport.RoundTrip(r); err != nil {
		t.Error(err)
	}
}

func TestTransportTrailer(t *testing.T) {
	var sum string
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sum = r.Trailer.Get("X-Sum")
	}))
	defer service.Close()
	c := client(t, nil, lanetest.NewDirectory(nil, at("order", "O1", "", service.URL)))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://order/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Trailer = http.Header{"X-Sum": nil}
	r.Body = io.NopCloser(io.MultiReader(strings.NewReader("body"), readerFunc(func([]byte) (int, error) {
		r.Trailer.Set("X-Sum", "42") // known when the body has been read
		return 0, io.EOF
	})))
	r.ContentLength = -1
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if sum != "42" {
		t.Errorf("the trailer is %q", sum)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestTransportNobody(t *testing.T) {
	base := &recorder{answer: func(r *http.Request) (*http.Response, error) { return nil, noSuchHost(r.URL.Host) }}
	dir := lanetest.NewDirectory(nil)
	dir.SetInput(lane.Input{Services: []string{"idle"}})
	c := client(t, base, dir, lanehttp.WithDomain("lane.example"))
	for url, tc := range map[string]struct {
		says    string
		lookups int
	}{
		"http://idle/":                 {"call idle: no instance of idle in the baseline", 0},
		"http://nobody.lane.example/x": {"call nobody: no instance of nobody in the baseline", 0},
		"http://nobody/":               {"nobody is neither a service that is registered nor a host: no instance of nobody in the baseline; dial tcp: lookup nobody: no such host", 1},
	} {
		base.got = nil
		body := &closing{Reader: strings.NewReader("a")}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Do(r)
		var none *lane.NoInstanceError
		if !errors.As(err, &none) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", url, err, tc.says)
		}
		if len(base.got) != tc.lookups || !body.closed.Load() {
			t.Errorf("%s: %d look-ups, body closed: %v", url, len(base.got), body.closed.Load())
		}
	}
	// A failure of its own of such a host is not dressed up.
	base.answer = func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
	_, err := get(t.Context(), t, c, "http://redis/")
	var none *lane.NoInstanceError
	if !errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &none) {
		t.Errorf("redis: %v", err)
	}
}

type closing struct {
	io.Reader
	closed atomic.Bool
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return nil
}

// unreachable is a directory whose control plane does not answer.
type unreachable struct{ *lanetest.Directory }

func (unreachable) Need(ctx context.Context, _ string) error {
	<-ctx.Done()
	return fmt.Errorf("read the instances: %w", ctx.Err())
}

func TestTransportWithoutControlPlane(t *testing.T) {
	base := &recorder{}
	c := client(t, base, unreachable{lanetest.NewDirectory(nil)})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	body := &closing{Reader: strings.NewReader("a")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://order/", body)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Transport.RoundTrip(r)
	if !errors.Is(err, context.Canceled) || !body.closed.Load() || len(base.got) != 0 {
		t.Errorf("%v, body closed %v, %d requests", err, body.closed.Load(), len(base.got))
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := get(ctx, t, c, "http://order/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the deadline", err)
	}
}

func TestTransportExplains(t *testing.T) {
	w := newWorld(t)
	w.SetProcess("green")
	for _, tc := range []struct {
		ctx  context.Context
		want string
	}{
		{lane.With(t.Context(), "child"), "service=order lane=green instance=O2 rule=trusted reason=parent"},
		{t.Context(), "service=order lane=green instance=O2 rule=process reason=lane-instance"},
		{lane.Plain(t.Context()), "service=order lane=- instance=O1 rule=- reason=plain"},
	} {
		r, err := http.NewRequestWithContext(tc.ctx, http.MethodGet, "http://order/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(lane.ExplainHeader, "1")
		resp, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Values(lane.RouteHeader); len(got) != 1 || got[0] != tc.want {
			t.Errorf("lines %q, want %q", got, tc.want)
		}
	}
	resp, err := get(t.Context(), t, w.client, "http://order/")
	if err != nil {
		t.Fatal(err)
	}
	if got := lanetest.ReadReport(t, resp).Headers["X-Laneway-Explain"]; got != nil || resp.Header.Get(lane.RouteHeader) != "" {
		t.Errorf("nobody asked, and the service was asked %q and answered %q", got, resp.Header.Get(lane.RouteHeader))
	}
}

// TestTransportLinesOfAPeer has an instance send route lines of its own: nothing but hops
// comes through, a bounded number of them, and only to who asked.
func TestTransportLinesOfAPeer(t *testing.T) {
	const hop = "service=cart lane=- instance=c1 rule=- reason=plain"
	peer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()[http.CanonicalHeaderKey(lane.RouteHeader)] = append([]string{"<b>not a hop</b>", hop + " extra=1"}, slices.Repeat([]string{hop}, 100)...)
	}))
	defer peer.Close()
	dir := lanetest.NewDirectory(lanes, at("order", "o1", "", strings.TrimPrefix(peer.URL, "http://")))
	c := client(t, nil, dir)
	ask := func(ctx context.Context, explain bool) []string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://order/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if explain {
			r.Header.Set(lane.ExplainHeader, "1")
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.Header.Values(lane.RouteHeader)
	}
	if got := ask(t.Context(), true); len(got) != lane.MaxTrailHops || got[1] != hop {
		t.Errorf("%d lines, the second %q", len(got), got[min(1, len(got)):min(2, len(got))])
	}
	if got := ask(t.Context(), false); got != nil {
		t.Errorf("nobody asked, and got %d lines", len(got))
	}
	ctx, trail := lane.WithTrail(t.Context())
	if got := ask(ctx, false); got != nil || len(trail.Lines()) != lane.MaxTrailHops || trail.Lines()[1] != hop {
		t.Errorf("%d lines beside %d of the trail", len(got), len(trail.Lines()))
	}
}

func TestTransportObserver(t *testing.T) {
	var seen []string
	type key struct{}
	observe := func(ctx context.Context, c lane.Choice, target *lane.Target) {
		seen = append(seen, fmt.Sprint(ctx.Value(key{}), " ", c.Color, " ", c.Lane, " ", c.Reason, " ", target.Name))
	}
	live := lanetest.NewService(t, "order", "live", "green")
	dir := lanetest.NewDirectory(lanes, at("order", "dead", "green", deadAddress(t)), live.Routing())
	c := client(t, nil, dir, lanehttp.WithObserver(observe))
	for range 4 { // one of them meets the dead one first
		resp, err := get(lane.With(context.WithValue(t.Context(), key{}, "mine"), "child"), t, c, "http://order/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	slices.Sort(seen)
	if len(seen) != 5 || seen[0] != "mine child green parent dead" || seen[4] != "mine child green parent live" {
		t.Errorf("seen %q", seen)
	}
}

func TestTransportAtOnce(t *testing.T) {
	w := newWorld(t)
	w.client.Timeout = time.Minute
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			ctx, want := t.Context(), "O1"
			if n%2 == 0 {
				ctx, want = lane.With(ctx, "green"), "O2"
			}
			for range 50 {
				resp, err := get(ctx, t, w.client, "http://order/")
				if err != nil {
					t.Error(err)
					return
				}
				if got := lanetest.ReadReport(t, resp).Instance; got != want {
					t.Errorf("%s got the request, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
}

// TestTransportWebSocket: what a handshake upgrades goes both ways through the transport.
func TestTransportWebSocket(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		color, _ := lane.Extract(r.Header)
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\nX-Color: %s\r\n\r\n", color)
		rw.Flush()
		line, err := rw.ReadString('\n')
		if err != nil {
			return
		}
		fmt.Fprint(rw, "echo "+line)
		rw.Flush()
	}))
	defer service.Close()
	for _, policy := range []lane.Policy{lane.RoundRobin, lane.LeastRequests} {
		c := client(t, nil, lanetest.NewDirectory(lanes, at("order", "O1", "", service.URL)), lanehttp.WithPolicy(policy))
		r, err := http.NewRequestWithContext(lane.With(t.Context(), "green"), http.MethodGet, "http://order/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Connection": {"Upgrade"}, "Upgrade": {"echo"}}
		c.Timeout = 0 // with one, http.Client hides that the body can be written to
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		stream, ok := resp.Body.(io.ReadWriteCloser)
		if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
			t.Fatalf("status %s, a stream: %v", resp.Status, ok)
		}
		fmt.Fprint(stream, "hello\n")
		answer, err := io.ReadAll(stream)
		stream.Close()
		if err != nil || string(answer) != "echo hello\n" || resp.Header.Get("X-Color") != "green" {
			t.Errorf("answer %q in color %q, %v", answer, resp.Header.Get("X-Color"), err)
		}
	}
}

func TestTransportClosesIdleConnections(t *testing.T) {
	w := newWorld(t)
	w.report(t.Context(), t, "http://order/")
	w.client.CloseIdleConnections() // CheckMain sees connections that are left
	base := &idler{}
	client(t, base, w.Directory).CloseIdleConnections()
	if base.closed != 1 && base.closed != 2 {
		t.Errorf("the base was told %d times", base.closed)
	}
}

type idler struct {
	recorder
	closed int
}

func (i *idler) CloseIdleConnections() { i.closed++ }

func TestHosts(t *testing.T) {
	for host, want := range map[string]string{
		"api.example.com":      "green--api.example.com",
		"api.example.com:8080": "green--api.example.com:8080",
		"api":                  "green--api",
		"api:80":               "green--api:80",
		"api.c1.example.com":   "green--api.c1.example.com",
	} {
		tagged := lanehttp.TagHost(host, "green")
		if tagged != want {
			t.Errorf("%s in green is %s, want %s", host, tagged, want)
		}
		if color, back := lanehttp.SplitHost(tagged); color != "green" || back != host {
			t.Errorf("%s gives %q and %s", tagged, color, back)
		}
		if got := lanehttp.TagHost(host, lane.Baseline); got != host {
			t.Errorf("%s in the baseline is %s", host, got)
		}
	}
	for _, host := range []string{"", "api.example.com", "xn--mnchen-3ya.de", "--x", "127.0.0.1:80", "[::1]:80"} {
		if color, back := lanehttp.SplitHost(host); color != lane.Baseline || back != host {
			t.Errorf("%q gives %q and %q", host, color, back)
		}
	}
	if color, back := lanehttp.SplitHost("Green--API.example.com"); color != "green" || back != "api.example.com" {
		t.Errorf("upper case gives %q and %q", color, back)
	}
}

// sortedKeys is for messages.
func sortedKeys(h http.Header) []string { return slices.Sorted(maps.Keys(h)) }
