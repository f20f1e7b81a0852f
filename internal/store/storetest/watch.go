package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

// watcher reads a watch and checks of every batch what holds for all.
type watcher struct {
	prefix  string
	batches <-chan store.Batch
	cancel  context.CancelFunc
	reached uint64
}

// watch starts one, which ends with the test.
func watch(t *testing.T, s store.Store, prefix string, from uint64) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &watcher{prefix: prefix, batches: s.Watch(ctx, prefix, from), cancel: cancel, reached: from}
}

// receive returns the next batch, empty ones too.
func (w *watcher) receive() (store.Batch, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case b, open := <-w.batches:
		if !open {
			return b, errors.New("the channel was closed without a last batch")
		}
		return b, w.check(b)
	case <-late.C:
		return store.Batch{}, fmt.Errorf("nothing for %s", patience)
	}
}

func (w *watcher) check(b store.Batch) error {
	if b.Err != nil {
		if len(b.Events) > 0 {
			return fmt.Errorf("a last batch with events: %+v", b)
		}
		if _, open := <-w.batches; open {
			return errors.New("a batch after the last")
		}
		return nil
	}
	last := w.reached
	for i, e := range b.Events {
		switch {
		case i == 0 && e.ModRevision <= w.reached:
			return fmt.Errorf("an event of %d after a batch up to %d", e.ModRevision, w.reached)
		case e.ModRevision < last:
			return fmt.Errorf("an event of %d after one of %d", e.ModRevision, last)
		case e.ModRevision > b.Revision:
			return fmt.Errorf("an event of %d in a batch up to %d", e.ModRevision, b.Revision)
		case !strings.HasPrefix(e.Key, w.prefix):
			return fmt.Errorf("an event of %q in a watch of %q", e.Key, w.prefix)
		case e.Deleted && (e.Value != nil || e.CreateRevision != 0 || e.Lease != 0):
			return fmt.Errorf("a deletion with more than key and revision: %+v", e)
		}
		last = e.ModRevision
	}
	if b.Revision < w.reached {
		return fmt.Errorf("a batch up to %d after one up to %d", b.Revision, w.reached)
	}
	w.reached = b.Revision
	return nil
}

// next returns the next batch that has events.
func (w *watcher) next(t *testing.T) store.Batch {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		b, err := w.receive()
		if err != nil {
			t.Fatal(err)
		}
		if b.Err != nil {
			t.Fatalf("the watch ended: %v", b.Err)
		}
		if len(b.Events) > 0 {
			return b
		}
	}
	t.Fatalf("no event for %s", patience)
	return store.Batch{}
}

// end reads to the last batch and returns its error, and the events before.
func (w *watcher) end(t *testing.T) ([]store.Event, error) {
	t.Helper()
	var events []store.Event
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		b, err := w.receive()
		if err != nil {
			t.Fatal(err)
		}
		if b.Err != nil {
			return events, b.Err
		}
		events = append(events, b.Events...)
	}
	t.Fatalf("the watch goes on for %s", patience)
	return nil, nil
}

// upTo collects what happens up to a revision, as text.
func (w *watcher) upTo(revision uint64) ([]string, error) {
	var out []string
	for deadline := time.Now().Add(patience); w.reached < revision; {
		if time.Now().After(deadline) {
			return out, fmt.Errorf("the watch has reached %d of %d in %s", w.reached, revision, patience)
		}
		b, err := w.receive()
		if err != nil {
			return out, err
		}
		if b.Err != nil {
			return out, b.Err
		}
		for _, e := range b.Events {
			out = append(out, line(e))
		}
	}
	return out, nil
}

func line(e store.Event) string {
	if e.Deleted {
		return fmt.Sprintf("%d delete %s", e.ModRevision, e.Key)
	}
	return fmt.Sprintf("%d put %s=%s", e.ModRevision, e.Key, e.Value)
}

// scribe writes at random and keeps what it was told, by revision.
type scribe struct {
	mu     sync.Mutex
	lines  map[uint64][]string
	latest uint64
}

func (c *scribe) work(t *testing.T, s store.Store, writer, rounds int) {
	random := rand.New(rand.NewPCG(uint64(writer), 2))
	there := map[string]bool{}
	for i := range rounds {
		var txn store.Txn
		var change []string
		// Keys are the writer's own, so that it knows which deletions have an effect.
		for _, k := range random.Perm(12)[:1+random.IntN(6)] {
			key := fmt.Sprintf("%c/%d/%d", 'a'+k%2, writer, k)
			op := store.Op{Key: key, Value: fmt.Append(nil, i), Delete: random.IntN(3) == 0}
			txn.Ops = append(txn.Ops, op)
			switch {
			case !op.Delete:
				change = append(change, fmt.Sprintf("put %s=%d", key, i))
			case there[key]:
				change = append(change, "delete "+key)
			}
			there[key] = !op.Delete
		}
		r, err := s.Do(t.Context(), txn)
		if err != nil {
			t.Error(err)
			return
		}
		if len(change) == 0 {
			continue
		}
		c.mu.Lock()
		for _, text := range change {
			c.lines[r.Revision] = append(c.lines[r.Revision], fmt.Sprint(r.Revision, " ", text))
		}
		c.latest = max(c.latest, r.Revision)
		c.mu.Unlock()
	}
}

