package test

import (
	"encoding/json"
	"fmt"
	"os/user"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// deadLetter waits until the group has one dead letter, and gives its ID.
func (s *server) deadLetter(t *testing.T) (id string) {
	t.Helper()
	poll(t, 30*time.Second, func() error {
		var dead []struct{ ID string }
		if err := json.Unmarshal([]byte(s.must(t, "group", "dead", "list", "billing", "-o", "json")), &dead); err != nil || len(dead) != 1 {
			return fmt.Errorf("dead letters: %+v, %w", dead, err)
		}
		id = dead[0].ID
		return nil
	})
	return id
}

// TestHopsByHand: what people have done with a message is among its hops, with who and when: it
// was replayed for a lane, retried though dead, and dropped.
func TestHopsByHand(t *testing.T) {
	t.Parallel()
	s, out, _ := recorded(t)
	good := s.order(lane.Plain(t.Context()), t, out, "good")
	bad := s.order(lane.With(t.Context(), "green"), t, out, "bad")
	want := hopsOfDead()
	s.hasHops(t, bad, want...)
	s.must(t, "group", "dead", "retry", "billing", s.deadLetter(t))
	want = append(want,
		"retried laneway orders.billing.dead/0 orders.billing.retry 2 by-hand",
		"dispatched billing green orders.billing.retry/0 1 lane-instance",
		"retried billing green orders.billing.retry/0 orders.billing.retry 1 cannot work on this",
		"dispatched billing green orders.billing.retry/0 2 lane-instance",
		"dead billing green orders.billing.retry/0 orders.billing.dead 2 attempts-used-up cannot work on this")
	s.hasHops(t, bad, want...)
	s.must(t, "group", "dead", "drop", "billing", s.deadLetter(t))
	want = append(want, "dropped laneway orders.billing.dead/0 2 by-hand")
	shown := s.hasHops(t, bad, want...)
	me, err := user.Current()
	if last := shown.Hops[len(shown.Hops)-1]; err != nil || !strings.HasPrefix(last.Instance, me.Username+"@") || time.Since(last.Time) > time.Hour {
		t.Errorf("hop %+v, want it by %+v, %v", last, me, err)
	}
	s.must(t, "group", "replay", "billing", "orders", "--lane", "green", "--color", "-", "--from", "1", "--name", "mine")
	s.hasHops(t, good,
		"produced shop 0", "dispatched billing orders/0 1 plain", "settled billing orders/0 1",
		"replayed laneway green orders/0 orders.billing.retry 0 mine",
		"dispatched billing green orders.billing.retry/0 1 lane-instance", "settled billing green orders.billing.retry/0 1")
	for id, words := range map[string][]string{bad: {"by-hand", me.Username + "@"}, good: {"replayed", "mine", "lane green", "to orders.billing.retry"}} {
		for _, word := range words {
			if table := s.must(t, "message", "show", id); !strings.Contains(table, word) {
				t.Errorf("message show does not say %q:\n%s", word, table)
			}
		}
	}
	// Where no hops are kept, none is.
	s.must(t, "group", "replay", "billing", "orders", "--lane", "green", "--from", "1", "--hops", "elsewhere")
	if _, stderr, status := s.cli(t, "topic", "show", "elsewhere"); status != 1 {
		t.Errorf("a topic for hops was made: %d %s", status, stderr)
	}
}

// kept is all that the registry has of consumption, notes too.
func (s *server) kept(t *testing.T) (out []string) {
	t.Helper()
	api := laneclient.NewAPI(laneclient.Config{Control: []string{s.url()}})
	defer func() { _ = api.Close() }()
	for _, kind := range []laneclient.Kind{laneclient.KindGroups, laneclient.KindMembers} {
		objects, _, err := laneclient.ListRaw(t.Context(), api, kind, laneclient.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			out = append(out, string(o))
		}
	}
	cursors, _, err := laneclient.ListAll[laneclient.Cursor](t.Context(), api, laneclient.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cursors {
		one, err := laneclient.Get[laneclient.Cursor](t.Context(), api, laneclient.FullName(&c))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(text))
	}
	return out
}

// TestPeek: looking at messages consumes nothing. No cursor is moved or made, and who consumes
// later is handed all of them.
func TestPeek(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders")
	j := &journal{got: map[string][]string{}}
	stop := s.reads(t, j, "billing", "")
	appendText(t, s.openEngine(t, ""), "orders", "", "first")
	poll(t, 30*time.Second, func() error { return j.handed("billing/", "first") })
	stop()
	appendText(t, s.openEngine(t, ""), "orders", "green", "g1", "g2")
	appendText(t, s.openEngine(t, ""), "orders", "", "p1")
	before := s.kept(t)
	if len(before) < 3 || !strings.Contains(strings.Join(before, ""), `"pos"`) {
		t.Fatalf("the registry has %q, want the group, and cursors with notes", before)
	}
	for args, want := range map[string]int{
		"list orders --payload": 4, "list orders --color green": 2, "list orders --from 2 --limit 1": 1, "list orders --since 1h --key x": 0,
	} {
		var listed []struct{ ID string }
		if err := json.Unmarshal([]byte(s.must(t, append([]string{"message"}, strings.Fields(args+" -o json")...)...)), &listed); err != nil || len(listed) != want {
			t.Errorf("message %s: %+v, %v; want %d", args, listed, err, want)
		}
	}
	s.must(t, "message", "show", "orders/0@2", "--payload", "-o", "json")
	if after := s.kept(t); !slices.Equal(after, before) {
		t.Errorf("the registry has %q after a look, and had %q", after, before)
	}
	s.reads(t, j, "billing", "")
	poll(t, 30*time.Second, func() error { return j.handed("billing/", "first", "g1", "g2", "p1") })
}
