package httpgw_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// headersOf answers with all headers that arrived.
func headersOf(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Add("X-Laneway-Route", "service=next lane=- instance=N1 rule=- reason=plain")
	for k, v := range r.Trailer {
		r.Header["Trailer-"+k] = v
	}
	_ = json.NewEncoder(w).Encode(r.Header)
}

func headers(t *testing.T, body string) http.Header {
	t.Helper()
	h := http.Header{}
	if err := json.Unmarshal([]byte(body), &h); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return h
}

// Whatever an outsider writes a color into, it does not arrive, and nothing of it
// is left for the next hop to find.
func TestColorsFromOutsideAreStripped(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(c *httpgw.Config) { c.Aliases, c.Metrics = []string{"x-env"}, registry })
	w.lane("green")
	w.serve("api", "A1", "", http.HandlerFunc(headersOf))
	w.serve("api", "A2", "green", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	long := strings.Repeat("x", 9000)
	for n, lines := range []string{
		"v-traffic-lane: green",
		"V-TRAFFIC-LANE: green",
		"v-TrAfFiC-lAnE: green\r\nV-Traffic-Lane: green",
		"V-Traffic-Lane: Bad Name\r\nv-traffic-lane: green",
		"v-traffic-lane:\tgreen\t",
		"v-traffic-lane: strict-load",
		"x-env: green\r\nX-ENV: green",
		"baggage: v-traffic-lane=green",
		"Baggage: a=1, v-traffic-lane=green;p=1 ,b=2",
		"BAGGAGE: a=1\r\nbaggage: v-traffic-lane=green\r\nBaggage: b=2",
		"baggage: v-traffic-lane = green,v-traffic-lane=green",
		"baggage: a=" + long + ",v-traffic-lane=green",
		"baggage: v-traffic-lane=%67reen",
		"v-traffic-lane: green\r\nv-traffic-lane-sig: k1.9999999999.AAAA",
		"v-traffic-lane: green\r\nx-laneway-explain: 1\r\nx-laneway-route: service=x lane=green instance=y rule=- reason=plain",
		"connection: v-traffic-lane\r\nv-traffic-lane: green",
		"connection: close, x-a\r\nx-a: 1\r\nv-traffic-lane: green",
	} {
		conn := w.dial(w.edge)
		conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\n" + lines + "\r\n\r\n")
		resp, err := http.ReadResponse(conn.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%d: %q: got %d", n, clipped(lines), resp.StatusCode)
			continue
		}
		got := headers(t, string(body))
		for key, values := range got {
			if text := strings.Join(values, "\n"); strings.Contains(text, "green") || strings.Contains(strings.ToLower(key), "laneway") || strings.HasPrefix(key, "V-Traffic") || key == "X-Env" {
				t.Errorf("%d: %q: arrived as %s: %q", n, clipped(lines), key, clipped(text))
			}
		}
		if strings.Contains(lines, "a=1") {
			text := strings.Join(got["Baggage"], ",")
			if !strings.Contains(text, "a=1") || !strings.Contains(text, "b=2") {
				t.Errorf("%d: baggage is %q, want the other members kept", n, text)
			}
		}
		if len(resp.Header["X-Laneway-Route"]) > 0 {
			t.Errorf("%d: an outsider is told the route", n)
		}
	}
	counts := gather(t, registry, "laneway_colors_refused_total")
	if counts["why=untrusted"] != 17 || counts["why=malformed"] != 1 {
		t.Errorf("refused colors: %v", counts)
	}
}

func clipped(s string) string { return s[:min(len(s), 120)] }

// The same over HTTP/2, and in trailers.
func TestColorsFromOutsideAreStrippedInHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("api", "A1", "", http.HandlerFunc(headersOf))
	req := request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", io.MultiReader(strings.NewReader("x"), strings.NewReader("y")))
	req.Header["V-Traffic-Lane"] = []string{"green", "green"}
	req.Header["Baggage"] = []string{"v-traffic-lane=green", "a=1,v-traffic-lane=green"}
	req.Header["X-Laneway-Explain"] = []string{"1"}
	req.Trailer = http.Header{"V-Traffic-Lane": {"green"}, "Baggage": {"v-traffic-lane=green"}, "X-Sum": {"s"}}
	resp, body := w.doWith(w.h2c(), req)
	got := headers(t, body)
	if text := fmt.Sprint(got); strings.Contains(text, "green") || got.Get("Baggage") != "a=1" || got.Get("Trailer-X-Sum") != "s" || resp.Header.Get("X-Laneway-Route") != "" {
		t.Errorf("arrived: %v", got)
	}
}

