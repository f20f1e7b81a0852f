package httpgw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// h2c is a client that speaks HTTP/2 in plain text.
func (w *world) h2c() *http.Client {
	tr := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	tr.Protocols.SetUnencryptedHTTP2(true)
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// both runs a test by both versions of HTTP.
func both(t *testing.T, w *world, f func(t *testing.T, c *http.Client)) {
	t.Helper()
	t.Run("HTTP1", func(t *testing.T) { f(t, w.client()) })
	t.Run("HTTP2", func(t *testing.T) { f(t, w.h2c()) })
}

func request(t *testing.T, method, url, host string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	return req
}

// Each line of the request comes back before the next is sent, and only then does
// the request end: neither side may wait for the other to be done.
func TestFullDuplex(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = rc.Flush()
		in := bufio.NewReader(r.Body)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(w, "got "+line)
			_ = rc.Flush()
		}
	}))
	both(t, w, func(t *testing.T, c *http.Client) {
		body, send := io.Pipe()
		resp, err := c.Do(request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for n := range 5 {
			if _, err := fmt.Fprintf(send, "line %d\n", n); err != nil {
				t.Fatal(err)
			}
			got, err := in.ReadString('\n')
			if want := fmt.Sprintf("got line %d\n", n); got != want || err != nil {
				t.Fatalf("got %q, %v, want %q", got, err, want)
			}
		}
		_ = send.Close()
		if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
			t.Errorf("got %q, %v at the end", rest, err)
		}
	})
}

// An event reaches the client before the next one is made.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	next := map[string]chan struct{}{"1": make(chan struct{}), "2": make(chan struct{})}
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for n := 0; ; n++ {
			select {
			case <-next[r.URL.Query().Get("http")]:
			case <-r.Context().Done():
				return
			}
			_, _ = fmt.Fprintf(w, "data: %d\n\n", n)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	both(t, w, func(t *testing.T, c *http.Client) {
		version := "1"
		if strings.HasSuffix(t.Name(), "2") {
			version = "2"
		}
		resp, err := c.Do(request(t, http.MethodGet, "http://"+w.edge+"/?http="+version, "api.lane.localhost", nil))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		in := bufio.NewReader(resp.Body)
		for n := range 3 {
			next[version] <- struct{}{}
			if got, err := in.ReadString('\n'); got != fmt.Sprintf("data: %d\n", n) || err != nil {
				t.Fatalf("got %q, %v", got, err)
			}
			_, _ = in.ReadString('\n')
		}
	})
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Announced")
		_, _ = w.Write(body)
		w.Header().Set("X-Announced", r.Trailer.Get("X-Sum")+r.Trailer.Get("V-Traffic-Lane"))
		w.Header().Set(http.TrailerPrefix+"X-Unannounced", "yes")
	}))
	both(t, w, func(t *testing.T, c *http.Client) {
		req := request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", io.MultiReader(strings.NewReader("ab"), strings.NewReader("c")))
		req.Trailer = http.Header{"X-Sum": {"abc"}, "V-Traffic-Lane": {"green"}}
		resp, body := w.doWith(c, req)
		if body != "abc" || resp.Trailer.Get("X-Announced") != "abc" || resp.Trailer.Get("X-Unannounced") != "yes" {
			t.Errorf("got %q with trailers %v", body, resp.Trailer)
		}
	})
}

func (w *world) doWith(c *http.Client, req *http.Request) (*http.Response, string) {
	w.t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(body)
}

