package consume

import (
	"context"
	"hash/maphash"
	"sync"

	"github.com/laneway-dev/laneway/lane"
)

// worker hands what one run dispatches to the handler. It has no goroutine while it has no
// message; what waits in it is bounded by the cursor's window.
type worker struct {
	r      *Runner
	ctx    context.Context //nolint:containedctx // of the run; stop ends it
	cancel context.CancelFunc
	misses int // fetches that failed one after the other; of the one fetch under way
	// fetched says that a fetch succeeded; like misses it is of the one fetch under way.
	fetched bool
	dropped bool // copies that a replay made for another lane, which was logged
	seed    maphash.Seed

	mu     sync.Mutex
	closed bool
	shards []shard
}

// shard is a queue, and how many goroutines work on it.
type shard struct {
	queue  []*Delivery
	active int
	most   int
}

// worker gives that of a run, and makes it at its first use.
func (r *Runner) worker(run uint64) *worker {
	if w := r.runs[run]; w != nil {
		return w
	}
	w := &worker{r: r, seed: maphash.MakeSeed(), shards: []shard{{most: r.o.Concurrency}}}
	if r.o.KeyOrder {
		w.shards = make([]shard, r.o.Concurrency)
		for i := range w.shards {
			w.shards[i].most = 1
		}
	}
	w.ctx, w.cancel = context.WithCancel(r.life)
	r.runs[run] = w
	return w
}

// add queues a delivery, and sees to it that somebody works on it.
func (w *worker) add(d *Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	s := &w.shards[0]
	if len(w.shards) > 1 {
		s = &w.shards[maphash.Bytes(w.seed, d.Key)%uint64(len(w.shards))]
	}
	s.queue = append(s.queue, d)
	if s.active < s.most {
		s.active++
		w.r.wg.Go(func() { w.work(s) })
	}
}

// stop ends the contexts of handlers and forgets what they have not begun with.
func (w *worker) stop() {
	w.cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for i := range w.shards {
		w.shards[i].queue = nil
	}
}

// giveBack returns what handlers have not begun with.
func (w *worker) giveBack() {
	w.mu.Lock()
	var ds []*Delivery
	for i := range w.shards {
		ds = append(ds, w.shards[i].queue...)
		w.shards[i].queue = nil
	}
	w.mu.Unlock()
	for _, d := range ds {
		d.Return()
	}
}

// work handles what is queued until there is nothing left.
func (w *worker) work(s *shard) {
	for {
		ds := w.next(s)
		if len(ds) == 0 {
			return
		}
		w.call(ds)
	}
}

// next takes one message off a queue, or the messages of the first one's color for a batch.
func (w *worker) next(s *shard) []*Delivery {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(s.queue) == 0 {
		s.active--
		return nil
	}
	if w.r.o.HandleBatch == nil {
		d := s.queue[:1:1]
		s.queue = s.queue[1:]
		return d
	}
	color := s.queue[0].Color
	var batch, rest []*Delivery
	for i, d := range s.queue {
		switch {
		case len(batch) == w.r.o.Batch:
			rest = append(rest, s.queue[i:]...)
			s.queue = rest
			return batch
		case d.Color == color:
			batch = append(batch, d)
		default:
			rest = append(rest, d)
		}
	}
	s.queue = rest
	return batch
}

// call runs the handler and answers for its messages.
func (w *worker) call(ds []*Delivery) {
	ctx := lane.With(w.ctx, ds[0].Color)
	if ds[0].Color == lane.Baseline {
		ctx = lane.Plain(w.ctx)
	}
	if w.r.o.Context != nil {
		ctx = w.r.o.Context(ctx, ds[0])
	}
	if w.r.o.Deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.r.o.Deadline)
		defer cancel()
	}
	if w.r.o.HandleBatch == nil {
		ds[0].finish(guard(func() error { return w.r.o.Handle(ctx, ds[0]) }))
		return
	}
	err := guard(func() error { return w.r.o.HandleBatch(ctx, ds) })
	for _, d := range ds {
		d.finish(err)
	}
}
