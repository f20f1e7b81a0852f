package jetstream

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// atOnce is how many messages a reading takes at once.
const atOnce = 100

// reading is a partition that is read on and on. With an epoch in its filter it says which log
// it reads, as a Runner does.
type reading struct {
	t       *testing.T
	e       *Engine
	filter  consume.Filter
	at      int64
	got     map[string]int
	without int // batches without bounds
}

// read takes the next messages.
func (r *reading) read() {
	r.t.Helper()
	b, err := r.e.Read(r.t.Context(), orders, r.at, r.filter, atOnce)
	if err != nil {
		r.t.Fatal(err)
	}
	if b.Next < r.at {
		r.t.Fatalf("read from %d: next is %d", r.at, b.Next)
	}
	switch {
	case b.Bounds != consume.Bounds{}:
		r.filter.Epoch = b.Bounds.Epoch
	case !r.filter.All || b.Next-r.at != int64(len(b.Messages)):
		r.t.Fatalf("read from %d to %d gives %d messages and no bounds", r.at, b.Next, len(b.Messages))
	default:
		r.without++
	}
	for _, m := range b.Messages {
		if m.Offset < r.at || m.Offset >= b.Next {
			r.t.Fatalf("read from %d gives offset %d, next is %d", r.at, m.Offset, b.Next)
		}
		r.at = m.Offset + 1
		r.got[string(m.Value)]++
	}
	r.at = b.Next
}

// complete reports whether all of n messages were got once.
func (r *reading) complete(n int) error {
	for i := range n {
		if got := r.got[fmt.Sprint(i)]; got != 1 {
			return fmt.Errorf("message %d was read %d times", i, got)
		}
	}
	return nil
}

// TestFollow: who reads on does so from a place that the server remembers, and misses nothing
// where that is lost, or somebody else reads from it, or others read on beside.
func TestFollow(t *testing.T) {
	const n = 2000
	steal := func(r *reading, l log, consumer string) {
		_, err := r.e.nc.Request("$JS.API.CONSUMER.MSG.NEXT."+l.stream+"."+consumer, []byte(`{"batch":1,"no_wait":true}`), 10*time.Second)
		if err != nil {
			r.t.Fatal(err)
		}
	}
	for name, trouble := range map[string]func(r *reading, l log, consumer string){
		"undisturbed": func(*reading, log, string) {},
		"place deleted": func(r *reading, l log, consumer string) {
			if err := r.e.js.DeleteConsumer(r.t.Context(), l.stream, consumer); err != nil {
				r.t.Fatal(err)
			}
		},
		"message lost on its way": steal,
		"another reader": func(r *reading, _ log, _ string) {
			other := &reading{t: r.t, e: r.e, filter: r.filter, at: r.at / 2, got: map[string]int{}}
			for range 3 {
				other.read()
			}
		},
		"messages deleted": func(r *reading, l log, _ string) {
			s, err := r.e.js.Stream(r.t.Context(), l.stream)
			if err != nil {
				r.t.Fatal(err)
			}
			if err := s.DeleteMsg(r.t.Context(), uint64(r.at)); err != nil {
				r.t.Fatal(err)
			}
			r.got[fmt.Sprint(r.at-1)]++ // it does not come any more
		},
		"a place forgotten here": func(r *reading, l log, _ string) {
			r.e.follows.mu.Lock()
			defer r.e.follows.mu.Unlock()
			r.e.follows.of[l.filter(r.filter)].used = time.Time{}
			for _, f := range r.e.follows.of[l.filter(r.filter)].idle {
				f.used = time.Time{}
			}
			r.e.follows.swept = time.Time{}
		},
	} {
		for _, filter := range []consume.Filter{{All: true}, {Color: "green"}} {
			t.Run(fmt.Sprintf("%s/%v", name, filter), func(t *testing.T) { readOn(t, n, filter, trouble) })
		}
	}
}

