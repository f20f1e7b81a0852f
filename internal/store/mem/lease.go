package mem

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

// Grant implements [store.Store].
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if ttl < store.MinTTL {
		return 0, fmt.Errorf("lease of %s: at least %s", ttl, store.MinTTL)
	}
	ttl = (ttl + time.Second - 1).Truncate(time.Second)
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	s.lastLease++
	id := s.lastLease
	l := &lease{ttl: ttl, keys: map[string]struct{}{}}
	l.timer = time.AfterFunc(ttl, func() { s.expire(id, 0) })
	s.leases[id] = l
	return id, nil
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	l := s.leases[id]
	if l == nil {
		return 0, store.ErrLeaseNotFound
	}
	// The old timer may have fired already and wait for the lock: its round is over.
	l.timer.Stop()
	l.round++
	round := l.round
	l.timer = time.AfterFunc(l.ttl, func() { s.expire(id, round) })
	return l.ttl, nil
}

// Revoke implements [store.Store].
func (s *Store) Revoke(ctx context.Context, id store.LeaseID) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.end(id)
	return nil
}

func (s *Store) expire(id store.LeaseID, round uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.leases[id]; l != nil && l.round == round && !s.closed {
		s.end(id)
	}
}

// end deletes a lease and its keys, all at one revision. Its caller holds mu.
func (s *Store) end(id store.LeaseID) {
	l := s.leases[id]
	if l == nil {
		return
	}
	l.timer.Stop()
	delete(s.leases, id)
	var ops []store.Op
	for _, key := range slices.Sorted(maps.Keys(l.keys)) {
		ops = append(ops, store.Op{Key: key, Delete: true})
	}
	s.apply(ops)
}
