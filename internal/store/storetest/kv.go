package storetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/laneway-dev/laneway/internal/store"
)

func testGet(t *testing.T, s store.Store) {
	start := revision(t, s)
	gone(t, s, "k")
	first := put(t, s, "k", "1")
	if first <= start {
		t.Errorf("the first write is at %d, the store was at %d", first, start)
	}
	if kv := get(t, s, "k"); kv.Key != "k" || string(kv.Value) != "1" || kv.CreateRevision != first || kv.ModRevision != first || kv.Lease != 0 {
		t.Errorf("got %+v, written at %d", kv, first)
	}
	second := put(t, s, "k", "2")
	if kv := get(t, s, "k"); string(kv.Value) != "2" || kv.CreateRevision != first || kv.ModRevision != second {
		t.Errorf("got %+v, created at %d and written at %d", kv, first, second)
	}
	removed := remove(t, s, "k")
	gone(t, s, "k")
	if _, _, r, err := s.Get(t.Context(), "k"); err != nil || r < removed {
		t.Errorf("Get after the deletion at %d is of %d, %v", removed, r, err)
	}
	again := put(t, s, "k", "")
	if kv := get(t, s, "k"); len(kv.Value) != 0 || kv.CreateRevision != again {
		t.Errorf("got %+v, created again at %d", kv, again)
	}
	if r := revision(t, s); r < again {
		t.Errorf("Revision is %d after a write at %d", r, again)
	}
}

// testValuesAreCopies: neither what was written nor what was read is the store's.
func testValuesAreCopies(t *testing.T, s store.Store) {
	value := []byte("value")
	r := do(t, s, store.Txn{Ops: []store.Op{{Key: "k", Value: value}}})
	value[0] = 'X'
	get(t, s, "k").Value[0] = 'Y'
	kvs, _, err := s.List(t.Context(), "k", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	kvs[0].Value[0] = 'Z'
	for range 2 {
		w := watch(t, s, "k", r.Revision-1)
		event := w.next(t).Events[0]
		if string(event.Value) != "value" {
			t.Errorf("a watch got %q", event.Value)
		}
		event.Value[0] = 'W'
	}
	if kv := get(t, s, "k"); string(kv.Value) != "value" {
		t.Errorf("got %q", kv.Value)
	}
}

func testList(t *testing.T, s store.Store) {
	for _, key := range []string{"b/2", "a", "b/1", "b", "b/", "b/1/x", "b0", "b\xff", "b\xff\xff", "c"} {
		put(t, s, key, "value of "+key)
	}
	for _, test := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"b/", "", 0, []string{"b/", "b/1", "b/1/x", "b/2"}},
		{"b/", "", 2, []string{"b/", "b/1"}},
		{"b/", "", 4, []string{"b/", "b/1", "b/1/x", "b/2"}},
		{"b/", "b/1", 0, []string{"b/1/x", "b/2"}},
		{"b/", "b/1", 1, []string{"b/1/x"}},
		{"b/", "b/15", 0, []string{"b/2"}},
		{"b/", "b/2", 0, nil},
		{"b/", "b/9", 0, nil},
		{"b/", "a", 0, []string{"b/", "b/1", "b/1/x", "b/2"}},
		{"b/", "c", 0, nil},
		{"b/", "z", 3, nil},
		{"b\xff", "", 0, []string{"b\xff", "b\xff\xff"}},
		{"b\xff", "b\xff", 0, []string{"b\xff\xff"}},
		{"b\xff", "b\xff\xff", 0, nil},
		{"", "", 0, []string{"a", "b", "b/", "b/1", "b/1/x", "b/2", "b0", "b\xff", "b\xff\xff", "c"}},
		{"", "b/2", 3, []string{"b0", "b\xff", "b\xff\xff"}},
		{"", "c", 0, nil},
		{"none", "", 0, nil},
	} {
		kvs, r, err := s.List(t.Context(), test.prefix, test.after, test.limit)
		if err != nil {
			t.Errorf("List(%q, %q, %d): %v", test.prefix, test.after, test.limit, err)
			continue
		}
		var keys []string
		for _, kv := range kvs {
			keys = append(keys, kv.Key)
			if string(kv.Value) != "value of "+kv.Key || kv.ModRevision == 0 || kv.ModRevision > r {
				t.Errorf("List(%q, %q, %d) at %d has %+v", test.prefix, test.after, test.limit, r, kv)
			}
		}
		if !slices.Equal(keys, test.want) {
			t.Errorf("List(%q, %q, %d): got %q, want %q", test.prefix, test.after, test.limit, keys, test.want)
		}
	}
}

