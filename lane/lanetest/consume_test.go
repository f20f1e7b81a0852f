package lanetest_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

const orderPartitions = 3

// works is a control plane and an engine, and who was handed what by the processes on them.
type works struct {
	*lanetest.Control
	t      *testing.T
	engine *consume.Memory

	mu    sync.Mutex
	given map[string][]string // by message: who had it
	sent  int
}

// process consumes and produces.
type process struct {
	lc       *laneclient.Client
	consumer *consume.Consumer
	producer *consume.Producer
	wire     *lanetest.Wire
}

// inWorks runs f in a bubble, where waiting takes no time.
func inWorks(t *testing.T, f func(t *testing.T, w *works)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorks(t, lanetest.NewReplicas(t, 2))) })
}

func newWorks(t *testing.T, c *lanetest.Control) *works {
	t.Helper()
	w := &works{Control: c, t: t, engine: consume.NewMemory(consume.MemoryConfig{}), given: map[string][]string{}}
	t.Cleanup(func() { _ = w.engine.Close() })
	return w
}

// start starts a process in a lane, and waits until it has what is the lane's.
func (w *works) start(name string, in lane.Name, options ...consume.Option) *process {
	w.t.Helper()
	p := &process{wire: lanetest.NewWire(w.Transport())}
	cfg := w.Config()
	cfg.Transport, cfg.Lane, cfg.Service, cfg.Instance, cfg.NoListen = p.wire, string(in), "billing", name, true
	var err error
	if p.lc, err = laneclient.Dial(w.t.Context(), cfg); err != nil {
		w.t.Fatal(err)
	}
	handle := func(ctx context.Context, d *consume.Delivery) error {
		if got := lane.From(ctx); got != d.Color {
			w.t.Errorf("the handler's color is %q, the message's %q", got, d.Color)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.given[string(d.Value)] = append(w.given[string(d.Value)], name)
		return nil
	}
	options = append(options, consume.WithPartitions(orderPartitions))
	p.consumer, err = consume.Run(w.t.Context(), w.engine, p.lc, "orders", "billing", handle, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { // of a test that has failed half-way
		_ = p.consumer.Close(context.WithoutCancel(w.t.Context()))
		_ = p.lc.Close()
	})
	p.producer = consume.NewProducer(w.engine, p.lc)
	w.AwaitConsumer("billing", "orders", in)
	return p
}

func (w *works) stop(p *process) {
	w.t.Helper()
	if err := p.consumer.Close(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	if err := p.lc.Close(); err != nil {
		w.t.Error(err)
	}
}

// send sends ten messages of a color, and waits until all that were sent are handed out.
func (w *works) send(by *process, color lane.Name) {
	w.t.Helper()
	ctx := lane.Plain(w.t.Context())
	if color != lane.Baseline {
		ctx = lane.With(w.t.Context(), color)
	}
	for range 10 {
		w.sent++
		value := fmt.Sprintf("%s-%d", color, w.sent)
		if err := by.producer.Send(ctx, consume.Outgoing{Topic: "orders", Value: []byte(value)}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.until("all messages are handed out", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.given) == w.sent
	})
}

func (w *works) until(what string, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within a minute: %s", what)
		}
		pass(50 * time.Millisecond)
	}
}

// had is how many messages each was handed, once each of them was handed out once.
func (w *works) had() map[string]int {
	w.t.Helper()
	pass(10 * time.Second) // what should not come has had the time to
	w.mu.Lock()
	defer w.mu.Unlock()
	by := map[string]int{}
	for m, who := range w.given {
		if len(who) > 1 {
			w.t.Errorf("message %s was handed to %v", m, who)
		}
		by[who[0]]++
	}
	return by
}

func (w *works) want(want string) {
	w.t.Helper()
	if got := fmt.Sprint(w.had()); got != "map["+want+"]" {
		w.t.Errorf("messages were handed out as %s, want %s", got, want)
	}
}

// TestConsumeInLanes: who sends and who consumes find each other over nothing but the fake and
// an engine in memory, and each message goes to its lane, wherever that is.
func TestConsumeInLanes(t *testing.T) {
	inWorks(t, func(t *testing.T, w *works) {
		w.AddLane("green")
		w.AddLane("mint", "green")
		base := w.start("base", "")
		w.send(base, "")
		w.send(base, "green")
		w.want("base:20")
		green := w.start("green", "green")
		w.send(green, "")
		w.send(base, "green")
		w.send(base, "mint")
		w.want("base:30 green:20")
		mint := w.start("mint", "mint")
		w.send(base, "mint")
		w.stop(green)
		w.send(base, "green")
		w.send(base, "mint")
		w.want("base:40 green:20 mint:20")
		w.stop(mint)
		w.send(base, "mint")
		w.want("base:50 green:20 mint:20")
		w.stop(base)
	})
}

