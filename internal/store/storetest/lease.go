package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

func grant(t *testing.T, s store.Store, ttl time.Duration) store.LeaseID {
	t.Helper()
	id, err := s.Grant(t.Context(), ttl)
	if err != nil {
		t.Fatalf("Grant(%s): %v", ttl, err)
	}
	if id == 0 {
		t.Fatal("Grant gave lease 0, which is none")
	}
	return id
}

func leased(keys []string, id store.LeaseID) store.Txn {
	var txn store.Txn
	for _, key := range keys {
		txn.Ops = append(txn.Ops, store.Op{Key: key, Value: []byte(key), Lease: id})
	}
	return txn
}

// testLeaseExpires: both keys go, at one revision, not before the lease ends and not
// long after it.
func testLeaseExpires(t *testing.T, s store.Store) {
	begin := time.Now()
	id := grant(t, s, store.MinTTL)
	keys := []string{"l/1", "l/2"}
	r := do(t, s, leased(keys, id))
	put(t, s, "l/stays", "")
	if kv := get(t, s, "l/1"); kv.Lease != id {
		t.Errorf("got %+v, written with lease %d", kv, id)
	}
	w := watch(t, s, "l/", r.Revision)
	var deleted []store.Event
	for len(deleted) < 2 {
		for _, e := range w.next(t).Events {
			if e.Deleted {
				deleted = append(deleted, e)
			}
		}
	}
	if took := time.Since(begin); took < store.MinTTL || took > store.MinTTL+5*time.Second {
		t.Errorf("a lease of %s ended after %s", store.MinTTL, took)
	}
	if deleted[0].ModRevision != deleted[1].ModRevision {
		t.Errorf("two keys of a lease went at %d and %d", deleted[0].ModRevision, deleted[1].ModRevision)
	}
	gone(t, s, "l/1")
	gone(t, s, "l/2")
	get(t, s, "l/stays")
	if _, err := s.Renew(t.Context(), id); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("Renew of an expired lease: %v", err)
	}
}

func testLeaseRenewed(t *testing.T, s store.Store) {
	id := grant(t, s, store.MinTTL)
	do(t, s, leased([]string{"k"}, id))
	end := time.Now().Add(2*store.MinTTL + time.Second)
	tick := time.NewTicker(store.MinTTL / 8)
	defer tick.Stop()
	for time.Now().Before(end) {
		<-tick.C
		ttl, err := s.Renew(t.Context(), id)
		if err != nil {
			t.Fatalf("Renew: %v", err)
		}
		if ttl < store.MinTTL {
			t.Fatalf("Renew: %s, the lease has %s", ttl, store.MinTTL)
		}
		get(t, s, "k")
	}
	last := time.Now()
	eventually(t, func() error {
		_, found, _, err := s.Get(t.Context(), "k")
		if err == nil && found {
			err = errors.New("the key is still there")
		}
		return err
	})
	if left := time.Since(last); left < store.MinTTL-store.MinTTL/8 {
		t.Errorf("the lease ended %s after its last renewal", left)
	}
}

func testLeaseRevoked(t *testing.T, s store.Store) {
	id := grant(t, s, time.Hour)
	other := grant(t, s, time.Hour)
	r := do(t, s, leased([]string{"a", "b"}, id))
	do(t, s, leased([]string{"c"}, other))
	remove(t, s, "b") // its lease must forget it
	put(t, s, "b", "without a lease")
	if err := s.Revoke(t.Context(), id); err != nil {
		t.Fatalf("Revoke: %v", err)
	}
	gone(t, s, "a")
	get(t, s, "b")
	get(t, s, "c")
	seen := false
	for w := watch(t, s, "a", r.Revision); !seen; {
		for _, e := range w.next(t).Events {
			seen = seen || e.Deleted
		}
	}
	if err := s.Revoke(t.Context(), id); err != nil {
		t.Errorf("Revoke of a lease that is gone: %v", err)
	}
	if _, err := s.Renew(t.Context(), id); !errors.Is(err, store.ErrLeaseNotFound) {
		t.Errorf("Renew of a revoked lease: %v", err)
	}
}

// testLeaseGone: a write with a lease that is gone does nothing at all.
func testLeaseGone(t *testing.T, s store.Store) {
	id := grant(t, s, time.Hour)
	if err := s.Revoke(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for _, lease := range []store.LeaseID{id, 12345} {
		txn := leased([]string{"b"}, lease)
		txn.Ops = append([]store.Op{{Key: "a"}}, txn.Ops...)
		if _, err := s.Do(t.Context(), txn); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("a write with lease %d: %v", lease, err)
		}
		if _, err := s.Renew(t.Context(), lease); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("Renew(%d): %v", lease, err)
		}
	}
	gone(t, s, "a")
	gone(t, s, "b")
	for _, ttl := range []time.Duration{-time.Second, 0, time.Second, store.MinTTL - 1} {
		if id, err := s.Grant(t.Context(), ttl); err == nil {
			t.Errorf("Grant(%s) gave lease %d", ttl, id)
		}
	}
	odd := grant(t, s, store.MinTTL+time.Millisecond)
	if ttl, err := s.Renew(t.Context(), odd); err != nil || ttl < store.MinTTL+time.Millisecond {
		t.Errorf("Renew of a lease of %s: %s, %v", store.MinTTL+time.Millisecond, ttl, err)
	}
}

// testLeaseMoved: a key goes with the lease that it was last written with, if any.
func testLeaseMoved(t *testing.T, s store.Store) {
	first, second := grant(t, s, time.Hour), grant(t, s, time.Hour)
	do(t, s, leased([]string{"moved", "freed", "kept"}, first))
	do(t, s, leased([]string{"moved"}, second))
	put(t, s, "freed", "")
	if kv := get(t, s, "freed"); kv.Lease != 0 {
		t.Errorf("written without a lease, the key has %d", kv.Lease)
	}
	check := func(want map[string]bool) {
		t.Helper()
		for key, there := range want {
			if _, found, _, err := s.Get(t.Context(), key); err != nil || found != there {
				t.Errorf("%s is there: %t, want %t, %v", key, found, there, err)
			}
		}
	}
	if err := s.Revoke(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	check(map[string]bool{"moved": true, "freed": true, "kept": false})
	if err := s.Revoke(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	check(map[string]bool{"moved": false, "freed": true, "kept": false})
	// A lease with many keys ends at once, too.
	third := grant(t, s, time.Hour)
	var keys []string
	for i := range store.MaxTxnOps {
		keys = append(keys, fmt.Sprintf("many/%d", i))
	}
	do(t, s, leased(keys, third))
	if err := s.Revoke(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	if kvs, _, err := s.List(t.Context(), "many/", "", 0); err != nil || len(kvs) > 0 {
		t.Errorf("%d keys of a revoked lease are left, %v", len(kvs), err)
	}
}
