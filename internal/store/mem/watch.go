package mem

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

// Watch implements [store.Store].
func (s *Store) Watch(ctx context.Context, prefix string, from uint64) <-chan store.Batch {
	feed := store.NewFeed(ctx, s.closing)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		feed.End(store.ErrClosed)
	case from > s.revision:
		feed.End(store.ErrCompacted)
	default:
		s.watches.Go(func() { s.follow(ctx, feed, prefix, from) })
	}
	return feed.C()
}

// follow sends what happens after from until the watch ends.
func (s *Store) follow(ctx context.Context, feed *store.Feed, prefix string, from uint64) {
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	due := false // an empty batch is to be sent if there is nothing else
	for {
		batch, changed := s.after(prefix, from)
		if batch.Err != nil {
			feed.End(batch.Err)
			return
		}
		from = batch.Revision
		if len(batch.Events) > 0 || due {
			if !feed.Send(batch) {
				feed.End(nil)
				return
			}
			due = false
		}
		select {
		case <-changed:
		case <-progress.C:
			due = true
		case <-s.closing:
			feed.End(store.ErrClosed)
			return
		case <-ctx.Done():
			feed.End(ctx.Err())
			return
		}
	}
}

// stale is a channel that has something to say at once.
func stale() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// after returns changes after from, whole revisions of them, and a channel that is
// closed when there are more.
func (s *Store) after(prefix string, from uint64) (store.Batch, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if from+1 < s.compacted {
		return store.Batch{Err: store.ErrCompacted}, nil
	}
	batch := store.Batch{Revision: from}
	for _, e := range s.log[s.index(from+1):] {
		if len(batch.Events) >= maxBatch && e.ModRevision > batch.Revision {
			return batch, stale()
		}
		batch.Revision = e.ModRevision
		if strings.HasPrefix(e.Key, prefix) {
			e.KV = clone(e.KV)
			batch.Events = append(batch.Events, e)
		}
	}
	batch.Revision = s.revision
	return batch, s.changed
}

// index is where the changes of revision, or the next that has some, begin in the
// log.
func (s *Store) index(revision uint64) int {
	first, _ := slices.BinarySearchFunc(s.log, revision, func(e store.Event, r uint64) int {
		if e.ModRevision < r {
			return -1
		}
		return 1
	})
	return first
}
