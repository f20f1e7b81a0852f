package chaos

import (
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Shape of what befalls producers.
const (
	muteAtMost  = 600 * time.Millisecond // for which one gets no answers before it is killed
	forgetOneIn = 4                      // of those that were killed: what they left in doubt is given up
)

// outlet is a place for a producer: one process after the other.
type outlet struct {
	name    string
	engine  *proxy
	runs    int
	p       *process // nil: none runs
	life    string
	lives   []string // all, the oldest first
	stopped bool     // by SIGSTOP
	away    bool     // something befalls it already
}

// addOutlets makes places for producers.
func (s *site) addOutlets(n int) {
	for i := range n {
		s.outlets = append(s.outlets, &outlet{name: fmt.Sprintf("p%d", i), engine: startProxy(s.t, s.engine.address)})
	}
}

func (s *site) sentBook(life string) string { return filepath.Join(s.folder, "sent", life) }

// produce starts the next producer of an outlet. It may give up what those before it have left
// in doubt.
func (c *chaos) produce(o *outlet, forget bool) {
	c.t.Helper()
	colors := []string{string(nowhere)}
	for _, l := range append(laneNames(), briefNames()...) {
		colors = append(colors, string(l))
	}
	var before []string
	for _, life := range o.lives {
		before = append(before, c.sentBook(life))
	}
	o.runs++
	o.life = fmt.Sprintf("%s.%d", o.name, o.runs)
	o.lives = append(o.lives, o.life)
	o.p = startMode(c.t, c.folder, o.life, "producer", nil, producerSettings{
		Life: o.life, Engine: "nats://" + o.engine.address(), Book: c.sentBook(o.life), Before: before, Forget: forget,
		Seed: c.rng.Uint64(), Topics: []string{ordersTopic, auditTopic}, Colors: colors,
	})
	o.stopped, o.away = false, false
	c.progress.watch(o.life, c.sentBook(o.life))
	c.tell(o, "skip %d", c.skipped)
	c.tell(o, "rate %d", c.perSecond/len(c.outlets))
	c.tellStory("%s begins, pid %d, forgetful %t", o.life, o.p.Cmd.Process.Pid, forget)
}

// tell has a producer do something.
func (c *chaos) tell(o *outlet, format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(o.p.in, format+"\n", args...); err != nil {
		c.t.Fatalf("producer %s has ended: %v: %s", o.life, err, tail(c.folder, o.life))
	}
}

// tellAll has all producers do something, but for those that are about to end.
func (c *chaos) tellAll(format string, args ...any) {
	c.t.Helper()
	for _, o := range c.outlets {
		if o.p != nil {
			c.tell(o, format, args...)
		}
	}
}

// rate has all producers together send so many messages a second.
func (c *chaos) rate(perSecond int) {
	c.t.Helper()
	c.perSecond = perSecond
	c.tellAll("rate %d", perSecond/len(c.outlets))
}

// skip has producers leave out the first colors.
func (c *chaos) skip(n int) {
	c.t.Helper()
	c.skipped = n
	c.tellAll("skip %d", n)
}

// burst has a producer send messages of a color at once, if there is one.
func (c *chaos) burst(l lane.Name, n int) bool {
	o := c.pickOutlet(func(o *outlet) bool { return o.p != nil && !o.stopped })
	if o == nil {
		return false
	}
	c.tell(o, "burst %s %d", l, n)
	c.progress.sends[o.life].bursts[l]++
	return true
}

// pickOutlet is an outlet at random; nil: there is none.
func (c *chaos) pickOutlet(able func(*outlet) bool) *outlet {
	var all []*outlet
	for _, o := range c.outlets {
		if able(o) {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[c.rng.IntN(len(all))]
}

// pickProducer is an outlet with a producer that nothing befalls just now; nil: there is none.
func (c *chaos) pickProducer() *outlet {
	return c.pickOutlet(func(o *outlet) bool { return o.p != nil && !o.away })
}

// ended takes in what a producer wrote last.
func (c *chaos) endedProducer(life string) {
	c.t.Helper()
	if err := c.progress.gone(life); err != nil {
		c.t.Fatal(err)
	}
}

// killProducer kills a producer. Before that it gets no answers for a while, mostly: so there
// is something in the log of which it does not know.
func (c *chaos) killProducer() string {
	o := c.pickProducer()
	if o == nil {
		return ""
	}
	o.away = true
	mute := time.Duration(0)
	if c.rng.IntN(4) > 0 {
		mute = c.between(0, muteAtMost)
		o.engine.mute()
	}
	c.later(mute, func() {
		before := time.Now()
		o.p.Kill()
		c.kills = append(c.kills, killed{o.life, before, time.Now()})
		o.engine.mend()
		c.endedProducer(o.life)
		o.p = nil
		c.counts["kill producer"]++
		c.tellStory("%s was killed, without an answer for %s", o.life, mute)
		c.later(c.between(0, 2*time.Second), func() { c.produce(o, c.rng.IntN(forgetOneIn) == 0) })
	})
	return "producer's end begun"
}

// stopProducer lets a producer finish what it has begun, and starts the next one later.
func (c *chaos) stopProducer() string {
	o := c.pickProducer()
	if o == nil {
		return ""
	}
	old, life := o.p, o.life
	o.p = nil
	c.tellStory("%s is to end", life)
	_ = old.in.Close()
	c.whenFinished(old, life, func() {
		c.later(c.between(0, 4*time.Second), func() { c.produce(o, false) })
	})
	return "stop producer"
}

// whenFinished goes on when a producer that was asked to end has.
func (c *chaos) whenFinished(p *process, life string, then func()) {
	begun := time.Now()
	c.until(50*time.Millisecond, func() bool {
		if !p.Ended() {
			if time.Since(begun) > finishProducer+time.Minute {
				c.t.Fatalf("%s does not end: %s", life, tail(c.folder, life))
			}
			return false
		}
		c.endedProducer(life)
		c.tellStory("%s has ended", life)
		then()
		return true
	})
}

func (c *chaos) haltProducer() string {
	o := c.pickProducer()
	if o == nil {
		return ""
	}
	d := c.between(200*time.Millisecond, 5*time.Second)
	o.p.Signal(syscall.SIGSTOP)
	o.stopped, o.away = true, true
	c.tellStory("%s is stopped for %s", o.life, d)
	c.later(d, func() {
		o.p.Signal(syscall.SIGCONT)
		o.stopped, o.away = false, false
		c.tellStory("%s goes on", o.life)
	})
	return "halt producer"
}

// succeedProducer starts a producer in the place of one that is taken for dead: it is stopped,
// and goes on while the next one sends what it has left in doubt.
func (c *chaos) succeedProducer() string {
	o := c.pickProducer()
	if o == nil {
		return ""
	}
	o.away = true
	o.engine.mute()
	c.later(c.between(0, muteAtMost), func() {
		old, life := o.p, o.life
		old.Signal(syscall.SIGSTOP)
		o.engine.cut()
		o.engine.mend()
		c.tellStory("%s is taken for dead", life)
		c.produce(o, false)
		c.later(c.between(0, 3*time.Second), func() {
			old.Signal(syscall.SIGCONT)
			c.tellStory("%s goes on, and is to end", life)
			_ = old.in.Close()
			c.whenFinished(old, life, func() {})
		})
	})
	return "succeed producer"
}

// cutProducer cuts a producer's connection, or keeps it from the engine for a while.
func (c *chaos) cutProducer() string {
	o := c.pickProducer()
	if o == nil {
		return ""
	}
	d, how := c.between(200*time.Millisecond, 4*time.Second), c.rng.IntN(4)
	c.tellStory("%s is cut off from the engine for %s, in way %d", o.life, d, how)
	switch how {
	case 0:
		o.engine.cut()
		return "cut producer"
	case 1:
		o.engine.refuse()
	case 2:
		o.engine.silence()
	default:
		o.engine.mute()
	}
	o.away = true
	c.later(d, func() {
		o.engine.mend()
		o.away = false
		c.tellStory("%s has the engine again", o.life)
	})
	return "producer cut off"
}

// lookAfterProducers sees to it that none has ended by itself.
func (c *chaos) lookAfterProducers() {
	c.t.Helper()
	for _, o := range c.outlets {
		if o.p != nil && o.p.Ended() {
			c.t.Fatalf("%s has ended by itself: %s", o.life, tail(c.folder, o.life))
		}
	}
}

// producing reports whether every outlet has a producer that nothing befalls, as long as
// anything is to be sent.
func (c *chaos) producing() bool {
	return c.allSent || !slices.ContainsFunc(c.outlets, func(o *outlet) bool { return o.p == nil || o.away })
}

// stopProducing has the producers finish what they have begun.
func (c *chaos) stopProducing() {
	c.t.Helper()
	for _, o := range c.outlets {
		_ = o.p.in.Close()
	}
	for _, o := range c.outlets {
		select {
		case <-o.p.Done:
		case <-time.After(finishProducer + time.Minute):
			c.t.Fatalf("%s does not end: %s", o.life, tail(c.folder, o.life))
		}
		c.endedProducer(o.life)
		o.p = nil
	}
	c.allSent = true
}
