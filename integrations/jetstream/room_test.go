package jetstream

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
)

// TestRoomOfEmbedded: an embedded server tells everybody who opens it the room that it is in,
// also when it is another one than before, and passes the suite there.
func TestRoomOfEmbedded(t *testing.T) {
	dir := t.TempDir()
	for _, room := range []string{"east", "", "west-2.b"} {
		e, err := Open(t.Context(), Config{Dir: dir, Listen: "127.0.0.1:0", Room: room, Durability: Fast})
		if err != nil {
			t.Fatal(err)
		}
		ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 2})
		other, err := Open(t.Context(), Config{URL: e.URL()})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []*Engine{e, other} {
			if got, err := consume.FindRoom(t.Context(), e, consume.Partition{Topic: "orders", Index: 1}); err != nil || got != room {
				t.Errorf("got room %q, %v; want %q", got, err, room)
			}
		}
		_ = other.Close()
		_ = e.Close()
	}
	t.Run("Suite", func(t *testing.T) {
		e := open(t, Config{Dir: t.TempDir(), Room: "east"})
		for check, err := range consumetest.CheckEngine(t.Context(), func() (consumetest.Engine, error) { return underTest(e), nil }, "Rooms") {
			t.Errorf("%s: %v", check, err)
		}
	})
}

// TestRoomTag: a tag of the placement goes before the cluster's name, whatever is beside it.
func TestRoomTag(t *testing.T) {
	for _, tt := range []struct{ info, want string }{
		{`{}`, ""},
		{`{"cluster":{"name":"C1","leader":"n1"}}`, "C1"},
		{`{"cluster":{"name":"C1"},"config":{"placement":{"cluster":"C1"}}}`, "C1"},
		{`{"cluster":{"name":"C1"},"config":{"placement":{"tags":["ssd","room:east","room:west"]}}}`, "east"},
		{`{"cluster":{"name":"C1"},"config":{"placement":{"tags":["Room:East"]}}}`, "east"},
		{`{"cluster":{"name":"C1"},"config":{"placement":{"tags":["rooms:east","room"]}}}`, "C1"},
	} {
		var info streamInfo
		if err := json.Unmarshal([]byte(tt.info), &info); err != nil {
			t.Fatal(err)
		}
		if got := info.room(); got != tt.want {
			t.Errorf("%s is in room %q, want %q", tt.info, got, tt.want)
		}
	}
}

// TestRoomRefused: what a server cannot be told.
func TestRoomRefused(t *testing.T) {
	for _, c := range []Config{
		{Dir: "a", Room: "room 1"}, {Dir: "a", Room: "_"}, {Dir: "a", Room: "a\n"}, {URL: "nats://b", Room: "east"},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("room %q and rooms %q are taken by %+v", c.Room, c.Rooms, c)
		}
	}
	shared := Config{URL: "nats://b", Durability: Bounded, Prefix: DefaultPrefix, Rooms: []string{"east", "west"}}
	if got, err := (Config{URL: shared.address(shared.URL)}).full(); err != nil || !slices.Equal(got.Rooms, shared.Rooms) {
		t.Errorf("from the URL: rooms %q, %v; want %q", got.Rooms, err, shared.Rooms)
	}
}

