package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/laneway-dev/laneway/lane/consume"
)

// errBroken: an answer of many messages came in parts.
var errBroken = errors.New("messages of a batch were lost on their way")

// Bounds are the ends of a partition's log, as its leader has them.
func (e *Engine) Bounds(ctx context.Context, p consume.Partition) (b consume.Bounds, err error) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	err = e.found(ctx, p, func(l log) (err error) {
		b, err = e.state(ctx, l)
		return err
	})
	return b, e.fault(err)
}

// At is the first offset that the log got at t or later; its end where all are older.
func (e *Engine) At(ctx context.Context, p consume.Partition, t time.Time) (at int64, err error) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	err = e.found(ctx, p, func(l log) error {
		b, err := e.state(ctx, l) // before it, so that nothing that comes meanwhile is passed
		if err != nil {
			return err
		}
		at, err = e.leaderNext(ctx, l, map[string]any{"next_by_subj": l.filter(consume.Filter{All: true}), "start_time": t.UTC(), "no_hdr": true})
		if at == 0 {
			at = b.End
		}
		return err
	})
	return at, e.fault(err)
}

// leaderNext asks a stream's leader for the offset of one message; 0: there is none.
func (e *Engine) leaderNext(ctx context.Context, l log, request map[string]any) (int64, error) {
	var got struct {
		answer
		Message struct {
			Sequence int64 `json:"seq"`
		} `json:"message"`
	}
	err := e.ask(ctx, "$JS.API.STREAM.MSG.GET."+l.stream, request, &got)
	if isCode(err, codeNoMessage) {
		return 0, nil
	}
	return got.Message.Sequence, err
}

// Read gives up to max messages at or above from, at most 1,024 of them and about 4 MiB; a
// max below 1 is 1. Where there is none it waits for one until ctx ends, at most for the
// configured fetch wait, and then returns an empty batch without an error. A from above the
// log's end is answered at once with an empty batch, whose Bounds show what is wrong.
func (e *Engine) Read(ctx context.Context, p consume.Partition, from int64, f consume.Filter, max int) (consume.Batch, error) {
	if !f.All && f.Color != "" && !f.Color.Valid() {
		return consume.Batch{}, e.fault(fmt.Errorf("read %s: color %q is no lane name", p, f.Color))
	}
	end := time.NewTimer(e.cfg.FetchWait)
	defer end.Stop()
	if b, ok := e.readOn(ctx, p, from, f, max); ok {
		return b, nil
	}
	var k *wake
	var listened string
	s := looks{from: from}
	for {
		b, l, rung, err := e.look(ctx, p, f, max, k, &s)
		if err != nil || len(b.Messages) > 0 || b.Bounds.End < from {
			return b, err
		}
		if subject := l.wake(wakeToken(f)); listened != subject {
			if k, err = e.wakes.join(subject); err != nil {
				return b, e.fault(err)
			}
			defer e.wakes.leave(k)
			listened = subject
			if rung == nil {
				continue // what came before it listened has not rung
			}
		}
		again := time.NewTimer(lookAgain)
		select {
		case <-rung:
		case <-again.C:
		case <-end.C:
			return b, nil
		case <-ctx.Done():
			return b, nil
		case <-e.life.Done():
			return b, consume.ErrClosed
		}
		again.Stop()
	}
}

// lookAgain is how soon a reader that waits looks by itself: delayed messages ring no bell,
// nor do those of programs that know nothing of Laneway.
const lookAgain = 500 * time.Millisecond

// looks is what a read has seen of a log so far. The ends are asked for once: a reader that
// waits looks often, and they are much more than the answer that nothing has come.
type looks struct {
	from   int64
	stream string // empty: nothing yet
	asked  time.Time
	bounds consume.Bounds // as they were then, and what came since
	next   int64          // all that the read wants below it was examined
}

// look reads what is there.
//
// rung is closed when it is worth to look again; nil: nobody listened before the log was
// looked at.
func (e *Engine) look(ctx context.Context, p consume.Partition, f consume.Filter, limit int, k *wake, s *looks) (
	b consume.Batch, l log, rung <-chan struct{}, err error,
) {
	// Time-outs end a reader's wait; they are no reason to fail a look that has begun.
	look, cancel := e.within(context.WithoutCancel(ctx), e.cfg.RequestTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})()
	err = e.found(look, p, func(found log) (err error) {
		l = found
		if subject := l.wake(wakeToken(f)); k == nil || k.subject != subject {
			k = e.wakes.find(subject)
		}
		rung = e.wakes.next(k)
		first := s.stream != l.stream
		if first {
			// The end is taken first: what comes after it may be in the batch, and never is
			// passed.
			s.asked = time.Now()
			if s.bounds, err = e.state(look, l); err != nil {
				return err
			}
			s.stream, s.next = l.stream, s.from
		}
		b = consume.Batch{Next: s.next, Bounds: s.bounds}
		if first && s.next >= s.bounds.End {
			return nil
		}
		err = e.readLog(look, l, f, min(max(limit, 1), maxReadMessages), s.asked, &b)
		s.bounds, s.next = b.Bounds, b.Next
		return err
	})
	return b, l, rung, e.fault(err)
}

