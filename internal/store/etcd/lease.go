package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/laneway-dev/laneway/internal/store"
)

// Grant implements [store.Store].
func (s *Store) Grant(ctx context.Context, ttl time.Duration) (store.LeaseID, error) {
	if ttl < store.MinTTL {
		return 0, fmt.Errorf("lease of %s: at least %s", ttl, store.MinTTL)
	}
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	if s.member != nil {
		if err := s.member.disk.admit(); err != nil {
			return 0, err
		}
	}
	got, err := guard(l, func() (*clientv3.LeaseGrantResponse, error) {
		return l.client.Grant(ctx, int64((ttl+time.Second-1)/time.Second))
	})
	if err != nil {
		return 0, s.fail(caller, err)
	}
	return store.LeaseID(got.ID), nil
}

// Renew implements [store.Store].
func (s *Store) Renew(ctx context.Context, id store.LeaseID) (time.Duration, error) {
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	ttl, err := l.renewers[uint64(id)%renewStreams].renew(ctx, int64(id))
	switch {
	case err != nil:
		return 0, s.fail(caller, err)
	case ttl <= 0:
		return 0, store.ErrLeaseNotFound
	}
	return time.Duration(ttl) * time.Second, nil
}

// Revoke implements [store.Store].
func (s *Store) Revoke(ctx context.Context, id store.LeaseID) error {
	caller := ctx
	l, ctx, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	_, err = guard(l, func() (*clientv3.LeaseRevokeResponse, error) { return l.client.Revoke(ctx, clientv3.LeaseID(id)) })
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return s.fail(caller, err)
}
