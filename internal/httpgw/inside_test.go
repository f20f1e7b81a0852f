package httpgw_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/gorilla/websocket"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newView() *laneclient.View { return &laneclient.View{} }

// proxied is a client with the inside as its proxy.
func (w *world) proxied() *http.Client {
	tr := &http.Transport{
		Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: w.inside}),
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // the test's own server
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestForwardProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *httpgw.Config) { c.Aliases = []string{"x-env"} })
	w.lane("green")
	w.serve("order", "O1", "", echo("O1"))
	w.serve("order", "O2", "green", echo("O2"))
	third := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Seen", r.Host+" "+r.RequestURI)
		headersOf(w, r)
	}))
	t.Cleanup(third.Close)
	get := func(address string) (*http.Response, string) {
		req := request(t, http.MethodGet, address, "", nil)
		req.Header.Set("V-Traffic-Lane", "green")
		req.Header.Set("Baggage", "a=1,v-traffic-lane=green")
		req.Header.Set("X-Env", "green")
		req.Header.Set("X-Laneway-Explain", "1")
		return w.doWith(w.proxied(), req)
	}
	for _, address := range []string{"http://order/", "http://order:8080/", "http://order.lane.localhost/"} {
		if _, body := get(address); body != "O2 green" {
			t.Errorf("%s: got %q", address, body)
		}
	}
	// A third party gets the request as it is, and nothing of lanes.
	resp, body := get(third.URL + "/x%2Fy?q=1")
	got := headers(t, body)
	if seen := resp.Header.Get("X-Seen"); seen != strings.TrimPrefix(third.URL, "http://")+" /x%2Fy?q=1" {
		t.Errorf("third party saw %q", seen)
	}
	if text, _ := json.Marshal(got); strings.Contains(string(text), "green") || got.Get("Baggage") != "a=1" || got.Get("X-Laneway-Explain") != "" || got.Get("X-Forwarded-For") != "" {
		t.Errorf("third party got %s", text)
	}
	if resp.Header.Get("X-Laneway-Route") != "" {
		t.Error("a route from a third party")
	}
	// In origin form it is an unknown host.
	if resp, _ := w.get(w.inside, "other.test", "/"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("origin form: %d", resp.StatusCode)
	}
	if resp, body := get("http://" + refusing(t) + "/"); resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "is no service or route here") {
		t.Errorf("refused: %d %s", resp.StatusCode, body)
	}
	conn := w.dial(w.inside)
	conn.send("GET https://example.test/ HTTP/1.1\r\nHost: example.test\r\n\r\n")
	if got := conn.line(); got != "HTTP/1.1 400 Bad Request" {
		t.Errorf("https in absolute form: %s", got)
	}
}

func TestConnect(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("order", "O1", "", echo("O1"))
	w.serve("order", "O2", "green", echo("O2"))
	third := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	t.Cleanup(third.Close)
	long := strings.Repeat("x", 1<<20)
	resp, body := w.doWith(w.proxied(), request(t, http.MethodPost, third.URL, "", strings.NewReader(long)))
	if resp.StatusCode != http.StatusOK || body != long {
		t.Errorf("https through CONNECT: %d, %d bytes", resp.StatusCode, len(body))
	}
	// To a service, by the color of the CONNECT.
	conn := w.dial(w.inside)
	conn.send("CONNECT order:80 HTTP/1.1\r\nHost: order:80\r\nV-Traffic-Lane: green\r\n\r\nGET / HTTP/1.0\r\n\r\n")
	if all := conn.all(); !strings.HasPrefix(all, "HTTP/1.1 200 ") || !strings.HasSuffix(all, "O2 ") {
		t.Errorf("got %q", all)
	}
	for text, want := range map[string]string{
		"CONNECT " + refusing(t) + " HTTP/1.1\r\nHost: x\r\n\r\n":                            "HTTP/1.1 502 Bad Gateway",
		"CONNECT order:80 HTTP/1.1\r\nHost: order:80\r\nV-Traffic-Lane: strict-load\r\n\r\n": "HTTP/1.1 503 Service Unavailable",
	} {
		conn := w.dial(w.inside)
		conn.send(text)
		if got := conn.line(); got != want {
			t.Errorf("%q: got %s", text, got)
		}
	}
}

// WebSocket clients with a proxy setting tunnel also to plain services.
func TestWebSocketThroughTheProxy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("chat", "C1", "", upgrader())
	dialer := websocket.Dialer{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: w.inside})}
	conn, _, err := dialer.DialContext(t.Context(), "ws://chat/", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte("hi")); err != nil {
		t.Fatal(err)
	}
	if _, got, err := conn.ReadMessage(); err != nil || string(got) != "got hi" {
		t.Errorf("got %q, %v", got, err)
	}
}

// Over HTTP/2, CONNECT makes a stream a tunnel.
func TestConnectOverHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	l := listen(t)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := make([]byte, 5)
		_, _ = io.ReadFull(conn, b)
		_, _ = conn.Write(append([]byte("got "), b...))
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn)
	}()
	t.Cleanup(func() { _ = l.Close() })
	body, send := io.Pipe()
	req := request(t, http.MethodConnect, "http://"+w.inside, "", body)
	req.Host = l.Addr().String()
	resp, err := w.h2c().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.WriteString(send, "hello")
	got := make([]byte, 9)
	if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != "got hello" {
		t.Errorf("got %q, %v", got, err)
	}
	_ = send.Close()
}

