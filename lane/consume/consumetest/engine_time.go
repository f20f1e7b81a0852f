package consumetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

func checkStart(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	if err := fill(ctx, e, zero, 20, 4); err != nil {
		return err
	}
	log, err := all(ctx, e, zero, consume.Filter{All: true}, 64)
	if err != nil {
		return err
	}
	end := log[len(log)-1].Offset + 1
	for _, c := range []struct {
		at   time.Time
		want int64
	}{
		{log[0].Time.Add(-time.Hour), log[0].Offset},
		{log[len(log)-1].Time.Add(time.Hour), end},
	} {
		got, err := e.At(ctx, zero, c.at)
		if err != nil || got != c.want {
			return fmt.Errorf("at %s: offset %d, want %d: %w", c.at, got, c.want, orNil(err))
		}
	}
	mid := log[10].Time
	got, err := e.At(ctx, zero, mid)
	if err != nil {
		return err
	}
	for _, m := range log {
		if older := m.Time.Before(mid); older != (m.Offset < got) {
			return fmt.Errorf("at the time of offset %d: %d; but offset %d is of %s, older: %v", log[10].Offset, got, m.Offset, m.Time, older)
		}
	}
	return nil
}

func checkDelay(ctx context.Context, e Engine) error {
	if !e.Caps().Delay {
		return nil
	}
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	const delay = 1500 * time.Millisecond
	late := note(zero, "green", "late")
	late.Delay = delay
	late.Attempt = 2
	began := time.Now()
	if err := e.Append(ctx, late); err != nil {
		return err
	}
	if err := e.Append(ctx, note(zero, "green", "early")); err != nil {
		return err
	}
	b, err := e.Bounds(ctx, zero)
	if err != nil {
		return err
	}
	var got []string
	for at := b.First; len(got) < 2; {
		wait, cancel := context.WithTimeout(ctx, time.Second)
		batch, err := e.Read(wait, zero, at, consume.Filter{Color: "green"}, 10)
		cancel()
		if err != nil {
			return err
		}
		for _, m := range batch.Messages {
			got = append(got, string(m.Value))
			if string(m.Value) == "late" {
				if took := time.Since(began); took < delay {
					return fmt.Errorf("a message delayed by %s came after %s", delay, took)
				}
				if m.Attempt != 2 {
					return errors.New("a delayed message lost what it carried")
				}
			}
		}
		at = batch.Next
		if ctx.Err() != nil || time.Since(began) > 30*time.Second {
			return fmt.Errorf("a delayed message did not come: %v", got)
		}
	}
	if got[0] != "early" {
		return fmt.Errorf("delayed first: %v", got)
	}
	return nil
}

func checkDedup(ctx context.Context, e Engine) error {
	if !e.Caps().Dedup {
		return nil
	}
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	for _, id := range []string{"a", "b", "a", "", "", "b"} {
		m := note(zero, "", "of "+id)
		m.ID = id
		if err := e.Append(ctx, m); err != nil {
			return fmt.Errorf("append of ID %q: %w", id, err)
		}
	}
	ms, err := all(ctx, e, zero, consume.Filter{All: true}, 10)
	if err != nil || len(ms) != 4 {
		return fmt.Errorf("%d messages, want 4: a, b and two without an ID: %w", len(ms), orNil(err))
	}
	return nil
}

// checkPlaces: a message that is appended again goes where it went before, though the topic
// has grown, and so its ID is found.
func checkPlaces(ctx context.Context, e Engine) error {
	const before, after, n = 2, 7, 20
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: before}); err != nil {
		return err
	}
	caps, ms := e.Caps(), make([]*consume.Message, n)
	for i := range ms {
		ms[i] = note(consume.Partition{Topic: "orders", Index: -1}, "", "x")
		ms[i].Key = fmt.Appendf(nil, "key%d", i)
		if caps.Dedup {
			ms[i].ID = fmt.Sprint("id", i)
		}
	}
	for again := range 2 {
		if err := e.Append(ctx, ms...); err != nil {
			return err
		}
		for _, m := range ms {
			if m.Partition.Index < 0 || m.Partition.Index >= before {
				return fmt.Errorf("key %s went to %s at time %d: want its Index set to one of the %d partitions that there were", m.Key, m.Partition, again+1, before)
			}
		}
		if !caps.Grow {
			break
		}
		if again == 0 {
			if err := e.Grow(ctx, "orders", after); err != nil {
				return err
			}
		}
	}
	want, total := n, 0
	if caps.Grow && !caps.Dedup {
		want = 2 * n
	}
	for p := range int32(before) {
		got, err := all(ctx, e, consume.Partition{Topic: "orders", Index: p}, consume.Filter{All: true}, 3*n)
		if err != nil {
			return err
		}
		total += len(got)
	}
	if total != want {
		return fmt.Errorf("%d messages in the %d partitions that there were, want %d", total, before, want)
	}
	return nil
}

// checkMirror: what is mirrored changes nothing that is read.
func checkMirror(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	if err := fill(ctx, e, zero, 10, 5); err != nil {
		return err
	}
	for _, o := range []int64{5, 2, 10} {
		if err := e.Mirror(ctx, "billing", "", zero, o); err != nil {
			return fmt.Errorf("mirror: %w", err)
		}
		if err := e.Mirror(ctx, "billing", "green", zero, o); err != nil {
			return fmt.Errorf("mirror of a color: %w", err)
		}
	}
	ms, err := all(ctx, e, zero, consume.Filter{All: true}, 10)
	if err != nil || len(ms) != 10 {
		return fmt.Errorf("after mirroring %d of 10 messages are read: %w", len(ms), orNil(err))
	}
	return nil
}

