package consume

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// workbench is a worker whose Core is the test.
type workbench struct {
	w   *worker
	box *mailbox
	ctx chan context.Context // of each call of the handler
	say chan error           // what it returns
}

func newWorkbench(t *testing.T) *workbench {
	b := &workbench{ctx: make(chan context.Context, 10), say: make(chan error, 10)}
	r := &Runner{
		o: Options{Concurrency: 1, Handle: func(ctx context.Context, _ *Delivery) error {
			b.ctx <- ctx
			return <-b.say
		}},
		runs: map[uint64]*worker{}, box: mailbox{wake: make(chan struct{}, 1)},
		life: lane.With(t.Context(), "red"), // that of who runs it is no message's
	}
	b.w, b.box = r.worker(7), &r.box
	return b
}

func (b *workbench) add(offsets ...int64) {
	for _, o := range offsets {
		b.w.add(&Dispatch{Run: 7, Message: &Message{Offset: o}})
	}
	synctest.Wait()
}

// begun is how many calls of the handler there were since it was asked last.
func (b *workbench) begun() (n int) {
	for synctest.Wait(); len(b.ctx) > 0; n++ {
		<-b.ctx
	}
	return n
}

// returned are the messages that were given back since it was asked last.
func (b *workbench) returned() (offsets []int64) {
	synctest.Wait()
	for _, in := range b.box.take() {
		if e, is := in.event.(*Returned); is {
			offsets = append(offsets, e.Offset)
		}
	}
	slices.Sort(offsets)
	return offsets
}

// TestWorkerForgets: what waits is given back when it is asked for, with all that stays behind it,
// and nothing is remembered of it; it begins at once where the run goes on after all.
func TestWorkerForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorkbench(t)
		b.add(1, 2, 3)
		for n := range 5 {
			b.say <- ErrReturn
			if got := b.returned(); !slices.Equal(got, []int64{1}) {
				t.Fatalf("given back are %d", got)
			}
			if b.add(1); b.begun() != 1 {
				t.Fatalf("%d. time: a handler has begun with what comes again, or with what is behind it", n)
			}
			pass(returnWait(n + 1))
		}
		b.say <- ErrReturn
		b.returned()
		b.add(1)
		b.begun()
		b.w.giveBack()
		if got := b.returned(); !slices.Equal(got, []int64{1, 2, 3}) {
			t.Errorf("given back are %d", got)
		}
		if len(b.w.came) > 0 || len(b.w.later) > 0 || len(b.w.held) > 0 {
			t.Errorf("remembered are %v, %v, %v", b.w.came, b.w.later, b.w.held)
		}
		pass(time.Minute)
		if n := b.begun(); n > 0 {
			t.Errorf("a handler has begun with %d that were given back", n)
		}
		if b.add(1, 2, 3); b.begun() != 1 {
			t.Error("no handler has begun")
		}
		for range 3 {
			b.say <- nil
		}
		if b.begun() != 2 {
			t.Error("not all were handled")
		}
	})
}

// TestWorkerStops: when a run is given up, the contexts of its handlers end, and what waits is
// forgotten.
func TestWorkerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorkbench(t)
		b.add(1)
		b.say <- ErrReturn
		b.returned()
		b.begun()
		b.add(1)                                                                 // waits
		b.w.add(&Dispatch{Run: 7, Message: &Message{Offset: 2, Color: "green"}}) // another line
		ctx := <-b.ctx
		b.add(3) // behind both
		b.w.stop()
		select {
		case <-ctx.Done():
		default:
			t.Error("the handler's context goes on")
		}
		b.say <- nil
		pass(time.Minute)
		if n := b.begun(); n > 0 {
			t.Errorf("a handler has begun with %d that were forgotten", n)
		}
		if got := b.returned(); len(got) > 0 {
			t.Errorf("given back are %d", got)
		}
	})
}

// TestWorkerColors: a handler's context has its message's color, and says plain of a plain one, whatever
// that of who runs the consumer has.
func TestWorkerColors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newWorkbench(t)
		for _, color := range []lane.Name{"", "green"} {
			b.w.add(&Dispatch{Run: 7, Message: &Message{Color: color}})
			b.say <- nil
			if got := lane.Outgoing(<-b.ctx, "blue"); got != color {
				t.Errorf("a message of %q: what is sent is %q", color, got)
			}
		}
	})
}
