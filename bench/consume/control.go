package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// control measures the hand-over over the real control plane: `laneway server` in a process
// of its own, with etcd and JetStream embedded, and watching clients in four other ones.
//
// The clock of a start begins before laneclient.Dial of the lane's consumer, and so has the
// session, the registration of its instance, the group's settings, the join, the split by the
// baseline, the take, and the first fetch; the connection to the engine is open before. That
// of a stop begins before its runner is told to stop, and has the release, the leave and the
// take by the baseline.
func control(ctx context.Context, s settings) (kept bool, err error) {
	in, err := install(ctx, s)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, in.close()) }()
	w, err := in.world(ctx, s)
	if err != nil {
		return false, err
	}
	if _, err := laneclient.CreateLane(ctx, in.api, &laneclient.Lane{Meta: laneclient.Meta{Name: string(green)}}); err != nil {
		return false, err
	}
	promised := 50 * time.Millisecond
	if s.partitions > partitions {
		promised = 150 * time.Millisecond
	}
	loads := []int{0, liveRate}
	topic := func(load int) string { return fmt.Sprintf("served-%d-%d", s.partitions, load) }
	groups := ""
	if s.watchGroups {
		groups = topic(0) + "," + topic(liveRate)
	}
	if err := in.watch(ctx, s, groups); err != nil {
		return false, err
	}
	watching := "the service"
	if s.watchGroups {
		watching = "the service and the group"
	}
	fmt.Printf("\n%-50s %9s %9s %9s\n", "hand-over over the control plane, grace 0", "p50", "p99", "max")
	if s.callable {
		watching += ", whose consumers can be called"
	}
	if s.yield {
		watching += ", and yield"
	}
	fmt.Printf("etcd and JetStream embedded in one server process, %d clients in %d processes watch %s\n", s.watchers, watcherProcesses, watching)
	kept = true
	for _, load := range loads {
		c := &clients{control: in.Control, topic: topic(load), partitions: s.partitions, callable: s.callable, trace: newTrace()}
		h, err := w.newScene(ctx, c.topic, c, c.trace, s.partitions, load)
		if err != nil {
			return false, err
		}
		err = errors.Join(h.run(ctx, s.events), h.stop())
		if err != nil {
			return false, fmt.Errorf("%d partitions, %d messages/s: %w", s.partitions, load, err)
		}
		kept = h.print(promised) && kept
		h.trace.table()
	}
	return kept, nil
}

var _ host = (*clients)(nil)

// clients are the consumers of a group, each with a laneclient as its registry, as programs
// have it.
type clients struct {
	control, topic string
	partitions     int
	callable       bool
	trace          *trace

	mu    sync.Mutex
	all   []*client
	first *laneclient.Client
}

// client is one consumer.
type client struct {
	registry *laneclient.Client
	leave    func()
	cancel   context.CancelFunc
	done     chan error
	once     sync.Once
	err      error
}

// launch implements host.
func (c *clients) launch(ctx context.Context, e *jetstream.Engine, o consume.Options, in lane.Name) (stop func() error, err error) {
	cfg := laneclient.Config{Control: []string{c.control}, Service: service, Lane: string(in), NoListen: true}
	if c.callable {
		cfg.Endpoints = []laneclient.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:9"}} // nobody calls
	}
	registry, err := laneclient.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	c.trace.mark(in, "dialed")
	_, leave, err := registry.Enter(ctx, c.topic, consume.Settings{
		Topics: []string{c.topic}, Partitions: map[string]int32{c.topic: int32(c.partitions)},
	})
	if err != nil {
		return nil, errors.Join(err, registry.Close())
	}
	c.trace.mark(in, "entered")
	o.Source, o.Topics, o.Registry, o.Config.Group = e, e, registry, c.topic
	o.Config.Topics = []consume.Topic{{Name: c.topic, Partitions: int32(c.partitions)}}
	o.Members = []consume.Member{{ID: strings.ReplaceAll(registry.Instance(), "/", "-"), Lane: in, Topics: []string{c.topic}}}
	r, err := consume.NewRunner(o)
	if err != nil {
		leave()
		return nil, errors.Join(err, registry.Close())
	}
	one := &client{registry: registry, leave: leave, done: make(chan error, 1)}
	ctx, one.cancel = context.WithCancel(ctx)
	go func() { one.done <- r.Run(ctx) }()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
	if c.first == nil {
		c.first = registry
	}
	return one.stop, nil
}

// stop ends a consumer as a clean stop does.
func (c *client) stop() error {
	c.once.Do(func() {
		c.cancel()
		c.err = <-c.done
		c.leave()
		c.err = errors.Join(c.err, c.registry.Close())
	})
	return c.err
}

// stop implements host.
func (c *clients) stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wg sync.WaitGroup
	for _, one := range c.all {
		wg.Go(func() { _ = one.stop() }) // its error is asked for below
	}
	wg.Wait()
	var err error
	for _, one := range c.all {
		err = errors.Join(err, one.stop())
	}
	return err
}

// held implements host.
func (c *clients) held(ctx context.Context, cursors int) error {
	return programs.Poll(ctx, patience, func() error {
		records, err := c.first.Records(ctx, c.topic)
		if err != nil {
			return err
		}
		n := 0
		for _, s := range records {
			if !s.Record.Main.None() {
				n++
			}
		}
		if n < cursors {
			return fmt.Errorf("%d of %d cursors have a holder", n, cursors)
		}
		return nil
	})
}
