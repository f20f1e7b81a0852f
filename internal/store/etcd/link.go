package etcd

import (
	"context"
	"fmt"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
)

// link is a connection to etcd: to a cluster for a store's whole life, to an etcd of this
// process for one life of that.
type link struct {
	client   *clientv3.Client
	watch    pb.WatchClient
	renewers [renewStreams]*renewer
	calls    sync.WaitGroup // operations and streams; grows while the link is in service

	// Of an etcd in this process; calls of the client are calls of the server. Else nil.
	server *etcdserver.EtcdServer
	fuse   *fuse

	// life ends with the link; what is under way is canceled by it.
	life context.Context //nolint:containedctx // canceled by end alone
	end  context.CancelFunc
}

// newLink makes a link that ends with life.
func newLink(life context.Context, client *clientv3.Client, watch pb.WatchClient, leases pb.LeaseClient) *link {
	l := &link{client: client, watch: watch}
	l.life, l.end = context.WithCancel(life)
	for i := range l.renewers {
		l.renewers[i] = newRenewer(l.life, leases, &l.calls) //nolint:contextcheck // it derives from life
	}
	return l
}

// guard runs f, which asks etcd. An etcd of this process that has failed may keep f
// waiting for good, at a lock that nobody gives back: then f is left behind.
func guard[T any](l *link, f func() (T, error)) (T, error) {
	if l.fuse == nil {
		return f()
	}
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	go func() {
		defer func() {
			// What has failed may be taken down under f.
			if p := recover(); p != nil && !l.fuse.isBlown() {
				panic(p)
			}
		}()
		v, err := f()
		done <- outcome{v, err}
	}()
	select {
	case o := <-done:
		return o.value, o.err
	case <-l.fuse.blown:
		var none T
		return none, fmt.Errorf("etcd has failed: %w", l.fuse.err)
	}
}

// rest is closed when nothing is under way any more. The link has ended.
func (l *link) rest() <-chan struct{} {
	rests := make(chan struct{})
	go func() {
		defer close(rests)
		l.calls.Wait()
	}()
	return rests
}

// alarmed says whether etcd's quota is used up. The link is local.
func (l *link) alarmed() bool {
	for _, a := range l.server.Alarms() {
		if a.GetAlarm() == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}
