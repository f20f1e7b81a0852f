package test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// openEngine opens an engine of a server as a user's program does: by its name.
func (s *server) openEngine(t *testing.T, name string) *jetstream.Engine {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	api := laneclient.NewAPI(laneclient.Config{Control: []string{s.url()}})
	defer func() { _ = api.Close() }()
	url, err := api.Engine(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	e, err := jetstream.Open(ctx, jetstream.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func appendText(t *testing.T, e *jetstream.Engine, topic string, color lane.Name, texts ...string) {
	t.Helper()
	for _, text := range texts {
		m := &consume.Message{Partition: consume.Partition{Topic: topic, Index: -1}, Key: []byte(text), Value: []byte(text), Color: color}
		if err := e.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEngine: a server embeds an engine without being told to, says where it is, and a
// program finds it by name; topics that it makes there are seen by commands.
func TestEngine(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	poll(t, 20*time.Second, func() error { // what it wrote may still be on its way here
		if s.addresses["nats"] == "" || !strings.Contains(s.stderr.String(), s.addresses["nats"]) {
			return fmt.Errorf("nats: address %q, want it in the ready file and on standard error", s.addresses["nats"])
		}
		return nil
	})
	if out := s.must(t, "engine", "list"); !strings.Contains(out, "nats://"+s.addresses["nats"]) {
		t.Errorf("engine list: %s", out)
	}
	_, body, err := get(t, s.addresses["control"], "localhost", "/readyz")
	if err != nil || !strings.Contains(body, `"engine"`) {
		t.Errorf("/readyz is %q (%v), want the engine in it", body, err)
	}
	e := s.openEngine(t, "")
	if err := e.Ensure(t.Context(), consume.TopicSpec{Name: "made.here", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	appendText(t, e, "made.here", "green", "a", "b\x1b[31m", "c")
	appendText(t, e, "made.here", "", "d")
	if out := s.must(t, "topic", "list"); !strings.Contains(out, "made.here") {
		t.Errorf("topic list does not show what a program has made: %s", out)
	}
	var shown struct {
		Log []struct{ Messages int }
	}
	if err := json.Unmarshal([]byte(s.must(t, "topic", "show", "made.here", "-o", "json")), &shown); err != nil {
		t.Fatal(err)
	}
	if len(shown.Log) != 2 || shown.Log[0].Messages+shown.Log[1].Messages != 4 {
		t.Errorf("topic show: %+v, want two partitions with four messages", shown)
	}
	var messages []struct{ ID, Color, Key string }
	if err := json.Unmarshal([]byte(s.must(t, "message", "list", "made.here", "--color", "green", "-o", "json")), &messages); err != nil {
		t.Fatal(err)
	}
	if len(messages) != 3 {
		t.Errorf("message list --color green: %+v, want three", messages)
	}
	if out := s.must(t, "message", "list", "made.here", "--color", "-", "--payload"); !strings.Contains(out, " d") || strings.Count(out, "\n") != 2 {
		t.Errorf("message list --color -: %s, want one message and its payload", out)
	}
	if out := s.must(t, "message", "list", "made.here", "--payload"); strings.Contains(out, "\x1b") {
		t.Errorf("message list shows what would change a terminal: %q", out)
	}
	if out := s.must(t, "message", "list", "made.here", "--limit", "1", "-o", "json"); strings.Contains(out, `"value"`) || strings.Count(out, `"id"`) != 1 {
		t.Errorf("message list --limit 1: %s, want one message without its payload", out)
	}
	s.must(t, "topic", "delete", "made.here")
	if _, err := e.Partitions(t.Context(), "made.here"); err == nil {
		t.Error("the topic is there after it was deleted")
	}
	s.Signal(syscall.SIGTERM)
	if status := s.wait(t, 20*time.Second); status != 0 {
		t.Errorf("exit status %d after TERM, want 0", status)
	}
}

// TestEngineCrash: a server that is killed comes back with all messages, and its engine is
// found at once: nobody waits for the lease of the process before.
func TestEngineCrash(t *testing.T) {
	t.Parallel()
	args := []string{"--data", filepath.Join(t.TempDir(), "data")}
	s := startServer(t, args...)
	args = append(args, "--listen", "nats="+s.addresses["nats"], "--listen", "control="+s.addresses["control"])
	s.must(t, "topic", "create", "orders")
	e := s.openEngine(t, "main")
	for i := range 5 {
		// The connection to the server before has to find the one after it; an ID lets a
		// message be sent again that may be there.
		m := &consume.Message{Partition: consume.Partition{Topic: "orders"}, Value: []byte("x"), ID: fmt.Sprint("m", i)}
		poll(t, 30*time.Second, func() error { return e.Append(t.Context(), m) })
		var before, after laneclient.Engine
		if err := json.Unmarshal([]byte(s.must(t, "engine", "show", "main", "-o", "json")), &before); err != nil {
			t.Fatal(err)
		}
		s.Kill()
		s = startServer(t, args...)
		if err := json.Unmarshal([]byte(s.must(t, "engine", "show", "main", "-o", "json")), &after); err != nil {
			t.Fatal(err)
		}
		if after.Session == before.Session || after.Address != before.Address {
			t.Errorf("after the crash: %+v, before: %+v; want another session and the same address", after, before)
		}
	}
	// The program's connection finds the new server by itself.
	poll(t, 30*time.Second, func() error {
		n, err := e.Count(t.Context(), consume.Partition{Topic: "orders"}, 0, consume.Filter{All: true})
		if err == nil && n != 5 {
			t.Fatalf("%d messages are left of 5", n)
		}
		return err
	})
}

// TestEngineRole: engines in processes of their own, by their names; a name that another one
// has is refused with a word of what to do.
func TestEngineRole(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--roles", "control,gateway")
	if s.addresses["nats"] != "" {
		t.Errorf("a server without the role listens at %s", s.addresses["nats"])
	}
	if _, stderr, status := s.cli(t, "topic", "create", "x"); status != 1 || !strings.Contains(stderr, "role engine") {
		t.Errorf("a topic without an engine: %d %s", status, stderr)
	}
	first := startServer(t, "--roles", "engine", "--control", s.url(), "--room", "east")
	if first.addresses["nats"] == "" || first.addresses["gateway"] != "" || first.addresses["admin"] == "" {
		t.Errorf("the engine's process listens at %v", first.addresses)
	}
	for _, path := range []string{"/readyz", "/healthz", "/metrics"} {
		if status, body, err := get(t, first.addresses["admin"], "localhost", path); err != nil || status != 200 {
			t.Errorf("GET %s of the engine's process: %d %s %v", path, status, body, err)
		}
	}
	if out := s.must(t, "status"); !strings.Contains(out, "node engine") {
		t.Errorf("status says nothing of the engine: %s", out)
	}
	second := launchServer(t, "--roles", "engine", "--control", s.url())
	if status := second.wait(t, 30*time.Second); status != 1 || !strings.Contains(second.stderr.String(), "engine main") {
		t.Errorf("a second engine of the same name: exit status %d: %s", status, second.stderr.String())
	}
	third := startServer(t, "--roles", "engine", "--control", s.url(), "--engine", "other=nats://"+first.addresses["nats"])
	if third.addresses["nats"] != "" {
		t.Errorf("an external engine listens at %s", third.addresses["nats"])
	}
	s.must(t, "topic", "create", "orders", "--engine", "other")
	engine := s.openEngine(t, "main")
	if n, err := engine.Partitions(t.Context(), "orders"); err != nil || n != 1 {
		t.Errorf("the topic that was made by the one name, by the other: %d partitions, %v", n, err)
	}
	if room, err := engine.Room(t.Context(), consume.Partition{Topic: "orders"}); err != nil || room != "east" {
		t.Errorf("the topic's partition is in room %q, %v; want that of the engine's server", room, err)
	}
	if out := s.must(t, "topic", "show", "orders"); !strings.Contains(out, "ROOM") || !strings.Contains(out, "east") {
		t.Errorf("topic show does not say in which room the partition is: %s", out)
	}
	s.must(t, "topic", "delete", "orders")

	first.Signal(syscall.SIGTERM)
	first.wait(t, 20*time.Second)
	poll(t, 20*time.Second, func() error {
		if out := s.must(t, "engine", "list"); strings.Contains(out, "main ") || !strings.Contains(out, "other ") {
			return fmt.Errorf("the engine's process has ended: %s", out)
		}
		return nil
	})
	poll(t, 20*time.Second, func() error {
		if _, body, err := get(t, third.addresses["admin"], "localhost", "/readyz"); err != nil || !strings.Contains(body, "does not answer") {
			return fmt.Errorf("/readyz where the engine is gone: %s %w", body, err)
		}
		return nil
	})
}

// TestEngineWithoutControl: a server starts its engine without a control plane, and says so
// when there is one.
func TestEngineWithoutControl(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--roles", "control,gateway")
	address := s.addresses["control"]
	s.Kill()
	e := startServer(t, "--roles", "engine", "--control", "http://"+address)
	if status, body, err := get(t, e.addresses["admin"], "localhost", "/readyz"); err != nil || status != 503 || !strings.Contains(body, "control plane") {
		t.Errorf("/readyz without a control plane: %d %s %v", status, body, err)
	}
	s = startServer(t, "--roles", "control,gateway", "--listen", "control="+address)
	poll(t, 30*time.Second, func() error {
		if out, stderr, status := s.cli(t, "engine", "show", "main"); status != 0 || !strings.Contains(out, e.addresses["nats"]) {
			return fmt.Errorf("engine show main: %d %s%s", status, out, stderr)
		}
		return nil
	})
}

func TestEngineRefused(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "laneway.yaml")
	if err := os.WriteFile(file, []byte("engines:\n  - {name: main, url: embedded, durability: sync, prefix: shop}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := cli(t, nil, "", "check", "--config", file); status != 0 {
		t.Errorf("check: %d %s", status, stderr)
	}
	s := startServer(t, "--config", file)
	if e := s.openEngine(t, ""); e.Durability() != jetstream.Sync || !strings.Contains(e.URL(), "prefix=shop") {
		t.Errorf("by its URL the engine is %s, durability %s", e.URL(), e.Durability())
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--engine", "main=kafka://h:9092"}, "there is no engine for kafka:// here"},
		{[]string{"--engine", "main=rocketmq://h:9876"}, "there is no engine for rocketmq:// here"},
		{[]string{"--engine", "embedded"}, "want NAME=URL"},
		{[]string{"--listen", "nats=0.0.0.0:0"}, "not a loopback address"},
		{[]string{"--listen", "nats=" + s.addresses["nats"], "--data", t.TempDir(), "--listen", "control=127.0.0.1:0,gateway=127.0.0.1:0,inside=127.0.0.1:0"}, "--listen nats=HOST:PORT"},
	} {
		if _, stderr, status := cli(t, nil, "", append([]string{"server"}, tt.args...)...); status == 0 || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: %d %s, want %q", tt.args, status, stderr, tt.want)
		}
	}
}
