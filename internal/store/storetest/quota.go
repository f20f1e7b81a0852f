package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/laneway-dev/laneway/internal/store"
)

// RunQuota tests what a store does whose space is used up. Its quota is limit bytes,
// which should be some megabytes, and lasts for no more than that much in keys and
// values.
func RunQuota(t *testing.T, s store.Store, limit int) {
	t.Helper()
	t.Cleanup(func() { _ = s.Close() })
	lease := grant(t, s, store.MinTTL)
	do(t, s, leased([]string{"leased"}, lease))
	r := put(t, s, "small", "before")
	w := watch(t, s, "small", r-1)
	w.next(t)
	value := make([]byte, 64<<10)
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		if n*len(value) > 2*limit {
			t.Fatalf("%d bytes fit into %d", n*len(value), limit)
		}
		_, err = s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: fmt.Sprintf("big/%d", n), Value: value}}})
	}
	if !errors.Is(err, store.ErrFull) {
		t.Fatalf("write %d: %v", n, err)
	}
	t.Logf("full after %d writes of %d bytes", n-1, len(value))
	full(t, s, value)
	// Reads go on, watches too, and so does what frees space.
	if kv := get(t, s, "small"); string(kv.Value) != "before" {
		t.Errorf("got %q", kv.Value)
	}
	if kvs, _, err := s.List(t.Context(), "big/", "", 0); err != nil || len(kvs) < n-1 {
		t.Errorf("%d of %d keys, %v", len(kvs), n-1, err)
	}
	removed := remove(t, s, "small")
	if b := w.next(t); !b.Events[0].Deleted || b.Events[0].ModRevision != removed {
		t.Errorf("got %+v, want the deletion of %d", b, removed)
	}
	eventually(t, func() error {
		_, found, _, err := s.Get(t.Context(), "leased")
		if err == nil && found {
			err = errors.New("an expired lease's key is still there")
		}
		return err
	})
	for i := range n {
		remove(t, s, fmt.Sprintf("big/%d", i))
	}
	// A store may need a moment to give space back.
	eventually(t, func() error {
		if err := s.Health(t.Context()); err != nil {
			return err
		}
		_, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "after", Value: value}}})
		return err
	})
	get(t, s, "after")
	for i := range 8 {
		put(t, s, "after", fmt.Sprint(i))
	}
}

func full(t *testing.T, s store.Store, value []byte) {
	t.Helper()
	if err := s.Health(t.Context()); !errors.Is(err, store.ErrFull) {
		t.Errorf("Health of a full store: %v", err)
	}
	for range 3 {
		if _, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "more", Value: value}}}); !errors.Is(err, store.ErrFull) {
			t.Errorf("a write to a full store: %v", err)
		}
	}
	gone(t, s, "more")
}
