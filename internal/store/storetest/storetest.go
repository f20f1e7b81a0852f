// Package storetest is the conformance suite of store.Store: what package store
// promises, each promise as a test that an implementation passes or fails. It assumes
// nothing of an implementation beyond that, not even that a store is new: only that no
// key under it exists when it is opened, and that nobody else writes such keys.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

// patience bounds every wait for what must happen soon, on a machine that may be busy.
const patience = 20 * time.Second

// Run tests the stores that open returns: a store without keys each time, and a history
// of its own. The suite closes them.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	run(t, open, true)
}

// RunShared is Run for stores that share revisions and history, as those on one
// cluster do: tests run one after the other.
func RunShared(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	run(t, open, false)
}

func run(t *testing.T, open func(t *testing.T) store.Store, parallel bool) {
	t.Helper()
	// First what looks at all goroutines, then the rest side by side.
	t.Run("CloseLeavesNothing", func(t *testing.T) { testCloseLeavesNothing(t, open) })
	for _, test := range []struct {
		name string
		run  func(*testing.T, store.Store)
	}{
		{"Get", testGet},
		{"ValuesAreCopies", testValuesAreCopies},
		{"List", testList},
		{"ListPages", testListPages},
		{"ListIsOfOneRevision", testListIsOfOneRevision},
		{"Linearizable", testLinearizable},
		{"Compare", testCompare},
		{"TransactionIsWhole", testTransactionIsWhole},
		{"TransactionReads", testTransactionReads},
		{"OneWins", testOneWins},
		{"Limits", testLimits},
		{"LeaseExpires", testLeaseExpires},
		{"LeaseRenewed", testLeaseRenewed},
		{"LeaseRevoked", testLeaseRevoked},
		{"LeaseGone", testLeaseGone},
		{"LeaseMoved", testLeaseMoved},
		{"WatchEachOnce", testWatchEachOnce},
		{"WatchProgress", testWatchProgress},
		{"WatchCompacted", testWatchCompacted},
		{"WatchDeletionAtCompaction", testWatchDeletionAtCompaction},
		{"WatchFuture", testWatchFuture},
		{"WatchSlowReader", testWatchSlowReader},
		{"WatchCanceled", testWatchCanceled},
		{"WatchClosed", testWatchClosed},
		{"Compact", testCompact},
		{"Canceled", testCanceled},
		{"Closed", testClosed},
		{"CloseUnderLoad", testCloseUnderLoad},
	} {
		t.Run(test.name, func(t *testing.T) {
			if parallel {
				t.Parallel()
			}
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
			if err := s.Health(t.Context()); err != nil {
				t.Fatalf("Health of a new store: %v", err)
			}
			test.run(t, s)
		})
	}
}

// put writes one key whatever it was.
func put(t *testing.T, s store.Store, key, value string) uint64 {
	t.Helper()
	return do(t, s, store.Txn{Ops: []store.Op{{Key: key, Value: []byte(value)}}}).Revision
}

func remove(t *testing.T, s store.Store, key string) uint64 {
	t.Helper()
	return do(t, s, store.Txn{Ops: []store.Op{{Key: key, Delete: true}}}).Revision
}

// do runs a transaction whose comparisons hold.
func do(t *testing.T, s store.Store, txn store.Txn) store.Result {
	t.Helper()
	r := try(t, s, txn)
	if !r.Done {
		t.Fatalf("Do(%+v): not done: %+v", txn, r)
	}
	return r
}

func try(t *testing.T, s store.Store, txn store.Txn) store.Result {
	t.Helper()
	r, err := s.Do(t.Context(), txn)
	if err != nil {
		t.Fatalf("Do(%d comparisons, %d operations): %v", len(txn.If), len(txn.Ops), err)
	}
	return r
}

// get reads a key that exists.
func get(t *testing.T, s store.Store, key string) store.KV {
	t.Helper()
	kv, found, _, err := s.Get(t.Context(), key)
	if err != nil || !found {
		t.Fatalf("Get(%q): found %t, %v", key, found, err)
	}
	return kv
}

// gone fails if key exists.
func gone(t *testing.T, s store.Store, key string) {
	t.Helper()
	kv, found, _, err := s.Get(t.Context(), key)
	if err != nil || found {
		t.Fatalf("Get(%q): want none, got %+v, %v", key, kv, err)
	}
}

func revision(t *testing.T, s store.Store) uint64 {
	t.Helper()
	r, err := s.Revision(t.Context())
	if err != nil {
		t.Fatalf("Revision: %v", err)
	}
	return r
}

// eventually polls until check is nil.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", patience, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// within runs f, which must not hang.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s: not done after %s", what, patience)
	}
}

// calls are all operations, for tests of what each does when it cannot.
func calls(s store.Store, lease store.LeaseID) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Get":      func(ctx context.Context) error { _, _, _, err := s.Get(ctx, "k"); return err },
		"List":     func(ctx context.Context) error { _, _, err := s.List(ctx, "k", "", 0); return err },
		"Revision": func(ctx context.Context) error { _, err := s.Revision(ctx); return err },
		"Do": func(ctx context.Context) error {
			_, err := s.Do(ctx, store.Txn{Ops: []store.Op{{Key: "k", Value: []byte("v")}}})
			return err
		},
		"Grant":   func(ctx context.Context) error { _, err := s.Grant(ctx, store.MinTTL); return err },
		"Renew":   func(ctx context.Context) error { _, err := s.Renew(ctx, lease); return err },
		"Revoke":  func(ctx context.Context) error { return s.Revoke(ctx, lease) },
		"Compact": func(ctx context.Context) error { return s.Compact(ctx, 1) },
		"Health":  s.Health,
	}
}

func testCanceled(t *testing.T, s store.Store) {
	lease, err := s.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, call := range calls(s, lease) {
		if err := call(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a canceled context: %v", name, err)
		}
	}
	gone(t, s, "k")
}

func testClosed(t *testing.T, s store.Store) {
	lease, err := s.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	for name, call := range calls(s, lease) {
		if err := call(t.Context()); !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	batches := s.Watch(t.Context(), "", 0)
	if b, open := <-batches; !open || !errors.Is(b.Err, store.ErrClosed) {
		t.Errorf("Watch after Close: %+v, %t", b, open)
	}
}

// testCloseUnderLoad closes a store that is being used. Every operation ends, and says
// that the store is closed if it was not done.
func testCloseUnderLoad(t *testing.T, s store.Store) {
	const users = 8
	errs := make(chan error, users)
	started := make(chan struct{}, users)
	for i := range users {
		go func() {
			for n := 0; ; n++ {
				_, err := s.Do(context.WithoutCancel(t.Context()), store.Txn{Ops: []store.Op{{Key: fmt.Sprint("k", i), Value: []byte{byte(n)}}}})
				if n == 0 {
					started <- struct{}{}
				}
				if err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range users {
		<-started
	}
	within(t, "Close", func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	within(t, "operations", func() {
		for range users {
			if err := <-errs; !errors.Is(err, store.ErrClosed) {
				t.Errorf("an operation when the store closed: %v", err)
			}
		}
	})
}
