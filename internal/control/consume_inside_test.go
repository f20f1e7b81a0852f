package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// testRecord is a change of a partition's record.
func testRecord(rev uint64, partition, size int) *change {
	name := laneclient.CursorName("main", "billing", "orders", partition)
	it := &item{ref: cursorRef(name), changed: rev, body: fmt.Appendf(nil, `{"pad":"%s"}`, strings.Repeat("x", size)), sels: []selector{
		{kind: laneclient.KindCursors}, {laneclient.KindCursors, "group", "billing"},
	}}
	it.setLine()
	return newChange(rev, it.ref, nil, it)
}

// TestProgressWithRecords: who is told of a record is told how far that is, after all that
// there is to tell; others are not.
func TestProgressWithRecords(t *testing.T) {
	t.Parallel()
	h := testHub(4)
	selects, other := testWatch(h, selector{laneclient.KindCursors, "group", "billing"}), testWatch(h, selector{kind: laneclient.KindServices})
	h.done(selects, portion{next: selects.at})
	h.done(other, portion{next: other.at})
	h.publish(1, testRecord(1, 0, 1))
	h.publish(2, testChange(2, "a"))
	if p := h.take(selects); len(p.lines) != 1 || !p.tell || p.rev != 2 {
		t.Errorf("told are %d lines, and progress %t to %d", len(p.lines), p.tell, p.rev)
	} else {
		h.done(selects, p)
	}
	if selects.state != watchIdle {
		t.Error("the watch that was told all is not idle")
	}
	if p := h.take(other); len(p.lines) != 1 || p.tell {
		t.Errorf("who selects no cursors is told %d lines, and progress %t", len(p.lines), p.tell)
	} else {
		h.done(other, p)
	}
	// More than fits into a turn: the last part tells.
	for n := range uint64(4) {
		h.publish(3+n, testRecord(3+n, int(n), turnBytes/2))
	}
	lines := 0
	for lines < 4 {
		p := h.take(selects)
		if lines += len(p.lines); p.tell != (lines == 4) {
			t.Errorf("after %d lines progress is told: %t", lines, p.tell)
		}
		h.done(selects, p)
	}
	// Deletions say nothing of who has ended.
	gone := testRecord(7, 0, 1)
	gone.before, gone.after, gone.gone, gone.put = gone.after, nil, deleteLine(gone.ref, 7), nil
	h.publish(7, gone)
	if p := h.take(selects); len(p.lines) != 1 || p.tell {
		t.Errorf("of a deletion are told %d lines, and progress %t", len(p.lines), p.tell)
	}
}

// TestProgressIsNotForgotten: who was told of a record in one turn is told how far that is in a
// later one, once all that there is to tell has been told, though no record is in that.
func TestProgressIsNotForgotten(t *testing.T) {
	t.Parallel()
	h := testHub(4)
	w := &watcher{wake: make(chan struct{}, 1)}
	h.add(w, "records and services", map[selector]struct{}{{kind: laneclient.KindCursors}: {}, {kind: laneclient.KindServices}: {}})
	h.done(w, portion{next: w.at})
	const services = 4
	h.publish(1, testRecord(1, 0, 1))
	for n := range uint64(services) {
		it := &item{
			ref: serviceRef("a"), changed: 2 + n, body: fmt.Appendf(nil, `{"pad":"%s"}`, strings.Repeat("x", turnBytes/2)),
			sels: []selector{{kind: laneclient.KindServices}},
		}
		it.setLine()
		h.publish(it.changed, newChange(it.changed, it.ref, nil, it))
	}
	lines, turns, told := 0, 0, 0
	for w.state != watchIdle && turns < 10 {
		p := h.take(w)
		lines += len(p.lines)
		turns++
		if p.tell {
			told++
			if lines != 1+services || p.rev != 1+services {
				t.Errorf("after %d lines it is told that all up to %d was told", lines, p.rev)
			}
		}
		h.done(w, p)
	}
	if lines != 1+services || turns < 3 || told != 1 {
		t.Errorf("%d lines in %d turns, and progress %d times: want it once", lines, turns, told)
	}
}