// TestConsumeThroughFaults: outages, lost sessions and lost answers lose no message, and hand
// none out twice, where consumers hold what they have while they cannot reach the registry.
func TestConsumeThroughFaults(t *testing.T) {
	inWorks(t, func(t *testing.T, w *works) {
		w.AddLane("green")
		hold := consume.WithOnLoss(consume.LossHold)
		base, green := w.start("base", "", hold), w.start("green", "green", hold)
		synctest.Wait() // what they are to be answered has come
		w.Stop()
		w.send(base, "green")
		w.Start()
		w.send(base, "green")
		w.want("green:20")
		lost, _ := base.lc.Session()
		w.KillSessions()
		w.until("the baseline's process to have another session", func() bool {
			id, lasts := base.lc.Session()
			return id != lost && lasts > 0
		})
		w.send(base, "")
		w.AwaitConsumer("billing", "orders", "green")
		w.send(base, "green")
		w.want("base:10 green:30")
		green.wire.LoseAnswers(3)
		w.send(base, "green")
		w.want("base:10 green:40")
		before, _ := green.lc.Session()
		green.wire.Cut()
		w.until("the lane's process to be lost", func() bool { return !slices.Contains(w.Sessions(), before) })
		w.until("the baseline to have all", func() bool {
			cursors, err := base.lc.Records(t.Context(), "billing")
			return err == nil && !slices.ContainsFunc(cursors, func(s consume.Stored) bool {
				h, _ := s.Record.Holder("green")
				return h.Session == before
			})
		})
		w.send(base, "green")
		w.want("base:20 green:40")
		green.wire.Mend()
		w.AwaitConsumer("billing", "orders", "green")
		w.send(base, "green")
		w.want("base:20 green:50")
		w.stop(green)
		w.stop(base)
	})
}

// TestPauseAndReset: what operators do with groups reaches consumers.
func TestPauseAndReset(t *testing.T) {
	inWorks(t, func(t *testing.T, w *works) {
		base := w.start("base", "")
		w.send(base, "")
		g, err := laneclient.Get[laneclient.Group](t.Context(), w.API(), "billing")
		if err != nil {
			t.Fatal(err)
		}
		g.Paused = true
		if g, err = laneclient.Put(t.Context(), w.API(), g); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it has been told
		err = base.producer.Send(t.Context(), consume.Outgoing{Topic: "orders", Value: []byte("late")})
		if err != nil {
			t.Fatal(err)
		}
		w.want("base:10")
		g.Paused, g.Reset = false, &laneclient.GroupReset{ID: "r1", Offsets: map[string]int64{}}
		for n := range orderPartitions {
			g.Reset.Offsets[fmt.Sprintf("orders/%d", n)] = 0
		}
		if _, err = laneclient.Put(t.Context(), w.API(), g); err != nil {
			t.Fatal(err)
		}
		w.until("all messages to come once more", func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			n := 0
			for _, who := range w.given {
				n += len(who)
			}
			return len(w.given) == 11 && n >= 21
		})
		w.stop(base)
	})
}

// TestAwaitConsumerSaysWhy: who waits in vain is told for what.
func TestAwaitConsumerSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorks(t, lanetest.OpenControl(1)) // what would fail a test panics there
		defer w.Close()
		w.AddLane("green")
		base := w.start("base", "")
		defer w.stop(base)
		for _, c := range []struct {
			group, topic string
			in           lane.Name
			want         string
		}{
			{"shipping", "orders", "", "no such group"},
			{"billing", "bills", "", "0 of 1 partitions"},
			{"billing", "orders", "green", "in lane green: of partition orders/0 they have nothing"},
		} {
			if said := panicOf(func() { w.AwaitConsumer(c.group, c.topic, c.in) }); !strings.Contains(said, c.want) {
				t.Errorf("it says %q, want %q", said, c.want)
			}
		}
	})
}

