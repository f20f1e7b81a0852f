// Package store is the registry's storage: keys with revisions, watches that
// never skip, leases, and transactions that compare several keys.
//
// It promises linearizable writes in one revision order. It knows nothing of what
// is stored. Implementations: store/mem (one process, nothing on disk) and
// store/etcd (embedded, or an external cluster); both pass package storetest.
package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Errors that implementations return, wrapped; test with errors.Is.
var (
	// ErrCompacted: the revision asked for is no longer kept. List again and watch
	// from the list's revision.
	ErrCompacted = errors.New("revision is compacted")
	// ErrLeaseNotFound: the lease has expired or was revoked.
	ErrLeaseNotFound = errors.New("lease not found")
	// ErrFull: the storage quota or the disk is used up. Reads go on, writes that
	// do not free space are refused.
	ErrFull = errors.New("storage is full")
	// ErrUnavailable: no answer in time, no leader, or the store is out of service; the
	// outcome of a write is not known.
	ErrUnavailable = errors.New("storage is unavailable")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store is closed")
	// ErrTooLarge: a transaction has more than MaxTxnOps comparisons or operations,
	// or more than MaxTxnBytes.
	ErrTooLarge = errors.New("transaction is too large")
)

// OutError is [ErrUnavailable] of a store that knows what ails it, in words for who can
// mend it.
type OutError struct {
	Reason string // what is wrong and what will end it
	Err    error  // what was met; may be nil
}

// Error implements error.
func (e *OutError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Reason + ": " + e.Err.Error()
}

// Is says that it is [ErrUnavailable].
func (e *OutError) Is(target error) bool { return target == ErrUnavailable }

// Unwrap gives Err.
func (e *OutError) Unwrap() error { return e.Err }

// Limits that all implementations share.
const (
	// MaxTxnOps is how many comparisons, and how many operations, a transaction may
	// have: etcd's default limit. What it reads counts as both.
	MaxTxnOps = 128
	// MaxTxnBytes bounds the keys and values of a transaction together. It is below
	// etcd's default limit of a request, 1.5 MiB.
	MaxTxnBytes = 1 << 20
	// MinTTL is the shortest lease that [Store.Grant] gives.
	MinTTL = 2 * time.Second
	// DefaultTimeout bounds a call whose context has no deadline.
	DefaultTimeout = 5 * time.Second
)

// LeaseID names a lease. Zero is no lease.
type LeaseID int64

// KV is one key as it was stored. Value is the reader's to keep.
type KV struct {
	Key            string
	Value          []byte
	CreateRevision uint64 // revision at which the key came to be
	ModRevision    uint64 // revision of its last change
	Lease          LeaseID
}

// Compare is a condition on one key: its ModRevision equals Revision. Revision 0:
// the key does not exist.
type Compare struct {
	Key      string
	Revision uint64
}

// Exists as Compare.Revision: the key exists, at whatever revision.
const Exists = ^uint64(0)

// Op is one write of a transaction.
type Op struct {
	Key    string
	Value  []byte
	Lease  LeaseID // of a put; the key goes when the lease does
	Delete bool    // delete Key instead; one that does not exist is no error
}

// Txn is a transaction: if all comparisons hold, all operations take effect at one
// revision; else none does. A key may stand in Ops once.
type Txn struct {
	If  []Compare
	Ops []Op
	// Read are keys to be told of as they are at the transaction's revision, whether it
	// took effect or not.
	Read []string
}

// ReadOnly are the keys of Read that Ops do not write, in their order.
func (t Txn) ReadOnly() []string {
	if len(t.Read) == 0 || len(t.Ops) == 0 {
		return t.Read
	}
	written := make(map[string]struct{}, len(t.Ops))
	for _, op := range t.Ops {
		written[op.Key] = struct{}{}
	}
	var keys []string
	for _, key := range t.Read {
		if _, there := written[key]; !there {
			keys = append(keys, key)
		}
	}
	return keys
}

