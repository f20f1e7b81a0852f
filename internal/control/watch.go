package control

import (
	"cmp"
	"context"
	"crypto/sha256"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	watchType         = "application/x-ndjson"
	progressEvery     = time.Second
	watchWriteTimeout = 10 * time.Second // for one chunk; a client that takes none for so long is cut off
	watchChunkBytes   = 32 << 10
	// baselineWord selects the baseline where a lane is asked for, as in route lines.
	baselineWord = laneclient.BaselineWord
)

// parseSelect reads "KIND" or "KIND:field=value".
func (c *cache) parseSelect(s string) (selector, string) {
	name, condition, conditional := strings.Cut(s, ":")
	k := c.kinds[laneclient.Kind(name)]
	if k == nil {
		return selector{}, strconv.Quote(clip(s)) + " names no kind: want one of " + kindNames() + ", alone or as KIND:field=value"
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
// takes long is done when writers can go on.
func (c *cache) open(req watchRequest, session string) (*watcher, watchStart, error) {
	w, start, missed, items, err := c.register(req, req.key(), session)
	if w == nil {
		return nil, start, err
	}
	slices.SortFunc(items, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.changed, b.changed), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	for _, it := range items {
		start.lines = append(start.lines, it.line)
	}
	for _, ch := range missed {
		if line := ch.line(w.group.selected); line != nil {
			start.lines = append(start.lines, line)
		}
	}
	return w, start, nil
}

// key is equal for requests that select the same.
func (r watchRequest) key() string {
	list := make([]string, 0, len(r.selected))
	for s := range r.selected {
		list = append(list, string(s.kind)+":"+s.field+"="+s.value)
	}
	slices.Sort(list)
	sum := sha256.Sum256([]byte(strings.Join(list, "\n")))
	return string(sum[:])
}

// register makes a watch known. It begins with items, or with the changes that it
// missed; w is nil where it cannot begin.
func (c *cache) register(req watchRequest, key, session string) (w *watcher, start watchStart, missed []*change, items []*item, err error) {
	c.mu.RLock() // the cache stays as it is
	defer c.mu.RUnlock()
	start.rev = c.rev
	if req.from == 0 {
		items = c.matching(req.selected)
	}
	h := c.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := refuseWatch(h.admit(session, len(req.selected))); err != nil {
		return nil, start, nil, nil, err
	}
	if req.from > 0 {
		var ok bool
		if missed, ok = h.since(req.from); !ok || req.from > c.rev {
			start.compacted = true
			return nil, start, nil, nil, nil
		}
	}
	w = &watcher{session: session, wake: make(chan struct{}, 1)}
	h.add(w, key, req.selected)
	return w, start, missed, items, nil
}

// refuseWatch is the answer to a watch beyond a limit; nil: it is within all.
func refuseWatch(limit string) error {
	switch limit {
	case tooManyWatches:
		return typed(problem(http.StatusServiceUnavailable,
			"this replica serves %d watches already: go to another one, or try again later", maxWatches), laneclient.ProblemUnavailable)
	case tooManySelects:
		return typed(problem(http.StatusServiceUnavailable,
			"this replica's watches select by %d conditions already: go to another one, or select whole kinds", maxAllSelects), laneclient.ProblemUnavailable)
	case tooManyOfSession:
		return problem(http.StatusTooManyRequests,
			"the session named in the header %s has %d watches open already: close those that are not read", laneclient.SessionHeader, maxSessionWatches)
	}
	return nil
}

// matching collects what is selected. It is sent in the order of its last change,
// so that a view that is cut off half-way can go on from the last revision it has
// seen.
func (c *cache) matching(selected map[selector]struct{}) []*item {
	found := map[*item]struct{}{}
	for sel := range selected {
		s := c.shelves[sel.kind]
		for _, name := range c.named(sel) {
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

// named are the names, sorted, among which are all of those that a selector chooses.
func (c *cache) named(sel selector) []string {
	names := c.shelves[sel.kind].names
	switch {
	case sel.kind == laneclient.KindInstances && (sel.field == "service" || sel.field == laneclient.FieldCallable),
		sel.kind == laneclient.KindMembers && sel.field == "group",
		sel.kind == laneclient.KindCursors && sel.field == "engine":
		return underPrefix(names, sel.value+"/")
	case sel.kind == laneclient.KindCursors && sel.field == "group":
		// Its cursors are gone before the group is, which knows the engine.
		if group := groupOfItem(c.shelves[laneclient.KindGroups].byName[sel.value]); group != nil {
			return underPrefix(names, group.Engine+"/"+sel.value+"/")
		}
	}
	return names
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

// serveWatch answers GET /v1/watch.
func (c *Control) serveWatch(w http.ResponseWriter, r *http.Request, _ params) error {
	req, err := c.cache.parseWatch(r.URL.Query())
	if err != nil {
		return err
	}
	if err := c.catchUp(r.Context(), req.from); err != nil {
		return err
	}
	if req.from > 0 {
		c.cache.waitFilled(r.Context())
	}
	watch, start, err := c.cache.open(req, r.Header.Get(laneclient.SessionHeader))
	if err != nil {
		return err
	}
	if watch != nil {
		defer c.cache.hub.remove(watch)
	}
	w.Header().Set("Content-Type", watchType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	s := &stream{w: w, rc: http.NewResponseController(w), chunks: &c.chunks}
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
	hub := c.cache.hub
	hub.done(w, portion{next: w.at}) // with what it began with
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for s.err == nil {
		select {
		case <-ctx.Done():
			return
		case <-c.stopping:
			return
		case <-tick.C:
			hub.tick(w)
			continue
		case <-w.wake:
		}
		p := hub.take(w)
		if p.compacted {
			c.metrics.watchOverflows.Inc()
			s.send(marker(laneclient.EventCompacted, p.rev))
			return
		}
		c.metrics.watchEvents.Add(float64(len(p.lines)))
		if p.tell {
			p.lines = append(p.lines, marker(laneclient.EventProgress, p.rev))
		}
		begun := time.Now()
		lend := time.AfterFunc(turnTime, func() { hub.lend(w, p.turn) })
		s.send(p.lines...)
		lend.Stop()
		p.slow = time.Since(begun) > slowWrite
		hub.done(w, p)
	}
}

// stream writes lines in chunks, each with a deadline, and flushes.
type stream struct {
	w      http.ResponseWriter
	rc     *http.ResponseController
	chunks *sync.Pool // of *[]byte, for the streams of one replica: few write at once
	err    error      // of the first write that failed; nothing follows it
}

func (s *stream) send(lines ...[]byte) {
	for len(lines) > 0 && s.err == nil {
		n, size := 0, 0
		for n < len(lines) && (n == 0 || size+len(lines[n]) <= watchChunkBytes) {
			size += len(lines[n])
			n++
		}
		s.sendChunk(lines[:n])
		lines = lines[n:]
	}
}

func (s *stream) sendChunk(lines [][]byte) {
	chunk := lines[0]
	if len(lines) > 1 {
		buf, _ := s.chunks.Get().(*[]byte)
		if buf == nil {
			buf = new([]byte)
		}
		chunk = (*buf)[:0]
		for _, line := range lines {
			chunk = append(chunk, line...)
		}
		defer func() {
			*buf = chunk
			s.chunks.Put(buf)
		}()
	}
	_ = s.rc.SetWriteDeadline(time.Now().Add(watchWriteTimeout)) // in memory there is none
	if _, s.err = s.w.Write(chunk); s.err == nil {
		s.err = s.rc.Flush()
	}
}

// laneOf is the lane that a list asks for: baselineWord is the baseline.
func laneOf(value string) lane.Name {
	if value == baselineWord {
		return lane.Baseline
	}
	return lane.Name(value)
}
