package consume

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// tailRig is a tail over a log in memory.
type tailRig struct {
	t   *testing.T
	m   *Memory
	tl  *tail
	p   Partition
	log []*Message
}

func newTailRig(t *testing.T) *tailRig {
	r := &tailRig{t: t, m: NewMemory(MemoryConfig{}), p: Partition{Topic: "orders"}}
	if err := r.m.Ensure(t.Context(), TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	r.tl = newTail(r.m, r.p)
	t.Cleanup(func() { _ = r.m.Close() })
	return r
}

func (r *tailRig) append(colors ...lane.Name) {
	r.t.Helper()
	for _, c := range colors {
		m := &Message{Partition: r.p, Color: c}
		if err := r.m.Append(r.t.Context(), m); err != nil {
			r.t.Fatal(err)
		}
	}
	b, err := r.m.Peek(r.p, 0, Filter{All: true}, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	r.log = b.Messages
}

// look gives how far main has read and how many colors are waited for.
func (r *tailRig) look() (next int64, waiting int) {
	r.tl.mu.Lock()
	defer r.tl.mu.Unlock()
	return r.tl.next, len(r.tl.waiting)
}

// main reads as main does, and gives where it has come to.
func (r *tailRig) main(from int64, most int) int64 {
	r.t.Helper()
	b, cached, err := r.tl.read(r.t.Context(), from, Filter{All: true}, most, false)
	if err != nil || cached {
		r.t.Fatalf("main's read from %d: %v, cached %v", from, err, cached)
	}
	return b.Next
}

// holds checks that a batch has what the log has of a color, and is not beyond what main has read.
func (r *tailRig) holds(from int64, color lane.Name, b Batch) {
	r.t.Helper()
	var want []int64
	for _, m := range r.log {
		if m.Color == color && m.Offset >= from && m.Offset < b.Next {
			want = append(want, m.Offset)
		}
	}
	var got []int64
	for _, m := range b.Messages {
		got = append(got, m.Offset)
	}
	if main, _ := r.look(); !slices.Equal(got, want) || b.Next < from || b.Next > main {
		r.t.Fatalf("%q from %d: %d and next %d, the log has %d; main is at %d", color, from, got, b.Next, want, main)
	}
}

// TestTailGivesWhatTheLogHas: whatever main reads and where it begins, what a tail gives is what the
// engine would have given.
func TestTailGivesWhatTheLogHas(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			r, random := newTailRig(t), rand.New(rand.NewPCG(seed, 2))
			colors := []lane.Name{"", "red", "blue", "green"}
			given, next := 0, int64(0)
			for range 300 {
				switch random.IntN(6) {
				case 0, 1:
					for range 1 + random.IntN(5) {
						r.append(colors[random.IntN(len(colors))])
					}
				case 2:
					if next < int64(len(r.log)) {
						next = r.main(next, 1+random.IntN(6))
					}
				case 3:
					if n := len(r.log); n > 0 && random.IntN(4) == 0 { // another run of main
						next = r.main(random.Int64N(int64(n)), 1+random.IntN(6))
					}
				case 4:
					pass(time.Duration(random.IntN(80)) * time.Millisecond)
				default:
					color := colors[1+random.IntN(3)]
					from := random.Int64N(int64(len(r.log)) + 2)
					switch b, wait, ok := r.tl.have(from, color, 1+random.IntN(4)); {
					case !ok:
					case wait == nil:
						given++
						r.holds(from, color, b)
					default: // main has read nothing of it yet
						r.tl.forget(color, wait)
						if b, ok := r.tl.none(from, color); !ok {
							t.Fatalf("%q from %d is waited for, and may be there", color, from)
						} else {
							r.holds(from, color, b)
						}
					}
				}
			}
			if _, waiting := r.look(); given == 0 || waiting > 0 {
				t.Errorf("seed %d: nothing was looked at, or %d colors are waited for still", seed, waiting)
			}
		})
	}
}

