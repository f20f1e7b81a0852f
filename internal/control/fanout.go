package control

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Limits of watches.
const (
	maxWatches        = 10_000    // open at once, per replica
	maxSessionWatches = 16        // open at once, per session: a client needs two, while it changes from one to the next
	maxSelects        = 512       // of one watch
	maxAllSelects     = 1_000_000 // of all watches of a replica together; those that select the same count once
	maxHistory        = 16_384    // changes kept for watches that lag, or come back
	maxHistoryBytes   = 16 << 20  // the same, in bytes
)

// change is what one revision did to one object, encoded once for all clients.
type change struct {
	ref
	rev           uint64
	put           []byte // a line; nil if the object is gone
	gone          []byte // the line for those for whom it is gone
	before, after []selector
	guess         bool // before are only those that are known
}

func newChange(rev uint64, r ref, before, after *item) *change {
	ch := &change{ref: r, rev: rev}
	if before != nil {
		ch.before = before.sels
		ch.gone = deleteLine(r, rev)
	}
	if after != nil {
		ch.after = after.sels
		ch.put = after.line
	}
	return ch
}

func deleteLine(r ref, rev uint64) []byte {
	return eventLine(laneclient.Event{Type: laneclient.EventDelete, Revision: rev, Kind: r.kind, Name: r.name})
}

func (ch *change) size() int { return len(ch.put) + len(ch.gone) }

// line is what a watch that selects so is told of the change; nil: nothing. An object
// that leaves what is selected is deleted there; where it is not known whether it was
// there, it is said to be gone all the same.
func (ch *change) line(s selection) []byte {
	switch {
	case s.selects(ch.kind, ch.after):
		return ch.put
	case s.selects(ch.kind, ch.before), ch.guess && s.mayHave(ch.kind, ch.before):
		return ch.gone
	}
	return nil
}

// setLine encodes the event by which the item came to look as it does. The item's
// body is kept once, within it.
func (it *item) setLine() {
	const object, end = `,"object":`, "}\n"
	head := eventLine(laneclient.Event{Type: laneclient.EventPut, Revision: it.changed, Kind: it.kind, Name: it.name})
	head = head[:len(head)-len(end)]
	it.line = slices.Concat(head, []byte(object), it.body, []byte(end))
	it.body = it.line[len(head)+len(object) : len(it.line)-len(end) : len(it.line)-len(end)]
}

func eventLine(e laneclient.Event) []byte {
	b, err := json.Marshal(e)
	if err != nil { // the object alone is foreign, and it was encoded by us
		panic("control: event cannot be encoded: " + err.Error())
	}
	return append(b, '\n')
}

// selection is what a watch selects.
type selection struct {
	whole map[laneclient.Kind]bool // kinds of which there is a selector; true: of all their objects
	some  map[selector]struct{}    // every selector
}

func newSelection(some map[selector]struct{}) selection {
	s := selection{whole: map[laneclient.Kind]bool{}, some: some}
	for sel := range some {
		s.whole[sel.kind] = s.whole[sel.kind] || sel.field == ""
	}
	return s
}

// selects reports whether it has one of the selectors of an object of that kind.
func (s selection) selects(k laneclient.Kind, sels []selector) bool {
	if whole, there := s.whole[k]; !there || whole {
		return whole && len(sels) > 0
	}
	return slices.ContainsFunc(sels, func(sel selector) bool { _, ok := s.some[sel]; return ok })
}

// watcher is one client's watch. It has no queue: what it has not been told is in
// the history that all share, from at on, so one that does not read costs a place in
// it and nothing per change.
type watcher struct {
	group   *group
	session string
	wake    chan struct{} // one token: it is its turn

	// Guarded by hub.mu.
	state  watchState
	place  int       // in group.idle, while idle
	queued time.Time // when it came to wait
	at     uint64    // index of the first change that it was not told, while not idle
	turn   uint64    // rises with every turn
	onTurn bool      // one of turns.running is it
	slow   bool      // its last write took long
	ended  bool      // it missed changes that the history does not have
	due    bool      // progress is to be told, at whatever revision
	asked  uint64    // renewals that want to see progress to wanted
	told   uint64    // so many of them have
	wanted uint64
}

// owes reports whether a renewal waits for progress that can be told at a revision.
func (w *watcher) owes(rev uint64) bool { return w.asked > w.told && rev >= w.wanted }

type watchState int

const (
	watchBusy  watchState = iota // its goroutine is at work, and says when it is done
	watchIdle                    // it was told everything
	watchQueue                   // it waits for its turn
	watchGone
)

