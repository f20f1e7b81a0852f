package control_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestMain fails the package if a test has left a goroutine of this package, or of
// what it uses, behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines that run code of this module, once they
// had time to end.
func leaked() string {
	deadline := time.Now().Add(5 * time.Second)
	for {
		buf := make([]byte, 4<<20)
		var left []string
		for n, g := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if n > 0 && strings.Contains(g, "laneway/internal") { // 0 is this one
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(deadline) {
			return strings.Join(left, "\n\n")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// replica is a control plane that runs, over a store in memory, and a client of it.
type replica struct {
	t     *testing.T
	store store.Store
	c     *control.Control
	http  *http.Client
	base  string
	stop  func()
}

// start runs a replica over its own store until the test ends.
func start(t *testing.T) *replica {
	t.Helper()
	s := mem.New()
	r := startOver(t, s, control.Config{})
	t.Cleanup(func() {
		r.stop()
		_ = s.Close()
	})
	return r
}

// startTwo runs two replicas over one store until the test ends.
func startTwo(t *testing.T) []*replica {
	t.Helper()
	s := mem.New()
	t.Cleanup(func() { _ = s.Close() }) // when they have stopped
	return []*replica{startOver(t, s, control.Config{}), startOver(t, s, control.Config{})}
}

// startOver runs a replica over a store that others may use.
func startOver(t *testing.T, s store.Store, cfg control.Config) *replica {
	t.Helper()
	cfg.Store = s
	if cfg.Domain == "" {
		cfg.Domain = "lane.localhost"
	}
	c, err := control.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r := &replica{t: t, store: s, c: c, base: "http://control", http: &http.Client{Transport: laneclient.InMemory(c.Handler())}}
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(r.stop)
	r.until("ready", func() bool { return r.status("GET", "/readyz", nil) == http.StatusOK })
	return r
}

// until polls, with a deadline, for what another goroutine brings about.
func (r *replica) until(what string, cond func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// answer is what a request got.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) into(t *testing.T, out any) {
	t.Helper()
	reflect.ValueOf(out).Elem().SetZero() // what was there before must not show through
	if err := json.Unmarshal(a.body, out); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
}

func (a answer) problem(t *testing.T) laneclient.Problem {
	t.Helper()
	var p laneclient.Problem
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("%d has content type %q: %s", a.status, got, a.body)
	}
	a.into(t, &p)
	if p.Status != a.status || p.Title == "" || p.Detail == "" {
		t.Fatalf("problem is not whole: %s", a.body)
	}
	return p
}

// do sends a request. body is JSON text, or anything that is marshaled; headers are
// pairs.
func (r *replica) do(method, path string, body any, headers ...string) answer {
	r.t.Helper()
	var rd io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		rd = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			r.t.Fatal(err)
		}
		rd = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.base+path, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	for n := 0; n+1 < len(headers); n += 2 {
		req.Header.Add(headers[n], headers[n+1])
	}
	return r.send(req)
}

func (r *replica) send(req *http.Request) answer {
	r.t.Helper()
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return answer{resp.StatusCode, resp.Header, raw}
}

func (r *replica) status(method, path string, body any) int {
	r.t.Helper()
	return r.do(method, path, body).status
}

// must sends a request that has to succeed with a status, and decodes the answer.
func (r *replica) must(status int, out any, method, path string, body any, headers ...string) answer {
	r.t.Helper()
	a := r.do(method, path, body, headers...)
	if a.status != status {
		r.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
	if out != nil {
		a.into(r.t, out)
	}
	return a
}

// refuse sends a request that has to be refused, and returns the problem.
func (r *replica) refuse(status int, method, path string, body any, headers ...string) laneclient.Problem {
	r.t.Helper()
	a := r.do(method, path, body, headers...)
	if a.status != status {
		r.t.Fatalf("%s %s: %d, want %d: %s", method, path, a.status, status, a.body)
	}
	return a.problem(r.t)
}

func (r *replica) session(body any) laneclient.Session {
	r.t.Helper()
	var s laneclient.Session
	r.must(http.StatusCreated, &s, "POST", "/v1/sessions", body)
	return s
}

func (r *replica) lane(name string) laneclient.Lane {
	r.t.Helper()
	var l laneclient.Lane
	r.must(http.StatusOK, &l, "GET", "/v1/lanes/"+name, nil)
	return l
}

// watch is an open watch.
type watch struct {
	t      *testing.T
	lines  chan laneclient.Event
	cancel func()
}

// watch opens a watch; query follows the '?'.
func (r *replica) watch(query string, headers ...string) *watch {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/v1/watch?"+query, http.NoBody)
	if err != nil {
		r.t.Fatal(err)
	}
	for n := 0; n+1 < len(headers); n += 2 {
		req.Header.Add(headers[n], headers[n+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		r.t.Fatalf("watch %s: %d %s", query, resp.StatusCode, body)
	}
	w := &watch{t: r.t, lines: make(chan laneclient.Event), cancel: cancel}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer close(w.lines)
		defer resp.Body.Close()
		sc := bufio.NewScanner(resp.Body)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			var e laneclient.Event
			if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
				r.t.Errorf("%s: %v", sc.Bytes(), err)
				return
			}
			select {
			case w.lines <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	r.t.Cleanup(func() { cancel(); <-gone })
	return w
}

// next returns the next event but progress; ok is false at the end of the stream.
func (w *watch) next() (e laneclient.Event, ok bool) {
	w.t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	for {
		select {
		case e, ok = <-w.lines:
			if ok && e.Type == laneclient.EventProgress {
				continue
			}
			return e, ok
		case <-timeout.C:
			w.t.Fatal("no event in 20 s")
		}
	}
}

// want checks the next event but progress: "put lanes green", "synced".
func (w *watch) want(want string) laneclient.Event {
	w.t.Helper()
	e, ok := w.next()
	got := string(e.Type)
	if e.Kind != "" {
		got += " " + string(e.Kind) + " " + e.Name
	}
	if !ok {
		got = "end"
	}
	if got != want {
		w.t.Fatalf("event is %q, want %q (%s)", got, want, e.Object)
	}
	return e
}

func instanceBody(lane string, addresses ...string) map[string]any {
	b := map[string]any{}
	if lane != "" {
		b["lane"] = lane
	}
	var list []map[string]string
	for _, a := range addresses {
		list = append(list, map[string]string{"protocol": "http", "address": a})
	}
	if list != nil {
		b["endpoints"] = list
	}
	return b
}
