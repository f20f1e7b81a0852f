package control

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Limits of watches.
const (
	maxWatches      = 10_000   // open at once, per replica
	maxSelects      = 512      // of one watch
	maxQueueEvents  = 16_384   // not yet sent to one client; past that it is compacted
	maxQueueBytes   = 8 << 20  // the same, in bytes
	maxHistory      = 16_384   // changes kept for watches that come back
	maxHistoryBytes = 16 << 20 // the same, in bytes
)

// change is what one revision did to one object, encoded once for all clients.
type change struct {
	ref
	rev           uint64
	put           []byte // a line; nil if the object is gone
	before, after []selector
}

func newChange(rev uint64, r ref, before, after *item) *change {
	ch := &change{ref: r, rev: rev}
	if before != nil {
		ch.before = before.sels
	}
	if after != nil {
		ch.after = after.sels
		ch.put = eventLine(laneclient.Event{Type: laneclient.EventPut, Revision: rev, Kind: r.kind, Name: r.name, Object: after.body})
	}
	return ch
}

func (ch *change) deletion() []byte {
	return eventLine(laneclient.Event{Type: laneclient.EventDelete, Revision: ch.rev, Kind: ch.kind, Name: ch.name})
}

// line is what a watch with these selects is told of the change; nil: nothing. An
// object that leaves what is selected is deleted there.
func (ch *change) line(selected map[selector]struct{}) []byte {
	has := func(s selector) bool { _, ok := selected[s]; return ok }
	switch {
	case slices.ContainsFunc(ch.after, has):
		return ch.put
	case slices.ContainsFunc(ch.before, has):
		return ch.deletion()
	}
	return nil
}

func eventLine(e laneclient.Event) []byte {
	b, err := json.Marshal(e)
	if err != nil { // the object alone is foreign, and it was encoded by us
		panic("control: event cannot be encoded: " + err.Error())
	}
	return append(b, '\n')
}

// watcher is one client's watch: what it selects and what it has not been sent.
type watcher struct {
	selected map[selector]struct{}
	session  string
	wake     chan struct{} // one token: look again

	// Guarded by the cache's lock, which orders all changes.
	last   *change // the last one offered, so that two selects offer it once
	wanted uint64  // progress to this revision is to be sent at once

	mu       sync.Mutex
	asked    bool // wanted was raised and not yet told
	queue    [][]byte
	bytes    int
	overflow bool
}

func (w *watcher) push(line []byte) {
	w.mu.Lock()
	if !w.overflow {
		if len(w.queue) >= maxQueueEvents || w.bytes+len(line) > maxQueueBytes {
			w.queue, w.bytes, w.overflow = nil, 0, true
		} else {
			w.queue = append(w.queue, line)
			w.bytes += len(line)
		}
	}
	w.mu.Unlock()
	w.poke()
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// hub fans changes out. Watches are found by what they select, so a change costs
// nothing for those that do not select it. Guarded by the cache's lock.
type hub struct {
	bySelect  map[selector]map[*watcher]struct{}
	bySession map[string]map[*watcher]struct{}
	waiting   map[*watcher]struct{} // whose wanted is not reached
	open      int
	history   []*change // after historyFrom, in order
	size      int       // of history, in bytes
	from      uint64    // history has every change after it
}

// restart forgets the history and ends all watches.
func (h *hub) restart(rev uint64) {
	h.history, h.size, h.from = nil, 0, rev
	for w := range h.bySelectAll() {
		w.mu.Lock()
		w.queue, w.bytes, w.overflow = nil, 0, true
		w.mu.Unlock()
		w.poke()
	}
}

func (h *hub) bySelectAll() map[*watcher]struct{} {
	all := map[*watcher]struct{}{}
	for _, set := range h.bySelect {
		for w := range set {
			all[w] = struct{}{}
		}
	}
	return all
}

func (h *hub) add(w *watcher) {
	if h.bySelect == nil {
		h.bySelect = map[selector]map[*watcher]struct{}{}
		h.bySession = map[string]map[*watcher]struct{}{}
		h.waiting = map[*watcher]struct{}{}
	}
	for s := range w.selected {
		insert(h.bySelect, s, w)
	}
	if w.session != "" {
		insert(h.bySession, w.session, w)
	}
	h.open++
}

func insert[K comparable](m map[K]map[*watcher]struct{}, key K, w *watcher) {
	if m[key] == nil {
		m[key] = map[*watcher]struct{}{}
	}
	m[key][w] = struct{}{}
}

func erase[K comparable](m map[K]map[*watcher]struct{}, key K, w *watcher) {
	delete(m[key], w)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

func (h *hub) remove(w *watcher) {
	for s := range w.selected {
		erase(h.bySelect, s, w)
	}
	if w.session != "" {
		erase(h.bySession, w.session, w)
	}
	delete(h.waiting, w)
	h.open--
}

func (h *hub) publish(ch *change) {
	h.remember(ch)
	h.offer(ch, ch.after)
	h.offer(ch, ch.before)
}

func (h *hub) offer(ch *change, sels []selector) {
	for _, s := range sels {
		for w := range h.bySelect[s] {
			if w.last == ch {
				continue
			}
			w.last = ch
			if line := ch.line(w.selected); line != nil {
				w.push(line)
			}
		}
	}
}

func (h *hub) remember(ch *change) {
	h.history = append(h.history, ch)
	h.size += len(ch.put)
	// It is cut by a quarter at a time, so that a change costs no copy of it.
	if len(h.history) <= maxHistory && h.size <= maxHistoryBytes {
		return
	}
	drop := 0
	for drop < len(h.history) && (len(h.history)-drop > maxHistory*3/4 || h.size > maxHistoryBytes*3/4) {
		h.size -= len(h.history[drop].put)
		h.from = h.history[drop].rev
		drop++
	}
	// A revision is kept whole or not at all.
	for drop < len(h.history) && h.history[drop].rev == h.from {
		h.size -= len(h.history[drop].put)
		drop++
	}
	h.history = slices.Clone(h.history[drop:])
}

// since returns the changes after rev; ok is false if they are no longer all there.
func (h *hub) since(rev uint64) (list []*change, ok bool) {
	if rev < h.from {
		return nil, false
	}
	at, _ := slices.BinarySearchFunc(h.history, rev+1, func(ch *change, want uint64) int {
		if ch.rev < want {
			return -1
		}
		return 1
	})
	return h.history[at:], true
}

// reached wakes the watches whose wanted revision has come.
func (h *hub) reached(rev uint64) {
	for w := range h.waiting {
		if w.wanted <= rev {
			delete(h.waiting, w)
			w.poke()
		}
	}
}

// progress asks the watches of a session to tell when they have reached rev.
func (c *cache) progress(session string, rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.hub.bySession[session] {
		w.mu.Lock()
		w.wanted, w.asked = max(w.wanted, rev), true
		w.mu.Unlock()
		if c.rev >= rev {
			w.poke()
		} else {
			c.hub.waiting[w] = struct{}{}
		}
	}
}
