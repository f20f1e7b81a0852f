package chaos

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// plan is how much there is of everything in a run.
type plan struct {
	seed     uint64
	duration time.Duration  // of faults, at least
	messages int            // at least
	kills    int            // at least
	stops    int            // of lanes with 1,000 of their messages unread, at least
	gone     time.Duration  // for which all replicas are gone, beyond a session's TTL; 0: not at all
	ends     int            // of lanes that come back as new generations
	pace     time.Duration  // between two faults, on average
	least    map[string]int // faults of a kind, at least
}

// backlog is how many messages may wait before producers do.
const backlog = 30_000

func planned() plan {
	p := plan{seed: *seedFlag, duration: 150 * time.Second, messages: 200_000, stops: 8, ends: 2, gone: 15 * time.Second, pace: time.Second}
	if testing.Short() {
		p.duration, p.messages, p.stops, p.ends, p.gone = time.Minute, 20_000, 3, 0, 8*time.Second
	}
	p.duration, p.messages = cmp.Or(*durationFlag, p.duration), cmp.Or(*messagesFlag, p.messages)
	switch {
	case p.duration >= 10*time.Minute:
		p.gone = time.Minute
	case p.duration < time.Minute:
		p.gone = 0
	}
	p.kills = max(p.messages/10_000, 5)
	if p.messages >= 1_000_000 {
		p.stops = 20
	}
	each := func(d time.Duration) int { return max(1, int(p.duration/d)) }
	p.least = map[string]int{"kill producer": each(25 * time.Second), "succeed producer": each(50 * time.Second), "pause": each(50 * time.Second)}
	return p
}

// enough reports whether there were as many faults of each kind as are wanted.
func (c *chaos) enough(p plan) bool {
	for kind, n := range p.least {
		if c.counts[kind] < n {
			return false
		}
	}
	return len(c.kills) >= p.kills && c.ended >= p.ends
}

// TestChaos is the proof on real processes. In a run of CI there are at least 200,000
// messages, 20 kills by SIGKILL, 8 stops of lanes with 1,000 of their messages unread, 2 lanes
// that end and come back, and all replicas are gone for longer than any session lasts. With
// -messages 1000000 there are 100 kills and 20 stops, and from -duration 10m on the replicas
// are gone for more than a minute.
func TestChaos(t *testing.T) {
	runPlan(t, planned())
}

func runPlan(t *testing.T, p plan) {
	t.Helper()
	folder := keptFolder(t)
	t.Logf("seed %d, in %s", p.seed, folder)
	s := newSite(t, folder)
	engine := openLog(t, s)
	for topic, n := range map[string]int32{ordersTopic: partitions, auditTopic: moreParts} {
		if err := engine.Ensure(t.Context(), consume.TopicSpec{Name: topic, Partitions: n}); err != nil {
			t.Fatal(err)
		}
	}
	s.addSlots("base", lane.Baseline, 3)
	for _, l := range append(laneNames(), briefNames()...) {
		n := 1
		if l == "green" {
			n = 2
		}
		s.addSlots(string(l), l, n)
	}
	s.addOutlets(producers)
	c := newChaos(s, engine, p.seed)
	for _, slot := range s.slots {
		c.begin(slot)
	}
	for _, o := range s.outlets {
		c.produce(o, false)
	}
	c.calm()
	gone := c.rage(p)
	c.calm()
	c.rate(0)
	c.stopProducing()
	c.drain()
	lost := c.unsettled()
	c.beginAgain()
	c.drain()
	s.stopConsuming()
	v := c.judge(gone)
	v.more = append(v.more, lost...)
	c.summarize(&v)
	if n := v.stops; n < p.stops {
		t.Errorf("%d lanes were stopped with %d messages unread: want %d", n, leastUnread, p.stops)
	}
	for kind, n := range p.least {
		if c.counts[kind] < n {
			t.Errorf("%s: %d times, want %d", kind, c.counts[kind], n)
		}
	}
	if v.again < resetLeast {
		t.Errorf("%d messages came again after the reset, want %d", v.again, resetLeast)
	}
	if v.sent.known == 0 {
		t.Error("no producer sent again what another one had left in doubt and the engine had")
	}
	if n := c.counts["pause"]; v.stood < n {
		t.Errorf("in %d pauses consumers stood still %d times", n, v.stood)
	}
	if err := v.Err(); err != nil {
		t.Errorf("seed %d: %v", p.seed, err)
		c.report(&v)
	}
}