// Check says what of t no store accepts: [ErrTooLarge], an empty key, a key that
// stands in Ops twice. Stores call it first.
func (t Txn) Check() error {
	if len(t.If)+len(t.Read) > MaxTxnOps || len(t.Ops)+len(t.ReadOnly()) > MaxTxnOps {
		return fmt.Errorf("%w: %d comparisons, %d operations, %d reads, at most %d", ErrTooLarge, len(t.If), len(t.Ops), len(t.Read), MaxTxnOps)
	}
	if slices.Contains(t.Read, "") || slices.ContainsFunc(t.If, func(c Compare) bool { return c.Key == "" }) {
		return errEmptyKey
	}
	seen := make(map[string]struct{}, len(t.Ops))
	for _, op := range t.Ops {
		if op.Key == "" {
			return errEmptyKey
		}
		if _, twice := seen[op.Key]; twice {
			return fmt.Errorf("%w: %q", errTwice, op.Key)
		}
		seen[op.Key] = struct{}{}
	}
	if size := t.Size(); size > MaxTxnBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, MaxTxnBytes)
	}
	return nil
}

// Size is the bytes of all keys and values of t, of which [MaxTxnBytes] is the limit.
func (t Txn) Size() (size int) {
	for _, c := range t.If {
		size += len(c.Key)
	}
	for _, op := range t.Ops {
		size += len(op.Key) + len(op.Value)
	}
	for _, key := range t.Read {
		size += len(key)
	}
	return size
}

var (
	errEmptyKey = errors.New("a key is empty")
	errTwice    = errors.New("a key stands twice in a transaction")
)

// Result is the outcome of a transaction.
type Result struct {
	Done     bool   // the comparisons held
	Revision uint64 // of the write if Done; else the store's present one
	Current  []KV   // if not Done: the compared keys that exist, as they are, in order of If
	// Read are those keys of Txn.Read that exist, as they are at Revision, in their order;
	// if Done, without those that Ops wrote.
	Read []KV
}

// Event is one change. For a deletion only Key and ModRevision of KV are set.
type Event struct {
	KV
	Deleted bool
}

// Batch is what a watch delivers: all events of one or more whole revisions, in
// order. Events may be empty: then nothing watched changed up to Revision.
type Batch struct {
	Revision uint64
	Events   []Event
	// Err is why the watch ended: ErrCompacted, ErrClosed, ErrUnavailable or the
	// context's error. Then the rest is empty, and nothing follows.
	Err error
}

// Store is the storage of a registry. All methods may be called at once. Each
// returns the context's error, wrapped, when it ends first; without a deadline an
// implementation applies one of 5 s (not to Watch).
type Store interface {
	// Get returns one key. found is false, and err nil, if it does not exist.
	// revision is that of the store when the key was read; the read is
	// linearizable.
	Get(ctx context.Context, key string) (kv KV, found bool, revision uint64, err error)

	// List returns up to limit keys (0: all) that begin with prefix and sort after
	// after (empty: from the first), sorted, read linearizably at one revision.
	List(ctx context.Context, prefix, after string, limit int) (kvs []KV, revision uint64, err error)

	// Revision is the store's present revision, read linearizably.
	Revision(ctx context.Context) (uint64, error)

	// Do runs a transaction. A comparison that does not hold is no error.
	// Errors: ErrLeaseNotFound, ErrFull, ErrTooLarge, ErrUnavailable (outcome not
	// known), ErrClosed, and what [Txn.Check] refuses.
	Do(ctx context.Context, txn Txn) (Result, error)

	// Watch delivers every change of keys that begin with prefix, after revision
	// from (exclusive), each once and in order, and at least every second an empty
	// batch if there was none. It ends, with a last batch that has Err and then a
	// closed channel, when ctx does, when from is compacted or still to come (the
	// store has lost its data since: ErrCompacted too), when the store is out of
	// reach for 5 s, or when it closes. The channel is bounded; a reader that is slow
	// slows its own watch only, until what it has not read is compacted.
	Watch(ctx context.Context, prefix string, from uint64) <-chan Batch

	// Grant makes a lease that lasts at least ttl ([MinTTL] or more, rounded up to
	// whole seconds) after its last renewal.
	Grant(ctx context.Context, ttl time.Duration) (LeaseID, error)
	// Renew prolongs a lease. ErrLeaseNotFound: it is gone, and its keys are or will
	// be within a second.
	Renew(ctx context.Context, id LeaseID) (ttl time.Duration, err error)
	// Revoke ends a lease and deletes its keys. One that is gone is no error.
	Revoke(ctx context.Context, id LeaseID) error

	// Compact drops history before revision, at most up to the present one. What is
	// compacted already is no error.
	Compact(ctx context.Context, revision uint64) error
	// Health is nil, or what keeps the store from full service: ErrFull, or
	// ErrUnavailable, which may be an [OutError] that says why.
	Health(ctx context.Context) error
	// Close stops the store and waits for its goroutines. It is idempotent.
	Close() error
}
