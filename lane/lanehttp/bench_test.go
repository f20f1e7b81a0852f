package lanehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// instant answers without a network, so that what is left is the overhead.
type instant struct{ resp *http.Response }

func (i instant) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := *i.resp
	resp.Request = r
	return &resp, nil
}

// BenchmarkTransport is the overhead of a call: without a lane's transport, with one and
// plain traffic, and with a color, among 1 and 10,000 lanes.
func BenchmarkTransport(b *testing.B) {
	base := instant{&http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody}}
	run := func(b *testing.B, rt http.RoundTripper, color lane.Name) {
		b.Helper()
		b.ReportAllocs()
		r, err := http.NewRequestWithContext(lane.With(b.Context(), color), http.MethodGet, "http://order/items", http.NoBody)
		if err != nil {
			b.Fatal(err)
		}
		r.Header = http.Header{"Accept": {"*/*"}, "User-Agent": {"bench"}, "Traceparent": {"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}}
		for b.Loop() {
			if _, err := rt.RoundTrip(r); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("base", func(b *testing.B) { run(b, base, "") })
	for _, n := range []int{1, 10_000} {
		var all []lane.Lane
		instances := []*lane.Instance{at("order", "O1", "", "h:1"), at("order", "O2", "", "h:2")}
		for i := range n {
			name := lane.Name(fmt.Sprintf("lane-%d", i))
			all = append(all, lane.Lane{Name: name})
			instances = append(instances, at("order", "in-"+string(name), name, "h:3"))
		}
		rt := lanehttp.Transport(base, quiet{lanetest.NewDirectory(all, instances...)})
		b.Run(fmt.Sprintf("plain/lanes=%d", n), func(b *testing.B) { run(b, rt, "") })
		b.Run(fmt.Sprintf("color/lanes=%d", n), func(b *testing.B) { run(b, rt, "lane-0") })
	}
}

// quiet leaves out the directory's book-keeping, which takes locks that a real one does
// not.
type quiet struct{ *lanetest.Directory }

func (quiet) Used(lane.Name) {}

// BenchmarkLoopback is a whole exchange over loopback, which the overhead is to be
// compared with.
func BenchmarkLoopback(b *testing.B) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "x") }))
	defer service.Close()
	dir := lanetest.NewDirectory([]lane.Lane{{Name: "green"}}, at("order", "O1", "green", service.URL))
	for name, tc := range map[string]struct {
		c   *http.Client
		url string
	}{
		"net-http": {&http.Client{Transport: &http.Transport{}}, service.URL},
		"lanehttp": {client(b, nil, dir), "http://order/"},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := lane.With(b.Context(), "green")
			for b.Loop() {
				resp, err := get(ctx, b, tc.c, tc.url)
				if err != nil {
					b.Fatal(err)
				}
				resp.Body.Close()
			}
		})
		tc.c.CloseIdleConnections()
	}
}

// BenchmarkMiddleware is the overhead of a request that comes in.
func BenchmarkMiddleware(b *testing.B) {
	inner := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for name, header := range map[string]http.Header{
		"plain": {"Accept": {"*/*"}, "Baggage": {"a=1,b=2"}},
		"color": {"Accept": {"*/*"}, "V-Traffic-Lane": {"green"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			h := lanehttp.Middleware(inner)
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", http.NoBody)
			r.Header = header
			w := httptest.NewRecorder()
			for b.Loop() {
				h.ServeHTTP(w, r)
			}
		})
	}
}
