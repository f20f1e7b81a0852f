package lanehttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// deadAddress is one that refuses connections.
func deadAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestTransportTriesAnother(t *testing.T) {
	live := lanetest.NewService(t, "order", "live", "green")
	dir := lanetest.NewDirectory(lanes,
		at("order", "dead1", "green", deadAddress(t)), at("order", "dead2", "green", deadAddress(t)), live.Routing(),
		at("order", "base", "", deadAddress(t)))
	ctx := lane.With(t.Context(), "green")
	for range 8 { // whoever the first is, each time with new knowledge of health
		c := client(t, nil, dir)
		for _, body := range []io.Reader{nil, strings.NewReader("a"), bytes.NewReader([]byte("a"))} {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://order/", body)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := lanetest.ReadReport(t, resp); got.Instance != "live" || body != nil && got.Body != "a" {
				t.Errorf("%s got %q", got.Instance, got.Body)
			}
		}
	}
}

// TestTransportStaysInLane: a lane all of whose instances are down is an error, not the
// baseline.
func TestTransportStaysInLane(t *testing.T) {
	live := lanetest.NewService(t, "order", "base", "")
	dir := lanetest.NewDirectory(lanes, live.Routing(),
		at("order", "dead1", "green", deadAddress(t)), at("order", "dead2", "green", deadAddress(t)))
	c := client(t, nil, dir)
	for range 5 {
		_, err := get(lane.With(t.Context(), "green"), t, c, "http://order/")
		var op *net.OpError
		if err == nil || !errors.As(err, &op) || !strings.Contains(err.Error(), "instance dead") {
			t.Fatalf("got %v, want the refused connection of one of the lane", err)
		}
	}
}

// counting counts the requests for each address and refuses them.
func counting(n *sync.Map) *recorder {
	return &recorder{answer: func(r *http.Request) (*http.Response, error) {
		v, _ := n.LoadOrStore(r.URL.Host, new(atomic.Int64))
		v.(*atomic.Int64).Add(1)
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}}
}

func TestTransportTriesThreeAtMost(t *testing.T) {
	var instances []*lane.Instance
	for n := range 6 {
		instances = append(instances, at("order", fmt.Sprint("O", n), "", fmt.Sprint("h:", n)))
	}
	for name, tc := range map[string]struct {
		body io.Reader
		want int
	}{
		"no body":            {nil, 3},
		"body to read again": {strings.NewReader("a"), 3},
		"body to read once":  {io.MultiReader(strings.NewReader("a")), 1},
		"two targets":        {nil, 2},
	} {
		var n sync.Map
		base := counting(&n)
		c := client(t, base, lanetest.NewDirectory(nil, instances...))
		if name == "two targets" {
			c = client(t, base, lanetest.NewDirectory(nil, instances[:2]...))
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://order/", tc.body)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Do(r); err == nil {
			t.Fatalf("%s: no error", name)
		}
		hosts := 0
		n.Range(func(any, any) bool { hosts++; return true })
		if len(base.got) != tc.want || hosts != tc.want {
			t.Errorf("%s: %d attempts on %d targets, want %d", name, len(base.got), hosts, tc.want)
		}
	}
}