func TestSignedColorPassesTheEdge(t *testing.T) {
	t.Parallel()
	keys, err := coloring.NewSignKeys(coloring.SignKey{ID: "k1", Secret: []byte("sixteen bytes..!")})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, func(c *httpgw.Config) { c.Signing = keys })
	w.lane("green", "blue")
	w.serve("api", "A1", "", http.HandlerFunc(headersOf))
	sig := keys.Sign("green", time.Now().Add(time.Minute))
	_, body := w.get(w.edge, "api.lane.localhost", "/", "v-traffic-lane: green", "v-traffic-lane-sig: "+sig)
	if got := headers(t, body); got.Get("V-Traffic-Lane") != "green" || got.Get("V-Traffic-Lane-Sig") != "" {
		t.Errorf("signed: %v", got)
	}
	_, body = w.get(w.edge, "api.lane.localhost", "/", "v-traffic-lane: blue", "v-traffic-lane-sig: "+sig)
	if got := headers(t, body); got.Get("V-Traffic-Lane") != "" {
		t.Errorf("signed for another: %v", got)
	}
}

// A rule's color replaces what an outsider claims.
func TestRuleColorsAtTheEdge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("api", "A1", "", echo("A1"))
	w.serve("api", "A2", "green", echo("A2"))
	w.rules = []laneclient.Rule{{
		Meta: laneclient.Meta{Name: "dev"}, Lanes: []laneclient.LaneShare{{Lane: "green"}},
		Match: laneclient.Match{Header: &laneclient.ValueMatch{Name: "x-dev", Value: "ann"}, Source: "127.0.0.0/8"},
	}}
	w.publish()
	if _, body := w.get(w.edge, "api.lane.localhost", "/", "x-dev: ann", "v-traffic-lane: blue", "baggage: v-traffic-lane=blue"); body != "A2 green" {
		t.Errorf("got %q", body)
	}
	if _, body := w.get(w.inside, "api", "/", "x-dev: ann"); body != "A1 " {
		t.Errorf("inside: got %q, want no rules there", body)
	}
	// What an outsider says of its address is not believed.
	w.rules[0].Match.Source = "10.0.0.0/8"
	w.rules[0].Revision = 2
	w.publish()
	if _, body := w.get(w.edge, "api.lane.localhost", "/", "x-dev: ann", "x-forwarded-for: 10.0.0.1"); body != "A1 " {
		t.Errorf("forged address: got %q", body)
	}
}

func TestForwardedHeaders(t *testing.T) {
	t.Parallel()
	inside := []string{
		"X-Forwarded-For: 192.0.2.7, 127.0.0.5", "X-Forwarded-Proto: https", "X-Forwarded-Host: shop.test", "Forwarded: for=192.0.2.7", "X-Real-Ip: 192.0.2.7",
		"X-Forwarded-Prefix: /admin", "X_Forwarded_For: 192.0.2.7", "X-Forwarded_Host: shop.test", "x_real_ip: 192.0.2.7",
	}
	outsider := newWorld(t, nil)
	outsider.serve("api", "A1", "", http.HandlerFunc(headersOf))
	_, body := outsider.get(outsider.edge, "api.lane.localhost", "/", inside...)
	got := headers(t, body)
	if got.Get("X-Forwarded-For") != "127.0.0.1" || got.Get("X-Forwarded-Proto") != "http" || got.Get("X-Forwarded-Host") != "api.lane.localhost" || got.Get("Forwarded")+got.Get("X-Real-Ip") != "" {
		t.Errorf("of an outsider: %v", got)
	}
	if text := fmt.Sprint(got); strings.Contains(text, "192.0.2.7") || strings.Contains(text, "shop.test") || strings.Contains(text, "/admin") {
		t.Errorf("of an outsider: %v", got)
	}
	trusted := newWorld(t, func(c *httpgw.Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
	trusted.lane("green")
	trusted.serve("api", "A1", "", http.HandlerFunc(headersOf))
	trusted.rules = []laneclient.Rule{{Meta: laneclient.Meta{Name: "src"}, Match: laneclient.Match{Source: "192.0.2.7"}, Lanes: []laneclient.LaneShare{{Lane: "green"}}}}
	trusted.publish()
	_, body = trusted.get(trusted.edge, "api.lane.localhost", "/", inside...)
	got = headers(t, body)
	if got.Get("X-Forwarded-For") != "192.0.2.7, 127.0.0.5, 127.0.0.1" || got.Get("X-Forwarded-Proto") != "https" || got.Get("X-Forwarded-Host") != "shop.test" {
		t.Errorf("of a trusted peer: %v", got)
	}
	if got.Get("V-Traffic-Lane") != "green" {
		t.Errorf("source behind trusted peers: %v", got)
	}
}

func TestHopByHopHeadersEndHere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Keep-Alive", "timeout=5")
		w.Header().Set("X-Private", "1")
		w.Header().Set("Connection", "X-Private")
		headersOf(w, r)
	}))
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: X-One, keep-alive\r\nConnection: x-two\r\nX-One: 1\r\nX-Two: 2\r\nX-Three: 3\r\n" +
		"Keep-Alive: 300\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic x\r\nTE: trailers, deflate\r\nUpgrade: h2c\r\nHTTP2-Settings: AAAA\r\n\r\n")
	resp, err := http.ReadResponse(conn.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	got := headers(t, string(body))
	for _, gone := range []string{"X-One", "X-Two", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization", "Upgrade", "Http2-Settings", "Connection"} {
		if len(got[gone]) > 0 {
			t.Errorf("%s arrived: %q", gone, got[gone])
		}
	}
	if got.Get("X-Three") != "3" || got.Get("Te") != "trailers" {
		t.Errorf("lost: %v", got)
	}
	if resp.Header.Get("Keep-Alive")+resp.Header.Get("X-Private") != "" {
		t.Errorf("of the upstream: %v", resp.Header)
	}
}

