package consume_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// connect lets a process of a lane in.
func (s *stage) connect(in lane.Name, instance string) *consume.MemoryProcess {
	return s.registry.ConnectAs(consume.MemoryIdentity{Lane: in, Room: "r1", Instance: instance})
}

func (s *stage) consume(lc consume.Connection, handle consume.Handler, options ...consume.Option) *consume.Consumer {
	s.t.Helper()
	c, err := consume.Run(s.t.Context(), s.engine, lc, "orders", "billing", handle, options...)
	if err != nil {
		s.t.Fatal(err)
	}
	return c
}

func (s *stage) close(c *consume.Consumer) {
	s.t.Helper()
	if err := c.Close(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	select {
	case <-c.Done():
	default:
		s.t.Error("closed, and not done")
	}
}

// TestRun: what a handler sends has the color of what it handles, and its trace; each message
// comes to the process of its lane, and after that has left, to the baseline.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2)
		if err := s.engine.Ensure(t.Context(), consume.TopicSpec{Name: "bills", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		if err := s.registry.CreateLane("green", ""); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var got []string
		handle := func(who string, lc consume.Connection) consume.Handler {
			bills := consume.NewProducer(s.engine, lc)
			return func(ctx context.Context, d *consume.Delivery) error {
				mu.Lock()
				got = append(got, fmt.Sprintf("%s %s %s", who, d.Value, lane.From(ctx)))
				mu.Unlock()
				return bills.Send(ctx, consume.Outgoing{Topic: "bills", Key: d.Key, Value: d.Value})
			}
		}
		base, green := s.connect("", "e1"), s.connect("green", "e2")
		c1, c2 := s.consume(base, handle("e1", base)), s.consume(green, handle("e2", green))
		s.untilRun("green", "green") // so the one has learned of the other
		if !strings.HasPrefix(c2.Member(), "e2-") {
			t.Errorf("member %q", c2.Member())
		}
		out := consume.NewProducer(s.engine, base)
		trace := []consume.Header{{Name: "Traceparent", Value: []byte("00-1-2-01")}, {Name: "baggage", Value: []byte("user=7")}}
		send := func(ctx context.Context, value string) {
			t.Helper()
			if err := out.Send(ctx, consume.Outgoing{Topic: "orders", Key: []byte("k"), Value: []byte(value), Headers: trace}); err != nil {
				t.Fatal(err)
			}
		}
		colored := lane.With(t.Context(), "green")
		send(colored, "1")
		send(t.Context(), "2")
		send(lane.With(t.Context(), "nobody"), "3")
		given := func(n int) func() bool {
			return func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(got) >= n
			}
		}
		s.until("three messages", given(3))
		s.close(c2)
		send(colored, "4")
		s.until("the fourth message", given(4))
		pass(time.Second) // and no more
		s.close(c1)
		slices.Sort(got)
		if want := []string{"e1 2 ", "e1 3 nobody", "e1 4 green", "e2 1 green"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		b, err := s.engine.Peek(consume.Partition{Topic: "bills"}, 0, consume.Filter{All: true}, 10)
		if err != nil || len(b.Messages) != 4 {
			t.Fatalf("%d bills, %v", len(b.Messages), err)
		}
		for _, m := range b.Messages {
			h := (*consume.Headers)(&m.Headers)
			want := map[string]lane.Name{"1": "green", "2": "", "3": "nobody", "4": "green"}[string(m.Value)]
			if color, _ := lane.Extract(h); m.Color != want || color != want || !slices.Equal(h.Values("traceparent"), []string{"00-1-2-01"}) {
				t.Errorf("bill %s is colored %q, its headers are %q", m.Value, m.Color, m.Headers)
			}
			if baggage := strings.Join(h.Values("baggage"), ","); !strings.Contains(baggage, "user=7") || strings.Contains(baggage, "v-traffic-lane") != (want != "") {
				t.Errorf("bill %s of %q has baggage %q", m.Value, want, baggage)
			}
		}
		if v := s.registry.View("billing"); len(v.Members) != 0 {
			t.Errorf("members left: %+v", v.Members)
		}
		_ = s.engine.Close()
	})
}

