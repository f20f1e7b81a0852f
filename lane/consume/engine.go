package consume

import (
	"context"
	"errors"
	"time"

	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// What a [Runner] asks the engine for. What fails is asked again after a while, but for a mirror.

// fetch reads for a run and tells of what came.
func (r *Runner) fetch(f Fetch) {
	w := r.worker(f.Run)
	t := r.tails[f.Partition]
	if t == nil {
		t = newTail(r.o.Source, f.Partition)
		r.tails[f.Partition] = t
	}
	if !f.Bounds {
		f.Filter.Epoch = w.epoch
	}
	r.wg.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, fetchWait)
		b, cached, err := t.read(ctx, f.From, f.Filter, f.Max, f.Bounds)
		cancel()
		e := &Fetched{Run: f.Run, Failed: err != nil, Cached: cached, Batch: b}
		if err != nil {
			w.misses++
			if !pause.For(w.ctx, backoff(w.misses)) {
				return
			}
		} else {
			w.misses = 0
			if !cached {
				w.epoch = b.Bounds.Epoch
			}
		}
		if w.ctx.Err() == nil {
			r.post(e)
		}
	})
}

// store appends to a retry or dead-letter topic until it is done or the run is given up.
func (r *Runner) store(run uint64, offset int64, m *Message, why BuryReason) {
	w, hop := r.worker(run), r.hopStoring(run, offset, m, why)
	r.wg.Go(func() {
		for n := 0; ; n++ {
			ctx, cancel := context.WithTimeout(w.ctx, moveTimeout)
			err := r.o.Source.Append(ctx, m)
			cancel()
			if err == nil {
				if hop != nil {
					r.o.Hops.add(*hop)
				}
				r.box.put(input{do: func() {
					r.counts.stored(why)
					r.tell(&Settled{Run: run, Offset: offset})
				}})
				return
			}
			if !pause.For(w.ctx, backoff(n)) {
				return
			}
		}
	})
}

func (r *Runner) resolve(ctx context.Context, a Resolve) {
	for n := 0; ; n++ {
		at, epoch, err := r.start(ctx, a)
		if err == nil {
			r.post(&Resolved{Partition: a.Partition, Offset: at, Epoch: epoch})
			return
		}
		if !pause.For(ctx, backoff(n)) {
			return
		}
	}
}

func (r *Runner) start(ctx context.Context, a Resolve) (at int64, epoch string, err error) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	b, err := r.o.Source.Bounds(ctx, a.Partition)
	if err != nil {
		return 0, "", err
	}
	switch a.Start.Kind {
	case StartEarliest:
		at = b.First
	case StartLatest:
		at = b.End
	case StartOffset:
		at = min(max(a.Start.Offset, b.First), b.End)
	case StartTime:
		at, err = r.o.Source.At(ctx, a.Partition, a.Start.Time)
	}
	return at, b.Epoch, err
}

// counted is what count knows of a topic.
type counted struct {
	partitions int32
	places     []located
	asked      time.Time // when the engine told where each of them is
}

// count tells how many partitions topics have and in which rooms, and sees to retry and
// dead-letter topics.
func (r *Runner) count(ctx context.Context) {
	known := map[string]*counted{}
	for misses := 0; ; {
		wait := pollPartitions
		if r.countAll(ctx, known) {
			misses = 0
		} else {
			wait = backoff(misses)
			misses++
		}
		if !pause.For(ctx, wait) {
			return
		}
	}
}

func (r *Runner) countAll(ctx context.Context, known map[string]*counted) bool {
	ok := true
	for _, t := range r.o.Config.Topics {
		ok = r.countOne(ctx, t.Name, false, known) && ok
		if t.Retry != "" {
			ok = r.countOne(ctx, t.Retry, true, known) && ok
		}
		if t.Dead != "" && known[t.Dead] == nil {
			if r.ensure(ctx, t.Dead) {
				known[t.Dead] = &counted{partitions: 1}
			} else {
				ok = false
			}
		}
	}
	return ok
}

func (r *Runner) countOne(ctx context.Context, topic string, made bool, known map[string]*counted) bool {
	call, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	n, err := r.o.Source.Partitions(call, topic)
	if errors.Is(err, ErrNoTopic) && made && r.ensure(call, topic) {
		n, err = r.o.Source.Partitions(call, topic)
	}
	if err != nil {
		return false
	}
	c := known[topic]
	if c == nil {
		c = &counted{}
		known[topic] = c
	}
	grown := n != c.partitions
	c.partitions = n
	moved := r.placeAll(ctx, topic, c)
	if grown || moved {
		r.post(&Partitioned{Topic: topic, Count: n, Rooms: c.rooms()})
	}
	return true
}

func (r *Runner) ensure(ctx context.Context, topic string) bool {
	return r.o.Topics == nil || r.o.Topics.Ensure(ctx, TopicSpec{Name: topic, Partitions: 1}) == nil
}

// reflect tells the engine where a cursor stands, for its own tools.
func (r *Runner) reflect(a *Mirror) {
	if !r.o.Source.Caps().Mirror {
		return
	}
	m := *a
	r.spawn(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, moveTimeout)
		defer cancel()
		_ = r.o.Source.Mirror(ctx, r.o.Config.Group, m.Cursor, m.Partition, m.Offset) // it is never read
	})
}
