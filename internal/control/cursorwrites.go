package control

import (
	"context"
	"net/http"
	"strconv"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

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

// logMoves tells of what a write has done.
func (c *Control) logMoves(ctx context.Context, w *cursorWrite) {
	for _, m := range w.moves {
		c.log.DebugContext(ctx, "cursor moved", telemetry.KeyName, w.name, telemetry.KeySession, w.session,
			telemetry.KeyMove, clip(m.Kind), telemetry.KeyCursor, clip(m.Cursor), telemetry.KeyLane, clip(m.Lane), telemetry.KeyReason, clip(m.Why))
	}
}
