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

// stage is an engine, a registry and what consumers were handed.
type stage struct {
	t        *testing.T
	engine   *consume.Memory
	registry *consume.MemoryRegistry

	mu    sync.Mutex
	given map[string][]handed // by message
}

type handed struct {
	by          string
	redelivered bool
}

func newStage(t *testing.T, partitions int32) *stage {
	s := &stage{
		t: t, engine: consume.NewMemory(consume.MemoryConfig{}), registry: consume.NewMemoryRegistry(consume.MemoryRegistryConfig{}),
		given: map[string][]handed{},
	}
	if err := s.engine.Ensure(t.Context(), consume.TopicSpec{Name: "orders", Partitions: partitions}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) append(n int, color lane.Name) {
	s.t.Helper()
	for i := range n {
		m := &consume.Message{Partition: consume.Partition{Topic: "orders", Index: -1}, Key: fmt.Append(nil, i), Color: color}
		if err := s.engine.Append(s.t.Context(), m); err != nil {
			s.t.Fatal(err)
		}
	}
}

// pass lets time pass in a bubble: as long as somebody works, and long enough for what must
// not happen to happen. What is to happen is waited for by until.
func pass(d time.Duration) { time.Sleep(d) }

// until waits, in a bubble, until something has come about.
func (s *stage) until(what string, done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); pass(10 * time.Millisecond) {
		if time.Now().After(end) {
			s.t.Fatalf("waited for %s", what)
		}
	}
}

// untilRun waits until a lane runs the cursors of colors in all partitions.
func (s *stage) untilRun(in lane.Name, colors ...lane.Name) {
	s.t.Helper()
	partitions, err := s.engine.Partitions(s.t.Context(), "orders")
	if err != nil {
		s.t.Fatal(err)
	}
	s.until(fmt.Sprintf("%q to run %q", in, colors), func() bool {
		run := 0
		for _, r := range s.registry.Records("billing") {
			for _, c := range colors {
				if h, _ := r.Record.Holder(c); r.Partition.Topic == "orders" && !h.None() && h.Lane == in {
					run++
				}
			}
		}
		return run == int(partitions)*len(colors)
	})
}

// process is one consumer that can be stopped.
type process struct {
	access *consume.MemoryProcess
	cancel context.CancelFunc
	done   chan error
}

func (s *stage) start(name string, in lane.Name, handle func(context.Context, *consume.Delivery) error) *process {
	s.t.Helper()
	return s.startWith(name, in, consume.Options{Handle: func(ctx context.Context, d *consume.Delivery) error {
		s.mu.Lock()
		id := fmt.Sprintf("%s@%d", d.Partition, d.Offset)
		s.given[id] = append(s.given[id], handed{name, d.Redelivered})
		s.mu.Unlock()
		return handle(ctx, d)
	}})
}

func (s *stage) startWith(name string, in lane.Name, o consume.Options) *process {
	s.t.Helper()
	return s.startIn("", name, in, o)
}

// startIn starts a consumer in a room.
func (s *stage) startIn(room, name string, in lane.Name, o consume.Options) *process {
	s.t.Helper()
	p := &process{access: s.registry.Connect(), done: make(chan error, 1)}
	o.Config.Group = "billing"
	if o.Config.Topics == nil {
		o.Config.Topics = []consume.Topic{{Name: "orders", Retry: "orders-retry", Dead: "orders-dead", Partitions: 64}}
	}
	o.Registry = p.access
	if o.Source == nil {
		o.Source, o.Topics = s.engine, s.engine
	}
	o.Members = []consume.Member{{ID: name, Lane: in, Room: room, Topics: []string{"orders"}}}
	r, err := consume.NewRunner(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(s.t.Context())
	p.cancel = cancel
	go func() { p.done <- r.Run(ctx) }()
	return p
}

func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cancel()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
	p.access.Close()
}

func (s *stage) counts() (byWhom map[string]int, twice int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	byWhom = map[string]int{}
	for _, hs := range s.given {
		byWhom[hs[len(hs)-1].by]++
		twice += len(hs) - 1
	}
	return byWhom, twice
}

// untilGiven waits until n messages have been handed out.
func (s *stage) untilGiven(n int) {
	s.t.Helper()
	s.until(fmt.Sprintf("%d messages", n), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.given) >= n
	})
}

func ok(context.Context, *consume.Delivery) error { return nil }