// many keys, more than an implementation is likely to read at once.
const many = 2500

func fill(t *testing.T, s store.Store, value string) {
	t.Helper()
	for i := 0; i < many; i += store.MaxTxnOps {
		var txn store.Txn
		for j := i; j < min(i+store.MaxTxnOps, many); j++ {
			txn.Ops = append(txn.Ops, store.Op{Key: fmt.Sprintf("n/%05d", j), Value: []byte(value)})
		}
		do(t, s, txn)
	}
}

func testListPages(t *testing.T, s store.Store) {
	fill(t, s, "v")
	for _, limit := range []int{0, 1, 999, 1000, 1001, many, many + 1} {
		after, got := "", 0
		for {
			kvs, _, err := s.List(t.Context(), "n/", after, limit)
			if err != nil {
				t.Fatal(err)
			}
			if limit > 0 && len(kvs) > limit {
				t.Fatalf("limit %d: %d keys", limit, len(kvs))
			}
			for _, kv := range kvs {
				if want := fmt.Sprintf("n/%05d", got); kv.Key != want {
					t.Fatalf("limit %d: got %s, want %s", limit, kv.Key, want)
				}
				got++
			}
			if limit == 0 || len(kvs) < limit || (limit == 1 && got == 20) {
				break
			}
			after = kvs[len(kvs)-1].Key
		}
		if want := map[bool]int{false: many, true: 20}[limit == 1]; got != want {
			t.Errorf("limit %d: %d keys, want %d", limit, got, want)
		}
	}
}

// testListIsOfOneRevision lists while one transaction after the other writes the first
// and the last key alike, and while history is compacted.
func testListIsOfOneRevision(t *testing.T, s store.Store) {
	fill(t, s, "")
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			value := fmt.Append(nil, i)
			r, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{
				{Key: "n/00000", Value: value}, {Key: fmt.Sprintf("n/%05d", many-1), Value: value},
			}})
			if err == nil && i%50 == 0 {
				err = s.Compact(t.Context(), r.Revision)
			}
			if err != nil {
				t.Errorf("write %d: %v", i, err)
				return
			}
		}
	})
	defer writer.Wait()
	defer close(stop)
	var last uint64
	for range 30 {
		kvs, r, err := s.List(t.Context(), "n/", "", 0)
		if errors.Is(err, store.ErrCompacted) {
			continue // fair, if all tries were overtaken
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(kvs) != many {
			t.Fatalf("%d keys, want %d", len(kvs), many)
		}
		a, b := kvs[0], kvs[many-1]
		if string(a.Value) != string(b.Value) || a.Value == nil && last > 0 && r < last {
			t.Fatalf("a list at %d has %q and %q, written together", r, a.Value, b.Value)
		}
		if r < last || a.ModRevision > r {
			t.Fatalf("a list at %d, after one at %d, has a key of %d", r, last, a.ModRevision)
		}
		last = r
	}
}

// access is one operation on a register as its caller saw it, with a logical clock.
type access struct {
	begin, end int
	write      bool
	value      string
	mod, rev   uint64 // of the key read; of the store, or of the write
}

// testLinearizable checks a history of concurrent reads and writes of one key. Since
// every answer names its revision, that takes no search: revisions must agree with the
// order in time, and each read with the write that its revision says it saw.
func testLinearizable(t *testing.T, s store.Store) {
	const clients, each = 6, 60
	var (
		mu      sync.Mutex
		clock   int
		history []access
		wg      sync.WaitGroup
	)
	tick := func() int {
		mu.Lock()
		defer mu.Unlock()
		clock++
		return clock
	}
	for c := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), 1))
			for i := range each {
				a := access{begin: tick(), write: random.IntN(2) == 0}
				var err error
				if a.write {
					a.value = fmt.Sprintf("%d-%d", c, i)
					var r store.Result
					r, err = s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "register", Value: []byte(a.value)}}})
					a.mod, a.rev = r.Revision, r.Revision
				} else {
					var kv store.KV
					kv, _, a.rev, err = s.Get(t.Context(), "register")
					a.value, a.mod = string(kv.Value), kv.ModRevision
				}
				if err != nil {
					t.Error(err)
					return
				}
				a.end = tick()
				mu.Lock()
				history = append(history, a)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	checkHistory(t, history)
}

