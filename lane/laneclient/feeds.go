package laneclient

import (
	"context"
	"fmt"
	"sync"
)

const (
	inboxLength = 256  // changes that wait between watches and their viewer; then the watches wait
	maxBatch    = 4096 // changes that go into one view
	// maxObjects bounds what one view holds; the control plane stores far less.
	maxObjects = 2_000_000
)

// change is a decoded event.
type change struct {
	Event
	obj any // what its reader made of the object
}

// reader makes of the object of a put or delete what a model keeps. known is false for kinds
// that it passes over.
type reader func(e *Event) (obj any, known bool, err error)

// decodeChange reads an event. known is false for types of a newer control plane, and for
// what read passes over.
func decodeChange(e Event, read reader) (ch change, known bool, err error) {
	ch.Event = e
	switch e.Type {
	case EventSynced, EventProgress, EventCompacted:
		return ch, true, nil
	case EventPut, EventDelete:
	default:
		return ch, false, nil
	}
	if ch.obj, known, err = read(&e); err != nil {
		return ch, true, fmt.Errorf("%s %q at revision %d cannot be read: %w", e.Kind, e.Name, e.Revision, err)
	}
	ch.Object = nil // the decoded form is what is kept
	return ch, known, nil
}

// progress is how far a model is.
type progress struct {
	seen     uint64 // revision of the last line
	complete uint64 // every change up to here has been seen: seen's own may be half there
	synced   bool
}

// note takes in the revision of a change.
func (p *progress) note(ch *change) {
	switch ch.Type {
	case EventSynced, EventProgress:
		p.seen, p.complete = max(p.seen, ch.Revision), max(p.complete, ch.Revision)
		p.synced = p.synced || ch.Type == EventSynced
	case EventPut, EventDelete:
		// Before synced, puts come in no particular order of revisions.
		if p.synced && ch.Revision > p.seen {
			p.complete = max(p.complete, ch.Revision-1)
			p.seen = ch.Revision
		}
	default:
	}
}

// checkRoom is an error where a model that has so many objects may have no more.
func checkRoom(objects int) error {
	if objects >= maxObjects {
		return fmt.Errorf("the control plane sends more than %d objects", maxObjects)
	}
	return nil
}

// message is what a watch tells the viewer that opened it.
type message[F any] struct {
	feed F
	change
	err error // the watch is over
}

// feeds are the watches that a viewer has opened, each known to it by an F. What they tell
// waits in inbox for the viewer's one goroutine.
type feeds[F any] struct {
	c       *Client
	read    reader
	inbox   chan message[F]
	running sync.WaitGroup
}

func newFeeds[F any](c *Client, read reader) feeds[F] {
	return feeds[F]{c: c, read: read, inbox: make(chan message[F], inboxLength)}
}

// open opens a watch, and passes on what it tells until it ends, or is canceled.
func (fs *feeds[F]) open(ctx context.Context, feed F, watch func(ctx context.Context) (*Stream, error)) (cancel context.CancelFunc) {
	ctx, cancel = context.WithCancel(ctx)
	fs.running.Go(func() {
		defer cancel()
		err := fs.pass(ctx, feed, watch)
		_ = fs.tell(ctx, message[F]{feed: feed, err: err}) // nobody is told of what was canceled
	})
	return cancel
}

func (fs *feeds[F]) pass(ctx context.Context, feed F, watch func(ctx context.Context) (*Stream, error)) error {
	s, err := watch(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	for {
		e, err := s.Next()
		if err != nil {
			return err
		}
		ch, known, err := decodeChange(e, fs.read)
		if err != nil {
			// One object of a form that this version cannot read spoils no other.
			fs.c.noteErr(err)
			fs.c.log.WarnContext(ctx, "object cannot be read: it is left as it was", "error", err)
			continue
		}
		if !known {
			continue
		}
		if err := fs.tell(ctx, message[F]{feed: feed, change: ch}); err != nil {
			return err
		}
	}
}

func (fs *feeds[F]) tell(ctx context.Context, m message[F]) error {
	select {
	case fs.inbox <- m:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take handles a message and those that are queued behind it, so that many changes make one
// view.
func (fs *feeds[F]) take(m message[F], handle func(message[F])) {
	handle(m)
	for range maxBatch {
		select {
		case m := <-fs.inbox:
			handle(m)
		default:
			return
		}
	}
}
