package jetstream

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestServerStats: connections come and go; that the disk syncs is seen, and that it does not;
// an external server tells nothing.
func TestServerStats(t *testing.T) {
	checkLeaks(t)
	began := time.Now()
	dir := t.TempDir()
	e := open(t, Config{Dir: dir, Listen: "127.0.0.1:0", Durability: Sync})
	stats := func() ServerStats {
		t.Helper()
		s, ok := e.ServerStats()
		if !ok {
			t.Fatal("an embedded server tells nothing")
		}
		return s
	}
	if s := stats(); s.Connections != 1 || s.MaxConnections != maxConnections || !s.Synced.IsZero() {
		t.Errorf("at first: %+v; want one connection, and no sync yet", s)
	}
	other, err := Open(t.Context(), Config{URL: e.URL()})
	if err != nil {
		t.Fatal(err)
	}
	if s, ok := other.ServerStats(); ok {
		t.Errorf("a server somewhere else tells %+v", s)
	}
	if s := stats(); s.Connections != 2 {
		t.Errorf("with another program: %d connections, want 2", s.Connections)
	}
	_ = other.Close()
	eventually(t, "the connection is gone, and the disk has synced", func() bool {
		s := stats()
		return s.Connections == 1 && !s.Synced.Before(began) && s.Took > 0 && s.SyncError == nil
	})
	last := stats().Synced
	eventually(t, "it is tried again", func() bool { return stats().Synced.After(last) })
	probe := filepath.Join(dir, syncFile)
	eventually(t, "no file can be written there", func() bool { // while one is being written
		return os.Remove(probe) == nil && os.Mkdir(probe, 0o700) == nil
	})
	eventually(t, "it is seen that the disk cannot", func() bool { return stats().SyncError != nil })
	last = stats().Synced
	for range 3 {
		if s := stats(); s.SyncError == nil || !s.Synced.Equal(last) {
			t.Errorf("while it cannot: %+v, want the error, and the last sync at %s", s, last)
		}
	}
}

// TestServerStatsFast: who waits for no sync pays for none.
func TestServerStatsFast(t *testing.T) {
	dir := t.TempDir()
	e := open(t, Config{Dir: dir, Durability: Fast})
	for range 2 {
		if s, ok := e.ServerStats(); !ok || s.Connections != 1 || !s.Synced.IsZero() {
			t.Errorf("got %+v %v", s, ok)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, syncFile)); err == nil {
		t.Error("a file was synced")
	}
}