// rage makes faults until there were enough of everything. It gives when all replicas were
// gone.
func (c *chaos) rage(p plan) (gone span) {
	c.t.Helper()
	begun := time.Now()
	stops := p.stops + p.ends + 2 // some may turn out to have had less unread
	limit := begun.Add(3*p.duration + 10*time.Minute)
	rate := max(200, 5*p.messages/4/max(1, int(p.duration.Seconds())))
	flowing, grown := false, false
	next, looked := begun, begun
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for ; ; <-tick.C {
		c.pump()
		now := time.Now()
		if now.Sub(looked) > 10*time.Second {
			looked = now
			c.buried()
		}
		if want := c.progress.waiting < backlog; want != flowing {
			if flowing = want; want {
				c.rate(rate)
			} else {
				c.rate(0)
			}
		}
		if !now.Before(next) {
			c.fault()
			next = now.Add(c.between(p.pace/4, p.pace*7/4))
		}
		if part := now.Sub(begun).Seconds() / p.duration.Seconds(); !grown && part > 0.3 {
			grown = c.grow()
		} else if !c.busy[ending] && c.ended < p.ends && part > 0.1+0.8*float64(c.ended)/float64(p.ends) {
			c.endBrief(briefNames()[c.ended%2])
		}
		if p.gone > 0 && gone.to.IsZero() && now.Sub(begun) >= p.duration/2 {
			gone = c.loseRegistry(p.gone, rate)
			flowing = true
		}
		if now.Sub(begun) >= p.duration && c.progress.acked >= p.messages && len(c.laneStops) >= stops && grown && c.enough(p) {
			return gone
		}
		if now.After(limit) {
			c.t.Fatalf("after %s there were %d messages, %d kills and %d stops of lanes: want %d, %d and %d; of others %v: want %v", now.Sub(begun).Round(time.Second),
				c.progress.acked, len(c.kills), len(c.laneStops), p.messages, p.kills, stops, c.counts, p.least)
		}
	}
}

// loseRegistry kills all replicas at once, and has them again when every session would have
// ended long ago. Before that there is peace, and nothing is left to do: what a process has not
// seen of a new lane by then, it waits for. For the same reason there are no messages of a
// color that nobody knows meanwhile.
func (c *chaos) loseRegistry(d time.Duration, rate int) (gone span) {
	c.t.Helper()
	c.rate(0)
	for range 2 { // who has just been let go on learns only then what it has missed
		c.calm()
		c.pass(sessionTTL / 2)
	}
	c.drained(time.Minute)
	c.skip(1)
	c.rate(rate)
	c.tellStory("all replicas are to be gone")
	gone.from = time.Now()
	for _, r := range c.replicas {
		c.killServer(r, sessionTTL+d)
	}
	gone.to = time.Now().Add(sessionTTL + d)
	c.counts["registry gone"]++
	c.pass(sessionTTL + d)
	c.calm()
	c.skip(0)
	return gone
}

// drained waits until producers are in no doubt and all that is in the log is settled, or for
// so long.
func (c *chaos) drained(most time.Duration) {
	c.t.Helper()
	for end := time.Now().Add(most); time.Now().Before(end); {
		if n, err := c.logged(); err == nil && c.progress.total >= n && len(c.progress.doubts) == 0 {
			return
		}
		c.buried()
		c.pass(100 * time.Millisecond)
	}
}

// logged is how many messages of producers the log has.
func (c *chaos) logged() (n int, err error) {
	for _, p := range sentTo() {
		ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
		b, err := c.log.Bounds(ctx, p)
		cancel()
		if err != nil && (p.Index < partitions || !c.grown.to.IsZero()) {
			return 0, err
		}
		n += int(b.End - b.First)
	}
	return n, nil
}

