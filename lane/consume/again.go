package consume

import (
	"slices"
	"time"
)

// How long a message that handlers give back waits until it is handed to one again: as often as
// they do so one after the other, twice as long as before.
const (
	returnLeast = 20 * time.Millisecond
	returnMost  = 5 * time.Second
)

// returnWait is how long a message waits that came back for the nth time.
func returnWait(n int) time.Duration { return min(returnLeast<<min(n-1, 10), returnMost) }

// again queues a message that has waited, unless it was given up meanwhile.
func (w *worker) again(d *Delivery) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, waits := w.later[d]; waits {
		delete(w.later, d)
		w.release(d)
		w.queue(d)
	}
}

// hold lets what is behind a message in its line stay there, if there is an order.
func (w *worker) hold(d *Delivery) {
	if w.shards[0].most == 1 {
		l := w.line(d)
		w.held[l] = append(w.held[l], d.Offset)
	}
}

// release lets go on what stays behind a message.
func (w *worker) release(d *Delivery) {
	l := w.line(d)
	if w.held[l] = slices.DeleteFunc(w.held[l], func(o int64) bool { return o == d.Offset }); len(w.held[l]) == 0 {
		delete(w.held, l)
	}
}

// line is what messages are handled in the order of: their key, or else their color.
func (w *worker) line(d *Delivery) string {
	if w.r.o.KeyOrder {
		return string(d.Key)
	}
	return string(d.Color)
}

// free reports whether a message need not stay behind another one.
func (w *worker) free(d *Delivery) bool {
	if len(w.held) == 0 {
		return true
	}
	return !slices.ContainsFunc(w.held[w.line(d)], func(o int64) bool { return o < d.Offset })
}

// answer tells the loop what was said of a message. One that comes back by that is waited for.
func (w *worker) answer(d *Delivery, e Event) {
	if w.r.comesBack(d.Message, e) {
		w.mu.Lock()
		w.came[d.Offset] = d.came + 1
		w.hold(d)
		w.mu.Unlock()
	}
	w.r.post(e)
}

// comesBack reports whether a message is handed out again after what was said of it: also one
// that failed, where there is no retry topic for it.
func (r *Runner) comesBack(m *Message, e Event) bool {
	switch e.(type) {
	case *Returned:
		return true
	case *Failed:
		t, _, ok := r.o.Config.origin(m.Partition.Topic)
		return ok && t.Retry == ""
	}
	return false
}
