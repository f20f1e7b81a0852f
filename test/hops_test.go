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

// TestMessageShow: of a message that failed in a lane until it was dead, and of one that was
// settled, the command shows each hop in order, by which member of which lane; found by where
// it was sent to, by where it ended, and by its name.
func TestMessageShow(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders")
	s.must(t, "lane", "create", "green")
	shop, base, green := s.record(t, "shop", ""), s.record(t, "billing", ""), s.record(t, "billing", "green")
	handle := func(_ context.Context, d *consume.Delivery) error {
		if string(d.Value) == "bad" {
			return errors.New("cannot work on this")
		}
		return nil
	}
	for _, r := range []*recording{base, green} {
		c, err := consume.Run(t.Context(), s.openEngine(t, ""), r.lc, "orders", "billing", handle,
			consume.WithRetries(time.Second), consume.WithHops(r.hops))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	poll(t, 30*time.Second, func() error { // the lane has its color
		for _, c := range s.billing(t).Cursors {
			if c.Topic == "orders" && c.Color == "green" && c.Member != "" {
				return nil
			}
		}
		return errors.New("no member has the color")
	})
	out := consume.NewProducer(s.openEngine(t, ""), shop.lc, consume.RecordHops(shop.hops))
	send := func(ctx context.Context, text string) {
		t.Helper()
		if err := out.Send(ctx, consume.Outgoing{Topic: "orders", Key: []byte(text), Value: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	send(lane.With(t.Context(), "green"), "bad")
	send(lane.Plain(t.Context()), "good")

	var listed []struct{ ID, Key string }
	if err := json.Unmarshal([]byte(s.must(t, "message", "list", "orders", "-o", "json")), &listed); err != nil || len(listed) != 2 {
		t.Fatalf("message list: %+v, %v", listed, err)
	}
	if listed[0].Key != "bad" {
		slices.Reverse(listed)
	}
	bad, good := listed[0].ID, listed[1].ID
	words := func(hops []consume.Hop) (out []string) {
		for _, h := range hops {
			place, _, _ := strings.Cut(h.Place, "@")
			out = append(out, strings.Join(strings.Fields(fmt.Sprint(h.Kind, " ", h.Service, " ", h.Lane, " ", place, " ", h.To, " ", h.Attempt, " ", h.Reason, " ", h.Error)), " "))
		}
		return out
	}
	within := func(id string, want []string) (m shownMessage) {
		t.Helper()
		poll(t, time.Minute, func() error {
			m = s.showMessage(t, id)
			if got := words(m.Hops); !slices.Equal(got, want) || m.Missing != 0 {
				return fmt.Errorf("message %s: got\n%s\nand %d missing, want\n%s", id, strings.Join(got, "\n"), m.Missing, strings.Join(want, "\n"))
			}
			return nil
		})
		return m
	}
	dead := []string{
		"produced shop 0",
		"dispatched billing green orders/0 1 lane-instance",
		"retried billing green orders/0 orders.billing.retry 1 cannot work on this",
		"dispatched billing green orders.billing.retry/0 2 lane-instance",
		"dead billing green orders.billing.retry/0 orders.billing.dead 2 attempts-used-up cannot work on this",
	}
	shown := within(bad, dead)
	if shown.Message == nil || shown.Message.ID != bad || shown.Message.Color != "green" || len(shown.Name) != 16 {
		t.Errorf("message show: %+v", shown)
	}
	for _, h := range shown.Hops[1:] {
		if !strings.HasPrefix(h.Member, green.lc.Instance()+"-") || h.Origin != bad || h.Group != "billing" {
			t.Errorf("hop %+v, want it by the lane's member", h)
		}
	}
	within(good, []string{"produced shop 0", "dispatched billing orders/0 1 plain", "settled billing orders/0 1"})

	var letters []struct{ ID string }
	if err := json.Unmarshal([]byte(s.must(t, "group", "dead", "list", "billing", "-o", "json")), &letters); err != nil || len(letters) != 1 {
		t.Fatalf("dead letters: %+v, %v", letters, err)
	}
	within(letters[0].ID, dead)
	within(shown.Name, dead)

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
	if _, _, status := s.cli(t, "message", "show", "nonsense"); status != 2 {
		t.Errorf("nonsense: exit status %d, want 2", status)
	}
	// One whose producer records nothing is found by its place.
	appendText(t, s.openEngine(t, ""), "orders", "green", "unnamed")
	if err := json.Unmarshal([]byte(s.must(t, "message", "list", "orders", "--key", "unnamed", "-o", "json")), &listed); err != nil || len(listed) != 1 {
		t.Fatalf("message list: %+v, %v", listed, err)
	}
	within(listed[0].ID, []string{"dispatched billing green orders/0 1 lane-instance", "settled billing green orders/0 1"})
	// Without any record the message is shown all the same.
	s.must(t, "topic", "create", "others")
	appendText(t, s.openEngine(t, ""), "others", "", "quiet")
	if out := s.must(t, "message", "show", "others/0@1"); !strings.Contains(out, "quiet") || !strings.Contains(out, "no hop of it") {
		t.Errorf("a message without hops: %s", out)
	}
}
