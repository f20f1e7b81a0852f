// Package mem is a store.Store in the memory of one process: nothing is on disk, and all
// is gone when it closes. It keeps every promise of package store and serves tests and
// `laneway server --registry mem`.
package mem

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
)

// Limits of a store.
const (
	// DefaultHistory is how many changes at least are kept for watches that start in
	// the past.
	DefaultHistory = 10_000
	// DefaultQuotaBytes bounds keys and values together.
	DefaultQuotaBytes = 256 << 20
	progressEvery     = 500 * time.Millisecond
	maxBatch          = 1000 // events, from which on a batch ends with its revision
)

// Option changes a store that [New] makes.
type Option func(*Store)

// WithHistory keeps the last n changes at least, and a quarter more at most (default
// [DefaultHistory], at least 1): older revisions are compacted.
func WithHistory(n int) Option { return func(s *Store) { s.history = max(n, 1) } }

// WithQuotaBytes bounds the sum of all keys and values (default [DefaultQuotaBytes]).
func WithQuotaBytes(n int) Option { return func(s *Store) { s.quota = n } }

// Store is a store in memory. Make one with [New].
type Store struct {
	history, quota int

	mu        sync.Mutex
	kvs       map[string]store.KV // guarded by mu, as all below
	revision  uint64
	compacted uint64        // changes up to it are no longer in log
	log       []store.Event // in revision order
	changed   chan struct{} // closed and replaced at every change
	leases    map[store.LeaseID]*lease
	lastLease store.LeaseID
	bytes     int
	full      bool // a write was refused since there last was room
	closed    bool

	closing chan struct{} // closed by Close
	watches sync.WaitGroup
}

type lease struct {
	ttl   time.Duration
	timer *time.Timer
	// round tells a timer that fired before a renewal from one that fired after it.
	round uint64
	keys  map[string]struct{}
}

var _ store.Store = (*Store)(nil)

