package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/store"
)

const (
	startTimeout = time.Minute
	// peersPatience is how long a patient Open waits for a majority of the peers before it
	// returns without.
	peersPatience = 3 * time.Second
	lockName      = "laneway.lock"
	// restartLeast and restartMost bound the pause between two starts of an etcd that
	// failed.
	restartLeast = time.Second
	restartMost  = 30 * time.Second
	// roomEvery is how often a disk without room is looked at.
	roomEvery = time.Second
	// closePatience is how long an etcd that failed may take to stop, before it is left
	// behind; and maxLeft, how many are: each keeps some memory.
	closePatience = 10 * time.Second
	maxLeft       = 8
)

// member looks after the etcd of an embedded store: it starts one after the other, as
// long as the store lives.
type member struct {
	store   *Store
	cfg     Config
	log     *slog.Logger
	disk    *disk
	running sync.WaitGroup // the goroutine that owns what follows

	lock *fileutil.LockedFile // nil until the directory is there
	left int                  // etcds that did not stop
	told string               // the last reason that was logged
}

func openEmbedded(ctx context.Context, cfg Config) (*Store, error) {
	defaults(&cfg)
	s := newStore(ctx, cfg)
	m := &member{store: s, cfg: cfg, log: cfg.Log}
	m.disk = &disk{dir: cfg.Dir, reserve: uint64(cfg.ReserveBytes), free: cfg.free, log: cfg.Log}
	s.member, s.out = m, &store.OutError{Reason: "the registry's etcd starts"}
	// A directory that another process has is no failure to recover from.
	if err := m.prepare(); err != nil && (!cfg.Patient || !passing(err)) {
		return nil, errors.Join(err, s.Close())
	}
	first := make(chan error, 1)
	m.running.Go(func() { m.run(s.life, first) })

	within := startTimeout
	if cfg.Patient && cfg.Peers != nil {
		within = peersPatience
	}
	late := time.NewTimer(within)
	defer late.Stop()
	var err error
	select {
	case err = <-first:
	case <-late.C:
		err = errLate
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil && (!cfg.Patient || !passing(err)) {
		return nil, errors.Join(err, s.Close())
	}
	if _, err := s.Revision(ctx); err != nil && !cfg.Patient {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

var errLate = errors.New("etcd has not come up in time")

// passing says whether what kept etcd from starting can end by itself.
func passing(err error) bool {
	_, room := errors.AsType[*roomError](err)
	return room || errors.Is(err, syscall.ENOSPC) || errors.Is(err, errLate)
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
	if cfg.patience == 0 {
		cfg.patience = closePatience
	}
	if cfg.History == 0 {
		cfg.History = DefaultHistory
	}
}

// run has an etcd in service whenever that can be, until ctx ends. first gets what came
// of the first start.
func (m *member) run(ctx context.Context, first chan<- error) {
	defer m.unlock()
	retry := backoff.New(restartLeast, restartMost)
	for ctx.Err() == nil {
		l, err := m.start(ctx)
		if err != nil {
			tell(first, err)
			m.out(ctx, err)
			pause := retry.Next()
			if _, room := errors.AsType[*roomError](err); room {
				pause = roomEvery
			}
			backoff.Wait(ctx, pause)
			continue
		}
		begun := time.Now()
		err = m.serve(ctx, l, first)
		m.out(ctx, err)
		m.stop(ctx, l)
		switch {
		case errors.Is(err, errNoSegment):
			continue
		case time.Since(begun) > restartMost:
			retry.Reset()
		}
		if err != nil {
			backoff.Wait(ctx, retry.Next())
		}
	}
}

// out takes the store out of service, and says why.
func (m *member) out(ctx context.Context, err error) {
	if ctx.Err() != nil {
		m.store.disconnect(store.ErrClosed)
		return
	}
	reason := "the registry's etcd has failed and will be started again"
	_, room := errors.AsType[*roomError](err)
	switch {
	case room:
		reason = "the registry is out of service until its disk has room"
	case errors.Is(err, syscall.ENOSPC):
		reason = "the registry's disk is full: it is out of service until there is room"
	case errors.Is(err, errNoSegment):
		reason = "the registry's etcd is started again, since the disk was full"
	case errors.Is(err, errLeftTooOften):
		reason = "the registry's etcd has failed: start this process again"
	}
	out := &store.OutError{Reason: reason, Err: err}
	m.store.disconnect(out)
	if text := out.Error(); text != m.told {
		m.told = text
		m.log.ErrorContext(ctx, "registry is out of service", "error", out)
	}
}

// serve has l in service until it fails, or ctx ends.
func (m *member) serve(ctx context.Context, l *life, first chan<- error) error {
	m.store.connect(l.link)
	tell(first, nil)
	if m.told != "" {
		m.told = ""
		m.log.InfoContext(ctx, "registry is in service again")
	}
	tended := make(chan error, 1)
	l.link.calls.Go(func() { tended <- m.tend(l) }) // ends with the link
	select {
	case <-ctx.Done():
		return nil
	case <-l.fuse.blown:
		return l.fuse.err
	case <-l.server.Server.StopNotify():
		return errors.New("etcd has stopped by itself")
	case err := <-tended:
		return err
	}
}

// tell sends err, unless something was sent before.
func tell(first chan<- error, err error) {
	select {
	case first <- err:
	default:
	}
}

var errLeftTooOften = errors.New("etcd did not stop too often")

// stop ends an etcd. One that has failed may not be able to stop: a goroutine that came
// upon the trouble has kept a lock. Then what could still write to its files is kept from
// it, and it is left behind, without the locks that keep the next one from starting.
func (m *member) stop(ctx context.Context, l *life) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if l.link != nil {
			select {
			case <-l.link.rest():
			case <-l.fuse.blown:
			}
		}
		l.server.Close()
	}()
	select {
	case <-closed:
		if !l.fuse.isBlown() {
			return
		}
	case <-l.fuse.blown:
	}
	if done(closed, m.cfg.patience) {
		// If it could not write the rest of its log, it has kept the locks of that.
		if err := release(filepath.Join(m.cfg.Dir, memberDir)); err != nil {
			m.log.DebugContext(ctx, "locks of the registry's etcd not given back", "error", err)
		}
		return
	}
	// The log has no writer: either that is who failed, or it waits for one who takes what
	// it has to apply, and etcd's main loop, which is the one, has ended.
	if !m.lockDatabase(ctx, l) {
		return
	}
	for _, p := range l.server.Peers {
		_ = p.Close() // its peers shall reach the next one there
	}
	m.leave(ctx)
}

// lockDatabase keeps the database of an etcd that failed from any more writes, and says
// whether it does. Whoever has the lock may be at work, on a disk that takes its time: it
// waits for that for as long as ctx lasts.
func (m *member) lockDatabase(ctx context.Context, l *life) bool {
	select {
	case <-l.fuse.locked:
		return true
	default:
	}
	locked := make(chan struct{})
	go func() {
		l.server.Server.Backend().BatchTx().LockOutsideApply() // for good
		close(locked)
	}()
	late := time.NewTimer(m.cfg.patience)
	defer late.Stop()
	for {
		select {
		case <-locked:
			return true
		case <-l.fuse.locked:
			return true
		case <-ctx.Done():
			return false
		case <-late.C:
			m.log.WarnContext(ctx, "registry's etcd has failed, and something still writes to its database: waiting")
		}
	}
}

// leave frees the directory of an etcd that has not stopped and writes no more.
func (m *member) leave(ctx context.Context) {
	m.left++
	m.log.ErrorContext(ctx, "registry's etcd has failed and did not stop: it is left behind", "left", m.left, "left_max", maxLeft)
	if err := release(filepath.Join(m.cfg.Dir, memberDir)); err != nil {
		m.log.ErrorContext(ctx, "locks of the registry's etcd not given back", "error", err)
		m.left = maxLeft
	}
}

// prepare makes the directory and locks it.
func (m *member) prepare() error {
	if m.lock != nil {
		return nil
	}
	if err := os.MkdirAll(m.cfg.Dir, 0o700); err != nil {
		return err
	}
	lock, err := fileutil.TryLockFile(filepath.Join(m.cfg.Dir, lockName), os.O_WRONLY|os.O_CREATE, 0o600)
	if errors.Is(err, fileutil.ErrLocked) {
		return fmt.Errorf("directory %s is in use by another process: stop it, or use another directory", m.cfg.Dir)
	}
	if err != nil {
		return err
	}
	m.lock = lock
	return nil
}

func (m *member) unlock() {
	if m.lock == nil {
		return
	}
	if err := m.lock.Close(); err != nil {
		m.log.Warn("lock of the registry's directory not released", "error", err)
	}
}

// done says whether c is closed within d.
func done(c <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}
