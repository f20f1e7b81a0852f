package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
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

func (c *tally) has(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n[key] > 0
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
func (s *server) consumeIn(t *testing.T, in lane.Name, group string, c *tally, options ...consume.Option) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lc, err := laneclient.Dial(ctx, laneclient.Config{Control: []string{s.url()}, Service: "reader", Lane: string(in), NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(t.Context())
	consumer, err := consume.Run(running, s.openEngine(t, ""), lc, "orders", group, c.handle, append(options, consume.WithRetries())...)
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

// groupTest is a group that one consumer of the baseline and one of lane green read.
type groupTest struct {
	*server
	engine *jetstream.Engine
	got    *tally
	want   map[string]int
}

// within polls for what a command or the consumers are to say.
func (g *groupTest) within(t *testing.T, what string, check func() error) {
	t.Helper()
	poll(t, 30*time.Second, func() error {
		if err := check(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

func (g *groupTest) counted() error { return g.got.check(g.want) }

// TestGroup: commands tell who consumes what, and pause, reset and clean up.
func TestGroup(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders", "--partitions", "2")
	s.must(t, "lane", "create", "green")
	g := &groupTest{
		server: s, engine: s.openEngine(t, ""), got: &tally{n: map[string]int{}, bad: true},
		want: map[string]int{" p1": 1, " p2": 1, "green g1": 1, "green g2": 1},
	}
	stop := s.consumeIn(t, lane.Baseline, "billing", g.got)
	stopGreen := s.consumeIn(t, "green", "billing", g.got)
	appendText(t, g.engine, "orders", "", "p1", "p2")
	appendText(t, g.engine, "orders", "green", "g1", "g2")
	g.within(t, "at first", g.counted)
	g.showsWhoHasWhat(t)
	g.explains(t)
	g.pauses(t)
	g.keepsTheDead(t)
	stopGreen()
	g.resets(t)

	if _, stderr, status := g.cli(t, "topic", "delete", "orders"); status != 1 || !strings.Contains(stderr, "is read by billing") {
		t.Errorf("a topic that is read: %d %s", status, stderr)
	}
	stop()
	g.within(t, "nobody is left", func() error {
		if shown := g.billing(t); shown.State != "idle" {
			return fmt.Errorf("got %+v", shown)
		}
		return nil
	})
	g.must(t, "group", "delete", "billing")
	g.must(t, "topic", "delete", "orders")
	if _, _, status := g.cli(t, "group", "show", "billing"); status != 1 {
		t.Error("the group is there after it was deleted")
	}
}

// showsWhoHasWhat looks at the group while both consume.
func (g *groupTest) showsWhoHasWhat(t *testing.T) {
	t.Helper()
	// Notes follow a moment later.
	g.within(t, "group show", func() error {
		shown := g.billing(t)
		if shown.State != "consuming" || len(shown.Members) != 2 || shown.Lag == nil || *shown.Lag != 0 {
			return fmt.Errorf("got %+v, want two consumers and nothing that waits", shown)
		}
		greens := 0
		for _, c := range shown.Cursors {
			if c.Topic == "orders" && c.Color == "green" && c.Lane == "green" && c.Reason == "lane-instance" && c.Member != "" {
				greens++
			}
		}
		if greens != 2 {
			return fmt.Errorf("got %+v, want that the lane has its color of two partitions", shown)
		}
		return nil
	})
	for _, word := range []string{"billing", "orders", "main", "green", "consuming"} {
		if out := g.must(t, "group", "list"); !strings.Contains(out, word) {
			t.Errorf("group list does not say %q: %s", word, out)
		}
	}
	if out := g.must(t, "group", "show", "billing"); !strings.Contains(out, "color green") || !strings.Contains(out, "lane green") || !strings.Contains(out, "lane-instance") {
		t.Errorf("group show: %s", out)
	}

	if out := g.must(t, "lane", "show", "green"); !strings.Contains(out, "billing  reader-") {
		t.Errorf("lane show does not tell of the lane's consumers: %s", out)
	}
}

// explains asks who gets a message of each class of colors.
func (g *groupTest) explains(t *testing.T) {
	t.Helper()
	for color, reason := range map[string]string{"": "plain", "green": "lane-instance", "blue": "unknown-color"} {
		var e struct {
			Lane, Reason string
			Members      []string
			Cursors      []struct{ Lane string }
		}
		if err := json.Unmarshal([]byte(g.must(t, "explain", "message", "--topic", "orders", "--group", "billing", "--color", color, "-o", "json")), &e); err != nil {
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
	if out := g.must(t, "explain", "message", "--topic", "orders", "--group", "billing", "--color", "green"); !strings.Contains(out, "the consumers of lane green") {
		t.Errorf("explain message: %s", out)
	}
	if _, stderr, status := g.cli(t, "explain", "message", "--topic", "others", "--group", "billing"); status != 1 || !strings.Contains(stderr, "it reads orders") {
		t.Errorf("explain message of a topic that is not read: %d %s", status, stderr)
	}
}

// pauses has the group hold still for a message: not for one that a consumer has before it
// knows of the pause.
func (g *groupTest) pauses(t *testing.T) {
	t.Helper()
	g.must(t, "group", "pause", "billing")
	waits, sent, looks := "", 2, 0
	g.within(t, "paused", func() error {
		if waits == "" {
			sent++
			waits, looks = fmt.Sprint("g", sent), 0
			appendText(t, g.engine, "orders", "green", waits)
		}
		shown := g.billing(t)
		if key := "green " + waits; g.got.has(key) {
			g.want[key], waits = 1, ""
			return fmt.Errorf("%q was handed out", key)
		}
		if looks++; shown.State != "paused" || shown.Lag == nil || *shown.Lag != 1 || looks < 2 {
			return fmt.Errorf("got %+v, want one message that waits, and still does", shown)
		}
		return g.counted()
	})
	g.must(t, "group", "resume", "billing")
	g.want["green "+waits] = 1
	g.within(t, "resumed", g.counted)
}

// keepsTheDead drops and retries messages that nobody can work on.
func (g *groupTest) keepsTheDead(t *testing.T) {
	t.Helper()
	appendText(t, g.engine, "orders", "green", "bad1", "bad2")
	var dead []struct{ ID, Color, Lane, Error, Origin string }
	g.within(t, "dead letters", func() error {
		if err := json.Unmarshal([]byte(g.must(t, "group", "dead", "list", "billing", "-o", "json")), &dead); err != nil {
			return err
		}
		if len(dead) != 2 || dead[0].Color != "green" || dead[0].Lane != "green" || !strings.Contains(dead[0].Error, "cannot work") || !strings.HasPrefix(dead[0].Origin, "orders/") {
			return fmt.Errorf("got %+v, want both with what is known of them", dead)
		}
		return nil
	})
	if _, stderr, status := g.cli(t, "group", "dead", "drop", "billing", "orders.billing.dead/0@999"); status != 1 || !strings.Contains(stderr, "no dead message") {
		t.Errorf("drop of none: %d %s", status, stderr)
	}
	if _, _, status := g.cli(t, "group", "dead", "drop", "billing", "nonsense"); status != 2 {
		t.Errorf("drop of nonsense: exit status %d, want 2", status)
	}
	if out := g.must(t, "group", "dead", "drop", "billing", dead[0].ID); out != "1 message dropped\n" {
		t.Errorf("drop: %q", out)
	}
	// What dies again is not tried for ever.
	if out := g.must(t, "group", "dead", "retry", "billing", "--all"); out != "1 message retried\n" {
		t.Errorf("retry: %q", out)
	}
	g.within(t, "dead again", func() error {
		if err := json.Unmarshal([]byte(g.must(t, "group", "dead", "list", "billing", "-o", "json")), &dead); err != nil || len(dead) != 1 {
			return fmt.Errorf("got %+v, %w", dead, err)
		}
		return nil
	})
	g.got.setBad(false)
	if out := g.must(t, "group", "dead", "retry", "billing", "--all"); out != "1 message retried\n" {
		t.Errorf("retry: %q", out)
	}
	g.within(t, "retried", func() error { // which of them was dropped is the partitions' affair
		for _, survivor := range []string{"green bad1", "green bad2"} {
			g.want[survivor] = 1
			if err := g.counted(); err == nil {
				return nil
			}
			delete(g.want, survivor)
		}
		return g.got.check(nil)
	})
	if out := g.must(t, "group", "dead", "list", "billing", "-o", "json"); strings.TrimSpace(out) != "[]" {
		t.Errorf("dead letters are left: %s", out)
	}
}

// resets has what was read come again, all to the baseline, once the lane has gone.
func (g *groupTest) resets(t *testing.T) {
	t.Helper()
	if out := g.must(t, "group", "reset", "billing", "--to", "earliest", "--dry-run"); !strings.Contains(out, "orders/1") {
		t.Errorf("reset --dry-run: %s", out)
	}
	g.within(t, "the lane's consumer has left", func() error {
		if shown := g.billing(t); len(shown.Members) != 1 {
			return fmt.Errorf("got %+v", shown)
		}
		return g.counted()
	})
	g.must(t, "group", "reset", "billing", "--to", "earliest")
	for key := range maps.Clone(g.want) {
		if of, text, _ := strings.Cut(key, " "); of == "" {
			g.want[key]++
		} else {
			g.want[" "+text] = 1
		}
	}
	g.want[" bad1"], g.want[" bad2"] = 1, 1 // also the one that was dropped: it is in the topic
	g.within(t, "reset", g.counted)
	g.within(t, "settled", func() error {
		if shown := g.billing(t); shown.State != "consuming" || shown.Lag == nil || *shown.Lag != 0 {
			return fmt.Errorf("got %+v, want nothing that waits", shown)
		}
		return nil
	})
}