// What two parsers might read differently is refused, or passed on in one reading
// only: the upstream sees at most one request, never the smuggled one.
func TestSmugglingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	seen := make(chan string, 100)
	w.serve("api", "A1", "", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen <- r.Method + " " + r.RequestURI + " " + string(body)
	}))
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: api.lane.localhost\r\n\r\n"
	for name, text := range map[string]string{
		"two lengths":           "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"length list":           "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: 3, 4\r\n\r\nabcd",
		"signed length":         "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: +3\r\n\r\nabc",
		"space before colon":    "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length : 3\r\n\r\nabc",
		"obsolete fold":         "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nTransfer-Encoding:\r\n chunked\r\n x: y\r\n\r\n0\r\n\r\n",
		"unknown encoding":      "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
		"two encodings":         "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
		"vertical tab encoding": "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"bad chunk size":        "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\nabc\r\n0\r\n\r\n",
		"two hosts":             "GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nHost: other.lane.localhost\r\n\r\n",
		"no host":               "GET / HTTP/1.1\r\n\r\n",
		"host with space":       "GET / HTTP/1.1\r\nHost: api.lane.localhost x\r\n\r\n",
		"header with NUL":       "GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nX-A: a\x00b\r\n\r\n",
		"header with CR":        "GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nX-A: a\rb\r\n\r\n",
		"bad method":            "GE T / HTTP/1.1\r\nHost: api.lane.localhost\r\n\r\n",
		"bad version":           "GET / HTTP/1.9x\r\nHost: api.lane.localhost\r\n\r\n",
		"length and chunked": "POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"0\r\n\r\n",
	} {
		conn := w.dial(w.edge)
		conn.send(text)
		resp, err := http.ReadResponse(conn.in, nil)
		if err != nil {
			continue // closed without an answer: refused as well
		}
		if resp.StatusCode/100 == 2 && name != "length and chunked" {
			t.Errorf("%s: got %d, and the upstream %q", name, resp.StatusCode, <-seen)
		}
	}
	// HTTP/1.0 has no chunks: what follows must not be the next request.
	conn := w.dial(w.edge)
	conn.send("POST /old HTTP/1.0\r\nHost: api.lane.localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" + smuggled)
	if all := conn.all(); strings.Count(all, "HTTP/1.") > 1 {
		t.Errorf("HTTP/1.0: got %q", all)
	}
	for len(seen) > 0 {
		if got := <-seen; strings.Contains(got, "smuggled") {
			t.Errorf("HTTP/1.0: the upstream got %q", got)
		}
	}
	// Length and chunked together: the chunks count, as RFC 9112 says, and what
	// follows them is the next request. A front end that counts the other way is the
	// danger; the upstream gets one clear framing.
	conn = w.dial(w.edge)
	conn.send("POST /one HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	if resp, err := http.ReadResponse(conn.in, nil); err == nil && resp.StatusCode == http.StatusOK {
		got := <-seen
		for !strings.HasPrefix(got, "POST /one") {
			got = <-seen // of the cases before
		}
		if got != "POST /one abc" {
			t.Errorf("got %q", got)
		}
	}
}

