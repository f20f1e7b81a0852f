package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store/etcd/etcdtest"
)

// serviceWriter writes services of the name given, one after the other, from several
// goroutines, until it is stopped, and remembers those that were acknowledged.
type serviceWriter struct {
	url    string
	cancel context.CancelFunc
	wg     sync.WaitGroup

	refused atomic.Int64
	mu      sync.Mutex
	acked   []string
	strange string // an answer that is neither a success nor one of a full disk
}

func writeServices(t *testing.T, s *server, name string, writers int) *serviceWriter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &serviceWriter{url: s.url(), cancel: cancel}
	t.Cleanup(w.stop)
	for id := range writers {
		w.wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				w.write(ctx, fmt.Sprintf("%s-%d-%d", name, id, n))
			}
		})
	}
	return w
}

func (w *serviceWriter) write(ctx context.Context, service string) {
	body := fmt.Appendf(nil, `{"owner":%q}`, strings.Repeat("o", 200))
	status, text, err := call(ctx, http.MethodPut, w.url+"/v1/services/"+service, body)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err == nil && status == http.StatusCreated:
		w.acked = append(w.acked, service)
	case err == nil && status == http.StatusInsufficientStorage:
		w.refused.Add(1)
	case err == nil && status == http.StatusServiceUnavailable:
	default:
		w.strange = fmt.Sprint(status, " ", text, " ", err)
	}
}

func (w *serviceWriter) stop() {
	w.cancel()
	w.wg.Wait()
}

