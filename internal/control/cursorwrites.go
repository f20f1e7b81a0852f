package control

import (
	"context"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// batchAtOnce is how many writes of one batch are under way at a time.
const batchAtOnce = 16

// writerOf is the session that a write is made in.
func writerOf(r *http.Request, f *faults) string {
	session := r.Header.Get(laneclient.SessionHeader)
	if !isPlainName(session) {
		f.add(laneclient.SessionHeader, "is missing, or no session: name the writer's session, which must live")
	}
	return session
}

// recordRevision is what of a write's headers the record is compared with. Without it a write
// could go over what the writer has never seen.
func recordRevision(r *http.Request) (uint64, error) {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return 0, err
	}
	none := len(cond.noneMatch) == 1 && cond.noneMatch[0] == "*" && cond.match == nil
	one := len(cond.match) == 1 && cond.match[0] != "*" && cond.noneMatch == nil
	switch {
	case none:
		return 0, nil
	case one:
		return strconv.ParseUint(cond.match[0], 10, 64)
	}
	return 0, problem(http.StatusPreconditionRequired,
		"a write of cursors says what record it rests on: send If-Match with its revision, or If-None-Match: * where there is none")
}

// putCursor answers PUT of the cursors of one partition.
func (c *Control) putCursor(w http.ResponseWriter, r *http.Request, p params) error {
	k := c.cache.kinds[laneclient.KindCursors]
	at := refOf(k, p)
	if err := checkPathName(k, at); err != nil {
		return err
	}
	rev, err := recordRevision(r)
	if err != nil {
		return err
	}
	var body laneclient.CursorWrite
	if err := readUpTo(w, r, maxWriteBytes, &body); err != nil {
		return err
	}
	f := &faults{}
	write := checkWrite(at.name, &body, f)
	write.session, write.rev = writerOf(r, f), rev
	if err := f.err("the write"); err != nil {
		c.metrics.cursors.mistaken()
		return err
	}
	write.engine, write.group = p["engine"], p["group"]
	a, err := c.writeCursors(r.Context(), write)
	switch {
	case err != nil:
		return err
	case a.err != nil:
		return a.refusal(write.name)
	}
	c.logMoves(r.Context(), write)
	w.Header().Set("Etag", etag(a.rev))
	return writeJSON(w, http.StatusOK, laneclient.CursorDone{Revision: a.rev, Notes: list(a.notes)})
}

// list is an empty list in JSON where there is nothing, not null.
func list[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

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

// writeAll carries out the writes of a batch, some at a time, and waits for all of them.
func (c *Control) writeAll(ctx context.Context, session string, writes []laneclient.CursorBatchWrite, records bool) []laneclient.CursorAnswer {
	answers := make([]laneclient.CursorAnswer, len(writes))
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(batchAtOnce, len(writes)) {
		wg.Go(func() {
			for n := range next {
				answers[n] = c.writeOne(ctx, session, &writes[n], records)
			}
		})
	}
	for n := range writes {
		next <- n
	}
	close(next)
	wg.Wait()
	return answers
}

// writeOne carries out one write of a batch. One that panics fails alone.
func (c *Control) writeOne(ctx context.Context, session string, body *laneclient.CursorBatchWrite, records bool) (out laneclient.CursorAnswer) {
	defer func() {
		if v := recover(); v != nil {
			c.metrics.panics.Inc()
			c.log.ErrorContext(context.WithoutCancel(ctx), "write of cursors panicked",
				telemetry.KeyName, clip(body.Name), telemetry.KeyPanic, v, telemetry.KeyStack, string(debug.Stack()))
			out = refusedWrite(toProblem(errPanicked))
		}
	}()
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
		return refusedWrite(toProblem(err))
	}
	write.session, write.rev = session, body.IfRevision
	write.engine, write.group, _, _, _ = laneclient.ParseCursorName(body.Name)
	a, err := c.writeCursors(ctx, write)
	switch {
	case err != nil:
		return refusedWrite(toProblem(err))
	case a.err != nil:
		out = refusedWrite(a.err)
	default:
		c.logMoves(ctx, write)
		out.Status = http.StatusOK
	}
	out.Revision, out.Record, out.Notes = a.rev, a.record, a.notes
	return out
}

func refusedWrite(p *laneclient.Problem) laneclient.CursorAnswer {
	return laneclient.CursorAnswer{Status: p.Status, Type: p.Type, Detail: p.Detail, Errors: p.Errors}
}

// logMoves tells of what a write has done.
func (c *Control) logMoves(ctx context.Context, w *cursorWrite) {
	for _, m := range w.moves {
		c.log.DebugContext(ctx, "cursor moved", telemetry.KeyName, w.name, telemetry.KeySession, w.session,
			telemetry.KeyMove, clip(m.Kind), telemetry.KeyCursor, clip(m.Cursor), telemetry.KeyLane, clip(m.Lane), telemetry.KeyReason, clip(m.Why))
	}
}
