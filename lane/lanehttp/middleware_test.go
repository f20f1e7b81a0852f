package lanehttp_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

func TestMiddlewareColors(t *testing.T) {
	for name, tc := range map[string]struct {
		host   string
		header http.Header
		want   lane.Name
	}{
		"nothing":        {"api.example.com", http.Header{}, ""},
		"header":         {"api.example.com", http.Header{"V-Traffic-Lane": {"green"}}, "green"},
		"baggage":        {"api.example.com", http.Header{"Baggage": {"a=1,v-traffic-lane=green"}}, "green"},
		"alias":          {"api.example.com", http.Header{"X-Env": {"green"}}, "green"},
		"malformed":      {"api.example.com", http.Header{"V-Traffic-Lane": {"GREEN"}}, ""},
		"host tag first": {"blue--api.example.com", http.Header{"V-Traffic-Lane": {"green"}}, "blue"},
		"IDN host":       {"xn--mnchen-3ya.de", http.Header{"V-Traffic-Lane": {"green"}}, "green"},
	} {
		var got lane.Name
		h := lanehttp.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = lane.From(r.Context()) }),
			lanehttp.WithAliases("x-env"), lanehttp.WithHostTags())
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Host, r.Header = tc.host, tc.header
		h.ServeHTTP(httptest.NewRecorder(), r)
		if got != tc.want {
			t.Errorf("%s: color %q, want %q", name, got, tc.want)
		}
	}
	// Host tags are only for those who ask for them.
	var got lane.Name
	h := lanehttp.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = lane.From(r.Context()) }))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://blue--api.example.com/", http.NoBody)
	if h.ServeHTTP(httptest.NewRecorder(), r); got != lane.Baseline {
		t.Errorf("color %q from a host", got)
	}
}

// TestMiddlewareTrust: of those who are not trusted, neither context nor header tells of
// lanes afterwards, whatever the handler does with them.
func TestMiddlewareTrust(t *testing.T) {
	var seen *http.Request
	h := lanehttp.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		lane.TrailFrom(r.Context()).Add(lane.Hop{Service: "x"}, nil)
	}), lanehttp.WithTrust(func(r *http.Request) bool { return r.RemoteAddr == "trusted" }))
	for _, peer := range []string{"trusted", "stranger"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.RemoteAddr = peer
		r.Header = http.Header{"V-Traffic-Lane": {"green"}, "Baggage": {"a=1,v-traffic-lane=green"}, "X-Laneway-Explain": {"1"}, "Accept": {"*/*"}}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if peer == "trusted" {
			if lane.From(seen.Context()) != "green" || w.Header().Get(lane.RouteHeader) == "" {
				t.Errorf("trusted: color %q, route %q", lane.From(seen.Context()), w.Header().Get(lane.RouteHeader))
			}
			continue
		}
		if lane.From(seen.Context()) != "" || w.Header().Get(lane.RouteHeader) != "" || seen.Header.Get("Baggage") != "a=1" ||
			!slices.Equal(sortedKeys(seen.Header), []string{"Accept", "Baggage"}) {
			t.Errorf("stranger: color %q, route %q, header %v", lane.From(seen.Context()), w.Header().Get(lane.RouteHeader), seen.Header)
		}
		if len(r.Header) != 4 {
			t.Errorf("the server's request was changed: %v", r.Header)
		}
	}
}

// TestExplainNearestFirst walks a chain of real services: a calls b and then d, b calls c.
func TestExplainNearestFirst(t *testing.T) {
	dir := lanetest.NewDirectory(nil)
	var instances []*lane.Instance
	start := func(service, name string, of lane.Name, calls ...string) string {
		c := client(t, nil, dir)
		s := httptest.NewServer(lanehttp.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, callee := range calls {
				resp, err := get(r.Context(), t, c, "http://"+callee+"/")
				if err != nil {
					http.Error(w, err.Error(), http.StatusBadGateway)
					return
				}
				if resp.Header.Get(lane.RouteHeader) != "" {
					t.Error("a handler sees the lines of its call, and may send them twice")
				}
				resp.Body.Close()
			}
			fmt.Fprint(w, name)
		})))
		t.Cleanup(s.Close)
		instances = append(instances, at(service, name, of, s.URL))
		return s.URL
	}
	entry := start("a", "A1", "", "b", "d")
	start("b", "B2", "green", "c")
	start("c", "C1", "")
	start("d", "D2", "green")
	dir.Set(lanes, instances...)

	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, entry, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"V-Traffic-Lane": {"green"}, "X-Laneway-Explain": {"1"}}
	resp, err := entryClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	want := []string{
		"service=b lane=green instance=B2 rule=trusted reason=lane-instance",
		"service=c lane=- instance=C1 rule=trusted reason=baseline-fallback",
		"service=d lane=green instance=D2 rule=trusted reason=lane-instance",
	}
	if got := resp.Header.Values(lane.RouteHeader); !slices.Equal(got, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	r.Header.Del(lane.ExplainHeader)
	if resp, err = entryClient(t).Do(r); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Values(lane.RouteHeader); got != nil {
		t.Errorf("nobody asked, and got %q", got)
	}
}

