package consume_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

var (
	faultSeeds = flag.Int("seeds", 0, "how many seeds TestRunnerFaults runs; 0: as many as CI does")
	faultFrom  = flag.Int("from", 0, "the first of them")
)

// faultSlack is how long before an outage a message may have been settled that is handed out
// again: until the last note, and an answer to one that was repeated.
const faultSlack = 8 * time.Second

// play is one seed: processes that come and go, are killed and cut off, over one topic, and
// everything that consumers were handed.
type play struct {
	*stage
	seed    uint64
	rng     *rand.Rand
	options consume.Options
	running map[string]*player
	sent    int
	faint   int // so many of a hundred handlers fail or give back
	slow    time.Duration

	mu      sync.Mutex
	hands   map[string][]*hand // by message and attempt
	order   map[string]int64   // the last first dispatch, by partition and color
	busy    map[string]int     // handlers of an ordered group that run, by partition and color
	outages []outage
}

// hand is one time that a consumer was handed a message.
type hand struct {
	by       *player
	at, done time.Time // done: zero while it lasts
	err      error     // that the handler returned
}

// outage is when a player was killed or out of the registry's reach.
type outage struct {
	who      *player
	from, to time.Time // to: zero while it lasts
}

type player struct {
	*process
	name string
	lane lane.Name
	dead bool // guarded by the play's mu
	cut  bool
}

var errFault = errors.New("it did not work")

// TestRunnerFaults: processes are started, stopped, killed and cut off, answers get lost,
// handlers are slow and fail. Every message is worked on with success in the end, by whom it is
// for, and handed out again only where it was given back, has failed, or was with a process
// that was lost; an ordered group has one color with one consumer at a time, and first hands
// its messages out in order.
func TestRunnerFaults(t *testing.T) {
	seeds := *faultSeeds
	if seeds == 0 {
		if seeds = 25; testing.Short() {
			seeds = 8
		}
	}
	for seed := *faultFrom; seed < *faultFrom+seeds; seed++ {
		synctest.Test(t, func(t *testing.T) { playSeed(t, uint64(seed)) })
		if t.Failed() {
			t.Fatalf("replay it with: go test ./consume -run TestRunnerFaults -from %d -seeds 1", seed)
		}
	}
}

