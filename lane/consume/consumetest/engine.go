package consumetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// Engine is an engine that is put to the test by [RunEngine].
type Engine struct {
	consume.Source
	consume.Topics

	// Crash ends the engine as hard as it can be ended, without any goodbye, and opens it
	// again over the same storage. Nil: the engine keeps nothing, and says so in its docs.
	Crash func() (Engine, error)
	// Recreate deletes a topic and makes it anew with as many partitions, so that offsets
	// are used again. Nil: the engine has no way to do that.
	Recreate func(ctx context.Context, topic string) error
	// Trim deletes what lies below an offset, as retention does.
	Trim func(ctx context.Context, p consume.Partition, first int64) error
	// Foreign has a consumer of a group read a partition past Laneway, as a program does that
	// knows the engine alone, until leave is called. It is needed where the engine's Caps say
	// ForeignConsumers.
	Foreign func(ctx context.Context, group string, p consume.Partition) (leave func() error, err error)
	// Place moves a partition to another room. Nil: the engine's partitions stay in the rooms
	// that they are in.
	Place func(ctx context.Context, p consume.Partition, room string) error
}

// RunEngine is the conformance suite of engines: what the protocol rests on, each as a
// subtest. open gives an engine without topics that is closed when the test ends. An engine
// that passes keeps every promise in the docs of [consume.Source] and [consume.Topics] that
// can be seen from outside; one that reports a wrong next, leaves a gap, goes backward, uses
// an offset twice or forgets an append does not pass.
func RunEngine(t *testing.T, open func(t *testing.T) Engine) {
	for _, c := range engineChecks {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := c.run(ctx, open(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// CheckEngine runs the checks of these names, or all, and returns what failed by the name of
// the check. It is for trying what the suite catches.
func CheckEngine(ctx context.Context, open func() (Engine, error), names ...string) map[string]error {
	failed := map[string]error{}
	for _, c := range engineChecks {
		if len(names) > 0 && !slices.Contains(names, c.name) {
			continue
		}
		e, err := open()
		if err == nil {
			err = c.run(ctx, e)
			_ = e.Close()
		}
		if err != nil {
			failed[c.name] = err
		}
	}
	return failed
}

var engineChecks = []struct {
	name string
	run  func(context.Context, Engine) error
}{
	{"Topics", checkTopics},
	{"Messages", checkMessages},
	{"Reads", checkReads},
	{"ReadsOn", checkReadsOn},
	{"ReadersAndWriters", checkReadersAndWriters},
	{"Waits", checkWaits},
	{"Keys", checkKeys},
	{"Places", checkPlaces},
	{"Start", checkStart},
	{"Delay", checkDelay},
	{"Dedup", checkDedup},
	{"Mirror", checkMirror},
	{"Foreign", checkForeign},
	{"Rooms", checkRooms},
	{"Retention", checkRetention},
	{"Crash", checkCrash},
	{"Recreated", checkRecreated},
	{"Closed", checkClosed},
}

var zero = consume.Partition{Topic: "orders"}

// colors that messages of the suite have.
var engineColors = []lane.Name{"", "", "", "green", "red", "strict-load"}

func note(p consume.Partition, color lane.Name, text string) *consume.Message {
	return &consume.Message{Partition: p, Color: color, Value: []byte(text)}
}

// fill appends n messages of mixed colors, in batches of several sizes.
func fill(ctx context.Context, e Engine, p consume.Partition, n int, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed that repeats
	for i := 0; i < n; {
		var ms []*consume.Message
		for range min(1+rng.IntN(7), n-i) {
			ms = append(ms, note(p, engineColors[rng.IntN(len(engineColors))], fmt.Sprintf("m%d", i)))
			i++
		}
		if err := e.Append(ctx, ms...); err != nil {
			return fmt.Errorf("append: %w", err)
		}
	}
	return nil
}

// all reads a partition from its first offset to its end, and holds every batch against what
// a batch must be.
func all(ctx context.Context, e Engine, p consume.Partition, f consume.Filter, most int) ([]*consume.Message, error) {
	b, err := e.Bounds(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("bounds: %w", err)
	}
	var out []*consume.Message
	for at := b.First; at < b.End; {
		got, err := e.Read(ctx, p, at, f, most)
		if err != nil {
			return nil, fmt.Errorf("read from %d: %w", at, err)
		}
		if err := checkBatch(&got, p, at, f, most); err != nil {
			return nil, err
		}
		if got.Next == at {
			return nil, fmt.Errorf("read from %d, below the end %d, gets nowhere", at, b.End)
		}
		out = append(out, got.Messages...)
		at, f.Epoch = got.Next, b.Epoch
	}
	return out, nil
}

// leftOut reports whether a batch has no bounds and need not have them.
func leftOut(b *consume.Batch, f consume.Filter) bool {
	return f.Epoch != "" && b.Bounds == (consume.Bounds{})
}

func checkBatch(b *consume.Batch, p consume.Partition, from int64, f consume.Filter, most int) error {
	if b.Next < from {
		return fmt.Errorf("read from %d: next is %d, behind it", from, b.Next)
	}
	if len(b.Messages) > most {
		return fmt.Errorf("read of %d at most gave %d", most, len(b.Messages))
	}
	last := from - 1
	for _, m := range b.Messages {
		switch {
		case m.Offset <= last:
			return fmt.Errorf("read from %d: offset %d after %d", from, m.Offset, last)
		case m.Offset >= b.Next:
			return fmt.Errorf("read from %d: offset %d is not below next %d", from, m.Offset, b.Next)
		case !leftOut(b, f) && (m.Offset < b.Bounds.First || m.Offset >= b.Bounds.End):
			return fmt.Errorf("offset %d lies outside the bounds %+v that came with it", m.Offset, b.Bounds)
		case !f.All && m.Color != f.Color:
			return fmt.Errorf("read of color %q gave %q", f.Color, m.Color)
		case m.Partition != p:
			return fmt.Errorf("message of %s in %s", m.Partition, p)
		}
		last = m.Offset
	}
	return nil
}

func checkTopics(ctx context.Context, e Engine) error {
	if _, err := e.Partitions(ctx, "nobody"); !errors.Is(err, consume.ErrNoTopic) {
		return fmt.Errorf("partitions of a topic that is not there: %w", orNil(err))
	}
	if _, err := e.Describe(ctx, "nobody"); !errors.Is(err, consume.ErrNoTopic) {
		return fmt.Errorf("describe a topic that is not there: %w", orNil(err))
	}
	if _, err := e.Read(ctx, consume.Partition{Topic: "nobody"}, 0, consume.Filter{All: true}, 1); !errors.Is(err, consume.ErrNoTopic) {
		return fmt.Errorf("read a topic that is not there: %w", orNil(err))
	}
	if err := e.Append(ctx, note(consume.Partition{Topic: "nobody"}, "", "x")); !errors.Is(err, consume.ErrNoTopic) {
		return fmt.Errorf("append to a topic that is not there: %w", orNil(err))
	}
	for _, bad := range []int32{-1, 0, 65} {
		if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: bad}); err == nil {
			return fmt.Errorf("a topic of %d partitions is made", bad)
		}
	}
	for range 2 { // the second time it is found
		if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 3}); err != nil {
			return err
		}
	}
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 2}); err != nil {
		return fmt.Errorf("ensure what is there with other partitions: %w", err)
	}
	n, err := e.Partitions(ctx, "orders")
	if err != nil || n != 3 {
		return fmt.Errorf("%d partitions, want 3: %w", n, orNil(err))
	}
	if _, err := e.Bounds(ctx, consume.Partition{Topic: "orders", Index: 3}); !errors.Is(err, consume.ErrNoTopic) {
		return fmt.Errorf("bounds of a partition that is not there: %w", orNil(err))
	}
	if !e.Caps().Grow {
		return nil
	}
	if err := fill(ctx, e, zero, 10, 1); err != nil {
		return err
	}
	if err := e.Grow(ctx, "orders", 5); err != nil {
		return fmt.Errorf("grow: %w", err)
	}
	_ = e.Grow(ctx, "orders", 4) // refused or done already: nothing is taken away
	spec, err := e.Describe(ctx, "orders")
	if err != nil || spec.Partitions != 5 {
		return fmt.Errorf("after growing: %+v: %w", spec, orNil(err))
	}
	ms, err := all(ctx, e, zero, consume.Filter{All: true}, 4)
	if err != nil || len(ms) != 10 {
		return fmt.Errorf("after growing %d of 10 messages are there: %w", len(ms), orNil(err))
	}
	return fill(ctx, e, consume.Partition{Topic: "orders", Index: 4}, 3, 2)
}

