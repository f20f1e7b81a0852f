package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// Append adds messages, each to its topic; see [consume.Source] and [Durability]. Messages
// for one partition get ascending offsets in their order. A message without a key that has
// an ID goes to a partition by its ID, so that another process finds it there. A delay
// that is longer than the topic keeps messages is refused: the message would be gone before
// it is due.
func (e *Engine) Append(ctx context.Context, ms ...*consume.Message) error {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	err := e.append(ctx, ms)
	if err != nil && e.life.Err() == nil {
		err = fmt.Errorf("append: %w", err)
	}
	return e.fault(err)
}

func (e *Engine) append(ctx context.Context, ms []*consume.Message) error {
	if err := e.life.Err(); err != nil || len(ms) == 0 {
		return err
	}
	order, runs, err := e.place(ctx, ms)
	if err != nil {
		return err
	}
	if len(order) == 1 {
		return e.appendRun(ctx, order[0], runs[order[0]])
	}
	// All of them go at once: one partition's sync does not wait for another's.
	errs := make(chan error, len(order))
	for _, p := range order {
		if err := e.spawn(func() { errs <- e.appendRun(ctx, p, runs[p]) }); err != nil {
			errs <- err
		}
	}
	for range order {
		err = errors.Join(err, <-errs)
	}
	return err
}

// place gives each message its partition.
func (e *Engine) place(ctx context.Context, ms []*consume.Message) (order []consume.Partition, runs map[consume.Partition][]*consume.Message, err error) {
	runs = map[consume.Partition][]*consume.Message{}
	for _, m := range ms {
		t, err := e.topic(ctx, m.Partition.Topic)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case m.Color != lane.Baseline && !m.Color.Valid():
			return nil, nil, fmt.Errorf("to %s: color %q is no lane name", m.Partition, m.Color)
		case len(m.ID) > MaxIDBytes:
			return nil, nil, fmt.Errorf("to %s: ID of %d bytes: want at most %d", m.Partition, len(m.ID), MaxIDBytes)
		case t.Retention > 0 && m.Delay > t.Retention:
			return nil, nil, fmt.Errorf("to %s: delay %s: the topic keeps messages for %s", m.Partition, m.Delay, t.Retention)
		}
		if m.Partition.Index < 0 {
			m.Partition.Index = e.partitionOf(m, uint32(t.Partitions))
		}
		p := m.Partition
		if runs[p] == nil {
			order = append(order, p)
		}
		runs[p] = append(runs[p], m)
	}
	return order, runs, nil
}

// partitionOf is the partition of a message's key: the same one for the same key as long as
// the topic does not grow. Messages without a key go round.
func (e *Engine) partitionOf(m *consume.Message, n uint32) int32 {
	h := fnv.New32a()
	switch {
	case len(m.Key) > 0:
		_, _ = h.Write(m.Key)
	case m.ID != "":
		_, _ = h.Write([]byte(m.ID))
	default:
		e.mu.Lock()
		defer e.mu.Unlock()
		e.turn++
		return int32(e.turn % n)
	}
	return int32(h.Sum32() % n)
}

// appendRun appends to one partition, and tells those that wait.
func (e *Engine) appendRun(ctx context.Context, p consume.Partition, ms []*consume.Message) error {
	return e.found(ctx, p, func(l log) error {
		var out, delayed []*nats.Msg
		for _, m := range ms {
			o := encodeMessage(l, m)
			// Before anything is sent: others may share the commit.
			if size, most := o.Size()+overheadBytes, int(e.nc.MaxPayload()); size > most {
				return fmt.Errorf("to %s: a message takes %d bytes, the server takes at most %d", p, size, most)
			}
			if m.Delay > 0 && m.ID != "" {
				delayed = append(delayed, o)
			} else {
				out = append(out, o)
			}
		}
		if err := e.appendDelayed(ctx, l, delayed); err != nil {
			return err
		}
		if len(out) == 0 {
			return nil
		}
		var err error
		if e.cfg.Durability == Sync {
			err = e.commit(ctx, l, committer{some: e.commitSome}, split(out))
		} else {
			err = e.publish(ctx, l, out)
		}
		if err != nil {
			return err
		}
		rung := map[lane.Name]bool{}
		for _, m := range ms {
			if m.Delay <= 0 && !rung[m.Color] {
				rung[m.Color] = true
				_ = e.nc.Publish(l.wake(colorToken(m.Color)), nil) // they look by themselves otherwise
			}
		}
		return nil
	})
}

