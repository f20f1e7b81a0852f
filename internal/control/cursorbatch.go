package control

import (
	"context"
	"errors"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// batchAtOnce is how many transactions of one batch are under way at a time.
	batchAtOnce = 16
	// joinedWrites is how many writes of a batch share a transaction. All of them are made
	// again, each by itself, where one does not hold.
	joinedWrites = 32
)

// postCursors answers POST /v1/cursors:batch, and, for writes of notes alone, POST /v1/notes.
// Writes are answered each by itself, and so are those with mistakes.
func (c *Control) postCursors(records bool) handler {
	return func(w http.ResponseWriter, r *http.Request, _ params) error {
		var body laneclient.CursorBatch
		if err := readUpTo(w, r, maxBatchBytes, &body); err != nil {
			return err
		}
		f := &faults{}
		session := writerOf(r, f)
		if n := len(body.Writes); n > laneclient.MaxCursorBatch {
			f.add("writes", "has %d entries: at most %d are allowed in one batch", n, laneclient.MaxCursorBatch)
		}
		if err := f.err("the batch"); err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, laneclient.CursorAnswers{Answers: c.writeAll(r.Context(), session, body.Writes, records)})
	}
}

// batchWrite is a write of a batch, and where its answer goes.
type batchWrite struct {
	*cursorWrite
	answer *laneclient.CursorAnswer
}

// writeAll carries out the writes of a batch and waits for all of them. Those of different
// partitions share transactions: a hand-over moves many partitions at once, notes of a process
// come together, and a transaction costs the registry much the same for one write and for many.
func (c *Control) writeAll(ctx context.Context, session string, bodies []laneclient.CursorBatchWrite, records bool) []laneclient.CursorAnswer {
	answers := make([]laneclient.CursorAnswer, len(bodies))
	var writes []batchWrite
	for n := range bodies {
		w := batchWrite{answer: &answers[n]}
		if w.cursorWrite = c.readBatchWrite(ctx, session, &bodies[n], records, w.answer); w.cursorWrite != nil {
			writes = append(writes, w)
		}
	}
	each(joined(writes), func(j *joint) {
		if len(j.writes) == 1 || !c.writeJoint(ctx, j) {
			each(j.writes, func(w batchWrite) { c.writeAlone(ctx, w) })
		}
	})
	return answers
}

// each calls do for all, some at a time, and waits for all of them.
func each[T any](all []T, do func(T)) {
	next := make(chan T)
	var wg sync.WaitGroup
	for range min(batchAtOnce, len(all)) {
		wg.Go(func() {
			for one := range next {
				do(one)
			}
		})
	}
	for _, one := range all {
		next <- one
	}
	close(next)
	wg.Wait()
}

// readBatchWrite reads and checks a write of a batch; nil: it was answered.
func (c *Control) readBatchWrite(ctx context.Context, session string, body *laneclient.CursorBatchWrite, records bool, out *laneclient.CursorAnswer) *cursorWrite {
	defer c.rescue(ctx, func(p *laneclient.Problem) { *out = refusedWrite(p) }, body.Name)
	f := &faults{}
	if err := checkCursorName(body.Name); err != nil {
		f.add("name", "%s", err.Error())
	}
	if !records && isJSON(body.Record) {
		f.add("record", "is no note: send records to POST /v1/cursors:batch")
	}
	write := checkWrite(body.Name, &body.CursorWrite, f)
	if err := f.err("the write"); err != nil {
		c.metrics.cursors.mistaken()
		*out = refusedWrite(toProblem(err))
		return nil
	}
	write.session, write.rev = session, body.IfRevision
	write.engine, write.group, _, _, _ = laneclient.ParseCursorName(body.Name)
	return write
}

// rescue has a write that panics answered, so that it fails alone. It is to be deferred.
func (c *Control) rescue(ctx context.Context, answer func(*laneclient.Problem), name string) {
	if v := recover(); v != nil {
		c.metrics.panics.Inc()
		c.log.ErrorContext(context.WithoutCancel(ctx), "write of cursors panicked",
			telemetry.KeyName, clip(name), telemetry.KeyPanic, v, telemetry.KeyStack, string(debug.Stack()))
		answer(toProblem(errPanicked))
	}
}

