package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/internal/store/etcd/etcdtest"
	"github.com/laneway-dev/laneway/internal/store/storetest"
)

// cluster opens stores on an etcd cluster.
type cluster struct{ *etcdtest.Cluster }

// config is that of a store on the cluster, with keys of its own.
func (c cluster) config(name string) etcd.Config {
	return etcd.Config{Endpoints: c.Endpoints(), TLS: c.TLS, Username: etcdtest.User, Password: etcdtest.Password, Prefix: "laneway/" + name + "/"}
}

func (c cluster) open(t *testing.T, user, name string) *etcd.Store {
	t.Helper()
	cfg := c.config(name)
	cfg.Username = user
	s, err := etcd.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestCluster(t *testing.T) {
	c := cluster{etcdtest.Start(t, 3)}
	n := 0
	storetest.RunShared(t, func(t *testing.T) store.Store {
		t.Helper()
		n++
		return c.open(t, etcdtest.Admin, fmt.Sprint("suite-", n))
	})
	t.Run("User", func(t *testing.T) {
		cfg := c.config("")
		cfg.Prefix, cfg.Probe = "", "laneway/-"
		s, err := etcd.Open(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		lease, err := s.Grant(t.Context(), store.MinTTL)
		if err != nil {
			t.Error(err)
		}
		r, err := s.Do(t.Context(), store.Txn{If: []store.Compare{{Key: "laneway/k"}}, Ops: []store.Op{{Key: "laneway/k", Lease: lease}}})
		if err != nil || !r.Done {
			t.Errorf("Do: %+v, %v", r, err)
		}
		if b := <-s.Watch(t.Context(), "laneway/", r.Revision-1); len(b.Events) != 1 {
			t.Errorf("a watch got %+v", b)
		}
		if _, err := s.Renew(t.Context(), lease); err != nil {
			t.Errorf("Renew: %v", err)
		}
		if err := s.Health(t.Context()); err != nil {
			t.Errorf("Health: %v", err)
		}
		if err := s.Revoke(t.Context(), lease); err != nil {
			t.Errorf("Revoke: %v", err)
		}
		if b := <-s.Watch(t.Context(), "", r.Revision-1); !errors.Is(b.Err, rpctypes.ErrPermissionDenied) {
			t.Errorf("a watch of others' keys: %+v", b)
		}
		if _, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "other"}}}); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("a write to others' keys: %v", err)
		}
		if err := s.Compact(t.Context(), r.Revision); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("Compact, which is for root: %v", err)
		}
	})
	t.Run("Stranger", func(t *testing.T) {
		for name, change := range map[string]func(*etcd.Config){
			"no user":           func(cfg *etcd.Config) { cfg.Username, cfg.Password = "", "" },
			"wrong password":    func(cfg *etcd.Config) { cfg.Password = "guess" },
			"no TLS":            func(cfg *etcd.Config) { cfg.TLS = nil; cfg.Endpoints = hosts(cfg.Endpoints) },
			"no certificate":    func(cfg *etcd.Config) { cfg.TLS = cfg.TLS.Clone(); cfg.TLS.Certificates = nil },
			"unknown authority": func(cfg *etcd.Config) { cfg.TLS = cfg.TLS.Clone(); cfg.TLS.RootCAs = nil },
			"keys of others":    func(cfg *etcd.Config) { cfg.Prefix = "others/" },
		} {
			cfg := c.config("stranger")
			change(&cfg)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if s, err := etcd.Open(ctx, cfg); err == nil {
				_ = s.Close()
				t.Errorf("%s: Open succeeded", name)
			}
			cancel()
		}
	})
}

func hosts(urls []string) []string {
	var out []string
	for _, u := range urls {
		out = append(out, strings.TrimPrefix(u, "https://"))
	}
	return out
}