// encodeMessage makes of a message what the log keeps.
func encodeMessage(l log, m *consume.Message) *nats.Msg {
	out := &nats.Msg{Subject: l.subject(m.Color), Header: nats.Header{}}
	var header string
	if header, out.Data = pack(m); header != "" {
		out.Header[HeaderMeta] = []string{header}
	}
	if m.ID != "" {
		// An ID may have anything in it, a header not.
		out.Header[nats.MsgIdHdr] = []string{encode(m.ID)}
	}
	if m.Delay > 0 {
		out.Header["Nats-Schedule"] = []string{"@at " + time.Now().Add(m.Delay).UTC().Format(time.RFC3339Nano)}
		out.Header["Nats-Schedule-Target"] = []string{out.Subject}
		out.Subject = l.delayed(nuid.Next())
	}
	return out
}

// publish appends messages one by one, many on their way at once.
func (e *Engine) publish(ctx context.Context, l log, ms []*nats.Msg) error {
	for len(ms) > 0 {
		n, size := 0, 0
		for n < min(len(ms), maxRun) && size < maxCommitBytes {
			size += len(ms[n].Data)
			n++
		}
		if err := e.publishSome(ctx, l, ms[:n]); err != nil {
			return err
		}
		ms = ms[n:]
	}
	return nil
}

func (e *Engine) publishSome(ctx context.Context, l log, ms []*nats.Msg) error {
	select {
	case e.appends <- struct{}{}:
		defer func() { <-e.appends }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return e.heard(ctx, l, func() error {
		reply, ch, forget := e.replies.expect(len(ms))
		defer forget()
		for i, m := range ms {
			m.Reply = reply + "." + strconv.Itoa(i)
			if err := e.nc.PublishMsg(m); err != nil {
				return err
			}
		}
		unheard := 0
		for range ms {
			err := acked(ctx, l, ch)
			switch {
			case errors.Is(err, nats.ErrNoResponders):
				unheard++
			case err != nil:
				return err
			}
		}
		switch unheard {
		case 0:
			return nil
		case len(ms):
			return nats.ErrNoResponders
		default: // to repeat some would change their order
			return errors.New("the partition's stream came in the middle of it")
		}
	})
}

// heard repeats what nobody answered to, as long as the stream is there: in a cluster a
// server learns late of streams that are new or have moved.
func (e *Engine) heard(ctx context.Context, l log, f func() error) error {
	for {
		err := f()
		if !errors.Is(err, nats.ErrNoResponders) {
			return err
		}
		if _, err := e.state(ctx, l); err != nil {
			return err
		}
		t := time.NewTimer(unheardRetry)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

// acked takes the answer to one publish.
func acked(ctx context.Context, l log, ch <-chan *nats.Msg) error {
	m, err := await(ctx, ch)
	if err != nil || l.acks(m.Data) {
		return err
	}
	return readAck(m.Data)
}

// acks reports whether an answer is the one that nearly all are, in the server's own words:
// {"stream":"…","seq":17}. Any other is read as what it is, which costs sixty times as much.
func (l log) acks(answer []byte) bool {
	from, to := len(l.ack), len(answer)-1
	if from >= to || string(answer[:from]) != l.ack || answer[from] == '0' || answer[to] != '}' {
		return false
	}
	return !slices.ContainsFunc(answer[from:to], func(c byte) bool { return c < '0' || c > '9' })
}

// readAck is nil where an answer says that the message was appended.
func readAck(text []byte) error {
	var ack struct {
		answer
		Seq uint64 `json:"seq"`
	}
	switch err := json.Unmarshal(text, &ack); {
	case err != nil:
		return fmt.Errorf("answer to an append: %w", err)
	case ack.Error != nil:
		return ack.Error
	case ack.Seq == 0:
		return errors.New("answer to an append has no sequence")
	}
	return nil
}