// readOn reads n messages, with trouble now and then.
func readOn(t *testing.T, n int64, filter consume.Filter, trouble func(*reading, log, string)) {
	t.Helper()
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast})
	fillOrders(t, e, n)
	l, err := e.log(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // a machine that is busy may not make a place in time
		troubled, without := false, 0
		r := &reading{t: t, e: e, filter: filter, at: 1, got: map[string]int{}}
		for i := 0; r.at <= n; i++ {
			r.read()
			if i%5 < 4 || r.at > n {
				continue
			}
			without = r.without
			if consumer := placeAt(e, l.filter(filter)); consumer != "" {
				troubled = true
				trouble(r, l, consumer)
			}
		}
		if err := r.complete(int(n)); err != nil {
			t.Fatal(err)
		}
		if troubled && (without > 0 || !filter.All) {
			return
		}
	}
	t.Error("who reads on never has a place at the server whose log is known")
}

// fillOrders makes a topic of so many messages.
func fillOrders(t *testing.T, e *Engine, n int64) {
	t.Helper()
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	var ms []*consume.Message
	for i := range n {
		ms = append(ms, &consume.Message{Partition: orders, Color: "green", Key: []byte("key"), Value: fmt.Append(nil, i)})
	}
	if err := e.Append(t.Context(), ms...); err != nil {
		t.Fatal(err)
	}
}

// placeAt is the consumer of a place that nobody uses just now; empty: there is none, and the
// next reader may try again to make one.
func placeAt(e *Engine, what string) string {
	e.follows.mu.Lock()
	defer e.follows.mu.Unlock()
	fs := e.follows.of[what]
	if fs == nil {
		return ""
	}
	fs.denied = time.Time{}
	if len(fs.idle) == 0 {
		return ""
	}
	return fs.idle[len(fs.idle)-1].consumer
}

