package httpgw

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Causes by which a watch ends a request.
var (
	errRequestTimeout = errors.New("the upstream sent no response in time")
	errIdleTimeout    = errors.New("no byte moved for too long")
)

// watch ends a request that does not move. Until the response's headers it allows
// wait since the last byte of the request, or up to a fixed time where the route
// sets one; then idle without a byte in either direction.
type watch struct {
	start time.Time
	moved atomic.Int64 // nanoseconds since start of the last byte

	rc     *http.ResponseController
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer   // nil: stopped
	limit time.Duration // of standing still; 0: none
	fixed time.Duration // since start, until headers; 0: none
	cause error
}

func newWatch(rc *http.ResponseController, cancel context.CancelCauseFunc, wait, fixed time.Duration) *watch {
	w := &watch{start: time.Now(), rc: rc, cancel: cancel, limit: wait, fixed: fixed, cause: errRequestTimeout}
	if wait > 0 || fixed > 0 {
		w.timer = time.AfterFunc(w.next(), w.fire)
	}
	return w
}

// touch notes that a byte has moved. It may be called on nil.
func (w *watch) touch() {
	if w != nil {
		w.moved.Store(int64(time.Since(w.start)))
	}
}

// headers says that the response has begun.
func (w *watch) headers(idle time.Duration) {
	w.touch()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fixed, w.limit, w.cause = 0, idle, errIdleTimeout
	switch {
	case w.timer != nil && idle > 0:
		w.timer.Reset(idle)
	case w.timer != nil:
		w.timer.Stop()
	case idle > 0:
		w.timer = time.AfterFunc(idle, w.fire)
	}
}

// stop ends the watch. After it has returned, fire does nothing.
func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.limit, w.fixed = 0, 0
}

// next is how long the timer has to run. Called with mu held, or before sharing.
func (w *watch) next() time.Duration {
	passed := time.Since(w.start)
	left := time.Duration(-1)
	if w.limit > 0 {
		left = w.limit - (passed - time.Duration(w.moved.Load()))
	}
	if w.fixed > 0 && (w.limit == 0 || w.fixed-passed < left) {
		left = w.fixed - passed
	}
	return left
}

func (w *watch) fire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.limit == 0 && w.fixed == 0 {
		return
	}
	if left := w.next(); left > 0 {
		w.timer.Reset(left)
		return
	}
	w.cancel(w.cause)
	if errors.Is(w.cause, errIdleTimeout) {
		// The response has begun, and its reader may be what stands still.
		_ = w.rc.SetWriteDeadline(time.Unix(1, 0))
	}
}
