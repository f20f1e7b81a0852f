package control_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

const partitions = 4 // of the topic

// plant is a control plane, an engine, and what consumers were handed.
type plant struct {
	t      *testing.T
	api    *laneclient.API
	r      *replica
	engine *consume.Memory

	mu    sync.Mutex
	given map[string][]string // by message: who had it
}

// inPlant runs f in a bubble, where time passes at once.
func inPlant(t *testing.T, f func(t *testing.T, p *plant)) {
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		r := startOver(t, s, control.Config{})
		p := &plant{
			t: t, r: r, engine: consume.NewMemory(consume.MemoryConfig{}), given: map[string][]string{},
			api: laneclient.NewAPI(laneclient.Config{Transport: laneclient.InMemory(r.c.Handler())}),
		}
		if err := p.engine.Ensure(t.Context(), consume.TopicSpec{Name: "orders", Partitions: partitions}); err != nil {
			t.Fatal(err)
		}
		f(t, p)
		r.stop()
		_ = s.Close()
		_ = p.engine.Close()
	})
}

// worker is a process that consumes.
type worker struct {
	*laneclient.Client
	*consume.Consumer
	wire *lanetest.Wire
}

// start starts a process in a lane whose handler takes so long.
func (p *plant) start(name, in string, takes time.Duration, options ...consume.Option) *worker {
	p.t.Helper()
	w := &worker{wire: lanetest.NewWire(laneclient.InMemory(p.r.c.Handler()))}
	var err error
	w.Client, err = laneclient.Dial(p.t.Context(), laneclient.Config{Transport: w.wire, Service: "e", Instance: name, NoListen: true, Lane: in})
	if err != nil {
		p.t.Fatal(err)
	}
	handle := func(ctx context.Context, d *consume.Delivery) error {
		if got := lane.From(ctx); got != d.Color {
			p.t.Errorf("the handler's color is %q, the message's %q", got, d.Color)
		}
		p.mu.Lock()
		p.given[string(d.Value)] = append(p.given[string(d.Value)], name)
		p.mu.Unlock()
		time.Sleep(takes)
		return nil
	}
	if w.Consumer, err = consume.Run(p.t.Context(), p.engine, w.Client, "orders", "billing", handle, options...); err != nil {
		p.t.Fatal(err)
	}
	p.r.until(name+" to have its cursors", func() bool { return p.cursors(w, lane.Name(in)) == partitions })
	return w
}

// cursors is in how many partitions a process holds what its lane reads with.
func (p *plant) cursors(w *worker, in lane.Name) (n int) {
	p.t.Helper()
	records, err := w.Records(p.t.Context(), "billing")
	if err != nil {
		p.t.Fatal(err)
	}
	session, _ := w.Session()
	for _, r := range records {
		holder, _ := r.Record.Holder(in)
		if r.Partition.Topic == "orders" && holder.Session == session {
			n++
		}
	}
	return n
}

// held is how many cursors a session holds, as a process reads it.
func (p *plant) held(by *worker, session string) (n int) {
	p.t.Helper()
	records, err := by.Records(p.t.Context(), "billing")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, r := range records {
		for _, c := range append(slices.Collect(maps.Keys(r.Record.Colors)), consume.Main) {
			if h, _ := r.Record.Holder(c); h.Session == session {
				n++
			}
		}
	}
	return n
}

// stop stops it as a program does that is asked to.
func (p *plant) stop(w *worker) {
	p.t.Helper()
	if err := w.Consumer.Close(p.t.Context()); err != nil {
		p.t.Error(err)
	}
	if err := w.Client.Close(); err != nil {
		p.t.Error(err)
	}
}

// kill cuts it off for good, and ends what runs of it without a word to anybody.
func (p *plant) kill(w *worker) {
	p.t.Helper()
	w.wire.Cut()
	go func() {
		_ = w.Consumer.Close(context.Background())
		_ = w.Client.Close()
	}()
}

func (p *plant) send(color lane.Name, from, n int) {
	p.t.Helper()
	for i := from; i < from+n; i++ {
		m := &consume.Message{Partition: consume.Partition{Topic: "orders", Index: -1}, Color: color, Value: fmt.Append(nil, color, "-", i)}
		if err := p.engine.Append(p.t.Context(), m); err != nil {
			p.t.Fatal(err)
		}
	}
}

// counts are how many messages each had last, and how many were handed out more than once.
func (p *plant) counts() (by map[string]int, twice int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	by = map[string]int{}
	for _, who := range p.given {
		by[who[len(who)-1]]++
		if len(who) > 1 {
			twice++
		}
	}
	return by, twice
}

// await waits until so many messages were handed out, to whom it may be.
func (p *plant) await(n int) {
	p.t.Helper()
	p.r.until(fmt.Sprintf("%d messages to be handed out", n), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.given) >= n
	})
}

