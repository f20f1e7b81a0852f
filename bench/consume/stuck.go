package main

import (
	"context"
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

const (
	promisedCPU = 1.05
	// A machine that has nothing to spare does less by what a message costs more; as much
	// again is noise.
	promisedRate = 0.9

	green = lane.Name("green")
	// slowly is a thousand times as long as a message takes otherwise.
	slowly = 30 * time.Millisecond
)

// manner is how one side works.
type manner struct {
	name string
	work func(over <-chan struct{})
}

func manners() []manner {
	return []manner{
		{"well", func(<-chan struct{}) {}},
		{"1,000 times slower", func(over <-chan struct{}) {
			t := time.NewTimer(slowly)
			defer t.Stop()
			select {
			case <-t.C:
			case <-over:
			}
		}},
		{"stuck", func(over <-chan struct{}) { <-over }},
	}
}

// stuck compares what one side, the baseline or a lane, has of it when the other does well,
// is slow, and is stuck. Both are in one process, so that they share all that they can.
func stuck(ctx context.Context, w *world) (bool, error) {
	kept := true
	for _, healthy := range []lane.Name{lane.Baseline, green} {
		other := green
		if healthy == green {
			other = lane.Baseline
		}
		ok, err := w.beside(ctx, healthy, other)
		if err != nil {
			return false, err
		}
		kept = kept && ok
	}
	return kept, nil
}

// beside measures one side beside the other. The other side has a hundredth of the messages,
// and enough of them before to fill its windows, so that it is stuck from the start.
func (w *world) beside(ctx context.Context, healthy, other lane.Name) (bool, error) {
	names := map[lane.Name]string{lane.Baseline: "baseline", green: "lane"}
	topic := "beside-" + names[other]
	const ahead = partitions * consume.DefaultWindow
	err := w.fill(ctx, topic, ahead+4*w.messages, func(n int) lane.Name {
		if n < ahead || n/partitions%100 == 0 {
			return other
		}
		return healthy
	})
	if err != nil {
		return false, err
	}
	var kinds []*kind
	for _, m := range manners() {
		kinds = append(kinds, &kind{
			name: fmt.Sprintf("%s, the %s %s", names[healthy], names[other], m.name),
			turn: func(ctx context.Context) (cost, error) { return w.besideTurn(ctx, topic, healthy, m) },
		})
	}
	if err := takeTurns(ctx, w.rounds, kinds...); err != nil {
		return false, err
	}
	return table(fmt.Sprintf("%s beside %s", names[healthy], names[other]), kinds, []promise{
		{kind: kinds[1], peer: kinds[0], rate: promisedRate, cpu: promisedCPU},
		{kind: kinds[2], peer: kinds[0], rate: promisedRate, cpu: promisedCPU},
	}), nil
}

func (w *world) besideTurn(ctx context.Context, topic string, healthy lane.Name, m manner) (cost, error) {
	return w.runner(ctx, topic, 4*w.messages*99/100, []lane.Name{green}, func(n *counter) consume.Options {
		// One handler for each cursor, or a hundred and twenty that sleep would do a lot together.
		return consume.Options{Concurrency: 1, Handle: func(_ context.Context, d *consume.Delivery) error {
			if d.Color == healthy {
				n.add()
			} else {
				m.work(n.over) // what is stuck returns then, so that the process can stop
			}
			return nil
		}}
	})
}
