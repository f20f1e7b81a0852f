package storetest

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

// testCloseLeavesNothing: Close waits for all goroutines of the store, whatever was
// under way.
func testCloseLeavesNothing(t *testing.T, open func(t *testing.T) store.Store) {
	// One that another test left behind for good, such as a server that cannot be
	// stopped, is none of this store's.
	before := map[string]bool{}
	for id := range ours() {
		before[id] = true
	}
	s := open(t)
	put(t, s, "k", "v")
	lease, err := s.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, store.Txn{Ops: []store.Op{{Key: "leased", Lease: lease}}})
	for range 5 {
		s.Watch(t.Context(), "k", 0)        // nobody reads these
		<-s.Watch(t.Context(), "leased", 0) // nobody reads these any more
		s.Watch(t.Context(), "", 1<<40)     // never existed
	}
	within(t, "Close", func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	// Close has returned: what is left now stays, but for the scheduler's last word.
	deadline := time.Now().Add(time.Second)
	since := func() (left []string) {
		for id, stack := range ours() {
			if !before[id] {
				left = append(left, stack)
			}
		}
		return left
	}
	left := since()
	for len(left) > 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		left = since()
	}
	if len(left) > 0 {
		t.Errorf("%d goroutines after Close:\n%s", len(left), strings.Join(left, "\n\n"))
	}
}

// ours are the stacks of goroutines that run code of a store or were started by it, each
// by its "goroutine N", which is never used again.
func ours() map[string]string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	out := map[string]string{}
	for i, stack := range strings.Split(string(buf), "\n\n") {
		if i == 0 {
			continue // this one
		}
		for _, implementation := range []string{"store/mem.", "store/etcd."} {
			if strings.Contains(stack, "laneway/internal/"+implementation) && !strings.Contains(stack, "testing.tRunner") {
				id, _, _ := strings.Cut(stack, " [")
				out[id] = stack
				break
			}
		}
	}
	return out
}
