package consume

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/laneway-dev/laneway/lane"
)

// ErrReturn is returned by a handler that gives its message back unsettled, which does not count
// as a failure. The message is handed out again: by the next holder, where this one gives the
// cursor up; else here, after 20 ms and each time twice that, up to 5 s. Others go on meanwhile;
// but where messages are handled in their order, those behind it stay there.
var ErrReturn = errors.New("message returned")

// Handler works on one message. A nil error settles it, unless the handler has said that it
// will settle it itself ([Delivery.Hold]); [ErrReturn] gives it back; any other error counts
// as a failure: the message is retried after a while, or is dead after the last attempt.
//
// The context carries the message's color, so what the handler calls and produces is colored
// like it. It ends with the message's deadline, and when the cursor is given up: what is
// done after that may be done again by somebody else. A panic is a failure of this message
// only. Handlers of several messages run at once, as many as [Options.Concurrency] says for
// each cursor.
type Handler func(ctx context.Context, d *Delivery) error

// BatchHandler works on several messages of one color, ascending by offset. It is answered
// for as a whole; a message that was settled, failed or returned by its own method before
// the handler returns is left out of that.
type BatchHandler func(ctx context.Context, ds []*Delivery) error

// Delivery is one message on its way to a consumer.
type Delivery struct {
	*Message
	Lane        lane.Name // for whose member; zero: the baseline
	Redelivered bool      // it may have been handed out before
	Reason      lane.Reason

	w    *worker // nil: nobody listens
	came int     // how often it came back to w one after the other
	said atomic.Bool
	held bool
}

// Hold says that the handler's return settles nothing: one of Ack, Fail and Return will be
// called, from any goroutine and at any time. Until then the message is in flight. It is
// called from within the handler.
func (d *Delivery) Hold() { d.held = true }

// Ack settles the message. The first of Ack, Fail and Return counts; later ones, and those
// after the cursor was given up, do nothing.
func (d *Delivery) Ack() {
	if d.once() {
		d.w.r.post(&Settled{d.w.run, d.Offset})
	}
}

// Fail says that the message could not be worked on: it is retried, or dead after the last
// attempt.
func (d *Delivery) Fail(err error) {
	if d.once() {
		d.w.answer(d, &Failed{d.w.run, d.Offset, clip(err)})
	}
}

// Return gives the message back, as [ErrReturn] does.
func (d *Delivery) Return() {
	if d.once() {
		d.w.answer(d, &Returned{d.w.run, d.Offset})
	}
}

// once reports whether nothing was said of the message before.
func (d *Delivery) once() bool { return d.said.CompareAndSwap(false, true) && d.w != nil }

// finish answers for a handler's return.
func (d *Delivery) finish(err error) {
	switch {
	case err == nil && d.held:
	case err == nil:
		d.Ack()
	case errors.Is(err, ErrReturn):
		d.Return()
	default:
		d.Fail(err)
	}
}

// maxErrorBytes bounds the text of an error that travels with a message.
const maxErrorBytes = 1024

func clip(err error) string {
	if err == nil {
		return "failed without an error"
	}
	s := err.Error()
	if len(s) > maxErrorBytes {
		s = s[:maxErrorBytes]
	}
	return s
}

// guard runs a handler and turns a panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("handler panicked: %v", p)
		}
	}()
	return f()
}
