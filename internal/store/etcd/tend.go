package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/laneway-dev/laneway/internal/store"
)

const (
	// tendEvery is how often space and history are looked after.
	tendEvery = time.Second
	// reclaimPause is the least time between two attempts to give space back: each
	// rewrites the database.
	reclaimPause = 5 * time.Second
	// reclaimLeast is how many bytes are worth it.
	reclaimLeast = 16 << 20
	// segmentPatience is how many looks in a row may find no next segment of the log.
	segmentPatience = 3
)

// tender looks after one life of an etcd.
type tender struct {
	cfg    Config
	log    *slog.Logger
	disk   *disk
	link   *link
	server *etcdserver.EtcdServer

	compacted int64
	reclaimed time.Time
	missing   int // looks in a row that found no next segment
}

// errNoSegment: etcd could not allocate the next segment of its log when the disk was
// full. It does not try again, and fails when this one is used up.
var errNoSegment = errors.New("the log has no next segment")

// tend looks after the disk, the history and the quota until l ends. It returns an error
// where l has to end.
func (m *member) tend(l *life) error {
	ctx := l.link.life
	t := &tender{cfg: m.cfg, log: m.log, disk: m.disk, link: l.link, server: l.link.server}
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		m.disk.check()
		m.keepRoom(ctx)
		if !t.segment() && m.room() == nil {
			return errNoSegment
		}
		if err := t.trim(ctx); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "history of the registry not compacted", "error", err)
		}
		if err := t.reclaim(ctx); err != nil && ctx.Err() == nil {
			m.log.WarnContext(ctx, "space of the registry not given back", "error", err)
		}
	}
}

// keepRoom has the disk keep room for the database.
func (m *member) keepRoom(ctx context.Context) {
	if err := hold(filepath.Join(m.cfg.Dir, dbFile), holdBytes); err != nil {
		m.log.DebugContext(ctx, "no room kept for the registry's database", "error", err)
	}
}

// segment says whether the log can go on in a next segment, which etcd allocates ahead.
func (t *tender) segment() bool {
	if nextSegment(t.cfg.Dir) {
		t.missing = 0
	} else {
		t.missing++
	}
	return t.missing < segmentPatience
}

func nextSegment(dir string) bool {
	files, _ := filepath.Glob(filepath.Join(dir, walDir, "*.tmp")) // the pattern is good
	for _, name := range files {
		if info, err := os.Stat(name); err == nil && info.Size() >= wal.SegmentSizeBytes {
			return true
		}
	}
	return false
}

func (m *member) health() error {
	l, err := m.store.use()
	if err != nil {
		return err
	}
	defer l.calls.Done()
	full, err := guard(l, func() (bool, error) { return l.alarmed(), nil })
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	case full:
		return fmt.Errorf("%w: the quota of %d bytes is used up", store.ErrFull, m.cfg.QuotaBytes)
	default:
		return m.disk.admit()
	}
}

// trim compacts history that is longer than asked for by a quarter. A tenth of it has to do
// where the quota comes near: revisions may be large, and a registry that takes no writes is
// worse than watches that have to begin anew.
func (t *tender) trim(ctx context.Context) error {
	history := signed(t.cfg.History)
	if t.server.Backend().SizeInUse() >= t.cfg.QuotaBytes/10*7 {
		history /= 10
	}
	revision := t.server.KV().Rev()
	if revision-t.compacted < history+history/4 {
		return nil
	}
	return t.compact(ctx, revision-history)
}

func (t *tender) compact(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	_, err := t.link.client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return err
	}
	t.compacted = revision
	return nil
}

// reclaim gives space back when the database comes near its quota, of which etcd counts
// also what is free inside it, or the disk its reserve. At either end it gives up all
// history for it.
func (t *tender) reclaim(ctx context.Context) error {
	backend, quota := t.server.Backend(), t.cfg.QuotaBytes
	alarmed, low := t.link.alarmed(), t.disk.admit() != nil
	if (!alarmed && !low && backend.Size() < quota/10*8) || time.Since(t.reclaimed) < reclaimPause {
		return nil
	}
	if revision := t.server.KV().Rev(); (alarmed || low) && revision > t.compacted {
		if err := t.compact(ctx, revision); err != nil {
			return err
		}
	}
	inUse := backend.SizeInUse()
	// The database is written anew beside the old one: for that, too, the reserve is there.
	if backend.Size()-inUse < min(quota/10, reclaimLeast) || !t.disk.fits(inUse) {
		return nil
	}
	t.reclaimed = time.Now()
	if err := t.server.Defragment(); err != nil {
		return err
	}
	t.log.InfoContext(ctx, "space of the registry given back", "bytes", backend.Size(), "quota_bytes", quota)
	if !alarmed || backend.Size() >= quota/10*9 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	_, err := t.link.client.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	return err
}