// A request that fails while its body is under way must not leave the rest of that
// body to be read as the next request.
func TestRestOfABodyIsNoRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	seen := make(chan string, 10)
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		seen <- req.RequestURI
		if req.URL.Path == "/early" { // answers without reading
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno")
			_, _ = io.Copy(io.Discard, in)
		}
	})
	for _, path := range []string{"/early", "/abort"} {
		conn := w.dial(w.edge)
		conn.send("POST " + path + " HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: 1000\r\n\r\n")
		if got := <-seen; got != path {
			t.Fatal(got)
		}
		resp, err := http.ReadResponse(conn.in, nil)
		if err != nil {
			t.Fatal(path, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_, _ = io.WriteString(conn, "GET /smuggled HTTP/1.1\r\nHost: api.lane.localhost\r\n\r\n")
		if rest, err := io.ReadAll(conn.in); err == nil && len(rest) > 0 {
			t.Errorf("%s: then came %q", path, clipped(string(rest)))
		}
		select {
		case got := <-seen:
			t.Errorf("%s: the upstream got %s", path, got)
		default:
		}
	}
}

func TestLoopsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.instance("loop", "L1", "", lane.HTTP, w.inside)
	w.routes = []laneclient.Route{routeTo("loop", "loop.test", "", "loop", "", "")}
	w.publish()
	resp, body := w.get(w.edge, "loop.test", "/")
	if resp.StatusCode != http.StatusLoopDetected || !strings.Contains(body, "come through this gateway") {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}

func TestViaOfOthersIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(headersOf))
	_, body := w.get(w.edge, "api.lane.localhost", "/", "Via: 1.1 front")
	if via := headers(t, body).Get("Via"); !strings.HasPrefix(via, "1.1 front, 1.1 laneway-") {
		t.Errorf("via is %q", via)
	}
}

// SNI and Host have to agree.
func TestMisdirectedRequest(t *testing.T) {
	t.Parallel()
	certificate, pool := selfSigned(t)
	w := newWorld(t, func(c *httpgw.Config) {
		c.EdgeTLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	})
	w.serve("api", "A1", "", echo("A1"))
	for _, h2 := range []bool{false, true} {
		tr := &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: h2,
		}
		t.Cleanup(tr.CloseIdleConnections)
		c := &http.Client{Transport: tr}
		resp, body := w.doWith(c, request(t, http.MethodGet, "https://"+w.edge+"/", "api.lane.localhost", nil))
		if resp.StatusCode != http.StatusMisdirectedRequest || h2 != (resp.ProtoMajor == 2) {
			t.Errorf("HTTP/2 %v: got %d %s %s", h2, resp.StatusCode, resp.Proto, body)
		}
		w.routes = []laneclient.Route{routeTo("ex", "example.com", "", "api", "", "")}
		w.publish()
		resp, body = w.doWith(c, request(t, http.MethodGet, "https://"+w.edge+"/", "example.com", nil))
		if resp.StatusCode != http.StatusOK || body != "A1 " {
			t.Errorf("HTTP/2 %v: got %d %s", h2, resp.StatusCode, body)
		}
	}
}

// selfSigned gives the certificate of httptest, which is for example.com.
func selfSigned(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return s.TLS.Certificates[0], pool
}

func TestUnknownHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	resp, body := w.get(w.edge, "nobody.lane.localhost", "/x")
	var p struct{ Type, Title, Detail string }
	if err := json.Unmarshal([]byte(body), &p); err != nil || resp.StatusCode != http.StatusNotFound || p.Title != "Not Found" ||
		!strings.Contains(p.Detail, `"nobody.lane.localhost"`) || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
	if !strings.Contains(body, "use <service>.") {
		t.Errorf("the answer cannot be read as it stands: %s", body)
	}
	if resp, _ := w.get(w.edge, "api", "/"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a bare name at the edge: %d", resp.StatusCode)
	}
}

func TestEdgeIsNoProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	third := httptest.NewServer(echo("third"))
	t.Cleanup(third.Close)
	conn := w.dial(w.edge)
	conn.send("GET " + third.URL + "/ HTTP/1.1\r\nHost: " + third.Listener.Addr().String() + "\r\n\r\n")
	if got := conn.line(); got != "HTTP/1.1 404 Not Found" {
		t.Errorf("absolute form: %s", got)
	}
	conn = w.dial(w.edge)
	conn.send("CONNECT " + third.Listener.Addr().String() + " HTTP/1.1\r\nHost: " + third.Listener.Addr().String() + "\r\n\r\n")
	if got := conn.line(); got != "HTTP/1.1 405 Method Not Allowed" {
		t.Errorf("CONNECT: %s", got)
	}
}

func TestHugeHeadersAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	conn := w.dial(w.edge)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nX-A: "+strings.Repeat("a", 200_000)+"\r\n\r\n")
	if got := conn.line(); !strings.HasPrefix(got, "HTTP/1.1 431") {
		t.Errorf("got %s", got)
	}
}
