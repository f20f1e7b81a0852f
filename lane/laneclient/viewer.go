package laneclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

const (
	maxPause = 20 * time.Millisecond // between views

	// lagAllowed is how long a view may take to reach the revision of a renewal:
	// the watch's own replica sends progress at once after one.
	lagAllowed = time.Second
	// lagElsewhere is added where the renewal went to another replica, whose watches
	// hear of progress every second.
	lagElsewhere = 2 * time.Second
	// staleAfter is how long a view may be without a watch before it says so.
	staleAfter = time.Second
	// holdTime is how long instances stay that the registry has lost together with
	// this process's session.
	holdTime = 10 * time.Second

	maxNeeds          = 128 // services; past that, the instances of all are watched
	selectSeparator   = "\n"
	selectInstances   = string(KindInstances)
	selectInstancesOf = string(KindInstances) + ":" + FieldCallable + "="
)

var errCompacted = errors.New("the watch was compacted: read anew")

// feed is one open watch and what it has told.
type feed struct {
	model     *model
	replica   int
	cancel    context.CancelFunc
	listed    bool      // began with the present state, not with a revision
	caughtUp  time.Time // when it was synced; zero: it is not
	compacted bool
}

// viewer turns watches into views. One goroutine runs it and owns its fields.
//
// A watch is replaced without a gap: the next one is opened and read until it is
// level with the view, while the present one goes on; then they change places.
type viewer struct {
	c     *Client
	link  *link
	feeds feeds[*feed]

	model *model // behind the present view; nil: there has been none
	cur   *feed  // that feeds model; nil: it is gone
	next  *feed  // to become cur; nil: none is open

	replace   bool      // cur lags: another feed takes its place …
	avoid     int       // … at another replica than this; -1: at any
	retry     backoff   // of opening feeds
	retryAt   time.Time // not before then
	needProof uint64    // no feed is opened before the proof after this one
	relist    bool      // the next feed begins with the present state

	lostAt     time.Time // when cur was lost; zero: it is there
	failed     bool      // since then, the control plane did not answer
	lagTarget  uint64    // revision to be reached …
	lagAt      time.Time // … by then; zero: it is
	lagging    bool
	seenProof  uint64
	buildAt    time.Time // not before then
	heldUntil  time.Time
	fromFile   bool
	seenFailed uint64
}

func newViewer(c *Client) *viewer {
	return &viewer{
		c: c, link: c.link, feeds: newFeeds[*feed](c, readViewed), avoid: -1,
		retry: backoff{least: retryLeast, most: retryMost},
	}
}

func (v *viewer) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer func() {
		v.drop(&v.cur)
		v.drop(&v.next)
		v.feeds.running.Wait()
	}()
	for {
		v.steer(ctx)
		v.publish(ctx)
		// Never at once: what waits in the inbox goes first.
		timer.Reset(max(time.Millisecond, v.nextWake()))
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-v.link.poke:
		case m := <-v.feeds.inbox:
			v.feeds.take(m, func(m message[*feed]) { v.handle(ctx, m) })
		}
	}
}

func (v *viewer) drop(f **feed) {
	if *f != nil {
		(*f).cancel()
		*f = nil
	}
}

// steer compares what is watched with what should be, and opens what is missing.
func (v *viewer) steer(ctx context.Context) {
	now := time.Now()
	p := v.link.current()
	v.followProof(p, now)
	v.checkLag(ctx, now)
	v.checkNext(now)
	selects, joined := v.wanted(p.session)
	fits := v.cur != nil && v.cur.model.session == p.session && v.cur.model.selects == joined && !v.relist && !v.replace
	if fits {
		v.drop(&v.next) // it was opened for what is no longer so
		return
	}
	if p.session == "" || now.Before(v.retryAt) || v.cur == nil && p.seq <= v.needProof {
		return
	}
	if v.next != nil {
		if v.next.model.session == p.session {
			return // also where needs have grown meanwhile: it is replaced after the swap
		}
		v.drop(&v.next)
	}
	v.open(ctx, p, selects, joined)
}

// followProof notes a new answer of the control plane: the view has to reach its
// revision.
func (v *viewer) followProof(p proof, now time.Time) {
	var failedSeq uint64
	v.link.read(func() { failedSeq = v.link.failedSeq })
	if failedSeq > v.seenFailed {
		v.seenFailed = failedSeq
		v.failed = v.failed || v.cur == nil
	}
	if v.model != nil && p.revision > v.model.complete && v.lagAt.IsZero() && p.session != "" {
		v.lagTarget, v.lagAt = p.revision, now.Add(lagAllowed)
		if v.cur != nil && v.cur.replica != p.replica {
			v.lagAt = v.lagAt.Add(lagElsewhere)
		}
	}
	v.seenProof = p.seq
	if v.model != nil && v.model.complete >= v.lagTarget {
		v.lagAt, v.lagging, v.replace, v.avoid = time.Time{}, false, false, -1
	}
}

