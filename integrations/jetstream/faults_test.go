package jetstream

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
)

// TestTogether: what goes into one append is as if it had gone alone: IDs that are there
// already, delays, several partitions.
func TestTogether(t *testing.T) {
	for _, d := range []Durability{Fast, Sync} {
		t.Run(string(d), func(t *testing.T) {
			e := open(t, Config{Dir: t.TempDir(), Durability: d})
			ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 2})
			other := consume.Partition{Topic: "orders", Index: 1}
			say := func(p consume.Partition, id string, delay time.Duration) *consume.Message {
				return &consume.Message{Partition: p, ID: id, Value: []byte(id), Delay: delay}
			}
			for range 2 {
				err := e.Append(t.Context(),
					say(orders, "a", 0), say(orders, "b", 0), say(other, "c", 0), say(orders, "a", 0), say(orders, "d", time.Millisecond), say(other, "e", 0))
				if err != nil {
					t.Fatal(err)
				}
			}
			for p, want := range map[consume.Partition][]string{orders: {"a", "b", "d"}, other: {"c", "e"}} {
				var got []string
				at := int64(0)
				eventually(t, fmt.Sprintf("%s has %v", p, want), func() bool {
					b, err := e.Read(t.Context(), p, at, consume.Filter{All: true}, 10)
					if err != nil {
						t.Fatal(err)
					}
					for _, m := range b.Messages {
						got = append(got, string(m.Value))
					}
					at = b.Next
					return len(got) >= len(want)
				})
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s has %v, want %v", p, got, want)
				}
			}
		})
	}
}

// TestBig: messages near the limit get through, several batches' worth of them; one above it
// is refused and does no harm.
func TestBig(t *testing.T) {
	for _, d := range []Durability{Fast, Sync} {
		t.Run(string(d), func(t *testing.T) {
			e := open(t, Config{Dir: t.TempDir(), Durability: d})
			ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
			big := &consume.Message{Partition: orders, Value: bytes.Repeat([]byte("v"), 5<<20), Key: bytes.Repeat([]byte("k"), 1<<20)}
			if err := e.Append(t.Context(), big, big, big); err != nil {
				t.Fatal(err)
			}
			if err := e.Append(t.Context(), &consume.Message{Partition: orders, Value: make([]byte, MaxMessageBytes+1)}); err == nil {
				t.Error("a message above the limit is taken")
			}
			n := 0
			for at := int64(1); at < 4; n++ {
				b, err := e.Read(t.Context(), orders, at, consume.Filter{All: true}, 10)
				if err != nil || b.Next == at {
					t.Fatalf("read from %d: next %d: %v", at, b.Next, err)
				}
				for _, m := range b.Messages {
					if m.Bytes() != big.Bytes() {
						t.Errorf("offset %d has %d bytes, want %d", m.Offset, m.Bytes(), big.Bytes())
					}
				}
				at = b.Next
			}
			if n < 2 {
				t.Errorf("15 MiB came in %d batch: reads have no limit", n)
			}
		})
	}
}

