package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/laneway-dev/laneway/internal/store"
)

const (
	memberName = "laneway"
	// Where etcd has its files, below the store's directory.
	memberDir = "member"
	walDir    = memberDir + "/wal"
	dbFile    = memberDir + "/snap/db"
	// keepFiles is how many segments of the log and snapshots are kept that a start no
	// longer needs. etcd keeps more for other members.
	keepFiles = 2
	// batchLimit is how many changes of the database etcd gathers before it commits them;
	// each is on disk in the log before that. etcd holds a write against the size that the
	// database had at its last commit, by default up to 100 ms ago, in which a quick disk
	// takes hundreds of writes: this bounds by how many the quota can be passed.
	batchLimit = 64
	// holdBytes is how much beyond its end is kept for the database on a disk that others
	// fill: what is being written when that is seen, and deletions.
	holdBytes = 16 << 20
)

// life is one run of etcd.
type life struct {
	server *embed.Etcd
	fuse   *fuse
	link   *link // nil until it is ready
}

// roomError: the disk has not enough room to start.
type roomError struct {
	dir        string
	free, need uint64
}

func (e *roomError) Error() string {
	return fmt.Sprintf("the disk of %s has %d MB free, and etcd needs %d MB to start", e.dir, e.free>>20, e.need>>20)
}

// room says whether there is room on the disk for a start: for the segments of the log
// that etcd allocates ahead, and for the database.
func (m *member) room() error {
	free, err := m.disk.free(m.cfg.Dir)
	if err != nil {
		return nil //nolint:nilerr // a disk that does not tell is no reason not to try
	}
	need := uint64(wal.SegmentSizeBytes) + 2*holdBytes
	if _, err := os.Stat(filepath.Join(m.cfg.Dir, walDir)); errors.Is(err, fs.ErrNotExist) {
		need += uint64(wal.SegmentSizeBytes)
	}
	if need = min(need, m.disk.reserve); free < need {
		return &roomError{m.cfg.Dir, free, need}
	}
	return nil
}

// start starts etcd and returns when it can serve.
func (m *member) start(ctx context.Context) (*life, error) {
	if m.left >= maxLeft {
		return nil, errLeftTooOften
	}
	if err := m.prepare(); err != nil {
		return nil, err
	}
	if err := m.room(); err != nil {
		return nil, err
	}
	l, err := m.launch(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.ready(ctx, l); err != nil {
		m.stop(ctx, l)
		return nil, err
	}
	m.disk.check()
	m.keepRoom(ctx)
	watch := adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(l.server.Server))
	leases := adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(l.server.Server))
	l.link = newLink(ctx, v3client.New(l.server.Server), watch, leases)
	l.link.server, l.link.fuse = l.server.Server, l.fuse
	return l, nil
}

// launch starts etcd in a goroutine of its own, which the fuse may end.
func (m *member) launch(ctx context.Context) (*life, error) {
	l := &life{fuse: newFuse()}
	cfg, err := m.etcdConfig(l.fuse)
	if err != nil {
		return nil, err
	}
	type outcome struct {
		server *embed.Etcd
		err    error
	}
	started := make(chan outcome, 1)
	go func() {
		defer close(started)
		defer func() {
			if p := recover(); p != nil {
				err, ok := p.(error)
				if !ok {
					err = fmt.Errorf("etcd panicked: %v", p)
				}
				l.fuse.blow(err)
			}
		}()
		server, err := embed.StartEtcd(cfg)
		started <- outcome{server, err}
	}()
	o, returned := <-started
	switch {
	case !returned:
		// The fuse has ended it, before anything else of it was at work.
		if m.leave(ctx); m.cfg.Peers != nil {
			m.left = maxLeft // nobody can have it give up the port
		}
		return nil, l.fuse.err
	case o.err != nil:
		return nil, o.err
	}
	l.server = o.server
	return l, nil
}

// ready waits until etcd can serve. With peers that takes a majority of them, and as long
// as it takes.
func (m *member) ready(ctx context.Context, l *life) error {
	var late <-chan time.Time
	if m.cfg.Peers == nil {
		timer := time.NewTimer(startTimeout)
		defer timer.Stop()
		late = timer.C
	} else {
		m.store.disconnect(&store.OutError{Reason: fmt.Sprintf("the registry waits for a majority of its %d members", len(m.cfg.Peers.All))})
	}
	select {
	case <-l.server.Server.ReadyNotify():
		return nil
	case <-l.fuse.blown:
		return l.fuse.err
	case <-l.server.Server.StopNotify():
		return errors.New("etcd stopped while it started")
	case <-late:
		return errLate
	case <-ctx.Done():
		return ctx.Err()
	}
}

// etcdConfig is etcd's: without peers, a cluster of one member that listens nowhere.
func (m *member) etcdConfig(f *fuse) (*embed.Config, error) {
	c := embed.NewConfig()
	c.Name, c.Dir = memberName, m.cfg.Dir
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertiseClientUrls = nil
	// A member needs an address to be known by. Nobody dials this one.
	c.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: memberName}}
	c.InitialCluster = c.InitialClusterFromName(memberName)
	if err := m.cfg.Peers.configure(c); err != nil {
		return nil, err
	}
	c.EnableGRPCGateway = false
	c.QuotaBackendBytes = m.cfg.QuotaBytes
	c.BackendBatchLimit = batchLimit
	c.MaxTxnOps = store.MaxTxnOps
	c.MaxWalFiles, c.MaxSnapFiles = keepFiles, keepFiles
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(m.cfg.Log, f.options()...))
	return c, nil
}
