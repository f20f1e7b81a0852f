package control

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// item is one object as the API shows it, at one revision. It is immutable.
type item struct {
	ref
	rev     uint64        // of the object's own key: its revision and ETag
	changed uint64        // of the last change that can be seen, also of what is derived
	useRev  uint64        // of a lane: the revision of the use that expires rests on
	lease   store.LeaseID // of the session that it ends with
	raw     []byte        // as stored
	obj     any           // *laneclient.Lane, …, with what is derived
	body    []byte        // obj as JSON, with what a newer version stored beside it
	line    []byte        // the event that shows it, as watches send it; of items in the cache
	sels    []selector
}

// side is a value that is stored beside an object.
type side struct {
	rev   uint64
	value []byte
}

// shelf holds the items of one kind, sorted by name.
type shelf struct {
	byName map[string]*item
	names  []string
}

func (s *shelf) put(it *item) {
	if _, there := s.byName[it.name]; !there {
		at, _ := slices.BinarySearch(s.names, it.name)
		s.names = slices.Insert(s.names, at, it.name)
	}
	s.byName[it.name] = it
}

func (s *shelf) remove(name string) {
	if _, there := s.byName[name]; !there {
		return
	}
	delete(s.byName, name)
	if at, found := slices.BinarySearch(s.names, name); found {
		s.names = slices.Delete(s.names, at, at+1)
	}
}

// cache is a replica's copy of the registry, kept by one watch of the store, and
// the place where that one watch is fanned out to clients. Readers get immutable
// items; what is derived (expiry, health, the status of a rule) is worked out once
// per change here, not once per reader.
type cache struct {
	kinds map[laneclient.Kind]*kind

	mu       sync.RWMutex
	rev      uint64           // everything up to here is in
	loaded   bool             // a first list is in
	advanced chan struct{}    // closed and replaced when rev rises
	changed  chan struct{}    // closed and replaced when rev rises with news
	news     bool             // something has changed since the last advance
	objects  map[ref]store.KV // as stored
	shelves  map[laneclient.Kind]*shelf
	uses     map[string]side    // by lane
	health   map[string]side    // by service/instance
	replicas map[string]replica // by node
	lease    store.LeaseID      // of the leader key
	leader   side               // value: the node that leads; rev 0: none
	broken   map[ref]error      // stored, but no object that this version can read
	// tombstones of members, by name, with when they end: the leader removes them.
	tombstones map[string]time.Time
	hub        *hub
	fill       *backfill // nil before the first list
	loading    bool      // take is fed by a list, whose events are of unknown age
	now        func() time.Time
}

func newCache(now func() time.Time) *cache {
	c := &cache{
		kinds: map[laneclient.Kind]*kind{}, advanced: make(chan struct{}), changed: make(chan struct{}), hub: newHub(), now: now,
	}
	for _, k := range kinds() {
		c.kinds[k.name] = k
	}
	c.reset()
	return c
}

func (c *cache) reset() {
	c.objects = map[ref]store.KV{}
	c.shelves = map[laneclient.Kind]*shelf{}
	for name := range c.kinds {
		c.shelves[name] = &shelf{byName: map[string]*item{}}
	}
	c.uses, c.health = map[string]side{}, map[string]side{}
	c.replicas, c.broken = map[string]replica{}, map[ref]error{}
	c.leader, c.lease = side{}, 0
	c.tombstones = map[string]time.Time{}
	c.news = true
}

// load replaces everything by a list of the store. Watches that are open cannot be
// told what happened in between and end.
func (c *cache) load(kvs []store.KV, rev uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reset()
	var touched []ref
	c.loading = true
	for n := range kvs {
		touched = c.take(touched, store.Event{KV: kvs[n]})
	}
	c.loading = false
	for _, r := range c.order(touched) {
		c.refresh(r, max(c.objects[r].ModRevision, c.sideRevision(r)))
	}
	c.hub.restart(rev)
	if c.fill != nil {
		c.fill.finish()
	}
	c.fill = newBackfill(rev)
	c.loaded = true
	c.rev = 0 // a registry that was restored may be behind what this replica had seen
	c.advance(rev)
}

// apply takes in what the store's watch delivered and tells the clients' watches.
func (c *cache) apply(b store.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b = c.takeBackfill(b)
	for len(b.Events) > 0 {
		rev := b.Events[0].ModRevision
		n := 1
		for n < len(b.Events) && b.Events[n].ModRevision == rev {
			n++
		}
		c.applyRevision(b.Events[:n], rev)
		b.Events = b.Events[n:]
	}
	c.advance(b.Revision)
}