// TestTransportSendsBodyAgain: a base may have read of the body, or closed it, before it
// found that there is no connection.
func TestTransportSendsBodyAgain(t *testing.T) {
	var bodies []string
	base := roundTripper(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body.Close()
		if bodies = append(bodies, string(body)); len(bodies) < 3 {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
	})
	c := client(t, base, lanetest.NewDirectory(nil, at("order", "O1", "", "h:1"), at("order", "O2", "", "h:2"), at("order", "O3", "", "h:3")))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://order/", strings.NewReader("a body"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(err)
	}
	resp.Body.Close()
	if !slices.Equal(bodies, []string{"a body", "a body", "a body"}) {
		t.Errorf("sent %q", bodies)
	}

	// A body that cannot be had again ends it, with that error.
	bodies = nil
	r.Body, r.GetBody = io.NopCloser(strings.NewReader("x")), func() (io.ReadCloser, error) { return nil, io.ErrNoProgress }
	if _, err := c.Do(r); !errors.Is(err, io.ErrNoProgress) || len(bodies) != 1 {
		t.Errorf("got %v after %d attempts", err, len(bodies))
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestTransportTriesOnlyRefused: what may have reached an instance is not sent twice.
func TestTransportTriesOnlyRefused(t *testing.T) {
	for _, failure := range []error{
		io.ErrUnexpectedEOF, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset")},
		&net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken pipe")}, errors.New("http2: no cached connection"),
	} {
		base := &recorder{answer: func(*http.Request) (*http.Response, error) { return nil, failure }}
		c := client(t, base, lanetest.NewDirectory(nil, at("order", "O1", "", "h:1"), at("order", "O2", "", "h:2")))
		_, err := get(t.Context(), t, c, "http://order/")
		if !errors.Is(err, failure) || len(base.got) != 1 {
			t.Errorf("%v: %d attempts, error %v", failure, len(base.got), err)
		}
	}
}

func TestTransportAvoidsWhoFails(t *testing.T) {
	for name, tc := range map[string]struct {
		answer func(*http.Request) (*http.Response, error)
		most   int // requests that the failing one may get of 40
	}{
		"refused": {func(*http.Request) (*http.Response, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
		}, 1},
		"broken": {func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }, 5},
		"503": {func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusServiceUnavailable, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
		}, 5},
		"500 is an answer": {func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusInternalServerError, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
		}, 20},
	} {
		var bad atomic.Int64
		base := &recorder{answer: func(r *http.Request) (*http.Response, error) {
			if r.URL.Host == "bad:1" {
				bad.Add(1)
				return tc.answer(r)
			}
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Header: http.Header{}, Request: r}, nil
		}}
		c := client(t, base, lanetest.NewDirectory(nil, at("order", "O1", "", "bad:1"), at("order", "O2", "", "good:1")))
		for range 40 {
			if resp, err := get(t.Context(), t, c, "http://order/"); err == nil {
				resp.Body.Close()
			}
		}
		if n := int(bad.Load()); n != tc.most {
			t.Errorf("%s: the failing one got %d of 40 requests, want %d", name, n, tc.most)
		}
	}
}

// TestTransportCanceled: the context's error comes back, and callers who go away say
// nothing of the instance.
func TestTransportCanceled(t *testing.T) {
	started := make(chan struct{}, 1)
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		started <- struct{}{}
		<-r.Context().Done()
	}))
	defer service.Close()
	dir := lanetest.NewDirectory(nil, at("order", "slow", "", service.URL))
	c := client(t, nil, dir)
	goAway := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		lane.Go(ctx, func(context.Context) {
			<-started
			cancel()
		})
		if _, err := get(ctx, t, c, "http://order/"); !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want canceled", err)
		}
	}
	for range 10 { // more than would eject it
		goAway()
	}
	quick := lanetest.NewService(t, "order", "quick", "")
	dir.Add(quick.Routing())
	slow := 0
	for range 10 { // it still gets its turns
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		resp, err := get(ctx, t, c, "http://order/")
		if err == nil {
			resp.Body.Close()
		} else {
			slow++
			<-started
		}
		cancel()
		if slow > 0 {
			return
		}
	}
	t.Error("ten callers went away, and the instance is avoided")
}

// TestTransportLeastRequests: a request counts until its answer has been read or closed.
func TestTransportLeastRequests(t *testing.T) {
	one, two := lanetest.NewService(t, "order", "O1", ""), lanetest.NewService(t, "order", "O2", "")
	c := client(t, nil, lanetest.NewDirectory(nil, one.Routing(), two.Routing()), lanehttp.WithPolicy(lane.LeastRequests))
	open, err := get(t.Context(), t, c, "http://order/")
	if err != nil {
		t.Fatal(err)
	}
	next := func() string {
		resp, err := get(t.Context(), t, c, "http://order/")
		if err != nil {
			t.Fatal(err)
		}
		return lanetest.ReadReport(t, resp).Instance
	}
	busy := next()
	for range 20 {
		if got := next(); got != busy {
			t.Fatalf("%s got a request while one to it is still under way", got)
		}
	}
	if got := lanetest.ReadReport(t, open).Instance; got == busy {
		t.Fatalf("%s got the second request although the first to it is under way", got)
	}
	both := func(when string) {
		t.Helper()
		got := map[string]int{}
		for range 100 {
			got[next()]++
		}
		if len(got) != 2 {
			t.Errorf("got %v after the answer was %s, want both", got, when)
		}
	}
	both("read")
	for range 2 { // one of each
		resp, err := get(t.Context(), t, c, "http://order/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	unread, err := get(t.Context(), t, c, "http://order/")
	if err != nil {
		t.Fatal(err)
	}
	unread.Body.Close()
	both("closed")
}