// New makes an empty store at revision 1.
func New(options ...Option) *Store {
	s := &Store{
		history: DefaultHistory, quota: DefaultQuotaBytes, revision: 1, compacted: 1,
		kvs: map[string]store.KV{}, leases: map[store.LeaseID]*lease{}, changed: make(chan struct{}), closing: make(chan struct{}),
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// enter locks the store for an operation.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	return nil
}

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string) (kv store.KV, found bool, revision uint64, err error) {
	if err := s.enter(ctx); err != nil {
		return store.KV{}, false, 0, err
	}
	defer s.mu.Unlock()
	kv, found = s.kvs[key]
	return clone(kv), found, s.revision, nil
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]store.KV, uint64, error) {
	if err := s.enter(ctx); err != nil {
		return nil, 0, err
	}
	defer s.mu.Unlock()
	var keys []string
	for key := range s.kvs {
		if strings.HasPrefix(key, prefix) && (after == "" || key > after) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if limit > 0 && len(keys) > limit {
		keys = keys[:limit]
	}
	kvs := make([]store.KV, len(keys))
	for i, key := range keys {
		kvs[i] = clone(s.kvs[key])
	}
	return kvs, s.revision, nil
}

// Revision implements [store.Store].
func (s *Store) Revision(ctx context.Context) (uint64, error) {
	if err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	return s.revision, nil
}

// Do implements [store.Store].
func (s *Store) Do(ctx context.Context, txn store.Txn) (store.Result, error) {
	if err := txn.Check(); err != nil {
		return store.Result{}, err
	}
	if err := s.enter(ctx); err != nil {
		return store.Result{}, err
	}
	defer s.mu.Unlock()
	for _, c := range txn.If {
		if !s.holds(c) {
			return store.Result{Revision: s.revision, Current: s.current(txn.If), Read: s.read(txn.Read)}, nil
		}
	}
	if err := s.admit(txn.Ops); err != nil {
		return store.Result{}, err
	}
	return store.Result{Done: true, Revision: s.apply(txn.Ops), Read: s.read(txn.ReadOnly())}, nil
}

func (s *Store) read(keys []string) []store.KV {
	var kvs []store.KV
	for _, key := range keys {
		if kv, found := s.kvs[key]; found {
			kvs = append(kvs, clone(kv))
		}
	}
	return kvs
}

func (s *Store) holds(c store.Compare) bool {
	kv, found := s.kvs[c.Key]
	if c.Revision == store.Exists {
		return found
	}
	return kv.ModRevision == c.Revision // a key that is not there has zero
}

func (s *Store) current(compared []store.Compare) []store.KV {
	var kvs []store.KV
	for _, c := range compared {
		if kv, found := s.kvs[c.Key]; found {
			kvs = append(kvs, clone(kv))
		}
	}
	return kvs
}

// admit checks what could make ops fail before any of them takes effect.
func (s *Store) admit(ops []store.Op) error {
	grown := s.bytes
	grows := false
	for _, op := range ops {
		if before, found := s.kvs[op.Key]; found {
			grown -= size(before)
		}
		if op.Delete {
			continue
		}
		grows = true
		grown += len(op.Key) + len(op.Value)
		if op.Lease != 0 && s.leases[op.Lease] == nil {
			return store.ErrLeaseNotFound
		}
	}
	if grows && grown > s.quota {
		s.full = true
		return fmt.Errorf("%w: %d bytes, at most %d", store.ErrFull, grown, s.quota)
	}
	return nil
}

func size(kv store.KV) int { return len(kv.Key) + len(kv.Value) }

// apply writes ops at one new revision and returns it. A transaction that changes
// nothing has no revision of its own.
func (s *Store) apply(ops []store.Op) uint64 {
	next := s.revision + 1
	for _, op := range ops {
		before, existed := s.kvs[op.Key]
		if op.Delete && !existed {
			continue
		}
		s.revision = next
		s.detach(before)
		s.bytes -= size(before)
		if op.Delete {
			delete(s.kvs, op.Key)
			s.log = append(s.log, store.Event{KV: store.KV{Key: op.Key, ModRevision: next}, Deleted: true})
			continue
		}
		kv := store.KV{Key: op.Key, Value: slices.Clone(op.Value), CreateRevision: next, ModRevision: next, Lease: op.Lease}
		if existed {
			kv.CreateRevision = before.CreateRevision
		}
		if l := s.leases[op.Lease]; l != nil {
			l.keys[op.Key] = struct{}{}
		}
		s.kvs[op.Key] = kv
		s.bytes += size(kv)
		s.log = append(s.log, store.Event{KV: kv})
	}
	s.full = s.full && s.bytes >= s.quota/10*9
	s.trim()
	if s.revision == next {
		s.wake()
	}
	return s.revision
}

func (s *Store) detach(kv store.KV) {
	if l := s.leases[kv.Lease]; l != nil {
		delete(l.keys, kv.Key)
	}
}

// trim forgets the oldest changes, whole revisions at a time and many at once: each
// time, what is kept is copied.
func (s *Store) trim() {
	if len(s.log) >= s.history+s.history/4+1 {
		s.compact(s.log[len(s.log)-s.history].ModRevision)
	}
}

func (s *Store) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Compact implements [store.Store]. A revision that is still to come compacts up to the
// present one.
func (s *Store) Compact(ctx context.Context, revision uint64) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.compact(min(revision, s.revision))
	s.wake()
	return nil
}

func (s *Store) compact(revision uint64) {
	if revision <= s.compacted {
		return
	}
	s.compacted = revision
	s.log = slices.Clone(s.log[s.index(revision):])
}

// Health implements [store.Store].
func (s *Store) Health(ctx context.Context) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.full {
		return fmt.Errorf("%w: %d bytes of %d", store.ErrFull, s.bytes, s.quota)
	}
	return nil
}

// Close implements [store.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		for _, l := range s.leases {
			l.timer.Stop()
		}
		close(s.closing)
	}
	s.mu.Unlock()
	s.watches.Wait()
	return nil
}

func clone(kv store.KV) store.KV {
	kv.Value = slices.Clone(kv.Value)
	return kv
}
