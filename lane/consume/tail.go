package consume

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Bounds of what a tail keeps.
const (
	tailMessages = 4096
	tailColors   = 10_000
	// tailPatience is how long after its last read main still counts as reading on, and
	// so the most that a color waits for a main cursor that is stuck.
	tailPatience = 50 * time.Millisecond
)

// tail is what a process has read lately of one partition, for all of its cursors: what main
// reads is not read again for the colors beside it, so a hundred lanes in one process do not
// read the log a hundred times. A color whose position is elsewhere, or that has no main
// cursor beside it that reads on, reads by itself.
type tail struct {
	src Source
	p   Partition

	mu      sync.Mutex
	since   int64 // all that lies from here
	next    int64 // up to here was read by main
	kept    []*Message
	lo      int64               // the offset from which kept is complete
	last    map[lane.Name]int64 // the last message of each color, from since on
	epoch   string              // of the log that all of this is of
	reading int                 // reads of everything that are under way
	ended   time.Time           // when the last one ended
	still   *time.Timer
	waiting map[lane.Name][]chan struct{}
}

func newTail(src Source, p Partition) *tail {
	t := &tail{src: src, p: p, last: map[lane.Name]int64{}, waiting: map[lane.Name][]chan struct{}{}}
	t.still = time.AfterFunc(tailPatience, t.stands)
	t.still.Stop()
	return t
}

// stands sends away the colors that wait where main does not read on. One timer for all of
// them: a hundred that look by themselves cost more than the messages that they wait for.
func (t *tail) stands() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.reading == 0 {
		t.wakeAll()
	}
}

// read is Source.Read for a cursor; cached says that the batch has no bounds, since it was
// read before, or since the engine left them out. A read that wants bounds goes to the
// engine.
func (t *tail) read(ctx context.Context, from int64, f Filter, most int, bounds bool) (b Batch, cached bool, err error) {
	if f.All {
		b, err = t.readAll(ctx, from, f, most)
		return b, f.leftOut(&b), err
	}
	for !bounds {
		b, wait, ok := t.have(from, f.Color, most)
		if !ok {
			break
		}
		if wait == nil {
			return b, true, nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			t.forget(f.Color, wait)
			if b, ok := t.none(from, f.Color); ok {
				return b, true, nil
			}
			return Batch{Next: from}, true, nil // the next read has it
		}
	}
	b, err = t.src.Read(ctx, t.p, from, f, most)
	return b, f.leftOut(&b), err
}

// leftOut reports whether a batch that was read with f has no bounds.
func (f Filter) leftOut(b *Batch) bool { return f.Epoch != "" && b.Bounds == (Bounds{}) }

func (t *tail) readAll(ctx context.Context, from int64, f Filter, most int) (Batch, error) {
	t.mu.Lock()
	t.reading++
	t.still.Stop()
	t.mu.Unlock()
	b, err := t.src.Read(ctx, t.p, from, f, most)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.reading--
	if t.ended = time.Now(); t.reading == 0 {
		t.still.Reset(tailPatience)
	}
	if err == nil {
		epoch := b.Bounds.Epoch
		if f.leftOut(&b) {
			epoch = f.Epoch
		}
		t.keep(from, epoch, &b)
	}
	return b, err
}

// keep takes in what was read. Reads that do not follow on what there is begin it anew.
func (t *tail) keep(from int64, epoch string, b *Batch) {
	if from != t.next || epoch != t.epoch || len(t.last) > tailColors {
		t.since, t.lo, t.kept, t.epoch = from, from, nil, epoch
		clear(t.last)
		t.wakeAll()
	}
	t.next = b.Next
	for _, m := range b.Messages {
		if m.Color == Main {
			continue
		}
		t.last[m.Color] = m.Offset
		if len(t.kept) == tailMessages {
			t.lo = t.kept[tailMessages/2-1].Offset + 1
			t.kept = slices.Delete(t.kept, 0, tailMessages/2)
		}
		t.kept = append(t.kept, m)
		for _, w := range t.waiting[m.Color] {
			close(w)
		}
		delete(t.waiting, m.Color)
	}
}

func (t *tail) wakeAll() {
	for _, ws := range t.waiting {
		for _, w := range ws {
			close(w)
		}
	}
	clear(t.waiting)
}

// have gives what is kept of a color from an offset on. Where there is nothing yet and main
// reads on, it gives a channel that is closed when there may be. It reports false where the
// color has to be read from the engine.
func (t *tail) have(from int64, color lane.Name, most int) (b Batch, wait chan struct{}, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.IsZero() || from < t.since || from > t.next {
		return b, nil, false
	}
	if last, seen := t.last[color]; seen && last >= from {
		if from < t.lo {
			return b, nil, false
		}
		return t.pick(from, color, most), nil, true
	}
	if t.reading == 0 && time.Since(t.ended) >= tailPatience {
		if from < t.next {
			return Batch{Next: t.next}, nil, true
		}
		return b, nil, false
	}
	wait = make(chan struct{})
	t.waiting[color] = append(t.waiting[color], wait)
	return b, wait, true
}

// pick gives the messages of a color from an offset on.
func (t *tail) pick(from int64, color lane.Name, most int) Batch {
	b := Batch{Next: t.next}
	i, _ := slices.BinarySearchFunc(t.kept, from, func(m *Message, o int64) int {
		switch {
		case m.Offset < o:
			return -1
		case m.Offset > o:
			return 1
		}
		return 0
	})
	for _, m := range t.kept[i:] {
		if m.Color != color {
			continue
		}
		if len(b.Messages) == most {
			b.Next = m.Offset
			break
		}
		b.Messages = append(b.Messages, m)
	}
	return b
}

// none says how far a color has no message, as far as main has read.
func (t *tail) none(from int64, color lane.Name) (Batch, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, seen := t.last[color]; from < t.since || from > t.next || seen && last >= from {
		return Batch{}, false
	}
	return Batch{Next: t.next}, true
}

func (t *tail) forget(color lane.Name, wait chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ws := slices.DeleteFunc(t.waiting[color], func(w chan struct{}) bool { return w == wait })
	if len(ws) == 0 {
		delete(t.waiting, color)
		return
	}
	t.waiting[color] = ws
}
