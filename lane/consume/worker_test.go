package consume_test

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
	"github.com/laneway-dev/laneway/lane/consume"
)

// calls is a handler that gives some messages back and notes when it is called with which.
type calls struct {
	mu    sync.Mutex
	gives func(d *consume.Delivery, nth int) error // nth is how often it was called with d before
	began time.Time
	at    map[string][]time.Duration
	order []string // of those that it is done with
}

func newCalls(gives func(*consume.Delivery, int) error) *calls {
	return &calls{gives: gives, began: time.Now(), at: map[string][]time.Duration{}}
}

func (c *calls) handle(_ context.Context, d *consume.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := string(d.Value)
	nth := len(c.at[name])
	c.at[name] = append(c.at[name], time.Since(c.began))
	err := c.gives(d, nth)
	if err == nil {
		c.order = append(c.order, name)
	}
	return err
}

// batch gives all of a batch back if it would one of them.
func (c *calls) batch(_ context.Context, ds []*consume.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	for _, d := range ds {
		name := string(d.Value)
		err = errors.Join(err, c.gives(d, len(c.at[name])))
		c.at[name] = append(c.at[name], time.Since(c.began))
	}
	for _, d := range ds {
		if err == nil {
			c.order = append(c.order, string(d.Value))
		}
	}
	return err
}

func (c *calls) times(name string) []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.at[name])
}

func (c *calls) done() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.order, " ")
}

// gaps are how long it was from each call to the next one.
func gaps(at []time.Duration) (all []time.Duration) {
	for i := range at[1:] {
		all = append(all, at[i+1]-at[i])
	}
	return all
}

func (s *stage) send(color lane.Name, key, value string) {
	s.t.Helper()
	m := &consume.Message{Partition: consume.Partition{Topic: "orders"}, Color: color, Key: []byte(key), Value: []byte(value)}
	if err := s.engine.Append(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// TestReturnedWaits: a message that handlers give back again and again comes again after a while
// that grows up to a bound, however it is said; others go on, and it does not count as failed.
func TestReturnedWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		bad   func(d *consume.Delivery) error
		retry string
	}{
		{"by its error", func(*consume.Delivery) error { return fmt.Errorf("not now: %w", consume.ErrReturn) }, "orders-retry"},
		{"by its method", func(d *consume.Delivery) error { d.Return(); return nil }, "orders-retry"},
		{"later", func(d *consume.Delivery) error { d.Hold(); go d.Return(); return nil }, "orders-retry"},
		{"failed, without a retry topic", func(*consume.Delivery) error { return errors.New("no") }, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 1)
				const most = 12
				var attempts []int
				h := newCalls(func(d *consume.Delivery, nth int) error {
					if string(d.Value) != "bad" {
						return nil
					}
					if attempts = append(attempts, d.Attempt); d.Redelivered != (nth > 0) {
						t.Errorf("call %d: flagged %v", nth, d.Redelivered)
					}
					if nth == most {
						return nil
					}
					return c.bad(d)
				})
				o := consume.Options{Handle: h.handle}
				o.Config.Topics = []consume.Topic{{Name: "orders", Partitions: 64}}
				if c.retry != "" {
					o.Config.Topics[0].Retry, o.Config.Topics[0].Dead = c.retry, "orders-dead"
				}
				p := s.startWith("e1", "", o)
				s.send("", "k", "bad")
				s.until("the first call", func() bool { return len(h.times("bad")) > 0 })
				s.send("", "k", "good")
				s.until("the other message", func() bool { return len(h.times("good")) > 0 })
				if n := len(h.times("bad")); n > 3 {
					t.Errorf("the other message came after %d calls", n)
				}
				s.until("the last call", func() bool { return len(h.times("bad")) > most })
				var want []time.Duration
				for n := range most {
					want = append(want, min(20*time.Millisecond<<n, 5*time.Second))
				}
				if got := gaps(h.times("bad")); !slices.Equal(got, want) {
					t.Errorf("from call to call %v, want %v", got, want)
				}
				if slices.Max(attempts) > 0 {
					t.Errorf("attempts are %v", attempts)
				}
				pass(10 * time.Second) // and no more
				if n := len(h.times("bad")); n != most+1 {
					t.Errorf("%d calls", n)
				}
				p.stop(t)
				_ = s.engine.Close()
			})
		})
	}
}

