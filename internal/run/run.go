// Package run starts the parts of a process in order, waits for them, and stops
// them in the reverse order.
//
// A [Group] promises that a part is started only when the one before it is
// ready, that the first failure stops all, and that Run returns when every part
// has returned or the drain deadline has passed. It restarts nothing. A Group is
// used from one goroutine.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/internal/telemetry"
)

// DefaultDrain is how long a Group whose Drain is zero waits for its parts to
// stop.
const DefaultDrain = 10 * time.Second

// ErrDrain is in the error of [Group.Run] when a part had not returned by the
// drain deadline and was left behind.
var ErrDrain = errors.New("did not stop within the drain deadline")

// Func is one part. It runs until ctx ends, then finishes what it has in flight
// and returns; it calls ready once as soon as others may rely on it. The context's
// own error counts as a clean end once ctx has ended.
type Func func(ctx context.Context, ready func()) error

// Group runs parts. The zero value is ready for use.
type Group struct {
	// Drain bounds the stopping of all parts together. Zero: DefaultDrain.
	Drain time.Duration
	// Log tells of starts and stops at Debug. Nil: discard.
	Log *slog.Logger

	parts []*part
}

type part struct {
	name   string
	run    Func
	cancel context.CancelFunc
	ready  chan struct{}
	done   chan struct{}
	err    error // set before done is closed
}

// Add appends a part. It must not be called once Run has been.
func (g *Group) Add(name string, run Func) {
	g.parts = append(g.parts, &part{name: name, run: run, ready: make(chan struct{}), done: make(chan struct{})})
}

// Run starts the parts in the order of Add, calls ready (which may be nil) when
// all are ready, and blocks until ctx ends or a part returns. Then it stops the
// parts, the last one first. It returns the errors of all parts, joined, each with
// the part's name; nil if they all ended as asked.
func (g *Group) Run(ctx context.Context, ready func() error) error {
	log := g.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ended := make(chan *part, len(g.parts))
	started := 0
	var failure error
	for _, p := range g.parts {
		// A part outlives ctx until its turn to stop has come.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		p.cancel = cancel
		go p.start(own, ended)
		started++
		if !g.await(ctx, p, ended) {
			break
		}
		log.DebugContext(ctx, "part is ready", telemetry.KeyPart, p.name)
	}
	if started == len(g.parts) && g.allReady() && ctx.Err() == nil {
		if ready != nil {
			failure = ready()
		}
		if failure == nil && started > 0 {
			select {
			case <-ctx.Done():
			case <-ended:
			}
		}
	}
	return errors.Join(failure, g.stop(ctx, log, g.parts[:started]))
}

func (p *part) start(ctx context.Context, ended chan<- *part) {
	err := p.run(ctx, sync.OnceFunc(func() { close(p.ready) }))
	if err != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = nil
	}
	if err != nil {
		p.err = fmt.Errorf("%s: %w", p.name, err)
	}
	close(p.done)
	ended <- p
}

// await waits until p is ready; false: stop instead.
func (g *Group) await(ctx context.Context, p *part, ended <-chan *part) bool {
	select {
	case <-p.ready:
		return true
	case <-ended:
		return false
	case <-ctx.Done():
		return false
	}
}

func (g *Group) allReady() bool {
	for _, p := range g.parts {
		select {
		case <-p.ready:
		default:
			return false
		}
	}
	return true
}

func (g *Group) stop(ctx context.Context, log *slog.Logger, parts []*part) error {
	drain := g.Drain
	if drain <= 0 {
		drain = DefaultDrain
	}
	deadline := time.NewTimer(drain)
	defer deadline.Stop()
	over := false
	var errs []error
	for _, p := range slices.Backward(parts) {
		p.cancel()
		if !over {
			select {
			case <-p.done:
			case <-deadline.C:
				over = true
			}
		}
		select {
		case <-p.done:
			errs = append(errs, p.err)
			log.DebugContext(ctx, "part has stopped", telemetry.KeyPart, p.name)
		default:
			errs = append(errs, fmt.Errorf("%s: %w (%s)", p.name, ErrDrain, drain))
		}
	}
	return errors.Join(errs...)
}

// Signals returns a context that ends with the first SIGINT or SIGTERM. From then
// on signals have their usual effect again, so that a second one ends the process
// at once. stop releases what it holds.
func Signals(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-signals:
			cancel()
		case <-ctx.Done():
		}
		signal.Stop(signals)
	}()
	return ctx, func() {
		cancel()
		<-done
	}
}
