package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/internal/store/storetest"
)

func embedded(t *testing.T, cfg etcd.Config) *etcd.Store {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	s, err := etcd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s store.Store, key, value string) uint64 {
	t.Helper()
	r, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: []byte(value)}}})
	if err != nil || !r.Done {
		t.Fatalf("put %s: %+v, %v", key, r, err)
	}
	return r.Revision
}

// poll calls check until it returns nil.
func poll(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(within)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s: %v", within, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestEmbedded(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { t.Helper(); return embedded(t, etcd.Config{}) })
}

func TestEmbeddedQuota(t *testing.T) {
	const quota = 8 << 20
	storetest.RunQuota(t, embedded(t, etcd.Config{QuotaBytes: quota}), quota)
}

// TestReopen: everything is there after a stop: keys, revisions, history, leases.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	s := embedded(t, etcd.Config{Dir: dir})
	lease, err := s.Grant(t.Context(), store.MinTTL)
	if err != nil {
		t.Fatal(err)
	}
	first := put(t, s, "a", "1")
	if _, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "leased", Lease: lease}}}); err != nil {
		t.Fatal(err)
	}
	last := put(t, s, "a", "2")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = embedded(t, etcd.Config{Dir: dir})
	kv, _, revision, err := s.Get(t.Context(), "a")
	if err != nil || string(kv.Value) != "2" || kv.ModRevision != last || kv.CreateRevision != first || revision < last {
		t.Errorf("got %+v at %d, %v; want the write of %d", kv, revision, err, last)
	}
	if _, err := s.Renew(t.Context(), lease); err != nil {
		t.Errorf("Renew: %v", err)
	}
	batch := <-s.Watch(t.Context(), "a", first-1)
	if len(batch.Events) != 2 || batch.Events[0].ModRevision != first {
		t.Errorf("a watch from before the stop got %+v", batch)
	}
	poll(t, 20*time.Second, func() error { // nobody renews it any more
		_, found, _, err := s.Get(t.Context(), "leased")
		if err == nil && found {
			err = errors.New("the key outlives its lease")
		}
		return err
	})
}

func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	s := embedded(t, etcd.Config{Dir: dir})
	if _, err := etcd.Open(t.Context(), etcd.Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second Open of a directory: %v", err)
	}
	put(t, s, "still", "works")
}

func TestOpenRefuses(t *testing.T) {
	for name, cfg := range map[string]etcd.Config{
		"neither":      {},
		"both":         {Dir: t.TempDir(), Endpoints: []string{"localhost:1"}},
		"user":         {Dir: t.TempDir(), Username: "root"},
		"quota":        {Dir: t.TempDir(), QuotaBytes: -1},
		"no directory": {Dir: "/dev/null/registry"},
	} {
		if s, err := etcd.Open(t.Context(), cfg); err == nil {
			_ = s.Close()
			t.Errorf("%s: no error", name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := etcd.Open(ctx, etcd.Config{Endpoints: []string{"127.0.0.1:1"}}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("nobody listens: %v", err)
	}
}

// TestHistory: what is older than asked for goes by itself, and no more. Large revisions go
// before they fill the store, but for a tenth of what is asked for.
func TestHistory(t *testing.T) {
	const keeps = 100
	for _, c := range []struct {
		name   string
		cfg    etcd.Config
		writes int
		bytes  int // of each
	}{
		{"small", etcd.Config{History: keeps}, 4 * keeps, 1},
		{"large", etcd.Config{History: 10 * keeps, QuotaBytes: 32 << 20}, 250, 100 << 10}, // 25 MB in all
	} {
		t.Run(c.name, func(t *testing.T) {
			s := embedded(t, c.cfg)
			watched := func(from uint64) store.Batch {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				return <-s.Watch(ctx, "k", from)
			}
			first := put(t, s, "k", "")
			var last uint64
			for range c.writes {
				last = put(t, s, "k", strings.Repeat("v", c.bytes))
			}
			poll(t, 20*time.Second, func() error {
				b := watched(first)
				if !errors.Is(b.Err, store.ErrCompacted) {
					return fmt.Errorf("a watch from %d at %d got %d events, %w", first, last, len(b.Events), b.Err)
				}
				return nil
			})
			if b := watched(last - keeps); b.Err != nil || len(b.Events) == 0 || b.Events[0].ModRevision != last-keeps+1 {
				t.Errorf("a watch of the last %d revisions: %d events, %v", keeps, len(b.Events), b.Err)
			}
		})
	}
}

// TestSpaceComesBack: history alone does not fill a store for good, however fast it
// grows.
func TestSpaceComesBack(t *testing.T) {
	const quota = 16 << 20
	s := embedded(t, etcd.Config{QuotaBytes: quota})
	value := []byte(strings.Repeat("v", 100<<10))
	refused := 0
	for range 400 { // 40 MB in all
		poll(t, 20*time.Second, func() error {
			_, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "k", Value: value}}})
			if errors.Is(err, store.ErrFull) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
			return err
		})
	}
	t.Logf("refused %d times", refused)
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("Health: %v", err)
	}
	if n := s.DatabaseBytes(); n > quota+quota/4 {
		t.Errorf("the database has %d bytes", n)
	}
}

