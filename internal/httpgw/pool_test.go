package httpgw_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// keptUpstream answers each request by what answer gives, on connections that it
// counts, and closes a connection where answer says so.
func (w *world) keptUpstream(conns *atomic.Int32, answer func(req *http.Request) (text string, end bool)) {
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		conns.Add(1)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			text, end := answer(req)
			if _, err := io.WriteString(conn, text); err != nil || end {
				return
			}
		}
	})
}

// An upstream connection is used again after any kind of answer that ends by itself,
// and not after one that does not.
func TestUpstreamConnectionsAreKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, body string
		method     string
		end        bool
		conns      int32
	}{
		"length":          {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", "body", "GET", false, 1},
		"chunked":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-Tail: t\r\n\r\n", "body", "GET", false, 1},
		"none":            {"HTTP/1.1 204 No Content\r\n\r\n", "", "GET", false, 1},
		"not modified":    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n", "", "GET", false, 1},
		"HEAD":            {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", "", "HEAD", false, 1},
		"POST":            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", "POST", false, 1},
		"empty":           {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", "GET", false, 1},
		"until the end":   {"HTTP/1.1 200 OK\r\n\r\nbody", "body", "GET", true, 3},
		"told to close":   {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbody", "body", "GET", false, 3},
		"closes untold":   {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", "body", "POST", true, 3},
		"more than asked": {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbodyHTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad", "body", "GET", false, 3},
		"HTTP/1.0":        {"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody", "body", "GET", true, 3},
		"interim":         {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", "body", "GET", false, 1},
	} {
		for _, upload := range []string{"", "length", "chunked"} {
			if c.method == "HEAD" && upload != "" {
				continue
			}
			w := newWorld(t, nil)
			var conns atomic.Int32
			w.keptUpstream(&conns, func(req *http.Request) (string, bool) {
				if got, err := io.ReadAll(req.Body); err != nil || string(got) != strings.Repeat("x", len(upload)) {
					t.Errorf("%s, %s: the upstream got %q, %v", name, upload, got, err)
				}
				return c.text, c.end
			})
			client := w.client()
			for range 3 {
				var send io.Reader
				switch upload {
				case "length":
					send = strings.NewReader("xxxxxx")
				case "chunked":
					send = io.MultiReader(strings.NewReader("xxx"), strings.NewReader("xxxx"))
				}
				resp, body := w.doWith(client, request(t, c.method, "http://"+w.edge+"/", "api.lane.localhost", send))
				if resp.StatusCode >= 400 || body != c.body {
					t.Errorf("%s, %s: got %d %q", name, upload, resp.StatusCode, body)
				}
				if name == "chunked" && resp.Trailer.Get("X-Tail") != "t" {
					t.Errorf("trailers: %v", resp.Trailer)
				}
				if c.end { // the end must have arrived, which takes a moment
					eventually(t, "the upstream closes", func() bool { return w.open.Load() == 0 })
				}
			}
			if n := conns.Load(); n != c.conns {
				t.Errorf("%s, %s: %d connections for 3 requests, want %d", name, upload, n, c.conns)
			}
		}
	}
}

// What an upstream says while nobody asks is nobody's answer.
func TestUnaskedAnswerIsNobodys(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	idle, said := make(chan struct{}), make(chan struct{})
	var conns atomic.Int32
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		first := conns.Add(1) == 1
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
			if first {
				<-idle
				_, _ = io.WriteString(conn, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
				close(said)
			}
		}
	})
	for n := range 2 {
		resp, body := w.doWith(w.client(), request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", nil))
		if resp.StatusCode != http.StatusOK || body != "good" {
			t.Errorf("request %d: got %d %q", n, resp.StatusCode, body)
		}
		if n == 0 {
			close(idle)
			<-said
		}
	}
}

// A kept connection that dies as it is used costs a request that may be repeated
// nothing, even where there is no other instance.
func TestKeptConnectionThatDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var conns, requests atomic.Int32
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		conns.Add(1)
		for n := 0; ; n++ {
			if _, err := http.ReadRequest(in); err != nil || n == 1 {
				return // the second request on a connection gets nothing
			}
			requests.Add(1)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood")
		}
	})
	client := w.client()
	for range 4 {
		if resp, body := w.doWith(client, request(t, http.MethodGet, "http://"+w.edge+"/", "api.lane.localhost", nil)); body != "good" {
			t.Errorf("got %d %s", resp.StatusCode, body)
		}
	}
	resp, body := w.doWith(client, request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", nil))
	if resp.StatusCode != http.StatusBadGateway || requests.Load() != 4 {
		t.Errorf("a POST was sent again: %d %s", resp.StatusCode, body)
	}
}

// Interim answers without an end are bounded, like any header.
func TestInterimAnswersAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		hint := fmt.Sprintf("HTTP/1.1 103 Early Hints\r\nLink: %s\r\n\r\n", strings.Repeat("x", 1000))
		for {
			if _, err := io.WriteString(conn, hint); err != nil {
				return
			}
		}
	})
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: close\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if all := conn.all(); !strings.Contains(all, "HTTP/1.1 502 Bad Gateway") {
		t.Errorf("got %d bytes, and no end", len(all))
	}
}
