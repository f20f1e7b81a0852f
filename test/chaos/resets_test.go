package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Shape of the reset.
const (
	resetID    = "again"
	resetLeast = 100 // messages that are settled and come again, in each partition
	resetMost  = 600
	resetKills = 3 // consumers that are killed meanwhile, and as many afterwards
)

// reset is a group that begins again, and from where.
type reset struct {
	from map[consume.Partition]int64
	at   time.Time // after all that was handed out before, and before all that was afterwards
}

// again says whether what was handed out at a time is what comes again.
func (r *reset) again(at place, begun time.Time) bool {
	from, ok := r.from[at.p]
	return ok && at.offset >= from && begun.After(r.at)
}

// anew is where a message lies for the judge that comes again: it is a message of its own.
func anew(at place) place {
	at.p.Topic += " again"
	return at
}

// beginAgain resets a group behind which nothing is left, and kills consumers while it does so.
// The group is paused meanwhile, so that it can be told from
// outside what was handed out before and what afterwards.
func (c *chaos) beginAgain() {
	c.t.Helper()
	c.calm()
	c.paused[ordersGroup] = true
	c.setPaused(ordersGroup, true, func() {})
	c.wait("all consumers to stand still", func() error {
		for _, s := range c.slots {
			if s.p != nil && !c.progress.books[s.life].quiet[ordersGroup] {
				return fmt.Errorf("%s does not", s.life)
			}
		}
		return nil
	})
	c.wait("the log", c.chooseReset)
	c.wait("the reset to be taken", func() error {
		return c.changeGroup(ordersGroup, func(g *laneclient.Group) {
			g.Reset = &laneclient.GroupReset{ID: resetID, Offsets: map[string]int64{}}
			for p, offset := range c.reset.from {
				g.Reset.Offsets[p.String()] = offset
			}
		})
	})
	c.killSome(resetKills)
	c.wait("all partitions to begin again", c.hasBegunAgain)
	if err := c.progress.look(); err != nil {
		c.t.Fatal(err)
	}
	c.reset.at = time.Now()
	for p, from := range c.reset.from {
		c.progress.unsettle(p, from)
	}
	c.setPaused(ordersGroup, false, func() { c.counts["reset"]++ })
	c.wait("the group to go on", func() error {
		if c.counts["reset"] == 0 {
			return errors.New("it is paused")
		}
		return nil
	})
	c.killSome(resetKills)
	c.calm()
}

// killSome kills consumers.
func (c *chaos) killSome(n int) {
	for range n {
		if what := c.killConsumer(); what != "" {
			c.counts[what]++
		}
	}
}

// wait lets time go by until something is so.
func (c *chaos) wait(what string, so func() error) {
	c.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; {
		err := so()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			c.t.Fatalf("waited for %s: %v", what, err)
		}
		c.pass(100 * time.Millisecond)
	}
}

// chooseReset chooses where each partition begins again: a little below all that is not
// settled, so that nothing is passed over.
func (c *chaos) chooseReset() error {
	from := map[consume.Partition]int64{}
	for i := range int32(grownTo) {
		p := consume.Partition{Topic: ordersTopic, Index: i}
		ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
		b, err := c.log.Bounds(ctx, p)
		cancel()
		if err != nil {
			return err
		}
		at := b.First
		for at < b.End && c.progress.settled[p].has(at) {
			at++
		}
		back := resetLeast + c.rng.Int64N(resetMost-resetLeast)
		from[p] = max(b.First, at-back)
		c.tellStory("%s begins again at %d, %d before what is not settled, with %d in the log", p, from[p], at-from[p], b.End)
	}
	c.reset.from = from
	return nil
}

// hasBegunAgain is nil when all partitions have.
func (c *chaos) hasBegunAgain() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), callTimeout)
	defer cancel()
	cursors, _, err := laneclient.ListAll[laneclient.Cursor](ctx, c.api, laneclient.ListOptions{Group: ordersGroup, Topic: ordersTopic})
	if err != nil {
		return err
	}
	begun := 0
	for i := range cursors {
		var record struct{ Reset string }
		if err := json.Unmarshal(cursors[i].Record, &record); err != nil {
			return err
		}
		if record.Reset == resetID {
			begun++
		}
	}
	if begun < len(c.reset.from) {
		return fmt.Errorf("%d of %d have", begun, len(c.reset.from))
	}
	return nil
}