// sideRevision is that of what is stored beside an object.
func (c *cache) sideRevision(r ref) uint64 {
	switch r.kind {
	case laneclient.KindLanes:
		return c.uses[r.name].rev
	case laneclient.KindInstances:
		return c.health[r.name].rev
	default:
		return 0
	}
}

// applyRevision takes in one revision. One of which nobody can see anything is told of to
// nobody: notes of cursors are written more often than all else together, and are no
// change to a watch.
func (c *cache) applyRevision(events []store.Event, rev uint64) {
	var touched []ref
	for _, e := range events {
		touched = c.take(touched, e)
	}
	if len(touched) == 0 {
		return
	}
	var changes []*change
	for _, r := range c.order(touched) {
		if ch := c.refresh(r, rev); ch != nil {
			changes = append(changes, ch)
		}
	}
	c.hub.publish(rev, changes...)
}

func (c *cache) advance(rev uint64) {
	if rev < c.rev || rev == c.rev && rev > 0 {
		return
	}
	c.rev = rev
	close(c.advanced)
	c.advanced = make(chan struct{})
	if c.news {
		c.news = false
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.hub.reached(rev)
}

// take stores what an event says and appends the objects that look different now.
func (c *cache) take(touched []ref, e store.Event) []ref {
	family, name := parseKey(e.Key)
	value := side{rev: e.ModRevision, value: e.Value}
	switch family {
	case "uses":
		putSide(c.uses, name, value, e.Deleted)
		touched = append(touched, laneRef(name))
	case "health":
		putSide(c.health, name, value, e.Deleted)
		touched = append(touched, ref{laneclient.KindInstances, name})
	case "replicas":
		c.takeReplica(name, e)
	case "leader":
		c.leader, c.lease = side{}, 0
		if !e.Deleted {
			c.leader, c.lease = value, e.Lease
		}
	default:
		r := ref{laneclient.Kind(family), name}
		if c.kinds[r.kind] == nil {
			return touched // notes, what only transactions compare, and what is of a newer version
		}
		if e.Deleted {
			delete(c.objects, r)
		} else {
			c.objects[r] = e.KV
		}
		touched = append(touched, r)
	}
	c.news = true
	return touched
}

func putSide(m map[string]side, name string, value side, deleted bool) {
	if deleted {
		delete(m, name)
		return
	}
	m[name] = value
}

// order lists each object once, and after the lanes the rules that name one of
// them, whose status may have changed with it.
func (c *cache) order(touched []ref) []ref {
	seen := make(map[ref]bool, len(touched))
	var list, rules []ref
	for _, r := range touched {
		if seen[r] {
			continue
		}
		seen[r] = true
		if r.kind == laneclient.KindRules {
			rules = append(rules, r)
			continue
		}
		list = append(list, r)
	}
	for _, r := range list {
		if r.kind != laneclient.KindLanes {
			continue
		}
		for name, it := range c.shelves[laneclient.KindRules].byName {
			rule, _ := it.obj.(*laneclient.Rule)
			if dep := (ref{laneclient.KindRules, name}); !seen[dep] && mentions(rule.Lanes, r.name) {
				seen[dep] = true
				rules = append(rules, dep)
			}
		}
	}
	return append(list, rules...)
}

// refresh works out how an object looks now and returns the change, or nil if
// nobody can see one.
func (c *cache) refresh(r ref, rev uint64) *change {
	shelf := c.shelves[r.kind]
	before := shelf.byName[r.name]
	var after *item
	if kv, there := c.objects[r]; there {
		it, err := c.present(r, kv)
		if err != nil {
			c.broken[r] = err
		} else {
			delete(c.broken, r)
			after = it
		}
	} else {
		delete(c.broken, r)
	}
	switch {
	case before == nil && after == nil:
		return nil
	case after == nil:
		shelf.remove(r.name)
		c.noteTombstone(r, nil)
		return newChange(rev, r, before, nil)
	case before != nil && before.rev == after.rev && string(before.body) == string(after.body):
		return nil
	}
	after.changed = rev
	after.setLine()
	shelf.put(after)
	c.noteTombstone(r, after)
	return newChange(rev, r, before, after)
}

// present builds the item of a stored object; c.mu is held.
func (c *cache) present(r ref, kv store.KV) (*item, error) {
	return presentItem(c.kinds[r.kind], r, kv, view{
		use: c.uses[r.name], health: c.health[r.name],
		known: func(n lane.Name) bool { return c.laneLives(string(n)) },
	})
}

func (c *cache) laneLives(name string) bool {
	it := c.shelves[laneclient.KindLanes].byName[name]
	if it == nil {
		return false
	}
	l, _ := it.obj.(*laneclient.Lane)
	return lane.State(l.State) != lane.Ended
}

// view is what an object's look depends on beside its own key.
type view struct {
	use, health side
	known       func(lane.Name) bool
}

func presentItem(k *kind, r ref, kv store.KV, v view) (*item, error) {
	obj, err := k.decode(r.name, kv.Value)
	if err != nil {
		return nil, fmt.Errorf("stored %s %s: %w", r.kind, r.name, err)
	}
	m := laneclient.MetaOf(obj)
	m.Revision = kv.ModRevision
	switch o := obj.(type) {
	case *laneclient.Lane:
		deriveLane(o, v.use)
	case *laneclient.Instance:
		if o.Static {
			o.Health = readHealth(v.health)
		}
	case *laneclient.Rule:
		o.Status = coloring.Check(o, v.known)
	}
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", r.kind, r.name, err)
	}
	if k.read == nil {
		body = keepUnknown(body, kv.Value, k.typ)
	}
	return &item{
		ref: r, rev: kv.ModRevision, changed: kv.ModRevision, useRev: v.use.rev, lease: kv.Lease, raw: kv.Value,
		obj: obj, body: body, sels: selectorsOf(k, obj),
	}, nil
}

