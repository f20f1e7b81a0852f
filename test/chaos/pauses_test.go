package chaos

import (
	"context"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// pauseGroup pauses a group for a while.
func (c *chaos) pauseGroup() string {
	group := ordersGroup
	if c.rng.IntN(3) == 0 {
		group = auditGroup
	}
	if c.paused[group] {
		return ""
	}
	c.paused[group] = true
	d := c.between(3*time.Second, 8*time.Second)
	c.setPaused(group, true, func() {
		c.later(d, func() {
			c.setPaused(group, false, func() {
				c.paused[group] = false
				c.counts["pause"]++
			})
		})
	})
	return ""
}

// setPaused pauses a group, or lets it go on, as soon as the control plane takes it.
func (c *chaos) setPaused(group string, paused bool, then func()) {
	begun := time.Now()
	c.until(100*time.Millisecond, func() bool {
		if err := c.site.setPaused(group, paused); err != nil {
			if time.Since(begun) > 2*time.Minute {
				c.t.Fatalf("group %s cannot be paused, %t: %v", group, paused, err)
			}
			return false
		}
		c.tellStory("group %s is paused: %t", group, paused)
		then()
		return true
	})
}

func (s *site) setPaused(group string, paused bool) error {
	return s.changeGroup(group, func(g *laneclient.Group) { g.Paused = paused })
}

func (s *site) changeGroup(group string, change func(*laneclient.Group)) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), callTimeout)
	defer cancel()
	g, err := laneclient.Get[laneclient.Group](ctx, s.api, group)
	if err != nil {
		return err
	}
	change(g)
	_, err = laneclient.Put(ctx, s.api, g, laneclient.IfMatch(g.Revision))
	return err
}

// groupOf is the group that reads a topic.
func groupOf(topic string) string {
	topic, _, _ = strings.Cut(topic, ".") // of a retry topic, that which it belongs to
	return logs()[topic].group
}

// Views writes down what the consumer is about to be told of pauses, and when it has nothing of
// a group in hand that it knows to be paused: from then until it is told otherwise it may not
// be handed anything.
func (w *watched) Views(ctx context.Context, group string) <-chan consume.Update {
	in, out := w.Client.Views(ctx, group), make(chan consume.Update)
	go func() {
		defer close(out)
		paused, quiet, told := false, false, false
		for u := range in {
			if u.View != nil && u.View.Group.Paused != paused {
				paused, quiet, told = u.View.Group.Paused, false, false
				w.book.write(linePaused, "%s %t", group, paused)
			}
			if u.View != nil && u.View.Group.Reset != nil {
				w.again.Store(true)
			}
			select {
			case out <- u:
			case <-ctx.Done():
				return
			}
			// When it takes the next update it has put the last one where the question for its
			// figures goes, too, which is answered after that.
			if paused && told && !quiet && w.idle(group) {
				quiet = true
				w.book.write(lineQuiet, "%s", group)
			}
			told = paused
		}
	}()
	return out
}

// idle reports whether a consumer has nothing in hand.
func (w *watched) idle(group string) bool {
	w.mu.Lock()
	c := w.consumers[group]
	w.mu.Unlock()
	return c != nil && c.Stats().InFlight == 0
}

// entered notes who consumes for a group.
func (w *watched) entered(group string, c *consume.Consumer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.consumers[group] = c
}