func playSeed(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	p := &play{
		stage: newStage(t, int32(1+rng.IntN(3))), seed: seed, rng: rng, running: map[string]*player{},
		hands: map[string][]*hand{}, order: map[string]int64{}, busy: map[string]int{}, faint: rng.IntN(3) * 5,
		slow: time.Duration(rng.IntN(4)) * 30 * time.Millisecond,
	}
	p.options.Config.Ordered = seed%3 == 0
	p.options.Config.OnLoss = consume.LossPolicy(rng.IntN(3))
	p.options.Config.RetryDelays = []time.Duration{100 * time.Millisecond, time.Second, time.Second, time.Second, time.Second, time.Second, time.Second, time.Second}
	p.options.Config.Window = 5 + rng.IntN(100)
	p.options.KeyOrder = rng.IntN(2) == 0
	p.options.Concurrency = 1 + rng.IntN(8)
	if p.options.Config.Ordered {
		p.options.Concurrency = 1
		p.options.Config.OnLoss = consume.LossHold
	}
	for _, l := range [][2]lane.Name{{"red", ""}, {"pink", "red"}, {"strict-load", ""}} {
		if err := p.registry.CreateLane(l[0], l[1]); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 {
		p.step()
		pass(time.Duration(rng.IntN(200)) * time.Millisecond)
	}
	p.settle()
	p.verify()
	for _, w := range p.running {
		w.stop(t)
	}
	_ = p.engine.Close()
}

// lanes that consumers and messages have.
func playLanes() []lane.Name { return []lane.Name{"", "red", "pink", "strict-load"} }

// step does one thing at random.
func (p *play) step() {
	l := playLanes()[p.rng.IntN(4)]
	name := fmt.Sprintf("%s.%d", l, p.rng.IntN(2))
	w := p.running[name]
	switch p.rng.IntN(12) {
	case 0, 1:
		if w == nil {
			p.join(name, l)
		}
	case 2:
		if w != nil && !w.cut {
			w.stop(p.t)
			delete(p.running, name)
		}
	case 3:
		if w != nil {
			p.kill(w)
		}
	case 4:
		if w != nil && !w.cut {
			w.access.Cut()
			w.cut = true
			p.out(w)
		}
	case 5, 6:
		for _, w := range p.running {
			if w.cut {
				p.mend(w)
				break
			}
		}
	case 7:
		if w != nil {
			w.access.LoseAnswers(1 + p.rng.IntN(3))
		}
	case 8:
		pass(time.Duration(p.rng.IntN(15)) * time.Second)
	default:
		n := p.rng.IntN(30)
		for range n {
			m := &consume.Message{
				Partition: consume.Partition{Topic: "orders", Index: -1}, Key: fmt.Append(nil, p.rng.IntN(9)), Color: l,
				Value: fmt.Append(nil, p.sent),
			}
			p.sent++
			if err := p.engine.Append(p.t.Context(), m); err != nil {
				p.t.Fatal(err)
			}
		}
	}
}

func (p *play) join(name string, in lane.Name) {
	w := &player{name: name, lane: in}
	o := p.options
	o.Handle = func(_ context.Context, d *consume.Delivery) error { return p.work(w, d) }
	w.process = p.startWith(name, in, o)
	p.running[name] = w
}

// kill ends a process without a word to anybody: what it does afterwards does not count.
func (p *play) kill(w *player) {
	p.mu.Lock()
	w.dead = true
	p.mu.Unlock()
	p.out(w)
	w.access.Cut()
	w.cancel()
	delete(p.running, w.name)
}

// out notes that a process is lost to the others from now on.
func (p *play) out(w *player) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outages = append(p.outages, outage{who: w, from: time.Now()})
}

func (p *play) mend(w *player) {
	w.access.Mend()
	w.cut = false
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.outages {
		if o := &p.outages[i]; o.who == w && o.to.IsZero() {
			o.to = time.Now()
		}
	}
}

// settle lets everything come to rest, with a consumer in each lane.
func (p *play) settle() {
	for _, w := range p.running {
		if w.cut {
			p.mend(w)
		}
	}
	for _, l := range playLanes() {
		if name := fmt.Sprintf("%s.0", l); p.running[name] == nil {
			p.join(name, l)
		}
	}
	pass(2 * time.Minute) // also for what must not be handed out once more
}

// work is every consumer's handler.
func (p *play) work(w *player, d *consume.Delivery) error {
	id := fmt.Sprintf("%s#%d", d.Value, d.Attempt)
	place := fmt.Sprintf("%s %s", d.Partition, d.Color)
	p.mu.Lock()
	if w.dead {
		p.mu.Unlock()
		return consume.ErrReturn
	}
	p.judge(w, d, id, place)
	h := &hand{by: w, at: time.Now()}
	p.hands[id] = append(p.hands[id], h)
	p.busy[place]++
	takes := p.slow
	rng := rand.New(rand.NewPCG(p.seed, uint64(1000*d.Offset)+uint64(len(p.hands[id])))) // in whatever order handlers run
	if rng.IntN(50) == 0 {
		takes += 2 * time.Second
	}
	var err error
	if rng.IntN(100) < p.faint {
		err = errFault
		if rng.IntN(2) == 0 {
			err = consume.ErrReturn
		}
	}
	p.mu.Unlock()
	pass(takes)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy[place]--
	if !w.dead {
		h.done, h.err = time.Now(), err
	}
	return err
}

