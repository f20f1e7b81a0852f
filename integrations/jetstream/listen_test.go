package jetstream

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestListen: what one process appends to its embedded server, another one reads by the
// server's port, and the other way round; with the engine, the port is gone.
func TestListen(t *testing.T) {
	checkLeaks(t)
	e, err := Open(t.Context(), Config{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	address, ok := strings.CutPrefix(e.URL(), "nats://127.0.0.1:")
	if !ok || address == "0" || address == "4222" {
		t.Fatalf("URL is %q, want one of a free loopback port", e.URL())
	}
	other := open(t, Config{URL: e.URL()})
	if other.URL() != e.URL() {
		t.Errorf("the other one's URL is %q, want %q", other.URL(), e.URL())
	}
	ensure(t, other, consume.TopicSpec{Name: "orders", Partitions: 1})
	for _, from := range []*Engine{e, other} {
		if err := from.Append(t.Context(), &consume.Message{Partition: orders, Value: []byte("x"), Color: "green"}); err != nil {
			t.Fatal(err)
		}
		if err := from.Check(t.Context()); err != nil {
			t.Errorf("check: %v", err)
		}
	}
	for _, at := range []*Engine{e, other} {
		b, err := at.Read(t.Context(), orders, 0, consume.Filter{Color: "green"}, 10)
		if err != nil || len(b.Messages) != 2 {
			t.Errorf("read %d messages, %v; want 2", len(b.Messages), err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("tcp", "127.0.0.1:"+address); err == nil {
		_ = conn.Close()
		t.Error("the port is open after the engine was closed")
	}
	if err := e.Check(t.Context()); !errors.Is(err, consume.ErrClosed) {
		t.Errorf("check of a closed engine: %v", err)
	}
}

func TestListenRefused(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		want string
	}{
		{Config{Dir: "x", Listen: "0.0.0.0:0"}, "not a loopback address"},
		{Config{Dir: "x", Listen: ":4222"}, "not a loopback address"},
		{Config{Dir: "x", Listen: "[::]:4222"}, "not a loopback address"},
		{Config{Dir: "x", Listen: "example.com:4222"}, "not a loopback address"},
		{Config{Dir: "x", Listen: "127.0.0.1"}, "want HOST:PORT"},
		{Config{Dir: "x", Listen: "127.0.0.1:nats"}, "is none"},
		{Config{URL: "nats://127.0.0.1:4222", Listen: "127.0.0.1:0"}, "only an embedded server listens"},
	} {
		if err := tt.cfg.Validate(); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("listen %q: got %v, want %q in it", tt.cfg.Listen, err, tt.want)
		}
	}
	for _, listen := range []string{"127.0.0.1:0", "localhost:4222", "[::1]:0", "127.0.0.2:65535"} {
		if err := (&Config{Dir: "x", Listen: listen}).Validate(); err != nil {
			t.Errorf("listen %q: %v", listen, err)
		}
	}
}

// TestListenTaken: an address that something else has is an error that names it, and
// nothing is left running.
func TestListenTaken(t *testing.T) {
	checkLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	dir := t.TempDir()
	if _, err := Open(t.Context(), Config{Dir: dir, Listen: l.Addr().String()}); err == nil || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Errorf("got %v, want an error that names %s", err, l.Addr())
	}
	open(t, Config{Dir: dir}) // the folder is free again
}

// TestURL: what those who share an engine must agree on goes with its URL.
func TestURL(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", Prefix: "shop", Durability: Sync})
	if got := e.URL(); !strings.HasSuffix(got, "?durability=sync&prefix=shop") {
		t.Errorf("URL is %q, want prefix and durability in it", got)
	}
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 2})
	other := open(t, Config{URL: e.URL()})
	if n, err := other.Partitions(t.Context(), "orders"); err != nil || n != 2 {
		t.Errorf("by its URL: %d partitions, %v; want 2", n, err)
	}
	if other.URL() != e.URL() || other.Durability() != Sync {
		t.Errorf("the other one has URL %q and durability %s", other.URL(), other.Durability())
	}
	own := open(t, Config{URL: e.URL(), Prefix: "own"})
	if _, err := own.Partitions(t.Context(), "orders"); !errors.Is(err, consume.ErrNoTopic) {
		t.Errorf("what the configuration says itself goes before: %v", err)
	}
	for query, want := range map[string]string{
		"a=b": `"a" is no setting`, "replicas=x": "want 1, 3 or 5", "durability=none": "durability", "prefix=a.b": "prefix", "a;b": "cannot be read",
	} {
		if _, err := Open(t.Context(), Config{URL: "nats://127.0.0.1:1?" + query}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("?%s: got %v, want %q", query, err, want)
		}
	}
}
