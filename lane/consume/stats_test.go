package consume_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// moved are moves by kind.
func moved(s *consume.Stats) map[consume.MoveKind]int64 {
	out := map[consume.MoveKind]int64{}
	for kind, whys := range s.Moves {
		for _, n := range whys {
			out[kind] += n
		}
	}
	return out
}

// TestStats: what becomes of messages and cursors is counted, each once.
func TestStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		if err := s.registry.CreateLane("green", ""); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		returned := map[string]bool{}
		release := make(chan struct{})
		handle := func(_ context.Context, d *consume.Delivery) error {
			mu.Lock()
			defer mu.Unlock()
			switch key := string(d.Value); key {
			case "bad":
				return errors.New("cannot")
			case "back":
				if !returned[key] {
					returned[key] = true
					return consume.ErrReturn
				}
			case "slow":
				d.Hold()
				go func() { <-release; d.Ack() }()
			}
			return nil
		}
		lc := s.connect("", "e1")
		c := s.consume(lc, handle, consume.WithRetries(time.Second))
		out := consume.NewProducer(s.engine, lc)
		begun := time.Now()
		for _, value := range []string{"good", "good", "bad", "back", "slow"} {
			if err := out.Send(t.Context(), consume.Outgoing{Topic: "orders", Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
		}
		s.until("a dead letter", func() bool { return c.Stats().Dead[consume.BuryAttempts] == 1 })
		st := c.Stats()
		// The bad one comes twice: first, and from the retry topic.
		if st.Dispatched != 7 || st.Redelivered != 1 || st.Settled != 3 || st.Failed != 2 || st.Returned != 1 || st.Retried != 1 || st.Late != 0 || st.Dropped != 0 || st.Lost != 0 {
			t.Errorf("messages: %+v", st)
		}
		if st.Group != "billing" || st.Session == "" || !st.LostSince.IsZero() || st.InFlight != 1 || st.Writes["done"] == 0 {
			t.Errorf("stats are %+v", st)
		}
		if got := moved(&st); !maps.Equal(got, map[consume.MoveKind]int64{consume.Create: 2, consume.Take: 2}) {
			t.Errorf("moves: %v", st.Moves)
		}
		s.until("the log to be read to its end", func() bool { return c.Stats().Cursors[0].Behind == 0 })
		st = c.Stats()
		if len(st.Cursors) != 2 || st.Cursors[1].Topic != consume.RetryTopic("orders", "billing") {
			t.Fatalf("cursors: %+v", st.Cursors)
		}
		if got := st.Cursors[0]; got.Topic != "orders" || got.Color != "" || got.InFlight != 1 || got.Unsettled != 1 || got.Stopped ||
			got.Oldest.Before(begun) || got.Oldest.After(begun.Add(time.Second)) {
			t.Errorf("orders: %+v, want one message that is with a handler since %v", got, begun)
		}
		close(release)
		s.until("all to be settled", func() bool { return c.Stats().InFlight == 0 })
		if got := c.Stats().Cursors[0]; got.Unsettled != 0 || !got.Oldest.IsZero() {
			t.Errorf("orders: %+v, want nothing that waits", got)
		}
		// A copy of a replay for a lane that has nobody is not handed out.
		if err := s.engine.Append(t.Context(), &consume.Message{
			Partition: consume.Partition{Topic: consume.RetryTopic("orders", "billing"), Index: -1},
			Origin:    &consume.Origin{Partition: consume.Partition{Topic: "orders"}, Group: "billing", Replay: "r", Only: "green"},
		}); err != nil {
			t.Fatal(err)
		}
		s.until("the copy to be dropped", func() bool { return c.Stats().Dropped == 1 })

		// A lane's own consumer: its color is split off here, and taken there.
		green := s.consume(s.connect("green", "e2"), handle)
		s.untilRun("green", "green")
		// It is told of within moments, also to the one that split.
		s.until("moves to be counted", func() bool {
			here, there := c.Stats(), green.Stats()
			return moved(&here)[consume.Split] > 0 && moved(&there)[consume.Take] > 0
		})
		s.close(green)
		s.close(c)
		over := c.Stats()
		if over.Dispatched != 7 || over.Settled != 4 || over.Cursors != nil || over.InFlight != 0 || moved(&over)[consume.Release] == 0 {
			t.Errorf("after the end: %+v", over)
		}
		over.Alarms["mine"] = 1
		if again := c.Stats(); again.Alarms["mine"] != 0 {
			t.Error("what was told is shared")
		}
	})
}

