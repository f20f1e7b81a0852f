package httpgw_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// skipHead reads a request's head without its body, and reports whether it came whole.
func skipHead(in *bufio.Reader) bool {
	for {
		line, err := in.ReadString('\n')
		if err != nil || line == "\r\n" {
			return err == nil
		}
	}
}

// Of a body that the client has yet to send in parts, another instance gets all, where the
// first one goes before it has answered; and the client's connection stays.
func TestBodyUnderWayGoesToAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var first atomic.Int32
	begun := make(chan struct{}, 1)
	got := make(chan string, 1)
	breaking := func(conn net.Conn, in *bufio.Reader) {
		if first.Add(1) > 1 { // whoever is asked second takes it
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			got <- fmt.Sprint(string(body), err)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			return
		}
		if skipHead(in) {
			_, _ = in.Peek(1) // some of the body
		}
		begun <- struct{}{}
	}
	w.serveRaw("api", "A1", breaking)
	w.serveRaw("api", "A2", breaking)
	conn := w.dial(w.edge)
	conn.send("PUT / HTTP/1.1\r\nHost: api.lane.localhost\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n")
	<-begun
	eventually(t, "another one is asked", func() bool { return first.Load() == 2 })
	conn.send("5\r\n part\r\n0\r\n\r\n")
	if text := <-got; text != "body part<nil>" {
		t.Errorf("the second instance got %q", text)
	}
	if status := conn.line(); status != "HTTP/1.1 200 OK" {
		t.Errorf("the client got %s", status)
	}
}

// An upstream that wants no body gets none; one that does not say gets it after a while.
func TestExpectations(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"/asks": "body", "/waits": "body", "/refuses": ""} {
		w := newWorld(t, nil)
		sent := make(chan string, 1)
		w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
			if !skipHead(in) {
				return
			}
			if path == "/asks" {
				_, _ = io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
			}
			if path != "/refuses" {
				body := make([]byte, 4)
				_, _ = io.ReadFull(in, body)
				sent <- string(body)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			if rest, _ := io.ReadAll(in); len(rest) > 0 {
				t.Errorf("%s: then came %q", path, rest)
			}
		})
		conn := w.dial(w.edge)
		conn.send("PUT " + path + " HTTP/1.1\r\nHost: api.lane.localhost\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n")
		for status := 0; status < http.StatusOK; {
			resp, err := http.ReadResponse(conn.in, nil)
			if err != nil {
				t.Fatal(path, err)
			}
			switch status = resp.StatusCode; status {
			case http.StatusContinue:
				conn.send("body")
			case http.StatusEarlyHints:
			default:
				if text, err := io.ReadAll(resp.Body); status != http.StatusOK || string(text) != "ok" || err != nil || resp.Close != (want == "") {
					t.Errorf("%s: got %d %q %v, close %v", path, status, text, err, resp.Close)
				}
			}
		}
		if want != "" {
			if got := <-sent; got != want {
				t.Errorf("%s: the upstream got %q", path, got)
			}
		}
	}
}

// Bodies of all sizes arrive as they are, byte for byte, both ways of framing.
func TestBodiesOfAllSizes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%d %v %v %x", r.ContentLength, r.TransferEncoding, err, body[:min(len(body), 8)])
		if !bytes.Equal(body, pattern(len(body))) {
			_, _ = io.WriteString(w, " and damaged")
		}
		_, _ = fmt.Fprintf(w, " %d %s", len(body), r.Trailer.Get("X-Sum"))
	}))
	both(t, w, func(t *testing.T, c *http.Client) {
		for _, size := range []int{1, 2, 15, 16, 17, 4095, 4096, 4097, 32755, 32756, 32757, 32768, 65536, 1 << 20} {
			want := fmt.Sprintf(" <nil> %x %d ", pattern(min(size, 8)), size)
			body := pattern(size)
			_, got := w.doWith(c, request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", bytes.NewReader(body)))
			if got != fmt.Sprint(size, " []", want) {
				t.Errorf("%d bytes: got %s", size, got)
			}
			req := request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", io.MultiReader(bytes.NewReader(body[:size/3]), bytes.NewReader(body[size/3:])))
			req.Trailer = http.Header{"X-Sum": {"s"}}
			if _, got = w.doWith(c, req); got != fmt.Sprint("-1 [chunked]", want, "s") {
				t.Errorf("%d bytes in chunks: got %s", size, got)
			}
		}
	})
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// A trailer may not end a line that net/http takes for one: what reads it otherwise would see
// another field.
func TestTrailersWithControlBytes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", lane.Baseline, http.HandlerFunc(trailersOf))
	for _, value := range []string{"a\rX-Forwarded-For: 10.0.0.1", "a\x00b", "a\x7fb"} {
		conn := w.dial(w.edge)
		conn.send("POST / HTTP/1.1\r\nHost: api.lane.localhost\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: " + value + "\r\n\r\n")
		if got := conn.line(); got != "HTTP/1.1 400 Bad Request" {
			t.Errorf("%q: got %s", value, got)
		}
	}
}
