package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

// idKept is how long the mark of a delayed message's ID stays in the log: for as long as the
// server knows IDs, and a little longer.
const idKept = DedupWindow + 10*time.Second

// errMark: the server knows an ID of which there is no mark.
var errMark = errors.New("a message of the same ID is being appended: try again")

// appendDelayed appends one message that waits and has an ID. The server deletes what waited
// when it is due, and the ID with it: after a crash nobody would know of it any more, and who
// appends it again, as is his right, would have it there twice. So the ID goes to a mark of its
// own, which stays. The two are committed together, or not at all.
func (e *Engine) appendDelayed(ctx context.Context, l log, m *nats.Msg) error {
	id := m.Header[nats.MsgIdHdr]
	delete(m.Header, nats.MsgIdHdr)
	mark := &nats.Msg{Subject: l.mark(id[0]), Header: nats.Header{nats.MsgIdHdr: id, "Nats-TTL": {idKept.String()}}}
	err := e.commitBatch(ctx, l, []*nats.Msg{mark, m})
	if !isCode(err, codeDuplicate) {
		return err
	}
	// In a cluster it may be one that is still under way, and may come to nothing.
	err = e.ask(ctx, "$JS.API.STREAM.MSG.GET."+l.stream, map[string]string{"last_by_subj": mark.Subject}, &answer{})
	if isCode(err, codeNoMessage) {
		return errMark
	}
	return err
}

// mark is the subject of the mark of an ID.
func (l log) mark(id string) string {
	sum := sha256.Sum256([]byte(id))
	return l.base + ".i." + hex.EncodeToString(sum[:16])
}
