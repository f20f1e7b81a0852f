package jetstream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
)

func TestEmbedded(t *testing.T) {
	for _, d := range []Durability{Fast, Bounded, Sync} {
		t.Run(string(d), func(t *testing.T) {
			consumetest.RunEngine(t, func(t *testing.T) consumetest.Engine {
				return crashing(t, Config{Dir: t.TempDir(), Durability: d})
			})
		})
	}
}

// TestExternal: over TCP, and the server is killed with its process.
func TestExternal(t *testing.T) {
	for _, d := range []Durability{Bounded, Sync} {
		t.Run(string(d), func(t *testing.T) {
			consumetest.RunEngine(t, func(t *testing.T) consumetest.Engine {
				return killed(t, t.TempDir(), d)
			})
		})
	}
}

var orders = consume.Partition{Topic: "orders"}

func ensure(t testing.TB, e *Engine, spec consume.TopicSpec) {
	t.Helper()
	if err := e.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
}

// TestRunner: a lane comes up, gets its messages, goes, and what it has not read goes to the
// baseline; each message is handed out once.
func TestRunner(t *testing.T) {
	checkLeaks(t)
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 4})
	registry := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{})
	var mu sync.Mutex
	given := map[string]int{}
	by := map[string]int{}
	start := func(name string, in lane.Name, handle func() error) (stop func()) {
		access := registry.Connect()
		r, err := consume.NewRunner(consume.Options{
			Config: consume.Config{Group: "billing", Topics: []consume.Topic{{Name: "orders", Partitions: 64}}},
			Source: e, Topics: e, Registry: access,
			Members: []consume.Member{{ID: name, Lane: in, Topics: []string{"orders"}}},
			Handle: func(_ context.Context, d *consume.Delivery) error {
				if err := handle(); err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				given[string(d.Value)]++
				by[name]++
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			access.Close()
		}
	}
	sent := 0
	send := func(n int, color lane.Name) {
		t.Helper()
		var ms []*consume.Message
		for range n {
			text := fmt.Append(nil, sent)
			ms = append(ms, &consume.Message{Partition: consume.Partition{Topic: "orders", Index: -1}, Key: text, Value: text, Color: color})
			sent++
		}
		if err := e.Append(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
	}
	count := func(name string) int {
		mu.Lock()
		defer mu.Unlock()
		return by[name]
	}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(given) == sent
	}
	ok := func() error { return nil }

	stop1 := start("e1", "", ok)
	send(200, "")
	send(100, "green") // nobody knows the lane yet
	eventually(t, "the baseline has everything", all)
	if err := registry.CreateLane("green", ""); err != nil {
		t.Fatal(err)
	}
	full := make(chan struct{}) // green works on a few, then on nothing
	n := 0
	stop2 := start("e2", "green", func() error {
		mu.Lock()
		n++
		first := n <= 50
		mu.Unlock()
		if first {
			return nil
		}
		<-full
		return consume.ErrReturn
	})
	had := count("e1")
	eventually(t, "the lane gets its messages", func() bool {
		send(20, "green")
		return count("e2") == 50
	})
	send(1000, "green")
	send(200, "")
	close(full)
	stop2()
	eventually(t, "nothing is lost", all)
	stop1()
	for text, n := range given {
		if n != 1 {
			t.Errorf("message %s was settled %d times", text, n)
		}
	}
	if count("e1") < had+1200-50 {
		t.Errorf("by whom: %v: the baseline got no messages of the lane that went", by)
	}
}

// TestReplaced: whoever knows a topic of old finds the one that was created since.
func TestReplaced(t *testing.T) {
	p := startPeer(t, t.TempDir(), Bounded)
	t.Cleanup(p.kill)
	a, b := open(t, Config{URL: p.url}), open(t, Config{URL: p.url})
	ensure(t, a, consume.TopicSpec{Name: "orders", Partitions: 1})
	ctx := t.Context()
	for range 3 {
		if err := b.Append(ctx, &consume.Message{Partition: orders, Value: []byte("old")}); err != nil {
			t.Fatal(err)
		}
	}
	was, err := b.Bounds(ctx, orders)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Delete(ctx, "orders"); err != nil {
		t.Fatal(err)
	}
	if err := b.Append(ctx, &consume.Message{Partition: orders}); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("append to a topic that somebody else deleted: %v", err)
	}
	ensure(t, a, consume.TopicSpec{Name: "orders", Partitions: 1})
	if err := b.Append(ctx, &consume.Message{Partition: orders, Value: []byte("new")}); err != nil {
		t.Fatal(err)
	}
	got, err := b.Read(ctx, orders, 0, consume.Filter{All: true}, 10)
	if err != nil || len(got.Messages) != 1 || string(got.Messages[0].Value) != "new" || got.Bounds.Epoch == was.Epoch {
		t.Errorf("read of the new topic: %+v, %v; the old one had %+v", got, err, was)
	}
}

