package control

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	watchType         = "application/x-ndjson"
	progressEvery     = time.Second
	watchWriteTimeout = 30 * time.Second // for one chunk; a client that takes none for so long is cut off
	watchChunkBytes   = 64 << 10
	// baselineWord selects the baseline where a lane is asked for, as in route lines.
	baselineWord = laneclient.BaselineWord
)

// parseSelect reads "KIND" or "KIND:field=value".
func (c *cache) parseSelect(s string) (selector, string) {
	name, condition, conditional := strings.Cut(s, ":")
	k := c.kinds[laneclient.Kind(name)]
	if k == nil {
		return selector{}, strconv.Quote(clip(s)) + " names no kind: want lanes, services, instances, routes, rules or sessions, alone or as KIND:field=value"
	}
	if !conditional {
		return selector{kind: k.name}, ""
	}
	field, value, found := strings.Cut(condition, "=")
	if !found || !slices.Contains(k.fields, field) {
		return selector{}, strconv.Quote(clip(s)) + " has no condition that can be watched: want " + name + ":field=value, with field one of " + strings.Join(k.fields, ", ")
	}
	if field == "lane" && value == baselineWord {
		value = ""
	}
	return selector{k.name, field, value}, ""
}

// watchRequest is a parsed request to watch.
type watchRequest struct {
	from     uint64
	selected map[selector]struct{}
}

func (c *cache) parseWatch(query url.Values) (watchRequest, error) {
	f := &faults{}
	req := watchRequest{selected: map[selector]struct{}{}}
	for key, values := range query {
		switch key {
		case "from":
			n, err := strconv.ParseUint(values[len(values)-1], 10, 64)
			if err != nil {
				f.add("from", "is no revision: want that of the last event, or leave it out for all there is")
			}
			req.from = n
		case "select":
			if len(values) > maxSelects {
				f.add("select", "stands %d times: at most %d are allowed", len(values), maxSelects)
				continue
			}
			for _, v := range values {
				sel, fault := c.parseSelect(v)
				if fault != "" {
					f.add("select", "%s", fault)
					continue
				}
				req.selected[sel] = struct{}{}
			}
		default:
			f.add(clip(key), "is no parameter of this request: want from and select")
		}
	}
	if len(req.selected) == 0 && len(f.list) == 0 {
		f.add("select", "is missing: say what to watch, such as select=lanes")
	}
	sortedFields(f.list)
	return req, f.err("the query")
}

// watchStart is what a watch begins with.
type watchStart struct {
	lines     [][]byte
	rev       uint64
	compacted bool // from is too old, or of another registry's future
}

// open registers a watch and returns what it begins with, both at one revision. What
// takes long, sorting and encoding, is done when writers can go on.
func (c *cache) open(req watchRequest, session string) (*watcher, watchStart, error) {
	w, start, items, err := c.register(req, session)
	slices.SortFunc(items, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.changed, b.changed), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for _, it := range items {
		start.lines = append(start.lines, eventLine(laneclient.Event{
			Type: laneclient.EventPut, Revision: it.changed, Kind: it.kind, Name: it.name, Object: it.body,
		}))
	}
	return w, start, err
}

func (c *cache) register(req watchRequest, session string) (*watcher, watchStart, []*item, error) {
	w := &watcher{selected: req.selected, session: session, wake: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hub.open >= maxWatches {
		return nil, watchStart{}, nil, problem(http.StatusServiceUnavailable,
			"this replica serves %d watches already: go to another one, or try again later", maxWatches)
	}
	start := watchStart{rev: c.rev}
	var items []*item
	switch {
	case req.from == 0:
		items = c.matching(req.selected)
	case req.from > c.rev:
		start.compacted = true
	default:
		list, ok := c.hub.since(req.from)
		start.compacted = !ok
		for _, ch := range list {
			if line := ch.line(req.selected); line != nil {
				start.lines = append(start.lines, line)
			}
		}
	}
	if start.compacted {
		start.lines = nil
		return nil, start, nil, nil
	}
	c.hub.add(w)
	return w, start, items, nil
}

// matching collects what is selected. It is sent in the order of its last change,
// so that a view that is cut off half-way can go on from the last revision it has
// seen.
func (c *cache) matching(selected map[selector]struct{}) []*item {
	found := map[*item]struct{}{}
	for sel := range selected {
		s := c.shelves[sel.kind]
		names := s.names
		if sel.kind == laneclient.KindInstances && sel.field == "service" {
			names = underPrefix(names, sel.value+"/")
		}
		for _, name := range names {
			if it := s.byName[name]; selects(it, sel) {
				found[it] = struct{}{}
			}
		}
	}
	items := make([]*item, 0, len(found))
	for it := range found {
		items = append(items, it)
	}
	return items
}

// underPrefix cuts the part of sorted names that begins with prefix.
func underPrefix(names []string, prefix string) []string {
	from, _ := slices.BinarySearch(names, prefix)
	to := from
	for to < len(names) && strings.HasPrefix(names[to], prefix) {
		to++
	}
	return names[from:to]
}

func (c *cache) close(w *watcher) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hub.remove(w)
}