func checkHistory(t *testing.T, history []access) {
	t.Helper()
	written := map[uint64]string{0: ""}
	for _, a := range history {
		if a.write {
			if _, twice := written[a.rev]; twice {
				t.Fatalf("two writes at %d", a.rev)
			}
			written[a.rev] = a.value
		}
	}
	for _, a := range history {
		if !a.write {
			if value, known := written[a.mod]; !known || value != a.value {
				t.Errorf("a read at %d got %q of %d, where %q was written", a.rev, a.value, a.mod, value)
			}
			for r := range written {
				if a.mod < r && r <= a.rev {
					t.Errorf("a read at %d got the value of %d, not that of %d", a.rev, a.mod, r)
				}
			}
		}
		for _, b := range history {
			if a.end < b.begin && (a.rev > b.rev || (b.write && a.rev == b.rev)) {
				t.Errorf("%+v ended before %+v began", a, b)
			}
		}
	}
}

func testCompare(t *testing.T, s store.Store) {
	a, b := put(t, s, "a", "1"), put(t, s, "b", "1")
	for _, test := range []struct {
		name string
		cond []store.Compare
		done bool
		keys []string // of Current
	}{
		{"none", nil, true, nil},
		{"revision", []store.Compare{{Key: "a", Revision: a}}, true, nil},
		{"other revision", []store.Compare{{Key: "a", Revision: b}}, false, []string{"a"}},
		{"later revision", []store.Compare{{Key: "a", Revision: b + 100}}, false, []string{"a"}},
		{"absent", []store.Compare{{Key: "none"}}, true, nil},
		{"absent, but there", []store.Compare{{Key: "a"}}, false, []string{"a"}},
		{"there", []store.Compare{{Key: "a", Revision: store.Exists}}, true, nil},
		{"there, but absent", []store.Compare{{Key: "none", Revision: store.Exists}}, false, nil},
		{"revision of what is absent", []store.Compare{{Key: "none", Revision: a}}, false, nil},
		{"all", []store.Compare{{Key: "b", Revision: b}, {Key: "a", Revision: a}, {Key: "none"}}, true, nil},
		{"all but the last", []store.Compare{{Key: "b", Revision: b}, {Key: "a", Revision: a}, {Key: "none", Revision: store.Exists}}, false, []string{"b", "a"}},
		{"all but the first", []store.Compare{{Key: "none", Revision: 1}, {Key: "b", Revision: b}, {Key: "a", Revision: store.Exists}}, false, []string{"b", "a"}},
	} {
		before := revision(t, s)
		r := try(t, s, store.Txn{If: test.cond, Ops: []store.Op{{Key: "written", Value: []byte(test.name)}}})
		if r.Done != test.done {
			t.Errorf("%s: done %t, want %t", test.name, r.Done, test.done)
			continue
		}
		var keys []string
		for _, kv := range r.Current {
			keys = append(keys, kv.Key)
			if want := get(t, s, kv.Key); !reflect.DeepEqual(kv, want) {
				t.Errorf("%s: Current has %+v, the store %+v", test.name, kv, want)
			}
		}
		if !slices.Equal(keys, test.keys) {
			t.Errorf("%s: Current has %q, want %q", test.name, keys, test.keys)
		}
		kv, found, now, err := s.Get(t.Context(), "written")
		if err != nil {
			t.Fatal(err)
		}
		if wrote := found && string(kv.Value) == test.name; wrote != test.done {
			t.Errorf("%s: done is %t and written %t", test.name, test.done, wrote)
		}
		if test.done && (r.Revision <= before || kv.ModRevision != r.Revision) {
			t.Errorf("%s: Revision is %d, the key's %d, the store's was %d", test.name, r.Revision, kv.ModRevision, before)
		}
		if !test.done && (r.Revision < before || r.Revision > now) {
			t.Errorf("%s: Revision is %d, the store's %d to %d", test.name, r.Revision, before, now)
		}
	}
}

