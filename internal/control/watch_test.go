package control_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestWatchFilters(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"blue"}`)
	put := func(path, lane string) {
		t.Helper()
		if s := r.status("PUT", "/v1/instances/"+path, instanceBody(lane, "127.0.0.1:1")); s != 200 && s != 201 {
			t.Fatal(s)
		}
	}
	put("pay/a", "green")
	put("order/a", "green")
	put("order/b", "blue")
	put("order/c", "")
	green := r.watch("select=instances:lane=green")
	green.want("put instances pay/a") // in the order of their revisions
	green.want("put instances order/a")
	green.want("synced")
	base := r.watch("select=instances:lane=-&select=instances:service=order")
	base.want("put instances order/a")
	base.want("put instances order/b")
	base.want("put instances order/c") // selected twice, sent once
	base.want("synced")

	put("order/a", "blue") // leaves what green selects
	green.want("delete instances order/a")
	base.want("put instances order/a")
	put("order/b", "green")
	green.want("put instances order/b")
	base.want("put instances order/b")
	put("pay/b", "")
	base.want("put instances pay/b")
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/instances/pay/a", nil)
	green.want("delete instances pay/a")
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/instances/order/b", nil)
	green.want("delete instances order/b")
	base.want("delete instances order/b")
}

// TestWatchGoesOn: a watch that comes back is told what it has missed and no more.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/a", `{}`)
	w := r.watch("select=services")
	w.want("put services a")
	at := w.want("synced").Revision
	w.cancel()
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/b", `{}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/routes/x", `{"service":"a"}`)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/services/a", nil)
	again := r.watch(fmt.Sprintf("select=services&from=%d", at))
	last := again.want("put services b").Revision
	if e := again.want("delete services a"); e.Revision <= last {
		t.Errorf("revisions do not rise: %d after %d", e.Revision, last)
	}
	again.want("synced")
}

// TestWatchHistoryIsBounded: a watch from a revision that is no longer kept, and one
// that does not read, are told to list again; nothing is skipped in silence.
func TestWatchHistoryIsBounded(t *testing.T) {
	t.Parallel()
	r := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+"/v1/watch?select=services", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := r.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()
	w := r.watch("select=services:name=other")
	from := w.want("synced").Revision
	// More changes than are kept, many to a revision.
	const revisions, services = 250, 80
	for n := range revisions {
		var txn store.Txn
		for k := range services {
			name := fmt.Sprintf("s%02d", k)
			txn.Ops = append(txn.Ops, store.Op{Key: "laneway/services/" + name, Value: fmt.Appendf(nil, `{"name":%q,"owner":"o%d"}`, name, n)})
		}
		if res, err := r.store.Do(t.Context(), txn); err != nil || !res.Done {
			t.Fatal(res, err)
		}
	}
	r.until("the replica to see them all", func() bool { return r.status("GET", "/v1/services/s00", nil) == http.StatusOK })
	r.watch(fmt.Sprintf("select=services&from=%d", from)).want("compacted")
	w.cancel()
	// The slow one gets a beginning of the changes without a gap, then compacted.
	sc := bufio.NewScanner(slow.Body)
	seen, end, last := 0, "", uint64(0)
	for sc.Scan() {
		var e laneclient.Event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		end = string(e.Type)
		if e.Type != laneclient.EventPut {
			continue
		}
		var s laneclient.Service
		if err := json.Unmarshal(e.Object, &s); err != nil || s.Owner != fmt.Sprintf("o%d", seen/services) || e.Revision < last {
			t.Fatalf("after %d changes, at %d, comes %s at %d (%v)", seen, last, e.Object, e.Revision, err)
		}
		last = e.Revision
		seen++
	}
	if end != "compacted" || seen >= revisions*services {
		t.Errorf("the slow watch ended with %q after %d changes", end, seen)
	}
}

// n0 is 1 for the first write, which creates.
func n0(n int) int {
	if n == 0 {
		return 1
	}
	return 0
}

// TestWatchOverHTTP serves real connections, of both versions of HTTP, and a server
// whose time-outs are shorter than the watch.
func TestWatchOverHTTP(t *testing.T) {
	t.Parallel()
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("http%d", version), func(t *testing.T) {
			t.Parallel()
			r := start(t)
			srv := httptest.NewUnstartedServer(r.c.Handler())
			srv.Config.ReadTimeout, srv.Config.WriteTimeout = time.Second, time.Second
			srv.EnableHTTP2 = version == 2
			srv.StartTLS()
			defer srv.Close()
			transport := &http.Transport{ForceAttemptHTTP2: version == 2, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			defer transport.CloseIdleConnections()
			r.base, r.http = srv.URL, &http.Client{Transport: transport}
			if a := r.must(http.StatusOK, nil, "GET", "/v1/lanes", nil); a.status != 200 {
				t.Fatal(a)
			}
			w := r.watch("select=lanes")
			w.want("synced")
			for ticks := 0; ticks < 3; { // for longer than the server's time-outs
				if e := <-w.lines; e.Type == laneclient.EventProgress {
					ticks++
				} else {
					t.Fatalf("%+v", e)
				}
			}
			r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
			w.want("put lanes green")
			// A replica that stops ends its watches, so that its server can shut down.
			r.stop()
			if _, ok := w.next(); ok {
				t.Error("the watch outlives its replica")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			if err := srv.Config.Shutdown(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyWatches: many clients see one order of changes, whatever they select.
func TestManyWatches(t *testing.T) {
	t.Parallel()
	r := start(t)
	const clients, services, rounds = 60, 6, 20
	watches := make([]*watch, clients)
	for n := range watches {
		watches[n] = r.watch(fmt.Sprintf("select=instances:service=s%d", n%services))
		watches[n].want("synced")
	}
	for n := range rounds * services {
		r.must(http.StatusOK+n0(n/services), nil, "PUT", fmt.Sprintf("/v1/instances/s%d/a", n%services),
			fmt.Sprintf(`{"weight":%d}`, n/services+1))
	}
	for n, w := range watches {
		last := uint64(0)
		for round := range rounds {
			e := w.want(fmt.Sprintf("put instances s%d/a", n%services))
			var i laneclient.Instance
			if err := json.Unmarshal(e.Object, &i); err != nil || i.Weight != round+1 || e.Revision <= last || i.Revision != e.Revision {
				t.Fatalf("client %d, round %d: %+v at %d after %d (%v)", n, round, i, e.Revision, last, err)
			}
			last = e.Revision
		}
	}
}