// TestRunnerLane: a lane gets its messages while it is there, and what it has not read goes to
// the baseline, each message once.
func TestRunnerLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 4)
		e1 := s.start("e1", "", ok)
		s.append(100, "")
		s.append(100, "green") // nobody knows the lane yet
		s.untilGiven(200)
		if err := s.registry.CreateLane("green", ""); err != nil {
			t.Fatal(err)
		}
		slow := func(ctx context.Context, d *consume.Delivery) error {
			if got := lane.From(ctx); got != "green" || got != d.Color {
				t.Errorf("the handler's color is %q, the message's %q", got, d.Color)
			}
			pass(50 * time.Millisecond)
			return nil
		}
		e2 := s.start("e2", "green", slow)
		s.untilRun("green", "green")
		s.append(2000, "green")
		s.append(500, "")
		s.until("the lane to be in the middle of it", func() bool {
			by, _ := s.counts()
			return by["e2"] >= 200
		})
		e2.stop(t)
		s.untilGiven(2700)
		pass(5 * time.Second) // and no more
		by, twice := s.counts()
		if by["e1"]+by["e2"] != 2700 || by["e2"] == 0 || by["e1"] < 700 || twice != 0 {
			t.Errorf("by whom: %v, twice: %d", by, twice)
		}
		for _, r := range s.registry.Records("billing") {
			if r.Record.Main.None() || len(r.Record.Colors) != 0 {
				t.Errorf("%s: %+v", r.Partition, r.Record)
			}
		}
		e1.stop(t)
		_ = s.engine.Close()
	})
}

// TestRunnerRetries: a failed message comes again as often as is configured, follows its
// color to whoever has it then, and is dead at last; a panic is a failure.
func TestRunnerRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		o := consume.Options{Config: consume.Config{RetryDelays: []time.Duration{time.Second, time.Second}}}
		var got []string
		o.Handle = func(_ context.Context, d *consume.Delivery) error {
			s.mu.Lock()
			got = append(got, fmt.Sprintf("%s#%d", d.Partition.Topic, d.Attempt))
			s.mu.Unlock()
			if d.Attempt == 1 {
				panic("no")
			}
			return fmt.Errorf("attempt %d", d.Attempt)
		}
		p := s.startWith("e1", "", o)
		s.append(1, "green")
		dead := func() (consume.Batch, error) {
			return s.engine.Peek(consume.Partition{Topic: "orders-dead"}, 0, consume.Filter{All: true}, 10)
		}
		s.until("a dead letter", func() bool {
			b, _ := dead()
			return len(b.Messages) > 0
		})
		pass(10 * time.Second) // and no more
		p.stop(t)
		if want := []string{"orders#0", "orders-retry#1", "orders-retry#2"}; !slices.Equal(got, want) {
			t.Errorf("handed out as %v, want %v", got, want)
		}
		b, err := dead()
		if err != nil || len(b.Messages) != 1 {
			t.Fatalf("dead letters: %+v, %v", b, err)
		}
		m := b.Messages[0]
		if m.Color != "green" || m.Attempt != 3 || m.Error != "attempt 2" || m.Origin == nil || m.Origin.Partition.Topic != "orders" || m.Origin.Group != "billing" {
			t.Errorf("dead letter %+v of %+v", m, m.Origin)
		}
		_ = s.engine.Close()
	})
}

// TestRunnerBatches: a batch has one color, and each of its messages is answered for once.
func TestRunnerBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		var mu sync.Mutex
		seen := map[lane.Name]int{}
		biggest := 0
		o := consume.Options{Batch: 10, HandleBatch: func(ctx context.Context, ds []*consume.Delivery) error {
			pass(10 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			biggest = max(biggest, len(ds))
			for _, d := range ds {
				if d.Color != ds[0].Color || lane.From(ctx) != d.Color {
					t.Errorf("a batch of %s has a message of %s", ds[0].Color, d.Color)
				}
				seen[d.Color]++
			}
			ds[0].Ack()
			return nil
		}}
		for range 50 {
			s.append(1, "")
			s.append(1, "red")
		}
		p := s.startWith("e1", "", o)
		s.until("all of them", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return seen[""]+seen["red"] >= 100
		})
		pass(time.Second) // and no more
		p.stop(t)
		if seen[""] != 50 || seen["red"] != 50 || biggest != 10 {
			t.Errorf("seen %v, biggest batch %d", seen, biggest)
		}
		_ = s.engine.Close()
	})
}