// awaitOf waits until a process was the last to be handed so many.
func (p *plant) awaitOf(name string, n int) {
	p.t.Helper()
	p.r.until(fmt.Sprintf("%s to have %d messages", name, n), func() bool {
		by, _ := p.counts()
		return by[name] >= n
	})
}

// TestConsumeThrough: a lane gets its messages while it is there; what it has not read when it
// leaves goes to the baseline, each message once.
func TestConsumeThrough(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		e1 := p.start("e1", "", 0)
		p.send("", 0, 100)
		p.send("green", 0, 100) // nobody knows the lane yet
		p.await(200)
		p.r.must(201, nil, "POST", "/v1/lanes", `{"name":"green"}`)
		e2 := p.start("e2", "green", 50*time.Millisecond)
		p.send("green", 100, 2000)
		p.send("", 100, 500)
		p.awaitOf("e2", 20)
		p.stop(e2)
		p.await(2700)
		pass(10 * time.Second) // none comes again, and the records are those of a group at rest
		by, twice := p.counts()
		if by["e1"]+by["e2"] != 2700 || by["e2"] == 0 || by["e1"] < 700 || twice != 0 {
			t.Errorf("by whom: %v, twice: %d", by, twice)
		}
		records, err := e1.Records(t.Context(), "billing")
		if err != nil || len(records) != partitions+1 { // and that of the retry topic
			t.Errorf("%d records, %v", len(records), err)
		}
		for _, r := range records {
			if r.Record.Main.None() || len(r.Record.Colors) != 0 {
				t.Errorf("%s: %+v", r.Partition, r.Record)
			}
		}
		p.stop(e1)
		records, err = func() ([]consume.Stored, error) {
			e3 := p.start("e3", "", 0)
			defer p.stop(e3)
			return e3.Records(t.Context(), "billing")
		}()
		if err != nil || len(records) != partitions+1 {
			t.Errorf("%d records afterwards, %v", len(records), err)
		}
	})
}

// TestConsumeKill: what a lost process had not settled is taken over, and handed out again at
// most where it had it in flight.
func TestConsumeKill(t *testing.T) {
	inPlant(t, func(t *testing.T, p *plant) {
		p.r.must(201, nil, "POST", "/v1/lanes", `{"name":"green"}`)
		e1, e2 := p.start("e1", "", 0), p.start("e2", "green", 100*time.Millisecond, consume.WithConcurrency(4))
		p.send("green", 0, 400)
		p.send("", 0, 100)
		p.awaitOf("e2", 280)
		dead, _ := e2.Session()
		p.kill(e2)
		p.r.until("nothing to be the dead one's", func() bool { return p.held(e1, dead) == 0 })
		p.await(500)
		pass(5 * time.Second) // and what comes again, and no more
		by, twice := p.counts()
		if by["e1"]+by["e2"] != 500 || by["e1"] < 150 || by["e2"] < 200 {
			t.Errorf("by whom: %v", by)
		}
		if twice > 4*partitions+4*partitions*3 { // in flight, and settled since the last note
			t.Errorf("%d messages were handed out twice", twice)
		}
		p.send("green", 400, 10)
		p.await(510)
		p.stop(e1)
	})
}

// TestConsumeOutage: with the control plane away messages go on as before, and when it is
// back under new sessions, each once.
func TestConsumeOutage(t *testing.T) {
	for _, c := range []struct {
		loss   consume.LossPolicy
		during int
	}{{consume.LossContinue, 40}, {consume.LossHold, 20}} {
		inPlant(t, func(t *testing.T, p *plant) {
			e1 := p.start("e1", "", 0, consume.WithOnLoss(c.loss))
			p.send("", 0, 20)
			p.await(20)
			before, _ := e1.Session()
			e1.wire.Cut()
			p.r.until("its session to run out", func() bool { _, left := e1.Session(); return left <= 0 })
			p.send("", 20, 20)
			pass(5 * time.Second) // also for what must not be handed out
			if by, _ := p.counts(); by["e1"] != c.during {
				t.Errorf("%s: %d messages while it was away, want %d", c.loss, by["e1"], c.during)
			}
			e1.wire.Mend()
			p.await(40)
			p.r.until("its cursors under a new session", func() bool { return p.cursors(e1, lane.Baseline) == partitions })
			p.send("", 40, 20)
			p.await(60)
			pass(5 * time.Second) // none comes again
			by, twice := p.counts()
			if by["e1"] != 60 || twice != 0 {
				t.Errorf("%s: %d messages, %d of them twice", c.loss, by["e1"], twice)
			}
			if after, left := e1.Session(); after == before || left <= 0 {
				t.Errorf("%s: session %s after %s", c.loss, after, before)
			}
			p.stop(e1)
		})
	}
}