func TestExplainLines(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("order", "O1", "", http.HandlerFunc(headersOf))
	resp, _ := w.get(w.inside, "order", "/", "v-traffic-lane: green", "x-laneway-explain: 1")
	want := "service=order lane=- instance=O1 rule=trusted reason=baseline-fallback|service=next lane=- instance=N1 rule=- reason=plain"
	if got := strings.Join(resp.Header["X-Laneway-Route"], "|"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if resp, _ = w.get(w.inside, "order", "/"); len(resp.Header["X-Laneway-Route"]) > 0 {
		t.Error("lines that nobody asked for")
	}
	resp, _ = w.get(w.inside, "order", "/", "v-traffic-lane: strict-x", "x-laneway-explain: 1")
	if got := resp.Header.Get("X-Laneway-Route"); got != "service=order lane=- instance=- rule=trusted reason=strict-none" {
		t.Errorf("without an instance: %q", got)
	}
}

func TestAdmin(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.instance("order", "O1", "", lane.HTTP, "127.0.0.1:1001")
	w.instance("order", "O2", "green", lane.HTTP, "127.0.0.1:1002")
	w.rules = []laneclient.Rule{
		{Meta: laneclient.Meta{Name: "dev"}, Match: laneclient.Match{Cookie: &laneclient.ValueMatch{Name: "dev", Value: "1"}}, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
		{Meta: laneclient.Meta{Name: "front"}, Match: laneclient.Match{Header: &laneclient.ValueMatch{Name: "x-forwarded-host", Value: "dev.test"}}, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
		{Meta: laneclient.Meta{Name: "jwt"}, Match: laneclient.Match{User: &laneclient.UserMatch{From: "jwt:sub"}}, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
		{Meta: laneclient.Meta{Name: "bad"}, Match: laneclient.Match{Path: "/"}},
	}
	w.publish()
	admin := w.gw.Admin()
	ask := func(method, target, body string) (int, string) {
		rec := httptest.NewRecorder()
		admin.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body)))
		return rec.Code, rec.Body.String()
	}
	var e laneclient.Explanation
	explain := func(method, target, body string) {
		t.Helper()
		code, text := ask(method, target, body)
		e = laneclient.Explanation{}
		if err := json.Unmarshal([]byte(text), &e); err != nil || code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", target, body, code, text)
		}
	}
	explain(http.MethodGet, "/v1/explain?service=order&color=green", "")
	if e.Lane != "green" || e.Reason != "lane-instance" || len(e.Instances) != 1 || e.Instances[0].Name != "O2" || e.Node != "gw-1" || e.Revision == 0 ||
		e.Instances[0].Endpoints[0].Address != "127.0.0.1:1002" {
		t.Errorf("call: %+v", e)
	}
	explain(http.MethodGet, "/v1/explain?service=order&color=strict-x&protocol=grpc", "")
	if e.Error != "no instance of order in strict lane strict-x" || e.Reason != "strict-none" {
		t.Errorf("none: %+v", e)
	}
	explain(http.MethodPost, "/v1/explain/http", `{"host":"order.lane.localhost","headers":{"cookie":["dev=1"],"v-traffic-lane":["blue"]}}`)
	if e.Service != "order" || e.Color != "green" || e.Rule != "cookie" || e.RuleName != "dev" || e.Lane != "green" {
		t.Errorf("http: %+v", e)
	}
	explain(http.MethodPost, "/v1/explain/http", `{"host":"order","inside":true,"headers":{"v-traffic-lane":["gone"]}}`)
	if e.Color != "gone" || e.Rule != "trusted" || e.Reason != "unknown-color" {
		t.Errorf("inside: %+v", e)
	}
	explain(http.MethodPost, "/v1/explain/http", `{"host":"nobody.test"}`)
	if e.Service != "" || e.Reason != "none" || !strings.Contains(e.Error, "no route and no service") {
		t.Errorf("unknown host: %+v", e)
	}
	// What the edge does not believe is not there for its rules either.
	for request, color := range map[string]string{
		`{"host":"order.lane.localhost","headers":{"x-forwarded-host":["dev.test"]}}`:                "",
		`{"host":"order.lane.localhost","headers":{"x-forwarded-host":["dev.test"]},"trusted":true}`: "green",
	} {
		if explain(http.MethodPost, "/v1/explain/http", request); e.Color != color {
			t.Errorf("%s: %+v", request, e)
		}
	}
	explain(http.MethodGet, "/v1/explain?service=order&color=-", "")
	if e.Color != "" || e.Reason != "plain" {
		t.Errorf("plain: %+v", e)
	}
	for target, want := range map[string]int{
		"GET /v1/explain": 422, "GET /v1/explain?service=order&color=Bad": 422, "POST /v1/explain/http {}": 422, "POST /v1/explain/http {\"what\":1}": 400,
		"POST /v1/explain/http {\"host\":\"x\"}{}": 400, "POST /v1/explain/http {\"host\":\"x\",\"source\":\"y\"}": 422,
		"POST /v1/explain/http {\"host\":\"order.lane.localhost/x\"}": 422,
	} {
		parts := strings.SplitN(target, " ", 3)
		body := ""
		if len(parts) == 3 {
			body = parts[2]
		}
		if code, text := ask(parts[0], parts[1], body); code != want || !strings.Contains(text, "detail") {
			t.Errorf("%s: %d %s", target, code, text)
		}
	}
	code, text := ask(http.MethodGet, "/v1/rules/status", "")
	var statuses map[string]string
	if err := json.Unmarshal([]byte(text), &statuses); err != nil || code != http.StatusOK || statuses["dev"] != "ok" ||
		!strings.Contains(statuses["jwt"], "no key") || !strings.HasPrefix(statuses["bad"], "lanes:") {
		t.Errorf("statuses: %d %s", code, text)
	}
}
