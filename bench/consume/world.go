package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

const (
	partitions = 8
	laneCount  = 100
	groupName  = "billing"
	patience   = 2 * time.Minute // for any one turn
)

// world is an embedded engine at durability bounded, which appends, and takes others by its
// port.
type world struct {
	settings
	dir  string
	url  string
	feed *jetstream.Engine
}

func newWorld(ctx context.Context, s settings) (w *world, err error) {
	w = &world{settings: s}
	if w.dir, err = os.MkdirTemp("", "consume-"); err != nil {
		return nil, err
	}
	w.feed, err = jetstream.Open(ctx, jetstream.Config{Dir: w.dir, Listen: "127.0.0.1:0", Durability: jetstream.Bounded})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(w.dir))
	}
	w.url = w.feed.URL()
	return w, nil
}

func (w *world) close() error {
	return errors.Join(w.feed.Close(), os.RemoveAll(w.dir))
}

// engine opens a connection of its own.
func (w *world) engine(ctx context.Context) (*jetstream.Engine, error) {
	return jetstream.Open(ctx, jetstream.Config{URL: w.url})
}

// message is one like those that people send.
func (w *world) message(topic string, partition int, color lane.Name, n int) *consume.Message {
	return &consume.Message{
		Partition: consume.Partition{Topic: topic, Index: int32(partition)}, Color: color,
		Key: fmt.Appendf(nil, "customer-%08d", n), Value: make([]byte, w.size),
		Headers: []consume.Header{{Name: "traceparent", Value: []byte("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")}},
	}
}

// laneName is that of the n-th lane.
func laneName(n int) lane.Name { return lane.Name(fmt.Sprintf("lane-%d", n)) }

// fill makes a topic and gives it messages, spread evenly over its partitions. color says
// which color the n-th has.
func (w *world) fill(ctx context.Context, topic string, messages int, color func(n int) lane.Name) error {
	if err := w.feed.Ensure(ctx, consume.TopicSpec{Name: topic, Partitions: partitions}); err != nil {
		return err
	}
	const run = 400
	for n := 0; n < messages; {
		var ms []*consume.Message
		for range min(run, messages-n) {
			ms = append(ms, w.message(topic, n%partitions, color(n), n))
			n++
		}
		if err := w.feed.Append(ctx, ms...); err != nil {
			return err
		}
	}
	return nil
}

func plain(int) lane.Name { return lane.Baseline }

// onePercent colors one message in a hundred, by any of the lanes; the same ones each time.
func onePercent() func(int) lane.Name {
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a choice, no secret
	return func(int) lane.Name {
		if random.IntN(100) > 0 {
			return lane.Baseline
		}
		return laneName(random.IntN(laneCount))
	}
}

// connect makes a connection as a peer would, who knows nothing of topics, only of the streams
// of a topic's partitions.
func (w *world) connect(ctx context.Context, topic string) (nc *nats.Conn, js natsjs.JetStream, streams []string, err error) {
	if nc, err = nats.Connect(w.url); err != nil {
		return nil, nil, nil, err
	}
	if js, err = natsjs.New(nc); err == nil {
		streams, err = streamsOf(ctx, js, topic)
	}
	if err != nil {
		nc.Close()
	}
	return nc, js, streams, err
}

func streamsOf(ctx context.Context, js natsjs.JetStream, topic string) (names []string, err error) {
	list := js.StreamNames(ctx)
	for name := range list.Name() {
		if strings.HasPrefix(name, jetstream.DefaultPrefix+"_"+topic+"_") {
			names = append(names, name)
		}
	}
	if list.Err() == nil && len(names) != partitions {
		return nil, fmt.Errorf("topic %s has %d streams: want %d", topic, len(names), partitions)
	}
	return names, list.Err()
}

// group is a consumer group with a registry of its own.
type group struct {
	topic    string
	registry *consume.MemoryRegistry

	mu        sync.Mutex
	processes []*process
}

