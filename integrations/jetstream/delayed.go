package jetstream

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// idKept is how long the mark of a delayed message's ID stays in the log: for as long as the
	// server knows IDs, and a little longer.
	idKept = DedupWindow + 10*time.Second
	// delayedGather is how long delayed messages wait for others to go with them: a batch takes the
	// server several milliseconds, however few are in it, in which the stream does nothing else.
	delayedGather = 50 * time.Millisecond
)

// errMark: somebody else is appending a message of the same ID, which may come to nothing.
var errMark = errors.New("a message of the same ID is being appended: try again")

// appendDelayed appends messages that wait and have IDs. The server deletes what waited when it is
// due, and the ID with it: after a crash nobody would know of it any more, and who appends it again,
// as is his right, would have it there twice. So the ID goes to a mark of its own, which stays, and a
// message whose mark is there is refused. The two are committed together, or not at all: of two
// writes that follow each other one may be missing, when the process that makes them is killed.
func (e *Engine) appendDelayed(ctx context.Context, l log, ms []*nats.Msg) error {
	if len(ms) == 0 {
		return nil
	}
	var parts []*pending
	for _, m := range ms {
		mark := &nats.Msg{Subject: l.mark(m.Header.Get(nats.MsgIdHdr)), Header: nats.Header{
			"Nats-TTL":                            {idKept.String()},
			"Nats-Expected-Last-Subject-Sequence": {"0"},
		}}
		delete(m.Header, nats.MsgIdHdr)
		parts = append(parts, &pending{ms: []*nats.Msg{mark, m}, bytes: len(m.Data), done: make(chan error, 1)})
	}
	return e.commit(ctx, l, committer{kind: "delayed ", gather: delayedGather, some: e.commitDelayed}, parts)
}

// commitDelayed commits delayed messages together, but for those whose mark is there. Of two of one
// ID the second finds the mark of the first.
func (e *Engine) commitDelayed(ctx context.Context, l log, batch []*pending) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	for len(batch) > 0 {
		var now, later []*pending
		marks := map[string]bool{}
		for _, p := range batch {
			mark := p.ms[0].Subject
			if marks[mark] {
				later = append(later, p)
				continue
			}
			marks[mark] = true
			now = append(now, p)
		}
		e.commitMarked(ctx, l, now)
		batch = later
	}
}

// commitMarked commits delayed messages of different IDs.
func (e *Engine) commitMarked(ctx context.Context, l log, batch []*pending) {
	err := e.commitBatch(ctx, l, messagesOf(batch))
	if !marked(err) {
		for _, p := range batch {
			p.done <- err
		}
		return
	}
	var rest []*pending
	for _, p := range batch {
		err := e.ask(ctx, "$JS.API.STREAM.MSG.GET."+l.stream, map[string]string{"last_by_subj": p.ms[0].Subject}, &answer{})
		if isCode(err, codeNoMessage) {
			rest = append(rest, p)
		} else {
			p.done <- err
		}
	}
	switch {
	case len(rest) == 0:
	case len(rest) < len(batch):
		e.commitMarked(ctx, l, rest)
	case len(batch) == 1:
		rest[0].done <- errMark
	default: // somebody else's of an ID of these is under way
		for _, p := range rest {
			e.commitMarked(ctx, l, []*pending{p})
		}
	}
}

// marked reports whether a commit was refused because a mark is there already, or under way.
func marked(err error) bool {
	return isCode(err, codeWrongSequence) || isCode(err, codeWrongSequenceConstant)
}

// mark is the subject of the mark of an ID.
func (l log) mark(id string) string {
	sum := sha256.Sum256([]byte(id))
	return l.base + ".i." + hex.EncodeToString(sum[:16])
}
