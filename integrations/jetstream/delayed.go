package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/nats-io/nats.go"
)

// idKept is how long the mark of a delayed message's ID stays in the log: for as long as the
// server knows IDs, and a little longer.
const idKept = DedupWindow + 10*time.Second

// appendDelayed appends one message that waits and has an ID. The server deletes what waited
// when it is due, and the ID with it: after a crash nobody would know of it any more, and who
// appends it again, as is his right, would have it there twice. So a mark of the ID follows
// it, which stays, and a message whose mark is there is refused. Until the mark is there, the
// message's own ID stands for it. (A batch of both would do, too, but takes the server as long
// as a hundred messages.)
func (e *Engine) appendDelayed(ctx context.Context, l log, m *nats.Msg) error {
	subject := l.mark(m.Header.Get(nats.MsgIdHdr))
	m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{"0"}
	m.Header["Nats-Expected-Last-Subject-Sequence-Subject"] = []string{subject}
	err := e.publishSome(ctx, l, []*nats.Msg{m})
	if isCode(err, codeWrongSequence) || isCode(err, codeWrongSequenceConstant) {
		return nil
	}
	if err != nil {
		return err
	}
	// Not at once with it: the mark of a message that did not arrive would have the next try
	// refused, and the message lost.
	return e.publishSome(ctx, l, []*nats.Msg{{Subject: subject, Header: nats.Header{"Nats-TTL": {idKept.String()}}}})
}

// mark is the subject of the mark of an ID.
func (l log) mark(id string) string {
	sum := sha256.Sum256([]byte(id))
	return l.base + ".i." + hex.EncodeToString(sum[:16])
}
