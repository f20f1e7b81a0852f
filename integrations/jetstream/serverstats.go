package jetstream

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// syncFile is what is synced to see whether the disk of an embedded server does it.
const syncFile = "sync-probe"

// ServerStats is how an embedded server is.
type ServerStats struct {
	// Connections is how many programs are connected, this one among them, and
	// MaxConnections how many may be.
	Connections, MaxConnections int
	// Synced is when the disk was last seen to sync, Took how long that took, and SyncError
	// why the last try failed. The server does not tell of its own syncs, so a small file in
	// its folder is synced. Zero: the disk has not been seen to sync yet, or the engine is
	// [Fast], and nobody waits for that.
	Synced    time.Time
	Took      time.Duration
	SyncError error
}

// syncs is what is known of the disk.
type syncs struct {
	mu      sync.Mutex
	running bool
	at      time.Time
	took    time.Duration
	err     error
}

// ServerStats tells how the embedded server is; false: it is somewhere else. It does not wait
// for the disk: it has what there is, and has the disk try again, where the last try is over.
// So who asks every minute knows how it was a minute ago, and a disk that hangs shows by a time
// that stands still.
func (e *Engine) ServerStats() (ServerStats, bool) {
	if e.server == nil {
		return ServerStats{}, false
	}
	out := ServerStats{Connections: e.server.NumClients(), MaxConnections: maxConnections}
	if e.cfg.Durability == Fast {
		return out, true
	}
	s := &e.syncs
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Synced, out.Took, out.SyncError = s.at, s.took, s.err
	if !s.running {
		s.running = e.spawn(func() { s.try(filepath.Join(e.cfg.Dir, syncFile)) }) == nil
	}
	return out, true
}

// try syncs a file once.
func (s *syncs) try(path string) {
	began := time.Now()
	err := syncOnce(path)
	end := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.err = false, err
	if err == nil {
		s.at, s.took = end, end.Sub(began)
	}
}

// syncOnce writes a byte and waits until the disk has it.
func syncOnce(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{'.'}, 0)
	return errors.Join(err, f.Sync(), f.Close())
}