// Answers keep their shape: length, absence of a type, interim answers, no body.
func TestAnswersAreUnchanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/plain":
			w.Header()["Content-Type"] = nil
			w.Header().Set("Content-Length", "3")
			_, _ = io.WriteString(w, "<p>")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		case "/same":
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(http.StatusNotModified)
		case "/hints":
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.Header().Del("Link")
			_, _ = io.WriteString(w, "late")
		case "/cookies":
			w.Header().Add("Set-Cookie", "a=1")
			w.Header().Add("Set-Cookie", "b=2")
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			_, _ = io.WriteString(w, r.RequestURI)
		}
	}))
	both(t, w, func(t *testing.T, c *http.Client) {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		get := func(method, path string) (*http.Response, string) {
			return w.doWith(c, request(t, method, "http://"+w.edge+path, "api.lane.localhost", nil))
		}
		resp, body := get(http.MethodGet, "/plain")
		if body != "<p>" || resp.ContentLength != 3 || len(resp.Header["Content-Type"]) > 0 {
			t.Errorf("plain: %q, length %d, type %q", body, resp.ContentLength, resp.Header["Content-Type"])
		}
		resp, body = get(http.MethodHead, "/plain")
		if body != "" || resp.ContentLength != 3 {
			t.Errorf("HEAD: %q, length %d", body, resp.ContentLength)
		}
		if resp, _ = get(http.MethodGet, "/none"); resp.StatusCode != http.StatusNoContent {
			t.Errorf("none: %d", resp.StatusCode)
		}
		if resp, _ = get(http.MethodGet, "/same"); resp.StatusCode != http.StatusNotModified || resp.Header.Get("Etag") != `"x"` {
			t.Errorf("same: %d %v", resp.StatusCode, resp.Header)
		}
		if resp, _ = get(http.MethodGet, "/cookies"); resp.StatusCode != http.StatusFound || len(resp.Header["Set-Cookie"]) != 2 {
			t.Errorf("cookies: %d %v", resp.StatusCode, resp.Header)
		}
		for _, target := range []string{"/a%2Fb//c?x=1;y=2&z=%zz", "/?", "/%E4%BD%A0/../x"} {
			if _, body = get(http.MethodGet, target); body != target {
				t.Errorf("target %q arrived as %q", target, body)
			}
		}
		hints := make(chan string, 1)
		req := request(t, http.MethodGet, "http://"+w.edge+"/hints", "api.lane.localhost", nil)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
				hints <- fmt.Sprint(code, " ", h.Get("Link"))
				return nil
			},
		}))
		resp, body = w.doWith(c, req)
		if got := <-hints; got != "103 </a.css>; rel=preload" || body != "late" || resp.Header.Get("Link") != "" {
			t.Errorf("hints: %q, then %q with %v", got, body, resp.Header)
		}
	})
}

// The body is asked for only when the upstream wants it.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	for path, want := range map[string]string{"/take": "HTTP/1.1 100 Continue", "/refuse": "HTTP/1.1 413 Request Entity Too Large"} {
		conn := w.dial(w.edge)
		conn.send("POST " + path + " HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n")
		if got := conn.line(); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestHTTP10(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, " world")
	}))
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.0\r\nHost: api.lane.localhost\r\n\r\n")
	all := conn.all()
	if !strings.HasPrefix(all, "HTTP/1.0 200") && !strings.HasPrefix(all, "HTTP/1.1 200") || !strings.HasSuffix(all, "\r\n\r\nhello world") {
		t.Errorf("got %q", all)
	}
}

func TestAsteriskForm(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Target", r.Method+" "+r.RequestURI)
	}))
	conn := w.dial(w.edge)
	conn.send("OPTIONS * HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: close\r\n\r\n")
	// net/http answers OPTIONS * itself; what matters is that nothing breaks.
	if all := conn.all(); !strings.HasPrefix(all, "HTTP/1.1 200") {
		t.Errorf("got %q", all)
	}
}

func upgrader() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{Subprotocols: []string{"chat"}}
		conn, err := up.Upgrade(w, r, http.Header{"X-Color": r.Header["V-Traffic-Lane"]})
		if err != nil {
			return
		}
		defer conn.Close()
		for {
			kind, text, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if err := conn.WriteMessage(kind, append([]byte("got "), text...)); err != nil {
				return
			}
		}
	})
}

func TestWebSocket(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("chat", "C1", "", echo("C1"))
	w.serve("chat", "C2", "green", upgrader())
	dialer := websocket.Dialer{
		HandshakeTimeout: 10 * time.Second, Subprotocols: []string{"chat"},
		NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", w.edge)
		},
	}
	conn, resp, err := dialer.DialContext(t.Context(), "ws://green--chat.lane.localhost/room", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if resp.Header.Get("X-Color") != "green" || conn.Subprotocol() != "chat" {
		t.Errorf("color %q, subprotocol %q", resp.Header.Get("X-Color"), conn.Subprotocol())
	}
	for _, text := range []string{"one", strings.Repeat("x", 300_000)} {
		if err := conn.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, got, err := conn.ReadMessage(); err != nil || string(got) != "got "+text {
			t.Fatalf("got %d bytes, %v", len(got), err)
		}
	}
	// An instance that will not upgrade answers as usual.
	if _, resp, err := dialer.DialContext(t.Context(), "ws://chat.lane.localhost/", nil); !errors.Is(err, websocket.ErrBadHandshake) || resp.StatusCode != http.StatusOK {
		t.Errorf("no upgrade: %v", err)
	}
}

