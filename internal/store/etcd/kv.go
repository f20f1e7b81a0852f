package etcd

import (
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-dev/laneway/internal/store"
)

const (
	// listPage is how many keys are read at once: one answer stays small.
	listPage = 1000
	// listTries is how often a list begins anew because what it was reading was
	// compacted under it.
	listTries = 3
)

// Get implements [store.Store].
func (s *Store) Get(ctx context.Context, key string) (store.KV, bool, uint64, error) {
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return store.KV{}, false, 0, err
	}
	defer leave()
	got, err := guard(l, func() (*clientv3.GetResponse, error) { return l.client.Get(ctx, s.prefix+key) })
	if err != nil {
		return store.KV{}, false, 0, s.fail(caller, err)
	}
	revision := unsigned(got.Header.GetRevision())
	if len(got.Kvs) == 0 {
		return store.KV{}, false, revision, nil
	}
	return s.kv(got.Kvs[0]), true, revision, nil
}

// List implements [store.Store].
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]store.KV, uint64, error) {
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer leave()
	for range listTries {
		var kvs []store.KV
		var revision uint64
		kvs, revision, err = s.list(ctx, l, s.prefix+prefix, s.prefix+after, limit)
		if err == nil {
			return kvs, revision, nil
		}
		if !errors.Is(err, rpctypes.ErrCompacted) {
			break
		}
	}
	return nil, 0, s.fail(caller, err)
}

// list reads pages, all at the revision of the first.
func (s *Store) list(ctx context.Context, l *link, prefix, after string, limit int) (kvs []store.KV, revision uint64, err error) {
	start, end := prefix, clientv3.GetPrefixRangeEnd(prefix)
	if prefix == "" {
		start, end = "\x00", "\x00" // etcd's words for all keys
	}
	if after != "" && after >= prefix {
		start = after + "\x00"
	}
	if end != "\x00" && start >= end {
		start = end[:len(end)-1] + string(end[len(end)-1]-1) + "\xff\xff" // nothing, but a revision
	}
	for {
		n := listPage
		if limit > 0 {
			n = min(n, limit-len(kvs))
		}
		got, err := guard(l, func() (*clientv3.GetResponse, error) {
			return l.client.Get(ctx, start, clientv3.WithRange(end), clientv3.WithLimit(int64(n)), clientv3.WithRev(signed(revision)))
		})
		if err != nil {
			return nil, 0, err
		}
		if revision == 0 {
			revision = unsigned(got.Header.GetRevision())
		}
		for _, kv := range got.Kvs {
			kvs = append(kvs, s.kv(kv))
		}
		if !got.More || (limit > 0 && len(kvs) >= limit) {
			return kvs, revision, nil
		}
		start = string(got.Kvs[len(got.Kvs)-1].GetKey()) + "\x00"
	}
}

// Revision implements [store.Store].
func (s *Store) Revision(ctx context.Context) (uint64, error) {
	_, _, revision, err := s.Get(ctx, s.probe)
	return revision, err
}

// Do implements [store.Store].
func (s *Store) Do(ctx context.Context, txn store.Txn) (store.Result, error) {
	if err := txn.Check(); err != nil {
		return store.Result{}, err
	}
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return store.Result{}, err
	}
	defer leave()
	if s.member != nil && grows(txn.Ops) {
		if err := s.member.disk.admit(); err != nil {
			return store.Result{}, err
		}
	}
	compares, gets := s.compares(txn.If)
	got, err := guard(l, func() (*clientv3.TxnResponse, error) {
		return l.client.Txn(ctx).If(compares...).
			Then(append(s.ops(txn.Ops), s.reads(txn.ReadOnly())...)...).
			Else(append(gets, s.reads(txn.Read)...)...).Commit()
	})
	if err != nil {
		return store.Result{}, s.fail(caller, err)
	}
	result := store.Result{Done: got.Succeeded, Revision: unsigned(got.Header.GetRevision())}
	answers := got.Responses
	if got.Succeeded {
		answers = answers[len(txn.Ops):]
	} else {
		result.Current = s.answered(answers[:len(txn.If)])
		answers = answers[len(txn.If):]
	}
	result.Read = s.answered(answers)
	return result, nil
}

// answered are the keys that a transaction's gets have found.
func (s *Store) answered(gets []*pb.ResponseOp) (kvs []store.KV) {
	for _, r := range gets {
		for _, kv := range r.GetResponseRange().GetKvs() {
			kvs = append(kvs, s.kv(kv))
		}
	}
	return kvs
}

func (s *Store) reads(keys []string) []clientv3.Op {
	gets := make([]clientv3.Op, len(keys))
	for i, key := range keys {
		gets[i] = clientv3.OpGet(s.prefix + key)
	}
	return gets
}

// grows says whether ops add something, not only delete.
func grows(ops []store.Op) bool {
	return slices.ContainsFunc(ops, func(op store.Op) bool { return !op.Delete })
}

func (s *Store) compares(conditions []store.Compare) (compares []clientv3.Cmp, gets []clientv3.Op) {
	for _, c := range conditions {
		key := s.prefix + c.Key
		gets = append(gets, clientv3.OpGet(key))
		if c.Revision == store.Exists {
			compares = append(compares, clientv3.Compare(clientv3.CreateRevision(key), ">", 0))
		} else {
			compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", signed(c.Revision)))
		}
	}
	return compares, gets
}

func (s *Store) ops(ops []store.Op) []clientv3.Op {
	out := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		key := s.prefix + op.Key
		switch {
		case op.Delete:
			out[i] = clientv3.OpDelete(key)
		case op.Lease != 0:
			out[i] = clientv3.OpPut(key, string(op.Value), clientv3.WithLease(clientv3.LeaseID(op.Lease)))
		default:
			out[i] = clientv3.OpPut(key, string(op.Value))
		}
	}
	return out
}

// Compact implements [store.Store].
func (s *Store) Compact(ctx context.Context, revision uint64) error {
	present, err := s.Revision(ctx)
	if err != nil {
		return err
	}
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	_, err = guard(l, func() (*clientv3.CompactResponse, error) {
		return l.client.Compact(ctx, signed(min(revision, present)))
	})
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	return s.fail(caller, err)
}

func (s *Store) kv(kv *mvccpb.KeyValue) store.KV {
	return store.KV{
		Key:            string(kv.GetKey()[len(s.prefix):]),
		Value:          kv.GetValue(),
		CreateRevision: unsigned(kv.GetCreateRevision()),
		ModRevision:    unsigned(kv.GetModRevision()),
		Lease:          store.LeaseID(kv.GetLease()),
	}
}

// etcd's revisions are positive, and ours come from it.
func unsigned(revision int64) uint64 { return uint64(revision) }
func signed(revision uint64) int64   { return int64(revision) }