// TestClusterLosesMembers: with the leader gone, what was acknowledged is there and
// watches go on without a gap; with the majority gone, everything says that the store
// is out of reach; when it is back, all goes on.
func TestClusterLosesMembers(t *testing.T) {
	c := cluster{etcdtest.Start(t, 3)}
	s := c.open(t, etcdtest.User, "losing")
	start, err := s.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	watched := taken(s.Watch(t.Context(), "w/", start))
	var stop atomic.Bool
	acked := make([]map[string]uint64, 4)
	var writers sync.WaitGroup
	for w := range acked {
		acked[w] = map[string]uint64{}
		writers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				key := fmt.Sprintf("w/%d/%05d", w, i)
				r, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: key}}})
				switch {
				case err == nil:
					acked[w][key] = r.Revision
				case !errors.Is(err, store.ErrUnavailable):
					t.Errorf("a write: %v", err)
				}
			}
		})
	}
	lose := func() *etcdtest.Member {
		var m *etcdtest.Member
		poll(t, 20*time.Second, func() error {
			if m = c.Leader(); m == nil {
				return errors.New("no leader")
			}
			return nil
		})
		m.Stop()
		return m
	}
	first := lose()
	alive(t, s)
	first.Start(t)
	first.Wait(t)
	second := lose()
	alive(t, s)
	stop.Store(true)
	writers.Wait()
	seen := checkAcked(t, s, start, watched, acked)
	t.Logf("%d writes acknowledged while two leaders were lost", seen)

	third := lose() // two of three are down
	dead(t, s)
	second.Start(t)
	third.Start(t)
	second.Wait(t)
	third.Wait(t)
	alive(t, s)
	if err := s.Health(t.Context()); err != nil {
		t.Errorf("Health: %v", err)
	}
}

// taken takes what a watch tells as it comes, and keeps it. A member over TLS cannot be
// stopped while it writes to a client that does not read, as one that crashes can.
func taken(in <-chan store.Batch) <-chan store.Batch {
	out := make(chan store.Batch, 1<<17)
	go func() {
		defer close(out)
		for b := range in {
			out <- b
		}
	}()
	return out
}

// alive waits until a write succeeds.
func alive(t *testing.T, s store.Store) {
	t.Helper()
	poll(t, 30*time.Second, func() error {
		_, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "alive"}}})
		if err != nil && !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
		return err
	})
}

// checkAcked compares what was acknowledged with what is stored and what a watch saw.
func checkAcked(t *testing.T, s store.Store, start uint64, watched <-chan store.Batch, acked []map[string]uint64) int {
	t.Helper()
	kvs, revision, err := s.List(t.Context(), "w/", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	stored := map[string]uint64{}
	for _, kv := range kvs {
		stored[kv.Key] = kv.ModRevision
	}
	events := map[string]uint64{}
	for reached := start; reached < revision; {
		select {
		case b := <-watched:
			if errors.Is(b.Err, store.ErrUnavailable) { // an election took long: go on from there
				watched = s.Watch(t.Context(), "w/", reached)
				continue
			}
			if b.Err != nil {
				t.Fatalf("the watch ended: %v", b.Err)
			}
			for _, e := range b.Events {
				if _, twice := events[e.Key]; twice || e.ModRevision <= reached {
					t.Errorf("%s came twice or late, at %d after %d", e.Key, e.ModRevision, reached)
				}
				events[e.Key] = e.ModRevision
			}
			reached = b.Revision
		case <-time.After(20 * time.Second):
			t.Fatal("the watch says nothing")
		}
	}
	for key, r := range stored {
		if events[key] != r {
			t.Errorf("%s is of %d, the watch saw %d", key, r, events[key])
		}
	}
	n := 0
	for _, keys := range acked {
		for key, r := range keys {
			n++
			if stored[key] != r {
				t.Errorf("%s was acknowledged at %d, it is stored at %d", key, r, stored[key])
			}
		}
	}
	if n == 0 {
		t.Error("nothing was acknowledged")
	}
	return n
}

// dead checks what operations say when there is no leader.
func dead(t *testing.T, s store.Store) {
	t.Helper()
	w := s.Watch(t.Context(), "", 0)
	begin := time.Now()
	if _, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "k"}}}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("a write without a leader: %v", err)
	}
	if took := time.Since(begin); took > 2*store.DefaultTimeout {
		t.Errorf("a write without a leader took %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a read without a leader: %v", err)
	}
	if err := s.Health(ctx); err == nil {
		t.Error("Health without a leader is nil")
	}
	for {
		select {
		case b := <-w:
			if b.Err == nil {
				continue
			}
			if !errors.Is(b.Err, store.ErrUnavailable) {
				t.Errorf("a watch without a leader ended with %v", b.Err)
			}
			return
		case <-time.After(30 * time.Second):
			t.Error("a watch without a leader does not end")
			return
		}
	}
}