// TestStatsAlarms: alarms are counted by what is wrong, and what retention took; the registry is
// out of reach since some time, and then no more; a log that is another one stops its cursors.
func TestStatsAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		orders := consume.Partition{Topic: "orders"}
		s.append(7, "")
		handle := func(context.Context, *consume.Delivery) error { return nil }
		// A consumer that has created the group and left with nothing read: what is deleted then
		// is gone.
		group := consume.Group{Paused: true}
		s.registry.SetGroup("billing", group)
		lc := s.connect("", "e1")
		c := s.consume(lc, handle)
		s.untilRun("", "")
		if err := s.engine.Retain(orders, 5); err != nil {
			t.Fatal(err)
		}
		group.Paused = false
		s.registry.SetGroup("billing", group)
		s.until("the rest to be read", func() bool { return c.Stats().Settled == 2 })
		if st := c.Stats(); st.Alarms[consume.AlarmRetention] != 1 || st.Lost != 5 {
			t.Errorf("alarms are %v, lost %d; want one of retention, which took 5", st.Alarms, st.Lost)
		}

		if _, err := s.engine.Foreign(consume.ForeignConsumer{Group: "billing", Partition: orders}); err != nil {
			t.Fatal(err)
		}
		s.until("the foreign consumer to be found", func() bool { return c.Stats().Alarms[consume.AlarmForeign] == 1 })

		lc.Cut()
		cut := time.Now()
		s.until("the registry to be lost", func() bool { return c.Stats().Alarms[consume.AlarmRegistry] == 1 })
		if st := c.Stats(); st.LostSince.Before(cut) || st.LostSince.After(time.Now()) {
			t.Errorf("lost since %v, it was cut at %v", st.LostSince, cut)
		}
		before := c.Stats().Session
		lc.Mend()
		s.until("the registry to be back", func() bool { return c.Stats().Alarms[consume.AlarmRegistryBack] == 1 })
		if st := c.Stats(); !st.LostSince.IsZero() || st.Session == before || st.Session == "" {
			t.Errorf("back: lost since %v, session %q after %q", st.LostSince, st.Session, before)
		}

		s.untilRun("", "")
		if err := s.engine.Recreate("orders"); err != nil {
			t.Fatal(err)
		}
		s.until("the log to be seen as another one", func() bool { return c.Stats().Alarms[consume.AlarmTruncated] == 1 })
		if got := c.Stats().Cursors[0]; !got.Stopped {
			t.Errorf("cursor %+v, want it to be stopped", got)
		}
		var text bytes.Buffer
		if err := consume.WriteMetrics(&text, c.Stats()); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			`laneway_consumer_alarms_total{group="billing",reason="retention-lost"} 1`, `laneway_consumer_lost_offsets_total{group="billing"} 5`,
			`laneway_consumer_stopped{group="billing",topic="orders",partition="0",color="-"} 1`,
		} {
			if !strings.Contains(text.String(), want+"\n") {
				t.Errorf("metrics have no %s:\n%s", want, text.String())
			}
		}
		s.close(c)
	})
}

// TestStatsAtAnyTime: before, while and after a runner runs, from handlers too, it tells, and
// never waits for what does not come.
func TestStatsAtAnyTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 2)
		s.append(20, "")
		var r *consume.Runner
		lc := s.registry.Connect()
		handled := 0
		var mu sync.Mutex
		o := consume.Options{
			Source: s.engine, Registry: lc, Members: []consume.Member{{ID: "e1", Topics: []string{"orders"}}},
			Handle: func(context.Context, *consume.Delivery) error {
				st := r.Stats()
				mu.Lock()
				defer mu.Unlock()
				handled++
				if st.Dispatched == 0 || st.InFlight == 0 {
					t.Errorf("in a handler: %+v", st)
				}
				return nil
			},
		}
		o.Config = consume.Config{Group: "billing", Topics: []consume.Topic{{Name: "orders", Partitions: 64}}}
		r, err := consume.NewRunner(o)
		if err != nil {
			t.Fatal(err)
		}
		if st := r.Stats(); st.Group != "billing" || st.Dispatched != 0 || st.Cursors != nil {
			t.Errorf("before it runs: %+v", st)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		for range 4 {
			wg.Go(func() {
				for last := int64(0); ctx.Err() == nil; pass(time.Millisecond) {
					st := r.Stats()
					if st.Settled < last || st.Settled > st.Dispatched {
						t.Errorf("settled %d after %d, dispatched %d", st.Settled, last, st.Dispatched)
					}
					last = st.Settled
				}
			})
		}
		s.until("all to be settled", func() bool { return r.Stats().Settled == 20 })
		stop()
		wg.Wait()
		if st := r.Stats(); st.Settled != 20 || st.Cursors != nil {
			t.Errorf("after it has run: %+v", st)
		}
		lc.Close()
	})
}

