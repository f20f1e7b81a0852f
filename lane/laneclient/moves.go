package laneclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

const (
	pathCursorBatch = "/v1/cursors:batch"
	pathNotes       = "/v1/notes"
	// moveTimeout is when moves without an answer are in doubt.
	moveTimeout = 2 * time.Second
	// moveRequests is how many requests of moves are under way at once. What comes
	// meanwhile goes into the next one.
	moveRequests = 2
)

// mover sends moves: at once where nothing is under way, and else as many in one request as
// the control plane takes.
type mover struct {
	mu      sync.Mutex
	waiting []*move
	active  int
	closed  bool
	senders sync.WaitGroup
}

// move is a write that waits for its answer.
type move struct {
	session string
	body    json.RawMessage // a CursorBatchWrite
	answer  consume.Answer
	err     error
	done    chan struct{}
	gone    bool // nobody waits any more; guarded by the mover's mu
}

// batchOfMoves is a [CursorBatch] whose writes are encoded already: their size was asked for.
type batchOfMoves struct {
	Writes []json.RawMessage `json:"writes"`
}

// Move implements [consume.Registry]. Moves of the process that come while others are under
// way share a request. Whatever is no answer about the write itself leaves it in doubt: the
// error is then a [consume.ErrDoubt], and says why.
func (c *Client) Move(ctx context.Context, w *consume.Write) (consume.Answer, error) {
	c.lease()
	engine, err := c.groupEngine(ctx, w.Group)
	if err != nil {
		return consume.Answer{}, doubt(err)
	}
	body, err := encodeWrite(engine, w)
	if err != nil {
		return consume.Answer{}, doubt(err)
	}
	m := &move{session: w.Session, body: body, done: make(chan struct{})}
	to, path := &c.groups.records, pathCursorBatch
	if w.Record == nil {
		to, path = &c.groups.notes, pathNotes
	}
	to.add(c, path, m) //nolint:contextcheck // a request of many moves belongs to no single caller
	select {
	case <-m.done:
		return m.answer, m.err
	case <-ctx.Done():
		to.forget(m)
		return consume.Answer{}, doubt(ctx.Err())
	}
}

func doubt(err error) error { return fmt.Errorf("%w: %w", consume.ErrDoubt, err) }

// add queues a move, and sees to it that somebody sends it.
func (q *mover) add(c *Client, path string, m *move) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		m.end(doubt(ErrClosed))
		return
	}
	q.waiting = append(q.waiting, m)
	if q.active < moveRequests {
		q.active++
		q.senders.Go(func() { q.send(c, path) })
	}
}

// end answers a move with an error.
func (m *move) end(err error) {
	m.err = err
	close(m.done)
}

// forget takes a move out, if it has not been sent.
func (q *mover) forget(m *move) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m.gone = true
}

// send sends what waits until nothing does.
func (q *mover) send(c *Client, path string) {
	for {
		ms := q.next()
		if len(ms) == 0 {
			return
		}
		c.post(path, ms)
	}
}

// next takes what goes into one request: the first that waits, and others of its session as
// far as there is room.
func (q *mover) next() (ms []*move) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var rest []*move
	size := len(`{"writes":[]}`)
	for _, m := range q.waiting {
		more := len(m.body) + len(",")
		switch {
		case m.gone:
		case len(ms) == 0, len(ms) < MaxCursorBatch && m.session == ms[0].session && size+more <= MaxBatchBytes:
			ms, size = append(ms, m), size+more
		default:
			rest = append(rest, m)
		}
	}
	q.waiting = rest
	if len(ms) == 0 {
		q.active--
	}
	return ms
}

// post sends moves in one request, and gives each its answer.
func (c *Client) post(path string, ms []*move) {
	// Of no single caller: each waits for its own answer as long as it likes.
	ctx, cancel := context.WithTimeout(context.Background(), moveTimeout)
	defer cancel()
	batch := batchOfMoves{Writes: make([]json.RawMessage, len(ms))}
	for i, m := range ms {
		batch.Writes[i] = m.body
	}
	session, at := ms[0].session, int(c.current.Load())
	var out CursorAnswers
	err := c.Do(ctx, http.MethodPost, path, &batch, &out, InSession(session))
	if err == nil && len(out.Answers) != len(ms) {
		err = fmt.Errorf("%d answers to %d moves", len(out.Answers), len(ms))
	}
	if err != nil { // before anybody repeats it
		if !isAnswer(err) {
			c.moveOn(at) // another replica may answer
		}
		c.noteErr(fmt.Errorf("moves of cursors: %w", err))
	}
	for i, m := range ms {
		if err != nil {
			m.err = doubt(err)
		} else {
			m.answer, m.err = decodeAnswer(&out.Answers[i])
		}
		if m.answer.Ended {
			c.spend(session)
		}
		close(m.done)
	}
}