func testTransactionIsWhole(t *testing.T, s store.Store) {
	put(t, s, "old", "x")
	r := do(t, s, store.Txn{Ops: []store.Op{
		{Key: "a", Value: []byte("1")}, {Key: "old", Delete: true}, {Key: "b", Value: []byte("2")}, {Key: "none", Delete: true},
	}})
	for _, key := range []string{"a", "b"} {
		if kv := get(t, s, key); kv.ModRevision != r.Revision {
			t.Errorf("%s is of %d, the transaction of %d", key, kv.ModRevision, r.Revision)
		}
	}
	gone(t, s, "old")
	batch := watch(t, s, "", r.Revision-1).next(t)
	var got []string
	for _, e := range batch.Events {
		if e.ModRevision == r.Revision {
			got = append(got, fmt.Sprint(e.Key, " ", e.Deleted))
		}
	}
	slices.Sort(got)
	if want := []string{"a false", "b false", "old true"}; !slices.Equal(got, want) {
		t.Errorf("events of one transaction: got %q, want %q", got, want)
	}
	// What changes nothing makes no revision that a watch would wait for in vain.
	for _, txn := range []store.Txn{{}, {Ops: []store.Op{{Key: "none", Delete: true}}}} {
		if got := do(t, s, txn); got.Revision < r.Revision || got.Revision > revision(t, s) {
			t.Errorf("%+v is at %d, the store at %d", txn, got.Revision, revision(t, s))
		}
	}
}

// testTransactionReads: what a transaction reads is as it is at its own revision, whether it
// took effect or not.
func testTransactionReads(t *testing.T, s store.Store) {
	a, b := put(t, s, "a", "1"), put(t, s, "b", "1")
	check := func(what string, r store.Result, done bool, keys ...string) {
		t.Helper()
		if r.Done != done || r.Revision != revision(t, s) {
			t.Errorf("%s: done %t at %d, want %t at %d", what, r.Done, r.Revision, done, revision(t, s))
		}
		var got []string
		for _, kv := range r.Read {
			got = append(got, kv.Key)
			if want := get(t, s, kv.Key); !reflect.DeepEqual(kv, want) {
				t.Errorf("%s: Read has %+v, the store %+v", what, kv, want)
			}
		}
		if !slices.Equal(got, keys) {
			t.Errorf("%s: Read has %q, want %q", what, got, keys)
		}
	}
	all := []string{"b", "none", "a"}
	check("nothing but reads", do(t, s, store.Txn{Read: all}), true, "b", "a")
	check("beside a comparison", do(t, s, store.Txn{If: []store.Compare{{Key: "a", Revision: a}}, Read: all}), true, "b", "a")
	check("beside a write", do(t, s, store.Txn{If: []store.Compare{{Key: "b", Revision: b}}, Ops: []store.Op{{Key: "c"}}, Read: all}), true, "b", "a")
	check("without what was written", do(t, s, store.Txn{Ops: []store.Op{{Key: "b", Value: []byte("2")}, {Key: "none", Value: []byte("1")}}, Read: all}), true, "a")
	check("without what was deleted", do(t, s, store.Txn{Ops: []store.Op{{Key: "none", Delete: true}}, Read: all}), true, "b", "a")
	r := try(t, s, store.Txn{If: []store.Compare{{Key: "a", Revision: a + 1}, {Key: "c"}}, Ops: []store.Op{{Key: "b", Delete: true}}, Read: all})
	check("refused", r, false, "b", "a")
	if len(r.Current) != 2 || r.Current[0].Key != "a" || r.Current[1].Key != "c" {
		t.Errorf("Current of one that also reads has %+v", r.Current)
	}
}