// TestWriteMetrics: the text is Prometheus's, of several consumers together.
func TestWriteMetrics(t *testing.T) {
	t.Parallel()
	one := consume.Stats{
		Group: "billing", Dispatched: 7, Redelivered: 1, Settled: 4, Failed: 2, Returned: 1, Retried: 1,
		Dead:   map[consume.BuryReason]int64{consume.BuryAttempts: 1},
		Moves:  map[consume.MoveKind]map[consume.Why]int64{consume.Take: {consume.WhyFree: 2}},
		Alarms: map[consume.AlarmKind]int64{consume.AlarmRegistry: 1}, Writes: map[string]int64{"done": 9, "doubt": 1},
		LostSince: time.Now(), InFlight: 3,
		Cursors: []consume.CursorStats{{Topic: "orders", Behind: -1}, {Topic: "orders", Partition: 1, Color: "green", Behind: 12}},
	}
	two := consume.Stats{Group: "billing", Dispatched: 3, InFlight: 1, Writes: map[string]int64{"done": 1}, Cursors: []consume.CursorStats{{Topic: `a"\`, Behind: 1}}}
	var b bytes.Buffer
	if err := consume.WriteMetrics(&b, one, two); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		if !strings.HasPrefix(line, "# HELP ") {
			got = append(got, line)
		}
	}
	const want = `# TYPE laneway_consumer_messages_total counter
laneway_consumer_messages_total{group="billing",event="dispatched"} 10
laneway_consumer_messages_total{group="billing",event="dropped"} 0
laneway_consumer_messages_total{group="billing",event="failed"} 2
laneway_consumer_messages_total{group="billing",event="late"} 0
laneway_consumer_messages_total{group="billing",event="redelivered"} 1
laneway_consumer_messages_total{group="billing",event="retried"} 1
laneway_consumer_messages_total{group="billing",event="returned"} 1
laneway_consumer_messages_total{group="billing",event="settled"} 4
# TYPE laneway_consumer_dead_total counter
laneway_consumer_dead_total{group="billing",reason="attempts-used-up"} 1
# TYPE laneway_consumer_lost_offsets_total counter
laneway_consumer_lost_offsets_total{group="billing"} 0
# TYPE laneway_consumer_moves_total counter
laneway_consumer_moves_total{group="billing",kind="take",reason="nobody-holds-it"} 2
# TYPE laneway_consumer_alarms_total counter
laneway_consumer_alarms_total{group="billing",reason="registry-lost"} 1
# TYPE laneway_consumer_writes_total counter
laneway_consumer_writes_total{group="billing",outcome="done"} 10
laneway_consumer_writes_total{group="billing",outcome="doubt"} 1
# TYPE laneway_consumer_failed_reads_total counter
laneway_consumer_failed_reads_total{group="billing"} 0
# TYPE laneway_consumer_in_flight_messages gauge
laneway_consumer_in_flight_messages{group="billing"} 4
# TYPE laneway_consumer_cursors gauge
laneway_consumer_cursors{group="billing"} 3
# TYPE laneway_consumer_registry_lost gauge
laneway_consumer_registry_lost{group="billing"} 1
# TYPE laneway_consumer_oldest_seconds gauge
laneway_consumer_oldest_seconds{group="billing",topic="a\"\\",partition="0",color="-"} 0
laneway_consumer_oldest_seconds{group="billing",topic="orders",partition="0",color="-"} 0
laneway_consumer_oldest_seconds{group="billing",topic="orders",partition="1",color="green"} 0
# TYPE laneway_consumer_stopped gauge
laneway_consumer_stopped{group="billing",topic="a\"\\",partition="0",color="-"} 0
laneway_consumer_stopped{group="billing",topic="orders",partition="0",color="-"} 0
laneway_consumer_stopped{group="billing",topic="orders",partition="1",color="green"} 0
# TYPE laneway_consumer_behind_offsets gauge
laneway_consumer_behind_offsets{group="billing",topic="a\"\\",partition="0",color="-"} 1
laneway_consumer_behind_offsets{group="billing",topic="orders",partition="1",color="green"} 12
`
	if text := strings.Join(got, ""); text != want {
		t.Errorf("written is\n%s", text)
	}
}