// TestReturnedKeepsOrder: where messages are handled in their order, those behind one that was
// given back stay there; those of other colors, or of other keys, do not.
func TestReturnedKeepsOrder(t *testing.T) {
	for _, c := range []struct {
		name  string
		o     consume.Options
		batch int
		want  string // what is done with, in its order
	}{
		{"one by one", consume.Options{Concurrency: 1}, 0, "red-b3 red-a4 a1 b1 a2 b2"},
		{"one batch after the other", consume.Options{Concurrency: 1}, 10, "red-b3 red-a4 a1 b1 a2 b2"},
		{"by key", consume.Options{KeyOrder: true, Concurrency: 1}, 0, "b1 b2 red-b3 a1 a2 red-a4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 1)
				for _, m := range []struct {
					color lane.Name
					key   string
					n     int
				}{{"", "a", 1}, {"", "b", 1}, {"", "a", 2}, {"", "b", 2}, {"red", "b", 3}, {"red", "a", 4}} {
					name := fmt.Sprintf("%s%d", m.key, m.n)
					if m.color != "" {
						name = string(m.color) + "-" + name
					}
					s.send(m.color, m.key, name)
				}
				h := newCalls(func(d *consume.Delivery, nth int) error {
					if string(d.Value) == "a1" && nth < 3 {
						return consume.ErrReturn
					}
					return nil
				})
				if c.o.Handle = h.handle; c.batch > 0 {
					c.o.Handle, c.o.Batch = nil, 10
					c.o.HandleBatch = h.batch
				}
				p := s.startWith("e1", "", c.o)
				s.until("all to be done", func() bool { return strings.Count(h.done(), " ") == 5 })
				if got := h.done(); got != c.want {
					t.Errorf("done with %s, want %s", got, c.want)
				}
				p.stop(t)
				_ = s.engine.Close()
			})
		})
	}
}

// TestBatchesKeepKeyOrder: a batch has messages of one color, and passes over none of another
// color that has the key of one behind it.
func TestBatchesKeepKeyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		for i, m := range []struct {
			color lane.Name
			key   string
		}{{"", "a"}, {"red", "a"}, {"", "a"}, {"", "b"}, {"red", "b"}, {"red", "c"}} {
			s.send(m.color, m.key, fmt.Sprintf("%s%d", m.key, i))
		}
		h := newCalls(func(*consume.Delivery, int) error { return nil })
		o := consume.Options{KeyOrder: true, Concurrency: 1, Batch: 10, HandleBatch: h.batch}
		p := s.startWith("e1", "", o)
		s.until("all to be done", func() bool { return strings.Count(h.done(), " ") == 5 })
		if got, want := h.done(), "a0 b3 a1 b4 c5 a2"; got != want {
			t.Errorf("done with %s, want %s", got, want)
		}
		p.stop(t)
		_ = s.engine.Close()
	})
}

// TestReturnedAtTheEnd: what waits, and what is given back, goes to the next process at once
// where this one stops, and counts as no attempt there either.
func TestReturnedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		began, end := make(chan struct{}), make(chan struct{})
		h := newCalls(func(d *consume.Delivery, nth int) error { return consume.ErrReturn })
		o := consume.Options{Concurrency: 2, Handle: func(ctx context.Context, d *consume.Delivery) error {
			if string(d.Value) == "slow" {
				close(began)
				<-end
			}
			return h.handle(ctx, d)
		}}
		first := s.startWith("e1", "", o)
		s.send("", "k", "waits")
		s.send("", "k", "slow")
		<-began
		s.until("a long wait", func() bool { return len(h.times("waits")) == 9 })
		pass(time.Second)
		second := newCalls(func(d *consume.Delivery, _ int) error {
			if !d.Redelivered || d.Attempt != 0 {
				t.Errorf("%s: flagged %v, attempt %d", d.Value, d.Redelivered, d.Attempt)
			}
			return nil
		})
		next := s.startWith("e2", "", consume.Options{Handle: second.handle})
		s.until("the second one to be there", func() bool { return len(s.registry.View("billing").Members) == 2 })
		stops := time.Now()
		first.cancel()
		pass(100 * time.Millisecond)
		close(end)
		if err := <-first.done; err != nil {
			t.Error(err)
		}
		s.until("both to be done", func() bool { return second.done() != "" && strings.Contains(second.done(), " ") })
		if took := time.Since(stops); took > time.Second {
			t.Errorf("it takes %v", took)
		}
		if n := len(h.times("waits")); n != 9 {
			t.Errorf("called %d times, want 9", n)
		}
		first.access.Close()
		next.stop(t)
		_ = s.engine.Close()
	})
}

// TestPausedBeginsNothing: when a group is paused, what waits for a handler is not begun with; it
// comes when the group goes on.
func TestPausedBeginsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		h := newCalls(func(*consume.Delivery, int) error { return nil })
		for n := range 10 {
			s.send("", "k", fmt.Sprint(n))
		}
		p := s.startWith("e1", "", consume.Options{Concurrency: 1, Handle: func(ctx context.Context, d *consume.Delivery) error {
			pass(time.Second)
			return h.handle(ctx, d)
		}})
		s.until("the first one to be done", func() bool { return h.done() != "" })
		s.registry.SetGroup("billing", consume.Group{Paused: true})
		pass(5 * time.Second)
		paused := h.done()
		pass(5 * time.Second)
		if got := h.done(); got != paused || strings.Count(got, " ") > 2 {
			t.Errorf("paused after %s, done %s", paused, got)
		}
		s.registry.SetGroup("billing", consume.Group{})
		s.until("the rest", func() bool { return strings.Count(h.done(), " ") == 9 })
		if got, want := h.done(), "0 1 2 3 4 5 6 7 8 9"; got != want {
			t.Errorf("done %s, want %s", got, want)
		}
		p.stop(t)
		_ = s.engine.Close()
	})
}
