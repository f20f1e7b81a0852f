package consume_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// hops are all that a topic has.
func (s *stage) hops(topic string) (out []consume.Hop) {
	s.t.Helper()
	b, err := s.engine.Peek(consume.Partition{Topic: topic}, 0, consume.Filter{All: true}, 10_000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, m := range b.Messages {
		for line := range bytes.Lines(m.Value) {
			var h consume.Hop
			if err := json.Unmarshal(line, &h); err != nil {
				s.t.Fatalf("%q: %v", line, err)
			}
			out = append(out, h)
		}
	}
	consume.SortHops(out)
	return out
}

func (s *stage) newHops(lc consume.Identity, cfg consume.HopsConfig) *consume.Hops {
	s.t.Helper()
	h, err := consume.NewHops(s.engine, lc, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// TestHops: a message is followed from its producer to the dead letters, through the lane and,
// once that has left, the baseline; and one that is settled to there.
func TestHops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		if err := s.registry.CreateLane("green", ""); err != nil {
			t.Fatal(err)
		}
		base, green := s.connect("", "e1"), s.connect("green", "e2")
		all := consume.HopsConfig{Share: 1, Service: "billing"}
		h1, h2 := s.newHops(base, all), s.newHops(green, all)
		var failed, settled atomic.Int64
		handle := func(_ context.Context, d *consume.Delivery) error {
			switch {
			case string(d.Value) == "bad":
				failed.Add(1)
				return errors.New("cannot work on this")
			case string(d.Value) == "later" && !d.Redelivered:
				return consume.ErrReturn
			}
			settled.Add(1)
			return nil
		}
		retries := consume.WithRetries(time.Second, time.Minute)
		c1 := s.consume(base, handle, retries, consume.WithHops(h1))
		c2 := s.consume(green, handle, retries, consume.WithHops(h2))
		s.untilRun("green", "green")
		p := consume.NewProducer(s.engine, base, consume.RecordHops(h1))
		for _, value := range []string{"good", "bad", "later"} {
			if err := p.Send(lane.With(t.Context(), "green"), consume.Outgoing{Topic: "orders", Key: []byte("k-" + value), Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
		}
		s.until("two tries in the lane", func() bool { return failed.Load() == 2 && settled.Load() == 2 })
		s.close(c2)
		s.until("the last one", func() bool { return failed.Load() == 3 })
		s.close(c1)
		for _, h := range []*consume.Hops{h1, h2} {
			if err := h.Close(t.Context()); err != nil || h.Missing() != 0 {
				t.Errorf("close: %v, %d missing", err, h.Missing())
			}
		}

		got := map[string][]string{}
		names := map[string]bool{}
		for _, h := range s.hops(consume.HopsTopic) {
			if h.Message == "" || h.Topic != "orders" || h.Color != "green" || h.Service != "billing" {
				t.Errorf("hop %+v", h)
			}
			names[h.Message] = true
			place, _, _ := strings.Cut(h.Place, "@")
			member, _, _ := strings.Cut(h.Member, "-")
			got[h.Key] = append(got[h.Key], strings.Join(strings.Fields(fmt.Sprint(h.Kind, " ", h.Lane, " ", member, " ", place, " ", h.To, " ", h.Attempt, " ", h.Reason, " ", h.Error)), " "))
			if h.Kind == consume.HopProduced != (h.Origin == "") || h.Member != "" && h.Member != c1.Member() && h.Member != c2.Member() {
				t.Errorf("hop %+v", h)
			}
		}
		want := map[string][]string{
			"k-good": {"produced 0", "dispatched green e2 orders/0 1 lane-instance", "settled green e2 orders/0 1"},
			"k-later": {
				"produced 0", "dispatched green e2 orders/0 1 lane-instance", "returned green e2 orders/0 1",
				"dispatched green e2 orders/0 1 lane-instance", "settled green e2 orders/0 1",
			},
			"k-bad": {
				"produced 0",
				"dispatched green e2 orders/0 1 lane-instance", "retried green e2 orders/0 orders.billing.retry 1 cannot work on this",
				"dispatched green e2 orders.billing.retry/0 2 lane-instance", "retried green e2 orders.billing.retry/0 orders.billing.retry 2 cannot work on this",
				"dispatched e1 orders.billing.retry/0 3 baseline-fallback", "dead e1 orders.billing.retry/0 orders.billing.dead 3 attempts-used-up cannot work on this",
			},
		}
		for key := range want {
			if !slices.Equal(got[key], want[key]) {
				t.Errorf("%s: got\n%s\nwant\n%s", key, strings.Join(got[key], "\n"), strings.Join(want[key], "\n"))
			}
		}
		if len(names) != 3 {
			t.Errorf("messages are named %v, want three names", names)
		}
		if spec, err := s.engine.Describe(t.Context(), consume.HopsTopic); err != nil || spec.Retention != consume.DefaultHopsRetention {
			t.Errorf("topic %+v, %v", spec, err)
		}
		_ = s.engine.Close()
	})
}

// TestHopsShare: of a share of the messages all hops are kept, and of others none; of another
// process's share too, whether messages are named by their producer or not.
func TestHopsShare(t *testing.T) {
	for _, named := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			const n, share = 4000, 0.1
			s := newStage(t, 2)
			lc := s.connect("", "e1")
			some := s.newHops(lc, consume.HopsConfig{Share: share})
			more := s.newHops(lc, consume.HopsConfig{Share: 2 * share, Topic: "more"})
			var o []consume.ProducerOption
			if named {
				o = append(o, consume.RecordHops(some))
			}
			p := consume.NewProducer(s.engine, lc, o...)
			for i := range n {
				if err := p.Send(t.Context(), consume.Outgoing{Topic: "orders", Key: fmt.Append(nil, i)}); err != nil {
					t.Fatal(err)
				}
			}
			var handled atomic.Int64
			handle := func(context.Context, *consume.Delivery) error { handled.Add(1); return nil }
			c := s.consume(lc, handle, consume.WithHops(some))
			other, err := consume.Run(t.Context(), s.engine, s.connect("", "e2"), "orders", "mailing", handle, consume.WithHops(more))
			if err != nil {
				t.Fatal(err)
			}
			s.until("both groups to have all", func() bool { return handled.Load() >= 2*n })
			s.close(c)
			s.close(other)
			for _, h := range []*consume.Hops{some, more} {
				if err := h.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
			kinds := map[string]map[consume.HopKind]int{}
			for _, h := range s.hops(consume.HopsTopic) {
				if kinds[h.Key] == nil {
					kinds[h.Key] = map[consume.HopKind]int{}
				}
				kinds[h.Key][h.Kind]++
			}
			if got, off := float64(len(kinds)), 5*math.Sqrt(n*share*(1-share)); math.Abs(got-n*share) > off {
				t.Errorf("hops of %v messages are kept, want %v give or take %v", got, n*share, off)
			}
			produced := 0
			if named {
				produced = 1
			}
			for key, k := range kinds {
				if k[consume.HopProduced] != produced || k[consume.HopDispatched] != 1 || k[consume.HopSettled] != 1 {
					t.Fatalf("message %s (named: %v): hops %v, want each once", key, named, k)
				}
			}
			seen := map[string]bool{}
			for _, h := range s.hops("more") {
				seen[h.Key] = true
			}
			for key := range kinds {
				if !seen[key] {
					t.Fatalf("message %s is in the share of 10 %%, and not in that of 20 %%", key)
				}
			}
			if handled.Load() != 2*n {
				t.Errorf("%d were handled, want each in both groups", handled.Load())
			}
			_ = s.engine.Close()
		})
	}
}

