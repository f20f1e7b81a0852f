package control

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// backfillRevisions is how far before its first list a replica reads the store's
	// history, for watches that come back after it was started.
	backfillRevisions = 4096
	// backfillShrink is by how much less is tried where the store has not kept so much.
	backfillShrink = 8
	// backfillWait is how long a watch that comes back waits for it.
	backfillWait = 3 * time.Second
)

// backfill is the history before a list, while it is read. What an object was like
// before is not known, nor are its looks in between, so it has the last change of each
// object, as that looks at the list's revision.
type backfill struct {
	from, to uint64         // has the changes after from, up to the list's revision
	last     map[ref]uint64 // revision of the last change of an object
	done     chan struct{}  // closed when it is in the history, or given up
	over     bool
}

func newBackfill(to uint64) *backfill {
	b := &backfill{from: to, to: to, last: map[ref]uint64{}, done: make(chan struct{})}
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
	clear(b.last)
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
		for len(batch.Events) > 0 && batch.Events[0].ModRevision == rev {
			if r, ok := c.touches(batch.Events[0].Key); ok {
				touched = append(touched, r)
			}
			batch.Events = batch.Events[1:]
		}
		for _, r := range c.order(touched) {
			b.last[r] = rev
		}
	}
	if batch.Revision >= b.to {
		c.hub.prepend(b.from, c.backfilled(b.last))
		b.last = nil
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

// backfilled makes changes of what the objects are like now.
func (c *cache) backfilled(last map[ref]uint64) []*change {
	list := make([]*change, 0, len(last))
	for r, rev := range last {
		ch := &change{ref: r, rev: rev, before: knownSelectors(r), guess: true, gone: deleteLine(r, rev)}
		if it := c.shelves[r.kind].byName[r.name]; it != nil {
			shown := *it
			shown.changed = rev
			shown.setLine()
			ch.after, ch.put = it.sels, shown.line
		}
		list = append(list, ch)
	}
	slices.SortFunc(list, func(a, b *change) int {
		return cmp.Or(cmp.Compare(a.rev, b.rev), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	return list
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