// TestRunnerCutOff: a process out of the registry's reach goes on, moves nothing, and
// goes on under a new session afterwards without handing anything out twice.
func TestRunnerCutOff(t *testing.T) {
	for _, loss := range []consume.LossPolicy{consume.LossContinue, consume.LossHold} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 2)
			o := consume.Options{Config: consume.Config{OnLoss: loss}}
			var mu sync.Mutex
			times := map[string]int{}
			o.Handle = func(_ context.Context, d *consume.Delivery) error {
				mu.Lock()
				defer mu.Unlock()
				times[fmt.Sprintf("%s@%d", d.Partition, d.Offset)]++
				return nil
			}
			p := s.startWith("e1", "", o)
			handed := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(times)
			}
			s.append(10, "")
			s.until("the first ten", func() bool { return handed() >= 10 })
			p.access.Cut()
			s.until("its session to run out", func() bool { _, left := p.access.Session(); return left <= 0 })
			s.append(10, "")
			pass(5 * time.Second) // also for what must not be handed out
			during := handed()
			if want := map[consume.LossPolicy]int{consume.LossContinue: 20, consume.LossHold: 10}[loss]; during != want {
				t.Errorf("policy %d: %d messages while cut off, want %d", loss, during, want)
			}
			p.access.Mend()
			s.until("its new session to read on", func() bool {
				id, _ := p.access.Session()
				mains := 0
				for _, r := range s.registry.Records("billing") {
					if r.Partition.Topic == "orders" && r.Record.Main.Session == id {
						mains++
					}
				}
				return mains == 2
			})
			s.append(10, "")
			s.until("all of them", func() bool { return handed() >= 30 })
			pass(5 * time.Second) // and none once more
			p.stop(t)
			for m, n := range times {
				if n != 1 {
					t.Errorf("policy %d: %s was handed out %d times", loss, m, n)
				}
			}
			if len(times) != 30 {
				t.Errorf("policy %d: %d messages", loss, len(times))
			}
			_ = s.engine.Close()
		})
	}
}

// away is an engine that is not there for the next n questions about partitions.
type away struct {
	*consume.Memory
	mu   sync.Mutex
	n    int
	last time.Time     // that it was away
	gap  time.Duration // until it was asked again
	made map[string]int
}

func (e *away) Partitions(ctx context.Context, topic string) (int32, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case topic != "orders":
	case e.n > 0:
		e.n--
		e.last = time.Now()
		return 0, errors.New("it is away")
	case e.gap == 0:
		e.gap = time.Since(e.last)
	}
	return e.Memory.Partitions(ctx, topic)
}

func (e *away) Ensure(ctx context.Context, t consume.TopicSpec) error {
	e.mu.Lock()
	e.made[t.Name]++
	e.mu.Unlock()
	return e.Memory.Ensure(ctx, t)
}

func (e *away) leave(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n, e.gap = n, 0
}

// TestRunnerCounts: partitions that are added are found. An engine that was away is asked again
// at once, whatever was before, and topics for what failed are made once.
func TestRunnerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		e := &away{Memory: s.engine, made: map[string]int{}}
		e.leave(10)
		p := s.startWith("e1", "", consume.Options{Handle: ok, Source: e, Topics: e})
		s.untilRun("", consume.Main)
		pass(time.Minute)
		e.leave(1)
		if err := s.engine.Grow(t.Context(), "orders", 3); err != nil {
			t.Fatal(err)
		}
		s.untilRun("", consume.Main)
		p.stop(t)
		if e.gap > 100*time.Millisecond {
			t.Errorf("the engine is asked again after %s", e.gap)
		}
		if e.made["orders-retry"] != 1 || e.made["orders-dead"] != 1 {
			t.Errorf("topics are made: %v, want each once", e.made)
		}
		_ = s.engine.Close()
	})
}

// TestRunnerMembers: a member that the registry refuses keeps no other of its process out; it
// joins when its lane is there.
func TestRunnerMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		access := s.registry.Connect()
		r, err := consume.NewRunner(consume.Options{
			Config: consume.Config{Group: "billing", Topics: []consume.Topic{{Name: "orders"}}}, Source: s.engine, Registry: access,
			Members: []consume.Member{{ID: "e1", Lane: "green", Topics: []string{"orders"}}, {ID: "e2", Topics: []string{"orders"}}},
			Handle:  ok,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		s.untilRun("", consume.Main)
		if err := s.registry.CreateLane("green", ""); err != nil {
			t.Fatal(err)
		}
		s.untilRun("green", "green")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		access.Close()
		_ = s.engine.Close()
	})
}

// TestRunnerEndsInTime: a process that cannot give up what it holds, since the registry is out of
// reach, ends all the same, and says so.
func TestRunnerEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		p := s.startWith("e1", "", consume.Options{Handle: ok, Config: consume.Config{HandoverTimeout: 3 * time.Second}})
		s.untilRun("", consume.Main)
		p.access.Cut()
		stops := time.Now()
		p.cancel()
		if err := <-p.done; err == nil || !strings.Contains(err.Error(), "when the session ends") {
			t.Errorf("it says %v", err)
		}
		if took := time.Since(stops); took < 3*time.Second || took > 6*time.Second {
			t.Errorf("it ends after %v", took)
		}
		p.access.Close()
		_ = s.engine.Close()
	})
}