// TestProducerColor: a context's color goes before the process's, and plain is plain.
func TestProducerColor(t *testing.T) {
	s := newStage(t, 1)
	p := consume.NewProducer(s.engine, s.connect("green", ""), consume.WithInject(func(_ context.Context, c lane.Carrier) { c.Set("traceparent", "t") }))
	for _, ctx := range []context.Context{t.Context(), lane.With(t.Context(), "red"), lane.Plain(t.Context())} {
		own := []consume.Header{{Name: lane.Header, Value: []byte("old")}}
		if err := p.Send(ctx, consume.Outgoing{Topic: "orders", Headers: own, ID: "x"}, consume.Outgoing{Topic: "orders", Headers: own}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := s.engine.Peek(consume.Partition{Topic: "orders"}, 0, consume.Filter{All: true}, 10)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range b.Messages {
		h := (*consume.Headers)(&m.Headers)
		got = append(got, string(m.Color)+":"+strings.Join(h.Values(lane.Header), ",")+":"+strings.Join(h.Values("traceparent"), ","))
	}
	if want := []string{"green:green:t", "green:green:t", "red:red:t", "::t"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: an ID is taken once", got, want)
	}
	if err := p.Send(t.Context(), consume.Outgoing{Topic: "nobody"}); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("to a topic that is not there: %v", err)
	}
}

// TestRunSettings: what the first consumer says holds for the group; who demands something
// else is told so, and who says nothing follows.
func TestRunSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		first := s.connect("", "")
		c := s.consume(first, ok, consume.WithOrdered(true), consume.WithRetries(time.Second), consume.WithStart(consume.Start{Kind: consume.StartLatest}))
		second := s.connect("", "")
		s.close(s.consume(second, ok, consume.WithOrdered(true), consume.WithOnLoss(consume.LossHold)))
		for _, o := range []consume.Option{
			consume.WithOrdered(false), consume.WithRetries(), consume.WithStart(consume.Start{}),
			consume.WithHandoverTimeout(time.Minute), consume.WithOnLoss(consume.LossContinue), consume.WithEngine("other"),
		} {
			if _, err := consume.Run(t.Context(), s.engine, second, "orders", "billing", ok, o); !errors.Is(err, consume.ErrMismatch) {
				t.Errorf("a demand that does not fit: %v", err)
			}
		}
		if _, err := consume.Run(t.Context(), s.engine, first, "orders", "billing", ok); !errors.Is(err, consume.ErrEntered) {
			t.Errorf("the same topic twice in a process: %v", err)
		}
		if _, err := consume.Run(t.Context(), s.engine, first, "nobody", "billing", ok); !errors.Is(err, consume.ErrNoTopic) {
			t.Errorf("a topic that is not there: %v", err)
		}
		s.close(s.consume(second, ok, consume.WithTopics("bills"), consume.WithPartitions(3)))
		if hold := s.registry.Enter("billing", consume.Settings{}); !slices.Equal(hold.Topics, []string{"orders", "bills"}) || hold.Partitions["bills"] != 3 || !hold.Ordered {
			t.Errorf("settings %+v", hold)
		}
		if _, err := consume.Run(t.Context(), s.engine, s.connect("green", ""), "orders", "billing", ok); !errors.Is(err, consume.ErrRefused) {
			t.Errorf("a lane that is not there: %v", err)
		}
		if _, err := consume.Run(t.Context(), s.engine, second, "orders", "billing", nil); err == nil {
			t.Error("without a handler")
		}
		s.close(c)
		s.close(s.consume(first, ok)) // what was left is free again
		_ = s.engine.Close()
	})
}

// TestRunEndsWithContext: the consumer leaves when its context ends, handlers finish what
// they have begun, and what they have not is not lost.
func TestRunEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		s.append(100, "")
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var begun atomic.Int64
		times := map[int64]int{}
		handle := func(_ context.Context, d *consume.Delivery) error {
			begun.Add(1)
			pass(3 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			times[d.Offset]++
			return nil
		}
		c, err := consume.Run(ctx, s.engine, s.connect("", ""), "orders", "billing", handle, consume.WithConcurrency(2))
		if err != nil {
			t.Fatal(err)
		}
		s.until("the next two to be begun", func() bool { return begun.Load() == 4 })
		if c.Err() != nil {
			t.Errorf("while it runs: %v", c.Err())
		}
		before := time.Now()
		cancel()
		<-c.Done()
		if err := c.Err(); err != nil {
			t.Error(err)
		}
		if took := time.Since(before); took > 4*time.Second {
			t.Errorf("it takes %v to leave: what was not begun must not be waited for", took)
		}
		if len(times) != 4 {
			t.Errorf("%d messages are done, want those that were begun", len(times))
		}
		rest := s.consume(s.connect("", ""), handle, consume.WithConcurrency(50))
		s.until("all to be begun", func() bool { return begun.Load() >= 100 })
		pass(5 * time.Second) // and no more
		s.close(rest)
		for i := range int64(100) {
			if times[i] != 1 {
				t.Errorf("message %d was done %d times", i, times[i])
			}
		}
		_ = s.engine.Close()
	})
}