// raw is a connection on which a test writes bytes of its own.
type raw struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

func (w *world) dial(address string) *raw {
	w.t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return &raw{w.t, conn, bufio.NewReader(conn)}
}

func (r *raw) send(s string) {
	r.t.Helper()
	if _, err := io.WriteString(r, s); err != nil {
		r.t.Fatal(err)
	}
}

func (r *raw) line() string {
	r.t.Helper()
	line, err := r.in.ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimRight(line, "\r\n")
}

// all reads until the other side closes.
func (r *raw) all() string {
	r.t.Helper()
	b, err := io.ReadAll(r.in)
	if err != nil {
		r.t.Fatalf("after %q: %v", b, err)
	}
	return string(b)
}

// Other upgrades pass as well, with half-closed connections.
func TestOtherUpgrade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "line/1" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: line/1\r\n\r\nhello\n")
		_ = rw.Flush()
		rest, _ := io.ReadAll(rw) // until the client ends its direction
		_, _ = fmt.Fprintf(conn, "%d bytes\n", len(rest))
	}))
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: line/1\r\n\r\nearly")
	if got := conn.line(); got != "HTTP/1.1 101 Switching Protocols" {
		t.Fatal(got)
	}
	for conn.line() != "" {
	}
	if got := conn.line(); got != "hello" {
		t.Errorf("got %q", got)
	}
	conn.send(" late")
	_ = conn.Conn.(*net.TCPConn).CloseWrite()
	if got := conn.all(); got != "10 bytes\n" {
		t.Errorf("got %q", got)
	}
}

// Requests on one connection each go by their own host and headers.
func TestKeepAliveConnectionIsRoutedPerRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("api", "A1", "", echo("A1"))
	w.serve("api", "A2", "green", echo("A2"))
	conn := w.dial(w.edge)
	for n := range 6 {
		host, want := "api.lane.localhost", "A1"
		if n%2 == 1 {
			host, want = "green--api.lane.localhost", "A2"
		}
		conn.send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		resp, err := http.ReadResponse(conn.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if got := resp.Header.Get("X-Instance"); got != want {
			t.Errorf("request %d: got %s, want %s", n, got, want)
		}
	}
}

func TestRouteRewrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+" "+r.RequestURI)
	}))
	w.routes = append(w.routes, routeTo("a", "www.example.com", "/api/", "api", "/v2", "inner.test"),
		routeTo("b", "www.example.com", "/strip", "api", "/", ""))
	w.publish()
	for path, want := range map[string]string{
		"/api": "inner.test /v2", "/api/x%2Fy?q=1": "inner.test /v2/x%2Fy?q=1", "/strip/x": "www.example.com /x", "/strip": "www.example.com /",
		"/%61pi/x": "inner.test /v2/x",
	} {
		if _, body := w.get(w.edge, "www.example.com", path); body != want {
			t.Errorf("%s: got %q, want %q", path, body, want)
		}
	}
	if resp, _ := w.get(w.edge, "www.example.com", "/other"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("other path: %d", resp.StatusCode)
	}
}

// Of a color that another service registered later, the next request knows.
func TestChangesAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", echo("A1"))
	if _, body := w.get(w.edge, "green--api.lane.localhost", "/"); body != "A1 green" {
		t.Errorf("before: %q", body)
	}
	w.lane("green")
	w.serve("api", "A2", "green", echo("A2"))
	if _, body := w.get(w.edge, "green--api.lane.localhost", "/"); body != "A2 green" {
		t.Errorf("with the lane: %q", body)
	}
	w.instances = w.instances[:1]
	w.publish()
	if _, body := w.get(w.edge, "green--api.lane.localhost", "/"); body != "A1 green" {
		t.Errorf("after: %q", body)
	}
	w.instances = nil
	w.services = []string{"api"}
	w.publish()
	if resp, body := w.get(w.edge, "api.lane.localhost", "/"); resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no instance of api in the baseline") {
		t.Errorf("without any: %d %s", resp.StatusCode, body)
	}
}

func TestStrictLaneNeverFallsBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", echo("A1"))
	resp, body := w.get(w.edge, "strict-load--api.lane.localhost", "/")
	if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body, "no instance of api in strict lane strict-load") ||
		!strings.Contains(body, `"reason":"strict-none"`) || resp.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %d %s", resp.StatusCode, body)
	}
}
