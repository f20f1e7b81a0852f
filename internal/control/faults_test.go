package control_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// faulty is a store that fails on demand.
type faulty struct {
	store.Store

	writes, reads atomic.Pointer[error]
	cut           atomic.Bool            // watches end
	compacted     atomic.Bool            // the next watch is told so
	stalled       atomic.Bool            // watches tell nothing for now
	between       atomic.Pointer[func()] // runs once, after what a write read and before it is written
}

func (f *faulty) fail(p *atomic.Pointer[error], err error) {
	if err == nil {
		p.Store(nil)
		return
	}
	err = fmt.Errorf("faulty: %w", err)
	p.Store(&err)
}

func fault(p *atomic.Pointer[error]) error {
	if e := p.Load(); e != nil {
		return *e
	}
	return nil
}

func (f *faulty) Get(ctx context.Context, key string) (store.KV, bool, uint64, error) {
	if err := fault(&f.reads); err != nil {
		return store.KV{}, false, 0, err
	}
	return f.Store.Get(ctx, key)
}

func (f *faulty) Revision(ctx context.Context) (uint64, error) {
	if err := fault(&f.reads); err != nil {
		return 0, err
	}
	return f.Store.Revision(ctx)
}

func (f *faulty) Do(ctx context.Context, txn store.Txn) (store.Result, error) {
	if err := fault(&f.writes); err != nil {
		return store.Result{}, err
	}
	if len(txn.If) > 0 {
		if between := f.between.Swap(nil); between != nil {
			(*between)()
		}
	}
	return f.Store.Do(ctx, txn)
}

func (f *faulty) Health(ctx context.Context) error {
	if err := fault(&f.writes); err != nil {
		return err
	}
	return f.Store.Health(ctx)
}

func (f *faulty) Watch(ctx context.Context, prefix string, from uint64) <-chan store.Batch {
	out := make(chan store.Batch)
	go func() {
		defer close(out)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		in := f.Store.Watch(ctx, prefix, from)
		look := time.NewTicker(5 * time.Millisecond)
		defer look.Stop()
		for {
			var b store.Batch
			select {
			case b = <-in:
			case <-look.C:
				if !f.cut.Load() {
					continue
				}
				b.Err = store.ErrUnavailable
			}
			for f.stalled.Load() && ctx.Err() == nil {
				<-look.C
			}
			if f.compacted.CompareAndSwap(true, false) {
				b = store.Batch{Err: store.ErrCompacted}
			}
			select {
			case out <- b:
			case <-ctx.Done():
				return
			}
			if b.Err != nil {
				return
			}
		}
	}()
	return out
}

func startFaulty(t *testing.T) (*replica, *faulty) {
	t.Helper()
	f := &faulty{Store: mem.New()}
	r := startOver(t, f, control.Config{})
	t.Cleanup(func() {
		r.stop()
		_ = f.Close()
	})
	return r, f
}

// untilLed waits until a replica leads and all is well.
func (r *replica) untilLed() {
	r.t.Helper()
	r.until("a leader", func() bool {
		var st laneclient.Status
		r.must(http.StatusOK, &st, "GET", "/v1/status", nil)
		return st.OK
	})
}

