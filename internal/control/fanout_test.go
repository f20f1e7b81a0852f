package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func testHub(turns int) *hub {
	h := newHub()
	h.turns.few, h.turns.many, h.turns.rest = turns, turns, nil
	return h
}

// testWatch adds a watch of a kind, or of what a selector chooses.
func testWatch(h *hub, sel selector) *watcher {
	w := &watcher{wake: make(chan struct{}, 1)}
	h.add(w, fmt.Sprint(sel), map[selector]struct{}{sel: {}})
	return w
}

// testChange is a change of a service, with its revision.
func testChange(rev uint64, name string) *change {
	it := &item{ref: serviceRef(name), changed: rev, body: []byte(`{}`), sels: []selector{
		{kind: laneclient.KindServices}, {laneclient.KindServices, "name", name},
	}}
	it.setLine()
	return newChange(rev, it.ref, nil, it)
}

func woken(w *watcher) bool {
	select {
	case <-w.wake:
		return true
	default:
		return false
	}
}

// TestUnreadWatchCostsNothing: changes do not touch a watch that still writes what
// came before them, however many there are, and it is told when they are gone.
func TestUnreadWatchCostsNothing(t *testing.T) {
	t.Parallel()
	h := testHub(4)
	all := selector{kind: laneclient.KindServices}
	stuck, reads := testWatch(h, all), testWatch(h, all)
	h.done(reads, portion{next: reads.at})
	lines := 0
	for n := range 2 * maxHistory {
		h.publish(uint64(n+1), testChange(uint64(n+1), "a"))
		if !woken(reads) {
			t.Fatalf("change %d gives no turn to the watch that reads", n)
		}
		p := h.take(reads)
		lines += len(p.lines)
		h.done(reads, p)
		if woken(stuck) || len(h.turns.line) > h.turns.head || len(h.history) > maxHistory {
			t.Fatal("a change costs something for a watch that does not read")
		}
	}
	if lines != 2*maxHistory {
		t.Errorf("the watch that reads got %d changes", lines)
	}
	h.done(stuck, portion{next: stuck.at})
	if !woken(stuck) {
		t.Fatal("the watch is not told that it has missed something")
	}
	if p := h.take(stuck); !p.compacted {
		t.Errorf("the watch that has missed changes goes on with %d", len(p.lines))
	}
}

// TestQuietWatchMissesNothing: a watch that writes for so long that the history has
// moved on, but of which nothing has changed, goes on.
func TestQuietWatchMissesNothing(t *testing.T) {
	t.Parallel()
	h := testHub(4)
	w := testWatch(h, selector{laneclient.KindServices, "name", "b"})
	for n := range 2 * maxHistory {
		h.publish(uint64(n+1), testChange(uint64(n+1), "a"))
	}
	h.done(w, portion{next: w.at})
	if woken(w) {
		t.Fatal("there is something to tell of other objects")
	}
	h.publish(2*maxHistory+1, testChange(2*maxHistory+1, "b"))
	if !woken(w) {
		t.Fatal("its change gives it no turn")
	}
	if p := h.take(w); p.compacted || len(p.lines) != 1 {
		t.Errorf("%d lines, compacted: %t", len(p.lines), p.compacted)
	}
}