// spend notes that a session has ended: it is not given again.
func (c *Client) spend(session string) {
	l := c.link
	l.update(func() {
		if l.proof.session == session {
			l.spent = session
		}
	})
	signal(l.renew)
}

// encodeWrite is a write as the API takes it: a CursorBatchWrite.
func encodeWrite(engine string, w *consume.Write) (json.RawMessage, error) {
	b := CursorBatchWrite{
		Name:       CursorName(engine, w.Group, w.Partition.Topic, int(w.Partition.Index)),
		IfRevision: w.IfRevision, CursorWrite: CursorWrite{Gone: w.Gone},
	}
	var err error
	if w.Record != nil {
		if b.Record, err = json.Marshal(w.Record); err != nil {
			return nil, fmt.Errorf("encode the record of %s: %w", b.Name, err)
		}
	}
	for i := range w.Notes {
		n := &w.Notes[i]
		out := NoteWrite{Cursor: string(n.Cursor), Compare: n.Compare, Revision: n.IfRevision}
		if n.Note != nil {
			if out.Note, err = json.Marshal(n.Note); err != nil {
				return nil, fmt.Errorf("encode a note of %s: %w", b.Name, err)
			}
		}
		b.Notes = append(b.Notes, out)
	}
	for _, cursor := range w.Read {
		b.Read = append(b.Read, string(cursor))
	}
	for _, m := range w.Moves {
		b.Moves = append(b.Moves, CursorMove{
			Kind: string(m.Kind), Cursor: string(m.Cursor), Lane: string(m.Lane), From: m.From, Why: string(m.Why),
		})
	}
	body, err := json.Marshal(&b)
	if err != nil {
		return nil, fmt.Errorf("encode the write of %s: %w", b.Name, err)
	}
	return body, nil
}

// decodeAnswer says what became of a write. Only these three are answers about it; all else
// leaves it in doubt.
func decodeAnswer(a *CursorAnswer) (out consume.Answer, err error) {
	switch {
	case a.Status == http.StatusOK:
	case a.Status == http.StatusPreconditionFailed:
		out.Outcome = consume.Conflict
	case a.Status == http.StatusConflict && a.Type == ProblemSessionGone:
		out.Outcome, out.Ended = consume.Conflict, true
	default:
		return out, doubt(&Problem{Status: a.Status, Type: a.Type, Title: http.StatusText(a.Status), Detail: a.Detail, Errors: a.Errors})
	}
	out.Revision = a.Revision
	if out.Record, err = recordOf(a.Record); err != nil {
		return consume.Answer{}, doubt(fmt.Errorf("read the record in an answer: %w", err))
	}
	for i := range a.Notes {
		n, err := noteOf(&a.Notes[i])
		if err != nil {
			return consume.Answer{}, doubt(err)
		}
		out.Notes = append(out.Notes, n)
	}
	return out, nil
}

func noteOf(n *CursorNote) (out consume.StoredNote, err error) {
	out = consume.StoredNote{Cursor: lane.Name(n.Cursor), Revision: n.Revision}
	if isNull(n.Note) {
		return out, nil
	}
	out.Note = new(consume.Note)
	if err := json.Unmarshal(n.Note, out.Note); err != nil {
		return out, fmt.Errorf("read the note of cursor %q in an answer: %w", n.Cursor, err)
	}
	return out, nil
}

// close lets no more moves be made, and waits until none is under way: those that have not
// been sent are not.
func (q *mover) close() {
	q.mu.Lock()
	q.closed = true
	for _, m := range q.waiting {
		m.end(doubt(ErrClosed))
	}
	q.waiting = nil
	q.mu.Unlock()
	q.senders.Wait()
}
