package control

import (
	"runtime"
	"time"
)

const (
	// turnTime is how long a watch keeps its turn: past that its client is slow, and
	// another one writes beside it.
	turnTime = 250 * time.Microsecond
	// turnBytes is how much a watch writes in a turn.
	turnBytes = 256 << 10
	// slowWrite is how long a write takes whose client is so slow that the watch's next
	// one keeps no turn at all: its client sets the pace.
	slowWrite = 50 * time.Millisecond
	// lateTurn is how long a watch waits for its turn before more of them write at once.
	lateTurn = 100 * time.Millisecond
	// turnsTime is how long watches take all processors without a break, and breakTime
	// the least that a break lasts.
	turnsTime = 500 * time.Microsecond
	// turnsRate is how many turns a second, for each processor, watches may have in the
	// long run, which is about a quarter of its time, and turnsBurst how many at once.
	// turnUnit is the bytes that count as another turn, and turnsBatch how many turns are
	// waited for when all are used up.
	turnsRate  = 15_000
	turnsBurst = 2000
	turnUnit   = 32 << 10
	turnsBatch = 64
	breakTime  = 50 * time.Microsecond
)

// turns lets watches write in the order in which there was something for them, a few
// at a time. Were they all woken by a change, a request would stand behind thousands
// of goroutines each time it waits for something. While they wait, more gathers for
// them, which then goes out in one write. Guarded by hub.mu.
//
// The runtime looks for what has come in from the network only where a processor has
// nothing else to do, or after 10 ms. So watches leave half of the processors free.
// Where that does not suffice and views get old, or where there is but one, they take
// all, with breaks: then requests slow down, until watches are level with them. And all
// have so many turns in a second and no more: changes that come fast go out together.
type turns struct {
	few, many int // that write at once, and while some wait for long
	all       int // that take all processors
	running   int
	line      []*watcher // those that wait, from head on
	head      int
	begun     time.Time // since when they write without a break
	onBreak   bool
	rest      func(time.Duration) // has resume called after a break; nil: there is none
	left      float64             // turns that may be had
	rate      float64             // by which left rises, in turns a second
	counted   time.Time           // when left was brought up to date
}

func newTurns() turns {
	cpus := runtime.GOMAXPROCS(0)
	return turns{few: max(1, cpus/2), many: 2 * cpus, all: cpus, left: turnsBurst, rate: float64(turnsRate * cpus)}
}

// queue lines a watch up.
func (t *turns) queue(w *watcher) {
	w.state, w.queued = watchQueue, time.Now()
	if t.running == 0 && !t.onBreak {
		t.begun = w.queued
	}
	t.line = append(t.line, w)
	t.fill()
}

// fill gives turns to those that wait, as far as there are any.
func (t *turns) fill() {
	for t.head < len(t.line) {
		if t.onBreak {
			return
		}
		next := t.line[t.head]
		if t.running >= t.few && (t.running >= t.many || time.Since(next.queued) < lateTurn) {
			return
		}
		if wait := t.due(); wait > 0 {
			if t.onBreak = true; t.running == 0 {
				t.rest(wait)
			}
			return
		}
		t.line[t.head] = nil
		t.head++
		if next.state == watchQueue { // else it is gone
			t.left--
			t.running++
			next.state, next.onTurn = watchBusy, true
			select {
			case next.wake <- struct{}{}:
			default:
			}
		}
	}
	t.line, t.head = t.line[:0], 0
}

// due is how long it takes until there are turns to be had; 0: there are.
func (t *turns) due() time.Duration {
	if t.rest == nil || t.left >= 1 {
		return 0
	}
	now := time.Now()
	t.left = min(turnsBurst, t.left+t.rate*now.Sub(t.counted).Seconds())
	if t.counted = now; t.left >= 1 {
		return 0
	}
	return time.Duration((turnsBatch - t.left) / t.rate * float64(time.Second))
}

// release ends the turn of a watch, if it still has it, and gives it to the next.
func (t *turns) release(w *watcher) {
	if !w.onTurn {
		return
	}
	w.onTurn = false
	if t.rest != nil && t.running >= t.all && t.head < len(t.line) && time.Since(t.begun) > turnsTime {
		t.onBreak = true
	}
	t.running--
	if t.onBreak && t.running == 0 {
		t.rest(max(breakTime, t.due()))
	}
	t.fill()
	if t.head > len(t.line)/2 { // what is left moves up, at most as much as has gone
		n := copy(t.line, t.line[t.head:])
		clear(t.line[n:])
		t.line, t.head = t.line[:n], 0
	}
}

// resume ends a break.
func (h *hub) resume() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns.onBreak, h.turns.begun = false, time.Now()
	h.turns.fill()
}

// lend lets others write while the write of a watch is held up.
func (h *hub) lend(w *watcher, turn uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.turn == turn {
		h.turns.release(w)
	}
}
