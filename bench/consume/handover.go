package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/bench/turns"
	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

const (
	probes = 400                    // messages of the lane a second
	calm   = 150 * time.Millisecond // between a start and a stop
)

// handover measures how soon a lane's consumer that starts has its messages, and the baseline
// has them when it stops.
func handover(ctx context.Context, w *world) (kept bool, err error) {
	fmt.Printf("\n%-50s %9s %9s %9s\n", "hand-over, grace 0, two processes in the baseline", "p50", "p99", "max")
	kept = true
	for _, size := range []struct {
		partitions int
		promised   time.Duration
	}{{8, 50 * time.Millisecond}, {64, 150 * time.Millisecond}} {
		for _, load := range []int{0, liveRate} {
			h, err := w.newHandover(ctx, size.partitions, load)
			if err != nil {
				return false, err
			}
			err = errors.Join(h.run(ctx, w.events), h.stop())
			if err != nil {
				return false, fmt.Errorf("%d partitions, %d messages/s: %w", size.partitions, load, err)
			}
			kept = h.print(size.promised) && kept
		}
	}
	return kept, nil
}

// scene is a group with two processes in the baseline, messages of a lane that come all the
// time, to each partition in turn, and a lane's consumer that starts and stops.
type scene struct {
	w          *world
	partitions int
	load       int
	topic      string
	group      host
	engines    []*jetstream.Engine
	end        context.CancelFunc
	feeding    sync.WaitGroup
	failed     chan error

	given chan given
	taken chan given

	trace *trace // nil: there is none

	starts, startsAll, stops, stopsAll []time.Duration
}

// given is a message of the lane that somebody got, or a cursor of it that somebody took.
type given struct {
	by lane.Name
	at time.Time
}

// host runs the consumers of a group, with a registry.
type host interface {
	// launch starts one; stop ends it as a clean stop does.
	launch(ctx context.Context, e *jetstream.Engine, o consume.Options, in lane.Name) (stop func() error, err error)
	// held waits until so many cursors have a holder.
	held(ctx context.Context, cursors int) error
	// stop ends all consumers.
	stop() error
}

func (w *world) newHandover(ctx context.Context, partitions, load int) (*scene, error) {
	topic := fmt.Sprintf("handover-%d-%d", partitions, load)
	g, err := newGroup(topic, green)
	if err != nil {
		return nil, err
	}
	return w.newScene(ctx, topic, g, nil, partitions, load)
}

// newScene starts the two processes in the baseline, and what is appended.
func (w *world) newScene(ctx context.Context, topic string, group host, t *trace, partitions, load int) (h *scene, err error) {
	if err := w.feed.Ensure(ctx, consume.TopicSpec{Name: topic, Partitions: int32(partitions)}); err != nil {
		return nil, errors.Join(err, group.stop())
	}
	h = &scene{
		w: w, topic: topic, group: group, trace: t, partitions: partitions, load: load,
		failed: make(chan error, 2), given: make(chan given, 1<<16), taken: make(chan given, 1<<16),
	}
	ctx, h.end = context.WithCancel(ctx)
	for range 2 {
		if err := h.open(ctx); err != nil {
			return nil, errors.Join(err, h.stop())
		}
		if _, err := h.group.launch(ctx, h.engines[len(h.engines)-1], h.options(lane.Baseline), lane.Baseline); err != nil {
			return nil, errors.Join(err, h.stop())
		}
	}
	if err := h.open(ctx); err != nil { // the lane's
		return nil, errors.Join(err, h.stop())
	}
	if err := h.group.held(ctx, partitions); err != nil {
		return nil, errors.Join(err, h.stop())
	}
	h.feed(ctx, probes, green)
	if load > 0 {
		h.feed(ctx, load, lane.Baseline)
	}
	return h, nil
}

func (h *scene) open(ctx context.Context) error {
	e, err := h.w.engine(ctx)
	if err == nil {
		h.engines = append(h.engines, e)
	}
	return err
}

func (h *scene) stop() error {
	h.end()
	h.feeding.Wait()
	err := h.group.stop()
	for _, e := range h.engines {
		err = errors.Join(err, e.Close())
	}
	return err
}

