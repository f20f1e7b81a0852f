package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

const (
	promisedOverPull = 1.5
	promisedOverRaw  = 0.7
	batch            = consume.DefaultFetch // of a direct get, for both
)

// rates compares a group without lanes with what one would use otherwise.
func rates(ctx context.Context, w *world) (bool, error) {
	const topic = "rates"
	if err := w.fill(ctx, topic, w.messages, plain); err != nil {
		return false, err
	}
	var turns atomic.Int64
	raw := &kind{name: "direct gets in batches, not worked on", turn: func(ctx context.Context) (cost, error) { return w.direct(ctx, topic) }}
	pull := &kind{name: "durable pull consumers, each message acked", turn: func(ctx context.Context) (cost, error) {
		return w.pull(ctx, topic, fmt.Sprintf("turn-%d", turns.Add(1)))
	}}
	single := &kind{name: "consume.Runner, Handle", turn: func(ctx context.Context) (cost, error) {
		return w.runner(ctx, topic, w.messages, nil, handle)
	}}
	batches := &kind{name: "consume.Runner, HandleBatch", turn: func(ctx context.Context) (cost, error) {
		return w.runner(ctx, topic, w.messages, nil, func(c *counter) consume.Options {
			return consume.Options{HandleBatch: func(_ context.Context, ds []*consume.Delivery) error {
				for range ds {
					c.add()
				}
				return nil
			}}
		})
	}}
	kinds := []*kind{raw, pull, single, batches}
	if err := takeTurns(ctx, w.rounds, kinds...); err != nil {
		return false, err
	}
	return table(fmt.Sprintf("a group without lanes, %d partitions, %d bytes", partitions, w.size), kinds, []promise{
		{kind: single, peer: pull, rate: promisedOverPull},
		{kind: single, peer: raw, rate: promisedOverRaw},
		{kind: batches, peer: raw},
	}), nil
}

// runner consumes a topic by one process, with a member in the baseline and one in each of
// some lanes.
func (w *world) runner(ctx context.Context, topic string, messages int, lanes []lane.Name, options func(*counter) consume.Options) (c cost, err error) {
	engine, err := w.engine(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	g, err := newGroup(topic, lanes...)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	// What it takes to start is measured elsewhere.
	g.registry.SetGroup(groupName, consume.Group{Paused: true})
	n := metered(messages)
	if _, err := g.start(ctx, engine, options(n), append([]lane.Name{lane.Baseline}, lanes...)...); err != nil {
		return c, err
	}
	if err := g.held(ctx, partitions*(1+len(lanes))); err != nil {
		return c, err
	}
	g.registry.SetGroup(groupName, consume.Group{})
	err = n.wait(ctx)
	return n.meter.cost, err
}

// pull consumes a topic the usual way.
func (w *world) pull(ctx context.Context, topic, durable string) (c cost, err error) {
	nc, js, names, err := w.connect(ctx, topic)
	if err != nil {
		return c, err
	}
	defer nc.Close()
	var consumers []natsjs.Consumer
	for _, name := range names {
		consumer, err := js.CreateConsumer(ctx, name, natsjs.ConsumerConfig{Durable: durable, AckPolicy: natsjs.AckExplicitPolicy})
		if err != nil {
			return c, err
		}
		defer func() { err = errors.Join(err, js.DeleteConsumer(context.WithoutCancel(ctx), name, durable)) }()
		consumers = append(consumers, consumer)
	}
	n := metered(w.messages)
	n.meter.settled = func() error { return acked(ctx, consumers) }
	for _, consumer := range consumers {
		consuming, err := consumer.Consume(func(m natsjs.Msg) {
			if m.Ack() == nil {
				n.add()
			}
		}, natsjs.PullMaxMessages(2*batch)) // asks for the next batch when half of it is worked on
		if err != nil {
			return c, err
		}
		defer consuming.Stop()
	}
	err = n.wait(ctx)
	return n.meter.cost, err
}

// acked waits until the server has taken in all acks.
func acked(ctx context.Context, consumers []natsjs.Consumer) error {
	for _, c := range consumers {
		err := programs.Poll(ctx, patience, func() error {
			info, err := c.Info(ctx)
			if err == nil && info.NumAckPending > 0 {
				err = fmt.Errorf("%d acks are missing", info.NumAckPending)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// direct reads a topic by direct gets, and does nothing with what comes.
func (w *world) direct(ctx context.Context, topic string) (c cost, err error) {
	nc, _, names, err := w.connect(ctx, topic)
	if err != nil {
		return c, err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n := metered(w.messages)
	errs := make(chan error, len(names))
	var wg sync.WaitGroup
	for _, name := range names {
		wg.Go(func() { errs <- directStream(ctx, nc, name, n) })
	}
	wg.Wait()
	for range names {
		err = errors.Join(err, <-errs)
	}
	if err == nil {
		err = n.wait(ctx)
	}
	return n.meter.cost, err
}

// directStream reads a stream to its end.
func directStream(ctx context.Context, nc *nats.Conn, stream string, n *counter) error {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }() // the connection is closed after it
	for from, left := uint64(1), true; left; {
		request := fmt.Appendf(nil, `{"seq":%d,"batch":%d}`, from, batch)
		if err := nc.PublishRequest("$JS.API.DIRECT.GET."+stream, inbox, request); err != nil {
			return err
		}
		for {
			m, err := sub.NextMsgWithContext(ctx)
			if err != nil {
				return err
			}
			if status := m.Header.Get("Status"); status != "" {
				if status != "204" && status != "404" {
					return fmt.Errorf("%s: answer %s", stream, status)
				}
				left = status == "204" && m.Header.Get("Nats-Num-Pending") != "0"
				break
			}
			offset, err := strconv.ParseUint(m.Header.Get(nats.JSSequence), 10, 64)
			if err != nil {
				return err
			}
			from = offset + 1
			n.add()
		}
	}
	return nil
}