// checkLag moves away from a replica whose watch has not come to a revision in time.
func (v *viewer) checkLag(ctx context.Context, now time.Time) {
	if v.cur == nil || v.lagAt.IsZero() || now.Before(v.lagAt) {
		return
	}
	if !v.lagging {
		v.c.log.WarnContext(ctx, "view lags: it moves to another replica", "revision", v.model.complete, "wanted", v.lagTarget)
	}
	v.lagging = true
	v.lagAt = now.Add(lagAllowed + v.retry.next())
	v.replace, v.avoid = true, v.cur.replica
	v.c.moveOn(v.cur.replica)
	v.drop(&v.next)
	v.c.noteErr(fmt.Errorf("the watch at %s has not reached revision %d in time", v.c.urls[v.cur.replica], v.lagTarget))
}

// checkNext gives up a feed that is synced but stays behind what is required of it.
func (v *viewer) checkNext(now time.Time) {
	if v.next == nil || v.next.caughtUp.IsZero() || now.Before(v.next.caughtUp.Add(lagAllowed)) {
		return
	}
	replica := v.next.replica
	v.drop(&v.next)
	v.retryLater(replica, now)
}

// retryLater waits before the next feed is opened, at another replica.
func (v *viewer) retryLater(replica int, now time.Time) {
	v.c.moveOn(replica)
	v.retryAt = now.Add(v.retry.next())
}

// wanted lists what should be watched, sorted.
func (v *viewer) wanted(session string) (selects []string, joined string) {
	selects = []string{string(KindLanes), string(KindServices), string(KindSessions) + ":name=" + session}
	needs := 0
	v.link.read(func() {
		needs = len(v.link.needs)
		if needs > maxNeeds {
			return
		}
		for service := range v.link.needs {
			selects = append(selects, selectInstancesOf+service)
		}
	})
	if v.c.cfg.All || needs > maxNeeds {
		selects = append(selects, selectInstances)
	}
	if v.c.cfg.All {
		selects = append(selects, string(KindRoutes), string(KindRules))
	}
	slices.Sort(selects)
	return selects, strings.Join(selects, selectSeparator)
}

// open starts a feed: from where the model is, if that means the same there, else
// from the present state.
func (v *viewer) open(ctx context.Context, p proof, selects []string, joined string) {
	f := &feed{replica: int(v.c.current.Load())}
	if f.replica == v.avoid {
		// Where there is one URL only, it may stand for several replicas.
		f.replica = (f.replica + 1) % len(v.c.urls)
	}
	from := uint64(0)
	if m := v.model; m != nil && m.session == p.session && m.selects == joined && !v.relist {
		from, f.model = m.complete, m.clone()
	} else {
		f.model, f.listed = newModel(p.session, joined), true
	}
	session := []CallOption{InSession(f.model.session)}
	f.cancel = v.feeds.open(ctx, f, func(ctx context.Context) (*Stream, error) {
		return v.c.watchAt(ctx, f.replica, from, selects, session)
	})
	v.next = f
}

func (v *viewer) handle(ctx context.Context, m message[*feed]) {
	f := m.feed
	if f != v.cur && f != v.next {
		return // a feed that was given up; what it says is no longer wanted
	}
	if m.err != nil {
		v.ended(ctx, f, m.err)
		return
	}
	if m.Type == EventCompacted {
		f.compacted = true
		v.ended(ctx, f, errCompacted)
		return
	}
	if err := f.model.apply(m.change); err != nil {
		v.ended(ctx, f, err)
		return
	}
	if m.Type == EventDelete && m.Kind == KindSessions {
		signal(v.link.renew) // which finds that it is gone, and opens another
	}
	if f != v.next || !f.model.synced {
		return
	}
	if f.caughtUp.IsZero() {
		f.caughtUp = time.Now()
	}
	if v.level(f.model) {
		v.adopt(ctx)
	}
}

// level reports whether a feed's model may be shown: a view never goes back, unless
// the registry has.
func (v *viewer) level(m *model) bool {
	p := v.link.current()
	another := v.model == nil || v.model.session != m.session
	if another && m.complete < p.opened {
		return false
	}
	if v.model == nil || another && p.reset {
		return true
	}
	return m.seen >= v.model.seen && m.complete >= v.model.complete
}

