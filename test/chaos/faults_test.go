package chaos

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
)

// Shape of a lane's stop.
const (
	stopBurst  = 3000 // messages that are sent to it just before
	stopUnread = 1800 // of its messages that must be unsettled then, as far as is known
	stopTries  = 6    // bursts until that is so
)

// killed is a process that was killed, and when: not before, and not after.
type killed struct {
	name          string
	before, after time.Time
}

// halted is a process that was stopped by SIGSTOP, from when on.
type halted struct {
	life string
	at   time.Time
}

// laneStop is when the last consumers of a lane were stopped.
type laneStop struct {
	lane  lane.Name
	at    time.Time
	lives []string
}

// chaos makes faults.
type chaos struct {
	*site
	log      *jetstream.Engine // the engine, as the judge sees it
	rng      *rand.Rand
	progress *progress
	story    *os.File // all that was done, and when

	agenda    []deed
	busy      map[lane.Name]bool // lanes that are being stopped or are stopped
	kills     []killed
	halts     []halted
	laneStops []laneStop
	ended     int             // lanes that have ended and come back
	counts    map[string]int  // faults by kind
	paused    map[string]bool // groups that are, or are about to be
	perSecond int             // messages that producers are to send
	skipped   int             // colors that they leave out
	allSent   bool            // producers have ended for good
	grown     span            // when the first topic got more partitions
	reset     reset           // of the first group
}

// ending stands for all lanes of briefNames: one of them ends at a time.
const ending = lane.Name("")

// deed is something that is done later.
type deed struct {
	at time.Time
	do func()
}

func newChaos(s *site, log *jetstream.Engine, seed uint64) *chaos {
	s.t.Helper()
	story, err := os.Create(filepath.Join(s.folder, "story"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = story.Close() })
	return &chaos{
		site: s, log: log, rng: rand.New(rand.NewPCG(seed, 0)), progress: newProgress(), story: story,
		busy: map[lane.Name]bool{}, counts: map[string]int{}, paused: map[string]bool{},
	}
}

// tellStory notes what was done.
func (c *chaos) tellStory(format string, args ...any) {
	_, _ = fmt.Fprintf(c.story, time.Now().Format("15:04:05.000000 ")+format+"\n", args...)
}

func (c *chaos) later(d time.Duration, do func()) {
	c.agenda = append(c.agenda, deed{time.Now().Add(d), do})
}

// until does something now and then until it reports true.
func (c *chaos) until(every time.Duration, do func() bool) {
	c.later(every, func() {
		if !do() {
			c.until(every, do)
		}
	})
}

// between is a time at random.
func (c *chaos) between(least, most time.Duration) time.Duration {
	return least + time.Duration(c.rng.Int64N(int64(most-least)))
}

// begin starts the next consumer of a slot.
func (c *chaos) begin(s *slot) {
	c.consume(s)
	c.progress.follow(s.life, c.book(s.life))
	c.tellStory("%s begins, pid %d", s.life, s.p.Cmd.Process.Pid)
}

// pump does what is due, and takes in what consumers have written.
func (c *chaos) pump() {
	c.t.Helper()
	now := time.Now()
	var due []deed
	c.agenda = slices.DeleteFunc(c.agenda, func(d deed) bool {
		if d.at.After(now) {
			return false
		}
		due = append(due, d)
		return true
	})
	for _, d := range due {
		d.do()
	}
	if err := c.progress.look(); err != nil {
		c.t.Fatal(err)
	}
	for _, s := range c.slots {
		if s.p == nil || s.away {
			continue
		}
		s.joined = c.progress.joined(s.life, 2)
		if s.p.Ended() {
			c.t.Fatalf("%s has ended by itself: %s", s.life, tail(c.folder, s.life))
		}
	}
	c.lookAfterProducers()
	for _, r := range append(slices.Clone(c.replicas), c.engine) {
		if r.p.Ended() && !r.busy {
			c.t.Fatalf("%s has ended by itself: %s", r.p.name, tail(c.folder, r.p.name))
		}
	}
}

// fault makes one fault at random, if there is one to be made just now.
func (c *chaos) fault() {
	kinds := []struct {
		weight int
		do     func() (what string)
	}{
		{22, c.killConsumer},
		{22, c.stopLane},
		{8, func() string { return c.haltConsumer("halt", c.between(200*time.Millisecond, sessionTTL/3)) }},
		{5, func() string { return c.haltConsumer("halt long", sessionTTL+c.between(time.Second, 5*time.Second)) }},
		{10, c.cutConsumer},
		{5, func() string { return c.outage("cut off", c.between(time.Second, sessionTTL/3)) }},
		{5, func() string { return c.outage("cut off long", sessionTTL+c.between(time.Second, 5*time.Second)) }},
		{5, c.engineOutage},
		{7, c.killReplica},
		{3, c.haltReplica},
		{5, c.killEngine},
		{3, c.haltEngine},
		{8, c.killProducer},
		{4, c.stopProducer},
		{4, c.haltProducer},
		{4, c.succeedProducer},
		{5, c.cutProducer},
		{6, c.pauseGroup},
	}
	sum := 0
	for _, k := range kinds {
		sum += k.weight
	}
	n := c.rng.IntN(sum)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			if what := k.do(); what != "" {
				c.counts[what]++
			}
			return
		}
	}
}

// pick is a consumer at random that has begun and that nobody is about to stop; nil: there is
// none.
func (c *chaos) pick() *slot {
	var able []*slot
	for _, s := range c.slots {
		if s.running() && !s.away && !s.stopped {
			able = append(able, s)
		}
	}
	if len(able) == 0 {
		return nil
	}
	return able[c.rng.IntN(len(able))]
}