// TestRunOptions: messages of one key come one after the other, each with a deadline and what
// WithContext adds; what is filtered out is settled unseen, and who has left counts for its grace.
func TestRunOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		type offset struct{}
		var mu sync.Mutex
		busy, last := map[string]bool{}, map[string]int64{}
		most, done := 0, 0
		handle := func(ctx context.Context, d *consume.Delivery) error {
			key := string(d.Key)
			mu.Lock()
			if busy[key] || last[key] > d.Offset || d.Offset%2 != 0 || ctx.Value(offset{}) != d.Offset {
				t.Errorf("message %d of key %s (busy %v, after %d), context of %v", d.Offset, key, busy[key], last[key], ctx.Value(offset{}))
			}
			busy[key], last[key] = true, d.Offset
			most = max(most, len(busy))
			mu.Unlock()
			began := time.Now()
			<-ctx.Done()
			if took := time.Since(began); took != time.Second {
				t.Errorf("the context ends after %s (%v)", took, ctx.Err())
			}
			mu.Lock()
			defer mu.Unlock()
			delete(busy, key)
			done++
			return nil
		}
		lc := s.connect("", "e1")
		p := consume.NewProducer(s.engine, lc)
		for i := range 40 {
			if err := p.Send(t.Context(), consume.Outgoing{Topic: "orders", Key: fmt.Append(nil, i/2%8)}); err != nil {
				t.Fatal(err)
			}
		}
		c := s.consume(lc, handle, consume.WithKeyOrder(), consume.WithConcurrency(5), consume.WithDeadline(time.Second), consume.WithGrace(time.Minute),
			consume.WithFilter(func(m *consume.Message) bool { return m.Offset%2 == 0 }),
			consume.WithContext(func(ctx context.Context, d *consume.Delivery) context.Context {
				return context.WithValue(ctx, offset{}, d.Offset)
			}))
		s.until("those that are wanted", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return done >= 20
		})
		s.close(c)
		if done != 20 || most < 2 || most > 5 {
			t.Errorf("%d messages are done, %d at once", done, most)
		}
		if n := s.registry.Note("billing", consume.Partition{Topic: "orders"}, consume.Main); n.Note.Pos != 40 || len(n.Note.Left) != 0 {
			t.Errorf("what is settled: %+v, want all", n.Note)
		}
		if m := s.registry.View("billing").Members; len(m) != 1 || m[0].Session != "" || m[0].ID != c.Member() {
			t.Errorf("members in the grace: %+v", m)
		}
		left := time.Now()
		s.until("the grace to be over", func() bool { return len(s.registry.View("billing").Members) == 0 })
		if took := time.Since(left); took < 59*time.Second || took > 61*time.Second {
			t.Errorf("the grace lasts %s, want a minute", took)
		}
		_ = s.engine.Close()
	})
}

// TestDerivedTopics: topics of one group are not those of another.
func TestDerivedTopics(t *testing.T) {
	if got := consume.RetryTopic("orders", "billing"); got != "orders.billing.retry" {
		t.Errorf("retry topic %q", got)
	}
	if got := consume.DeadTopic("orders", "billing"); got != "orders.billing.dead" {
		t.Errorf("dead-letter topic %q", got)
	}
	seen := map[string]string{}
	for _, topic := range []string{"a", "a.b", "a.b.c", strings.Repeat("x", 249), strings.Repeat("x", 248) + "y"} {
		for _, group := range []string{"c", "b.c", "c.d", strings.Repeat("g", 64)} {
			for _, name := range []string{consume.RetryTopic(topic, group), consume.DeadTopic(topic, group)} {
				if seen[name] != "" || len(name) > 249 {
					t.Errorf("%q is of %s and of %s", name, topic+"|"+group, seen[name])
				}
				seen[name] = topic + "|" + group
			}
		}
	}
}
