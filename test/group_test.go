package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// shownGroup is what a test looks at of `group show -o json`.
type shownGroup struct {
	State   string
	Members []struct{ Lane, Session string }
	Cursors []struct {
		Topic, Color, Lane, Member, Reason string
		Lag                                *int
	}
	Lag *int
}

// billing is the group of this test as commands show it.
func (s *server) billing(t *testing.T) shownGroup {
	t.Helper()
	var g shownGroup
	if err := json.Unmarshal([]byte(s.must(t, "group", "show", "billing", "-o", "json")), &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// tally counts what consumers of a test were handed.
type tally struct {
	mu  sync.Mutex
	n   map[string]int // by "lane text"
	bad bool           // messages that begin with "bad" fail
}

func (c *tally) handle(_ context.Context, d *consume.Delivery) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad && strings.HasPrefix(string(d.Value), "bad") {
		return errors.New("cannot work on this")
	}
	c.n[string(d.Lane)+" "+string(d.Value)]++
	return nil
}

func (c *tally) setBad(bad bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bad = bad
}

// check compares all counts.
func (c *tally) check(want map[string]int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, n := range want {
		if c.n[key] != n {
			return fmt.Errorf("%q was handed out %d times, want %d; all: %v", key, c.n[key], n, c.n)
		}
	}
	if len(c.n) != len(want) {
		return fmt.Errorf("handed out %v, want %v", c.n, want)
	}
	return nil
}

// consumeIn consumes in a lane until stop is called.
func (s *server) consumeIn(t *testing.T, in lane.Name, group string, c *tally) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lc, err := laneclient.Dial(ctx, laneclient.Config{Control: []string{s.url()}, Service: "reader", Lane: string(in), NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(t.Context())
	consumer, err := consume.Run(running, s.openEngine(t, ""), lc, "orders", group, c.handle, consume.WithRetries())
	if err != nil {
		end()
		t.Fatal(err)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			end()
			<-consumer.Done()
			if err := lc.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// TestGroup: commands tell who consumes what, and pause, reset and clean up.
func TestGroup(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders", "--partitions", "2")
	s.must(t, "lane", "create", "green")
	got := &tally{n: map[string]int{}, bad: true}
	stop := s.consumeIn(t, lane.Baseline, "billing", got)
	stopGreen := s.consumeIn(t, "green", "billing", got)
	e := s.openEngine(t, "")
	appendText(t, e, "orders", "", "p1", "p2")
	appendText(t, e, "orders", "green", "g1", "g2")
	want := map[string]int{" p1": 1, " p2": 1, "green g1": 1, "green g2": 1}
	within := func(what string, check func() error) {
		t.Helper()
		poll(t, 30*time.Second, func() error {
			if err := check(); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			return nil
		})
	}
	counted := func() error { return got.check(want) }
	within("at first", counted)
	// Notes follow a moment later.
	within("group show", func() error {
		g := s.billing(t)
		if g.State != "consuming" || len(g.Members) != 2 || g.Lag == nil || *g.Lag != 0 {
			return fmt.Errorf("got %+v, want two consumers and nothing that waits", g)
		}
		greens := 0
		for _, c := range g.Cursors {
			if c.Topic == "orders" && c.Color == "green" && c.Lane == "green" && c.Reason == "lane-instance" && c.Member != "" {
				greens++
			}
		}
		if greens != 2 {
			return fmt.Errorf("got %+v, want that the lane has its color of two partitions", g)
		}
		return nil
	})
	for _, word := range []string{"billing", "orders", "main", "green", "consuming"} {
		if out := s.must(t, "group", "list"); !strings.Contains(out, word) {
			t.Errorf("group list does not say %q: %s", word, out)
		}
	}
	if out := s.must(t, "group", "show", "billing"); !strings.Contains(out, "color green") || !strings.Contains(out, "lane green") || !strings.Contains(out, "lane-instance") {
		t.Errorf("group show: %s", out)
	}

	if out := s.must(t, "lane", "show", "green"); !strings.Contains(out, "billing  reader-") {
		t.Errorf("lane show does not tell of the lane's consumers: %s", out)
	}
	for color, reason := range map[string]string{"": "plain", "green": "lane-instance", "blue": "unknown-color"} {
		var e struct {
			Lane, Reason string
			Members      []string
			Cursors      []struct{ Lane string }
		}
		if err := json.Unmarshal([]byte(s.must(t, "explain", "message", "--topic", "orders", "--group", "billing", "--color", color, "-o", "json")), &e); err != nil {
			t.Fatal(err)
		}
		want := ""
		if color == "green" {
			want = color
		}
		if e.Lane != want || e.Reason != reason || len(e.Members) != 1 || len(e.Cursors) != 2 || e.Cursors[0].Lane != want {
			t.Errorf("explain message of color %q: got %+v", color, e)
		}
	}
	if out := s.must(t, "explain", "message", "--topic", "orders", "--group", "billing", "--color", "green"); !strings.Contains(out, "the consumers of lane green") {
		t.Errorf("explain message: %s", out)
	}
	if _, stderr, status := s.cli(t, "explain", "message", "--topic", "others", "--group", "billing"); status != 1 || !strings.Contains(stderr, "it reads orders") {
		t.Errorf("explain message of a topic that is not read: %d %s", status, stderr)
	}

	s.must(t, "group", "pause", "billing")
	appendText(t, e, "orders", "green", "g3")
	within("paused", func() error {
		if g := s.billing(t); g.State != "paused" || g.Lag == nil || *g.Lag != 1 {
			return fmt.Errorf("got %+v, want one message that waits", g)
		}
		return counted()
	})
	s.must(t, "group", "resume", "billing")
	want["green g3"] = 1
	within("resumed", counted)

	// What nobody can work on.
	appendText(t, e, "orders", "green", "bad1", "bad2")
	var dead []struct{ ID, Color, Lane, Error, Origin string }
	within("dead letters", func() error {
		if err := json.Unmarshal([]byte(s.must(t, "group", "dead", "list", "billing", "-o", "json")), &dead); err != nil {
			return err
		}
		if len(dead) != 2 || dead[0].Color != "green" || dead[0].Lane != "green" || !strings.Contains(dead[0].Error, "cannot work") || !strings.HasPrefix(dead[0].Origin, "orders/") {
			return fmt.Errorf("got %+v, want both with what is known of them", dead)
		}
		return nil
	})
	if _, stderr, status := s.cli(t, "group", "dead", "drop", "billing", "orders.billing.dead/0@999"); status != 1 || !strings.Contains(stderr, "no dead message") {
		t.Errorf("drop of none: %d %s", status, stderr)
	}
	if _, _, status := s.cli(t, "group", "dead", "drop", "billing", "nonsense"); status != 2 {
		t.Errorf("drop of nonsense: exit status %d, want 2", status)
	}
	if out := s.must(t, "group", "dead", "drop", "billing", dead[0].ID); out != "1 message dropped\n" {
		t.Errorf("drop: %q", out)
	}
	// What dies again is not tried for ever.
	if out := s.must(t, "group", "dead", "retry", "billing", "--all"); out != "1 message retried\n" {
		t.Errorf("retry: %q", out)
	}
	within("dead again", func() error {
		if err := json.Unmarshal([]byte(s.must(t, "group", "dead", "list", "billing", "-o", "json")), &dead); err != nil || len(dead) != 1 {
			return fmt.Errorf("got %+v, %w", dead, err)
		}
		return nil
	})
	got.setBad(false)
	if out := s.must(t, "group", "dead", "retry", "billing", "--all"); out != "1 message retried\n" {
		t.Errorf("retry: %q", out)
	}
	within("retried", func() error { // which of them was dropped is the partitions' affair
		for _, survivor := range []string{"green bad1", "green bad2"} {
			want[survivor] = 1
			if err := counted(); err == nil {
				return nil
			}
			delete(want, survivor)
		}
		return got.check(nil)
	})
	if out := s.must(t, "group", "dead", "list", "billing", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("dead letters are left: %s", out)
	}

	// The lane goes; what was read comes again, all to the baseline.
	stopGreen()
	if out := s.must(t, "group", "reset", "billing", "--to", "earliest", "--dry-run"); !strings.Contains(out, "orders/1") {
		t.Errorf("reset --dry-run: %s", out)
	}
	within("the lane's consumer has left", func() error {
		if g := s.billing(t); len(g.Members) != 1 {
			return fmt.Errorf("got %+v", g)
		}
		return counted()
	})
	s.must(t, "group", "reset", "billing", "--to", "earliest")
	for _, again := range []string{" p1", " p2"} {
		want[again] = 2
	}
	for _, again := range []string{" g1", " g2", " g3", " bad1", " bad2"} {
		want[again] = 1
	}
	within("reset", counted)
	within("settled", func() error {
		if g := s.billing(t); g.State != "consuming" || g.Lag == nil || *g.Lag != 0 {
			return fmt.Errorf("got %+v, want nothing that waits", g)
		}
		return nil
	})

	if _, stderr, status := s.cli(t, "topic", "delete", "orders"); status != 1 || !strings.Contains(stderr, "is read by billing") {
		t.Errorf("a topic that is read: %d %s", status, stderr)
	}
	stop()
	within("nobody is left", func() error {
		if g := s.billing(t); g.State != "idle" {
			return fmt.Errorf("got %+v", g)
		}
		return nil
	})
	s.must(t, "group", "delete", "billing")
	s.must(t, "topic", "delete", "orders")
	if _, _, status := s.cli(t, "group", "show", "billing"); status != 1 {
		t.Error("the group is there after it was deleted")
	}
}