// kill kills a consumer.
func (c *chaos) kill(s *slot) {
	before := time.Now()
	s.p.Kill()
	c.kills = append(c.kills, killed{s.life, before, time.Now()})
	c.tellStory("%s was killed", s.life)
	s.p, s.stopped = nil, false
}

func (c *chaos) killConsumer() string {
	s := c.pick()
	if s == nil {
		return ""
	}
	c.kill(s)
	c.later(c.between(0, 2*time.Second), func() {
		if s.p == nil && !s.away {
			c.begin(s)
		}
	})
	return "kill"
}

func (c *chaos) haltConsumer(what string, d time.Duration) string {
	s := c.pick()
	if s == nil {
		return ""
	}
	c.halts = append(c.halts, halted{s.life, time.Now()})
	s.p.Signal(syscall.SIGSTOP)
	s.stopped = true
	life := s.life
	c.tellStory("%s is stopped for %s", life, d)
	c.later(d, func() {
		if s.life == life && s.p != nil {
			s.p.Signal(syscall.SIGCONT)
			s.stopped = false
			c.tellStory("%s goes on", life)
		}
	})
	return what
}

func (c *chaos) cutConsumer() string {
	s := c.pick()
	if s == nil {
		return ""
	}
	c.tellStory("%s has its connections cut", s.life)
	s.engine.cut()
	for _, p := range s.control {
		p.cut()
	}
	return "cut"
}

// outage keeps a consumer from the control plane.
func (c *chaos) outage(what string, d time.Duration) string {
	s := c.pick()
	if s == nil {
		return ""
	}
	silent := c.rng.IntN(2) == 0
	c.tellStory("%s is cut off from the control plane for %s, silently %t", s.life, d, silent)
	for _, p := range s.control {
		if silent {
			p.silence()
		} else {
			p.refuse()
		}
	}
	c.later(d, func() {
		for _, p := range s.control {
			p.mend()
		}
		c.tellStory("%s has the control plane again", s.name)
	})
	return what
}

// engineOutage keeps a consumer from the engine.
func (c *chaos) engineOutage() string {
	s := c.pick()
	if s == nil {
		return ""
	}
	d, silent := c.between(500*time.Millisecond, 6*time.Second), c.rng.IntN(2) == 0
	c.tellStory("%s is cut off from the engine for %s, silently %t", s.life, d, silent)
	if silent {
		s.engine.silence()
	} else {
		s.engine.refuse()
	}
	c.later(d, func() {
		s.engine.mend()
		c.tellStory("%s has the engine again", s.name)
	})
	return "engine cut off"
}

// spare is a replica at random without which the others go on; nil: there is none.
func (c *chaos) spare() *replica {
	for _, r := range c.replicas {
		if !c.healthy(r) {
			return nil
		}
	}
	return c.replicas[c.rng.IntN(len(c.replicas))]
}

func (c *chaos) killReplica() string {
	r := c.spare()
	if r == nil {
		return ""
	}
	c.killServer(r, c.between(0, 3*time.Second))
	return "kill control"
}

// killServer kills a server, and starts it again after a while.
func (c *chaos) killServer(r *replica, d time.Duration) {
	r.busy = true
	before := time.Now()
	r.p.Kill()
	c.kills = append(c.kills, killed{r.p.name, before, time.Now()})
	c.tellStory("%s was killed", r.p.name)
	c.later(d, func() { c.relaunch(r) })
}

// relaunch starts a server that was killed.
func (c *chaos) relaunch(r *replica) {
	c.launch(r, r.p.name)
	c.tellStory("%s is started", r.p.name)
	c.until(50*time.Millisecond, func() bool {
		if r.p.Ended() {
			c.t.Fatalf("%s has ended by itself: %s", r.p.name, tail(c.folder, r.p.name))
		}
		if !r.isReady() {
			return false
		}
		r.busy = false
		c.tellStory("%s is ready", r.p.name)
		return true
	})
}

func (c *chaos) haltReplica() string {
	r := c.spare()
	if r == nil {
		return ""
	}
	c.haltServer(r, c.between(time.Second, 5*time.Second))
	return "halt control"
}

func (c *chaos) haltServer(r *replica, d time.Duration) {
	r.busy = true
	r.p.Signal(syscall.SIGSTOP)
	c.tellStory("%s is stopped for %s", r.p.name, d)
	c.later(d, func() {
		r.p.Signal(syscall.SIGCONT)
		r.busy = false
		c.tellStory("%s goes on", r.p.name)
	})
}

func (c *chaos) killEngine() string {
	if c.engine.busy {
		return ""
	}
	c.killServer(c.engine, c.between(0, 2*time.Second))
	return "kill engine"
}

func (c *chaos) haltEngine() string {
	if c.engine.busy {
		return ""
	}
	c.haltServer(c.engine, c.between(500*time.Millisecond, 4*time.Second))
	return "halt engine"
}

// calm waits until everything is mended, and all consumers and producers are there.
func (c *chaos) calm() {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(4 * time.Minute); ; <-tick.C {
		c.pump()
		ok := len(c.agenda) == 0 && c.producing()
		for _, s := range c.slots {
			ok = ok && s.running() && c.progress.sure(s.life, 2)
		}
		if ok {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the site does not calm down: %s", c.standing())
		}
	}
}

// standing is where consumers stand.
func (c *chaos) standing() (text string) {
	for _, s := range c.slots {
		if !s.running() || !c.progress.sure(s.life, 2) {
			text += fmt.Sprintf("%s runs %t, joined %v; %s\n", s.life, s.p != nil, s.joined, tail(c.folder, s.life))
		}
	}
	return text
}

// pass lets time go by.
func (c *chaos) pass(d time.Duration) {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-tick.C {
		c.pump()
	}
}