// TestAwaitConsumerLooksAtHolders: a lane's consumers have what is theirs where a session that
// lives holds it for the lane, in every partition.
func TestAwaitConsumerLooksAtHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.OpenControl(1)
		defer c.Close()
		ctx, api := t.Context(), c.API()
		g := &laneclient.Group{Meta: laneclient.Meta{Name: "billing"}, Engine: "main", Topics: []string{"orders"}, Partitions: map[string]int{"orders": 2}}
		if _, err := laneclient.Put(ctx, api, g); err != nil {
			t.Fatal(err)
		}
		s, err := laneclient.OpenSession(ctx, api, &laneclient.Session{TTL: laneclient.Duration(laneclient.MaxTTL)})
		if err != nil {
			t.Fatal(err)
		}
		revs := map[string]uint64{}
		for _, step := range []struct{ partition, holder, want string }{
			{"0", `null`, "orders/0 they have nothing"},
			{"0", `{"session":"` + s.Name + `"}`, "orders/0 they have nothing"}, // for the baseline
			{"0", `{"session":"nobody","lane":"green"}`, "orders/0 they have nothing"},
			{"0", `{"session":"` + s.Name + `","lane":"green"}`, "1 of 2 partitions"},
			{"1", `null`, "orders/1 they have nothing"},
			{"1", `{"session":"` + s.Name + `","lane":"green"}`, "<nil>"},
		} {
			on := laneclient.IfMatch(revs[step.partition])
			if revs[step.partition] == 0 {
				on = laneclient.IfNoneMatch()
			}
			w := laneclient.CursorWrite{Record: []byte(`{"v":1,"main":{"holder":null},"colors":{"green":{"from":0,"holder":` + step.holder + `}}}`)}
			var done laneclient.CursorDone
			err := api.Do(ctx, http.MethodPut, "/v1/cursors/main/billing/orders/"+step.partition, w, &done, on, laneclient.InSession(s.Name))
			if err != nil {
				t.Fatal(err)
			}
			revs[step.partition] = done.Revision
			if said := panicOf(func() { c.AwaitConsumer("billing", "orders", "green") }); !strings.Contains(said, step.want) {
				t.Errorf("partition %s held by %s: it says %q, want %q", step.partition, step.holder, said, step.want)
			}
		}
	})
}

// panicOf is what f panics with, or <nil>.
func panicOf(f func()) (said string) {
	defer func() { said = fmt.Sprint(recover()) }()
	f()
	return said
}

// TestTombstoneEnds: what stands for one that left goes when its time is over, and not before.
func TestTombstoneEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.NewControl(t)
		ctx, api := t.Context(), c.API()
		if _, err := laneclient.Put(ctx, api, &laneclient.Group{Meta: laneclient.Meta{Name: "billing"}, Engine: "main", Topics: []string{"orders"}}); err != nil {
			t.Fatal(err)
		}
		s, err := laneclient.OpenSession(ctx, api, &laneclient.Session{TTL: laneclient.Duration(laneclient.MaxTTL)})
		if err != nil {
			t.Fatal(err)
		}
		m := &laneclient.Member{Meta: laneclient.Meta{Name: "a"}, Group: "billing", Topics: []string{"orders"}}
		if _, err := laneclient.Put(ctx, api, m, laneclient.InSession(s.Name)); err != nil {
			t.Fatal(err)
		}
		const grace = 30 * time.Second
		if err := api.Do(ctx, http.MethodDelete, "/v1/members/billing/a?grace="+grace.String(), nil, nil); err != nil {
			t.Fatal(err)
		}
		pass(grace - time.Millisecond)
		if m, err := laneclient.Get[laneclient.Member](ctx, api, "billing/a"); err != nil || m.Session != "" {
			t.Errorf("before its time is over it is %+v, %v", m, err)
		}
		pass(2 * time.Millisecond)
		synctest.Wait()
		if _, err := laneclient.Get[laneclient.Member](ctx, api, "billing/a"); !laneclient.IsNotFound(err) {
			t.Errorf("when its time is over it is still there: %v", err)
		}
	})
}

// TestSessionsOfAnotherEra: what a registry that has lost everything is told of sessions that
// it had before is of none that it has now.
func TestSessionsOfAnotherEra(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.NewControl(t)
		ctx, api := t.Context(), c.API()
		open := func() string {
			s, err := laneclient.OpenSession(ctx, api, &laneclient.Session{})
			if err != nil {
				t.Fatal(err)
			}
			return s.Name
		}
		put := func(session string, rev uint64, gone string) (done laneclient.CursorDone, err error) {
			w := laneclient.CursorWrite{Record: []byte(`{"v":1,"main":{"holder":{"session":"` + session + `"}}}`), Gone: []string{gone}}
			on := laneclient.IfMatch(rev)
			if rev == 0 {
				on = laneclient.IfNoneMatch()
			}
			err = api.Do(ctx, http.MethodPut, "/v1/cursors/main/billing/orders/0", w, &done, on, laneclient.InSession(session))
			return done, err
		}
		group := &laneclient.Group{Meta: laneclient.Meta{Name: "billing"}, Engine: "main", Topics: []string{"orders"}}
		before := open()
		c.Reset()
		now := open()
		if _, err := laneclient.Put(ctx, api, group); err != nil {
			t.Fatal(err)
		}
		if _, err := put(before, 0, "nobody"); err == nil || now == before {
			t.Errorf("session %s writes after all was lost; there is %s", before, now)
		}
		done, err := put(now, 0, before)
		if err != nil {
			t.Errorf("session %s is said to live after all was lost: %v", before, err)
		}
		if _, err := put(now, done.Revision, now); err == nil {
			t.Errorf("session %s is said not to live", now)
		}
	})
}