// pending takes what is to be sent. rev is what the view has reached once it is;
// asked says that a renewal waits to see it.
func (c *cache) pending(w *watcher) (lines [][]byte, rev uint64, asked, overflow bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	lines, w.queue, w.bytes = w.queue, nil, 0
	if w.asked && c.rev >= w.wanted {
		w.asked, asked = false, true
	}
	return lines, c.rev, asked, w.overflow
}

// serveWatch answers GET /v1/watch.
func (c *Control) serveWatch(w http.ResponseWriter, r *http.Request, _ params) error {
	req, err := c.cache.parseWatch(r.URL.Query())
	if err != nil {
		return err
	}
	if err := c.catchUp(r.Context(), req.from); err != nil {
		return err
	}
	watch, start, err := c.cache.open(req, r.Header.Get(laneclient.SessionHeader))
	if err != nil {
		return err
	}
	if watch != nil {
		defer c.cache.close(watch)
	}
	w.Header().Set("Content-Type", watchType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, rc: http.NewResponseController(w)}
	_ = s.rc.SetReadDeadline(time.Time{}) // a watch outlives what a server allows a request
	if start.compacted {
		s.send(marker(laneclient.EventCompacted, start.rev))
		return nil
	}
	c.metrics.watchEvents.Add(float64(len(start.lines)))
	s.send(start.lines...)
	s.send(marker(laneclient.EventSynced, start.rev))
	start.lines = nil
	c.follow(r.Context(), s, watch)
	return nil
}

// catchUp brings the cache to the registry's present, so that a watch begins with
// all that was answered before. A watch that comes back is served from what the
// cache has where the registry does not answer: nothing that it rests on is missing.
func (c *Control) catchUp(ctx context.Context, from uint64) error {
	need, err := c.fresh(ctx)
	switch {
	case err == nil && from > need:
		return nil // of a future that this registry does not have: it is told so
	case err == nil:
		err = c.cacheAt(ctx, need)
	}
	if err != nil && ctx.Err() == nil && from > 0 && c.cache.revision() >= from {
		return nil
	}
	return err
}

func marker(t laneclient.EventType, rev uint64) []byte {
	return eventLine(laneclient.Event{Type: t, Revision: rev})
}

// follow sends changes and progress until the client goes, is too slow, or this
// replica stops.
func (c *Control) follow(ctx context.Context, s *stream, w *watcher) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for s.err == nil {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-c.stopping:
			return
		case <-tick.C:
			due = true
		case <-w.wake:
		}
		lines, rev, asked, overflow := c.cache.pending(w)
		if overflow {
			c.metrics.watchOverflows.Inc()
			s.send(marker(laneclient.EventCompacted, rev))
			return
		}
		c.metrics.watchEvents.Add(float64(len(lines)))
		s.send(lines...)
		if due || asked {
			s.send(marker(laneclient.EventProgress, rev))
		}
	}
}

// stream writes lines in chunks, each with a deadline, and flushes.
type stream struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	err error // of the first write that failed; nothing follows it
}

func (s *stream) send(lines ...[]byte) {
	for len(lines) > 0 && s.err == nil {
		n, size := 0, 0
		for n < len(lines) && (n == 0 || size+len(lines[n]) <= watchChunkBytes) {
			size += len(lines[n])
			n++
		}
		chunk := lines[0]
		if n > 1 {
			chunk = slices.Concat(lines[:n]...)
		}
		lines = lines[n:]
		_ = s.rc.SetWriteDeadline(time.Now().Add(watchWriteTimeout)) // in memory there is none
		if _, s.err = s.w.Write(chunk); s.err == nil {               //nolint:gosec // lines of JSON, said so by their media type
			s.err = s.rc.Flush()
		}
	}
}

// laneOf is the lane that a list asks for: baselineWord is the baseline.
func laneOf(value string) lane.Name {
	if value == baselineWord {
		return lane.Baseline
	}
	return lane.Name(value)
}