// want is what a watch of prefix from a revision must have seen.
func (c *scribe) want(prefix string, from uint64) []string {
	var revisions []uint64
	for r := range c.lines {
		if r > from {
			revisions = append(revisions, r)
		}
	}
	slices.Sort(revisions)
	var out []string
	for _, r := range revisions {
		for _, text := range c.lines[r] {
			if strings.Contains(text, " "+prefix) {
				out = append(out, text)
			}
		}
	}
	return out
}

// testWatchEachOnce: watches that begin before, during and after a storm of writes each
// see every revision after their start once, in order and whole.
func testWatchEachOnce(t *testing.T, s store.Store) {
	const writers, rounds = 6, 80
	start := revision(t, s)
	c := &scribe{lines: map[uint64][]string{}}
	type seen struct {
		prefix string
		from   uint64
		w      *watcher
	}
	var watches []seen
	add := func(prefix string, from uint64) {
		watches = append(watches, seen{prefix, from, watch(t, s, prefix, from)})
	}
	for _, prefix := range []string{"a/", "b/", "", "a/1/", "none/"} {
		add(prefix, start)
	}
	var wg sync.WaitGroup
	for writer := range writers {
		wg.Go(func() { c.work(t, s, writer, rounds) })
	}
	written := make(chan struct{})
	go func() {
		wg.Wait()
		close(written)
	}()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for during := true; during; {
		select {
		case <-written:
			during = false
		case <-tick.C:
			if len(watches) < 40 {
				now := revision(t, s)
				add("a/", start+(now-start)/2) // from the past
				add("", now)
			}
		}
	}
	add("", start)
	add("b/", c.latest-1)
	for _, x := range watches {
		got, err := x.w.upTo(c.latest)
		if err != nil {
			t.Errorf("watch of %q from %d: %v", x.prefix, x.from, err)
			continue
		}
		compareLines(t, fmt.Sprintf("watch of %q from %d", x.prefix, x.from), got, c.want(x.prefix, x.from))
	}
}

// compareLines compares by revision, in which the order of keys is not promised.
func compareLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	order := func(lines []string) []string {
		out := slices.Clone(lines)
		slices.SortStableFunc(out, func(a, b string) int {
			var x, y uint64
			_, _ = fmt.Sscan(a, &x)
			_, _ = fmt.Sscan(b, &y)
			if x != y {
				return 0 // never, since revisions ascend: checked as batches came
			}
			return strings.Compare(a, b)
		})
		return out
	}
	got, want = order(got), order(want)
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Errorf("%s: %d events, want %d; they differ from the %d. on:\ngot  %q\nwant %q", what, len(got), len(want), i+1,
				got[min(i, len(got)):min(i+3, len(got))], want[min(i, len(want)):min(i+3, len(want))])
			return
		}
	}
}

// testWatchProgress: a watch on which nothing happens says so every second, and how far
// the store has got meanwhile.
func testWatchProgress(t *testing.T, s store.Store) {
	start := revision(t, s)
	watches := []*watcher{watch(t, s, "quiet/", start)}
	if start < store.MaxTxnOps { // a new store's: nothing was compacted that it could lack
		watches = append(watches, watch(t, s, "quiet/", 0))
	}
	for range 5 {
		begin := time.Now()
		for _, w := range watches {
			if b, err := w.receive(); err != nil || b.Err != nil || len(b.Events) > 0 {
				t.Fatalf("got %+v, %v", b, err)
			}
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("a quiet watch said nothing for %s", took)
		}
	}
	r := put(t, s, "loud", "")
	for _, w := range watches {
		eventually(t, func() error {
			if _, err := w.receive(); err != nil {
				return err
			}
			if w.reached < r {
				return fmt.Errorf("the watch has reached %d, the store %d", w.reached, r)
			}
			return nil
		})
	}
}