func checkRetention(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	if err := fill(ctx, e, zero, 50, 6); err != nil {
		return err
	}
	before, err := e.Bounds(ctx, zero)
	if err != nil {
		return err
	}
	if e.Trim == nil {
		return errors.New("the engine under test has no Trim: say how its retention is made to act")
	}
	if err := e.Trim(ctx, zero, before.First+30); err != nil {
		return err
	}
	b, err := e.Bounds(ctx, zero)
	if err != nil || b.First != before.First+30 || b.End != before.End || b.Epoch != before.Epoch {
		return fmt.Errorf("bounds %+v became %+v: %w", before, b, orNil(err))
	}
	for _, from := range []int64{before.First, before.First + 29, before.First + 30} {
		got, err := briefly(ctx, e, from, consume.Filter{All: true}, 5)
		if err != nil {
			return err
		}
		if len(got.Messages) == 0 || got.Messages[0].Offset != b.First || got.Bounds.First != b.First {
			return fmt.Errorf("a read from %d, which retention has passed, gives %+v: want what there is, from %d", from, got, b.First)
		}
	}
	if err := e.Trim(ctx, zero, b.End); err != nil {
		return err
	}
	empty, err := e.Bounds(ctx, zero)
	if err != nil || empty.First != b.End || empty.End != b.End {
		return fmt.Errorf("bounds of an emptied log: %+v, want both %d: %w", empty, b.End, orNil(err))
	}
	if err := fill(ctx, e, zero, 1, 7); err != nil {
		return err
	}
	got, err := briefly(ctx, e, before.First, consume.Filter{All: true}, 5)
	if err != nil || len(got.Messages) != 1 || got.Messages[0].Offset < b.End {
		return fmt.Errorf("after everything was deleted the next message is %+v: offsets below %d were used: %w", got.Messages, b.End, orNil(err))
	}
	return nil
}

// checkCrash: what was appended is there after a crash, at its offset, and no offset is used
// again.
func checkCrash(ctx context.Context, e Engine) error {
	if e.Crash == nil {
		return nil
	}
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	var log []*consume.Message
	for round := range 3 {
		if err := fill(ctx, e, zero, 40, uint64(round)); err != nil {
			return err
		}
		before, err := all(ctx, e, zero, consume.Filter{All: true}, 64)
		if err != nil {
			return err
		}
		b, err := e.Bounds(ctx, zero)
		if err != nil {
			return err
		}
		if e, err = e.Crash(); err != nil {
			return fmt.Errorf("open after a crash: %w", err)
		}
		log, err = all(ctx, e, zero, consume.Filter{All: true}, 64)
		if err != nil {
			return err
		}
		if len(log) != 40*(round+1) {
			return fmt.Errorf("after crash %d %d of %d messages are there", round+1, len(log), 40*(round+1))
		}
		for i, m := range before {
			if log[i].Offset != m.Offset || string(log[i].Value) != string(m.Value) {
				return fmt.Errorf("offset %d has %q after a crash, %q before", log[i].Offset, log[i].Value, m.Value)
			}
		}
		after, err := e.Bounds(ctx, zero)
		if err != nil || after.Epoch != b.Epoch {
			return fmt.Errorf("epoch %q became %q by a crash: %w", b.Epoch, after.Epoch, orNil(err))
		}
	}
	return e.Close()
}

func checkRecreated(ctx context.Context, e Engine) error {
	if e.Recreate == nil {
		return nil
	}
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	if err := fill(ctx, e, zero, 10, 8); err != nil {
		return err
	}
	b, err := e.Bounds(ctx, zero)
	if err != nil {
		return err
	}
	if err := e.Recreate(ctx, "orders"); err != nil {
		return err
	}
	if err := fill(ctx, e, zero, 3, 9); err != nil {
		return err
	}
	again, err := briefly(ctx, e, 0, consume.Filter{All: true}, 10)
	if err != nil {
		return err
	}
	if again.Bounds.Epoch == b.Epoch && again.Bounds.First < b.End {
		return fmt.Errorf("a topic that was created again has the epoch %q of the one before, and uses its offsets", b.Epoch)
	}
	return nil
}

func checkClosed(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	waiting := make(chan error, 1)
	go func() {
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		for at := int64(0); ; {
			b, err := e.Read(wait, zero, at, consume.Filter{All: true}, 1)
			if err != nil || wait.Err() != nil {
				waiting <- err
				return
			}
			at = b.Next
		}
	}()
	if err := e.Close(); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	if err := <-waiting; !errors.Is(err, consume.ErrClosed) {
		return fmt.Errorf("a read that waited when the engine was closed: %w", orNil(err))
	}
	if err := e.Append(ctx, note(zero, "", "x")); !errors.Is(err, consume.ErrClosed) {
		return fmt.Errorf("append after close: %w", orNil(err))
	}
	if err := e.Close(); err != nil {
		return fmt.Errorf("close again: %w", err)
	}
	return nil
}