// group is all watches that select the same: a change is looked up once for them.
type group struct {
	key      string
	selected selection
	members  int
	idle     []*watcher
	end      uint64 // index after the last change that is selected
}

// hub fans changes out. It keeps the last of them for all watches, finds those that
// have nothing left to be told by what they select, and gives each a turn. So a
// change costs nothing for watches that do not select it, for those that still write
// what came before it, and for those whose client takes nothing.
type hub struct {
	mu        sync.Mutex // after cache.mu
	rev       uint64     // the cache's
	groups    map[string]*group
	bySelect  map[selector]map[*group]struct{}
	bySession map[string]map[*watcher]struct{}
	watchers  map[*watcher]struct{}
	waiting   map[*watcher]struct{} // whose wanted is not reached
	selects   int                   // of all groups
	history   []*change             // in order; what a reader took of it stays as it is
	size      int                   // of history, in bytes
	first     uint64                // index of history[0], among all changes since this replica began
	from      uint64                // history has every change after this revision
	turns     turns
}

func newHub() *hub {
	h := &hub{
		first:  maxHistory, // so that there is room before it
		groups: map[string]*group{}, bySelect: map[selector]map[*group]struct{}{}, bySession: map[string]map[*watcher]struct{}{},
		watchers: map[*watcher]struct{}{}, waiting: map[*watcher]struct{}{}, turns: newTurns(),
	}
	h.turns.rest = func(d time.Duration) { time.AfterFunc(d, h.resume) }
	return h
}

// end is the index of the next change; h.mu is held, as wherever it is not taken.
func (h *hub) end() uint64 { return h.first + uint64(len(h.history)) }

// restart forgets the history and ends all watches.
func (h *hub) restart(rev uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.first, h.from = h.end(), rev
	h.history, h.size = nil, 0
	for w := range h.watchers {
		w.ended = true
		h.rouse(w)
	}
}

// count is how many watches are open, and by how many conditions they select.
func (h *hub) count() (watches, selects int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.watchers), h.selects
}

// admit says why a watch cannot be served.
func (h *hub) admit(session string, selects int) string {
	switch {
	case len(h.watchers) >= maxWatches:
		return tooManyWatches
	case h.selects+selects > maxAllSelects:
		return tooManySelects
	case session != "" && len(h.bySession[session]) >= maxSessionWatches:
		return tooManyOfSession
	}
	return ""
}

const (
	tooManyWatches   = "watches"
	tooManySelects   = "selects"
	tooManyOfSession = "session"
)

// add makes a watch known. It is busy: its goroutine has to tell when it has sent
// what it began with.
func (h *hub) add(w *watcher, key string, selected map[selector]struct{}) {
	g := h.groups[key]
	if g == nil {
		g = &group{key: key, selected: newSelection(selected), end: h.end()}
		h.groups[key] = g
		h.selects += len(selected)
		for s := range selected {
			insert(h.bySelect, s, g)
		}
	}
	g.members++
	w.group, w.at = g, h.end()
	h.watchers[w] = struct{}{}
	if w.session != "" {
		insert(h.bySession, w.session, w)
	}
}

func insert[K, V comparable](m map[K]map[V]struct{}, key K, v V) {
	if m[key] == nil {
		m[key] = map[V]struct{}{}
	}
	m[key][v] = struct{}{}
}