// testOneWins: of writers that compare the same keys, one wins each round, and the
// others get what it wrote.
func testOneWins(t *testing.T, s store.Store) {
	const writers, rounds = 8, 25
	keys := []string{"x", "y", "z"}
	cond := []store.Compare{{Key: "x"}, {Key: "y"}, {Key: "z"}}
	for round := range rounds {
		results := make([]store.Result, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				txn := store.Txn{If: cond}
				// Each writes another two of the three, so that no single key decides.
				for _, i := range []int{w, w + 1} {
					txn.Ops = append(txn.Ops, store.Op{Key: keys[i%3], Value: fmt.Append(nil, round, "-", w)})
				}
				var err error
				if results[w], err = s.Do(t.Context(), txn); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		winner := -1
		for w, r := range results {
			if r.Done {
				if winner >= 0 {
					t.Fatalf("round %d: writers %d and %d both won", round, winner, w)
				}
				winner = w
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		for i, key := range keys {
			kv, _, _, err := s.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			mine := i == winner%3 || i == (winner+1)%3
			if wrote := string(kv.Value) == fmt.Sprint(round, "-", winner); wrote != mine {
				t.Fatalf("round %d, won by %d: %s is %q", round, winner, key, kv.Value)
			}
			cond[i].Revision = kv.ModRevision
		}
		for w, r := range results {
			if w != winner && r.Revision < results[winner].Revision {
				t.Fatalf("round %d: a loser learned of %d, the winner wrote %d", round, r.Revision, results[winner].Revision)
			}
		}
	}
}

func testLimits(t *testing.T, s store.Store) {
	ops := func(n, size int) []store.Op {
		out := make([]store.Op, n)
		for i := range out {
			out[i] = store.Op{Key: fmt.Sprintf("limit/%03d", i), Value: []byte(strings.Repeat("v", size))}
		}
		return out
	}
	cond := func(n int) []store.Compare {
		out := make([]store.Compare, n)
		for i := range out {
			out[i] = store.Compare{Key: fmt.Sprintf("none/%03d", i)}
		}
		return out
	}
	keys := func(n int) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = fmt.Sprintf("limit/%03d", i)
		}
		return out
	}
	for name, txn := range map[string]store.Txn{
		"operations":     {Ops: ops(store.MaxTxnOps+1, 1)},
		"comparisons":    {If: cond(store.MaxTxnOps + 1)},
		"reads":          {Read: keys(store.MaxTxnOps + 1)},
		"reads beside":   {If: cond(store.MaxTxnOps), Ops: ops(1, 1), Read: keys(1)},
		"bytes":          {Ops: ops(2, store.MaxTxnBytes/2)},
		"bytes in a key": {Ops: []store.Op{{Key: strings.Repeat("k", store.MaxTxnBytes+1)}}},
	} {
		if _, err := s.Do(t.Context(), txn); !errors.Is(err, store.ErrTooLarge) {
			t.Errorf("too many %s: %v", name, err)
		}
	}
	for name, txn := range map[string]store.Txn{
		"key twice":           {Ops: []store.Op{{Key: "limit/a"}, {Key: "limit/a"}}},
		"put and deleted":     {Ops: []store.Op{{Key: "limit/a"}, {Key: "limit/a", Delete: true}}},
		"deleted twice":       {Ops: []store.Op{{Key: "limit/a", Delete: true}, {Key: "limit/a", Delete: true}}},
		"empty key":           {Ops: []store.Op{{Key: ""}}},
		"empty key to delete": {Ops: []store.Op{{Key: "", Delete: true}}},
		"empty key read":      {Read: []string{""}, Ops: []store.Op{{Key: "limit/a"}}},
		"empty key compared":  {If: []store.Compare{{Key: ""}}, Ops: []store.Op{{Key: "limit/a"}}},
	} {
		if _, err := s.Do(t.Context(), txn); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if kvs, _, err := s.List(t.Context(), "limit/", "", 0); err != nil || len(kvs) > 0 {
		t.Errorf("refused transactions wrote %d keys, %v", len(kvs), err)
	}
	do(t, s, store.Txn{If: cond(store.MaxTxnOps), Ops: ops(store.MaxTxnOps, store.MaxTxnBytes/store.MaxTxnOps-100)})
	if r := try(t, s, store.Txn{If: append(cond(store.MaxTxnOps-1), store.Compare{Key: "limit/000"}), Ops: ops(1, 1)}); r.Done || len(r.Current) != 1 {
		t.Errorf("a full comparison: done %t, %d keys", r.Done, len(r.Current))
	}
	half := store.MaxTxnOps / 2
	if r := do(t, s, store.Txn{If: cond(half), Ops: ops(store.MaxTxnOps, 1), Read: keys(half)}); len(r.Read) != 0 {
		t.Errorf("what is written and read: %d keys", len(r.Read))
	}
	if r := do(t, s, store.Txn{If: cond(half), Ops: []store.Op{{Key: "limit/a"}}, Read: keys(half)}); len(r.Read) != half {
		t.Errorf("what is read beside: %d keys, want %d", len(r.Read), half)
	}
}

func testCompact(t *testing.T, s store.Store) {
	r := put(t, s, "k", "1")
	put(t, s, "k", "2")
	last := put(t, s, "other", "3")
	for _, at := range []uint64{0, 1, r, r, r - 1, last, last + 1000} {
		if err := s.Compact(t.Context(), at); err != nil {
			t.Errorf("Compact(%d) at %d: %v", at, last, err)
		}
	}
	if kv := get(t, s, "k"); string(kv.Value) != "2" || kv.CreateRevision != r {
		t.Errorf("after a compaction: %+v", kv)
	}
	if got := revision(t, s); got != last {
		t.Errorf("Revision is %d after a compaction, it was %d", got, last)
	}
	if next := put(t, s, "k", "3"); next <= last {
		t.Errorf("a write at %d after a compaction at %d", next, last)
	}
}
