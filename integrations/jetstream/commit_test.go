package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestGroupCommit: what waits while a commit runs goes as one batch, up to its limits.
func TestGroupCommit(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Durability: Sync})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	l, err := e.log(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	var waiting []*pending
	const appends, each = 9, 100 // two commits: five of the appends are one
	for range appends {
		var ms []*nats.Msg
		for range each {
			ms = append(ms, encodeMessage(l, &consume.Message{Value: []byte("x")}))
		}
		waiting = append(waiting, split(ms)...)
	}
	e.mu.Lock()
	e.commits[l.stream] = waiting
	e.mu.Unlock()
	e.commitAll(t.Context(), l, committer{some: e.commitSome})
	for _, p := range waiting {
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
	}
	s, err := e.js.Stream(t.Context(), l.stream)
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int{}
	for o := uint64(1); o <= appends*each; o++ {
		m, err := s.GetMsg(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		sizes[m.Header.Get("Nats-Batch-Id")]++
	}
	if len(sizes) != 2 || sizes[""] != 0 {
		t.Errorf("commits by size: %v, want one of %d and one of %d", sizes, maxCommit, appends*each-maxCommit)
	}
}

// TestNobodyWaits: what waits for a commit goes with its caller, so that it cannot come to the log
// long after its ID is forgotten.
func TestNobodyWaits(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	batches, next := make(chan []string), make(chan struct{})
	by := committer{some: func(_ context.Context, _ log, batch []*pending) {
		var names []string
		for _, p := range batch {
			names = append(names, p.ms[0].Subject)
		}
		batches <- names
		<-next
		for _, p := range batch {
			p.done <- nil
		}
	}}
	l := log{stream: "s"}
	errs := make(chan error, 4)
	commit := func(ctx context.Context, names ...string) {
		var parts []*pending
		for _, name := range names {
			parts = append(parts, &pending{ms: []*nats.Msg{{Subject: name}}, done: make(chan error, 1)})
		}
		go func() { errs <- e.commit(ctx, l, by, parts) }()
	}
	wait := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprint(n, " wait"), func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return len(e.commits[l.stream]) == n
		})
	}
	commit(t.Context(), "a")
	if got := <-batches; fmt.Sprint(got) != "[a]" {
		t.Fatalf("commits %v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	commit(ctx, "b", "c")
	wait(2)
	commit(t.Context(), "d")
	wait(3)
	cancel()
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Fatalf("who waits no longer is told %v", err)
	}
	next <- struct{}{}
	if got := <-batches; fmt.Sprint(got) != "[d]" {
		t.Errorf("commits %v, want what somebody waits for", got)
	}
	next <- struct{}{}
	for range 2 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// TestKilledInTheMiddle: many append while the server is killed. What was acknowledged is
// there, in order, and nothing twice.
func TestKilledInTheMiddle(t *testing.T) {
	for _, d := range []Durability{Bounded, Sync} {
		t.Run(string(d), func(t *testing.T) {
			dir := t.TempDir()
			p := startPeer(t, dir, d)
			e := open(t, Config{URL: p.url, Durability: d, RequestTimeout: 2 * time.Second})
			ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
			var total atomic.Int64
			const writers = 8
			acked := make([]int, writers) // how many appends of each, one after the other
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for {
						text := fmt.Sprintf("%d/%d", w, acked[w])
						if e.Append(t.Context(), &consume.Message{Partition: orders, Value: []byte(text), Color: "green"}) != nil {
							return
						}
						acked[w]++
						total.Add(1)
					}
				})
			}
			eventually(t, "they are in the middle of it", func() bool { return total.Load() > 300 })
			p.kill()
			wg.Wait()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			p = startPeer(t, dir, d)
			t.Cleanup(p.kill)
			e = open(t, Config{URL: p.url, Durability: d})
			had := make([]int, writers)
			b, err := e.Bounds(t.Context(), orders)
			if err != nil {
				t.Fatal(err)
			}
			for at := b.First; at < b.End; {
				got, err := e.Read(t.Context(), orders, at, consume.Filter{Color: "green"}, 100)
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range got.Messages {
					var w, n int
					if _, err := fmt.Sscanf(string(m.Value), "%d/%d", &w, &n); err != nil || n != had[w] {
						t.Fatalf("offset %d has %s after %d of that writer: %v", m.Offset, m.Value, had[w], err)
					}
					had[w]++
				}
				at = got.Next
			}
			for w := range writers {
				// The last one was not acknowledged; it may be there or not.
				if had[w] != acked[w] && had[w] != acked[w]+1 {
					t.Errorf("writer %d: %d messages are there, %d were acknowledged", w, had[w], acked[w])
				}
			}
		})
	}
}