// TestReconnect: a server that is killed and comes again is used again, and has everything
// that was acknowledged.
func TestReconnect(t *testing.T) {
	dir := t.TempDir()
	p := startPeer(t, dir, Bounded)
	at, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	e := open(t, Config{URL: p.url, RequestTimeout: time.Second})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	acked := map[string]bool{}
	say := func() bool {
		text := fmt.Sprint(len(acked))
		err := e.Append(t.Context(), &consume.Message{Partition: orders, ID: text, Value: []byte(text)})
		if err == nil {
			acked[text] = true
		}
		return err == nil
	}
	for range 50 {
		if !say() {
			t.Fatal("an append fails")
		}
	}
	p.kill()
	if say() {
		t.Fatal("an append is acknowledged while there is no server")
	}
	p = startPeerAt(t, dir, Bounded, at.Port())
	t.Cleanup(p.kill)
	eventually(t, "appends work again", say)
	b, err := e.Read(t.Context(), orders, 0, consume.Filter{All: true}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range b.Messages {
		delete(acked, string(m.Value))
	}
	if len(acked) > 0 || len(b.Messages) != 51 {
		t.Errorf("%d messages are there, 51 were acknowledged; missing: %v", len(b.Messages), acked)
	}
}

// TestLaggingReplica: a replica that is behind hides nothing: where it has less than the
// leader, a read does not pass what the leader has.
func TestLaggingReplica(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	ctx := t.Context()
	for range 10 {
		if err := e.Append(ctx, &consume.Message{Partition: orders}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := e.log(ctx, orders)
	if err != nil {
		t.Fatal(err)
	}
	// The server leaves direct gets to us, and we are a replica that has only what is below
	// some offset.
	s, err := e.js.Stream(ctx, l.stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.AllowDirect = false
	if _, err := e.js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	e.cfg.Replicas = 3
	behind := int64(1)
	replica, err := e.nc.Subscribe("$JS.API.DIRECT.GET."+l.stream, func(m *nats.Msg) {
		var request struct {
			Seq   int64 `json:"seq"`
			Batch int   `json:"batch"`
		}
		if err := json.Unmarshal(m.Data, &request); err != nil {
			t.Error(err)
		}
		last := int64(0)
		say := func(h nats.Header) {
			if err := e.nc.PublishMsg(&nats.Msg{Subject: m.Reply, Header: h}); err != nil {
				t.Error(err)
			}
		}
		for o := request.Seq; o < behind && request.Batch > 0; o++ {
			say(nats.Header{
				"Nats-Sequence": {fmt.Sprint(o)}, "Nats-Last-Sequence": {fmt.Sprint(last)}, "Nats-Num-Pending": {"0"},
				"Nats-Subject": {l.subject("")}, "Nats-Time-Stamp": {time.Now().UTC().Format(time.RFC3339Nano)},
			})
			last = o
			request.Batch--
		}
		if last == 0 {
			say(nats.Header{"Status": {"404"}})
			return
		}
		say(nats.Header{"Status": {"204"}, "Nats-Num-Pending": {"0"}, "Nats-Last-Sequence": {fmt.Sprint(last)}})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = replica.Unsubscribe() }()
	for _, c := range []struct{ behind, from, next int64 }{
		{1, 1, 1}, // it has nothing
		{1, 5, 5},
		{4, 1, 4}, // some
		{11, 1, 11},
	} {
		behind = c.behind
		b, _, _, err := e.look(ctx, orders, consume.Filter{All: true}, 100, nil, &looks{from: c.from})
		if err != nil || b.Next != c.next {
			t.Errorf("a replica without what is at %d and above: read from %d has next %d, want %d: %v", c.behind, c.from, b.Next, c.next, err)
		}
	}
	behind = 1
	if b, _, _, err := e.look(ctx, orders, consume.Filter{Color: "red"}, 100, nil, &looks{from: 1}); err != nil || b.Next != 11 {
		t.Errorf("a color of which there is nothing: next %d, want 11: %v", b.Next, err)
	}
}

// TestUnheard: an append that nobody hears of, as it may be in a cluster soon after a stream
// was made, waits until it is heard.
func TestUnheard(t *testing.T) {
	for _, d := range []Durability{Fast, Sync} {
		t.Run(string(d), func(t *testing.T) {
			e := open(t, Config{Dir: t.TempDir(), Durability: d, RequestTimeout: 20 * time.Second})
			ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 1})
			ctx := t.Context()
			l, err := e.log(ctx, orders)
			if err != nil {
				t.Fatal(err)
			}
			listen(t, e, l, "elsewhere.>")
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if err := e.Append(short, &consume.Message{Partition: orders}); err == nil {
				t.Fatal("an append is acknowledged that nobody heard")
			}
			done := make(chan error, 1)
			go func() {
				done <- e.Append(ctx, &consume.Message{Partition: orders, Value: []byte("0")}, &consume.Message{Partition: orders, Value: []byte("1")})
			}()
			listen(t, e, l, l.base+".>")
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			b, err := e.Read(ctx, orders, 0, consume.Filter{All: true}, 10)
			if err != nil {
				t.Fatal(err)
			}
			// What was given up may be there too.
			n := len(b.Messages)
			if n < 2 || string(b.Messages[n-2].Value) != "0" || string(b.Messages[n-1].Value) != "1" {
				t.Errorf("the log has %d messages", n)
			}
		})
	}
}

// listen has a partition's stream take what comes on other subjects.
func listen(t *testing.T, e *Engine, l log, subject string) {
	t.Helper()
	s, err := e.js.Stream(t.Context(), l.stream)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.Subjects = []string{subject}
	if _, err := e.js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// TestCluster: three servers, three replicas.
func TestCluster(t *testing.T) {
	urls := startCluster(t)
	n := 0
	consumetest.RunEngine(t, func(t *testing.T) consumetest.Engine {
		n++
		// All subtests share the cluster; a prefix of their own keeps their topics apart.
		return underTest(open(t, Config{URL: urls, Replicas: 3, Prefix: fmt.Sprint("t", n), RequestTimeout: 20 * time.Second}))
	})
}

// startCluster starts three servers. Their ports must be known before they start, so another
// process may take one first: then there is another try.
func startCluster(t *testing.T) (urls string) {
	t.Helper()
	for range 10 {
		if urls = tryCluster(t); urls != "" {
			return urls
		}
	}
	t.Fatal("no cluster starts")
	return ""
}

func tryCluster(t *testing.T) (urls string) {
	t.Helper()
	dir := t.TempDir()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: l.Addr().String()})
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var servers []*server.Server
	for i := range 3 {
		s, err := server.NewServer(&server.Options{
			ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, fmt.Sprint(i)), NoSigs: true,
			MaxPayload: MaxMessageBytes, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: ports[i]}, Routes: routes,
		})
		if err != nil {
			t.Fatal(err)
		}
		go s.Start()
		t.Cleanup(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(30 * time.Second) {
			return ""
		}
		urls += "," + s.ClientURL()
	}
	eventually(t, "the cluster has a leader that knows everybody", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == len(servers) {
				return true
			}
		}
		return false
	})
	eventually(t, "the cluster places three replicas", func() bool { // it may know of all, and not yet that they are there
		e, err := Open(t.Context(), Config{URL: urls[1:], Replicas: 3, Prefix: "first"})
		if err != nil {
			return false
		}
		return e.Close() == nil
	})
	return urls[1:]
}