// dataCenter starts a server that is a cluster of its own, named like a room, and joins that
// of another one.
func dataCenter(t *testing.T, room string, other *server.Server) *server.Server {
	t.Helper()
	gateway := server.GatewayOpts{Name: room, Host: "127.0.0.1", Port: server.RANDOM_PORT}
	if other != nil {
		at := &url.URL{Scheme: "nats", Host: other.GatewayAddr().String()}
		gateway.Gateways = []*server.RemoteGatewayOpts{{Name: other.ClusterName(), URLs: []*url.URL{at}}}
	}
	s, err := server.NewServer(&server.Options{
		ServerName: "nats-" + room, Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true,
		JetStream: true, StoreDir: t.TempDir(), Gateway: gateway,
		Cluster: server.ClusterOpts{Name: room, Host: "127.0.0.1", Port: server.RANDOM_PORT},
		// Without a route there is no JetStream in a cluster; nobody is there.
		Routes: []*url.URL{{Scheme: "nats", Host: "127.0.0.1:1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	go func() {
		defer close(started)
		s.Start()
	}()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
		<-started
	})
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	return s
}

// TestRoomsOfSupercluster: two data centers, each a cluster of NATS, with one partition of a
// topic in each. Everybody is told the same; a consumer in each room has the partition there;
// when one leaves the other has both; no message is lost. A topic is spread over both by whoever
// makes it.
func TestRoomsOfSupercluster(t *testing.T) {
	checkLeaks(t)
	east := dataCenter(t, "east", nil)
	west := dataCenter(t, "west", east)
	engines := map[string]*Engine{}
	for room, s := range map[string]*server.Server{"east": east, "west": west} {
		cfg := Config{URL: s.ClientURL(), RequestTimeout: 2 * time.Second}
		eventually(t, "the clusters have a leader", func() bool {
			e, err := Open(t.Context(), cfg)
			engines[room] = e
			return err == nil
		})
		defer func() { _ = engines[room].Close() }()
	}
	spread := open(t, Config{URL: east.ClientURL(), Rooms: []string{"east", "west"}})
	eventually(t, "the topic is made", func() bool {
		return spread.Ensure(t.Context(), consume.TopicSpec{Name: "orders", Partitions: 2}) == nil
	})
	nowhere := open(t, Config{URL: east.ClientURL(), Rooms: []string{"nowhere", "east"}})
	if err := nowhere.Ensure(t.Context(), consume.TopicSpec{Name: "lost", Partitions: 3}); err == nil || !strings.Contains(err.Error(), "room nowhere") {
		t.Errorf("a topic in a room that there is none of: %v", err)
	}
	names := nowhere.js.StreamNames(t.Context())
	for name := range names.Name() {
		if strings.Contains(name, "lost") {
			t.Errorf("stream %s is left of a topic that was not made", name)
		}
	}
	if err := names.Err(); err != nil {
		t.Error(err)
	}
	for room, e := range engines {
		for i, want := range []string{"east", "west"} {
			p := consume.Partition{Topic: "orders", Index: int32(i)}
			if got, err := e.Room(t.Context(), p); err != nil || got != want {
				t.Errorf("asked in %s: partition %d is in room %q, %v; want %s", room, i, got, err, want)
			}
		}
	}

	g := &roomGroup{t: t, registry: consume.NewMemoryRegistry(consume.MemoryRegistryConfig{}), in: map[string]string{}, given: map[string]string{}}
	stopEast := g.start("east", engines["east"])
	eventually(t, "the first has all", func() bool { return g.held("east", "east") })
	stopWest := g.start("west", engines["west"])
	eventually(t, "each has its own", func() bool { return g.held("east", "west") })
	g.send(engines["east"], "a", 20)
	eventually(t, "all are handed out, each in its room", func() bool { return g.all("a", 20, "east", "west") })
	stopEast()
	eventually(t, "who is left has all", func() bool { return g.held("west", "west") })
	g.send(engines["west"], "b", 20)
	eventually(t, "nothing is lost", func() bool { return g.all("b", 20, "west", "west") })
	stopWest()
}

// roomGroup is a group with consumers in rooms.
type roomGroup struct {
	t        *testing.T
	registry *consume.MemoryRegistry
	in       map[string]string // room by session

	mu    sync.Mutex
	given map[string]string // room by partition and message
}

func (g *roomGroup) start(room string, e *Engine) (stop func()) {
	g.t.Helper()
	access := g.registry.Connect()
	id, _ := access.Session()
	g.in[id] = room
	r, err := consume.NewRunner(consume.Options{
		Config: consume.Config{Group: "billing", Topics: []consume.Topic{{Name: "orders", Partitions: 64}}},
		Source: e, Topics: e, Registry: access,
		Members: []consume.Member{{ID: room, Room: room, Topics: []string{"orders"}}},
		Handle: func(_ context.Context, d *consume.Delivery) error {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.given[d.Partition.String()+" "+string(d.Value)] = room
			return nil
		},
	})
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(g.t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			g.t.Error(err)
		}
		access.Close()
	}
}

// held reports whether main of each partition is held in these rooms.
func (g *roomGroup) held(want ...string) bool {
	got := make([]string, len(want))
	for _, r := range g.registry.Records("billing") {
		got[r.Partition.Index] = g.in[r.Record.Main.Session]
	}
	return slices.Equal(got, want)
}

func (g *roomGroup) send(e *Engine, text string, each int) {
	g.t.Helper()
	for i := range int32(2) {
		for n := range each {
			m := &consume.Message{Partition: consume.Partition{Topic: "orders", Index: i}, Value: []byte(text + string(rune('0'+n)))}
			if err := e.Append(g.t.Context(), m); err != nil {
				g.t.Fatal(err)
			}
		}
	}
}

// all reports whether these messages of each partition were handed out in these rooms.
func (g *roomGroup) all(text string, each int, rooms ...string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, room := range rooms {
		for n := range each {
			p := consume.Partition{Topic: "orders", Index: int32(i)}
			if g.given[p.String()+" "+text+string(rune('0'+n))] != room {
				return false
			}
		}
	}
	return true
}
