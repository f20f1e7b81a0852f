package consume_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// meter counts the messages that an engine gave out.
type meter struct {
	consume.Source
	messages atomic.Int64
}

func (m *meter) Read(ctx context.Context, p consume.Partition, from int64, f consume.Filter, most int) (consume.Batch, error) {
	b, err := m.Source.Read(ctx, p, from, f, most)
	m.messages.Add(int64(len(b.Messages)))
	return b, err
}

// TestOneReader: many lanes in one process do not read the log many times, also where the
// engine cannot filter; and a main cursor that is stuck keeps none of them waiting.
func TestOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		src := &meter{Source: s.engine}
		members := []consume.Member{{ID: "base", Topics: []string{"orders"}}}
		var lanes []lane.Name
		for i := range 20 {
			l := lane.Name(fmt.Sprintf("lane%d", i))
			lanes = append(lanes, l)
			if err := s.registry.CreateLane(l, ""); err != nil {
				t.Fatal(err)
			}
			members = append(members, consume.Member{ID: string(l), Lane: l, Topics: []string{"orders"}, Generation: 1})
		}
		stuck := make(chan struct{})
		var hold atomic.Bool
		var handled, colored, blocked atomic.Int64
		o := consume.Options{
			Config: consume.Config{Group: "billing", Topics: []consume.Topic{{Name: "orders", Partitions: 1}}, Window: 50},
			Source: src, Registry: s.registry.Connect(), Members: members,
			Handle: func(_ context.Context, d *consume.Delivery) error {
				if d.Color == "" && hold.Load() {
					blocked.Add(1)
					<-stuck
				}
				handled.Add(1)
				if d.Color != "" {
					colored.Add(1)
				}
				return nil
			},
		}
		r, err := consume.NewRunner(o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		for _, l := range lanes {
			s.untilRun(l, l)
		}
		for i := range 500 {
			s.append(8, "")
			s.append(1, lanes[i%len(lanes)])
			pass(time.Millisecond)
		}
		s.until("all to be handled", func() bool { return handled.Load() >= 4500 })
		pass(time.Second) // and no more
		if handled.Load() != 4500 {
			t.Fatalf("%d handled", handled.Load())
		}
		if n := src.messages.Load(); n > 4500*11/10 {
			t.Errorf("%d messages read for 4,500 in the log", n)
		}
		hold.Store(true)
		s.append(200, "")
		s.until("main to be stuck", func() bool { return blocked.Load() == 16 })
		synctest.Wait() // its window is full
		before := colored.Load()
		s.append(10, "lane3")
		pass(200 * time.Millisecond) // is long enough
		if got := colored.Load() - before; got != 10 {
			t.Errorf("beside a main cursor that is stuck %d of 10 colored messages were handed out", got)
		}
		close(stuck)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = s.engine.Close()
	})
}

// held is an engine whose reads of everything wait while it is held, as on a machine that is
// busy.
type held struct {
	consume.Source
	on            atomic.Bool
	free          chan struct{}
	waits, colors atomic.Int64 // reads of everything that wait, and reads of colors so far
}

func (h *held) Read(ctx context.Context, p consume.Partition, from int64, f consume.Filter, most int) (consume.Batch, error) {
	switch {
	case !f.All:
		h.colors.Add(1)
	case h.on.Load() && p.Topic == "orders":
		h.waits.Add(1)
		<-h.free
	}
	return h.Source.Read(ctx, p, from, f, most)
}

// TestStaleTail: a cursor that comes from another process, which has seen more of the log than
// main here has, does not take the end that main saw for the log's.
func TestStaleTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		if err := s.registry.CreateLane("green", ""); err != nil {
			t.Fatal(err)
		}
		src := &held{Source: s.engine, free: make(chan struct{})}
		var got atomic.Int64
		r, err := consume.NewRunner(consume.Options{
			Config: consume.Config{Group: "billing", Topics: []consume.Topic{{Name: "orders", Partitions: 64, Retry: "orders-retry", Dead: "orders-dead"}}},
			Source: src, Topics: s.engine, Registry: s.registry.Connect(),
			Members: []consume.Member{{ID: "e1", Topics: []string{"orders"}}},
			Handle: func(context.Context, *consume.Delivery) error {
				got.Add(1)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		e2 := s.start("e2", "green", func(ctx context.Context, _ *consume.Delivery) error {
			<-ctx.Done()
			return consume.ErrReturn
		})
		s.untilRun("green", "green")
		passed := func(cursor lane.Name, end int64) {
			t.Helper()
			s.until(fmt.Sprintf("%q to pass %d", cursor, end), func() bool {
				n := s.registry.Note("billing", consume.Partition{Topic: "orders"}, cursor)
				return n.Note != nil && n.Note.Pos == end
			})
		}
		s.append(100, "green")
		passed("green", 100)
		passed(consume.Main, 100)
		src.on.Store(true)
		s.until("main's next read to be held", func() bool { return src.waits.Load() > 0 })
		s.append(100, "green")
		passed("green", 200)
		before := src.colors.Load()
		e2.stop(t)
		s.untilRun("", "green")
		s.until("the color to be read from the engine", func() bool { return src.colors.Load() > before })
		close(src.free)
		s.until("all 200 messages to come to the baseline", func() bool { return got.Load() >= 200 })
		pass(time.Second) // and no more
		if n := got.Load(); n != 200 {
			t.Errorf("the 200 messages of the lane that went came to the baseline %d times", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
