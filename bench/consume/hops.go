package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane/consume"
)

// sampledHops is the share of messages whose hops a program in production might keep.
const sampledHops = 0.01

// hops compares a group that records what happens to its messages with one that does not, over
// the same messages; what is written is written to the same server, within the turn.
func hops(ctx context.Context, w *world) (bool, error) {
	const topic = "hops"
	if err := w.fill(ctx, topic, w.messages, plain); err != nil {
		return false, err
	}
	with := func(name string, share float64) *kind {
		return &kind{name: name, turn: func(ctx context.Context) (cost, error) { return w.recorded(ctx, topic, share) }}
	}
	off := &kind{name: "without hops", turn: func(ctx context.Context) (cost, error) {
		return w.runner(ctx, topic, w.messages, nil, handle)
	}}
	none, some, all := with("hops of no message", 0), with("hops of 1 % of the messages", sampledHops), with("hops of all messages", 1)
	kinds := []*kind{off, none, some, all}
	if err := takeTurns(ctx, w.rounds, kinds...); err != nil {
		return false, err
	}
	return table("dispatched and settled, recorded", kinds, []promise{{kind: none, peer: off}, {kind: some, peer: off}, {kind: all, peer: off}}), nil
}

// recorded is a turn in which hops of a share are recorded. Where that is all of them, it has
// not ended before they are written; of few the rest is little.
func (w *world) recorded(ctx context.Context, topic string, share float64) (c cost, err error) {
	engine, err := w.engine(ctx)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	to := &lineCounter{Engine: engine}
	h, err := consume.NewHops(to, nil, consume.HopsConfig{Share: share, Service: groupName, Queue: 4 * w.messages})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, h.Close(ctx)) }() // the group has stopped then
	return w.runner(ctx, topic, w.messages, nil, func(n *counter) consume.Options {
		o := handle(n)
		o.Hops = h
		if share == 1 {
			n.meter.settled = func() error {
				return programs.Poll(ctx, patience, func() error {
					if got, want := to.lines.Load(), int64(2*w.messages); got < want {
						return fmt.Errorf("%d of %d hops are written", got, want)
					}
					return nil
				})
			}
		}
		return o
	})
}

// lineCounter counts the hops that are written.
type lineCounter struct {
	*jetstream.Engine
	lines atomic.Int64
}

func (e *lineCounter) Append(ctx context.Context, ms ...*consume.Message) error {
	err := e.Engine.Append(ctx, ms...)
	if err == nil {
		for _, m := range ms {
			e.lines.Add(int64(bytes.Count(m.Value, []byte{'\n'})))
		}
	}
	return err
}
