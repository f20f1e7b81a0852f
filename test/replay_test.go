package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// replayed is what a test looks at of `group replay -o json`.
type replayed struct {
	Name, Lane, Reason     string
	Paused                 bool
	Found, Copied, Already int
	LeftOut                int `json:"left_out"`
}

func (s *server) replay(t *testing.T, args ...string) (r replayed) {
	t.Helper()
	out := s.must(t, append([]string{"group", "replay", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return r
}

// journal is what consumers of a test were handed, each in its order.
type journal struct {
	mu  sync.Mutex
	got map[string][]string // by consumer; messages as "text", of a replay "text again"
	bad []string
}

func (j *journal) handle(who string) consume.Handler {
	return func(ctx context.Context, d *consume.Delivery) error {
		j.mu.Lock()
		defer j.mu.Unlock()
		text := string(d.Value)
		if d.Replayed() != "" {
			text += " again"
			headers := consume.Headers(d.Headers)
			if color, _ := lane.Extract(&headers); color != d.Color || lane.From(ctx) != d.Color || d.Attempt != 0 || d.Origin.Partition.Topic != "orders" {
				j.bad = append(j.bad, fmt.Sprintf("%+v of %+v", d.Message, d.Origin))
			}
		}
		j.got[who] = append(j.got[who], text)
		return nil
	}
}

// handed is the error where a consumer was not handed exactly these, in this order.
func (j *journal) handed(who string, want ...string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.got[who], want) {
		return fmt.Errorf("%s was handed %q, want %q", who, j.got[who], want)
	}
	return nil
}

// reads has a consumer of a lane read orders for a group, one message at a time.
func (s *server) reads(t *testing.T, j *journal, group string, in lane.Name) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lc, err := laneclient.Dial(ctx, laneclient.Config{Control: []string{s.url()}, Service: group, Lane: string(in), NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consume.Run(t.Context(), s.openEngine(t, ""), lc, "orders", group, j.handle(group+"/"+string(in)), consume.WithConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	stop = func() {
		once.Do(func() {
			if err := errors.Join(c.Close(context.Background()), lc.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

// holds waits until a lane's consumer has its color of orders, and of what is retried of it.
func (s *server) holds(t *testing.T, in lane.Name) {
	t.Helper()
	poll(t, 30*time.Second, func() error {
		apart := 0
		for _, c := range s.billing(t).Cursors {
			if c.Color == string(in) && c.Lane == string(in) && c.Member != "" {
				apart++
			}
		}
		if apart < 2 {
			return fmt.Errorf("lane %s has its color of %d topics", in, apart)
		}
		return nil
	})
}

// idle waits until nothing waits for group billing but what its strict lanes are to get.
func (s *server) idle(t *testing.T, waiting int) {
	t.Helper()
	poll(t, 30*time.Second, func() error {
		if g := s.billing(t); g.Lag == nil || *g.Lag != waiting {
			return fmt.Errorf("got %+v, want %d messages that wait", g, waiting)
		}
		return nil
	})
}

// replayTest is a topic that a group reads in the baseline and in two lanes, and another one in
// the baseline.
type replayTest struct {
	*server
	*journal
	engine    *jetstream.Engine
	stopGreen func()
	audits    func()
}

func newReplayTest(t *testing.T) *replayTest {
	t.Helper()
	s := startServer(t)
	s.must(t, "topic", "create", "orders")
	for _, name := range []string{"green", "blue", "empty", "strict-load"} {
		s.must(t, "lane", "create", name)
	}
	r := &replayTest{server: s, journal: &journal{got: map[string][]string{}}, engine: s.openEngine(t, "")}
	s.reads(t, r.journal, "billing", "")
	s.reads(t, r.journal, "billing", "blue")
	r.stopGreen = s.reads(t, r.journal, "billing", "green")
	r.audits = s.reads(t, r.journal, "audit", "")
	s.holds(t, "green")
	s.holds(t, "blue")
	return r
}

// readOnce sends messages of all colors, and waits until everybody has read what is his.
func (r *replayTest) readOnce(t *testing.T) {
	t.Helper()
	appendText(t, r.engine, "orders", "", "p1", "p2", "p3")
	appendText(t, r.engine, "orders", "green", "g4")
	appendText(t, r.engine, "orders", "blue", "b5")
	appendText(t, r.engine, "orders", "strict-load", "s6")
	appendText(t, r.engine, "orders", "", "p7")
	r.idle(t, 1)
	poll(t, 30*time.Second, func() error { return r.unmoved("g4") })
}

// unmoved is the error where anybody but the lane was handed more than the originals, or the
// lane something else than these.
func (r *replayTest) unmoved(green ...string) error {
	err := errors.Join(
		r.handed("billing/", "p1", "p2", "p3", "p7"), r.handed("billing/blue", "b5"), r.handed("audit/", "p1", "p2", "p3", "g4", "b5", "p7"),
		r.handed("billing/green", green...))
	if len(r.bad) > 0 {
		err = errors.Join(err, fmt.Errorf("copies are not marked as such: %s", r.bad))
	}
	return err
}

// untilGreen waits until the lane was handed these, and nothing waits.
func (r *replayTest) untilGreen(t *testing.T, green ...string) {
	t.Helper()
	poll(t, 30*time.Second, func() error { return r.unmoved(green...) })
	r.idle(t, 1)
	if err := r.unmoved(green...); err != nil {
		t.Error(err)
	}
}

// TestGroupReplay: a range of a topic is handed to the lane's consumer once, in its order and
// as copies, whatever colors it has; everybody else sees nothing of it.
func TestGroupReplay(t *testing.T) {
	t.Parallel()
	r := newReplayTest(t)
	r.readOnce(t)
	if got := r.replay(t, "billing", "orders", "--lane", "green", "--from", "2", "--to", "6", "--dry-run"); got.Found != 5 || got.Copied != 0 {
		t.Errorf("dry run: %+v", got)
	}
	got := r.replay(t, "billing", "orders", "--lane", "green", "--from", "2", "--to", "6")
	if got.Found != 5 || got.Copied != 4 || got.LeftOut != 1 || got.Lane != "green" || got.Reason != "lane-instance" || !strings.HasPrefix(got.Name, "replay-") {
		t.Errorf("replay: %+v", got)
	}
	green := []string{"g4", "p2 again", "p3 again", "g4 again", "b5 again"}
	r.untilGreen(t, green...)

	// What is called again is a new replay, unless it has the name of one.
	for n, want := range []replayed{{Copied: 1}, {Already: 1}, {Copied: 2, Already: 1}} {
		args := []string{"billing", "orders", "--lane", "green", "--name", "mine", "--color", "-", "--from", "1", "--to", "1"}
		if n == 2 {
			args[len(args)-1] = "3"
		}
		if got := r.replay(t, args...); got.Copied != want.Copied || got.Already != want.Already || got.Name != "mine" {
			t.Errorf("call %d: %+v, want %+v", n, got, want)
		}
	}
	green = append(green, "p1 again", "p2 again", "p3 again")
	r.untilGreen(t, green...)

	out := r.must(t, "group", "replay", "billing", "orders", "--lane", "green", "--since", "1h", "--color", "strict-load")
	for _, word := range []string{"orders/0", "1 to 7", "1 message handed to group billing for lane green (lane-instance)"} {
		if !strings.Contains(out, word) {
			t.Errorf("group replay does not say %q: %s", word, out)
		}
	}
	green = append(green, "s6 again")
	r.untilGreen(t, green...)

	// Copies that are unread when the lane's consumer goes are nobody's, but those for anybody.
	r.must(t, "group", "pause", "billing")
	if got := r.replay(t, "billing", "orders", "--lane", "green", "--from", "1", "--color", "-"); got.Copied != 4 || !got.Paused {
		t.Errorf("while paused: %+v", got)
	}
	r.stopGreen()
	r.must(t, "group", "resume", "billing")
	r.untilGreen(t, green...)
	r.refuses(t)
	if got := r.replay(t, "billing", "orders", "--lane", "green", "--from", "7", "--fallback"); got.Copied != 1 || got.Reason != "baseline-fallback" {
		t.Errorf("with --fallback: %+v", got)
	}
	poll(t, 30*time.Second, func() error { return r.handed("billing/", "p1", "p2", "p3", "p7", "p7 again") })
}

// refuses looks at what cannot be replayed, and at what people are told then.
func (r *replayTest) refuses(t *testing.T) {
	t.Helper()
	r.must(t, "lane", "create", "over")
	r.must(t, "lane", "delete", "over")
	if err := r.engine.Remove(t.Context(), consume.Partition{Topic: "orders"}, 1); err != nil {
		t.Fatal(err)
	}
	r.audits()
	r.must(t, "topic", "delete", "orders.audit.retry")
	for _, refused := range []struct {
		status int
		args   string
		says   string
	}{
		{1, "billing orders --lane nobody --from 1", "no lane nobody: create it with `laneway lane create nobody`"},
		{1, "billing orders --lane over --from 1", "laneway lane create over"},
		{1, "billing orders --lane empty --from 1", "no consumer of orders in lane empty, whose messages go to those of the baseline: start one with `laneway run --lane empty …`, or say --fallback"},
		{1, "billing orders --lane strict-load --from 1", "no consumer of orders in lane strict-load: start one"},
		{1, "billing carts --lane blue --from 1", "it reads orders"},
		{1, "nobody orders --lane blue --from 1", "no group nobody"},
		{1, "billing orders --lane blue --from 1", "offsets 1 to 1 of orders/0 are gone: what is left begins with --from 2"},
		{1, "billing orders --lane blue --from 2 --max 3", "6 messages, more than 3: choose fewer, or say --max 6"},
		{1, "billing orders --lane blue --from 100", "`laneway topic show orders` says which"},
		{1, "billing orders --lane blue --from 2 --partition 3", "1 partition, numbered from 0"},
		{1, "audit orders --lane blue --from 2 --fallback", "no retry topic orders.audit.retry"},
		{2, "billing orders --from 2", "--lane LANE"},
		{2, "billing orders --lane blue", "--from OFFSET or --since TIME"},
		{2, "billing orders --lane blue --from 7 --to 6", "comes before --from 7"},
		{2, "billing orders --lane blue --since 1h --until 2h", "not after --since 1h"},
		{2, "billing orders --lane blue --since 1h --max 0", "want 1 to"},
		{2, "billing orders --lane Blue --from 1", "--lane"},
	} {
		_, stderr, status := r.cli(t, append([]string{"group", "replay"}, strings.Fields(refused.args)...)...)
		if status != refused.status || !strings.Contains(stderr, refused.says) {
			t.Errorf("group replay %s: %d %s, want %d and %q", refused.args, status, stderr, refused.status, refused.says)
		}
	}
	if err := r.handed("billing/blue", "b5"); err != nil {
		t.Error(err)
	}
}
