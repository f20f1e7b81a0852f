package httpgw_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// refusing is an address at which nobody listens.
func refusing(t *testing.T) string {
	t.Helper()
	l := listen(t)
	defer l.Close()
	return l.Addr().String()
}

// eventually polls until ok, or fails.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

// Nothing was sent to an instance that refuses: any method may go to another one.
func TestRefusedGoesToAnother(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	w := newWorld(t, func(c *httpgw.Config) { c.Metrics = registry })
	w.instance("api", "A0", "", lane.HTTP, refusing(t))
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	for range 6 {
		if resp, body := w.doWith(w.client(), request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", strings.NewReader("body"))); resp.StatusCode != http.StatusOK || body != "body" {
			t.Fatalf("got %d %q", resp.StatusCode, body)
		}
	}
	if n := gather(t, registry, "laneway_gateway_retries_total")[""]; n < 1 || n > 2 {
		t.Errorf("%v retries, want one or two: then the instance is passed over", n)
	}
}

// An instance of the lane that refuses is the lane's trouble: no silent fallback.
func TestRefusedInLaneIsNoFallback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("api", "A1", "", echo("A1"))
	w.instance("api", "A2", "green", lane.HTTP, refusing(t))
	for range 3 {
		resp, body := w.get(w.edge, "green--api.lane.localhost", "/")
		if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "instance A2 of api in lane green cannot be reached") {
			t.Fatalf("got %d %s", resp.StatusCode, body)
		}
	}
}

// An instance that breaks off before it answers: a GET, or a PUT whose body is at
// hand, is sent again; a POST is not.
func TestBrokenOffBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, body string
		again        bool
	}{
		{http.MethodGet, "", true},
		{http.MethodPut, "small", true},
		{http.MethodPut, strings.Repeat("x", 200_000), false},
		{http.MethodPost, "", false},
		{http.MethodPost, "small", false},
	} {
		w := newWorld(t, nil)
		var broken, served atomic.Int32
		w.serveRaw("api", "A0", func(_ net.Conn, in *bufio.Reader) {
			if req, err := http.ReadRequest(in); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
				broken.Add(1)
			}
		})
		w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			_, _ = io.Copy(w, r.Body)
		}))
		for range 2 {
			resp, body := w.doWith(w.client(), request(t, c.method, "http://"+w.edge+"/", "api.lane.localhost", strings.NewReader(c.body)))
			if c.again && (resp.StatusCode != http.StatusOK || body != c.body) {
				t.Errorf("%s with %d bytes: got %d %s", c.method, len(c.body), resp.StatusCode, clipped(body))
			}
			if resp.StatusCode == http.StatusBadGateway && !strings.Contains(body, "broke off before it answered") {
				t.Errorf("%s: got %s", c.method, body)
			}
		}
		if c.again && served.Load() != 2 || !c.again && broken.Load()+served.Load() != 2 || broken.Load() == 0 {
			t.Errorf("%s with %d bytes: broken off %d, served %d", c.method, len(c.body), broken.Load(), served.Load())
		}
	}
}

// An answer that breaks off in the middle must not look whole.
func TestBrokenOffInTheMiddle(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"length":  "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nhalf",
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	} {
		w := newWorld(t, nil)
		w.serveRaw("api", "A0", func(conn net.Conn, in *bufio.Reader) {
			if _, err := http.ReadRequest(in); err == nil {
				_, _ = io.WriteString(conn, head)
			}
		})
		both(t, w, func(t *testing.T, c *http.Client) {
			resp, err := c.Do(request(t, http.MethodGet, "http://"+w.edge+"/", "api.lane.localhost", nil))
			if err != nil {
				return // not even headers: not whole either
			}
			defer resp.Body.Close()
			if body, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("%s: %q looks whole", name, body)
			}
		})
	}
}

func TestGarbageFromTheUpstream(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no HTTP": "SSH-2.0-x\r\n", "empty": "", "bad header": "HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
		"two lengths": "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
		"huge header": "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("a", 300_000) + "\r\n\r\n",
		"unasked 101": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nhello",
	} {
		w := newWorld(t, nil)
		w.serveRaw("api", "A0", func(conn net.Conn, in *bufio.Reader) {
			if _, err := http.ReadRequest(in); err == nil {
				_, _ = io.WriteString(conn, text)
			}
		})
		resp, body, err := try(w.client(), request(t, http.MethodPost, "http://"+w.edge+"/", "api.lane.localhost", nil))
		if err == nil && (resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "hello")) {
			t.Errorf("%s: got %d %s", name, resp.StatusCode, clipped(body))
		}
	}
}

func try(c *http.Client, req *http.Request) (*http.Response, string, error) {
	resp, err := c.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, string(body), err
}

// timed gives service api a route, host slow.test, with time-outs.
func (w *world) timed(request, idle time.Duration) {
	r := routeTo("slow", "slow.test", "", "api", "", "")
	r.Timeouts = &laneclient.Timeouts{Request: laneclient.Duration(request), Idle: laneclient.Duration(idle)}
	w.routes = append(w.routes, r)
	w.publish()
}

func TestHangBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var here, gone atomic.Int32
	w.serve("api", "A1", "", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		here.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		gone.Add(1)
	}))
	w.timed(100*time.Millisecond, 0)
	both(t, w, func(t *testing.T, c *http.Client) {
		for _, body := range []io.Reader{nil, strings.NewReader("x")} {
			resp, text := w.doWith(c, request(t, http.MethodPost, "http://"+w.edge+"/", "slow.test", body))
			if resp.StatusCode != http.StatusGatewayTimeout || !strings.Contains(text, "instance A1 of api in the baseline sent no response in time") {
				t.Errorf("got %d %s", resp.StatusCode, text)
			}
			eventually(t, "the upstream is told", func() bool { return gone.Load() == here.Load() })
		}
	})
	// A client that sends no body keeps nobody waiting either.
	conn := w.dial(w.edge)
	conn.send("POST / HTTP/1.1\r\nHost: slow.test\r\nContent-Length: 10\r\n\r\nabc")
	if all := conn.all(); !strings.HasPrefix(all, "HTTP/1.1 504") || !strings.Contains(all, "Connection: close") {
		t.Errorf("half a body: got %q", all)
	}
}

func TestHangInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "begin")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	w.timed(0, 150*time.Millisecond)
	both(t, w, func(t *testing.T, c *http.Client) {
		began := time.Now()
		_, body, err := try(c, request(t, http.MethodGet, "http://"+w.edge+"/", "slow.test", nil))
		if err == nil || body != "begin" {
			t.Errorf("got %q, %v", body, err)
		}
		if took := time.Since(began); took < 100*time.Millisecond || took > 10*time.Second {
			t.Errorf("ended after %v", took)
		}
	})
}

// A stream that moves outlives its idle time-out.
func TestSlowButMoving(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for range 20 {
			_, _ = io.WriteString(w, "x")
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
	}))
	w.timed(0, 1500*time.Millisecond)
	if _, body := w.get(w.edge, "slow.test", "/"); body != strings.Repeat("x", 20) {
		t.Errorf("got %q", body)
	}
}

// A client that does not read its answer is cut off, and its upstream with it.
func TestClientThatDoesNotRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	gone := make(chan struct{})
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		block := bytes.Repeat([]byte("x"), 64<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}))
	w.timed(0, 200*time.Millisecond)
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.1\r\nHost: slow.test\r\n\r\n")
	select {
	case <-gone:
	case <-time.After(15 * time.Second):
		t.Fatal("the upstream was never told")
	}
}

// What a client leaves, its upstream leaves: before the answer and in the middle of
// it, with and without a body.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	here, gone := make(chan struct{}, 100), make(chan struct{}, 100)
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		if r.URL.Path == "/answer" {
			_, _ = io.WriteString(w, "begin")
			_ = http.NewResponseController(w).Flush()
		}
		read := make(chan struct{})
		go func() { // the server notices only while somebody reads
			defer close(read)
			_, _ = io.Copy(io.Discard, r.Body)
		}()
		here <- struct{}{}
		<-r.Context().Done()
		<-read
		gone <- struct{}{}
	}))
	both(t, w, func(t *testing.T, c *http.Client) {
		for _, path := range []string{"/wait", "/answer"} {
			endless, end := io.Pipe()
			for _, body := range []io.Reader{nil, strings.NewReader("x"), endless} {
				ctx, cancel := context.WithCancel(t.Context())
				req := request(t, http.MethodPost, "http://"+w.edge+path, "api.lane.localhost", body).WithContext(ctx)
				done := make(chan error, 1)
				go func() {
					_, _, err := try(c, req)
					done <- err
				}()
				select {
				case <-here:
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: the upstream has not got the request", path)
				}
				cancel()
				if body == endless {
					// Once it has an answer, the client's transport of HTTP/2 notices at the
					// next bytes of the body only.
					_ = end.CloseWithError(context.Canceled)
				}
				select {
				case <-gone:
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: the upstream was never told", path)
				}
				if err := <-done; err == nil {
					t.Errorf("%s: got an answer", path)
				}
			}
		}
	})
}

// Retries stop when they are more than a share of the requests.
func TestRetriesAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var asked atomic.Int32
	broken := func(_ net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err == nil {
			asked.Add(1)
		}
	}
	for _, name := range []string{"A0", "A1", "A2", "A3"} {
		w.serveRaw("api", name, broken)
	}
	const requests = 200
	for range requests {
		if resp, _ := w.get(w.edge, "api.lane.localhost", "/"); resp.StatusCode != http.StatusBadGateway {
			t.Fatalf("got %d", resp.StatusCode)
		}
	}
	// Two retries each at first, then a fifth of one: 50 and 200/5 at most.
	if retries := asked.Load() - requests; retries > 95 || retries < 50 {
		t.Errorf("%d retries for %d requests", retries, requests)
	}
}

// Many at once, over connections that break at random moments: each client gets the
// whole answer to its own request, or an error.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("api", "A1", "", echo("A1"))
	w.serve("api", "A2", "green", echo("A2"))
	w.serveRaw("flaky", "F1", func(conn net.Conn, in *bufio.Reader) {
		for n := 0; ; n++ {
			req, err := http.ReadRequest(in)
			if err != nil || n == 3 {
				return
			}
			body, _ := io.ReadAll(req.Body)
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			if n == 2 {
				return
			}
			_, _ = io.WriteString(conn, "a\r\n"+string(body)+"\r\n0\r\n\r\n")
		}
	})
	errs := make(chan error, 8)
	for worker := range 8 {
		c := w.client()
		if worker%2 == 1 {
			c = w.h2c()
		}
		go func() {
			for n := range 60 {
				host, want, body := "api.lane.localhost", "A1 ", ""
				switch n % 3 {
				case 1:
					host, want = "green--api.lane.localhost", "A2 green"
				case 2:
					host, body = "flaky.lane.localhost", strings.Repeat(string(rune('a'+worker)), 10)
					want = body
				}
				req, err := http.NewRequest(http.MethodPost, "http://"+w.edge+"/", strings.NewReader(body))
				if err != nil {
					errs <- err
					return
				}
				req.Host = host
				resp, got, err := try(c, req)
				if err == nil && resp.StatusCode == http.StatusOK && got != want || err != nil && n%3 != 2 {
					errs <- errors.Join(err, errors.New("got "+got+", want "+want))
					return
				}
			}
			errs <- nil
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}