// TestNotesCostNothing: however many notes are written, the history that watches share holds
// what it held, nobody who waits for news is woken, and who waits for the revision is.
func TestNotesCostNothing(t *testing.T) {
	t.Parallel()
	c := newCache(time.Now)
	c.load(nil, 1)
	event := func(key string, rev uint64) store.Event {
		return store.Event{KV: store.KV{Key: key, Value: []byte(`{"name":"order"}`), ModRevision: rev}}
	}
	c.apply(store.Batch{Revision: 2, Events: []store.Event{event(serviceRef("order").key(), 2)}})
	news := c.next()
	name := laneclient.CursorName("main", "billing", "orders", 0)
	const notes = 2 * maxHistory
	for rev := uint64(3); rev < 3+notes; rev++ {
		c.apply(store.Batch{Revision: rev, Events: []store.Event{event(noteKey(name, ""), rev)}})
	}
	if err := c.wait(t.Context(), 2+notes); err != nil {
		t.Error(err)
	}
	select {
	case <-news:
		t.Error("notes are news")
	default:
	}
	c.apply(store.Batch{Revision: 3 + notes, Events: []store.Event{event(membershipPrefix+"billing", 3+notes), event(cursorRef(name).key(), 3+notes)}})
	select {
	case <-news:
	default:
		t.Error("a record is no news")
	}
	missed, ok := c.hub.since(1)
	if !ok || len(missed) != 2 || missed[0].kind != laneclient.KindServices || missed[1].kind != laneclient.KindCursors {
		t.Errorf("the history has %d changes, all since the first: %t", len(missed), ok)
	}
}

// TestLargeRecordsBeforeTheList: of what was written before a replica was started it holds no
// more than the history has place for, and that is the last.
func TestLargeRecordsBeforeTheList(t *testing.T) {
	t.Parallel()
	const revisions, size = 1000, 100 << 10
	c := newCache(time.Now)
	c.load(nil, revisions)
	if from := c.beginBackfill(revisions); from != 0 {
		t.Fatalf("is read from %d", from)
	}
	key := cursorRef(laneclient.CursorName("main", "billing", "orders", 0)).key()
	value := fmt.Appendf(nil, `{"v":1,"epoch":"%s"}`, strings.Repeat("e", size))
	for rev := uint64(1); rev <= revisions; rev++ {
		c.apply(store.Batch{Revision: rev, Events: []store.Event{{KV: store.KV{Key: key, Value: value, ModRevision: rev}}}})
		if b := c.fill; len(b.past)*size > 2*maxHistoryBytes {
			t.Fatalf("%d records are held", len(b.past))
		} else if len(b.past) > 0 && b.past[0].rev != b.from+1 {
			t.Fatalf("what is held begins with %d, and is said to be all after %d", b.past[0].rev, b.from)
		}
	}
	if c.filling() || c.hub.size > maxHistoryBytes {
		t.Errorf("it is still read: %t; the history has %d bytes", c.filling(), c.hub.size)
	}
	if missed, ok := c.hub.since(revisions - 50); !ok || len(missed) != 50 || missed[49].rev != revisions {
		t.Errorf("of the last 50 there are %d: %t", len(missed), ok)
	}
	if _, ok := c.hub.since(revisions / 2); ok {
		t.Error("half of all are said to be there")
	}
}

// TestTombstoneOutlivesItsNamesake: an instance may have the name of a member. That it goes
// does not make the leader forget the member's tombstone.
func TestTombstoneOutlivesItsNamesake(t *testing.T) {
	t.Parallel()
	c := newCache(time.Now)
	until := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	member, instance := memberRef("billing", "a"), instanceRef("billing", "a")
	c.load([]store.KV{
		{Key: member.key(), Value: []byte(`{"name":"a","group":"billing","topics":["orders"],"until":"2026-05-01T12:00:00Z"}`), ModRevision: 2},
		{Key: instance.key(), Value: []byte(`{"name":"a","service":"billing"}`), ModRevision: 3},
	}, 3)
	c.apply(store.Batch{Revision: 4, Events: []store.Event{{KV: store.KV{Key: instance.key(), ModRevision: 4}, Deleted: true}}})
	if _, next := c.over(until.Add(-time.Second)); next != time.Second {
		t.Errorf("the next one is over in %s, want 1s", next)
	}
	if over, _ := c.over(until); len(over) != 1 || over[0].ref != member {
		t.Errorf("over are %d, want %s", len(over), member.name)
	}
	c.apply(store.Batch{Revision: 5, Events: []store.Event{{KV: store.KV{Key: member.key(), ModRevision: 5}, Deleted: true}}})
	if over, _ := c.over(until); len(over) > 0 {
		t.Errorf("over are %d, and none is left", len(over))
	}
}

