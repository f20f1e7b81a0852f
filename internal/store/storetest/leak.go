package storetest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

// testCloseLeavesNothing: Close waits for all goroutines of the store, whatever was
// under way.
func testCloseLeavesNothing(t *testing.T, open func(t *testing.T) store.Store) {
	before := ours()
	if len(before) > 0 {
		t.Fatalf("goroutines of another store run: the suite cannot tell them apart:\n%s", strings.Join(before, "\n\n"))
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
	left := ours()
	for len(left) > 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
		left = ours()
	}
	if len(left) > 0 {
		t.Errorf("%d goroutines after Close:\n%s", len(left), strings.Join(left, "\n\n"))
	}
}

// ours are the stacks of goroutines that run code of a store or were started by it.
func ours() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var out []string
	for i, stack := range strings.Split(string(buf), "\n\n") {
		if i == 0 {
			continue // this one
		}
		for _, implementation := range []string{"store/mem.", "store/etcd."} {
			if strings.Contains(stack, "laneway/internal/"+implementation) && !strings.Contains(stack, "testing.tRunner") {
				out = append(out, fmt.Sprint(stack))
				break
			}
		}
	}
	return out
}
