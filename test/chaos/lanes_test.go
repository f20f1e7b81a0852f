package chaos

import (
	"context"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// stopLane has messages sent to a lane, more than it can have handled, and then stops all its
// consumers at once, cleanly or not, for a while.
func (c *chaos) stopLane() string {
	l := laneNames()[c.rng.IntN(len(laneNames()))]
	slots := c.slotsOf(l)
	if slots == nil || c.busy[l] {
		return ""
	}
	c.busy[l] = true
	c.fill(l, slots, func(filled bool) {
		if !filled {
			c.busy[l] = false
			return
		}
		c.laneStops = append(c.laneStops, c.stopSlots(l, slots))
		back := c.between(500*time.Millisecond, 2*sessionTTL)
		c.whenEnded(slots, func() {
			c.later(back, func() {
				for _, s := range slots {
					c.begin(s)
				}
				c.busy[l] = false
			})
		})
	})
	return "lane stop begun"
}

// endBrief has a lane end that has messages unread, stops its consumers, and then creates the
// lane anew.
func (c *chaos) endBrief(l lane.Name) {
	slots := c.slotsOf(l)
	if slots == nil {
		return
	}
	c.busy[ending] = true
	c.fill(l, slots, func(filled bool) {
		if !filled {
			c.busy[ending] = false
			return
		}
		at := time.Now()
		c.until(time.Second, func() bool {
			if err := c.endLane(l); err != nil {
				c.tellStory("lane %s does not end: %v", l, err)
				return false
			}
			c.tellStory("lane %s is to end", l)
			c.later(c.between(0, 4*time.Second), func() {
				stop := c.stopSlots(l, slots)
				stop.at = at
				c.laneStops = append(c.laneStops, stop)
				c.whenEnded(slots, func() { c.renew(l, slots) })
			})
			return true
		})
	})
}

// renew creates a lane anew as soon as its last generation has ended.
func (c *chaos) renew(l lane.Name, slots []*slot) {
	begun := time.Now()
	c.until(time.Second, func() bool {
		if err := c.createLane(l); err != nil {
			if time.Since(begun) > 5*time.Minute {
				c.t.Fatalf("lane %s cannot be created again: %v", l, err)
			}
			return false
		}
		c.tellStory("lane %s is there again", l)
		for _, s := range slots {
			c.begin(s)
		}
		c.ended++
		c.counts["lane end"]++
		c.busy[ending] = false
		return true
	})
}

// slotsOf are a lane's slots, if all of them have consumers that nothing has befallen lately.
func (c *chaos) slotsOf(l lane.Name) (slots []*slot) {
	for _, s := range c.slots {
		if s.lane != l {
			continue
		}
		if !s.running() || s.stopped || s.away || time.Since(s.joined) < 2*time.Second {
			return nil
		}
		slots = append(slots, s)
	}
	return slots
}

// fill has messages sent to a lane until enough of them are unread, and says whether that was
// so. Until then and afterwards nothing else befalls its consumers.
func (c *chaos) fill(l lane.Name, slots []*slot, then func(bool)) {
	for _, s := range slots {
		s.away = true
	}
	before, told, begun := c.progress.bursts[l], 0, time.Now()
	c.until(50*time.Millisecond, func() bool {
		over := c.progress.bursts[l] >= before+told
		switch {
		case told > 0 && over && c.progress.unread[l] >= stopUnread:
			then(true)
		case told == stopTries && over || time.Since(begun) > time.Minute:
			c.tellStory("lane %s has too little unread", l)
			for _, s := range slots {
				s.away = false
			}
			then(false)
		default:
			if over && c.burst(l, stopBurst) {
				told++
			}
			return false
		}
		return true
	})
}

// stopSlots stops all consumers of a lane at once, cleanly or not.
func (c *chaos) stopSlots(l lane.Name, slots []*slot) laneStop {
	stop := laneStop{lane: l, at: time.Now()}
	clean := c.rng.IntN(2) == 0
	for _, s := range slots {
		stop.lives = append(stop.lives, s.life)
		if clean {
			s.p.Signal(syscall.SIGTERM)
		} else {
			c.kill(s)
		}
	}
	c.tellStory("lane %s is stopped, cleanly %t: %v", l, clean, stop.lives)
	return stop
}

// whenEnded goes on when consumers that were asked to end have.
func (c *chaos) whenEnded(slots []*slot, then func()) {
	begun := time.Now()
	c.until(50*time.Millisecond, func() bool {
		for _, s := range slots {
			if s.p == nil {
				continue
			}
			if !s.p.Ended() {
				if time.Since(begun) > 4*handover {
					s.p.Signal(syscall.SIGQUIT) // which tells where it stands
					<-s.p.Done
					c.t.Fatalf("%s does not end: %s", s.life, tail(c.folder, s.life))
				}
				return false
			}
			c.tellStory("%s has ended", s.life)
			s.p = nil
		}
		then()
		return true
	})
}

// buried notes which messages of strict lanes that have ended are dead. Nil: the engine does
// not answer just now.
func (c *chaos) buried() *failed {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	f, err := readFailed(ctx, c.log)
	if err != nil {
		return nil
	}
	for at, m := range f.buried() {
		c.progress.done(at, message{m.Color, string(m.Value)})
	}
	return f
}