// orNil lets %w take an error that may be nil.
func orNil(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func checkMessages(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	odd := []*consume.Message{
		{Partition: zero},
		{Partition: zero, Color: "green", Key: []byte("k\x00é"), Value: bytes.Repeat([]byte("v\x00\n"), 10_000)},
		{
			Partition: zero, Color: "strict-load", Value: []byte("failed"), Attempt: 3, Error: "bad\nthing: é",
			Origin: &consume.Origin{Partition: consume.Partition{Topic: "a.b/c*>", Index: 7}, Offset: 1 << 40, Group: "b g", Lane: "green", Replay: "replay-1", Only: "blue"},
			Headers: []consume.Header{
				{Name: "traceparent", Value: []byte("00-1-2-03")},
				{Name: "X-Twice", Value: []byte("1")},
				{Name: "X-Twice", Value: []byte("2\x00\r\n")},
				{Name: "empty"},
			},
		},
	}
	before := time.Now().Add(-time.Minute)
	for _, m := range odd {
		if err := e.Append(ctx, m); err != nil {
			return fmt.Errorf("append %+v: %w", m, err)
		}
	}
	got, err := all(ctx, e, zero, consume.Filter{All: true}, 10)
	if err != nil {
		return err
	}
	if len(got) != len(odd) {
		return fmt.Errorf("%d of %d messages", len(got), len(odd))
	}
	for i, m := range got {
		if err := same(odd[i], m); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if m.Time.Before(before) || m.Time.After(time.Now().Add(time.Minute)) {
			return fmt.Errorf("message %d is of %s", i, m.Time)
		}
	}
	return nil
}

// same holds a message that was read against the one that was appended.
func same(want, got *consume.Message) error {
	switch {
	case got.Color != want.Color:
		return fmt.Errorf("color %q became %q", want.Color, got.Color)
	case !bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value):
		return errors.New("key or value became another")
	case got.Attempt != want.Attempt || got.Error != want.Error:
		return fmt.Errorf("attempt %d with error %q became %d with %q", want.Attempt, want.Error, got.Attempt, got.Error)
	case (got.Origin == nil) != (want.Origin == nil) || got.Origin != nil && *got.Origin != *want.Origin:
		return fmt.Errorf("origin %+v became %+v", want.Origin, got.Origin)
	case !slices.EqualFunc(got.Headers, want.Headers, func(a, b consume.Header) bool {
		return a.Name == b.Name && bytes.Equal(a.Value, b.Value)
	}):
		return fmt.Errorf("headers %q became %q", want.Headers, got.Headers)
	}
	return nil
}

