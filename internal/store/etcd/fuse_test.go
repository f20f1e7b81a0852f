package etcd_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/internal/store/etcd/etcdtest"
)

// comesBack waits until a write is taken again.
func comesBack(t *testing.T, s *etcd.Store, key string) {
	t.Helper()
	poll(t, time.Minute, func() error {
		_, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: []byte("v")}}})
		return err
	})
}

// keep follows all keys from revision from on and counts what it is told, until its watch
// ends for another reason than that the store is out of reach.
func keep(t *testing.T, s *etcd.Store, from uint64) *atomic.Int64 {
	t.Helper()
	var n atomic.Int64
	go func() {
		for {
			var err error
			for b := range s.Watch(t.Context(), "", from) {
				if err = b.Err; err == nil {
					from = b.Revision
					n.Add(int64(len(b.Events)))
				}
			}
			if !errors.Is(err, store.ErrUnavailable) {
				return
			}
		}
	}()
	return &n
}

// TestEtcdFails: where etcd would end the process, it stops, and another one goes on with
// all that was acknowledged.
func TestEtcdFails(t *testing.T) {
	trouble := errors.New("trouble")
	for name, failure := range map[string]etcd.Trouble{
		"and stops":                     {Err: trouble},
		"and keeps the database locked": {Err: trouble, Locked: true},
		"and then the database does":    {Err: trouble, Then: 100 * time.Millisecond},
		"while the database is at work": {Err: trouble, Busy: 2500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := embedded(t, etcd.Config{}.WithPatience(time.Second))
			first := put(t, s, "a", "1")
			lease, err := s.Grant(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			seen := keep(t, s, first-1)
			s.Fail(failure)
			// Whether the one that failed is seen or not yet, or the next one: no call hangs.
			for range 10 {
				if _, _, _, err := s.Get(t.Context(), "a"); err != nil && !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("Get: %v", err)
				}
			}
			comesBack(t, s, "b")
			if kv, found, _, err := s.Get(t.Context(), "a"); err != nil || !found || string(kv.Value) != "1" {
				t.Errorf("what was there before: %+v, %v", kv, err)
			}
			if _, err := s.Renew(t.Context(), lease); err != nil {
				t.Errorf("Renew: %v", err)
			}
			put(t, s, "c", "3")
			if err := s.Health(t.Context()); err != nil {
				t.Errorf("Health: %v", err)
			}
			poll(t, time.Minute, func() error {
				if n := seen.Load(); n < 3 { // a write in doubt may be there twice
					return fmt.Errorf("a watch has seen %d changes, want those of a, b and c", n)
				}
				return nil
			})
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if left := s.Left(); failure.Busy == 0 && (left > 0) != (failure.Locked || failure.Then > 0) {
				t.Errorf("%d etcds were left behind", left)
			}
		})
	}
}

// TestNextSegmentMissing: etcd allocates the next segment of its log ahead, and if there
// is no room, fails only when it goes on there. It is started again before that.
func TestNextSegmentMissing(t *testing.T) {
	dir := t.TempDir()
	s := embedded(t, etcd.Config{Dir: dir})
	put(t, s, "a", "1")
	segments := filepath.Join(dir, "member", "wal", "*.tmp")
	ahead := func() []string {
		t.Helper()
		names, err := filepath.Glob(segments)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	for _, name := range ahead() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if len(ahead()) > 0 {
		t.Fatal("there is a next segment, after all")
	}
	poll(t, time.Minute, func() error {
		if len(ahead()) == 0 {
			return errors.New("there is no next segment")
		}
		return nil
	})
	comesBack(t, s, "b")
	if _, found, _, err := s.Get(t.Context(), "a"); err != nil || !found {
		t.Errorf("what was there before: %t, %v", found, err)
	}
}

// TestOpenWithoutRoom: an impatient Open says what is missing; a patient one returns, and
// the store comes when there is room.
func TestOpenWithoutRoom(t *testing.T) {
	var free freeSpace
	cfg := etcd.Config{Dir: t.TempDir()}.WithFree(free.Load)
	if _, err := etcd.Open(t.Context(), cfg); err == nil {
		t.Fatal("a store was opened on a disk without room")
	}
	cfg.Patient = true
	s := embedded(t, cfg)
	var out *store.OutError
	if err := s.Health(t.Context()); !errors.As(err, &out) || !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Health: %v, want why the store is out of service", err)
	}
	if _, _, err := s.List(t.Context(), "", "", 0); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("List: %v", err)
	}
	if b := <-s.Watch(t.Context(), "", 0); !errors.Is(b.Err, store.ErrUnavailable) {
		t.Errorf("Watch: %v", b.Err)
	}
	free.Store(1 << 40)
	comesBack(t, s, "a")
	// Nobody else has the directory meanwhile, in service or not.
	cfg.Patient = false
	if _, err := etcd.Open(t.Context(), cfg); err == nil {
		t.Error("a second store was opened")
	}
}

