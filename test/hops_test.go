package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// shownMessage is what a test looks at of `message show -o json`.
type shownMessage struct {
	Message *struct{ ID, Color string }
	Name    string
	Hops    []consume.Hop
	Missing int
}

func (s *server) showMessage(t *testing.T, id string) (m shownMessage) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.must(t, "message", "show", id, "-o", "json")), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// recording is a process in a lane that records all hops.
type recording struct {
	lc   *laneclient.Client
	hops *consume.Hops
}

func (s *server) record(t *testing.T, service string, in lane.Name) *recording {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lc, err := laneclient.Dial(ctx, laneclient.Config{Control: []string{s.url()}, Service: service, Lane: string(in), NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lc.Close() })
	hops, err := consume.NewHops(s.openEngine(t, ""), lc, consume.HopsConfig{Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hops.Close(context.Background()) })
	return &recording{lc, hops}
}

// failsBad fails on messages that are "bad".
func failsBad(_ context.Context, d *consume.Delivery) error {
	if string(d.Value) == "bad" {
		return errors.New("cannot work on this")
	}
	return nil
}

// bill has a process consume as one of group billing, until the test ends.
func (s *server) bill(t *testing.T, r *recording) {
	t.Helper()
	c, err := consume.Run(t.Context(), s.openEngine(t, ""), r.lc, "orders", "billing", failsBad, consume.WithRetries(time.Second), consume.WithHops(r.hops))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// order sends a message to orders, colored as ctx is, whose text is its key, too, and gives its
// ID there.
func (s *server) order(ctx context.Context, t *testing.T, p *consume.Producer, text string) (id string) {
	t.Helper()
	if err := p.Send(ctx, consume.Outgoing{Topic: "orders", Key: []byte(text), Value: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	return s.listed(t, text)
}

// listed is the ID of the one message of orders with this key.
func (s *server) listed(t *testing.T, key string) (id string) {
	t.Helper()
	var listed []struct{ ID string }
	if err := json.Unmarshal([]byte(s.must(t, "message", "list", "orders", "--key", key, "-o", "json")), &listed); err != nil || len(listed) != 1 {
		t.Fatalf("message list --key %s: %+v, %v", key, listed, err)
	}
	return listed[0].ID
}

// hopWords are hops as texts.
func hopWords(hops []consume.Hop) (out []string) {
	for _, h := range hops {
		place, _, _ := strings.Cut(h.Place, "@")
		text := fmt.Sprint(h.Kind, " ", h.Service, " ", h.Lane, " ", place, " ", h.To, " ", h.Attempt, " ", h.Reason, " ", h.Error)
		out = append(out, strings.Join(strings.Fields(text), " "))
	}
	return out
}

// hasHops waits until these are all hops of a message, and none is missing.
func (s *server) hasHops(t *testing.T, id string, want ...string) (m shownMessage) {
	t.Helper()
	poll(t, time.Minute, func() error {
		m = s.showMessage(t, id)
		if got := hopWords(m.Hops); !slices.Equal(got, want) || m.Missing != 0 {
			return fmt.Errorf("message %s: got\n%s\nand %d missing, want\n%s", id, strings.Join(got, "\n"), m.Missing, strings.Join(want, "\n"))
		}
		return nil
	})
	return m
}

// recorded is a server with a shop that sends orders to group billing, which has a consumer in the
// baseline and one in lane green, which is given too; all of them record all hops.
func recorded(t *testing.T) (s *server, out *consume.Producer, inGreen *recording) {
	t.Helper()
	s = startServer(t)
	s.must(t, "topic", "create", "orders")
	s.must(t, "lane", "create", "green")
	shop, base, green := s.record(t, "shop", ""), s.record(t, "billing", ""), s.record(t, "billing", "green")
	s.bill(t, base)
	s.bill(t, green)
	s.holds(t, "green")
	return s, consume.NewProducer(s.openEngine(t, ""), shop.lc, consume.RecordHops(shop.hops)), green
}

// hopsOfDead are those of a green message that fails in its lane until it is dead.
func hopsOfDead() []string {
	return []string{
		"produced shop 0",
		"dispatched billing green orders/0 1 lane-instance",
		"retried billing green orders/0 orders.billing.retry 1 cannot work on this",
		"dispatched billing green orders.billing.retry/0 2 lane-instance",
		"dead billing green orders.billing.retry/0 orders.billing.dead 2 attempts-used-up cannot work on this",
	}
}

// TestMessageShow: of a message that failed in a lane until it was dead, and of one that was
// settled, the command shows each hop in order, by which member of which lane; found by where
// it was sent to, by where it ended, and by its name.
func TestMessageShow(t *testing.T) {
	t.Parallel()
	s, out, green := recorded(t)
	bad := s.order(lane.With(t.Context(), "green"), t, out, "bad")
	good := s.order(lane.Plain(t.Context()), t, out, "good")
	s.hasHops(t, good, "produced shop 0", "dispatched billing orders/0 1 plain", "settled billing orders/0 1")
	dead := hopsOfDead()
	shown := s.hasHops(t, bad, dead...)
	if shown.Message == nil || shown.Message.ID != bad || shown.Message.Color != "green" || len(shown.Name) != 16 {
		t.Errorf("message show: %+v", shown)
	}
	for _, h := range shown.Hops[1:] {
		if !strings.HasPrefix(h.Member, green.lc.Instance()+"-") || h.Origin != bad || h.Group != "billing" {
			t.Errorf("hop %+v, want it by the lane's member", h)
		}
	}
	var letters []struct{ ID string }
	if err := json.Unmarshal([]byte(s.must(t, "group", "dead", "list", "billing", "-o", "json")), &letters); err != nil || len(letters) != 1 {
		t.Fatalf("dead letters: %+v, %v", letters, err)
	}
	s.hasHops(t, letters[0].ID, dead...)
	s.hasHops(t, shown.Name, dead...)

	table := s.must(t, "message", "show", bad)
	for _, word := range []string{"produced", "dispatched", "retried", "to orders.billing.dead", "lane green", "lane-instance", "cannot work on this", shown.Name} {
		if !strings.Contains(table, word) {
			t.Errorf("message show does not say %q:\n%s", word, table)
		}
	}
	if out := s.must(t, "topic", "show", consume.HopsTopic); !strings.Contains(out, "1d0h") {
		t.Errorf("topic show does not say how long hops are kept: %s", out)
	}
	if _, stderr, status := s.cli(t, "message", "show", "orders/0@4711"); status != 1 || !strings.Contains(stderr, "no message orders/0@4711") {
		t.Errorf("a message that is not there: %d %s", status, stderr)
	}
	// One whose producer records nothing is found by its place.
	appendText(t, s.openEngine(t, ""), "orders", "green", "unnamed")
	s.hasHops(t, s.listed(t, "unnamed"), "dispatched billing green orders/0 1 lane-instance", "settled billing green orders/0 1")
}

// TestMessageShowWithoutHops: where nobody has recorded anything a message is shown all the same.
func TestMessageShowWithoutHops(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders")
	appendText(t, s.openEngine(t, ""), "orders", "", "quiet")
	if out := s.must(t, "message", "show", "orders/0@1"); !strings.Contains(out, "quiet") || !strings.Contains(out, "no hop of it") {
		t.Errorf("a message without hops: %s", out)
	}
	if _, _, status := s.cli(t, "message", "show", "nonsense"); status != 2 {
		t.Errorf("nonsense: exit status %d, want 2", status)
	}
}
