package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// Constants of time of a [Runner].
const (
	pollPartitions = 5 * time.Second // how soon a partition that is new is seen
	moveTimeout    = 2 * time.Second // a write without an answer for so long is in doubt
	fetchWait      = time.Second     // longest wait of a read for a message
	retryLeast     = 20 * time.Millisecond
	retryMost      = 2 * time.Second
)

// Options say what a [Runner] runs. Source, Registry, Members and one of Handle and
// HandleBatch are needed; the rest has defaults.
type Options struct {
	Config   Config
	Source   Source
	Topics   Topics // where retry and dead-letter topics are made; nil: they are there
	Registry Registry
	Members  []Member // of this process; Session is set by the runner

	Handle      Handler
	HandleBatch BatchHandler
	Batch       int // messages of one HandleBatch at most; 0: 100
	// Concurrency is how many handlers run at once for one cursor; 0: 16. With KeyOrder
	// messages of one key go to the same one, in their order.
	Concurrency int
	KeyOrder    bool
	Deadline    time.Duration // of one call of a handler; 0: none
	// Context may add to a handler's context, such as the trace that the message's headers
	// name; it is given the first message of a batch.
	Context func(context.Context, *Delivery) context.Context
	Grace   time.Duration // how long members count after they left; see [Registry]
	Hops    *Hops         // what records what happens to messages; nil: nothing does

	// Observe is told of every event and the actions that followed, in order, from one
	// goroutine; neither may be kept. It must not block.
	Observe func(Event, []Action)
	Log     *slog.Logger // nil: none

	// told is told that a member has joined, or why the registry does not want it; each time.
	// Nil: nobody asks. It must not block.
	told func(error)
}

func (o *Options) validate() error {
	var errs []error
	need := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New(what))
		}
	}
	need(o.Source != nil, "source is missing: open an engine")
	need(o.Registry != nil, "registry is missing: dial the control plane")
	need(len(o.Members) > 0, "members is empty: name at least one member")
	need((o.Handle == nil) != (o.HandleBatch == nil), "give one of handle and handle_batch")
	need(o.Batch >= 0 && o.Concurrency >= 0 && o.Deadline >= 0 && o.Grace >= 0, "batch, concurrency, deadline and grace cannot be negative")
	return errors.Join(append(errs, o.Config.Validate())...)
}

// Runner drives a [Core]: it is what reads, calls handlers, writes to the registry and keeps
// the time.
type Runner struct {
	o    Options
	core *Core
	log  *slog.Logger

	// The loop's own.
	timers  map[Timer]*time.Timer
	runs    map[uint64]*worker
	tails   map[Partition]*tail
	session string // that the Core knows
	lost    bool   // and was told to be lost
	opening bool   // records are being read for a new session
	leaving bool
	staying int // members that have not left yet
	done    bool
	counts  Stats // but for how it is just now

	begun atomic.Bool   // Run was called
	over  chan struct{} // closed when the loop has ended, and last is set
	last  Stats

	box  mailbox
	wg   sync.WaitGroup
	life context.Context //nolint:containedctx // of what the runner starts; Run ends it
}

// NewRunner makes a runner; [Runner.Run] runs it. The error names every option that is wrong.
func NewRunner(o Options) (*Runner, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("consume: %w", err)
	}
	core, err := NewCore(o.Config)
	if err != nil {
		return nil, err
	}
	if o.Batch == 0 {
		o.Batch = 100
	}
	if o.Concurrency == 0 {
		o.Concurrency = 16
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Runner{
		o: o, core: core, log: o.Log, timers: map[Timer]*time.Timer{}, runs: map[uint64]*worker{}, tails: map[Partition]*tail{},
		box: mailbox{wake: make(chan struct{}, 1)}, over: make(chan struct{}), counts: newStats(o.Config.Group),
	}, nil
}

// Run consumes until ctx ends, then gives up what it holds: members leave, handlers finish
// what they have (at most the group's hand-over time-out), cursors are released. It returns
// when nothing of it runs any more. The error is nil, or says what was not given up in time;
// the session's end gives it up then.
func (r *Runner) Run(ctx context.Context) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.life = life
	r.begun.Store(true)
	defer r.wg.Wait()
	defer cancel()
	defer func() {
		for _, t := range r.timers {
			t.Stop()
		}
	}()
	r.spawn(r.watch)
	r.spawn(r.count)
	r.spawn(r.keep)
	r.spawn(r.lookForeign)
	err := r.loop(ctx)
	r.ended()
	for _, w := range r.runs {
		w.stop()
	}
	return err
}

// spawn starts something that ends with the runner's life.
func (r *Runner) spawn(f func(context.Context)) {
	r.wg.Go(func() { f(r.life) })
}

// loop is the one goroutine that steps the Core.
func (r *Runner) loop(ctx context.Context) error {
	stop := ctx.Done()
	var deadline <-chan time.Time
	for !r.done || r.staying > 0 {
		select {
		case <-r.box.wake:
			in := r.box.take()
			r.checkLease() // before anything that was fetched is used
			for len(in) > 0 {
				in = r.handle(in)
			}
		case <-stop:
			stop = nil
			r.leave()
			t := time.NewTimer(r.core.cfg.HandoverTimeout + moveTimeout)
			defer t.Stop()
			deadline = t.C
			r.step(&Stop{})
		case <-deadline:
			return errors.New("consume: not every cursor was released in time: they are free when the session ends")
		}
	}
	return nil
}