func erase[K, V comparable](m map[K]map[V]struct{}, key K, v V) {
	delete(m[key], v)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

func (h *hub) remove(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.state == watchIdle {
		w.group.leaveIdle(w)
	}
	w.state = watchGone
	h.turns.release(w)
	delete(h.watchers, w)
	delete(h.waiting, w)
	if w.session != "" {
		erase(h.bySession, w.session, w)
	}
	g := w.group
	if g.members--; g.members > 0 {
		return
	}
	delete(h.groups, g.key)
	h.selects -= len(g.selected.some)
	for s := range g.selected.some {
		erase(h.bySelect, s, g)
	}
}

func (g *group) leaveIdle(w *watcher) {
	last := g.idle[len(g.idle)-1]
	g.idle[w.place], last.place = last, w.place
	g.idle[len(g.idle)-1] = nil
	g.idle = g.idle[:len(g.idle)-1]
}

// publish keeps all changes of a revision and gives a turn to those who select one and
// were idle. The others find it when they have sent what they are at.
func (h *hub) publish(rev uint64, changes ...*change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev = rev // no progress is told that is behind a change
	for _, ch := range changes {
		h.remember(ch)
		h.offer(ch.after)
		h.offer(ch.before)
	}
}

func (h *hub) offer(sels []selector) {
	end := h.end()
	for _, s := range sels {
		for g := range h.bySelect[s] {
			if g.end == end {
				continue // by another of its selectors
			}
			g.end = end
			for n, w := range g.idle {
				w.at = end - 1
				h.turns.queue(w)
				g.idle[n] = nil
			}
			g.idle = g.idle[:0]
		}
	}
}

// rouse gives a turn to a watch that is idle, for what is no change.
func (h *hub) rouse(w *watcher) {
	if w.state == watchIdle {
		w.group.leaveIdle(w)
		w.at = h.end()
		h.turns.queue(w)
	}
}

func (h *hub) remember(ch *change) {
	h.history = append(h.history, ch)
	h.size += ch.size()
	// It is cut by a quarter at a time, so that a change costs no copy of it.
	if len(h.history) <= maxHistory && h.size <= maxHistoryBytes {
		return
	}
	drop := 0
	for drop < len(h.history) && (len(h.history)-drop > maxHistory*3/4 || h.size > maxHistoryBytes*3/4) {
		h.size -= h.history[drop].size()
		h.from = h.history[drop].rev
		drop++
	}
	// A revision is kept whole or not at all.
	for drop < len(h.history) && h.history[drop].rev == h.from {
		h.size -= h.history[drop].size()
		drop++
	}
	h.history = slices.Clone(h.history[drop:])
	h.first += uint64(drop)
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

// reached notes the cache's revision and gives a turn to watches that wait for it.
func (h *hub) reached(rev uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rev = rev
	for w := range h.waiting {
		if w.wanted <= rev {
			delete(h.waiting, w)
			h.rouse(w)
		}
	}
}

// progress asks the watches of a session to tell when they have reached rev.
func (h *hub) progress(session string, rev uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.bySession[session] {
		w.wanted = max(w.wanted, rev)
		w.asked++
		if h.rev >= w.wanted {
			h.rouse(w)
		} else {
			h.waiting[w] = struct{}{}
		}
	}
}

// tick asks a watch to tell how far it is.
func (h *hub) tick(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.due = true
	h.rouse(w)
}

// portion is what a watch sends in one turn.
type portion struct {
	lines     [][]byte
	rev       uint64 // what the view has reached, if tell
	tell      bool   // progress
	asked     uint64 // renewals that it answers
	owes      bool   // progress, once what is left is sent
	compacted bool   // what comes next is no longer there
	next      uint64 // index of the first change that is left
	turn      uint64
	slow      bool // it took long to be sent
	size      int  // of lines, in bytes
}

// take begins a turn: it collects what is to be sent, or turnBytes of it.
func (h *hub) take(w *watcher) portion {
	h.mu.Lock()
	end, first, list, g := w.group.end, h.first, h.history, w.group
	p := portion{rev: h.rev, next: h.end(), tell: w.due || w.owes(h.rev), asked: w.asked}
	at := w.at
	p.compacted = w.ended || at < end && at < first
	w.turn++
	p.turn = w.turn
	if w.slow {
		h.turns.release(w)
	}
	h.mu.Unlock()
	if p.compacted {
		return p
	}
	for ; at < end; at++ {
		line := list[at-first].line(g.selected)
		if line == nil {
			continue
		}
		if p.size+len(line) > turnBytes && len(p.lines) > 0 {
			p.next, p.tell = at, false
			return p
		}
		p.size += len(line)
		p.lines = append(p.lines, line)
		if ch := list[at-first]; ch.kind == laneclient.KindCursors && ch.put != nil {
			p.owes = true
		}
	}
	// A record may name a session that has ended. Whoever reads it takes the cursor once the
	// view has reached the record's revision without that session: it must not wait for the
	// second to be over. The line goes out with the record, and only to who selects cursors.
	p.tell, p.owes = p.tell || p.owes, false
	return p
}

// done ends a turn. A watch for which there is more waits for another.
func (h *hub) done(w *watcher, p portion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turns.left -= float64(p.size) / turnUnit
	h.turns.release(w)
	w.at, w.slow = p.next, p.slow
	if p.tell {
		w.due = false
		if w.wanted <= p.rev { // not those that came while this was sent
			w.told = p.asked
		}
	}
	w.due = w.due || p.owes
	if w.at < w.group.end || w.ended || w.due || w.owes(h.rev) {
		h.turns.queue(w)
		return
	}
	w.state, w.place = watchIdle, len(w.group.idle)
	w.group.idle = append(w.group.idle, w)
}