// entryClient is a client that knows nothing of lanes.
func entryClient(t *testing.T) *http.Client {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// explained runs a handler for a request that asks, over a real connection.
func explained(t *testing.T, h http.HandlerFunc) *http.Response {
	t.Helper()
	s := httptest.NewServer(lanehttp.Middleware(h))
	t.Cleanup(s.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set(lane.ExplainHeader, "1")
	resp, err := entryClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp
}

func TestExplainGoesOutWithHeaders(t *testing.T) {
	hop := lane.Hop{Service: "b", Instance: "B1"}
	call := func(r *http.Request) { lane.TrailFrom(r.Context()).Add(hop, nil) }
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		want    int
	}{
		"nothing written": {func(_ http.ResponseWriter, r *http.Request) { call(r) }, 1},
		"no calls":        {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }, 0},
		"status":          {func(w http.ResponseWriter, r *http.Request) { call(r); w.WriteHeader(404) }, 1},
		"body":            {func(w http.ResponseWriter, r *http.Request) { call(r); fmt.Fprint(w, "x") }, 1},
		"flush":           {func(w http.ResponseWriter, r *http.Request) { call(r); w.(http.Flusher).Flush(); call(r) }, 1},
		"flush, controller": {func(w http.ResponseWriter, r *http.Request) {
			call(r)
			_ = http.NewResponseController(w).Flush()
			call(r)
		}, 1},
		"early hints": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusEarlyHints)
			call(r)
			w.WriteHeader(200)
			call(r) // too late: left out
		}, 1},
	} {
		if got := explained(t, tc.handler).Header.Values(lane.RouteHeader); len(got) != tc.want {
			t.Errorf("%s: %d lines, want %d", name, len(got), tc.want)
		}
	}
}

func TestExplainSwitchingProtocols(t *testing.T) {
	h := lanehttp.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lane.TrailFrom(r.Context()).Add(lane.Hop{Service: "b"}, nil)
		w.WriteHeader(http.StatusSwitchingProtocols)
		if w.Header().Get(lane.RouteHeader) == "" {
			t.Error("a switch of protocols goes out without the line")
		}
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	r.Header.Set(lane.ExplainHeader, "1")
	h.ServeHTTP(httptest.NewRecorder(), r)
}

func TestExplainWriterCanHijack(t *testing.T) {
	resp := explained(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(conn, "HTTP/1.1 204 No Content\r\nX-Taken: over\r\nConnection: close\r\n\r\n")
		conn.Close()
	})
	if resp.Header.Get("X-Taken") != "over" {
		t.Errorf("header %v", resp.Header)
	}
}

// TestExplainThroughProxy: a handler that passes requests and answers on, headers and all,
// does not double the lines.
func TestExplainThroughProxy(t *testing.T) {
	dir := lanetest.NewDirectory(nil)
	end := lanetest.NewService(t, "end", "E1", "")
	middle := httptest.NewServer(lanehttp.Middleware(proxyTo(t, dir, "end")))
	t.Cleanup(middle.Close)
	dir.Set(lanes, end.Routing(), at("middle", "M1", "", middle.URL))
	front := httptest.NewServer(lanehttp.Middleware(proxyTo(t, dir, "middle")))
	t.Cleanup(front.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+"/p", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"X-Laneway-Explain": {"1"}, "V-Traffic-Lane": {"green"}}
	resp, err := entryClient(t).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"service=middle lane=- instance=M1 rule=trusted reason=baseline-fallback",
		"service=end lane=- instance=E1 rule=trusted reason=baseline-fallback",
	}
	if got := resp.Header.Values(lane.RouteHeader); !slices.Equal(got, want) {
		t.Errorf("lines\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := lanetest.ReadReport(t, resp); got.Color != "green" || got.Path != "/p" {
		t.Errorf("%s in color %q", got.Path, got.Color)
	}
}

func proxyTo(t *testing.T, dir lane.Directory, service string) http.Handler {
	t.Helper()
	return &httputil.ReverseProxy{
		Transport: client(t, nil, dir).Transport,
		Rewrite:   func(p *httputil.ProxyRequest) { p.SetURL(&url.URL{Scheme: "http", Host: service}) },
	}
}

// TestWebSocketThroughProxy: a handshake with an explanation, through middleware and
// transport, both of which must not stand in its way.
func TestWebSocketThroughProxy(t *testing.T) {
	service := httptest.NewServer(lanehttp.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		line := string(lane.From(r.Context())) + "\n"
		fmt.Fprint(rw, line)
		rw.Flush()
		if _, err := rw.ReadString('\n'); err != nil {
			t.Error(err)
		}
	})))
	t.Cleanup(service.Close)
	dir := lanetest.NewDirectory(lanes, at("order", "O2", "green", service.URL))
	front := httptest.NewServer(lanehttp.Middleware(proxyTo(t, dir, "order")))
	t.Cleanup(front.Close)
	conn, err := net.Dial("tcp", strings.TrimPrefix(front.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\nV-Traffic-Lane: green\r\nX-Laneway-Explain: 1\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := resp.Header.Get(lane.RouteHeader); resp.StatusCode != 101 || !strings.Contains(got, "instance=O2") {
		t.Errorf("status %s, route %q", resp.Status, got)
	}
	color, err := in.ReadString('\n')
	if err != nil || color != "green\n" {
		t.Errorf("color %q, %v", color, err)
	}
	fmt.Fprint(conn, "bye\n")
}