// writeAlone carries out one write of a batch.
func (c *Control) writeAlone(ctx context.Context, w batchWrite) {
	defer c.rescue(ctx, func(p *laneclient.Problem) { *w.answer = refusedWrite(p) }, w.name)
	a, err := c.writeCursors(ctx, w.cursorWrite)
	c.tell(ctx, w, &a, err)
}

// tell answers a write of a batch.
func (c *Control) tell(ctx context.Context, w batchWrite, a *cursorAnswer, err error) {
	switch {
	case err != nil:
		*w.answer = refusedWrite(toProblem(err))
		return
	case a.err != nil:
		*w.answer = refusedWrite(a.err)
	default:
		c.logMoves(ctx, w.cursorWrite)
		w.answer.Status = http.StatusOK
	}
	w.answer.Revision, w.answer.Record, w.answer.Notes = a.rev, a.record, a.notes
}

// joint is writes of different partitions that share a transaction.
type joint struct {
	writes   []batchWrite
	txn      store.Txn
	names    map[string]bool
	compares map[store.Compare]bool
	size     int // of keys and values, in bytes
}

// joined shares writes out over transactions, in their order. No two of a transaction are of
// the same partition: the second would have to find what the first has left.
func joined(writes []batchWrite) (all []*joint) {
	var last *joint
	for _, w := range writes {
		txn := w.txn()
		if last == nil || !last.add(w, txn) {
			last = &joint{names: map[string]bool{}, compares: map[store.Compare]bool{}}
			last.add(w, txn) // what is too much for any is refused when it is carried out
			all = append(all, last)
		}
	}
	return all
}

// add takes a write in, unless it does not fit.
func (j *joint) add(w batchWrite, txn store.Txn) bool {
	t := &j.txn
	size := txn.Size()
	if len(j.writes) > 0 {
		reads := len(t.Read) + len(txn.Read)
		if len(j.writes) == joinedWrites || j.names[w.name] || j.size+size > store.MaxTxnBytes ||
			max(len(t.If)+len(txn.If), len(t.Ops)+len(txn.Ops))+reads > store.MaxTxnOps {
			return false
		}
	}
	j.writes, j.size = append(j.writes, w), j.size+size
	j.names[w.name] = true
	for _, compare := range txn.If { // session and group are those of all
		if !j.compares[compare] {
			j.compares[compare] = true
			t.If = append(t.If, compare)
		}
	}
	t.Ops, t.Read = append(t.Ops, txn.Ops...), append(t.Read, txn.Read...)
	return true
}

// writeJoint carries out several writes in one transaction. It reports false where it has
// answered none of them: they are not all as they say, and each is to be made by itself.
func (c *Control) writeJoint(ctx context.Context, j *joint) (answered bool) {
	name := j.writes[0].name
	defer c.rescue(ctx, func(p *laneclient.Problem) {
		answered = true // what became of it is not known
		for _, w := range j.writes {
			*w.answer = refusedWrite(p)
		}
	}, name)
	for _, w := range j.writes {
		if c.admit(ctx, w.cursorWrite) != nil {
			return false
		}
	}
	began := time.Now()
	res, err := c.cfg.Store.Do(ctx, j.txn)
	switch {
	case errors.Is(err, store.ErrTooLarge), errors.Is(err, store.ErrFull): // it was not carried out
		return false
	case err == nil && !res.Done:
		return false
	}
	took, found := time.Since(began), foundIn(res)
	for _, w := range j.writes {
		var a cursorAnswer
		if err == nil {
			a = w.done(res.Revision, found)
		}
		c.metrics.cursors.wrote(w.cursorWrite, &a, err, took)
		c.tell(ctx, w, &a, err)
	}
	return true
}

func refusedWrite(p *laneclient.Problem) laneclient.CursorAnswer {
	return laneclient.CursorAnswer{Status: p.Status, Type: p.Type, Detail: p.Detail, Errors: p.Errors}
}
