package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

func orders(i int32) Partition { return Partition{Topic: "orders", Index: i} }

func newOrders(t *testing.T, partitions int32) *Memory {
	t.Helper()
	m := NewMemory(MemoryConfig{})
	if err := m.Ensure(t.Context(), TopicSpec{Name: "orders", Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	return m
}

func put(t *testing.T, m *Memory, ms ...*Message) {
	t.Helper()
	if err := m.Append(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

// peek gives what a read shows, as in "0 2green next 3 of 0-3".
func peek(t *testing.T, m *Memory, from int64, f Filter, limit int) string {
	t.Helper()
	b, err := m.Peek(orders(0), from, f, limit)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, msg := range b.Messages {
		out = append(out, fmt.Sprintf("%d%s", msg.Offset, msg.Color))
	}
	return fmt.Sprintf("%s next %d of %d-%d", strings.Join(out, " "), b.Next, b.Bounds.First, b.Bounds.End)
}

func TestMemoryReads(t *testing.T) {
	m := newOrders(t, 1)
	for _, c := range []lane.Name{"", "green", "", "green", "blue"} {
		put(t, m, &Message{Partition: orders(0), Color: c})
	}
	all := Filter{All: true}
	for _, c := range []struct {
		from  int64
		f     Filter
		limit int
		want  string
	}{
		{0, all, 10, "0 1green 2 3green 4blue next 5 of 0-5"},
		{1, all, 2, "1green 2 next 3 of 0-5"},
		{0, Filter{Color: "green"}, 1, "1green next 2 of 0-5"},
		{0, Filter{Color: "green"}, 9, "1green 3green next 5 of 0-5"},
		{0, Filter{}, 9, "0 2 next 5 of 0-5"},
		{5, all, 9, " next 5 of 0-5"},
		{7, all, 9, " next 7 of 0-5"},
	} {
		if got := peek(t, m, c.from, c.f, c.limit); got != c.want {
			t.Errorf("from %d, %+v, at most %d: got %q, want %q", c.from, c.f, c.limit, got, c.want)
		}
	}
	if err := m.Drop(orders(0), 1); err != nil {
		t.Fatal(err)
	}
	if got, want := peek(t, m, 1, all, 1), "2 next 3 of 0-5"; got != want {
		t.Errorf("after a drop: got %q, want %q", got, want)
	}
	if err := m.Retain(orders(0), 3); err != nil {
		t.Fatal(err)
	}
	if got, want := peek(t, m, 0, all, 1), "3green next 4 of 3-5"; got != want {
		t.Errorf("after retention: got %q, want %q", got, want)
	}
	if err := m.Truncate(orders(0), 4); err != nil {
		t.Fatal(err)
	}
	put(t, m, &Message{Partition: orders(0), Color: "red"})
	if got, want := peek(t, m, 0, all, 9), "3green 4red next 5 of 3-5"; got != want {
		t.Errorf("after truncation: got %q, want %q", got, want)
	}
	before, _ := m.Bounds(t.Context(), orders(0))
	if err := m.Recreate("orders"); err != nil {
		t.Fatal(err)
	}
	after, _ := m.Bounds(t.Context(), orders(0))
	if after.First != 0 || after.End != 0 || after.Epoch == before.Epoch {
		t.Errorf("created anew: bounds %+v after %+v", after, before)
	}
}

func TestMemoryPlacesByKey(t *testing.T) {
	m := newOrders(t, 4)
	for i := range 40 {
		put(t, m, &Message{Partition: orders(-1), Key: fmt.Appendf(nil, "k%d", i%10)})
		put(t, m, &Message{Partition: orders(-1)})
	}
	at := map[string]int32{}
	plain := map[int32]int{}
	for i := range int32(4) {
		b, _ := m.Peek(orders(i), 0, Filter{All: true}, 100)
		for _, msg := range b.Messages {
			if msg.Partition.Index != i {
				t.Errorf("message says %s in partition %d", msg.Partition, i)
			}
			if len(msg.Key) == 0 {
				plain[i]++
				continue
			}
			if p, ok := at[string(msg.Key)]; ok && p != i {
				t.Errorf("key %s in partitions %d and %d", msg.Key, p, i)
			}
			at[string(msg.Key)] = i
		}
	}
	for i := range int32(4) {
		if plain[i] != 10 {
			t.Errorf("partition %d has %d messages without a key: want 10 of 40", i, plain[i])
		}
	}
	if err := m.Grow(t.Context(), "orders", 6); err != nil {
		t.Fatal(err)
	}
	put(t, m, &Message{Partition: orders(5)})
	if n, _ := m.Partitions(t.Context(), "orders"); n != 6 {
		t.Errorf("%d partitions", n)
	}
}

func TestMemoryRefuses(t *testing.T) {
	m := newOrders(t, 1)
	ctx := t.Context()
	if err := m.Append(ctx, &Message{Partition: orders(0)}, &Message{Partition: orders(1)}); !errors.Is(err, ErrNoTopic) {
		t.Errorf("append to a partition that is not there: %v", err)
	}
	if got, want := peek(t, m, 0, Filter{All: true}, 9), " next 0 of 0-0"; got != want {
		t.Errorf("after a refused append: got %q, want %q", got, want)
	}
	if _, err := m.Partitions(ctx, "bills"); !errors.Is(err, ErrNoTopic) {
		t.Errorf("partitions of no topic: %v", err)
	}
	if err := m.Ensure(ctx, TopicSpec{Name: "x", Partitions: 65}); err == nil {
		t.Error("65 partitions are let through")
	}
	if err := m.Append(ctx, &Message{Partition: orders(0), Color: "No Name"}); err == nil {
		t.Error("a color that is no name is let through")
	}
	_ = m.Close()
	if _, err := m.Read(ctx, orders(0), 0, Filter{All: true}, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
}

// pass lets the time of a bubble pass: leases run out in it, and delays end.
func pass(d time.Duration) { time.Sleep(d) }

// TestMemoryDelaysAndKnowsCopies: what is delayed gets its offset when it is due, and an ID
// is taken once.
func TestMemoryDelaysAndKnowsCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newOrders(t, 1)
		put(t, m, &Message{Partition: orders(0), Color: "late", Delay: 3 * time.Second, ID: "a"})
		put(t, m, &Message{Partition: orders(0), Color: "soon", Delay: time.Second / 2})
		put(t, m, &Message{Partition: orders(0), Color: "now"}, &Message{Partition: orders(0), Color: "copy", ID: "a"})
		if got, want := peek(t, m, 0, Filter{All: true}, 9), "0now next 1 of 0-1"; got != want {
			t.Errorf("at once: got %q, want %q", got, want)
		}
		begin := time.Now()
		b, err := m.Read(t.Context(), orders(0), 1, Filter{All: true}, 9)
		if err != nil || len(b.Messages) != 1 || b.Messages[0].Color != "soon" || time.Since(begin) != time.Second/2 {
			t.Errorf("a read that waits got %+v, %v after %s", b, err, time.Since(begin))
		}
		pass(5 * time.Second / 2)
		if got, want := peek(t, m, 0, Filter{All: true}, 9), "0now 1soon 2late next 3 of 0-3"; got != want {
			t.Errorf("later: got %q, want %q", got, want)
		}
		at, err := m.At(t.Context(), orders(0), begin.Add(2*time.Second))
		if err != nil || at != 2 {
			t.Errorf("at two seconds: %d, %v", at, err)
		}
	})
}

// TestMemoryReadWaits: a read ends with a message, with its context, or after the fetch wait.
func TestMemoryReadWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newOrders(t, 1)
		begin := time.Now()
		if b, err := m.Read(t.Context(), orders(0), 0, Filter{All: true}, 9); err != nil || len(b.Messages) > 0 || time.Since(begin) != DefaultMemoryFetchWait {
			t.Errorf("read of nothing: %+v, %v after %s", b, err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		begin = time.Now()
		if _, err := m.Read(ctx, orders(0), 0, Filter{All: true}, 9); err != nil || time.Since(begin) != 100*time.Millisecond {
			t.Errorf("read with a context: %v after %s", err, time.Since(begin))
		}
		got := make(chan Batch)
		go func() {
			b, _ := m.Read(t.Context(), orders(0), 0, Filter{Color: "green"}, 9)
			got <- b
		}()
		synctest.Wait()
		put(t, m, &Message{Partition: orders(0)})
		synctest.Wait()
		put(t, m, &Message{Partition: orders(0), Color: "green"})
		if b := <-got; len(b.Messages) != 1 || b.Messages[0].Offset != 1 {
			t.Errorf("read that was woken: %+v", b)
		}
	})
}

// TestMemoryRetains by the engine's own clock.
func TestMemoryRetains(t *testing.T) {
	now := time.Unix(1000, 0)
	m := NewMemory(MemoryConfig{Now: func() time.Time { return now }})
	_ = m.Ensure(t.Context(), TopicSpec{Name: "orders", Partitions: 1, Retention: time.Minute})
	put(t, m, &Message{Partition: orders(0)})
	now = now.Add(40 * time.Second)
	put(t, m, &Message{Partition: orders(0)})
	now = now.Add(40 * time.Second)
	if got, want := peek(t, m, 0, Filter{All: true}, 9), "1 next 2 of 1-2"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_ = m.Mirror(t.Context(), "billing", "green", orders(0), 7)
	if o, ok := m.Mirrored("billing", "green", orders(0)); o != 7 || !ok {
		t.Errorf("mirrored %d, %t", o, ok)
	}
	if _, ok := m.Mirrored("billing", "", orders(0)); ok {
		t.Error("main is mirrored, too")
	}
}

// TestMemoryAllAtOnce: whoever reads sees every message once and in order, whatever else is
// going on.
func TestMemoryAllAtOnce(t *testing.T) {
	m := newOrders(t, 2)
	const writers, each = 4, 200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				_ = m.Append(t.Context(), &Message{Partition: orders(int32(w % 2)), ID: fmt.Sprintf("%d-%d", w, i/2*2)})
			}
		})
	}
	for p := range int32(2) {
		wg.Go(func() {
			var seen []int64
			for next := int64(0); len(seen) < writers/2*each/2; {
				b, err := m.Read(t.Context(), orders(p), next, Filter{All: true}, 7)
				if err != nil {
					t.Error(err)
					return
				}
				for _, msg := range b.Messages {
					seen = append(seen, msg.Offset)
				}
				next = b.Next
			}
			if !slices.IsSorted(seen) || seen[len(seen)-1] != int64(len(seen)-1) {
				t.Errorf("partition %d: %d messages up to %d", p, len(seen), seen[len(seen)-1])
			}
		})
	}
	wg.Wait()
}
