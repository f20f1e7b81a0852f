package consume_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// replayTally has what handlers of a test were handed.
type replayTally struct {
	mu  sync.Mutex
	got map[string]int // by "lane value name-of-the-replay attempt"
}

func (c *replayTally) handle(work time.Duration) consume.Handler {
	return func(_ context.Context, d *consume.Delivery) error {
		c.mu.Lock()
		c.got[strings.TrimSpace(fmt.Sprintf("%s %s %s %d", d.Lane, d.Value, d.Replayed(), d.Attempt))]++
		c.mu.Unlock()
		pass(work)
		if strings.HasPrefix(string(d.Value), "bad") && d.Attempt == 0 {
			return errors.New("not yet")
		}
		return nil
	}
}

func (c *replayTally) all() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.got)
}

// copyFor puts a green copy of a message of orders into the group's retry topic.
func (s *stage) copyFor(value string, only lane.Name, offset int64) {
	s.t.Helper()
	m := &consume.Message{
		Partition: consume.Partition{Topic: consume.RetryTopic("orders", "billing"), Index: -1}, Color: "green", Value: []byte(value),
		Origin: &consume.Origin{Partition: consume.Partition{Topic: "orders"}, Offset: offset, Group: "billing", Replay: "again", Only: only},
	}
	if err := s.engine.Append(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// TestReplayed: copies for a lane alone are handed to its consumer, which can tell them, also
// when one is retried; what it leaves unread nobody else is handed, and nothing waits for it.
// Copies for whoever their color belongs to are handed on.
func TestReplayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		if err := s.registry.CreateLane("green", ""); err != nil {
			t.Fatal(err)
		}
		base, green := s.connect("", "e1"), s.connect("green", "e2")
		h1, h2 := s.newHops(base, consume.HopsConfig{Share: 1}), s.newHops(green, consume.HopsConfig{Share: 1})
		c := &replayTally{got: map[string]int{}}
		retries := consume.WithRetries(time.Second)
		c1 := s.consume(base, c.handle(0), retries, consume.WithHops(h1))
		c2 := s.consume(green, c.handle(50*time.Millisecond), retries, consume.WithHops(h2), consume.WithConcurrency(1))
		s.untilRun("green", "green")
		s.copyFor("bad", "green", 1)
		s.until("a retry in the lane", func() bool { return c.all()["green bad again 1"] == 1 })
		const n = 100
		for i := range n {
			s.copyFor(fmt.Sprint("m", i), "green", int64(i+2))
		}
		s.until("the lane to have read some", func() bool { return len(c.all()) >= 12 })
		s.close(c2)
		s.copyFor("late", "green", 500)
		s.copyFor("open", lane.Baseline, 501)
		s.until("what is for anybody", func() bool { return c.all()["open again 0"] == 1 })
		s.close(c1)
		for _, h := range []*consume.Hops{h1, h2} {
			if err := h.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		handed, dropped := 0, 0
		for key, times := range c.all() {
			if times != 1 || !strings.HasPrefix(key, "green ") && key != "open again 0" {
				t.Errorf("%q was handed out %d times", key, times)
			}
			handed++
		}
		ends := map[string]string{} // by origin
		for _, h := range s.hops(consume.HopsTopic) {
			if h.Kind == consume.HopDropped {
				dropped++
				if h.Lane != lane.Baseline || h.Reason != consume.ReasonOfOtherLane || !strings.HasPrefix(h.Place, "orders.billing.retry/0@") {
					t.Errorf("hop %+v", h)
				}
			}
			if h.Kind == consume.HopDispatched && h.Lane == lane.Baseline && h.Origin != "orders/0@501" {
				t.Errorf("hop %+v", h)
			}
			if h.Kind == consume.HopDropped || h.Kind == consume.HopSettled {
				if before := ends[h.Origin]; before != "" {
					t.Errorf("%s was %s, and then %s", h.Origin, before, h.Kind)
				}
				ends[h.Origin] = string(h.Kind)
			}
		}
		if all := n + 3; len(ends) != all || handed-1+dropped != all || dropped == 0 { // one is in two tries
			t.Errorf("%d were handed out and %d dropped, and %d have ended; want %d", handed, dropped, len(ends), all)
		}
		_ = s.engine.Close()
	})
}

// TestReplayedElsewhere: a message is dropped for what its origin says only where a replay can
// have put it, and by the group that it was for.
func TestReplayedElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		c := &replayTally{got: map[string]int{}}
		c1 := s.consume(s.connect("", "e1"), c.handle(0))
		orders := consume.Partition{Topic: "orders"}
		retry := consume.Partition{Topic: consume.RetryTopic("orders", "billing")}
		s.until("the retry topic", func() bool {
			return s.engine.Append(t.Context(), &consume.Message{Partition: retry, Value: []byte("plain")}) == nil
		})
		var want []string
		for value, m := range map[string]consume.Message{
			"passed on":     {Partition: orders, Origin: &consume.Origin{Partition: orders, Group: "billing", Replay: "r", Only: "green"}},
			"of another":    {Partition: retry, Origin: &consume.Origin{Partition: orders, Group: "audit", Replay: "r", Only: "green"}},
			"died before":   {Partition: retry, Origin: &consume.Origin{Partition: consume.Partition{Topic: "carts"}, Group: "billing", Replay: "r", Only: "green"}},
			"for everybody": {Partition: retry, Origin: &consume.Origin{Partition: orders, Group: "billing", Replay: "r"}},
		} {
			m.Value, m.Color = []byte(value), "green"
			if err := s.engine.Append(t.Context(), &m); err != nil {
				t.Fatal(err)
			}
			want = append(want, value+" r 0")
		}
		want = append(want, "plain  0")
		slices.Sort(want)
		s.until("all of them", func() bool { return len(c.all()) == len(want) })
		if got := slices.Sorted(maps.Keys(c.all())); !slices.Equal(got, want) {
			t.Errorf("handed out %q, want %q", got, want)
		}
		s.close(c1)
		_ = s.engine.Close()
	})
}
