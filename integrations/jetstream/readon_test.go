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
		go func() {
			defer close(appended)
			<-time.After(time.Duration(i) * time.Millisecond) // at times before the read, at times after
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

// TestReadOnKnowsItsLog: a place that was made after the engine looked at a log may be in
// another one, and what was known of it is not believed for long.
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