// checkReads holds many reads against the whole log.
func checkReads(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	const n = 300
	if err := fill(ctx, e, zero, n, 3); err != nil {
		return err
	}
	log, err := all(ctx, e, zero, consume.Filter{All: true}, 64)
	if err != nil {
		return err
	}
	if len(log) != n {
		return fmt.Errorf("%d of %d messages", len(log), n)
	}
	for i, m := range log {
		if string(m.Value) != fmt.Sprintf("m%d", i) {
			return fmt.Errorf("message %d is %q: not in the order of the appends", i, m.Value)
		}
	}
	rng := rand.New(rand.NewPCG(3, 3)) //nolint:gosec // a seed that repeats
	end := log[n-1].Offset + 1
	for range 200 {
		from := rng.Int64N(end + 1)
		most := 1 + rng.IntN(40)
		f := consume.Filter{All: rng.IntN(2) == 0, Color: engineColors[rng.IntN(len(engineColors))]}
		got, err := briefly(ctx, e, from, f, most)
		if err != nil {
			return err
		}
		if err := checkBatch(&got, zero, from, f, most); err != nil {
			return err
		}
		var want []*consume.Message
		for _, m := range log {
			if m.Offset >= from && m.Offset < got.Next && (f.All || m.Color == f.Color) {
				want = append(want, m)
			}
		}
		if !slices.EqualFunc(got.Messages, want, func(a, b *consume.Message) bool { return a.Offset == b.Offset }) {
			return fmt.Errorf("read of %+v from %d says next %d and gave %d messages; the log has %d below it", f, from, got.Next, len(got.Messages), len(want))
		}
		if got.Next > end {
			return fmt.Errorf("next is %d, past the end %d", got.Next, end)
		}
	}
	return nil
}