// TestDiskFull has another writer fill the disk of a server as fast as it goes, while
// services are written: the server lives, says so, reads, deletes and routes; and is as
// before when there is room. Then it is killed and started on the full disk.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk, here := etcdtest.SmallDisk(t, 350)
	if !here {
		return
	}
	filler := filepath.Join(disk, "filler")
	args := []string{"--data", filepath.Join(disk, "data")}
	s := startServer(t, args...)
	for _, role := range []string{"control", "gateway", "inside"} {
		args = append(args, "--listen", role+"="+s.addresses[role])
	}
	s.runService(t, "http", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	routed := func() {
		t.Helper()
		poll(t, 10*time.Second, func() error {
			_, err := s.ask(t, "order.lane.localhost")
			return err
		})
	}
	routed()
	poll(t, time.Minute, func() error { // it is written now and then
		snapshot, err := os.ReadFile(filepath.Join(disk, "data", "gateway", "snapshot.json"))
		if err == nil && !bytes.Contains(snapshot, []byte(`"o1"`)) {
			err = errors.New("the gateway's snapshot on disk has no instance o1")
		}
		return err
	})
	w := writeServices(t, s, "w", 8)
	poll(t, time.Minute, func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.acked) < 200 {
			return fmt.Errorf("%d services written, %s", len(w.acked), w.strange)
		}
		return nil
	})

	etcdtest.FillDisk(t, filler)
	poll(t, time.Minute, func() error {
		if _, h, err := s.health(t, "/healthz"); err != nil || h.OK || !strings.Contains(h.Roles[0].Reason, "full") {
			return fmt.Errorf("/healthz: %+v %w, want that the registry is full", h, err)
		}
		if w.refused.Load() < 100 {
			return fmt.Errorf("%d writes refused", w.refused.Load())
		}
		return nil
	})
	w.stop()
	if w.strange != "" {
		t.Errorf("a writer was answered %s", w.strange)
	}
	s.lives(t)
	routed()
	s.readsAndDeletes(t, w)
	s.lives(t)

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.takesWrites(t, "room")

	etcdtest.FillDisk(t, filler)
	s.Kill()
	s = startServer(t, args...)
	routed()
	status, h, err := s.health(t, "/readyz")
	if err != nil || status != http.StatusServiceUnavailable || !strings.Contains(h.Roles[0].Reason, "MB free") {
		t.Errorf("/readyz on a full disk: %d %+v %v, want how much room it needs", status, h, err)
	}
	if status, text, err := call(t.Context(), http.MethodPut, s.url()+"/v1/services/late", []byte("{}")); err != nil || status != http.StatusServiceUnavailable {
		t.Errorf("a write: %d %s %v, want 503", status, text, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s.takesWrites(t, "later")
	for _, service := range w.acked {
		if status, text, err := call(t.Context(), http.MethodGet, s.url()+"/v1/services/"+service, nil); err != nil || status != http.StatusOK {
			t.Fatalf("%s was acknowledged: %d %s %v", service, status, text, err)
		}
	}
	routed()
	s.lives(t)
	t.Logf("%d services acknowledged, %d refused, none lost", len(w.acked), w.refused.Load())
}

// readsAndDeletes has services read and some of them deleted, which w then forgets.
func (s *server) readsAndDeletes(t *testing.T, w *serviceWriter) {
	t.Helper()
	const deleted = 100
	for i, service := range w.acked {
		if status, text, err := call(t.Context(), http.MethodGet, s.url()+"/v1/services/"+service, nil); err != nil || status != http.StatusOK {
			t.Fatalf("read %s: %d %s %v", service, status, text, err)
		}
		if i >= deleted {
			continue
		}
		if status, text, err := call(t.Context(), http.MethodDelete, s.url()+"/v1/services/"+service, nil); err != nil || status != http.StatusNoContent {
			t.Fatalf("delete %s: %d %s %v", service, status, text, err)
		}
	}
	w.acked = w.acked[deleted:]
}

// takesWrites waits until a service can be written, and the server says that it is well.
func (s *server) takesWrites(t *testing.T, service string) {
	t.Helper()
	poll(t, time.Minute, func() error {
		s.lives(t)
		status, text, err := call(t.Context(), http.MethodPut, s.url()+"/v1/services/"+service, []byte("{}"))
		if err != nil || status >= http.StatusBadRequest {
			return fmt.Errorf("a write: %d %s %w", status, text, err)
		}
		if _, h, err := s.health(t, "/readyz"); err != nil || !h.OK {
			return fmt.Errorf("/readyz: %+v %w", h, err)
		}
		return nil
	})
}

// TestPeerDiskFull fills the disk of one of three servers whose registries are one
// cluster, and has the others write until that one's etcd fails: they go on, its process
// too, and when there is room it is one of them again.
func TestPeerDiskFull(t *testing.T) {
	t.Parallel()
	disk, here := etcdtest.SmallDisk(t, 600)
	if !here {
		return
	}
	p := startPeersAt(t, []string{filepath.Join(disk, "data"), t.TempDir(), t.TempDir()})
	full, other := p.servers[0], p.servers[1]
	full.put(t, "before")
	filler := filepath.Join(disk, "filler")
	etcdtest.FillDisk(t, filler)

	// Each write is large, so that the log soon goes beyond what was allocated for it.
	users := strings.Repeat(`"`+strings.Repeat("u", 22)+`",`, 9_900)
	n := 0
	poll(t, 5*time.Minute, func() error {
		body := fmt.Appendf(nil, `{"match":{"user":{"from":"header:x","list":[%s"%d"]}},"lanes":[{"lane":"green","percent":100}]}`, users, n)
		n++
		status, text, err := call(t.Context(), http.MethodPut, fmt.Sprintf("%s/v1/rules/r%d", other.url(), n%10), body)
		if err != nil || status >= http.StatusBadRequest && status != http.StatusServiceUnavailable {
			t.Fatalf("write %d: %d %s %v", n, status, text, err)
		}
		full.lives(t)
		if status, h, err := full.health(t, "/readyz"); err != nil || status != http.StatusServiceUnavailable {
			return fmt.Errorf("after %d writes /readyz of the one with a full disk: %d %+v %w", n, status, h, err)
		}
		return nil
	})
	t.Logf("etcd failed after %d writes", n)
	other.put(t, "meanwhile")
	full.lives(t)
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	full.takesWrites(t, "after")
	for _, s := range p.servers {
		for _, service := range []string{"before", "meanwhile", "after"} {
			s.has(t, service)
		}
	}
}
