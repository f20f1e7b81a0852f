package jetstream

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestDelayedOnce: a delayed message that has come is known by its ID also after the process
// was killed: who appends it again, because it did not hear that it was taken, has it once.
func TestDelayedOnce(t *testing.T) {
	for _, d := range []Durability{Bounded, Sync} {
		t.Run(string(d), func(t *testing.T) {
			dir := t.TempDir()
			p := startPeer(t, dir, d)
			e := open(t, Config{URL: p.url, Durability: d})
			ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
			say := func(id string, delay time.Duration) {
				t.Helper()
				if err := e.Append(t.Context(), &consume.Message{Partition: orders, Value: []byte(id), Delay: delay, ID: id}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			at := int64(0)
			comes := func(id string) {
				t.Helper()
				eventually(t, id+" comes", func() bool {
					b, err := e.Read(t.Context(), orders, at, consume.Filter{All: true}, 10)
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range b.Messages {
						got = append(got, string(m.Value))
					}
					at = b.Next
					return slices.Contains(got, id)
				})
			}
			say("é 1", 10*time.Millisecond)
			comes("é 1")
			p.kill()
			_ = e.Close()
			p = startPeer(t, dir, d)
			t.Cleanup(p.kill)
			e = open(t, Config{URL: p.url, Durability: d})
			say("é 1", 10*time.Millisecond)
			say("2", time.Second) // long after it would have come again
			comes("2")
			if len(got) != 2 {
				t.Errorf("got %q, want each once", got)
			}
		})
	}
}

// TestDelayedUnheard: a delayed message that nobody hears of leaves no mark of its ID: the next
// try brings it.
func TestDelayedUnheard(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	l, err := e.log(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	say := func(ctx context.Context) error {
		return e.Append(ctx, &consume.Message{Partition: orders, Value: []byte("x"), ID: "1", Delay: time.Millisecond})
	}
	listen(t, e, l, l.base+".i.*") // the marks alone
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if say(short) == nil {
		t.Fatal("an append is acknowledged that nobody heard")
	}
	listen(t, e, l, l.base+".>")
	if err := say(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message comes", func() bool {
		b, err := e.Read(t.Context(), orders, 0, consume.Filter{All: true}, 10)
		return err == nil && len(b.Messages) == 1
	})
}

// TestDelayedTogether: delayed messages go together, whoever appends them, and each ID once, be it
// there already, or twice in one append.
func TestDelayedTogether(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	say := func(ids ...string) error {
		var ms []*consume.Message
		for _, id := range ids {
			ms = append(ms, &consume.Message{Partition: orders, ID: id, Value: []byte(id), Delay: time.Millisecond})
		}
		return e.Append(t.Context(), ms...)
	}
	if err := say("a", "b"); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error)
	appends := [][]string{{"a", "c", "c"}, {"d"}, {"b", "c", "e"}, {"a"}, {"e", "d"}}
	for _, ids := range appends {
		go func() { errs <- say(ids...) }()
	}
	for range appends {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := logUntil(t, e, "z"); fmt.Sprint(got) != "[a b c d e z]" {
		t.Errorf("got %v, want each once", got)
	}
}

// logUntil appends a last message, which comes long after all that waits, and gives what is in the
// log then, in the order of the alphabet.
func logUntil(t *testing.T, e *Engine, last string) (got []string) {
	t.Helper()
	if err := e.Append(t.Context(), &consume.Message{Partition: orders, ID: last, Value: []byte(last), Delay: time.Second}); err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	eventually(t, last+" comes", func() bool {
		b, err := e.Read(t.Context(), orders, at, consume.Filter{All: true}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range b.Messages {
			got = append(got, string(m.Value))
		}
		at = b.Next
		return slices.Contains(got, last)
	})
	slices.Sort(got)
	return got
}

// TestDelayedCutOff: a process ends at any byte that it sends of a delayed message, the message
// comes or does not, the server is killed, and somebody else appends it again: it is there once.
func TestDelayedCutOff(t *testing.T) {
	dir := t.TempDir()
	p := startPeer(t, dir, Bounded)
	e := open(t, Config{URL: p.url})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	say := func(e *Engine, ids ...string) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var ms []*consume.Message
		for _, id := range ids {
			ms = append(ms, &consume.Message{Partition: orders, ID: id, Value: []byte(id), Delay: time.Millisecond})
		}
		return e.Append(ctx, ms...)
	}
	var ids []string
	heard := 0
	for bytes := 0; heard == 0 && len(ids) < 100; bytes += 64 {
		id := fmt.Sprintf("%03d", len(ids))
		ids = append(ids, id)
		cut := newCutter(t, strings.TrimPrefix(p.url, "nats://"))
		f, err := Open(t.Context(), Config{URL: "nats://" + cut.listener.Addr().String(), RequestTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Bounds(t.Context(), orders); err != nil { // it knows the topic
			t.Fatal(err)
		}
		cut.after(bytes)
		if say(f, id) == nil {
			heard++
		}
		_ = f.Close()
	}
	if heard == 0 || len(ids) < 5 {
		t.Fatalf("%d of %d were heard", heard, len(ids))
	}
	first := logUntil(t, e, "y")
	if len(first) < 2 {
		t.Errorf("none has come but %v", first)
	}
	p.kill()
	_ = e.Close()
	p = startPeer(t, dir, Bounded)
	t.Cleanup(p.kill)
	e = open(t, Config{URL: p.url})
	if err := say(e, ids...); err != nil {
		t.Fatal(err)
	}
	want := append(slices.Clone(ids), "y", "z")
	if got := logUntil(t, e, "z"); !slices.Equal(got, want) {
		t.Errorf("got  %v,\nwant %v", got, want)
	}
}

// cutter passes a client's bytes on to a server, and cuts the connection after some.
type cutter struct {
	listener net.Listener
	mu       sync.Mutex
	left     int // bytes that are passed on; below 0: all
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{listener: l, left: -1}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			conn, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			wg.Go(func() {
				_, _ = io.Copy(from, conn)
				_ = from.Close()
			})
			wg.Go(func() {
				c.pass(conn, from)
				_ = conn.Close()
				_ = from.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return c
}

// after lets so many bytes more pass, and then nothing.
func (c *cutter) after(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = n
}

func (c *cutter) pass(to io.Writer, from io.Reader) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		c.mu.Lock()
		cut := c.left >= 0 && n >= c.left
		if cut {
			n, c.left = c.left, 0
		} else if c.left > 0 {
			c.left -= n
		}
		c.mu.Unlock()
		if _, werr := to.Write(b[:n]); werr != nil || err != nil || cut {
			return
		}
	}
}
