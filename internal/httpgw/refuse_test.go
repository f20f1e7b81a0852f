package httpgw_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// A body that is not well formed is answered, whatever of it the upstream has seen, and
// sent to nobody else.
func TestMalformedBodiesAreAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var whole atomic.Int32
	var seen sync.Map // of *atomic.Int32, by path
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := seen.LoadOrStore(r.URL.Path, new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			whole.Add(1)
		}
	})
	w.serve("api", "A1", "", handler)
	w.serve("api", "A2", "", handler)
	third := httptest.NewServer(handler)
	t.Cleanup(third.Close)
	sent := 0
	for name, body := range map[string]string{
		"size in hex notation":  "0x3\r\nabc\r\n0\r\n\r\n",
		"no size":               "\r\nabc\r\n0\r\n\r\n",
		"size is no number":     "xyz\r\nabc\r\n0\r\n\r\n",
		"negative size":         "-3\r\nabc\r\n0\r\n\r\n",
		"size too large":        "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
		"later chunk":           "3\r\nabc\r\nz\r\nabc\r\n0\r\n\r\n",
		"no end of chunk":       "3\r\nabcdef\r\n0\r\n\r\n",
		"extension too long":    "3;x=" + strings.Repeat("x", 100_000) + "\r\nabc\r\n0\r\n\r\n",
		"trailer is no field":   "3\r\nabc\r\n0\r\nX Sum\r\n\r\n",
		"trailer with no name":  "3\r\nabc\r\n0\r\n: x\r\n\r\n",
		"trailers without end":  "3\r\nabc\r\n0\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 1000) + "\r\n",
		"bad chunk, large body": "10000\r\n" + strings.Repeat("a", 0x10000) + "\r\n10000\r\n" + strings.Repeat("a", 0x10000) + "\r\nz\r\n",
	} {
		for _, method := range []string{"POST", "PUT"} {
			for target, address := range map[string]string{"/": w.edge, third.URL + "/": w.inside} {
				sent++
				target += strconv.Itoa(sent)
				conn := w.dial(address)
				host := "api.lane.localhost"
				if address == w.inside {
					host = third.Listener.Addr().String()
				}
				// What the gateway has no mind to read may meet a closed connection.
				_, _ = io.WriteString(conn, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nTransfer-Encoding: chunked\r\n\r\n"+body)
				resp, err := http.ReadResponse(conn.in, nil)
				if err != nil {
					t.Errorf("%s: %s %s: %v", name, method, target, err)
					continue
				}
				text, _ := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusBadRequest || !resp.Close || !strings.Contains(string(text), "the request's body") {
					t.Errorf("%s: %s %s: got %d %s", name, method, target, resp.StatusCode, text)
				}
			}
		}
	}
	if err := w.stop(); err != nil { // no request is under way any more
		t.Error(err)
	}
	seen.Range(func(path, n any) bool {
		if n := n.(*atomic.Int32).Load(); n > 1 {
			t.Errorf("%s was sent %d times", path, n)
		}
		return true
	})
	if n := whole.Load(); n > 0 {
		t.Errorf("%d bodies arrived as if they were whole", n)
	}
}

// h2frames is a client of HTTP/2 that sends what it is told.
type h2frames struct {
	t      *testing.T
	conn   *raw
	framer *http2.Framer
	head   bytes.Buffer
	enc    *hpack.Encoder
	next   uint32
}

func (w *world) h2frames(address string) *h2frames {
	w.t.Helper()
	conn := w.dial(address)
	conn.send(http2.ClientPreface)
	h := &h2frames{t: w.t, conn: conn, framer: http2.NewFramer(conn, conn.in), next: 1}
	h.enc = hpack.NewEncoder(&h.head)
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := h.framer.WriteSettings(); err != nil {
		w.t.Fatal(err)
	}
	return h
}