// TestTailIsBounded: of many messages the last are kept, of many colors none for long, and what is not
// kept is read from the engine.
func TestTailIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTailRig(t)
		r.append(slices.Repeat([]lane.Name{"red"}, tailMessages+tailMessages/2)...)
		next := int64(0)
		for next < int64(len(r.log)) {
			next = r.main(next, 1000)
		}
		if n := len(r.tl.kept); n > tailMessages || n < tailMessages/2 {
			t.Errorf("%d messages are kept", n)
		}
		if _, _, ok := r.tl.have(0, "red", 10); ok {
			t.Error("what is not kept any more is given")
		}
		b, wait, ok := r.tl.have(r.tl.lo, "red", 10)
		if !ok || wait != nil || len(b.Messages) != 10 {
			t.Fatalf("what is kept is not given: %d, %v", len(b.Messages), ok)
		}
		r.holds(r.tl.lo, "red", b)
		var colors []lane.Name
		for i := range tailColors + 10 {
			colors = append(colors, lane.Name(fmt.Sprintf("color%d", i)))
		}
		r.append(colors...)
		for range 2 {
			r.append("red")
			for next < int64(len(r.log)) {
				next = r.main(next, 20_000)
			}
		}
		if n := len(r.tl.last); n > 10 {
			t.Errorf("%d colors are remembered", n)
		}
	})
}

// TestTailOfAnotherLog: what was read of a log is forgotten when the topic is another one.
func TestTailOfAnotherLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTailRig(t)
		r.append("red", "red", "")
		next := r.main(0, 10)
		if err := r.m.Recreate("orders"); err != nil {
			t.Fatal(err)
		}
		r.append("", "", "", "", "red")
		r.main(next, 10)
		if b, wait, ok := r.tl.have(0, "red", 10); ok {
			t.Errorf("of the log before: %d messages, %v", len(b.Messages), wait)
		}
	})
}

// TestTailWaitsForMain: a color waits for main while that reads on, has its message as soon as main
// has, and looks by itself once main has not read for a while.
func TestTailWaitsForMain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTailRig(t)
		r.append("", "", "")
		next := r.main(0, 10)
		type result struct {
			b      Batch
			cached bool
			after  time.Duration
		}
		read := func(wait time.Duration) <-chan result {
			out := make(chan result, 1)
			began := time.Now()
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				defer cancel()
				b, cached, err := r.tl.read(ctx, next, Filter{Color: "red"}, 10, false)
				if err != nil {
					t.Error(err)
				}
				out <- result{b, cached, time.Since(began)}
			}()
			synctest.Wait()
			return out
		}
		first := read(time.Second)
		pass(tailPatience / 2)
		r.append("red")
		at := next
		next = r.main(next, 10)
		got := <-first
		if !got.cached || got.after != tailPatience/2 || len(got.b.Messages) != 1 || got.b.Messages[0].Offset != at {
			t.Errorf("main has read it: %+v", got)
		}
		// Main reads nothing: the color looks by itself, and is not held up.
		second := read(time.Second)
		pass(tailPatience / 2)
		r.append("red")
		if got := <-second; got.cached || got.after != tailPatience || len(got.b.Messages) != 1 {
			t.Errorf("main stands still: %+v", got)
		}
		if b, wait, ok := r.tl.have(next-1, "blue", 10); !ok || wait != nil || b.Next != next || len(b.Messages) > 0 {
			t.Errorf("what main has read has none of it: %+v, %v", b, ok)
		}
		// A read of main's that goes on for long keeps the color waiting until its own time is over.
		next = r.main(next, 10)
		long := make(chan int64, 1)
		go func() { long <- r.main(next, 10) }()
		synctest.Wait()
		pass(2 * tailPatience)
		third := read(300 * time.Millisecond)
		if got := <-third; !got.cached || got.after != 300*time.Millisecond || len(got.b.Messages) > 0 || got.b.Next != next {
			t.Errorf("main waits for more: %+v", got)
		}
		if _, waiting := r.look(); waiting > 0 {
			t.Errorf("%d colors are waited for still", waiting)
		}
		r.append("red")
		next = <-long
		// Main begins anew elsewhere: who waits is sent away, since what it waits for may not come.
		fourth := read(time.Second)
		r.append("red")
		r.main(1, 2)
		if got := <-fourth; got.cached || got.after > 0 || len(got.b.Messages) != 1 {
			t.Errorf("main has begun anew: %+v", got)
		}
		if _, ok := r.tl.none(0, "red"); ok {
			t.Error("told that there is nothing where main has not read")
		}
	})
}
