package consumetest

import (
	"context"
	"fmt"

	"github.com/laneway-dev/laneway/lane/consume"
)

// readerOn reads a partition on and on, and tells the engine which log it reads.
type readerOn struct {
	e     Engine
	at    int64
	epoch string
	got   []string
}

// read takes up to most messages. A batch without bounds has to be one of which nothing is
// missing, offset by offset: the suite's logs have no gaps but those that retention makes.
func (r *readerOn) read(ctx context.Context, most int) (consume.Batch, error) {
	f := consume.Filter{All: true, Epoch: r.epoch}
	b, err := r.e.Read(ctx, zero, r.at, f, most)
	if err != nil {
		return b, fmt.Errorf("read on from %d: %w", r.at, err)
	}
	if err := checkBatch(&b, zero, r.at, f, most); err != nil {
		return b, err
	}
	if !leftOut(&b, f) {
		r.epoch = b.Bounds.Epoch
	} else if missing := b.Next - r.at - int64(len(b.Messages)); missing != 0 {
		return b, fmt.Errorf("read on from %d to %d: %d messages are missing, and there are no bounds to show why", r.at, b.Next, missing)
	}
	for _, m := range b.Messages {
		r.got = append(r.got, string(m.Value))
	}
	r.at = b.Next
	return b, nil
}

// checkReadsOn: who reads on gets everything once, and where bounds are left out nothing is gone
// and the log is the one that the reader named.
func checkReadsOn(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	b, err := e.Bounds(ctx, zero)
	if err != nil {
		return err
	}
	r := &readerOn{e: e, at: b.First}
	const rounds, each = 40, 5
	for i := range rounds {
		if err := fill(ctx, e, zero, each, uint64(i)); err != nil {
			return err
		}
		for len(r.got) < (i+1)*each {
			if _, err := r.read(ctx, 2); err != nil {
				return err
			}
		}
	}
	for i, text := range r.got {
		if want := fmt.Sprintf("m%d", i%each); text != want {
			return fmt.Errorf("message %d that was read on is %q, want %q", i, text, want)
		}
	}
	if err := readsAnother(ctx, e, r.at, r.epoch); err != nil {
		return err
	}
	return readsOnBehindRetention(ctx, r)
}

// readsAnother: who names another log than there is must be shown it.
func readsAnother(ctx context.Context, e Engine, end int64, epoch string) error {
	f := consume.Filter{All: true, Epoch: "not-" + epoch}
	for _, from := range []int64{end - 1, end - 1, end} {
		b, err := briefly(ctx, e, from, f, 1)
		if err != nil {
			return err
		}
		if b.Bounds.Epoch != epoch {
			return fmt.Errorf("read of a log %q that is not there, from %d: bounds %+v, want epoch %q", f.Epoch, from, b.Bounds, epoch)
		}
	}
	return nil
}

// readsOnBehindRetention: what is deleted before who reads on is told by bounds.
func readsOnBehindRetention(ctx context.Context, r *readerOn) error {
	if r.e.Trim == nil {
		return nil
	}
	const n, cut = 20, 7
	if err := fill(ctx, r.e, zero, n, 99); err != nil {
		return err
	}
	for range 3 { // a place is known by now
		if _, err := r.read(ctx, 1); err != nil {
			return err
		}
	}
	was := r.at
	if err := r.e.Trim(ctx, zero, was+cut); err != nil {
		return err
	}
	b, err := r.read(ctx, 4)
	if err != nil {
		return err
	}
	if b.Bounds.First != was+cut {
		return fmt.Errorf("read on from %d, when all below %d was deleted: bounds %+v", was, was+cut, b.Bounds)
	}
	return nil
}
