package httpgw_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/laneway-dev/laneway/lane"
)

const earlyHints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nKeep-Alive: timeout=5\r\nX-Laneway-Route: service=secret\r\n\r\n"

// hintWithoutEnd sends interim answers until nobody takes them.
func hintWithoutEnd(conn net.Conn, in *bufio.Reader) {
	if _, err := http.ReadRequest(in); err != nil {
		return
	}
	for {
		if _, err := io.WriteString(conn, earlyHints); err != nil {
			return
		}
	}
}

// Interim answers may come at any time, also when the request has been given up and its
// ResponseWriter is dead.
func TestInterimAnswersAfterTheClientHasGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serveRaw("api", "A1", hintWithoutEnd)
	w.serve("other", "O1", "", echo("O1"))
	var group sync.WaitGroup
	for i := range 40 {
		group.Go(func() {
			conn, err := net.Dial("tcp", w.edge)
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: api.lane.localhost\r\n\r\n"); err != nil {
				t.Error(err)
				return
			}
			// Read some, then leave in the middle of it.
			_ = conn.SetReadDeadline(time.Now().Add(time.Duration(10+i) * time.Millisecond))
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	group.Wait()
	if resp, _ := w.get(w.edge, "other.lane.localhost", "/"); resp.StatusCode != http.StatusOK {
		t.Errorf("then a request to another service got %d", resp.StatusCode)
	}
}

// A request that runs out of time is answered while its upstream still sends interim
// answers.
func TestInterimAnswersUntilTheTimeIsUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serveRaw("api", "A1", hintWithoutEnd)
	w.timed(50*time.Millisecond, 0)
	for range 5 {
		conn := w.dial(w.edge)
		conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: close\r\n\r\n")
		for {
			resp, err := http.ReadResponse(conn.in, nil)
			if err != nil {
				break // too many interim answers may also end the exchange
			}
			if resp.StatusCode >= http.StatusOK {
				if resp.StatusCode != http.StatusGatewayTimeout && resp.StatusCode != http.StatusBadGateway {
					t.Errorf("got %d", resp.StatusCode)
				}
				break
			}
		}
	}
}

func TestInterimAnswersAreFiltered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serveRaw("api", "A1", func(conn net.Conn, in *bufio.Reader) {
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			_, _ = io.WriteString(conn, earlyHints+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(conn.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusEarlyHints || resp.Header.Get("Link") == "" {
		t.Errorf("got %d %v, want 103 with its link", resp.StatusCode, resp.Header)
	}
	for _, name := range []string{"Keep-Alive", "X-Laneway-Route", "Connection"} {
		if resp.Header.Get(name) != "" {
			t.Errorf("an untrusted client got %s: %s", name, resp.Header.Get(name))
		}
	}
	// An HTTP/1.0 client knows no interim answers (RFC 9110, section 15.2), and its
	// connection ends with the answer whatever came before.
	old := w.dial(w.edge)
	old.send("POST / HTTP/1.0\r\nHost: api.lane.localhost\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"GET /smuggled HTTP/1.1\r\nHost: api.lane.localhost\r\n\r\n")
	all := old.all()
	if strings.Contains(all, " 103 ") || strings.Count(all, "HTTP/1.") != 1 {
		t.Errorf("an HTTP/1.0 client got %q", all)
	}
}

// A method that is no token is the client's mistake, not the instance's.
func TestMethodThatIsNoToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", echo("A1"))
	conn, err := net.Dial("tcp", w.edge)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// net/http's own client checks the method; this peer must not.
	h2 := &http2.Transport{}              //nolint:staticcheck // see above
	client, err := h2.NewClientConn(conn) //nolint:staticcheck // see above
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.lane.localhost/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Method = "GET /x HTTP/1.1"
	resp, err := client.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadRequest {
		t.Errorf("got %d, want 400", resp.StatusCode)
	}
}

// CGI, WSGI and their like know no difference between '-' and '_' in a header's name.
func TestColorsInUnderscoreHeadersAreStripped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serve("api", "A1", lane.Baseline, http.HandlerFunc(headersOf))
	_, body := w.get(w.edge, "api.lane.localhost", "/", "v_traffic_lane", "green", "V_Traffic-Lane", "green", "x_laneway_explain", "1", "other_header", "kept")
	for name := range headers(t, body) {
		if strings.Contains(strings.ToLower(strings.ReplaceAll(name, "_", "-")), "lane") {
			t.Errorf("the upstream got %s", name)
		}
	}
	if headers(t, body)["Other_header"] == nil {
		t.Errorf("another header with an underscore was dropped: %s", body)
	}
}