// slow takes no hops while it is stuck.
type slow struct {
	*consume.Memory
	stuck        atomic.Bool
	tries, taken atomic.Int64 // to write hops
}

func (e *slow) Append(ctx context.Context, ms ...*consume.Message) error {
	if ms[0].Partition.Topic != consume.HopsTopic {
		return e.Memory.Append(ctx, ms...)
	}
	e.tries.Add(1)
	if e.stuck.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	err := e.Memory.Append(ctx, ms...)
	e.taken.Add(1)
	return err
}

// TestHopsMissing: hops that the engine does not take keep nobody waiting, and are told to be
// missing; the recorder's end is an error where it could not write them at all.
func TestHopsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, queue = 500, 10
		s := newStage(t, 1)
		e := &slow{Memory: s.engine}
		lc := s.connect("", "e1")
		h, err := consume.NewHops(e, lc, consume.HopsConfig{Share: 1, Queue: queue})
		if err != nil {
			t.Fatal(err)
		}
		p := consume.NewProducer(e, lc, consume.RecordHops(h))
		send := func(n int) {
			t.Helper()
			before := time.Now()
			for range n {
				if err := p.Send(t.Context(), consume.Outgoing{Topic: "orders"}); err != nil {
					t.Fatal(err)
				}
			}
			if d := time.Since(before); d != 0 {
				t.Errorf("sending took %s", d)
			}
		}
		e.stuck.Store(true)
		send(1)
		s.until("that one to be on its way", func() bool { return e.tries.Load() > 0 })
		send(n)
		if got := h.Missing(); got != n-queue {
			t.Errorf("%d are missing, want %d", got, n-queue)
		}
		e.stuck.Store(false)
		s.until("the queue to be written", func() bool { return e.taken.Load() == 2 })
		send(1)
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
		kept, missing := 0, int64(0)
		for _, h := range s.hops(consume.HopsTopic) {
			if h.Kind == consume.HopMissing {
				missing += h.Count
				if h.Since.IsZero() || h.Instance != "e1" {
					t.Errorf("missing: %+v", h)
				}
				continue
			}
			kept++
		}
		if kept != 1+queue+1 || missing != n-queue {
			t.Errorf("%d are kept and %d told to be missing, want %d and %d", kept, missing, 1+queue+1, n-queue)
		}

		if h, err = consume.NewHops(e, lc, consume.HopsConfig{Share: 1, Queue: 3}); err != nil {
			t.Fatal(err)
		}
		p = consume.NewProducer(e, lc, consume.RecordHops(h))
		e.stuck.Store(true)
		tries := e.tries.Load()
		send(5)
		s.until("those to be on their way", func() bool { return e.tries.Load() > tries })
		send(2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); err == nil || !strings.Contains(err.Error(), "7 hops") {
			t.Errorf("close without an engine: %v, want that seven hops are lost", err)
		}
		_ = s.engine.Close()
	})
}