// TestRecordsAreFoundByGroup: what a list of one group looks at is its part alone, also while
// the group is not known.
func TestRecordsAreFoundByGroup(t *testing.T) {
	t.Parallel()
	c := newCache(time.Now)
	var kvs []store.KV
	rev := uint64(1)
	put := func(r ref, value string) {
		rev++
		kvs = append(kvs, store.KV{Key: r.key(), Value: []byte(value), ModRevision: rev})
	}
	for _, group := range []string{"bill", "billing", "billing2"} {
		put(groupRef(group), `{"name":"`+group+`","engine":"main","topics":["orders"]}`)
		for n := range 12 {
			put(cursorRef(laneclient.CursorName("main", group, "orders", n)), `{"v":1}`)
		}
		put(memberRef(group, "a"), `{"name":"a","group":"`+group+`","topics":["orders"]}`)
	}
	put(cursorRef(laneclient.CursorName("main", "lost", "orders", 3)), `{"v":1}`)
	c.load(kvs, rev)
	for _, group := range []string{"bill", "billing", "billing2", "lost"} {
		sel := selector{laneclient.KindCursors, "group", group}
		want := 12
		if group == "lost" {
			want = 1
		}
		keep := listQuery{sels: []selector{sel}}.keep
		items, _, _ := c.listUnder(laneclient.KindCursors, []selector{sel}, "", 0, keep)
		rest, _, _ := c.listUnder(laneclient.KindCursors, []selector{sel}, laneclient.CursorName("main", group, "orders", 3), 0, keep)
		if len(items) != want || len(c.matching(map[selector]struct{}{sel: {}})) != want || group != "lost" && (len(c.named(sel)) != want || len(rest) != 6) {
			t.Errorf("%s: %d cursors among %d, then %d", group, len(items), len(c.named(sel)), len(rest))
		}
	}
	if got := c.named(selector{laneclient.KindMembers, "group", "bill"}); !slices.Equal(got, []string{"bill/a"}) {
		t.Errorf("members of bill are among %q", got)
	}
}

// FuzzCursorWrite: whatever a client sends as a write is refused with its mistakes, or is a
// transaction that a store takes.
func FuzzCursorWrite(f *testing.F) {
	for _, seed := range []string{
		`{"record":{"v":1,"main":{"holder":{"session":"s","lane":"green"}},"colors":{"blue":{"from":3,"holder":null}},"extra":[]},"notes":[{"cursor":"","note":{"v":1,"pos":5,"left":[1,3],"doubtful":-1},"compare":true,"revision":7}],"gone":["a"],"read":["blue",""],"moves":[{"kind":"take","from":3}]}`,
		`{"notes":[{"cursor":"green","note":null},{"cursor":"main","note":{"v":2}}]}`, `{"record":null}`, `{"record":{"v":1,"colors":{"A":{}}}}`,
		`{"notes":[{"cursor":"x","note":{"v":1,"pos":-1}}]}`, `{"gone":["a","a",""],"read":["green","green"]}`, `{"notes":null}`, `{"record":{"v":1,"v":2,"Main":7}}`, `{"record":[`,
	} {
		f.Add([]byte(seed))
	}
	name := laneclient.CursorName("main", "billing", "orders", 0)
	f.Fuzz(func(t *testing.T, body []byte) {
		var in laneclient.CursorWrite
		if err := decode(body, &in); err != nil {
			return
		}
		faults := &faults{}
		w := checkWrite(name, &in, faults)
		if len(faults.list) > 0 {
			return
		}
		w.session, w.group = "writer", "billing"
		txn := w.txn()
		if err := txn.Check(); err != nil && !errors.Is(err, store.ErrTooLarge) {
			t.Fatalf("%s makes a transaction that no store takes: %v", body, err)
		}
		keys := map[string]bool{}
		for _, key := range txn.Read {
			if keys[key] {
				t.Fatalf("%s reads %s twice", body, key)
			}
			keys[key] = true
		}
		// What is stored reads as the same.
		if w.record != nil {
			again := checkWrite(name, &laneclient.CursorWrite{Record: w.record}, faults)
			if len(faults.list) > 0 || !bytes.Equal(again.record, w.record) {
				t.Fatalf("%s is read back as %s: %v", w.record, again.record, faults.list)
			}
		}
		for _, n := range w.notes {
			if n.value == nil {
				continue
			}
			again := checkWrite(name, &laneclient.CursorWrite{Notes: []laneclient.NoteWrite{{Cursor: n.cursor, Note: n.value}}}, faults)
			if len(faults.list) > 0 || !bytes.Equal(again.notes[0].value, n.value) {
				t.Fatalf("%s is read back as %s: %v", n.value, again.notes[0].value, faults.list)
			}
		}
	})
}

// BenchmarkNoteSeen is what a note costs a replica that is told of it: nothing may be left.
func BenchmarkNoteSeen(b *testing.B) {
	c := newCache(time.Now)
	c.load(nil, 1)
	key := noteKey(laneclient.CursorName("main", "billing", "orders", 0), "green")
	value, err := json.Marshal(map[string]int{"v": 1, "pos": 7})
	if err != nil {
		b.Fatal(err)
	}
	rev := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		rev++
		c.apply(store.Batch{Revision: rev, Events: []store.Event{{KV: store.KV{Key: key, Value: value, ModRevision: rev}}}})
	}
	if len(c.hub.history) > 0 {
		b.Fatal("notes are in the history")
	}
}
