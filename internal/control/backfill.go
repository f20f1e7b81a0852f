package control

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// backfillRevisions is how far before its first list a replica reads the store's
	// history, for watches that come back after it was started. Most of the revisions of a
	// registry of consumers are notes, which are passed over here.
	backfillRevisions = 32_768
	// backfillShrink is by how much less is tried where the store has not kept so much.
	backfillShrink = 8
	// backfillWait is how long a watch that comes back waits for it.
	backfillWait = 3 * time.Second
)

// backfill is the history before a list, while it is read: the last changes, all of them,
// since a watch skips none. What an object was like before the first of its changes is not
// known, and what stands beside it (use, health) is taken as it is now.
type backfill struct {
	from, to uint64 // has the changes after from, up to the list's revision
	past     []past
	size     int           // of past, in bytes
	done     chan struct{} // closed when it is in the history, or given up
	over     bool
}

// past is one change before a list.
type past struct {
	ref
	rev   uint64
	event *store.Event // of the object itself; nil: of something beside it
}

func (p past) size() int {
	if p.event == nil {
		return 0
	}
	return len(p.event.Value)
}

// keep notes a change. There are never more than twice as many as the history has place for:
// the oldest are dropped, or a replica that starts after a storm of large records would have
// to hold all of them.
func (b *backfill) keep(p past) {
	b.past = append(b.past, p)
	b.size += p.size()
	if len(b.past) <= 2*maxHistory && b.size <= 2*maxHistoryBytes {
		return
	}
	drop := 0
	for drop < len(b.past) && (len(b.past)-drop > maxHistory || b.size > maxHistoryBytes) {
		b.size -= b.past[drop].size()
		b.from = b.past[drop].rev // of which a part may be left
		drop++
	}
	b.past = slices.Clone(b.past[drop:])
}

func newBackfill(to uint64) *backfill {
	b := &backfill{from: to, to: to, done: make(chan struct{})}
	if to <= 1 { // nothing was ever written
		b.finish()
	}
	return b
}

func (b *backfill) finish() {
	if !b.over {
		b.over = true
		close(b.done)
	}
}

// beginBackfill returns the revision from which the store is to be watched: up to
// window before what the cache has, if it has no history yet.
func (c *cache) beginBackfill(window uint64) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.fill
	if b == nil || b.over {
		return c.rev
	}
	b.past, b.size = nil, 0
	b.from = b.to - min(b.to, window)
	if window == 0 {
		b.finish()
	}
	return b.from
}

// filling reports whether the history before the list is still being read.
func (c *cache) filling() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.fill != nil && !c.fill.over
}

// waitFilled waits, within bounds, until a watch can begin at a revision from before
// this replica's first list.
func (c *cache) waitFilled(ctx context.Context) {
	c.mu.RLock()
	b := c.fill
	c.mu.RUnlock()
	if b == nil {
		return
	}
	t := time.NewTimer(backfillWait)
	defer t.Stop()
	select {
	case <-b.done:
	case <-t.C:
	case <-ctx.Done():
	}
}

// takeBackfill notes what a batch has of the time before the list, and returns the
// rest of it. c.mu is held, as for what follows.
func (c *cache) takeBackfill(batch store.Batch) store.Batch {
	b := c.fill
	if b == nil || b.over {
		return batch
	}
	for len(batch.Events) > 0 && batch.Events[0].ModRevision <= b.to {
		rev := batch.Events[0].ModRevision
		var touched []ref
		own := map[ref]*store.Event{}
		for len(batch.Events) > 0 && batch.Events[0].ModRevision == rev {
			e := batch.Events[0]
			if r, ok := c.touches(e.Key); ok {
				touched = append(touched, r)
				if e.Key == r.key() {
					own[r] = &e // by itself: the batch has notes too
				}
			}
			batch.Events = batch.Events[1:]
		}
		for _, r := range c.order(touched) {
			b.keep(past{r, rev, own[r]})
		}
	}
	if batch.Revision >= b.to {
		c.hub.prepend(b.from, c.backfilled(b.past))
		b.past = nil
		b.finish()
	}
	return batch
}