// TestFollowTail: many readers who follow what is appended just now miss nothing: a place that
// does not know of it yet is not believed.
func TestFollowTail(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	const n, readers = 1000, maxFollows + 2
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			m := &consume.Message{Partition: orders, Value: fmt.Append(nil, i)}
			if i%10 == 0 {
				m.Color = "green"
			}
			if err := e.Append(t.Context(), m); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range readers {
		wg.Go(func() {
			r := &reading{t: t, e: e, filter: consume.Filter{All: true}, at: 1, got: map[string]int{}}
			for len(r.got) < n && t.Context().Err() == nil {
				b, err := e.Read(t.Context(), orders, r.at, r.filter, 100)
				if err != nil {
					t.Error(err)
					return
				}
				if b.Bounds != (consume.Bounds{}) {
					r.filter.Epoch = b.Bounds.Epoch
				}
				for _, m := range b.Messages {
					r.got[string(m.Value)]++
				}
				if r.at = b.Next; r.at > n && len(r.got) < n {
					break
				}
			}
			if err := r.complete(n); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// placed is a reader of everything who has a place at the server, with at least half of n
// messages before it.
func placed(t *testing.T, e *Engine, n int64) *reading {
	t.Helper()
	fillOrders(t, e, n)
	l, err := e.log(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	r := &reading{t: t, e: e, filter: consume.Filter{All: true}, at: 1, got: map[string]int{}}
	eventually(t, "who reads on has a place", func() bool {
		if r.at+atOnce > n/2 {
			r.at, r.got = 1, map[string]int{}
		}
		r.read()
		return placeAt(e, l.filter(r.filter)) != ""
	})
	return r
}

// TestFollowRestart: a place goes with its server; who reads on has the rest from the next one.
func TestFollowRestart(t *testing.T) {
	const n = 2000
	dir := t.TempDir()
	p := startPeer(t, dir, Bounded)
	at, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, Config{URL: p.url})
	r := placed(t, e, n)
	p.kill()
	p = startPeerAt(t, dir, Bounded, at.Port())
	t.Cleanup(p.kill)
	eventually(t, "the server is used again", func() bool { return e.Check(t.Context()) == nil })
	for r.at <= n {
		r.read()
	}
	if err := r.complete(n); err != nil {
		t.Error(err)
	}
}

// TestFollowReplaced: a place is of one topic: of the next one by its name it gives nothing.
func TestFollowReplaced(t *testing.T) {
	const n = 1000
	e := open(t, Config{Dir: t.TempDir(), Durability: Fast})
	r := placed(t, e, n)
	was, err := e.Bounds(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if b, err := e.Read(t.Context(), orders, r.at, r.filter, 100); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("read of a topic that is deleted: %d messages, %v", len(b.Messages), err)
	}
	fillOrders(t, e, n)
	if b, err := e.Read(t.Context(), orders, r.at, r.filter, 100); err != nil || b.Bounds.Epoch == was.Epoch {
		t.Errorf("read of the new one: %+v, %v; the old one had %+v", b.Bounds, err, was)
	}
	r.at, r.got = 1, map[string]int{} // as whoever sees another epoch
	for r.at <= n {
		r.read()
	}
	if err := r.complete(n); err != nil {
		t.Error(err)
	}
}

// TestFollowers: where more read than there may be places, those who have one keep it, and
// the others do without, rather than that each read makes another. One that nobody reads from
// goes to who asks next.
func TestFollowers(t *testing.T) {
	const what, readers = "all", maxFollows + 2
	s := followSet{of: map[string]*follows{}}
	now := time.Now()
	made := 0
	read := func(from int64) {
		f := s.take(what, from, now)
		if f == nil {
			s.ended(what, from+10, now)
			return
		}
		if f.consumer == "" {
			made++
			f.consumer = fmt.Sprint("place ", made)
		}
		f.next, f.given = from+10, f.given+10
		s.give(what, f, nil, now)
	}
	at := int64(1)
	for range 100 {
		for range readers {
			read(at)
		}
		now, at = now.Add(time.Millisecond), at+10
	}
	if made != maxFollows {
		t.Errorf("%d readers made %d places, want %d", readers, made, maxFollows)
	}
	now = now.Add(2 * followHeld)
	s.ended(what, 5, now)
	if read(5); made != maxFollows+1 {
		t.Error("a new reader gets no place, though nobody reads from the others")
	}
}

// TestFollowUseless: where a place cannot be made, or gives nothing, there is no other try at
// each read; whoever stops to read says nothing of that.
func TestFollowUseless(t *testing.T) {
	const what = "all"
	for _, c := range []struct {
		name  string
		err   error
		given uint64
		again bool
	}{
		{"refused", errors.New("no"), 0, false},
		{"lost at once", errFollow, 0, false},
		{"lost after it gave", errFollow, 5, true},
		{"the reader went", context.Canceled, 0, true},
	} {
		s := followSet{of: map[string]*follows{}}
		now := time.Now()
		s.ended(what, 10, now)
		f := s.take(what, 10, now)
		if f == nil || f.consumer != "" {
			t.Fatalf("who reads on gets %+v, want a place that is to be made", f)
		}
		f.given = c.given
		s.give(what, f, c.err, now)
		if again := s.take(what, 10, now.Add(followRetry/2)) != nil; again != c.again {
			t.Errorf("%s: another try: %t, want %t", c.name, again, c.again)
		}
		later := now.Add(followRetry)
		s.ended(what, 10, later) // they read on meanwhile, by direct gets
		if s.take(what, 10, later) == nil {
			t.Errorf("%s: no other try ever", c.name)
		}
	}
}

func TestPlaceOf(t *testing.T) {
	want := place{offset: 41, count: 7, stored: time.Unix(0, 1700000000000000123).UTC()}
	for _, reply := range []string{
		"$JS.ACK.stream.consumer.1.41.7.1700000000000000123.12",
		"$JS.ACK.hub.AHASH.stream.consumer.1.41.7.1700000000000000123.12",
		"$JS.ACK.hub.AHASH.stream.consumer.1.41.7.1700000000000000123.12.random",
	} {
		if got, ok := placeOf(reply); !ok || got != want {
			t.Errorf("%s: %+v, %t", reply, got, ok)
		}
	}
	for _, reply := range []string{
		"", "$JS.ACK", "$JS.ACK.stream.consumer.1.41.7", "$JS.ACK.stream.consumer.1.x.7.17.12", "$JS.ACK.stream.consumer.1.-4.7.17.12",
		"other.ACK.stream.consumer.1.41.7.17.12",
	} {
		if got, ok := placeOf(reply); ok {
			t.Errorf("%q is taken: %+v", reply, got)
		}
	}
}