// openLog opens the engine once more, to see what is in it.
func openLog(t *testing.T, s *site) *jetstream.Engine {
	t.Helper()
	e, err := jetstream.Open(t.Context(), jetstream.Config{URL: "nats://" + s.engine.address, RequestTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// sentTo are the partitions that producers send to.
func sentTo() (out []consume.Partition) {
	for topic, l := range logs() {
		for i := range l.partitions {
			out = append(out, consume.Partition{Topic: topic, Index: i})
		}
	}
	return out
}

// drain waits until all that is in the log was handed out and settled, for as long as there is
// any progress. What is missing then is for the judge to find.
func (c *chaos) drain() {
	c.t.Helper()
	want, err := c.logged()
	if err != nil {
		c.t.Fatal(err)
	}
	c.tellStory("%d messages are to be settled, %d are", want, c.progress.total)
	last, at := -1, time.Now()
	for {
		f := c.buried()
		if f == nil {
			c.t.Fatal("the engine does not answer any more")
		}
		done, missing := f.outstanding(c.progress)
		done, missing = done+c.progress.total, missing+want-c.progress.total
		switch {
		case missing <= 0:
			c.tellStory("all are settled")
			return
		case done > last:
			last, at = done, time.Now()
		case time.Since(at) > *patienceFlag:
			c.tellStory("%d are not settled, and nothing happens", missing)
			return
		}
		c.pass(time.Second)
	}
}

// unsettled says what is missing when all has drained. What is lost comes again by a reset, and
// nobody could tell afterwards.
func (c *chaos) unsettled() (lost []string) {
	c.t.Helper()
	n := 0
	for _, p := range sentTo() {
		ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
		b, err := c.log.Bounds(ctx, p)
		cancel()
		if err != nil && p.Index >= partitions && c.grown.to.IsZero() {
			continue
		} else if err != nil {
			c.t.Fatal(err)
		}
		for at := b.First; at < b.End; at++ {
			if c.progress.settled[p].has(at) {
				continue
			}
			if n++; n <= 10 {
				lost = append(lost, fmt.Sprintf("lost %s@%d, before its group was reset", p, at))
			}
		}
	}
	if n > 0 {
		lost = append(lost, fmt.Sprintf("lost before a reset: %d", n))
	}
	return lost
}

// grow gives the first topic more partitions, if the engine is there just now.
func (c *chaos) grow() bool {
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	if c.grown.from.IsZero() {
		c.grown.from = time.Now()
	}
	if c.engine.busy || c.log.Grow(ctx, ordersTopic, grownTo) != nil {
		return false
	}
	c.grown.to = time.Now()
	c.tellStory("topic %s has %d partitions", ordersTopic, grownTo)
	return true
}

// keptFolder is a folder of the run, which stays if the run fails.
func keptFolder(t *testing.T) string {
	t.Helper()
	parent := *keepFlag
	if parent != "" {
		if err := os.MkdirAll(parent, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	folder, err := os.MkdirTemp(parent, "chaos-") //nolint:usetesting // it outlives a run that fails
	if err != nil {
		t.Fatal(err)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		switch {
		case t.Failed():
			t.Logf("ledgers, logs and the story of the run are kept in %s", folder)
			_ = os.RemoveAll(filepath.Join(folder, "data"))
		case *keepFlag == "":
			_ = os.RemoveAll(folder)
		}
	})
	return folder
}

// readLog gives every message that the engine has of a partition.
func readLog(ctx context.Context, engine *jetstream.Engine, p consume.Partition, each func(*consume.Message)) error {
	b, err := engine.Bounds(ctx, p)
	if err != nil {
		return err
	}
	for at := b.First; at < b.End; {
		got, err := engine.Read(ctx, p, at, consume.Filter{All: true}, 1024)
		if err != nil {
			return fmt.Errorf("read %s from %d: %w", p, at, err)
		}
		for _, m := range got.Messages {
			each(m)
		}
		at = got.Next
	}
	return nil
}