// adopt makes next the feed that is shown.
func (v *viewer) adopt(ctx context.Context) {
	now := time.Now()
	f := v.next
	p := v.link.current()
	if old := v.model; old != nil && f.model.session != old.session {
		f.model.markAll()
		// Read from the file because the control plane was away, or cut off for so
		// long that sessions ran out: others have lost theirs, too.
		if p.lost || v.fromFile && v.failed {
			f.model.hold(old, now.Add(holdTime))
		}
	} else if f.listed {
		f.model.markAll()
		if old != nil {
			f.model.inherit(old)
		}
	}
	v.drop(&v.cur)
	v.cur, v.next, v.model = f, nil, f.model
	v.relist, v.failed, v.fromFile = false, false, false
	v.replace, v.avoid, v.lostAt = false, -1, time.Time{}
	if v.model.complete >= v.lagTarget || f.listed {
		v.lagAt, v.lagging = time.Time{}, false
		v.retry.reset()
	}
	v.c.log.DebugContext(ctx, "watch is in step", "control", v.c.urls[f.replica], "revision", f.model.complete)
}

// ended notes that a feed is over, and plans the next.
func (v *viewer) ended(ctx context.Context, f *feed, err error) {
	now := time.Now()
	f.cancel()
	if !errors.Is(err, errCompacted) && !errors.Is(err, io.EOF) {
		v.c.noteErr(fmt.Errorf("watch %s: %w", v.c.urls[f.replica], err))
	}
	v.relist = v.relist || f.compacted
	if f == v.next {
		v.next = nil
		v.failed = v.failed || v.cur == nil && !f.compacted
		if f.compacted && !f.listed {
			return // read anew at once
		}
		v.retryLater(f.replica, now)
		return
	}
	v.cur, v.lostAt = nil, now
	if f.compacted {
		return
	}
	v.c.log.InfoContext(ctx, "watch has ended: it is opened again", "control", v.c.urls[f.replica], "error", err)
	// A renewal first: it finds a replica that answers, and whether the session has
	// outlived what has cut the watch.
	v.needProof = v.seenProof
	signal(v.link.renew)
}

// nextWake is how long there is nothing to do unless something comes.
func (v *viewer) nextWake() time.Duration {
	next := time.Now().Add(time.Minute)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	if v.cur == nil || v.next == nil {
		earlier(later(v.retryAt))
	}
	if v.cur != nil {
		earlier(v.lagAt)
	} else if !v.lostAt.IsZero() {
		earlier(later(v.lostAt.Add(staleAfter)))
	}
	if v.next != nil && !v.next.caughtUp.IsZero() {
		earlier(v.next.caughtUp.Add(lagAllowed))
	}
	if v.model != nil && v.model.dirty() {
		earlier(v.buildAt)
	}
	earlier(v.heldUntil)
	return max(0, time.Until(next))
}

// later is t, unless that has passed: then there is no point in waking for it.
func later(t time.Time) time.Time {
	if t.After(time.Now()) {
		return t
	}
	return time.Time{}
}

// publish makes a view of what has changed.
func (v *viewer) publish(ctx context.Context) {
	if v.model == nil {
		return
	}
	now := time.Now()
	if !now.Before(v.heldUntil) && (len(v.model.held) > 0 || !v.heldUntil.IsZero()) {
		v.heldUntil = v.model.release(now)
	}
	old := v.c.view.Load()
	stale := v.lagging || v.cur == nil && (v.failed || v.lostAt.IsZero() || now.Sub(v.lostAt) >= staleAfter)
	dirty := v.model.dirty() && !now.Before(v.buildAt)
	fresh := dirty || stale != old.Stale || v.fromFile != old.FromFile
	if fresh || !v.model.dirty() && v.model.seen != old.Revision {
		v.c.view.Store(v.build(ctx, old, now, dirty, stale))
	}
	v.share(stale)
	if fresh {
		v.c.notify(dirty)
	}
}

// build makes the view that follows old.
func (v *viewer) build(ctx context.Context, old *View, now time.Time, dirty, stale bool) *View {
	view := *old
	if dirty {
		v.model.fill(&view, v.c.cfg.Room)
		// Under constant change a quarter of a core goes into views, at most.
		v.buildAt = time.Now().Add(min(maxPause, 3*time.Since(now)))
	}
	if !v.model.dirty() {
		view.Revision = v.model.seen
	}
	if view.Snapshot.Revision() != view.Revision {
		view.Snapshot = view.Snapshot.At(view.Revision)
	}
	view.FromFile, view.Stale = v.fromFile, stale
	switch {
	case !stale:
		view.StaleSince = time.Time{}
	case !old.Stale:
		view.StaleSince = now
		v.c.log.WarnContext(ctx, "view is stale: routing goes on with it", "revision", view.Revision)
	}
	return &view
}

// share tells the other goroutines how far the view is.
func (v *viewer) share(stale bool) {
	m, l := v.model, v.link
	connected := v.cur != nil && !stale
	shown := !m.dirty()
	same := false
	l.read(func() {
		same = l.connected == connected && (!shown || l.reached == m.complete && l.reachedIn == m.session && l.covered == m.selects)
	})
	if same {
		return
	}
	l.update(func() {
		l.connected = connected
		if shown {
			l.reached, l.reachedIn, l.covered = m.complete, m.session, m.selects
		}
	})
	if shown {
		v.c.cover(m)
	}
}
