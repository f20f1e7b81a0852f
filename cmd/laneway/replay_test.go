package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// memoryEngine is an engine in memory of which some appends fail.
type memoryEngine struct {
	*consume.Memory
	dedup   bool
	fails   func() bool // an append does
	arrives bool        // what fails has arrived all the same
}

var _ engine = (*memoryEngine)(nil)

func (e *memoryEngine) URL() string                                               { return "" }
func (e *memoryEngine) Check(context.Context) error                               { return nil }
func (e *memoryEngine) List(context.Context) ([]consume.TopicSpec, error)         { return nil, nil }
func (e *memoryEngine) Delete(context.Context, string) error                      { return nil }
func (e *memoryEngine) Drop(context.Context) error                                { return nil }
func (e *memoryEngine) Remove(context.Context, consume.Partition, ...int64) error { return nil }

func (e *memoryEngine) Caps() consume.Caps { return consume.Caps{FilterColor: true, Dedup: e.dedup} }

func (e *memoryEngine) Count(_ context.Context, p consume.Partition, from int64, f consume.Filter) (int64, error) {
	b, err := e.Peek(p, from, f, 1_000_000)
	return int64(len(b.Messages)), err
}

var errNoAnswer = errors.New("no answer")

func (e *memoryEngine) Append(ctx context.Context, ms ...*consume.Message) error {
	if e.fails == nil || !e.fails() {
		return e.Memory.Append(ctx, ms...)
	}
	if e.arrives {
		if err := e.Memory.Append(ctx, ms...); err != nil {
			return err
		}
	}
	return errNoAnswer
}

// replayed is the group's retry topic, as "key:number" by partition.
func (e *memoryEngine) replayed(t *testing.T) (texts [][]string, ms []*consume.Message) {
	t.Helper()
	n, err := e.Partitions(t.Context(), "orders.billing.retry")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		b, err := e.Peek(consume.Partition{Topic: "orders.billing.retry", Index: i}, 0, consume.Filter{All: true}, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		var part []string
		for _, m := range b.Messages {
			part = append(part, string(m.Value))
		}
		texts, ms = append(texts, part), append(ms, b.Messages...)
	}
	return texts, ms
}