// decode reads what is stored of an object.
func (k *kind) decode(name string, stored []byte) (any, error) {
	if k.read != nil {
		return k.read(name, stored)
	}
	obj := k.newObject()
	return obj, json.Unmarshal(stored, obj)
}

// deriveLane adds what follows from a lane's name and last use.
func deriveLane(l *laneclient.Lane, use side) {
	l.Kind = kindOfLane(lane.Name(l.Name))
	l.LastUse = readUse(use)
	if l.Held || lane.State(l.State) == lane.Ended {
		l.Expires, l.WarnedAt = time.Time{}, time.Time{}
		return
	}
	if byUse := l.LastUse.Add(time.Duration(l.TTL)); !l.LastUse.IsZero() && byUse.After(l.Expires) {
		l.Expires = byUse
	}
	if l.WarnedAt.Before(warnTime(l)) {
		l.WarnedAt = time.Time{} // it was used or extended since
	}
}

// get returns the item as the cache has it.
func (c *cache) get(r ref) *item {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.shelves[r.kind].byName[r.name]
}

// list returns the items of a kind for which keep holds, at most limit of them if it is
// not 0, and whether there are more; all at one revision.
func (c *cache) list(k laneclient.Kind, limit int, keep func(*item) bool) (items []*item, more bool, rev uint64) {
	return c.listUnder(k, nil, "", limit, keep)
}

// listUnder is list after a name, where keep is known to hold for none but what all of sels
// choose.
func (c *cache) listUnder(k laneclient.Kind, sels []selector, after string, limit int, keep func(*item) bool) (items []*item, more bool, rev uint64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := c.shelves[k]
	names := s.names
	for _, sel := range sels {
		if some := c.named(sel); len(some) < len(names) {
			names = some
		}
	}
	at, found := slices.BinarySearch(names, after)
	if found {
		at++
	}
	for _, name := range names[at:] {
		it := s.byName[name]
		if keep != nil && !keep(it) {
			continue
		}
		if limit > 0 && len(items) == limit {
			return items, true, c.rev
		}
		items = append(items, it)
	}
	return items, false, c.rev
}

// next returns a channel that is closed when something changes that this replica knows
// of. A revision that rises without that is no news.
func (c *cache) next() <-chan struct{} {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.changed
}

func (c *cache) count(k laneclient.Kind) int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.shelves[k].names)
}

func (c *cache) revision() uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.rev
}

// wait returns once the cache has everything up to rev.
func (c *cache) wait(ctx context.Context, rev uint64) error {
	for {
		c.mu.RLock()
		done, advanced := c.loaded && c.rev >= rev, c.advanced
		c.mu.RUnlock()
		if done {
			return nil
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d: %w", rev, ctx.Err())
		}
	}
}

func selects(it *item, sel selector) bool { return slices.Contains(it.sels, sel) }
