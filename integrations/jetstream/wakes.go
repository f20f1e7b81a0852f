package jetstream

import (
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// wakes tells readers that wait that there may be something. Whoever appends publishes an
// empty message after the log has theirs; one may get lost, so readers also look by
// themselves after a while.
type wakes struct {
	nc *nats.Conn

	mu    sync.Mutex
	subs  map[string]*wake
	swept time.Time
}

type wake struct {
	subject string
	sub     *nats.Subscription
	readers int
	idle    time.Time     // since when there is no reader
	rung    chan struct{} // closed and replaced at each message
}

// join begins to listen on a subject, until leave.
func (w *wakes) join(subject string) (*wake, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sweep(time.Now())
	k := w.subs[subject]
	if k == nil {
		k = &wake{subject: subject, rung: make(chan struct{})}
		var err error
		if k.sub, err = w.nc.Subscribe(subject, func(*nats.Msg) { w.ring(k) }); err != nil {
			return nil, err
		}
		w.subs[subject] = k
	}
	k.readers++
	return k, nil
}

func (w *wakes) leave(k *wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k.readers--
	k.idle = time.Now()
}

// find gives what listens on a subject already; nil: nothing does.
func (w *wakes) find(subject string) *wake {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.subs[subject]
}

// next is closed by the next message. A reader takes it, then looks at the log, then waits.
func (w *wakes) next(k *wake) <-chan struct{} {
	if k == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return k.rung
}

func (w *wakes) ring(k *wake) {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(k.rung)
	k.rung = make(chan struct{})
}

// sweep ends subscriptions that had no reader for a while: readers come back all the time,
// and so do not subscribe each time.
func (w *wakes) sweep(now time.Time) {
	if now.Sub(w.swept) < idleWake {
		return
	}
	w.swept = now
	for subject, k := range w.subs {
		if k.readers == 0 && now.Sub(k.idle) > idleWake {
			_ = k.sub.Unsubscribe()
			delete(w.subs, subject)
		}
	}
}