// readLog reads from where a batch says that everything was examined. Its bounds were asked for
// some time before.
func (e *Engine) readLog(ctx context.Context, l log, f consume.Filter, limit int, asked time.Time, b *consume.Batch) error {
	end := b.Bounds.End
	left := true
	for at := max(b.Next, 1); left && len(b.Messages) == 0; {
		got, err := e.next(ctx, l, at, f, limit, sight{b.Bounds.Epoch, asked})
		if err != nil {
			return err
		}
		b.Messages, left = got.ms, got.left
		if got.last > 0 {
			at = got.last + 1
			b.Next = at
			b.Bounds.End = max(b.Bounds.End, at)
		}
	}
	if left || b.Next >= end {
		return nil
	}
	if e.cfg.Replicas > 1 {
		// A replica that lags may have answered: it takes the leader to say that there is
		// nothing left.
		at, err := e.leaderNext(ctx, l, map[string]any{"next_by_subj": l.filter(f), "seq": max(b.Next, 1), "no_hdr": true})
		if err != nil {
			return err
		}
		if at > 0 {
			b.Next = max(b.Next, min(at, end))
			return nil
		}
	}
	b.Next = end
	return nil
}

// next takes a batch: from where a reader of everything or of a busy color was, or by direct get.
func (e *Engine) next(ctx context.Context, l log, from int64, f consume.Filter, limit int, seen sight) (g got, err error) {
	if ms, last := e.followOn(ctx, l, from, f, limit, seen); last > 0 {
		return got{ms: ms, last: last, left: true}, nil
	}
	err = e.heard(ctx, l, func() (err error) {
		g, err = e.get(ctx, l, from, f, limit)
		return err
	})
	if err == nil && (f.All && g.last > 0 || len(g.ms) >= followBusy) {
		e.follows.ended(l.filter(f), g.last+1, time.Now())
	}
	return g, err
}

// got is a batch.
type got struct {
	ms   []*consume.Message
	last int64 // the offset of the last message, also of one that is not given out; 0: none
	gap  bool  // an offset is missing before one of the messages
	left bool  // there may be more
	more int64 // how many messages there are after the last one
}

// get takes a batch by direct get.
func (e *Engine) get(ctx context.Context, l log, from int64, f consume.Filter, limit int) (got, error) {
	request := map[string]any{"seq": from, "batch": limit, "max_bytes": maxReadBytes}
	if !f.All { // else the server would look for what nearly every message is
		request["next_by_subj"] = l.filter(f)
	}
	return e.directGet(ctx, l, from, request, limit)
}

// directGet asks for a batch of up to limit messages at or above from, and takes it in.
func (e *Engine) directGet(ctx context.Context, l log, from int64, request map[string]any, limit int) (g got, err error) {
	select {
	case e.reads <- struct{}{}:
		defer func() { <-e.reads }()
	case <-ctx.Done():
		return g, ctx.Err()
	}
	body, err := json.Marshal(request)
	if err != nil {
		return g, err
	}
	reply, ch, forget := e.replies.expect(limit + 1)
	defer forget()
	if err := e.nc.PublishRequest("$JS.API.DIRECT.GET."+l.stream, reply, body); err != nil {
		return g, err
	}
	for {
		m, err := await(ctx, ch)
		if err != nil {
			return got{}, err
		}
		offset, ok := number(m, nats.JSSequence)
		if !ok { // the end, or a refusal
			if err := g.finish(m); err != nil {
				return got{}, err
			}
			return g, nil
		}
		before, ok := number(m, nats.JSLastSequence)
		if !ok || before != g.last || offset < from || offset <= g.last {
			return got{}, errBroken
		}
		g.last = offset
		subject := own(m, nats.JSSubject)
		if !l.gives(subject) {
			continue
		}
		stored, err := time.Parse(time.RFC3339Nano, own(m, nats.JSTimeStamp))
		if err != nil {
			return got{}, fmt.Errorf("time of offset %d: %w", offset, err)
		}
		g.ms = append(g.ms, decode(l.p, offset, subject, stored, m.Header, m.Data))
	}
}

// finish reads what comes after the last message of a batch.
func (g *got) finish(m *nats.Msg) error {
	switch status := m.Header.Get("Status"); status {
	case "204":
		before, ok := number(m, nats.JSLastSequence)
		pending, counted := number(m, "Nats-Num-Pending")
		if !ok || !counted || before != g.last {
			return errBroken
		}
		g.left, g.more = pending > 0, pending
		return nil
	case "404":
		return nil
	default:
		return fmt.Errorf("batch refused: %s %s", status, m.Header.Get("Description"))
	}
}

// own is a header that the server added: the last of its name, for whoever put the message
// there may have added one too.
func own(m *nats.Msg, name string) string {
	if v := m.Header[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

func number(m *nats.Msg, name string) (int64, bool) {
	n, err := strconv.ParseInt(own(m, name), 10, 64)
	return n, err == nil && n >= 0
}
