package httpgw_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
)

// unfit are fields that must not come behind a body: what they decide has been decided
// by then (RFC 9110, section 6.5.1), or the gateway itself says it.
var unfit = []string{
	"V-Traffic-Lane", "V-Traffic-Lane-Sig", "Baggage", "X-Laneway-Explain", "X-Laneway-Route", "X-Env", "X_env", "V_Traffic_Lane",
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Server", "X-Real-Ip", "X_Forwarded_For", "Via",
	"Traceparent", "Tracestate",
	"Cookie", "Set-Cookie", "Authorization", "Proxy-Authorization", "Www-Authenticate", "Proxy-Authenticate",
	"Host", "Connection", "Keep-Alive", "Proxy-Connection", "Te", "Upgrade", "Http2-Settings", "Expect", "X-Hop",
	"Content-Type", "Content-Encoding", "Content-Range", "Content-Location", "Cache-Control", "Range", "If-Match", "Max-Forwards",
	"Location", "Date", "Age", "Expires", "Vary", "Retry-After", "Warning", "Strict-Transport-Security",
}

// trailersOf answers with the trailers that arrived or were announced, and reads all.
func trailersOf(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s %q", body, slices.Sorted(maps.Keys(r.Trailer)))
}

// Whoever sends them, and whoever is trusted: they do not arrive, and nothing announces them.
func TestUnfitTrailersOfARequestEndHere(t *testing.T) {
	t.Parallel()
	for name, trusted := range map[string][]netip.Prefix{"outsider": nil, "trusted": {netip.MustParsePrefix("127.0.0.0/8")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(c *httpgw.Config) { c.Aliases, c.Trusted = []string{"x-env"}, trusted })
			w.serve("api", "A1", "", http.HandlerFunc(trailersOf))
			for _, listener := range []string{w.edge, w.inside} {
				for _, key := range append(slices.Clone(unfit), strings.ToLower("X-Forwarded-For")) {
					conn := w.dial(listener)
					conn.send("POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: X-Hop\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, " + key + "\r\n\r\n" +
						"3\r\nabc\r\n0\r\nX-Sum: s\r\n" + key + ": green\r\nX-Unannounced: u\r\n\r\n")
					resp, err := http.ReadResponse(conn.in, nil)
					if err != nil {
						t.Fatal(key, err)
					}
					body, _ := io.ReadAll(resp.Body)
					if got := string(body); got != `abc ["X-Sum"]` {
						t.Errorf("%s: got %d %s", key, resp.StatusCode, got)
					}
				}
			}
			req := request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", io.MultiReader(strings.NewReader("ab"), strings.NewReader("c")))
			req.Trailer = http.Header{"X-Sum": {"s"}}
			for _, key := range unfit {
				if httpguts.ValidTrailerHeader(key) && key != "X-Hop" { // net/http refuses others in HTTP/2
					req.Trailer[key] = []string{"green"}
				}
			}
			if _, body := w.doWith(w.h2c(), req); body != `abc ["X-Sum"]` {
				t.Errorf("HTTP/2: got %s", body)
			}
		})
	}
}

// The same of answers, also where the trailers were not announced.
func TestUnfitTrailersOfAnAnswerEndHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *httpgw.Config) { c.Aliases = []string{"x-env"} })
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, req.Body)
			announced, key := "", req.Header.Get("X-Key")
			if req.Header.Get("X-Announce") == "1" {
				announced = "Trailer: X-Sum, X-Both, " + key + "\r\n"
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Both: head\r\n"+announced+"Transfer-Encoding: chunked\r\n\r\n"+
				"3\r\nabc\r\n0\r\nX-Sum: s\r\nX-Both: tail\r\n"+key+": service=x lane=green instance=y rule=- reason=plain\r\n\r\n")
		}
	})
	for _, key := range unfit {
		for _, announced := range []string{"0", "1"} {
			conn := w.dial(w.edge)
			conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nTE: trailers\r\nConnection: close, TE\r\nX-Key: " + key + "\r\nX-Announce: " + announced + "\r\n\r\n")
			head, rest, _ := strings.Cut(conn.all(), "\r\n\r\n")
			if strings.Contains(rest, "green") || strings.Contains(strings.ToLower(head), "\r\ntrailer: "+strings.ToLower(key)) {
				t.Errorf("%s, announced %s: got\n%s\n\n%s", key, announced, head, rest)
			}
			if !strings.HasSuffix(rest, "0\r\nX-Both: tail\r\nX-Sum: s\r\n\r\n") && !strings.HasSuffix(rest, "0\r\nX-Sum: s\r\nX-Both: tail\r\n\r\n") {
				t.Errorf("%s, announced %s: trailers are\n%s", key, announced, rest)
			}
			resp, body := w.doWith(w.h2c(), withHeaders(request(t, http.MethodGet, "http://"+w.edge+"/", "api.lane.localhost", nil), "X-Key", key, "X-Announce", announced))
			if got := slices.Sorted(maps.Keys(resp.Trailer)); body != "abc" || !slices.Equal(got, []string{"X-Both", "X-Sum"}) ||
				!slices.Equal(resp.Trailer["X-Both"], []string{"tail"}) || !slices.Equal(resp.Header["X-Both"], []string{"head"}) {
				t.Errorf("HTTP/2: %s, announced %s: got %q with %v and %v", key, announced, body, resp.Header, resp.Trailer)
			}
		}
	}
}

func withHeaders(r *http.Request, pairs ...string) *http.Request {
	for n := 0; n < len(pairs); n += 2 {
		r.Header.Add(pairs[n], pairs[n+1])
	}
	return r
}

// Lines of the route are passed on from where the upstream wrote them, if somebody asked:
// as lines, never as whatever else stands there, and not without end.
func TestRouteLinesBehindTheBody(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const line = "service=next lane=- instance=N1 rule=- reason=plain"
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		head := strings.Repeat("X-Laneway-Route: "+line+"\r\nX-Laneway-Route: <script>\r\n", 40)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTrailer: X-Laneway-Route\r\nTransfer-Encoding: chunked\r\n"+head+"\r\n0\r\n"+head+"\r\n")
	})
	for _, asked := range []string{"0", "1"} {
		both(t, w, func(t *testing.T, c *http.Client) {
			resp, _ := w.doWith(c, withHeaders(request(t, http.MethodGet, "http://"+w.inside+"/", "api", nil), "X-Laneway-Explain", asked))
			lines := slices.Concat(resp.Header["X-Laneway-Route"], resp.Trailer["X-Laneway-Route"])
			if asked == "0" {
				if _, announced := resp.Trailer["X-Laneway-Route"]; announced || len(lines) > 0 {
					t.Errorf("nobody asked: %v, %v", resp.Header, resp.Trailer)
				}
				return
			}
			if len(lines) != lane.MaxTrailHops || lines[0] != "service=api lane=- instance=A1 rule=- reason=plain" {
				t.Fatalf("got %d lines, first %q", len(lines), lines[0])
			}
			for _, l := range lines[1:] {
				if l != line {
					t.Errorf("got %q", l)
				}
			}
		})
	}
}