func TestFullRegistry(t *testing.T) {
	t.Parallel()
	r, f := startFaulty(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/order", `{}`)
	f.fail(&f.writes, store.ErrFull)
	for _, c := range [][3]string{
		{"PUT", "/v1/services/order", `{"owner":"ann"}`}, {"POST", "/v1/lanes", `{"name":"green"}`}, {"POST", "/v1/sessions", `{}`},
	} {
		p := r.refuse(http.StatusInsufficientStorage, c[0], c[1], c[2])
		if p.Type != laneclient.ProblemFull || !strings.Contains(p.Detail, "full") {
			t.Errorf("%s %s: %+v", c[0], c[1], p)
		}
	}
	r.must(http.StatusOK, nil, "GET", "/v1/services/order", nil)
	r.must(http.StatusOK, nil, "PUT", "/v1/services/order", `{}`) // changes nothing, and so writes nothing
	var h laneclient.Health
	r.until("health to say so", func() bool {
		r.must(http.StatusOK, &h, "GET", "/healthz", nil)
		return !h.OK
	})
	if !strings.Contains(h.Roles[0].Reason, "full") {
		t.Errorf("health: %+v", h)
	}
	r.must(http.StatusOK, &h, "GET", "/readyz", nil) // reads go on
	if !h.OK || !strings.Contains(h.Roles[0].Reason, "full") {
		t.Errorf("ready: %+v", h)
	}
	var st laneclient.Status
	r.must(http.StatusOK, &st, "GET", "/v1/status", nil)
	if st.OK || st.Registry.OK || !strings.Contains(st.Problems[0], "full") {
		t.Errorf("status: %+v", st)
	}
	f.fail(&f.writes, nil)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
}

func TestRegistryIsAway(t *testing.T) {
	t.Parallel()
	r, f := startFaulty(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/a", instanceBody("", "127.0.0.1:1"))
	s := r.session(`{}`)
	w := r.watch("select=services")
	w.want("put services order")
	w.want("synced")
	r.must(http.StatusOK, nil, "GET", "/v1/explain?service=order", nil)
	f.fail(&f.reads, store.ErrUnavailable)
	f.fail(&f.writes, store.ErrUnavailable)
	for _, c := range [][3]string{
		{"GET", "/v1/lanes", ""},
		{"GET", "/v1/lanes/green", ""},
		{"PUT", "/v1/services/order", `{"owner":"ann"}`},
		{"POST", "/v1/sessions", `{}`},
		{"POST", "/v1/sessions/" + s.Name + "/renew", `{"reached":0}`},
		{"GET", "/v1/watch?select=lanes", ""},
	} {
		var body any
		if c[2] != "" {
			body = c[2]
		}
		a := r.do(c[0], c[1], body)
		if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
			t.Errorf("%s %s: %d, Retry-After %q", c[0], c[1], a.status, a.header.Get("Retry-After"))
			continue
		}
		if p := a.problem(t); p.Type != laneclient.ProblemUnavailable {
			t.Errorf("%s %s: %+v", c[0], c[1], p)
		}
	}
	// What is known goes on being explained, as it goes on being routed.
	var e laneclient.Explanation
	r.must(http.StatusOK, &e, "GET", "/v1/explain?service=order", nil)
	if e.Reason != "plain" {
		t.Errorf("explained: %+v", e)
	}
	r.until("readiness to say so", func() bool { return r.status("GET", "/readyz", nil) == http.StatusServiceUnavailable })
	f.fail(&f.reads, nil)
	f.fail(&f.writes, nil)
	r.until("readiness to come back", func() bool { return r.status("GET", "/readyz", nil) == http.StatusOK })
	r.must(http.StatusOK, nil, "PUT", "/v1/services/order", `{"owner":"ann"}`)
	w.want("put services order")
}

// TestStoreWatchBreaks: clients' watches outlive a break of the store's watch
// without a gap, and are told to list again where history is lost.
func TestStoreWatchBreaks(t *testing.T) {
	t.Parallel()
	r, f := startFaulty(t)
	w := r.watch("select=services")
	w.want("synced")
	put := func(name string) {
		t.Helper()
		if _, err := f.Store.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "laneway/services/" + name, Value: []byte(`{"name":"` + name + `"}`)}}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 5 {
		f.cut.Store(true)
		put(fmt.Sprintf("s%d", n))
		f.cut.Store(false)
		w.want(fmt.Sprintf("put services s%d", n))
	}
	f.compacted.Store(true)
	w.want("compacted")
	if _, ok := w.next(); ok {
		t.Error("a watch goes on after compacted")
	}
	put("s9")
	r.must(http.StatusOK, nil, "GET", "/v1/services/s9", nil)
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	s := mem.New()
	defer s.Close()
	c, err := control.New(control.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, c: c, base: "http://control", http: &http.Client{Transport: laneclient.InMemory(c.Handler())}}
	// Before it runs it says what it waits for, and lives.
	var h laneclient.Health
	r.must(http.StatusServiceUnavailable, &h, "GET", "/readyz", nil)
	if h.OK || h.Roles[0].Role != "control" || h.Roles[0].Reason == "" {
		t.Errorf("%+v", h)
	}
	r.must(http.StatusOK, nil, "GET", "/healthz", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	r.until("ready", func() bool { return r.status("GET", "/readyz", nil) == http.StatusOK })
	var away atomic.Bool
	c.AddReadiness("gateway", func(context.Context) error {
		if away.Load() {
			return errors.New("its listener is closed")
		}
		return nil
	})
	r.must(http.StatusOK, nil, "GET", "/readyz", nil)
	away.Store(true)
	r.must(http.StatusServiceUnavailable, &h, "GET", "/readyz", nil)
	if len(h.Roles) != 2 || h.Roles[1] != (laneclient.RoleStatus{Role: "gateway", Reason: "its listener is closed"}) {
		t.Errorf("%+v", h)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("a second Run is accepted")
	}
	if _, err := control.New(control.Config{}); err == nil {
		t.Error("a Config without a store is accepted")
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	r.session(`{"role":"made-up"}`)
	r.status("BREW", "/v1/lanes", nil)
	r.lane("green")
	text := string(r.must(http.StatusOK, nil, "GET", "/metrics", nil).body)
	for _, want := range []string{
		`laneway_objects{kind="lanes"} 1`, `laneway_lanes{state="creating"} 1`, `laneway_sessions{role="other"} 1`, `laneway_control_leader 1`,
		`laneway_api_requests_total{code="2xx",kind="lanes",method="POST"} 1`, `laneway_api_requests_total{code="4xx",kind="none",method="other"} 1`,
		`laneway_api_request_seconds_count{kind="lanes"}`, "laneway_registry_revision", "laneway_watches 0",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics have no %s", want)
		}
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "laneway_") {
			t.Errorf("metric without our prefix: %s", line)
		}
	}
}