// TestTurns: only so many watches write at once, in their order; one that is held up
// by its client, or goes, makes room.
func TestTurns(t *testing.T) {
	t.Parallel()
	h := testHub(2)
	watches := make([]*watcher, 6)
	for n := range watches {
		watches[n] = testWatch(h, selector{kind: laneclient.KindServices})
		h.done(watches[n], portion{next: watches[n].at})
	}
	turns := func(what string, want ...int) {
		t.Helper()
		var got []int
		for n, w := range watches {
			if woken(w) {
				got = append(got, n)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("%s: it is the turn of %v, want %v", what, got, want)
		}
	}
	h.publish(1, testChange(1, "a"))
	turns("a change", 0, 1)
	h.publish(2, testChange(2, "a"))
	turns("while they write")
	p0, p1 := h.take(watches[0]), h.take(watches[1])
	if len(p0.lines) != 2 || len(p1.lines) != 2 {
		t.Errorf("%d and %d lines, want 2", len(p0.lines), len(p1.lines))
	}
	h.done(watches[0], p0)
	turns("the first is done", 2)
	h.lend(watches[1], p1.turn)
	h.lend(watches[1], p1.turn)
	turns("the second is held up", 3)
	h.publish(3, testChange(3, "a"))
	turns("and another change")
	h.remove(watches[4])
	h.remove(watches[2])
	turns("one that waits goes, and one that has its turn", 5)
	h.done(watches[3], h.take(watches[3]))
	turns("the fourth is done", 0)
	p1.slow = true
	h.done(watches[1], p1)
	turns("the second is done, but behind", []int{}...)
	h.done(watches[0], h.take(watches[0]))
	turns("the first is done again", 1)
	p1 = h.take(watches[1]) // it was held up before: it keeps no turn
	if h.turns.running != 1 {
		t.Errorf("%d have a turn, want 1", h.turns.running)
	}
	h.done(watches[5], h.take(watches[5]))
	h.done(watches[1], p1)
	h.publish(4, testChange(4, "a"))
	if h.turns.running != 2 {
		t.Errorf("%d have a turn, want 2", h.turns.running)
	}
	for _, n := range []int{0, 1, 3, 5} {
		h.remove(watches[n])
	}
	if h.turns.running != 0 || len(h.groups)+len(h.bySelect)+len(h.watchers)+h.selects != 0 {
		t.Errorf("something is left of watches that went: %+v", h)
	}
}

// TestTurnsAreRationed: however fast changes come, watches have so many turns in a
// second, and what they are not told then they are told later.
func TestTurnsAreRationed(t *testing.T) {
	t.Parallel()
	h := testHub(1000)
	h.turns.rate, h.turns.left, h.turns.counted = 10, 3, time.Now()
	var rests []time.Duration
	h.turns.rest = func(d time.Duration) { rests = append(rests, d) }
	watches := make([]*watcher, 5)
	for n := range watches {
		watches[n] = testWatch(h, selector{kind: laneclient.KindServices})
		h.done(watches[n], portion{next: watches[n].at})
	}
	turns := func() (n int) {
		for _, w := range watches {
			if woken(w) {
				h.done(w, h.take(w))
				n++
			}
		}
		return n
	}
	h.publish(1, testChange(1, "a"))
	if n := turns(); n != 3 {
		t.Fatalf("%d watches have a turn, want the 3 that there are", n)
	}
	h.publish(2, testChange(2, "a"))
	if n := turns(); n != 0 || len(rests) != 1 || rests[0] < time.Second {
		t.Fatalf("%d more have one, and it rests %v: want it to rest for as long as it takes", n, rests)
	}
	h.turns.left = turnsBurst
	h.resume()
	got := 0
	for range watches { // each turn of the line
		got += turns()
	}
	if got != len(watches) || h.turns.running != 0 || h.turns.onBreak {
		t.Errorf("%d had a turn later, %d still have one, on a break: %t", got, h.turns.running, h.turns.onBreak)
	}
	for n, w := range watches {
		if w.at != h.end() {
			t.Errorf("watch %d was not told everything", n)
		}
	}
}

// TestWatchLimits: what is refused says which limit it is.
func TestWatchLimits(t *testing.T) {
	t.Parallel()
	h := testHub(2)
	if got := h.admit("", maxAllSelects+1); got != tooManySelects {
		t.Errorf("too many selects: %q", got)
	}
	for range maxSessionWatches {
		w := &watcher{session: "s", wake: make(chan struct{}, 1)}
		h.add(w, "k", map[selector]struct{}{{kind: laneclient.KindLanes}: {}})
	}
	if h.selects != 1 {
		t.Errorf("the same select counts %d times", h.selects)
	}
	if got := h.admit("s", 1); got != tooManyOfSession {
		t.Errorf("too many of a session: %q", got)
	}
	if got := h.admit("t", 1); got != "" {
		t.Errorf("another session: %q", got)
	}
	for len(h.watchers) < maxWatches {
		testWatch(h, selector{kind: laneclient.KindLanes})
	}
	if got := h.admit("t", 1); got != tooManyWatches {
		t.Errorf("too many watches: %q", got)
	}
}

// BenchmarkPublish: a change that thousands of watches select costs no more while
// their clients do not read.
func BenchmarkPublish(b *testing.B) {
	for _, stuck := range []int{0, 2000} {
		b.Run(fmt.Sprintf("%d unread watches", stuck), func(b *testing.B) {
			h := testHub(4)
			for range stuck {
				testWatch(h, selector{kind: laneclient.KindServices})
			}
			it := &item{ref: serviceRef("a"), body: []byte(`{"name":"a"}`), sels: []selector{{kind: laneclient.KindServices}}}
			b.ReportAllocs()
			for b.Loop() {
				it.changed++
				it.setLine()
				h.publish(it.changed, newChange(it.changed, it.ref, it, it))
			}
		})
	}
}

// BenchmarkTurn: what it takes to tell a watch of one change, without the write.
func BenchmarkTurn(b *testing.B) {
	h := testHub(4)
	w := testWatch(h, selector{kind: laneclient.KindServices})
	h.done(w, portion{next: w.at})
	b.ReportAllocs()
	ch := testChange(1, "a")
	for b.Loop() {
		h.publish(1, ch)
		<-w.wake
		p := h.take(w)
		time.AfterFunc(time.Hour, func() {}).Stop()
		h.done(w, p)
	}
}