// ask sends a request and gives the status and body of its answer; a reset stream has
// the status "reset".
func (h *h2frames) ask(body string, fields ...string) (status, text string) {
	h.t.Helper()
	h.head.Reset()
	for n := 0; n < len(fields); n += 2 {
		_ = h.enc.WriteField(hpack.HeaderField{Name: fields[n], Value: fields[n+1]}) // to a buffer
	}
	id := h.next
	h.next += 2
	err := h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: h.head.Bytes(), EndHeaders: true, EndStream: body == ""})
	if err == nil && body != "" {
		err = h.framer.WriteData(id, true, []byte(body))
	}
	if err != nil {
		h.t.Fatal(err)
	}
	for {
		frame, err := h.framer.ReadFrame()
		if err != nil {
			h.t.Fatal(err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == id && f.PseudoValue("status") != "" {
				status = f.PseudoValue("status")
			}
		case *http2.DataFrame:
			if f.StreamID == id {
				text += string(f.Data())
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id && f.ErrCode != http2.ErrCodeNo {
				return "reset", text
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = h.framer.WriteSettingsAck()
			}
		}
		if frame.Header().StreamID == id && frame.Header().Flags.Has(http2.FlagDataEndStream) {
			return status, text
		}
	}
}

// What HTTP/1.1 refuses in a Host header does not come in as an :authority: nobody can
// say what it asks for.
func TestMalformedAuthority(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", echo("A1"))
	w.routes = []laneclient.Route{routeTo("any", "", "", "api", "", "")} // would take every host
	w.publish()
	for _, listener := range []string{w.edge, w.inside} {
		c := w.h2frames(listener)
		get := func(fields ...string) (string, string) {
			return c.ask("", append([]string{":method", "GET", ":scheme", "http", ":path", "/"}, fields...)...)
		}
		for _, authority := range []string{
			"api.lane.localhost/x", "api.lane.localhost/", "/", "user@api.lane.localhost", "user:password@api.lane.localhost", "api.lane.localhost?x",
			"api.lane.localhost#x", "api.lane.localhost x", "http://api.lane.localhost", "api.lane.localhost\\x", "api<lane", "ä.lane.localhost",
			"api.lane.localhost:80:80", "api.lane.localhost:x", "api.lane.localhost:99999", "[::1", "::1", "[::1]x", "[zz]", "a]b",
		} {
			if status, text := get(":authority", authority); (status != "400" || !strings.Contains(text, "host")) && (status != "reset" || !strings.Contains(authority, "@")) {
				t.Errorf("%q: got %s %s", authority, status, text)
			}
		}
		for _, host := range []string{"other.lane.localhost", ""} {
			if status, _ := get(":authority", "api.lane.localhost", "host", host); status != "400" {
				t.Errorf("host %q beside another authority: got %s", host, status)
			}
		}
		if status, _ := get(":authority", "api.lane.localhost", "host", "api.lane.localhost", "host", "other.lane.localhost"); status != "400" {
			t.Errorf("two hosts: got %s", status)
		}
		for _, good := range [][]string{
			{":authority", "api.lane.localhost"},
			{":authority", "api.lane.localhost:7780"},
			{":authority", "api.lane.localhost:"},
			{":authority", "API.lane.localhost."},
			{":authority", "[::1]:80"},
			{":authority", "[::1]"},
			{":authority", "192.0.2.1:80"},
			{":authority", "api.lane.localhost", "host", "API.lane.localhost"},
			{"host", "api.lane.localhost"},
		} {
			if status, text := get(good...); status != "200" || text != "A1 " {
				t.Errorf("%q: got %s %s", good, status, text)
			}
		}
	}
	// The same of HTTP/1.1.
	for _, host := range []string{"api.lane.localhost/x", "user@api.lane.localhost", "api.lane.localhost:x", "[::1"} {
		conn := w.dial(w.edge)
		conn.send("GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n")
		if got := conn.line(); !strings.HasPrefix(got, "HTTP/1.1 400") {
			t.Errorf("%q: got %s", host, got)
		}
	}
}

// A body of another length than was said is not passed on as whole.
func TestFalseLengthInHTTP2(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	c := w.h2frames(w.edge)
	for length, want := range map[string]string{"5": "400", "2": "reset"} { // net/http resets what is too long
		status, text := c.ask("abc", ":method", "POST", ":scheme", "http", ":path", "/", ":authority", "api.lane.localhost", "content-length", length)
		if status != want {
			t.Errorf("length %s of 3: got %s %s", length, status, text)
		}
	}
}

// An instance that switches protocols where it was not asked to, or to one that was not
// asked for, has not answered.
func TestSwitchingUnasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	switching := func(conn net.Conn, in *bufio.Reader) {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n"+strings.ReplaceAll(req.Header.Get("X-Answer"), "|", "\r\n")+"\r\n\r\nowned\r\n")
		_, _ = io.Copy(io.Discard, in)
	}
	w.serveRaw("api", "A1", switching)
	third := w.instances[0].Endpoints[0].Address
	const toLine, bare = "Connection: Upgrade|Upgrade: line/1", "X-A: 1"
	for name, c := range map[string]struct{ method, version, header, body, answer string }{
		"not asked":       {"GET", "1.1", "", "", toLine},
		"with a body":     {"POST", "1.1", "Content-Length: 3\r\n", "abc", toLine},
		"chunked":         {"POST", "1.1", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", toLine},
		"asked with body": {"POST", "1.1", "Connection: Upgrade\r\nUpgrade: line/1\r\nContent-Length: 3\r\n", "abc", toLine},
		"to another":      {"GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "", toLine},
		"to one of two":   {"GET", "1.1", "Connection: Upgrade\r\nUpgrade: websocket\r\n", "", "Connection: Upgrade|Upgrade: websocket, line/1"},
		"to none":         {"GET", "1.1", "Connection: Upgrade\r\nUpgrade: line/1\r\n", "", bare},
		"no connection":   {"GET", "1.1", "Connection: Upgrade\r\nUpgrade: line/1\r\n", "", "Upgrade: line/1"},
		"HTTP/1.0":        {"GET", "1.0", "Connection: Upgrade\r\nUpgrade: line/1\r\n", "", toLine},
		"not listed":      {"GET", "1.1", "Upgrade: line/1\r\n", "", toLine},
	} {
		for host, address := range map[string]string{"api.lane.localhost": w.edge, third: w.inside} {
			conn := w.dial(address)
			target := "/"
			if host == third {
				target = "http://" + third + "/"
			}
			conn.send(c.method + " " + target + " HTTP/" + c.version + "\r\nHost: " + host + "\r\nX-Answer: " + c.answer + "\r\n" + c.header + "\r\n" + c.body)
			resp, err := http.ReadResponse(conn.in, nil)
			if err != nil {
				t.Errorf("%s, %s: %v", name, host, err)
				continue
			}
			text, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusBadGateway || !strings.Contains(string(text), "protocol") {
				t.Errorf("%s, %s: got %d %s", name, host, resp.StatusCode, text)
			}
		}
	}
	// One of several, in another case, is what was asked for.
	for host, target := range map[string]string{"api": "/", third: "http://" + third + "/"} {
		conn := w.dial(w.inside)
		conn.send("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nX-Answer: " + toLine + "\r\nConnection: Upgrade\r\nUpgrade: websocket, Line/1\r\n\r\n")
		if got := conn.line(); got != "HTTP/1.1 101 Switching Protocols" {
			t.Errorf("%s: got %s", host, got)
		}
	}
}

// A tunnel of HTTP to an instance would be one past all routing: the upgrade is ignored,
// and the request served.
func TestNoTunnelOfHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Asked", r.Header.Get("Upgrade")+r.Header.Get("Http2-Settings"))
	}))
	for upgrade, want := range map[string]string{
		"h2c": "", "H2C": "", "h2c, HTTP/2.0": "", "TLS/1.2": "", "HTTP/3.0, websocket,h2c ,line/1": "websocket, line/1", "websocket\r\nUpgrade: line/1": "websocket, line/1",
	} {
		for _, listener := range []string{w.edge, w.inside} {
			conn := w.dial(listener)
			conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nUpgrade: " + upgrade + "\r\n\r\n")
			resp, err := http.ReadResponse(conn.in, nil)
			if err != nil {
				t.Fatal(upgrade, err)
			}
			if got := resp.Header.Get("X-Asked"); resp.StatusCode != http.StatusOK || got != want {
				t.Errorf("%q: got %d, the instance was asked for %q, want %q", upgrade, resp.StatusCode, got, want)
			}
		}
	}
}
