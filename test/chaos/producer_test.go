package chaos

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// producerSettings are those of a producer's process.
type producerSettings struct {
	Life   string
	Engine string
	Book   string
	Before []string // books of those that had its place before, the oldest first
	Forget bool     // what they left in doubt is given up
	Seed   uint64
	Topics []string // the first gets most
	Colors []string // of messages beside plain ones
}

// Shape of what producers send by themselves.
const (
	producerTick   = 20 * time.Millisecond
	senders        = 4               // that a producer has, each with one call under way
	producerBatch  = 20              // messages of one color in one call
	burstBatch     = 250             // of a burst
	finishProducer = 3 * time.Minute // for which one that is to end tries to finish what it has begun
)

// producer sends messages until its standard input ends, and then finishes what it has begun.
// It is told there what to do:
//
//	rate N         send N messages a second, of colors at random
//	skip N         leave out the first N of the colors from now on
//	burst COLOR N  send N messages of a color at once
//
// Before it sends anything it writes down what, and afterwards that the engine has taken it. So
// a producer that follows one that was killed knows what is in doubt, and sends that again.
type producer struct {
	s    producerSettings
	out  *consume.Producer
	book *book
	rate atomic.Int64
	skip atomic.Int64 // so many of the first colors are left out
	next atomic.Int64 // number of the next message
}

// nobody is the identity of producers: what they send has the color that they say.
type nobody struct{}

func (nobody) Process() lane.Name { return lane.Baseline }
func (nobody) Used(lane.Name)     {}

func beProducer(s producerSettings) error {
	life, end := context.WithCancel(context.Background())
	defer end()
	b, err := openBook(s.Book)
	if err != nil {
		return err
	}
	doubtful, err := inDoubt(s.Before)
	if err != nil {
		return err
	}
	engine, err := openEngine(life, s.Engine, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	p := &producer{s: s, out: consume.NewProducer(engine, nobody{}), book: b}
	asked, stop := context.WithCancel(life)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		p.inherit(life, doubtful)
		for i := range senders {
			wg.Go(func() { p.flow(life, asked, i) })
		}
	})
	if err := p.obey(life, asked, &wg); err != nil {
		return err
	}
	stop()
	return p.finish(&wg, end, engine)
}

// obey does what standard input says until it ends.
func (p *producer) obey(life, asked context.Context, wg *sync.WaitGroup) error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var err error
		var color string
		var n int
		switch line := in.Text(); {
		case strings.HasPrefix(line, "rate "):
			_, err = fmt.Sscanf(line, "rate %d", &n)
			p.rate.Store(int64(n))
		case strings.HasPrefix(line, "skip "):
			_, err = fmt.Sscanf(line, "skip %d", &n)
			p.skip.Store(int64(n))
		default:
			if _, err = fmt.Sscanf(line, "burst %s %d", &color, &n); err == nil {
				wg.Go(func() { p.burst(life, asked, undash(color), n) })
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// finish waits until all that was begun is there.
func (p *producer) finish(wg *sync.WaitGroup, end func(), engine *jetstream.Engine) error {
	late := time.AfterFunc(finishProducer, end)
	wg.Wait()
	if !late.Stop() {
		return errors.New("the engine does not take what was begun")
	}
	p.book.write(lineEnded, "")
	return engine.Close()
}

// inherit deals with what others have left in doubt.
func (p *producer) inherit(life context.Context, doubtful []batch) {
	for _, b := range doubtful {
		if p.s.Forget {
			p.book.write(lineForgot, "%s", b)
		} else {
			p.send(life, b)
		}
	}
}

// flow sends its part of the rate that the producer was told.
func (p *producer) flow(life, asked context.Context, sender int) {
	rng := rand.New(rand.NewPCG(p.s.Seed, uint64(sender)))
	due := 0.0
	last := time.Now()
	for pause(asked, producerTick) {
		now := time.Now()
		due = min(due+float64(p.rate.Load())/senders*now.Sub(last).Seconds(), 1000/senders)
		last = now
		for due >= 1 && asked.Err() == nil {
			n := min(int(due), 1+rng.IntN(producerBatch))
			due -= float64(n)
			topic, color := p.s.Topics[0], lane.Baseline
			if rng.IntN(100) < 15 {
				topic = p.s.Topics[rng.IntN(len(p.s.Topics))]
			}
			if rng.IntN(100) < 60 {
				colors := p.s.Colors[p.skip.Load():]
				color = lane.Name(colors[rng.IntN(len(colors))])
			}
			p.send(life, p.make(topic, color, n))
		}
	}
}

func (p *producer) burst(life, asked context.Context, color lane.Name, n int) {
	for left := n; left > 0 && asked.Err() == nil; left -= burstBatch {
		p.send(life, p.make(p.s.Topics[0], color, min(left, burstBatch)))
	}
	p.book.write(lineBurst, "%s", dash(color))
}

// make is a batch of the next n messages.
func (p *producer) make(topic string, color lane.Name, n int) batch {
	first := p.next.Add(int64(n)) - int64(n)
	return batch{life: p.s.Life, topic: topic, color: color, first: int(first), last: int(first) + n - 1}
}

// send sends a batch, again until the engine has taken it.
func (p *producer) send(life context.Context, b batch) {
	p.book.write(lineTried, "%s", b)
	ms := b.messages()
	to := lane.With(life, b.color)
	if b.color == lane.Baseline {
		to = lane.Plain(life)
	}
	for p.out.Send(to, ms...) != nil {
		if !pause(life, 50*time.Millisecond) {
			return
		}
	}
	p.book.write(lineAcked, "%s", b)
}