func testWatchCompacted(t *testing.T, s store.Store) {
	first := put(t, s, "k", "1")
	var last uint64
	for i := range 10 {
		last = put(t, s, "k", fmt.Sprint(i))
	}
	if err := s.Compact(t.Context(), last-3); err != nil {
		t.Fatal(err)
	}
	for _, from := range []uint64{0, first, last - 5} {
		if events, err := watch(t, s, "k", from).end(t); !errors.Is(err, store.ErrCompacted) || len(events) > 0 {
			t.Errorf("a watch from %d, compacted at %d: %d events, %v", from, last-3, len(events), err)
		}
	}
	// History from the compaction's revision on is all there.
	for _, from := range []uint64{last - 4, last - 3, last - 1} {
		got, err := watch(t, s, "k", from).upTo(last)
		if err != nil || uint64(len(got)) != last-from {
			t.Errorf("a watch from %d, compacted at %d, saw %d of %d revisions, %v", from, last-3, len(got), last-from, err)
		}
	}
	// A watch that has all of it already does not care.
	w := watch(t, s, "k", last)
	if err := s.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	next := put(t, s, "k", "next")
	if got, err := w.upTo(next); err != nil || len(got) != 1 {
		t.Errorf("a watch that was ahead of a compaction saw %q, %v", got, err)
	}
}

// testWatchDeletionAtCompaction: a deletion at the very revision of a compaction is
// history from there on, as any change.
func testWatchDeletionAtCompaction(t *testing.T, s store.Store) {
	put(t, s, "k", "1")
	r := remove(t, s, "k")
	put(t, s, "other", "")
	if err := s.Compact(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b := watch(t, s, "k", r-1).next(t)
	if e := b.Events[0]; !e.Deleted || e.ModRevision != r {
		t.Errorf("got %+v, want the deletion of %d", e, r)
	}
}

// testWatchFuture: a revision that the store has not reached is not its own.
func testWatchFuture(t *testing.T, s store.Store) {
	r := put(t, s, "k", "")
	if events, err := watch(t, s, "k", r+1).end(t); !errors.Is(err, store.ErrCompacted) || len(events) > 0 {
		t.Errorf("a watch from %d at %d: %d events, %v", r+1, r, len(events), err)
	}
}

// testWatchSlowReader: a watch that nobody reads holds up nobody else, and later either
// has all events or says that it lacks some.
func testWatchSlowReader(t *testing.T, s store.Store) {
	const writers, each = 8, 400
	start := revision(t, s)
	slow, compacted := watch(t, s, "k/", start), watch(t, s, "k/", start)
	fast := watch(t, s, "k/", start)
	value := []byte(strings.Repeat("v", 500))
	c := &scribe{lines: map[uint64][]string{}}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for range each {
				r, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: fmt.Sprint("k/", w), Value: value}}})
				if err != nil {
					t.Error(err)
					return
				}
				c.mu.Lock()
				c.lines[r.Revision] = []string{fmt.Sprintf("%d put k/%d=%s", r.Revision, w, value)}
				c.latest = max(c.latest, r.Revision)
				c.mu.Unlock()
			}
		})
	}
	wg.Wait()
	want := c.want("k/", start)
	for name, w := range map[string]*watcher{"a fast reader": fast, "a slow reader": slow} {
		got, err := w.upTo(c.latest)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compareLines(t, name, got, want)
	}
	if err := s.Compact(t.Context(), c.latest); err != nil {
		t.Fatal(err)
	}
	got, err := compacted.upTo(c.latest)
	if err != nil && !errors.Is(err, store.ErrCompacted) {
		t.Fatal(err)
	}
	if err == nil {
		compareLines(t, "a slow reader of what was compacted", got, want)
	} else {
		compareLines(t, "a slow reader of what was compacted, up to where it ended", got, want[:len(got)])
	}
}

func testWatchCanceled(t *testing.T, s store.Store) {
	r := put(t, s, "k", "")
	w := watch(t, s, "k", r-1)
	w.next(t)
	w.cancel()
	if _, err := w.end(t); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled watch ended with %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	timed := &watcher{batches: s.Watch(ctx, "", r), reached: r}
	if _, err := timed.end(t); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a watch whose time was up ended with %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	never := &watcher{batches: s.Watch(canceled, "", r), reached: r}
	if _, err := never.end(t); !errors.Is(err, context.Canceled) {
		t.Errorf("a watch that was canceled before it began ended with %v", err)
	}
}

// testWatchClosed: readers learn of Close, also those that are behind.
func testWatchClosed(t *testing.T, s store.Store) {
	start := revision(t, s)
	idle, behind, far := watch(t, s, "none", start), watch(t, s, "k", start), watch(t, s, "k", start)
	for i := range 200 {
		put(t, s, "k", fmt.Sprint(i))
	}
	behind.next(t)
	within(t, "Close", func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	for name, w := range map[string]*watcher{"an idle": idle, "a slow": behind, "a very slow": far} {
		if _, err := w.end(t); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s watch of a store that closed ended with %v", name, err)
		}
	}
}