// briefly reads where there may be nothing to wait for.
func briefly(ctx context.Context, e Engine, from int64, f consume.Filter, most int) (consume.Batch, error) {
	if err := ctx.Err(); err != nil {
		return consume.Batch{}, fmt.Errorf("reading gets nowhere: at %d: %w", from, err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	b, err := e.Read(ctx, zero, from, f, most)
	if err != nil {
		return b, fmt.Errorf("read from %d: %w", from, err)
	}
	return b, nil
}

// checkReadersAndWriters reads while several append: what a reader has passed stays as it was.
func checkReadersAndWriters(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	const writers, each = 6, 120
	errs := make(chan error, writers+len(engineColors)+1)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() { errs <- fill(ctx, e, zero, each, uint64(w)) })
	}
	filters := []consume.Filter{{All: true}, {Color: ""}, {Color: "green"}, {Color: "red"}, {Color: "strict-load"}}
	seen := make([][]int64, len(filters))
	written := make(chan struct{})
	var readers sync.WaitGroup
	for i, f := range filters {
		readers.Go(func() {
			var err error
			seen[i], err = follow(ctx, e, f, written)
			errs <- err
		})
	}
	wg.Wait()
	close(written)
	readers.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	if len(seen[0]) != writers*each {
		return fmt.Errorf("a reader beside %d writers saw %d of %d messages", writers, len(seen[0]), writers*each)
	}
	for i, f := range filters[1:] {
		log, err := all(ctx, e, zero, f, 100)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(log, seen[i+1], func(m *consume.Message, o int64) bool { return m.Offset == o }) {
			return fmt.Errorf("a reader of color %q beside %d writers saw %d of %d messages", f.Color, writers, len(seen[i+1]), len(log))
		}
	}
	return nil
}

// follow reads from next to next until what was written is read.
func follow(ctx context.Context, e Engine, f consume.Filter, written <-chan struct{}) (seen []int64, err error) {
	for at := int64(0); ; {
		last := false
		select {
		case <-written:
			last = true
		default:
		}
		b, err := e.Bounds(ctx, zero)
		if err != nil {
			return nil, err
		}
		got, err := briefly(ctx, e, at, f, 50)
		if err != nil {
			return nil, err
		}
		if err := checkBatch(&got, zero, at, f, 50); err != nil {
			return nil, err
		}
		for _, m := range got.Messages {
			seen = append(seen, m.Offset)
		}
		at = got.Next
		if last && at >= b.End {
			return seen, nil
		}
	}
}

func checkWaits(ctx context.Context, e Engine) error {
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		return err
	}
	b, err := e.Bounds(ctx, zero)
	if err != nil {
		return err
	}
	got, err := briefly(ctx, e, b.End, consume.Filter{All: true}, 5)
	if err != nil || len(got.Messages) != 0 || got.Next != b.End {
		return fmt.Errorf("a read at the end gives %+v: %w", got, orNil(err))
	}
	type result struct {
		b   consume.Batch
		err error
	}
	done := make(chan result, 1)
	go func() {
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		for at := b.End; ; {
			got, err := e.Read(wait, zero, at, consume.Filter{Color: "green"}, 5)
			if err != nil || len(got.Messages) > 0 || wait.Err() != nil {
				done <- result{got, err}
				return
			}
			at = got.Next
		}
	}()
	if err := e.Append(ctx, note(zero, "red", "other"), note(zero, "green", "mine")); err != nil {
		return err
	}
	r := <-done
	if r.err != nil || len(r.b.Messages) != 1 || string(r.b.Messages[0].Value) != "mine" {
		return fmt.Errorf("a read that waited gives %+v: %w", r.b, orNil(r.err))
	}
	return nil
}

func checkKeys(ctx context.Context, e Engine) error {
	const partitions = 4
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: partitions}); err != nil {
		return err
	}
	for i := range 200 {
		m := note(consume.Partition{Topic: "orders", Index: -1}, "", "x")
		m.Key = fmt.Appendf(nil, "key%d", i%20)
		if err := e.Append(ctx, m); err != nil {
			return err
		}
	}
	for range 40 { // without a key they are spread
		if err := e.Append(ctx, note(consume.Partition{Topic: "orders", Index: -1}, "", "x")); err != nil {
			return err
		}
	}
	where := map[string]int32{}
	plain, total := 0, 0
	for p := range int32(partitions) {
		ms, err := all(ctx, e, consume.Partition{Topic: "orders", Index: p}, consume.Filter{All: true}, 64)
		if err != nil {
			return err
		}
		none := 0
		for _, m := range ms {
			total++
			if len(m.Key) == 0 {
				none++
				continue
			}
			if at, ok := where[string(m.Key)]; ok && at != p {
				return fmt.Errorf("key %s is in partitions %d and %d", m.Key, at, p)
			}
			where[string(m.Key)] = p
		}
		if none > 0 {
			plain++
		}
	}
	if total != 240 || plain < 2 {
		return fmt.Errorf("%d of 240 messages; those without a key are in %d partitions", total, plain)
	}
	return nil
}