// touches names the object that a key is of, or that it changes the look of.
func (c *cache) touches(key string) (ref, bool) {
	family, name := parseKey(key)
	switch family {
	case "uses":
		return laneRef(name), true
	case "health":
		return ref{laneclient.KindInstances, name}, true
	}
	r := ref{laneclient.Kind(family), name}
	return r, c.kinds[r.kind] != nil
}

// backfilled makes changes of what was read. The last one of each object looks as the
// object does now.
func (c *cache) backfilled(all []past) []*change {
	last := make(map[ref]int, len(all))
	for i, p := range all {
		last[p.ref] = i
	}
	list := make([]*change, 0, len(all))
	own := map[ref]*store.Event{} // the last one of the object itself
	for i, p := range all {
		if p.event != nil {
			own[p.ref] = p.event
		}
		ch := &change{ref: p.ref, rev: p.rev, before: knownSelectors(p.ref), guess: true, gone: deleteLine(p.ref, p.rev)}
		if it := c.lookedLike(p.ref, own[p.ref], last[p.ref] == i); it != nil {
			shown := *it
			shown.changed = p.rev
			shown.setLine()
			ch.after, ch.put = it.sels, shown.line
		}
		list = append(list, ch)
	}
	return list
}

// lookedLike presents an object as an event of its own left it; nil: it was gone. Without
// an event it is taken to have been as it is now.
func (c *cache) lookedLike(r ref, e *store.Event, now bool) *item {
	if now || e == nil {
		return c.shelves[r.kind].byName[r.name]
	}
	if e.Deleted {
		return nil
	}
	it, err := c.present(r, e.KV)
	if err != nil { // it is told of as it is now
		return c.shelves[r.kind].byName[r.name]
	}
	return it
}

// knownSelectors are those that follow from an object's name: it has always had them.
func knownSelectors(r ref) []selector {
	s := []selector{{kind: r.kind}}
	switch r.kind {
	case laneclient.KindInstances:
		service, _, _ := strings.Cut(r.name, "/")
		return append(s, selector{r.kind, "service", service})
	case laneclient.KindLanes:
		return append(s, selector{r.kind, "name", r.name}, selector{r.kind, "lane", r.name})
	case laneclient.KindTopics:
		return append(s, selector{r.kind, "name", r.name}, selector{r.kind, "topic", r.name})
	case laneclient.KindGroups:
		return append(s, selector{r.kind, "name", r.name}, selector{r.kind, "group", r.name})
	case laneclient.KindMembers:
		group, _, _ := strings.Cut(r.name, "/")
		return append(s, selector{r.kind, "group", group})
	case laneclient.KindCursors:
		engine, group, topic, _, _ := laneclient.ParseCursorName(r.name)
		return append(s, selector{r.kind, "engine", engine}, selector{r.kind, "group", group}, selector{r.kind, "topic", topic})
	case laneclient.KindServices:
		return append(s, selector{r.kind, "name", r.name}, selector{r.kind, "service", r.name})
	default:
		return append(s, selector{r.kind, "name", r.name})
	}
}

// mayHave reports whether an object of which known are all selectors that are known
// may have one that is selected.
func (s selection) mayHave(k laneclient.Kind, known []selector) bool {
	for sel := range s.some {
		if sel.kind == k && !slices.ContainsFunc(known, func(n selector) bool { return n.field == sel.field }) {
			return true
		}
	}
	return false
}

// prepend gives a history that has begun nowhere yet, or was forgotten, its changes
// after from.
func (h *hub) prepend(from uint64, list []*change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.history) > 0 {
		return // there are changes since: what is before them is not needed so much
	}
	if n := len(list) - maxHistory; n > 0 {
		list = list[n:]
		from = list[0].rev // of which a part may be missing
	}
	h.from = from
	h.first -= uint64(len(list)) // watches that are open have nothing to do with them
	for _, ch := range list {
		h.remember(ch)
	}
}