func newMemoryEngine(t *testing.T, partitions, retries int32) *memoryEngine {
	t.Helper()
	e := &memoryEngine{Memory: consume.NewMemory(consume.MemoryConfig{FetchWait: time.Millisecond})}
	t.Cleanup(func() { _ = e.Close() })
	for topic, n := range map[string]int32{"orders": partitions, "orders.billing.retry": retries} {
		if err := e.Ensure(t.Context(), consume.TopicSpec{Name: topic, Partitions: n, Retention: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// replayOf is replay "mine" of orders for lane green.
func (e *memoryEngine) replayOf(t *testing.T) *replay {
	t.Helper()
	n, err := e.Partitions(t.Context(), "orders.billing.retry")
	if err != nil {
		t.Fatal(err)
	}
	return &replay{
		engine: e, group: &laneclient.Group{Meta: laneclient.Meta{Name: "billing"}, Topics: []string{"orders"}}, topic: "orders",
		lane: "green", only: "green", filter: consume.Filter{All: true}, name: "mine", retries: n, told: func() {}, view: &replayView{},
	}
}

// TestReplayGoesOn: a replay that fails time and again, and is called again with its name, has
// copied each message once in the end, those of one partition in their order; whether what
// failed has arrived or not, and whether the engine knows IDs or not.
func TestReplayGoesOn(t *testing.T) {
	t.Parallel()
	const messages = 3000
	for _, tt := range []struct{ dedup, arrives bool }{{false, false}, {false, true}, {true, false}, {true, true}} {
		for _, retries := range []int32{1, 2} {
			e := newMemoryEngine(t, 3, retries)
			e.dedup, e.arrives = tt.dedup, tt.arrives
			for n := range messages {
				m := &consume.Message{Partition: consume.Partition{Topic: "orders", Index: int32(n % 3)}, Key: fmt.Append(nil, n%11), Value: fmt.Append(nil, n)}
				if err := e.Memory.Append(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			seed := rand.Uint64()
			r := rand.New(rand.NewPCG(seed, 1))
			calls := 0
			e.fails = func() bool { return calls == 0 || r.IntN(3) == 0 }
			for copied := int64(0); ; calls++ {
				p := e.replayOf(t)
				if err := errors.Join(p.find(t.Context(), -1, messageRange{to: -1}, time.Now()), p.look(t.Context())); err != nil {
					t.Fatal(err)
				}
				err := p.run(t.Context())
				copied += p.view.Copied
				if err == nil {
					if v := p.view; v.Found != messages || v.Copied+v.Already != messages || !tt.arrives && copied != messages {
						t.Errorf("%+v, %d partitions to retry in, seed %d: %+v after %d copied in all", tt, retries, seed, v, copied)
					}
					break
				}
				if !errors.Is(err, errNoAnswer) {
					t.Fatal(err)
				}
			}
			parts, _ := e.replayed(t)
			all, last := 0, map[int]int{}
			for _, part := range parts {
				for _, text := range part {
					var n int
					if _, err := fmt.Sscan(text, &n); err != nil {
						t.Fatal(err)
					}
					if before, seen := last[n%3]; seen && n <= before {
						t.Fatalf("%+v, %d partitions to retry in, seed %d: %d comes after %d", tt, retries, seed, n, before)
					}
					last[n%3] = n
					all++
				}
			}
			if all != messages || calls == 0 {
				t.Errorf("%+v, %d partitions to retry in, seed %d: %d copies of %d messages in %d calls", tt, retries, seed, all, messages, calls+1)
			}
		}
	}
}

// TestReplayCopy: a copy has all that its original has, but for the color, also where it
// travels in headers, and says what it is.
func TestReplayCopy(t *testing.T) {
	t.Parallel()
	e := newMemoryEngine(t, 1, 1)
	headers := consume.Headers{{Name: "X-Shop", Value: []byte("7")}, {Name: consume.MessageHeader, Value: []byte("0123456789abcdef")}}
	lane.Inject(&headers, "blue")
	headers.Set(lane.BaggageHeader, "user=1,"+lane.BaggageMember+"=blue")
	sent := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	in := &consume.Message{
		Partition: consume.Partition{Topic: "orders"}, Color: "blue", Key: []byte("k"), Value: []byte("v"), Headers: headers, Time: sent,
		Attempt: 2, Error: "of another group's", Origin: &consume.Origin{Partition: consume.Partition{Topic: "carts"}, Group: "carts", Replay: "before"},
	}
	if err := e.Append(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	r := e.replayOf(t)
	if err := errors.Join(r.find(t.Context(), 0, messageRange{to: -1}, time.Now()), r.run(t.Context())); err != nil {
		t.Fatal(err)
	}
	_, ms := e.replayed(t)
	if len(ms) != 1 {
		t.Fatalf("%d copies", len(ms))
	}
	m := ms[0]
	got := consume.Headers(m.Headers)
	if string(m.Key) != "k" || string(m.Value) != "v" || !m.Time.Equal(sent) || m.Attempt != 0 || m.Color != "green" || m.Replayed() != "mine" {
		t.Errorf("copy %+v", m)
	}
	first, err := e.Bounds(t.Context(), in.Partition)
	if want := (consume.Origin{Partition: in.Partition, Offset: first.First, Group: "billing", Replay: "mine", Only: "green"}); err != nil || *m.Origin != want {
		t.Errorf("origin %+v, want %+v", m.Origin, want)
	}
	if color, _ := lane.Extract(&got); color != "green" || len(got.Values("x-shop")) != 1 || len(got.Values(consume.MessageHeader)) != 1 {
		t.Errorf("headers %q", got)
	}
	if baggage := got.Values(lane.BaggageHeader); len(baggage) != 1 || !strings.Contains(baggage[0], "user=1") || strings.Contains(baggage[0], "blue") {
		t.Errorf("baggage %q", baggage)
	}
	if was, _ := lane.Extract(&headers); was != "blue" {
		t.Errorf("the original's headers were changed: %q", headers)
	}
}

// TestReplayRange: what of a topic is in a range, by offsets and times, and what is refused.
func TestReplayRange(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	clock := now.Add(-60 * time.Minute)
	e := &memoryEngine{Memory: consume.NewMemory(consume.MemoryConfig{FetchWait: time.Millisecond, Now: func() time.Time { return clock }})}
	t.Cleanup(func() { _ = e.Close() })
	for topic, n := range map[string]int32{"orders": 2, "one": 1, "orders.billing.retry": 1} {
		if err := e.Ensure(t.Context(), consume.TopicSpec{Name: topic, Partitions: n}); err != nil {
			t.Fatal(err)
		}
	}
	zero := consume.Partition{Topic: "orders"}
	first, err := e.Bounds(t.Context(), zero)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 60 { // one a minute and partition
		for _, p := range []consume.Partition{zero, {Topic: "orders", Index: 1}, {Topic: "one"}} {
			if err := e.Append(t.Context(), &consume.Message{Partition: p, Value: fmt.Append(nil, n)}); err != nil {
				t.Fatal(err)
			}
		}
		clock = clock.Add(time.Minute)
	}
	at := func(n int64) int64 { return first.First + n }
	ago := func(minutes int) time.Time { return now.Add(-time.Duration(minutes) * time.Minute) }
	for _, tt := range []struct {
		name  string
		only  int
		in    messageRange
		found int64
		fault string
	}{
		{"all", -1, messageRange{to: -1}, 120, ""},
		{"one partition", 1, messageRange{to: -1}, 60, ""},
		{"offsets", 0, messageRange{from: at(10), to: at(19)}, 10, ""},
		{"one offset", 0, messageRange{from: at(10), to: at(10)}, 1, ""},
		{"offsets past the end", 0, messageRange{from: at(50), to: 4711}, 10, ""},
		{"a time", -1, messageRange{since: ago(10), to: -1}, 20, ""},
		{"between times", -1, messageRange{since: ago(20), until: ago(15), to: -1}, 10, ""},
		{"an offset and a time", 0, messageRange{from: at(5), until: ago(50), to: -1}, 5, ""},
		{"offsets of several partitions", -1, messageRange{from: at(5), to: -1}, 0, "say which with --partition"},
		{"a partition that is not there", 2, messageRange{to: -1}, 0, "2 partitions, numbered from 0"},
		{"after the end", 0, messageRange{from: at(60), to: -1}, 0, "laneway topic show orders"},
		{"a time to come", -1, messageRange{since: now.Add(time.Hour), to: -1}, 0, "laneway topic show orders"},
	} {
		r := e.replayOf(t)
		err := r.find(t.Context(), tt.only, tt.in, now)
		if tt.fault != "" && (err == nil || !strings.Contains(err.Error(), tt.fault)) || tt.fault == "" && err != nil {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.fault)
		}
		if err == nil && r.view.Found != tt.found {
			t.Errorf("%s: found %d, want %d", tt.name, r.view.Found, tt.found)
		}
		if err != nil {
			continue
		}
		if err := r.run(t.Context()); err != nil || r.view.Copied != tt.found {
			t.Errorf("%s: copied %d, %v; want %d", tt.name, r.view.Copied, err, tt.found)
		}
	}
}

// TestReplayGone: a range of which the topic does not keep all any more is refused, and one
// that may have lost some, by what the topic keeps.
func TestReplayGone(t *testing.T) {
	t.Parallel()
	e := newMemoryEngine(t, 1, 1)
	for n := range 20 {
		if err := e.Append(t.Context(), &consume.Message{Partition: consume.Partition{Topic: "orders"}, Value: fmt.Append(nil, n)}); err != nil {
			t.Fatal(err)
		}
	}
	at := consume.Partition{Topic: "orders"}
	find := func(in messageRange) error { return e.replayOf(t).find(t.Context(), -1, in, time.Now()) }
	if err := find(messageRange{since: time.Now().Add(-2 * time.Hour), to: -1}); err != nil {
		t.Errorf("a time before all that there ever was: %v", err)
	}
	if err := e.Retain(at, 5); err != nil {
		t.Fatal(err)
	}
	b, err := e.Bounds(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]messageRange{
		"by offset": {from: b.First - 2, to: -1}, "by time": {since: time.Now().Add(-2 * time.Hour), to: -1},
	} {
		if err := find(in); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("begins with --from %d", b.First)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, in := range map[string]messageRange{
		"what is left": {from: b.First, to: -1}, "all that there is": {to: -1}, "less than is kept": {since: time.Now().Add(-30 * time.Minute), to: -1},
	} {
		if err := find(in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