// process is a runner, as a process of its own would have it.
type process struct {
	access *consume.MemoryProcess
	cancel context.CancelFunc
	done   chan error
}

// newGroup has so many lanes.
func newGroup(topic string, lanes ...lane.Name) (*group, error) {
	g := &group{topic: topic, registry: consume.NewMemoryRegistry(consume.MemoryRegistryConfig{})}
	for _, l := range lanes {
		if err := g.registry.CreateLane(l, lane.Baseline); err != nil {
			return nil, err
		}
	}
	return g, nil
}

func allLanes() (names []lane.Name) {
	for n := range laneCount {
		names = append(names, laneName(n))
	}
	return names
}

// start runs a consumer with a member in each of some lanes; [lane.Baseline] is one.
func (g *group) start(ctx context.Context, engine *jetstream.Engine, o consume.Options, in ...lane.Name) (*process, error) {
	o.Config.Group = groupName
	o.Config.Topics = []consume.Topic{{Name: g.topic, Partitions: 64}}
	p := &process{access: g.registry.Connect(), done: make(chan error, 1)}
	session, _ := p.access.Session()
	o.Source, o.Topics, o.Registry = engine, engine, p.access
	for _, l := range in {
		o.Members = append(o.Members, consume.Member{ID: session + "/" + string(l), Lane: l, Topics: []string{g.topic}})
	}
	r, err := consume.NewRunner(o)
	if err != nil {
		p.access.Close()
		return nil, err
	}
	ctx, p.cancel = context.WithCancel(ctx)
	go func() { p.done <- r.Run(ctx) }()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.processes = append(g.processes, p)
	return p, nil
}

// launch implements host.
func (g *group) launch(ctx context.Context, engine *jetstream.Engine, o consume.Options, in lane.Name) (stop func() error, err error) {
	p, err := g.start(ctx, engine, o, in)
	if err != nil {
		return nil, err
	}
	return p.stop, nil
}

// stop ends a process as a clean stop does.
func (p *process) stop() error {
	p.cancel()
	err := <-p.done
	p.done <- err // it may be asked for again
	p.access.Close()
	return err
}

// stop ends all of them.
func (g *group) stop() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	errs := make(chan error, len(g.processes))
	for _, p := range g.processes {
		go func() { errs <- p.stop() }()
	}
	var all []error
	for range g.processes {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// held waits until so many cursors have a holder.
func (g *group) held(ctx context.Context, cursors int) error {
	return programs.Poll(ctx, patience, func() error {
		n := 0
		for _, s := range g.registry.Records(groupName) {
			if s.Record.Main.Session != "" {
				n++
			}
			for _, e := range s.Record.Colors {
				if e.Holder.Session != "" {
					n++
				}
			}
		}
		if n < cursors {
			return fmt.Errorf("%d of %d cursors have a holder", n, cursors)
		}
		return nil
	})
}

// counter counts to a number.
type counter struct {
	n     atomic.Int64
	to    int64
	done  chan struct{}
	over  chan struct{} // closed when wait returns
	meter *meter        // nil: it does not begin at a count
	warm  int64
}

func newCounter(to int) *counter {
	return &counter{to: int64(to), done: make(chan struct{}), over: make(chan struct{})}
}

// metered counts, and measures from a fifth of it on: until then all of a turn has begun.
func metered(to int) *counter {
	c := newCounter(to)
	c.warm, c.meter = int64(to/5), &meter{}
	return c
}

func (c *counter) add() {
	switch c.n.Add(1) {
	case c.warm:
		c.meter.begin()
	case c.to:
		close(c.done)
	}
}

// wait returns when all have been counted. It is called once.
func (c *counter) wait(ctx context.Context) error {
	defer close(c.over)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case <-c.done:
		if c.meter != nil {
			return c.meter.end(c.to - c.warm)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d messages: %w", c.n.Load(), c.to, ctx.Err())
	}
}
