package laneclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// Views implements [consume.Registry]: one watch of all that decides who consumes for a
// group. The channel is closed, too, when the client is.
func (c *Client) Views(ctx context.Context, group string) <-chan consume.Update {
	c.lease()
	out := make(chan consume.Update)
	c.groups.mu.Lock()
	defer c.groups.mu.Unlock()
	if c.groups.closed {
		close(out)
		return out
	}
	v := &groupViewer{
		c: c, group: group, out: out, feeds: newFeeds[*groupFeed](c, readGroup),
		retry: backoff{least: retryLeast, most: retryMost},
	}
	c.groups.viewers.Go(func() { v.run(ctx) })
	return out
}

// groupFeed is one open watch of a group.
type groupFeed struct {
	session string // on whose behalf it is
	replica int
	model   *groupModel // to become the viewer's, if it begins anew; else the viewer's
	cancel  context.CancelFunc
}

// groupViewer turns a watch into updates. One goroutine runs it and owns its fields.
type groupViewer struct {
	c     *Client
	group string
	out   chan<- consume.Update
	feeds feeds[*groupFeed]

	model   *groupModel // behind what was sent; nil: nothing was
	cur     *groupFeed  // nil: there is none
	relist  bool        // the next feed begins with the present state
	retry   backoff
	retryAt time.Time // no feed is opened before

	lagTarget uint64    // the revision to be reached …
	lagAt     time.Time // … by then; zero: it is
}

func (v *groupViewer) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer close(v.out)
	defer v.feeds.running.Wait()
	defer cancel()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		var p proof
		changed := v.c.link.read(func() { p = v.c.link.proof })
		v.steer(ctx, p)
		var out chan<- consume.Update
		var next consume.Update
		if v.model != nil {
			var ok bool
			if next, ok = v.model.update(); ok {
				out = v.out
			}
		}
		timer.Reset(v.nextWake())
		select {
		case out <- next:
			v.model.told(&next)
		case m := <-v.feeds.inbox:
			v.feeds.take(m, func(m message[*groupFeed]) { v.handle(ctx, m) })
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return
		case <-v.c.stopping:
			return
		}
	}
}

// nextWake is how long there is nothing to do unless something comes.
func (v *groupViewer) nextWake() time.Duration {
	next := time.Hour
	if v.cur == nil {
		next = min(next, time.Until(v.retryAt))
	} else if !v.lagAt.IsZero() {
		next = min(next, time.Until(v.lagAt))
	}
	return max(next, time.Millisecond)
}

// steer opens a feed where there is none, or none of the present session, and leaves a
// replica that lags.
func (v *groupViewer) steer(ctx context.Context, p proof) {
	now := time.Now()
	v.followProof(p, now)
	switch {
	case v.cur == nil:
	case !v.lagAt.IsZero() && !now.Before(v.lagAt):
		v.c.log.WarnContext(ctx, "view of a group lags: it moves to another replica", "group", v.group, "revision", v.model.complete, "wanted", v.lagTarget)
		v.lagAt = now.Add(lagAllowed + lagElsewhere)
		v.c.moveOn(v.cur.replica)
		v.drop()
	case p.session != "" && v.cur.session != p.session:
		v.drop() // it would not hear of renewals at once
	}
	if v.cur == nil && !now.Before(v.retryAt) {
		v.open(ctx, p.session)
	}
}

// followProof notes which revision the control plane has answered with, and by when it has to
// be reached: not while everything is read anew, which takes as long as it takes.
func (v *groupViewer) followProof(p proof, now time.Time) {
	anew := v.model == nil || v.cur != nil && !v.cur.model.synced
	if anew || v.model.complete >= v.lagTarget {
		v.lagAt = time.Time{}
	}
	if !anew && v.lagAt.IsZero() && p.session != "" && p.revision > v.model.complete {
		v.lagTarget, v.lagAt = p.revision, now.Add(lagAllowed+lagElsewhere)
	}
}

func (v *groupViewer) drop() {
	v.cur.cancel()
	v.cur = nil
}

// open starts a feed: from where the picture is, or from the present state.
func (v *groupViewer) open(ctx context.Context, session string) {
	f := &groupFeed{session: session, replica: int(v.c.current.Load()), model: v.model}
	from := uint64(0)
	if v.model == nil || v.relist {
		f.model = newGroupModel()
	} else {
		from = v.model.complete
	}
	of := func(k Kind, by string) string { return string(k) + ":" + by + "=" + v.group }
	selects := []string{
		string(KindLanes), string(KindSessions), of(KindMembers, "group"), of(KindGroups, "name"), of(KindCursors, "group"),
	}
	f.cancel = v.feeds.open(ctx, f, func(ctx context.Context) (*Stream, error) {
		return v.c.watchAt(ctx, f.replica, from, selects, []CallOption{InSession(session)})
	})
	v.cur = f
}

func (v *groupViewer) handle(ctx context.Context, m message[*groupFeed]) {
	f := m.feed
	if f != v.cur {
		return // a feed that was given up
	}
	if m.err == nil && m.Type == EventCompacted {
		m.err = errCompacted
	}
	if m.err == nil {
		m.err = f.model.apply(m.change)
	}
	if m.err != nil {
		v.ended(ctx, f, m.err)
		return
	}
	if f.model == v.model {
		v.retry.reset()
	} else if f.model.synced && v.level(f) {
		if v.model != nil {
			f.model.follow(v.model)
		}
		v.model, v.relist = f.model, false
		v.retry.reset()
	}
	if v.model == f.model && f.model.lonely {
		if f.model.lonely = false; f.model.complete < f.model.seen {
			signal(v.c.link.renew) // which is followed by progress at once
		}
	}
}

// level reports whether what a feed has may be shown: the picture never goes back, unless the
// registry has.
func (v *groupViewer) level(f *groupFeed) bool {
	if v.model == nil || f.model.complete >= v.model.complete {
		return true
	}
	p := v.c.link.current()
	return p.reset && p.session == f.session
}

// ended notes that a feed is over, and plans the next.
func (v *groupViewer) ended(ctx context.Context, f *groupFeed, err error) {
	v.drop()
	if errors.Is(err, errCompacted) {
		again := f.model != v.model // it came to nothing: not at once once more
		v.relist = true
		if !again {
			return
		}
	}
	if !errors.Is(err, errCompacted) && !errors.Is(err, io.EOF) {
		v.c.noteErr(fmt.Errorf("watch %s: %w", v.c.urls[f.replica], err))
	}
	v.c.log.InfoContext(ctx, "watch of a group has ended: it is opened again", "group", v.group, "control", v.c.urls[f.replica], "error", err)
	v.c.moveOn(f.replica)
	v.retryAt = time.Now().Add(v.retry.next())
}
