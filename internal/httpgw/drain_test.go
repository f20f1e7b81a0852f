package httpgw_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/laneway-dev/laneway/internal/httpgw"
)

// TestMain fails where goroutines of the gateway are left when all tests are done.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		code = leaks()
	}
	os.Exit(code)
}

func leaks() int {
	buf := make([]byte, 4<<20)
	var left string
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = ""
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if (strings.Contains(g, "internal/httpgw.") || strings.Contains(g, "net/http.(*conn)") || strings.Contains(g, "net/http.(*persistConn)")) &&
				!strings.Contains(g, "TestMain") {
				left += g + "\n\n"
			}
		}
		if left == "" {
			return 0
		}
	}
	_, _ = fmt.Fprintln(os.Stderr, "goroutines are left:\n"+left)
	return 1
}

// What is under way when the end comes is finished; nothing new is taken.
func TestDrainFinishesWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	here, goOn := make(chan struct{}, 2), make(chan struct{})
	w.serve("api", "A1", "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "begin ")
		_ = http.NewResponseController(w).Flush()
		here <- struct{}{}
		<-goOn
		_, _ = io.WriteString(w, "end")
	}))
	type result struct {
		proto, body string
		err         error
	}
	results := make(chan result, 2)
	for _, c := range []*http.Client{w.client(), w.h2c()} {
		req := request(t, http.MethodGet, "http://"+w.edge+"/", "api.lane.localhost", nil)
		go func() {
			resp, body, err := try(c, req)
			if err != nil {
				results <- result{err: err}
				return
			}
			results <- result{resp.Proto, body, nil}
		}()
	}
	<-here
	<-here
	ended := make(chan error, 1)
	go func() { ended <- w.stop() }()
	eventually(t, "the listener closes", func() bool {
		conn, err := net.Dial("tcp", w.edge)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case err := <-ended:
		t.Fatalf("Run ended with requests under way: %v", err)
	default:
	}
	close(goOn)
	for range 2 {
		if r := <-results; r.err != nil || r.body != "begin end" {
			t.Errorf("%s: %q, %v", r.proto, r.body, r.err)
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// HTTP/1.1 clients are told that their connection ends, gRPC clients to go away:
// calls under way finish, new ones are refused.
func TestDrainTellsClients(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	here, goOn := make(chan struct{}, 1), make(chan struct{})
	w.serve("api", "A1", "", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		here <- struct{}{}
		<-goOn
	}))
	w.serveGRPC("O1", "")
	stream := w.openStream()
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\n\r\n")
	<-here
	ended := make(chan error, 1)
	go func() { ended <- w.stop() }()
	eventually(t, "the listener closes", func() bool {
		c, err := net.Dial("tcp", w.inside)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	close(goOn)
	if all := conn.all(); !strings.Contains(all, "Connection: close") {
		t.Errorf("got %q", all)
	}
	_ = stream.Send(&testpb.StreamingOutputCallRequest{Payload: payload("y")})
	if m, err := stream.Recv(); err != nil || string(m.GetPayload().GetBody()) != "y" {
		t.Errorf("the stream: %v, %v", m, err)
	}
	_ = stream.CloseSend()
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream's end: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
}

// What does not end within the deadline is cut off, on both sides: requests, gRPC
// streams and tunnels.
func TestDrainCutsOffTheRest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *httpgw.Config) { c.Drain = 200 * time.Millisecond })
	gone := make(chan string, 2)
	here := make(chan struct{}, 1)
	w.serve("api", "A1", "", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		here <- struct{}{}
		<-r.Context().Done()
		gone <- "request"
	}))
	w.serveRaw("tunnel", "T1", func(conn net.Conn, in *bufio.Reader) {
		if _, err := http.ReadRequest(in); err != nil {
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, in)
		gone <- "tunnel"
	})
	w.serveGRPC("O1", "")
	stream := w.openStream()
	tunnel := w.dial(w.edge)
	tunnel.send("GET / HTTP/1.1\r\nHost: tunnel.lane.localhost\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	if got := tunnel.line(); !strings.HasPrefix(got, "HTTP/1.1 101") {
		t.Fatal(got)
	}
	conn := w.dial(w.edge)
	conn.send("GET / HTTP/1.1\r\nHost: api.lane.localhost\r\n\r\n")
	<-here
	began := time.Now()
	if err := w.stop(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run: %v, want that requests were cut off", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the drain took %v", took)
	}
	<-gone
	<-gone
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream: %v", err)
	}
}

func TestInsideIsNotExposed(t *testing.T) {
	t.Parallel()
	gw, err := httpgw.New(httpgw.Config{Views: newView})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gw.Run(t.Context(), httpgw.Listeners{Inside: l}); !errors.Is(err, httpgw.ErrExposed) {
		t.Errorf("got %v, want ErrExposed", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}
