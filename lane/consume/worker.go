package consume

import (
	"context"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// worker hands what one run dispatches to the handler. It has no goroutine while it has no
// message; what waits in it is bounded by the cursor's window.
//
// A message that a handler gives back is the Core's again for a moment, and then waits here,
// where it is given up at once when the run is. Others go on meanwhile; but where messages are
// handled in their order, those behind it stay there.
type worker struct {
	r       *Runner
	run     uint64
	ctx     context.Context //nolint:containedctx // of the run; stop ends it
	cancel  context.CancelFunc
	misses  int    // fetches that failed one after the other; of the one fetch under way
	epoch   string // of the log, as the run read it last; like misses
	dropped bool   // copies that a replay made for another lane, which was logged
	seed    maphash.Seed

	mu     sync.Mutex
	shards []shard
	came   map[int64]int             // how often those came back that are on their way through the Core, by offset
	later  map[*Delivery]*time.Timer // that came back, and wait
	held   map[string][]int64        // offsets of both, by line, if messages are handled in their order
}

// shard is a queue, ascending by offset, and how many goroutines work on it.
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
	w := &worker{
		r: r, run: run, seed: maphash.MakeSeed(), shards: []shard{{most: r.o.Concurrency}},
		came: map[int64]int{}, later: map[*Delivery]*time.Timer{}, held: map[string][]int64{},
	}
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

// add queues a message, or lets it wait if it came back.
func (w *worker) add(a *Dispatch) {
	d := &Delivery{Message: a.Message, Lane: a.Lane, Redelivered: a.Redelivered, Reason: a.Reason, w: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.came = w.came[d.Offset]; d.came == 0 {
		w.queue(d)
		return
	}
	delete(w.came, d.Offset)
	w.later[d] = time.AfterFunc(returnWait(d.came), func() { w.again(d) })
}

// queue puts a message where it belongs, and sees to it that somebody works on it. The lock is
// held.
func (w *worker) queue(d *Delivery) {
	s := &w.shards[0]
	if len(w.shards) > 1 {
		s = &w.shards[maphash.Bytes(w.seed, d.Key)%uint64(len(w.shards))]
	}
	at := len(s.queue)
	for at > 0 && s.queue[at-1].Offset > d.Offset { // only one that came back
		at--
	}
	s.queue = slices.Insert(s.queue, at, d)
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
	w.takeAll()
}

// giveBack returns what handlers have not begun with. How often it came back is forgotten.
func (w *worker) giveBack() {
	w.mu.Lock()
	ds := w.takeAll()
	w.mu.Unlock()
	for _, d := range ds {
		if d.said.CompareAndSwap(false, true) {
			w.r.post(&Returned{w.run, d.Offset})
		}
	}
}

// takeAll takes away what handlers have not begun with.
func (w *worker) takeAll() (ds []*Delivery) {
	for i := range w.shards {
		ds = append(ds, w.shards[i].queue...)
		w.shards[i].queue = nil
	}
	for d, timer := range w.later {
		timer.Stop()
		w.release(d)
		ds = append(ds, d)
	}
	clear(w.later)
	return ds
}

// work handles what is queued until there is nothing left that may be.
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
	i := slices.IndexFunc(s.queue, w.free)
	if i < 0 {
		s.active--
		return nil
	}
	if w.r.o.HandleBatch != nil {
		return w.batch(s, s.queue[i].Color)
	}
	if i > 0 {
		d := s.queue[i]
		s.queue = slices.Delete(s.queue, i, i+1)
		return []*Delivery{d}
	}
	d := s.queue[:1:1]
	s.queue = s.queue[1:]
	return d
}

// batch takes the messages of a color off a queue, as many as may be handled together. One of
// another color is passed over, and with it, where there is an order by key, all of its key.
func (w *worker) batch(s *shard, color lane.Name) (batch []*Delivery) {
	var rest []*Delivery
	passed := map[string]bool{}
	for i, d := range s.queue {
		if len(batch) == w.r.o.Batch {
			rest = append(rest, s.queue[i:]...)
			break
		}
		if d.Color == color && w.free(d) && !passed[string(d.Key)] {
			batch = append(batch, d)
			continue
		}
		if w.r.o.KeyOrder {
			passed[string(d.Key)] = true
		}
		rest = append(rest, d)
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
