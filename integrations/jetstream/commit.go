package jetstream

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/laneway-dev/laneway/lane/consume"
)

// pending is what one append wants committed to one stream, or a part of it.
type pending struct {
	ms    []*nats.Msg
	bytes int
	done  chan error
	gone  bool // nobody waits for it any more; guarded by Engine.mu
}

// committer is one way of committing what appends of a stream want.
type committer struct {
	kind   string        // its queues' own
	gather time.Duration // how long a commit waits for more
	some   func(ctx context.Context, l log, batch []*pending)
}

// commit has parts committed in the stream's next batch. A commit costs the same for one message
// and for five hundred: what is appended while one runs waits for the next. What nobody waits for
// any more, and was not sent, is dropped: whoever appends it again, as is his right, would find the
// server busy with his own last try, and would have it there twice, were that committed so late
// that the server has forgotten its ID.
func (e *Engine) commit(ctx context.Context, l log, by committer, parts []*pending) error {
	key := by.kind + l.stream
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return consume.ErrClosed
	}
	waiting, running := e.commits[key]
	e.commits[key] = append(waiting, parts...)
	if !running {
		// The commits are not this caller's alone.
		e.wg.Go(func() { e.commitAll(context.WithoutCancel(ctx), l, by) })
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		for _, p := range parts {
			p.gone = true
		}
	}()
	for _, p := range parts {
		select {
		case err := <-p.done:
			if err != nil {
				return err
			}
		case <-ctx.Done(): // it may be under way
			return ctx.Err()
		}
	}
	return nil
}

func split(ms []*nats.Msg) (parts []*pending) {
	for len(ms) > 0 {
		p := &pending{done: make(chan error, 1)}
		n := 0
		for n < min(len(ms), maxCommit) && p.bytes < maxCommitBytes {
			p.bytes += len(ms[n].Data)
			n++
		}
		p.ms, ms = ms[:n], ms[n:]
		parts = append(parts, p)
	}
	return parts
}

// commitAll commits until nothing waits for the stream.
func (e *Engine) commitAll(ctx context.Context, l log, by committer) {
	key := by.kind + l.stream
	for {
		if by.gather > 0 {
			more := time.NewTimer(by.gather)
			select {
			case <-more.C:
			case <-e.life.Done():
				more.Stop()
			}
		}
		e.mu.Lock()
		waiting := slices.DeleteFunc(e.commits[key], func(p *pending) bool { return p.gone })
		if len(waiting) == 0 {
			delete(e.commits, key)
			e.mu.Unlock()
			return
		}
		n, count, bytes := 0, 0, 0
		for n < len(waiting) && (n == 0 || count+len(waiting[n].ms) <= maxCommit && bytes+waiting[n].bytes <= maxCommitBytes) {
			count, bytes = count+len(waiting[n].ms), bytes+waiting[n].bytes
			n++
		}
		batch := waiting[:n:n]
		e.commits[key] = waiting[n:]
		e.mu.Unlock()
		by.some(ctx, l, batch)
	}
}

// commitSome commits appends together, and tells each of them.
func (e *Engine) commitSome(ctx context.Context, l log, batch []*pending) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	err := e.commitBatch(ctx, l, messagesOf(batch))
	var refused *apiError
	alone := errors.As(err, &refused)
	for _, p := range batch {
		if alone {
			// None of them is there: one may have an ID that is there already, which a
			// batch cannot pass over. Each goes its own way.
			err = e.publish(ctx, l, p.ms)
		}
		p.done <- err
	}
}

func messagesOf(batch []*pending) (ms []*nats.Msg) {
	for _, p := range batch {
		ms = append(ms, p.ms...)
	}
	return ms
}

func (e *Engine) commitBatch(ctx context.Context, l log, ms []*nats.Msg) error {
	for {
		err := e.heard(ctx, l, func() error { return e.commitOnce(ctx, l, ms) })
		if !isCode(err, codeTooManyBatches) {
			return err
		}
		t := time.NewTimer(commitRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

func (e *Engine) commitOnce(ctx context.Context, l log, ms []*nats.Msg) error {
	if len(ms) == 1 {
		return e.publish(ctx, l, ms)
	}
	reply, ch, forget := e.replies.expect(1)
	defer forget()
	id := nuid.Next()
	for i, m := range ms {
		b := &nats.Msg{Subject: m.Subject, Data: m.Data, Header: nats.Header{}}
		maps.Copy(b.Header, m.Header)
		b.Header["Nats-Batch-Id"] = []string{id}
		b.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		if i == len(ms)-1 {
			b.Header["Nats-Batch-Commit"] = []string{"1"}
			b.Reply = reply
		}
		if err := e.nc.PublishMsg(b); err != nil {
			return err
		}
	}
	return acked(ctx, l, ch)
}