// judge says what is wrong with handing out a message now.
func (p *play) judge(w *player, d *consume.Delivery, id, place string) {
	bad := func(format string, args ...any) {
		p.t.Errorf("seed %d: %s at %s to %s: %s", p.seed, id, place, w.name, fmt.Sprintf(format, args...))
	}
	chain := map[lane.Name][]lane.Name{"": {""}, "red": {"red", ""}, "pink": {"pink", "red", ""}, "strict-load": {"strict-load"}}[d.Color]
	for i, l := range chain {
		if l == w.lane {
			break
		}
		if i == len(chain)-1 {
			bad("a message of color %q", d.Color)
		}
	}
	if at := p.holds(w); !at.IsZero() {
		bad("its lease has run out at %v, and the group is to hold still", at)
	}
	hands := p.hands[id]
	if len(hands) == 0 {
		if last, ok := p.order[place]; ok && p.options.Config.Ordered && d.Offset < last {
			bad("offset %d comes after %d for the first time", d.Offset, last)
		}
		p.order[place] = max(p.order[place], d.Offset)
	}
	if p.options.Config.Ordered && p.busy[place] > 0 && !p.lost(time.Now()) {
		bad("another consumer works on the same color")
	}
	known := false // to the cursor's holders, one after the other
	for i, h := range hands {
		known = known || !p.outside(h)
		gaveBack := !h.done.IsZero() && errors.Is(h.err, consume.ErrReturn)
		if gaveBack || p.excused(h) || p.excusedNow(w) {
			continue
		}
		bad("it was with %s at %v, done %v, %v (%d of %d)", h.by.name, h.at, h.done, h.err, i, len(hands))
	}
	if known && !d.Redelivered && !p.excusedNow(w) {
		bad("it is not said to be redelivered")
	}
}

// lost reports whether a process is lost now, or was lately.
func (p *play) lost(now time.Time) bool {
	for _, o := range p.outages {
		if o.to.IsZero() || now.Sub(o.to) < faultSlack {
			return true
		}
	}
	return false
}

// excused reports whether what a consumer did may have been lost with its process.
func (p *play) excused(h *hand) bool {
	for _, o := range p.outages {
		if o.who == h.by && (h.done.IsZero() || !h.done.Before(o.from.Add(-faultSlack)) && (o.to.IsZero() || h.at.Before(o.to.Add(faultSlack)))) {
			return true
		}
	}
	return false
}

// holds is when a process had to stop dispatching, if it did.
func (p *play) holds(w *player) time.Time {
	const look = 200 * time.Millisecond // how long it takes to see it
	if c := p.options.Config; c.OnLoss != consume.LossHold && (c.OnLoss != consume.LossDefault || !c.Ordered) {
		return time.Time{}
	}
	for _, o := range p.outages {
		until := o.from.Add(consume.DefaultMemoryTTL - consume.DefaultMemoryMargin + look)
		if o.who == w && o.to.IsZero() && time.Now().After(until) {
			return until
		}
	}
	return time.Time{}
}

// outside reports whether a consumer was handed a message by a process that was cut off: it
// may go on with what came after another one has taken its cursor.
func (p *play) outside(h *hand) bool {
	for _, o := range p.outages {
		if o.who == h.by && !h.at.Before(o.from) && (o.to.IsZero() || h.at.Before(o.to.Add(faultSlack))) {
			return true
		}
	}
	return false
}

// excusedNow reports whether a process may not know yet that others have taken over.
func (p *play) excusedNow(w *player) bool {
	for _, o := range p.outages {
		if o.who == w && (o.to.IsZero() || time.Since(o.to) < faultSlack) {
			return true
		}
	}
	return false
}

// verify says what has not been worked on in the end.
func (p *play) verify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	done := map[string]bool{}
	for id, hands := range p.hands {
		for _, h := range hands {
			if !h.done.IsZero() && h.err == nil {
				var n, attempt int
				if _, err := fmt.Sscanf(id, "%d#%d", &n, &attempt); err != nil {
					p.t.Fatal(err)
				}
				done[fmt.Sprint(n)] = true
			}
		}
	}
	dead, err := p.engine.Peek(consume.Partition{Topic: "orders-dead"}, 0, consume.Filter{All: true}, 10_000)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, m := range dead.Messages {
		done[string(m.Value)] = true
	}
	for n := range p.sent {
		if !done[fmt.Sprint(n)] {
			p.t.Errorf("seed %d: message %d is lost: %d hands of its first try", p.seed, n, len(p.hands[fmt.Sprintf("%d#0", n)]))
		}
	}
}