// TestHopsOff: nothing is recorded or marked without a share, and of what is in the hops
// topic itself.
func TestHopsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		lc := s.connect("", "e1")
		off := s.newHops(lc, consume.HopsConfig{})
		all := s.newHops(lc, consume.HopsConfig{Share: 1, Topic: "orders"})
		var handled atomic.Int64
		for i, h := range []*consume.Hops{nil, off, all} {
			p := consume.NewProducer(s.engine, lc, consume.RecordHops(h))
			if err := p.Send(t.Context(), consume.Outgoing{Topic: "orders"}); err != nil {
				t.Fatal(err)
			}
			c := s.consume(lc, func(_ context.Context, d *consume.Delivery) error {
				if (*consume.Headers)(&d.Headers).Values(consume.MessageHeader) != nil {
					t.Error("the message is marked")
				}
				handled.Add(1)
				return nil
			}, consume.WithHops(h))
			s.until("the message", func() bool { return handled.Load() == int64(i+1) })
			s.close(c)
			if err := h.Close(t.Context()); err != nil || h.Missing() != 0 {
				t.Errorf("%v, %d missing", err, h.Missing())
			}
		}
		if b, err := s.engine.Bounds(t.Context(), consume.Partition{Topic: "orders"}); err != nil || b.End != 3 {
			t.Errorf("the topic ends at %+v, %v, want that hops were not added", b, err)
		}
		if _, err := s.engine.Describe(t.Context(), consume.HopsTopic); !errors.Is(err, consume.ErrNoTopic) {
			t.Errorf("hops topic: %v, want none", err)
		}
		_ = s.engine.Close()
	})
}

// TestHopsSentAgain: a message that is sent twice with one ID has one name.
func TestHopsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		lc := s.connect("", "e1")
		h := s.newHops(lc, consume.HopsConfig{Share: 1})
		p := consume.NewProducer(s.engine, lc, consume.RecordHops(h))
		for range 2 {
			if err := p.Send(t.Context(), consume.Outgoing{Topic: "orders", ID: "order-7"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Close(t.Context()); err != nil {
			t.Error(err)
		}
		got := s.hops(consume.HopsTopic)
		if len(got) != 2 || got[0].Message == "" || got[0].Message != got[1].Message {
			t.Errorf("got %+v, want two of one name", got)
		}
		_ = s.engine.Close()
	})
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]float64{"": 0, "none": 0, "all": 1, "1%": 0.01, "0.25": 0.25, "100%": 1, "0": 0} {
		if got, err := consume.ParseShare(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"some", "101%", "-1", "NaN", "2", "%"} {
		if got, err := consume.ParseShare(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, got)
		}
	}
	if _, err := consume.NewHops(consume.NewMemory(consume.MemoryConfig{}), nil, consume.HopsConfig{Share: math.NaN()}); err == nil {
		t.Error("a share that is no number is taken")
	}
}