// TestDiskReallyFull: a disk is full to the last byte, and nothing has kept etcd from
// going on: it is seen, survived, and mended when there is room.
func TestDiskReallyFull(t *testing.T) {
	dir, here := etcdtest.SmallDisk(t, 240)
	if !here {
		return
	}
	var free freeSpace
	free.Store(1 << 40)
	s := embedded(t, etcd.Config{Dir: filepath.Join(dir, "registry")}.WithFree(free.Load).WithPatience(time.Second))
	first := put(t, s, "first", "1")
	filler := filepath.Join(dir, "filler")
	etcdtest.FillDisk(t, filler)
	// Large writes, so that etcd needs more than was kept for it.
	value := make([]byte, 500<<10)
	n, err := 0, error(nil)
	for ; err == nil && n < 1000; n++ {
		_, err = s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: key(n), Value: value}}})
	}
	if !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("write %d: %v", n, err)
	}
	poll(t, time.Minute, func() error {
		if err := s.Health(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			return errors.New("the store is in service")
		}
		return nil
	})
	t.Logf("etcd failed at write %d: %v", n, s.Health(t.Context()))
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	comesBack(t, s, "after")
	if kv, _, _, err := s.Get(t.Context(), "first"); err != nil || kv.ModRevision != first {
		t.Errorf("the first key: %+v, %v", kv, err)
	}
	for i := range n - 1 {
		if kv, found, _, err := s.Get(t.Context(), key(i)); err != nil || !found || len(kv.Value) != len(value) {
			t.Fatalf("write %d of %d was acknowledged: %t %v", i, n, found, err)
		}
	}
}

// TestOpenBroken: what etcd would end the process for when it starts is an error of Open,
// and leaves nothing locked.
func TestOpenBroken(t *testing.T) {
	dir := t.TempDir()
	s := embedded(t, etcd.Config{Dir: dir})
	const value = "this is what will be broken"
	for i := range 100 {
		put(t, s, key(i), value)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	good, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	// Not what tells how long a record is: etcd would drop the rest as if it was never
	// written whole.
	bad := bytes.Replace(good, []byte(value), []byte(strings.ToUpper(value)), 1)
	if err := os.WriteFile(logs[0], bad, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, patient := range []bool{false, true} {
		if s, err := etcd.Open(t.Context(), etcd.Config{Dir: dir, Patient: patient}); err == nil {
			_ = s.Close()
			t.Fatal("a store was opened whose log is broken")
		} else {
			t.Log(err)
		}
	}
	if err := os.WriteFile(logs[0], good, 0o600); err != nil {
		t.Fatal(err)
	}
	s = embedded(t, etcd.Config{Dir: dir})
	if kvs, _, err := s.List(t.Context(), "k", "", 0); err != nil || len(kvs) != 100 {
		t.Errorf("%d of 100 keys, %v", len(kvs), err)
	}
}
