package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

const (
	promisedWithLanes = 0.95
	promisedBytes     = 1.2

	mainReaders = 2
	liveRate    = 5000 // messages a second
	liveTick    = 5 * time.Millisecond
	longer      = 5 // times as many messages a turn: a hundred lanes have all begun by a fifth of it
	liveFor     = 20 * time.Second
)

// handle counts.
func handle(c *counter) consume.Options {
	return consume.Options{Handle: func(context.Context, *consume.Delivery) error {
		c.add()
		return nil
	}}
}

// withLanes compares a group whose process has members in a hundred lanes with one that knows
// no lane, over the same messages.
func withLanes(ctx context.Context, w *world) (bool, error) {
	const topic = "lanes"
	if err := w.fill(ctx, topic, longer*w.messages, onePercent()); err != nil {
		return false, err
	}
	without := &kind{name: "no lane", turn: func(ctx context.Context) (cost, error) {
		return w.runner(ctx, topic, longer*w.messages, nil, handle)
	}}
	with := &kind{name: "100 lanes with a member each", turn: func(ctx context.Context) (cost, error) {
		return w.runner(ctx, topic, longer*w.messages, allLanes(), handle)
	}}
	kinds := []*kind{without, with}
	if err := takeTurns(ctx, w.rounds, kinds...); err != nil {
		return false, err
	}
	return table("one message in 100 colored, one process", kinds, []promise{{kind: with, peer: without, rate: promisedWithLanes}}), nil
}

// bytesRead counts what a hundred processes of a lane each read from the server, beside two
// that read for main, while messages come.
func bytesRead(ctx context.Context, w *world) (kept bool, err error) {
	const topic = "bytes"
	if err := w.fill(ctx, topic, 0, plain); err != nil {
		return false, err
	}
	g, err := newGroup(topic, allLanes()...)
	if err != nil {
		return false, err
	}
	main, err := newRelay(ctx, w.url)
	if err != nil {
		return false, err
	}
	defer main.close()
	lanes, err := newRelay(ctx, w.url)
	if err != nil {
		return false, err
	}
	defer lanes.close()
	var engines []*jetstream.Engine
	defer func() {
		err = errors.Join(err, g.stop())
		for _, e := range engines {
			err = errors.Join(err, e.Close())
		}
	}()
	messages := int(liveRate * liveFor.Seconds())
	n := newCounter(messages)
	start := func(in lane.Name, by *relay) error {
		e, err := jetstream.Open(ctx, jetstream.Config{URL: by.url()})
		if err != nil {
			return err
		}
		engines = append(engines, e)
		o := handle(n)
		o.Config.NoteMin = consume.DefaultNoteMax // notes are not read from the engine
		_, err = g.start(ctx, e, o, in)
		return err
	}
	for range mainReaders {
		if err := start(lane.Baseline, main); err != nil {
			return false, err
		}
	}
	for _, l := range allLanes() {
		if err := start(l, lanes); err != nil {
			return false, err
		}
	}
	if err := g.held(ctx, partitions*(1+laneCount)); err != nil {
		return false, err
	}
	mainRead, lanesRead := -main.read.Load(), -lanes.read.Load()
	colored, err := w.live(ctx, topic, messages)
	if err != nil {
		return false, err
	}
	if err := n.wait(ctx); err != nil {
		return false, err
	}
	mainRead, lanesRead = mainRead+main.read.Load(), lanesRead+lanes.read.Load()
	needed := float64(mainRead) * (1 + float64(colored)/float64(messages))
	ratio := float64(mainRead+lanesRead) / needed
	fmt.Printf("\n%d messages at %d/s, %d of them colored; 100 lanes with a process each, %d main readers, %d partitions\n",
		messages, liveRate, colored, mainReaders, partitions)
	fmt.Printf("main's readers read %.1f MB, the lanes' %.1f MB\n", float64(mainRead)/1e6, float64(lanesRead)/1e6)
	fmt.Printf("all ÷ main's readers and colored messages: %.2f, promised: at most %.2f\n", ratio, promisedBytes)
	return ratio <= promisedBytes, nil
}

// live appends messages at liveRate, one in a hundred colored, and says how many were.
func (w *world) live(ctx context.Context, topic string, messages int) (colored int, err error) {
	color := onePercent()
	err = pace(ctx, liveRate, messages, func(from, to int) error {
		var ms []*consume.Message
		for n := from; n < to; n++ {
			m := w.message(topic, n%partitions, color(n), n)
			if m.Color != lane.Baseline {
				colored++
			}
			ms = append(ms, m)
		}
		return w.feed.Append(ctx, ms...)
	})
	return colored, err
}

// pace does something for so many a second, those from a number up to another, until there
// were all; 0: until ctx ends. It catches up where it was held up.
func pace(ctx context.Context, rate, all int, do func(from, to int) error) error {
	tick := time.NewTicker(liveTick)
	defer tick.Stop()
	began, most := time.Now(), rate/10
	for n := 0; all == 0 || n < all; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		to := min(int(time.Since(began).Seconds()*float64(rate)), n+most)
		if all > 0 {
			to = min(to, all)
		}
		if to > n {
			if err := do(n, to); err != nil {
				return err
			}
			n = to
		}
	}
	return nil
}
