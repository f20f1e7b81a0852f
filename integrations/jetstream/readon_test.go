package jetstream

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// readingOn is a reader of everything who has come to a place of which is known which log it
// is in, at the end of what there is.
func readingOn(t *testing.T, e *Engine) *reading {
	t.Helper()
	r := placed(t, e, 1000)
	for i := 1000; r.without == 0 || r.at <= int64(i); {
		if r.at > int64(i) {
			add(t, e, fmt.Append(nil, i))
			i++
		}
		r.read()
	}
	return r
}

func add(t *testing.T, e *Engine, values ...[]byte) {
	t.Helper()
	var ms []*consume.Message
	for _, v := range values {
		ms = append(ms, &consume.Message{Partition: orders, Value: v})
	}
	if err := e.Append(t.Context(), ms...); err != nil {
		t.Error(err)
	}
}

// TestReadOnRemade: a stream that somebody makes anew by hand is another log, also to who
// reads on.
func TestReadOnRemade(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast})
	r := readingOn(t, e)
	l, err := e.log(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	s, err := e.js.Stream(t.Context(), l.stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	if err := e.js.DeleteStream(t.Context(), l.stream); err != nil {
		t.Fatal(err)
	}
	cfg.FirstSeq = uint64(r.at) // so that there is something where the reader goes on
	if _, err := e.js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	was, without := r.filter.Epoch, r.without
	add(t, e, []byte("new"))
	for r.got["new"] == 0 {
		r.read()
	}
	if r.filter.Epoch == was || r.without > without {
		t.Errorf("the reader goes on in %q without bounds, want another log", r.filter.Epoch)
	}
}

// TestReadOnWaits: who waits for messages at a known place gets those that come, however big.
func TestReadOnWaits(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast})
	r := readingOn(t, e)
	for i, size := range []int{10, followBytes / 2, followBytes + 1, 10, 700 << 10, 10} {
		value := bytes.Repeat([]byte{byte('a' + i)}, size)
		appended := make(chan struct{})
		go func() { // at times it is there before the read, at times after
			defer close(appended)
			add(t, e, value)
		}()
		for r.got[string(value)] == 0 {
			r.read()
		}
		<-appended
	}
}

// TestReadOnLeft: a read that is left while it waits takes nothing from the next one.
func TestReadOnLeft(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast})
	r := readingOn(t, e)
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		b, err := e.Read(ctx, orders, r.at, r.filter, atOnce)
		cancel()
		if err != nil || len(b.Messages) > 0 {
			t.Fatalf("read of nothing: %d messages, %v", len(b.Messages), err)
		}
		value := fmt.Appendf(nil, "after %d", i)
		add(t, e, value)
		for r.got[string(value)] == 0 {
			r.read()
		}
	}
}

// TestReadOnFetchWait: who waits at a known place does so no longer than is configured.
func TestReadOnFetchWait(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast, FetchWait: time.Millisecond})
	r := readingOn(t, e)
	least := time.Hour // of several, for a machine may be busy
	for range 5 {
		for had := r.without; r.without == had; {
			add(t, e, []byte("one more"))
			r.read()
		}
		began := time.Now()
		r.read()
		least = min(least, time.Since(began))
	}
	if least >= lookAgain {
		t.Errorf("a read of nothing takes %v", least)
	}
}

// TestReadOnMadeBeforeTheLook: only a place that was made before the engine looked at the log is
// known to be in it.
func TestReadOnMadeBeforeTheLook(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast})
	r := readingOn(t, e)
	l, err := e.log(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	what := l.filter(r.filter)
	for _, c := range []struct {
		looked time.Time
		known  bool
	}{{time.Now().Add(-time.Hour), false}, {time.Now(), true}} {
		add(t, e, []byte("one more"))
		_, last := e.followOn(t.Context(), l, r.at, r.filter, atOnce, sight{"seen", c.looked})
		if last != r.at {
			t.Fatalf("the place gives what is up to %d, want %d", last, r.at)
		}
		r.at = last + 1
		f := e.follows.on(what, r.at, "seen", c.looked)
		if (f != nil) != c.known {
			t.Errorf("looked at %v: known %t, want %t", c.looked, f != nil, c.known)
		}
		if f != nil {
			e.follows.give(what, f, nil, time.Now())
		}
	}
}

// TestReadOnKnowsItsLog: what is known of a place is of one offset and one log, and not believed
// for long.
func TestReadOnKnowsItsLog(t *testing.T) {
	const what = "all"
	now := time.Now()
	s := followSet{of: map[string]*follows{what: {idle: []*follow{{next: 10, sure: sight{"a", now}}, {next: 11}}}}}
	for _, c := range []struct {
		name  string
		from  int64
		epoch string
		after time.Duration
		want  bool
	}{
		{"elsewhere", 9, "a", 0, false},
		{"another log", 10, "b", 0, false},
		{"log not known", 11, "a", 0, false},
		{"long ago", 10, "a", followSure, false},
		{"known", 10, "a", followSure - 1, true},
		{"read by somebody", 10, "a", 0, false},
	} {
		if f := s.on(what, c.from, c.epoch, now.Add(c.after)); (f != nil) != c.want {
			t.Errorf("%s: a place: %t", c.name, f != nil)
		}
	}
}
