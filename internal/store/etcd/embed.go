package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"

	"github.com/laneway-dev/laneway/internal/store"
)

const (
	startTimeout = time.Minute
	memberName   = "laneway"
	lockName     = "laneway.lock"
	// tendEvery is how often space and history are looked after.
	tendEvery = time.Second
	// reclaimPause is the least time between two attempts to give space back: each
	// rewrites the database.
	reclaimPause = 5 * time.Second
	// reclaimLeast is how many bytes are worth it.
	reclaimLeast = 16 << 20
	// keepFiles is how many segments of the log and snapshots are kept that a start no
	// longer needs. etcd keeps more for other members.
	keepFiles = 2
)

// member is the etcd of an embedded store.
type member struct {
	cfg    Config
	server *embed.Etcd
	client *clientv3.Client
	lock   *fileutil.LockedFile
	log    *slog.Logger

	disk    *disk
	tending sync.WaitGroup
	stop    context.CancelFunc

	// What follows is the tending goroutine's.
	compacted int64
	reclaimed time.Time
}

func openEmbedded(ctx context.Context, cfg Config) (*Store, error) { //nolint:contextcheck // the store outlives ctx
	defaults(&cfg)
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := fileutil.TryLockFile(filepath.Join(cfg.Dir, lockName), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return nil, fmt.Errorf("directory %s is in use by another process: stop it, or use another directory", cfg.Dir)
	}
	if err != nil {
		return nil, err
	}
	server, err := start(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	client := v3client.New(server.Server)
	m := &member{cfg: cfg, server: server, client: client, lock: lock, log: cfg.Log}
	m.disk = &disk{dir: cfg.Dir, reserve: uint64(cfg.ReserveBytes), free: cfg.free, log: cfg.Log}
	m.disk.check()
	s := &Store{
		prefix: cfg.Prefix, client: client, member: m,
		watch: adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(server.Server)),
	}
	s.life, s.end = context.WithCancel(context.WithoutCancel(ctx))
	s.serve(adapter.LeaseServerToLeaseClient(v3rpc.NewQuotaLeaseServer(server.Server)))
	tend, stop := context.WithCancel(s.life)
	m.stop = stop
	m.tending.Go(func() { m.tend(tend) })
	return s, nil
}

func defaults(cfg *Config) {
	if cfg.QuotaBytes == 0 {
		cfg.QuotaBytes = DefaultQuotaBytes
	}
	if cfg.ReserveBytes == 0 {
		cfg.ReserveBytes = DefaultReserveBytes
	}
	if cfg.free == nil {
		cfg.free = freeBytes
	}
	if cfg.History == 0 {
		cfg.History = DefaultHistory
	}
}

// start runs a cluster of one member that listens nowhere.
func start(ctx context.Context, cfg Config) (*embed.Etcd, error) {
	c := embed.NewConfig()
	c.Name, c.Dir = memberName, cfg.Dir
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertiseClientUrls = nil
	// A member needs an address to be known by. Nobody dials this one.
	c.AdvertisePeerUrls = []url.URL{{Scheme: "unix", Host: memberName}}
	c.InitialCluster = c.InitialClusterFromName(memberName)
	c.EnableGRPCGateway = false
	c.QuotaBackendBytes = cfg.QuotaBytes
	c.BackendBatchLimit = batchLimit
	c.MaxTxnOps = store.MaxTxnOps
	c.MaxWalFiles, c.MaxSnapFiles = keepFiles, keepFiles
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(cfg.Log))
	server, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	select {
	case <-server.Server.ReadyNotify():
		return server, nil
	case <-server.Server.StopNotify():
		err = errors.New("stopped while it started")
	case <-ctx.Done():
		err = ctx.Err()
	}
	server.Close()
	return nil, err
}

func (m *member) close() {
	m.stop()
	m.tending.Wait()
	m.server.Close()
	if err := m.lock.Close(); err != nil {
		m.log.Warn("lock of the registry's directory not released", "error", err)
	}
}

func (m *member) health() error {
	switch {
	case m.alarmed():
		return fmt.Errorf("%w: the quota of %d bytes is used up", store.ErrFull, m.cfg.QuotaBytes)
	default:
		return m.disk.admit(0)
	}
}

func (m *member) alarmed() bool {
	for _, a := range m.server.Server.Alarms() {
		if a.GetAlarm() == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// batchLimit is how many changes of the database etcd gathers before it commits them; each
// is on disk in the log before that. etcd holds a write against the size that the database
// had at its last commit, by default up to 100 ms ago, in which a quick disk takes
// hundreds of writes: this bounds by how many the quota can be passed.
const batchLimit = 64

// tend looks after the disk, the history and the quota.
func (m *member) tend(ctx context.Context) {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		m.disk.check()
		if err := m.trim(ctx); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "history of the registry not compacted", "error", err)
		}
		if err := m.reclaim(ctx); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "space of the registry not given back", "error", err)
		}
	}
}

// trim compacts history that is longer than asked for by a quarter.
func (m *member) trim(ctx context.Context) error {
	history := signed(m.cfg.History)
	revision := m.server.Server.KV().Rev()
	if revision-m.compacted < history+history/4 {
		return nil
	}
	return m.compact(ctx, revision-history)
}

func (m *member) compact(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	_, err := m.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	m.compacted = revision
	return nil
}

// reclaim gives space back when the database comes near its quota, of which etcd counts
// also what is free inside it, or the disk its reserve. At either end it gives up all
// history for it.
func (m *member) reclaim(ctx context.Context) error {
	backend, quota := m.server.Server.Backend(), m.cfg.QuotaBytes
	alarmed, low := m.alarmed(), m.disk.admit(0) != nil
	if (!alarmed && !low && backend.Size() < quota/10*8) || time.Since(m.reclaimed) < reclaimPause {
		return nil
	}
	if alarmed || low {
		if err := m.compact(ctx, m.server.Server.KV().Rev()); err != nil {
			return err
		}
	}
	inUse := backend.SizeInUse()
	// The database is written anew beside the old one: for that the reserve is there,
	// half of it.
	if backend.Size()-inUse < min(quota/10, reclaimLeast) || !m.disk.fits(inUse) {
		return nil
	}
	m.reclaimed = time.Now()
	if err := m.server.Server.Defragment(); err != nil {
		return err
	}
	m.log.InfoContext(ctx, "space of the registry given back", "bytes", backend.Size(), "quota_bytes", quota)
	if !alarmed || backend.Size() >= quota/10*9 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	_, err := m.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}