// handle takes the first of what came in, and returns the rest. What the registry told at once
// is one event.
func (r *Runner) handle(in []input) (rest []input) {
	switch told := ofRegistry(in); {
	case len(told) > 1:
		r.step(&Several{told})
		return in[len(told):]
	case in[0].do != nil:
		in[0].do()
	default:
		r.step(in[0].event)
	}
	return in[1:]
}

// step takes in what others say.
func (r *Runner) step(e Event) {
	r.heard(e)
	r.tell(e)
}

// tell steps the Core and does what follows.
func (r *Runner) tell(e Event) {
	actions := r.core.Step(e)
	if r.o.Observe != nil {
		r.o.Observe(e, actions)
	}
	for _, a := range actions {
		r.act(a)
	}
}

func (r *Runner) act(a Action) {
	if d, ok := a.(*Dispatch); ok && r.o.Config.forOther(d.Message, d.Lane) {
		r.drop(d)
		return
	}
	r.counts.did(a)
	switch a := a.(type) {
	case *Propose:
		r.propose(a.Write, a.Attempt)
	case *Fetch:
		r.fetch(*a)
	case *Dispatch:
		r.hopDispatched(a)
		r.worker(a.Run).add(a)
	case *Recall:
		if w := r.runs[a.Run]; w != nil {
			w.giveBack()
		}
	case *Withdraw:
		if w := r.runs[a.Run]; w != nil {
			w.stop()
			delete(r.runs, a.Run)
		}
	case *Requeue:
		r.store(a.Run, a.Offset, a.Message, "")
	case *Bury:
		r.log.WarnContext(r.life, "message goes to the dead letters", "topic", a.Partition.Topic, "offset", a.Offset, "reason", string(a.Why))
		r.store(a.Run, a.Offset, a.Message, a.Why)
	case *Resolve:
		r.spawn(func(ctx context.Context) { r.resolve(ctx, *a) })
	case *Arm:
		r.arm(a.Timer, a.After)
	case *Disarm:
		if t := r.timers[a.Timer]; t != nil {
			t.Stop()
			delete(r.timers, a.Timer)
		}
	case *Mirror:
		r.reflect(a)
	case *Alarm:
		r.log.LogAttrs(r.life, slog.LevelWarn, "alarm of a group", a.attributes(r.o.Config.Group)...)
	case *Moved:
		for _, m := range a.Moves {
			r.log.InfoContext(r.life, "cursor moved", "group", r.o.Config.Group, "topic", a.Partition.Topic,
				"partition", int(a.Partition.Index), "move", m.String())
		}
	case *Refused:
	case *Stopped:
		r.done = true
	}
}

// post hands an event to the loop. It never blocks.
func (r *Runner) post(e Event) { r.box.put(input{event: e}) }

func (r *Runner) arm(t Timer, after time.Duration) {
	if old := r.timers[t]; old != nil {
		old.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(after, func() {
		r.box.put(input{do: func() {
			if r.timers[t] == timer { // it was not armed anew or disarmed meanwhile
				delete(r.timers, t)
				r.step(&Fired{t})
			}
		}})
	})
	r.timers[t] = timer
}

// propose sends a write and tells of the answer; a repeated one waits first.
func (r *Runner) propose(w *Write, attempt int) {
	r.spawn(func(ctx context.Context) {
		if attempt > 1 && !pause.For(ctx, backoff(attempt-2)) {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, moveTimeout)
		defer cancel()
		a, err := r.o.Registry.Move(ctx, w)
		if err != nil {
			a = Answer{Outcome: Doubt}
		}
		r.post(&Answered{Write: w.ID, Answer: a})
	})
}

// watch tells of views and records.
func (r *Runner) watch(ctx context.Context) {
	for u := range r.o.Registry.Views(ctx, r.o.Config.Group) {
		if u.View != nil {
			r.post(&Viewed{u.View})
		}
		for _, s := range u.Records {
			r.post(&Recorded{Stored: s})
		}
		if u.Revision > 0 {
			r.post(&Reached{u.Revision})
		}
	}
}

// leave takes the members out, while what is in flight here is finished: others learn at
// once that they will have to take over.
func (r *Runner) leave() {
	r.leaving = true
	for _, m := range r.o.Members {
		r.staying++
		r.spawn(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, moveTimeout)
			defer cancel()
			if err := r.o.Registry.Leave(ctx, r.o.Config.Group, m.ID, r.o.Grace); err != nil {
				r.log.WarnContext(ctx, "member did not leave: it counts until the session ends", "error", err)
			}
			r.box.put(input{do: func() {
				r.staying--
				r.step(&Left{m.ID})
			}})
		})
	}
}

// backoff grows with n, up to a limit.
func backoff(n int) time.Duration { return min(retryLeast<<min(max(n, 0), 10), retryMost) }
