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
	batches := make(chan store.Batch, watchBuffer)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		batches <- store.Batch{Err: store.ErrClosed}
		close(batches)
		return batches
	}
	s.watches.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.watches.Done()
		defer close(batches)
		s.follow(ctx, prefix, from, batches)
	}()
	return batches
}

// follow sends what happens after from until the watch ends.
func (s *Store) follow(ctx context.Context, prefix string, from uint64, batches chan<- store.Batch) {
	progress := time.NewTicker(progressEvery)
	defer progress.Stop()
	due := false // an empty batch is to be sent if there is nothing else
	for {
		batch, changed := s.after(prefix, from)
		if batch.Err != nil || len(batch.Events) > 0 || due {
			if !s.send(ctx, batches, batch) || batch.Err != nil {
				return
			}
			due = false
		}
		from = max(from, batch.Revision)
		select {
		case <-changed:
		case <-progress.C:
			due = true
		case <-ctx.Done():
			s.send(ctx, batches, store.Batch{Err: ctx.Err()})
			return
		}
	}
}

// send delivers a batch. The last one of a watch whose reader has gone is dropped.
func (s *Store) send(ctx context.Context, batches chan<- store.Batch, batch store.Batch) bool {
	select {
	case batches <- batch:
		return true
	default:
	}
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return false // do not wait for a reader while closing
	}
	for {
		s.mu.Lock()
		changed, closed := s.changed, s.closed
		s.mu.Unlock()
		if closed {
			return false
		}
		select {
		case batches <- batch:
			return true
		case <-ctx.Done():
			return false
		case <-changed: // perhaps a Close: look again
		}
	}
}

// after returns the changes after from, and a channel that is closed at the next one.
func (s *Store) after(prefix string, from uint64) (store.Batch, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return store.Batch{Err: store.ErrClosed}, s.changed
	case from+1 < s.compacted:
		return store.Batch{Revision: s.revision, Err: store.ErrCompacted}, s.changed
	}
	first, _ := slices.BinarySearchFunc(s.log, from+1, func(e store.Event, r uint64) int {
		if e.ModRevision < r {
			return -1
		}
		return 1
	})
	batch := store.Batch{Revision: s.revision}
	for _, e := range s.log[first:] {
		if strings.HasPrefix(e.Key, prefix) {
			e.KV = clone(e.KV)
			batch.Events = append(batch.Events, e)
		}
	}
	return batch, s.changed
}