// TestForeign: what another program put on a partition's subject is read, and cannot pass for
// something that the server says.
func TestForeign(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	ctx := t.Context()
	l, err := e.log(ctx, orders)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []nats.Header{
		{},
		{"Status": {"204"}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {"900"}},
		{"Nats-Sequence": {"77"}, "Nats-Subject": {l.base + ".m.red"}, "Nats-Time-Stamp": {"never"}},
		{HeaderMeta: {"AQ"}},
		{HeaderMeta: {"!"}, "X-Own": {"1", "2"}},
		{"Status": {"503"}},
	} {
		if _, err := e.js.PublishMsg(ctx, &nats.Msg{Subject: l.subject("green"), Header: h, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.js.PublishMsg(ctx, &nats.Msg{Subject: l.base + ".m.Not_A_Lane", Data: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	got, err := e.Read(ctx, orders, 0, consume.Filter{All: true}, 10)
	if err != nil || len(got.Messages) != 7 || got.Next != 8 {
		t.Fatalf("%d messages, next %d: %v", len(got.Messages), got.Next, err)
	}
	for i, m := range got.Messages {
		if m.Offset != int64(i+1) || string(m.Value) != "x" || m.Color != "green" && i < 6 {
			t.Errorf("message %d: %+v", i, m)
		}
	}
	if h := got.Messages[4].Headers; len(h) != 2 || string(h[1].Value) != "2" {
		t.Errorf("headers of another program: %v", h)
	}
}

// TestDelaysLast: a delayed message survives that the process is killed before it is due.
func TestDelaysLast(t *testing.T) {
	dir := t.TempDir()
	p := startPeer(t, dir, Bounded)
	e := open(t, Config{URL: p.url})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	due := time.Now().Add(2 * time.Second)
	if err := e.Append(t.Context(), &consume.Message{Partition: orders, Value: []byte("late"), Delay: 2 * time.Second, ID: "é 1"}); err != nil {
		t.Fatal(err)
	}
	p.kill()
	_ = e.Close()
	p = startPeer(t, dir, Bounded)
	t.Cleanup(p.kill)
	e = open(t, Config{URL: p.url})
	eventually(t, "the message comes", func() bool {
		b, err := e.Read(t.Context(), orders, 0, consume.Filter{All: true}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Messages) > 0 && time.Now().Before(due) {
			t.Fatal("the message came before it was due")
		}
		return len(b.Messages) == 1 && string(b.Messages[0].Value) == "late"
	})
}

// TestRetention: messages go when they are old, their offsets are not used again, and a delay
// that outlives them is refused.
func TestRetention(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1, Retention: time.Second})
	ctx := t.Context()
	if err := e.Append(ctx, &consume.Message{Partition: orders}, &consume.Message{Partition: orders}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the messages are gone", func() bool {
		b, err := e.Bounds(ctx, orders)
		if err != nil {
			t.Fatal(err)
		}
		return b.First == 3 && b.End == 3
	})
	if err := e.Append(ctx, &consume.Message{Partition: orders, Delay: time.Minute}); err == nil {
		t.Error("a delay of a minute is taken where messages are kept for a second")
	}
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	open(t, Config{Dir: dir})
	if e, err := Open(t.Context(), Config{Dir: dir}); err == nil {
		_ = e.Close()
		t.Error("two engines are open over one folder")
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []Config{
		{},
		{Dir: "a", URL: "nats://b"},
		{Dir: "a", Durability: "much"},
		{Dir: "a", Replicas: 3},
		{URL: "nats://b", Replicas: 2},
		{Dir: "a", Prefix: "a.b"},
		{Dir: "a", FetchWait: -1},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%+v is taken", c)
		}
	}
	good := Config{URL: "nats://b", Replicas: 3, Prefix: "test-1", Durability: Sync}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// TestLeaks: nothing of an engine runs once it is closed, nor of one that did not open.
func TestLeaks(t *testing.T) {
	checkLeaks(t)
	ctx := t.Context()
	e, err := Open(ctx, Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 2})
	if _, err := e.Read(ctx, orders, 0, consume.Filter{All: true}, 1); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, Config{URL: "nats://127.0.0.1:1", RequestTimeout: time.Second}); err == nil {
		t.Error("an engine opens without a server")
	}
}