// TestWritesRestOnWhatTheyRead: what changes between the reads of a write and its
// transaction is never overlooked.
func TestWritesRestOnWhatTheyRead(t *testing.T) {
	t.Parallel()
	r, f := startFaulty(t)
	r.untilLed()
	meanwhile := func(do func()) { f.between.Store(&do) }
	put := func(key, value string) func() {
		return func() {
			if _, err := f.Store.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "laneway/" + key, Value: []byte(value), Delete: value == ""}}}); err != nil {
				t.Error(err)
			}
		}
	}
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green","held":true}`)
	spec := instanceBody("green", "127.0.0.1:1")

	s := r.session(`{}`)
	kv, _, _, err := f.Store.Get(t.Context(), "laneway/sessions/"+s.Name)
	if err != nil {
		t.Fatal(err)
	}
	meanwhile(func() {
		if err := f.Revoke(t.Context(), kv.Lease); err != nil {
			t.Error(err)
		}
	})
	if p := r.refuse(http.StatusConflict, "PUT", "/v1/instances/order/a", spec, laneclient.SessionHeader, s.Name); p.Type != laneclient.ProblemSessionGone {
		t.Errorf("the session ended meanwhile: %+v", p)
	}
	meanwhile(put("lanes/green", `{"name":"green","generation":2,"state":"ready","ttl":"1h","held":true}`))
	var i laneclient.Instance
	r.must(http.StatusCreated, &i, "PUT", "/v1/instances/order/a", spec)
	if i.Generation != 2 {
		t.Errorf("the lane was created again meanwhile, and the instance is of generation %d", i.Generation)
	}
	meanwhile(put("lanes/green", `{"name":"green","generation":2,"state":"ended","ttl":"1h","ended_at":"2099-01-01T00:00:00Z"}`))
	if p := r.refuse(http.StatusConflict, "PUT", "/v1/instances/order/b", spec); p.Type != laneclient.ProblemLane {
		t.Errorf("the lane ended meanwhile: %+v", p)
	}
	meanwhile(put("services/order", ""))
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/c", instanceBody("", "127.0.0.1:1"))
	tag := r.must(http.StatusOK, nil, "GET", "/v1/services/order", nil).header.Get("ETag") // it came back with its instance
	meanwhile(put("services/order", `{"name":"order","owner":"bob"}`))
	p := r.refuse(http.StatusPreconditionFailed, "PUT", "/v1/services/order", `{"owner":"ann"}`, "If-Match", tag)
	if !strings.Contains(string(p.Current), "bob") {
		t.Errorf("current: %s", p.Current)
	}
	meanwhile(put("services/order", `{"name":"order","owner":"cy"}`))
	r.refuse(http.StatusPreconditionFailed, "DELETE", "/v1/services/order", nil, "If-Match", tag)
	meanwhile(put("lanes/blue", `{"name":"blue","generation":7,"state":"ready","ttl":"1h","held":true}`))
	if p := r.refuse(http.StatusConflict, "POST", "/v1/lanes", `{"name":"blue"}`); p.Type != laneclient.ProblemExists {
		t.Errorf("the lane was created meanwhile: %+v", p)
	}
}

// TestServiceStaysWithItsFirstInstance: a service is not deleted while an instance of
// it is registered, whoever is first.
func TestServiceStaysWithItsFirstInstance(t *testing.T) {
	t.Parallel()
	r, f := startFaulty(t)
	r.untilLed()
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/order", `{"owner":"ann"}`)
	register := func() {
		r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/a", instanceBody("", "127.0.0.1:1"))
	}
	f.between.Store(&register)
	if p := r.refuse(http.StatusConflict, "DELETE", "/v1/services/order", nil); !strings.Contains(p.Detail, "order/a") {
		t.Errorf("the instance is not named: %s", p.Detail)
	}
	var s laneclient.Service
	r.must(http.StatusOK, &s, "GET", "/v1/services/order", nil)
	if s.Owner != "ann" {
		t.Errorf("the service was made anew: %+v", s)
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/instances/order/a", nil)

	// The other way round it comes back with its instance.
	remove := func() { r.must(http.StatusNoContent, nil, "DELETE", "/v1/services/order", nil) }
	f.between.Store(&remove)
	register()
	r.must(http.StatusOK, &s, "GET", "/v1/services/order", nil)
	if s.Owner != "" {
		t.Errorf("the service was not deleted: %+v", s)
	}
	// And from its last instance on it can be deleted.
	r.refuse(http.StatusConflict, "DELETE", "/v1/services/order", nil)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/instances/order/a", nil)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/services/order", nil)
	if kvs, _, err := f.List(t.Context(), "laneway/", "", 0); err != nil {
		t.Error(err)
	} else {
		for _, kv := range kvs {
			if strings.Contains(kv.Key, "order") {
				t.Errorf("%s is left of a service that is deleted", kv.Key)
			}
		}
	}
}