// TestDiskNearlyFull: with less than the reserve, writes that need space are refused,
// before etcd runs into the end of the disk; the rest goes on.
func TestDiskNearlyFull(t *testing.T) {
	const reserve = 100 << 20
	var free atomic.Uint64
	free.Store(1 << 40)
	s := embedded(t, etcd.Config{ReserveBytes: reserve}.WithFree(free.Load))
	put(t, s, "a", "1")
	lease, err := s.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want error) {
		t.Helper()
		poll(t, 10*time.Second, func() error {
			if err := s.Health(t.Context()); !errors.Is(err, want) {
				return fmt.Errorf("Health: %w, want %w", err, want)
			}
			return nil
		})
	}
	free.Store(reserve - 1)
	expect(store.ErrFull)
	if _, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "b"}}}); !errors.Is(err, store.ErrFull) {
		t.Errorf("a write: %v", err)
	}
	if _, err := s.Grant(t.Context(), time.Minute); !errors.Is(err, store.ErrFull) {
		t.Errorf("Grant: %v", err)
	}
	if _, found, _, err := s.Get(t.Context(), "a"); err != nil || !found {
		t.Errorf("Get: %t, %v", found, err)
	}
	if _, err := s.Renew(t.Context(), lease); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if r, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "a", Delete: true}}}); err != nil || !r.Done {
		t.Errorf("a deletion: %+v, %v", r, err)
	}
	free.Store(reserve) // not enough to begin again
	if err := s.Health(t.Context()); !errors.Is(err, store.ErrFull) {
		t.Errorf("Health: %v", err)
	}
	free.Store(reserve * 2)
	expect(nil)
	put(t, s, "b", "1")
}

// TestDiskGetsFull fills a disk of limited size as fast as it goes: etcd must never take
// all of it, whatever it preallocates, and when keys are deleted, writes go on.
func TestDiskGetsFull(t *testing.T) {
	const size = 450 << 20
	dir := t.TempDir()
	var most atomic.Int64
	s := embedded(t, etcd.Config{Dir: dir}.WithFree(func() uint64 {
		n := used(dir)
		most.Store(max(most.Load(), n))
		return uint64(max(size-n, 0))
	}))
	value := []byte(strings.Repeat("v", 500<<10))
	n, err := 0, error(nil)
	for ; err == nil; n++ {
		_, err = s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: fmt.Sprint("k", n), Value: value}}})
	}
	if !errors.Is(err, store.ErrFull) || n < 100 {
		t.Fatalf("write %d: %v", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // it is much to read at once
	defer cancel()
	if kvs, _, err := s.List(ctx, "k", "", 0); err != nil || len(kvs) != n-1 {
		t.Fatalf("%d of %d keys, %v", len(kvs), n-1, err)
	}
	for i := 0; i < n; i += store.MaxTxnOps {
		var txn store.Txn
		for j := i; j < min(i+store.MaxTxnOps, n); j++ {
			txn.Ops = append(txn.Ops, store.Op{Key: fmt.Sprint("k", j), Delete: true})
		}
		poll(t, 2*time.Minute, func() error { // a disk that was just written to may be slow
			_, err := s.Do(t.Context(), txn)
			if err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("deletions: %v", err)
			}
			return err
		})
	}
	begun := time.Now()
	poll(t, 3*time.Minute, func() error {
		_, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "after", Value: value}}})
		return err
	})
	t.Logf("full after %d writes, room again %s after they were deleted, at most %d MB of %d used", n-1, time.Since(begun), most.Load()>>20, size>>20)
	if most.Load() > size {
		t.Errorf("at most %d bytes of %d were used", most.Load(), size)
	}
}

// used is how much a directory has, which changes meanwhile.
func used(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // gone since
		}
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

func TestTooOld(t *testing.T) {
	for version, want := range map[string]bool{
		"3.7.3": false, "3.6.0": false, "3.10.1": false, "4.0.0": false, "3.6.0-rc.1": false,
		"3.5.21": true, "3.4.23": true, "2.3.8": true, "": true, "new": true,
	} {
		if got := etcd.TooOld(version); got != want {
			t.Errorf("%q is too old: %t, want %t", version, got, want)
		}
	}
}

type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestLog: etcd's log comes out in ours, its chatter for debugging only, and nothing of
// it is an error when all is well.
func TestLog(t *testing.T) {
	for _, test := range []struct {
		level slog.Level
		want  bool
	}{{slog.LevelDebug, true}, {slog.LevelError, false}} {
		var out lockedBuffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: test.level}))
		s := embedded(t, etcd.Config{Log: log})
		put(t, s, "k", "")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if got := strings.Contains(text, "component=etcd") && strings.Contains(text, "quota_backend_bytes="); got != test.want {
			t.Errorf("at level %s etcd's log is there: %t, want %t", test.level, got, test.want)
		}
		if strings.Contains(text, "level=ERROR") {
			t.Errorf("errors in the log of a store that is well:\n%s", text)
		}
	}
}
