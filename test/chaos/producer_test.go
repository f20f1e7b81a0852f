package chaos

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// producerSettings are those of a producer's process.
type producerSettings struct {
	Name   string
	Engine string
	Book   string
	Seed   uint64
	Topics []string // the first gets most
	Colors []string // of messages beside plain ones
}

// Shape of what producers send by themselves.
const (
	producerTick  = 20 * time.Millisecond
	producerBatch = 20  // messages of one color in one call
	burstBatch    = 250 // of a burst
)

// producer sends messages until its standard input ends. It is told there what to do:
//
//	rate N         send N messages a second, of colors at random
//	skip N         leave out the first N of the colors from now on
//	burst COLOR N  send N messages of a color at once, and then say "burst COLOR"
//
// It says "sent COLOR N" of what the engine has taken.
type producer struct {
	s    producerSettings
	out  *consume.Producer
	book *book
	rate atomic.Int64
	skip atomic.Int64 // so many of the first colors are left out
	next atomic.Int64 // number of the next message
	say  sync.Mutex
}

// nobody is the identity of producers: what they send has the color that they say.
type nobody struct{}

func (nobody) Process() lane.Name { return lane.Baseline }
func (nobody) Used(lane.Name)     {}

func beProducer(s producerSettings) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b, err := openBook(s.Book)
	if err != nil {
		return err
	}
	engine, err := openEngine(ctx, s.Engine, slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	p := &producer{s: s, out: consume.NewProducer(engine, nobody{}), book: b}
	var wg sync.WaitGroup
	wg.Go(func() { p.flow(ctx) })
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
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
				wg.Go(func() { p.burst(ctx, undash(color), n) })
			}
		}
		if err != nil {
			return err
		}
	}
	cancel()
	wg.Wait()
	return engine.Close()
}

// flow sends at the rate that it was told.
func (p *producer) flow(ctx context.Context) {
	rng := rand.New(rand.NewPCG(p.s.Seed, 1))
	due := 0.0
	last := time.Now()
	for pause(ctx, producerTick) {
		now := time.Now()
		due = min(due+float64(p.rate.Load())*now.Sub(last).Seconds(), 1000)
		last = now
		for due >= 1 && ctx.Err() == nil {
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
			p.send(ctx, topic, color, n)
		}
	}
}

func (p *producer) burst(ctx context.Context, color lane.Name, n int) {
	for left := n; left > 0 && ctx.Err() == nil; left -= burstBatch {
		p.send(ctx, p.s.Topics[0], color, min(left, burstBatch))
	}
	p.tell("burst %s", dash(color))
}

// send sends n messages, again until the engine has taken them, and writes down which.
func (p *producer) send(ctx context.Context, topic string, color lane.Name, n int) {
	first := p.next.Add(int64(n)) - int64(n)
	ms := make([]consume.Outgoing, n)
	for i := range ms {
		value := fmt.Sprintf("%s:%d", p.s.Name, first+int64(i))
		ms[i] = consume.Outgoing{Topic: topic, Key: fmt.Appendf(nil, "k%d", (first+int64(i))%997), Value: []byte(value), ID: value}
	}
	to := lane.With(ctx, color)
	if color == lane.Baseline {
		to = lane.Plain(ctx)
	}
	for p.out.Send(to, ms...) != nil {
		if !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
	p.book.write(lineAcked, "%s %d %d", dash(color), first, first+int64(n)-1)
	p.tell("sent %s %d", dash(color), n)
}

func (p *producer) tell(format string, args ...any) {
	p.say.Lock()
	defer p.say.Unlock()
	_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...)
}