func (h *scene) options(by lane.Name) consume.Options {
	return consume.Options{
		Handle: func(_ context.Context, d *consume.Delivery) error {
			if d.Color == green {
				h.given <- given{by, time.Now()}
				h.trace.mark(by, "first message")
			}
			return nil
		},
		Observe: func(e consume.Event, actions []consume.Action) {
			h.trace.observe(by, e, actions)
			for _, a := range actions {
				moved, ok := a.(*consume.Moved)
				if !ok {
					continue
				}
				for _, m := range moved.Moves {
					if m.Kind == consume.Take && m.Cursor == green {
						h.taken <- given{by, time.Now()}
					}
				}
			}
		},
	}
}

// feed appends so many messages a second, to one partition after the other.
func (h *scene) feed(ctx context.Context, rate int, color lane.Name) {
	h.feeding.Go(func() {
		err := pace(ctx, rate, 0, func(from, to int) error {
			var ms []*consume.Message
			for n := from; n < to; n++ {
				ms = append(ms, h.w.message(h.topic, n%h.partitions, color, n))
			}
			return h.w.feed.Append(ctx, ms...)
		})
		if ctx.Err() == nil {
			h.failed <- err
		}
	})
}

// run starts and stops the lane's consumer many times.
func (h *scene) run(ctx context.Context, events int) error {
	for range events {
		began := time.Now()
		h.trace.begin(began)
		stop, err := h.group.launch(ctx, h.engines[2], h.options(green), green)
		if err != nil {
			return err
		}
		first, all, err := h.reaches(ctx, green, began)
		if err != nil {
			return fmt.Errorf("start: %w", err)
		}
		h.trace.end(true)
		h.starts, h.startsAll = append(h.starts, first), append(h.startsAll, all)
		h.rest()
		began = time.Now()
		stopped := make(chan error, 1)
		h.trace.begin(began)
		go func() { stopped <- stop() }()
		if first, all, err = h.reaches(ctx, lane.Baseline, began); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		h.trace.end(false)
		h.stops, h.stopsAll = append(h.stops, first), append(h.stopsAll, all)
		if err := <-stopped; err != nil {
			return err
		}
		h.rest()
	}
	return nil
}

// reaches waits until a side has got a message of the lane, and taken the cursors of all
// partitions, and says when.
func (h *scene) reaches(ctx context.Context, to lane.Name, began time.Time) (first, all time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for taken := 0; first == 0 || taken < h.partitions; {
		select {
		case g := <-h.given:
			if g.by == to && g.at.After(began) && first == 0 {
				first = g.at.Sub(began)
			}
		case g := <-h.taken:
			if g.by == to && g.at.After(began) {
				taken++
				all = g.at.Sub(began)
			}
		case err := <-h.failed:
			return 0, 0, err
		case <-ctx.Done():
			return 0, 0, fmt.Errorf("%d of %d cursors were taken: %w", taken, h.partitions, ctx.Err())
		}
	}
	return first, all, nil
}

// rest lets what was begun end, and forgets what came meanwhile.
func (h *scene) rest() {
	end := time.NewTimer(calm)
	defer end.Stop()
	for {
		select {
		case <-h.given:
		case <-h.taken:
		case <-end.C:
			return
		}
	}
}

func (h *scene) print(promised time.Duration) (kept bool) {
	load := "idle"
	if h.load > 0 {
		load = fmt.Sprintf("%d messages/s", h.load)
	}
	kept = true
	for _, line := range []struct {
		name     string
		took     []time.Duration
		promised bool
	}{
		{"starts: first message", h.starts, true},
		{"starts: all partitions taken", h.startsAll, false},
		{"stops: first message", h.stops, true},
		{"stops: all partitions taken", h.stopsAll, false},
	} {
		note := ""
		p99 := turns.Quantile(line.took, 0.99)
		if line.promised {
			note = fmt.Sprintf("  promised: p99 %s", promised)
			if p99 > promised {
				note, kept = note+": BROKEN", false
			}
		}
		fmt.Printf("%-50s %9s %9s %9s%s\n", fmt.Sprintf("%d partitions, %s, %s", h.partitions, load, line.name),
			round(turns.Quantile(line.took, 0.5)), round(p99), round(turns.Quantile(line.took, 1)), note)
	}
	return kept
}

func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }
