package control

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestCursorsOfTooManyPartitions: where there are the cursors of as many partitions as there
// may be, no more are made, by themselves or in a batch, which is counted as refused; those
// that there are go on.
func TestCursorsOfTooManyPartitions(t *testing.T) {
	t.Parallel()
	s := mem.New()
	defer func() { _ = s.Close() }()
	c, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Do(t.Context(), store.Txn{Ops: []store.Op{
		{Key: groupRef("billing").key(), Value: []byte(`{"name":"billing","engine":"main","topics":["orders"]}`)},
		{Key: membershipPrefix + "billing", Value: []byte("x")},
		{Key: sessionRef("s").key(), Value: []byte(`{"name":"s"}`)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	write := func(partition int, rev uint64, record string) *cursorWrite {
		t.Helper()
		f := &faults{}
		body := laneclient.CursorWrite{Notes: []laneclient.NoteWrite{{Note: json.RawMessage(`{"v":1,"pos":1}`)}}}
		if record != "" {
			body.Record = json.RawMessage(record)
		}
		w := checkWrite(laneclient.CursorName("main", "billing", "orders", partition), &body, f)
		if len(f.list) > 0 {
			t.Fatal(f.list)
		}
		w.session, w.rev, w.engine, w.group = "s", rev, "main", "billing"
		return w
	}
	const record, other = `{"v":1,"main":{"holder":null}}`, `{"v":1,"main":{"holder":null},"epoch":"e"}`
	there := func(n int) { c.cache.shelves[laneclient.KindCursors].names = make([]string, n) }

	there(maxPerKind - 1)
	made, err := c.writeCursors(t.Context(), write(0, 0, record))
	if err != nil || made.err != nil || made.rev == 0 {
		t.Fatalf("the last one is answered %+v, %v", made, err)
	}
	there(maxPerKind)
	if a, err := c.writeCursors(t.Context(), write(1, 0, record)); err == nil || toProblem(err).Status != http.StatusConflict || !strings.Contains(err.Error(), "100000 partitions") {
		t.Errorf("one more is answered %+v, %v: want what the limit is", a, err)
	}
	for what, w := range map[string]*cursorWrite{"a record that is there": write(0, made.rev, other), "a note without a record": write(2, 0, "")} {
		if a, err := c.writeCursors(t.Context(), w); err != nil || a.err != nil {
			t.Errorf("%s is answered %+v, %v", what, a, err)
		}
	}
	batch := make([]laneclient.CursorBatchWrite, 2)
	for n := range batch {
		batch[n] = laneclient.CursorBatchWrite{
			Name: laneclient.CursorName("main", "billing", "orders", 3+n), CursorWrite: laneclient.CursorWrite{Record: json.RawMessage(record)},
		}
	}
	for n, a := range c.writeAll(t.Context(), "s", batch, true) {
		if a.Status != http.StatusConflict || a.Type != "" || !strings.Contains(a.Detail, "the limit") {
			t.Errorf("write %d of a batch is answered %+v", n, a)
		}
	}
	kvs, _, err := s.List(t.Context(), root+string(laneclient.KindCursors)+"/", "", 0)
	if err != nil || len(kvs) != 1 {
		t.Errorf("there are %d records, %v, want the one that there was room for", len(kvs), err)
	}
	rec := httptest.NewRecorder()
	c.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
	for _, line := range []string{`laneway_cursor_writes_total{outcome="done"} 3`, `laneway_cursor_writes_total{outcome="refused"} 3`} {
		if !strings.Contains(rec.Body.String(), line+"\n") {
			t.Errorf("there is no %s in\n%s", line, rec.Body)
		}
	}
}
