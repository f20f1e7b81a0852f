package control_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// picture applies a watch's events to what a client had, up to synced.
func (w *watch) picture(had map[string]string) map[string]string {
	w.t.Helper()
	now, last := maps.Clone(had), uint64(0)
	if now == nil {
		now = map[string]string{}
	}
	for {
		e, ok := w.next()
		if !ok || e.Type == laneclient.EventCompacted {
			w.t.Fatalf("the watch ends with %q", e.Type)
		}
		if e.Revision < last {
			w.t.Fatalf("revision %d comes after %d", e.Revision, last)
		}
		last = e.Revision
		switch e.Type {
		case laneclient.EventPut:
			now[string(e.Kind)+" "+e.Name] = string(e.Object)
		case laneclient.EventDelete:
			delete(now, string(e.Kind)+" "+e.Name)
		default:
			return now
		}
	}
}

// shown is a lane as a replica shows it.
func shown(r *replica, name string) (l laneclient.Lane) {
	r.t.Helper()
	r.must(http.StatusOK, &l, "GET", "/v1/lanes/"+name, nil)
	return l
}

// TestRestartedReplicaKnowsHistory: a client that was some hundreds of revisions
// behind when the control plane was started again goes on from where it was.
func TestRestartedReplicaKnowsHistory(t *testing.T) {
	t.Parallel()
	s := mem.New(mem.WithHistory(50_000))
	r := startOver(t, s, control.Config{})
	t.Cleanup(func() { _ = s.Close() })
	selects := []string{
		"select=lanes", "select=services:name=s1", "select=instances", "select=instances:service=s1", "select=rules",
		"select=instances:lane=green", "select=instances:lane=-&select=services", "select=rules:lane=green&select=instances:session=x",
	}
	for _, name := range []string{"green", "blue"} {
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"`+name+`","held":true}`)
	}
	r.must(http.StatusCreated, nil, "PUT", "/v1/rules/testers", `{"match":{"path":"/x"},"lanes":[{"lane":"green","percent":100}]}`)
	for n := range 10 {
		r.must(http.StatusCreated, nil, "PUT", fmt.Sprintf("/v1/instances/s%d/a", n), instanceBody("green", "127.0.0.1:1"))
		r.must(http.StatusCreated, nil, "PUT", fmt.Sprintf("/v1/instances/s%d/b", n), instanceBody("", "127.0.0.1:1"))
	}
	before := make([]map[string]string, len(selects))
	from := make([]uint64, len(selects))
	for n, sel := range selects {
		w := r.watch(sel)
		before[n] = w.picture(nil)
		from[n] = r.lane("green").Revision // at least; the view may be further
		var list laneclient.List
		r.must(http.StatusOK, &list, "GET", "/v1/lanes", nil)
		from[n] = list.Revision
	}
	r.stop()

	// While no replica runs, the store goes on: another one has written.
	do := func(key, value string) {
		t.Helper()
		op := store.Op{Key: "laneway/" + key, Value: []byte(value), Delete: value == ""}
		if res, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{op}}); err != nil || !res.Done {
			t.Fatal(res, err)
		}
	}
	for n := range 300 {
		do("services/busy", fmt.Sprintf(`{"name":"busy","owner":"o%d"}`, n))
	}
	do("instances/s1/a", `{"name":"a","service":"s1","lane":"blue","generation":1,"state":"ready"}`)                   // leaves green
	do("instances/s2/a", "")                                                                                           // is gone
	do("instances/s3/b", `{"name":"b","service":"s3","lane":"green","generation":1,"state":"ready"}`)                  // comes to green
	do("instances/s4/c", `{"name":"c","service":"s4","static":true,"state":"ready"}`)                                  // is new
	do("health/s5/b", `{"state":"failing"}`)                                                                           // looks different
	do("uses/green", `{"at":"2026-05-01T00:00:00Z"}`)                                                                  // the same
	do("instances/s6/x", `{"name":"x","service":"s6","state":"ready"}`)                                                // comes
	do("instances/s6/x", "")                                                                                           // and goes
	do("lanes/green", `{"name":"green","generation":1,"state":"ended","ttl":"72h","ended_at":"2099-01-01T00:00:00Z"}`) // so does the rule's status
	again := startOver(t, s, control.Config{})
	again.until("lanes ready", func() bool { return shown(again, "blue").State == "ready" }) // nothing changes from then on
	for n, sel := range selects {
		now := again.watch(sel).picture(nil)
		got := again.watch(fmt.Sprintf("%s&from=%d", sel, from[n])).picture(before[n])
		if !maps.Equal(got, now) {
			a, _ := json.Marshal(got)
			b, _ := json.Marshal(now)
			t.Errorf("%s: a watch that goes on comes to\n%s\nwant\n%s", sel, a, b)
		}
	}
	// It skips none: a watch of one service sees every revision of it, as it was.
	w := again.watch(fmt.Sprintf("select=services:name=busy&from=%d", from[0]))
	for n := range 300 {
		if e, ok := w.next(); !ok || !strings.Contains(string(e.Object), fmt.Sprintf(`"o%d"`, n)) {
			t.Fatalf("change %d of a service that changed 300 times is %+v", n, e)
		}
	}
	// From before what is read, it is told to list anew.
	again.stop()
	for n := range 33_000 {
		do("notes/main/billing/orders/0/main", fmt.Sprintf(`{"v":1,"pos":%d}`, n))
	}
	third := startOver(t, s, control.Config{})
	third.watch(fmt.Sprintf("select=services&from=%d", from[0])).want("compacted")
}

// TestStoreWithoutHistory: a store that has kept little history is one of which
// little is read.
func TestStoreWithoutHistory(t *testing.T) {
	t.Parallel()
	s := mem.New()
	t.Cleanup(func() { _ = s.Close() })
	put := func(n int) uint64 {
		t.Helper()
		res, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "laneway/services/a", Value: fmt.Appendf(nil, `{"name":"a","owner":"o%d"}`, n)}}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Revision
	}
	var last uint64
	for n := range 200 {
		last = put(n)
	}
	if err := s.Compact(t.Context(), last-100); err != nil {
		t.Fatal(err)
	}
	r := startOver(t, s, control.Config{})
	w := r.watch(fmt.Sprintf("select=services&from=%d", last-50))
	for range 50 {
		w.want("put services a")
	}
	w.want("synced")
	r.watch(fmt.Sprintf("select=services&from=%d", last-150)).want("compacted")
	put(1000)
	w.want("put services a")
}
