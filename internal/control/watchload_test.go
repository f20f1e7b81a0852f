package control_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// pipeListener accepts connections in memory. They take nothing that is not read, so
// that a client that does not read is one from the first byte on.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestUnreadWatchesAreCutOff: watches that nobody reads delay neither writes nor the
// watches of others, and end.
func TestUnreadWatchesAreCutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		r := startOver(t, s, control.Config{})
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		srv := &http.Server{Handler: r.c.Handler(), ReadHeaderTimeout: time.Minute}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(control.Listener(l)) }()
		transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) }}
		r.http = &http.Client{Transport: transport}
		defer func() {
			transport.CloseIdleConnections()
			_ = srv.Close()
			<-served
			r.stop()
			_ = s.Close()
		}()

		const unread, writes = 300, 200
		for range unread {
			conn, err := l.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET /v1/watch?select=services HTTP/1.1\r\nHost: control\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
		}
		w := r.watch("select=services")
		w.want("synced")
		begun := time.Now()
		for n := range writes {
			r.must(http.StatusCreated, nil, "PUT", fmt.Sprintf("/v1/services/s%d", n), `{}`)
			w.want(fmt.Sprintf("put services s%d", n))
		}
		if took := time.Since(begun); took > time.Second { // of the bubble's time: nothing waits for a time-out
			t.Errorf("writes took %s beside watches that nobody reads", took)
		}
		if n := openWatches(r); n != unread+1 {
			t.Errorf("%d watches are open, want %d", n, unread+1)
		}
		go func() {
			for range w.lines { // it reads on
			}
		}()
		pass(11 * time.Second)
		if n := openWatches(r); n != 1 {
			t.Errorf("%d watches are open after the deadline for a write, want the one that is read", n)
		}
		w.cancel()
	})
}

func openWatches(r *replica) (n int) {
	r.t.Helper()
	text := string(r.must(http.StatusOK, nil, "GET", "/metrics", nil).body)
	_, after, found := strings.Cut(text, "\nlaneway_watches ")
	if _, err := fmt.Sscan(after, &n); !found || err != nil {
		r.t.Fatalf("metrics do not say how many watches there are: %v", err)
	}
	return n
}

// TestWatchesOfOneSession: a session cannot open watches without end.
func TestWatchesOfOneSession(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.session(`{}`)
	const most = 16
	watches := make([]*watch, most)
	for n := range watches {
		watches[n] = r.watch("select=lanes", laneclient.SessionHeader, s.Name)
		watches[n].want("synced")
	}
	if p := r.refuse(http.StatusTooManyRequests, "GET", "/v1/watch?select=lanes", nil, laneclient.SessionHeader, s.Name); !strings.Contains(p.Detail, "16") {
		t.Errorf("the limit is not named: %s", p.Detail)
	}
	r.watch("select=lanes").want("synced") // that of another is not counted
	watches[3].cancel()
	r.until("a watch of the session to be closed", func() bool { return openWatches(r) == most })
	r.watch("select=lanes", laneclient.SessionHeader, s.Name).want("synced")
}
