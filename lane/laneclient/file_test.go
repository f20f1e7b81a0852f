package laneclient_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// TestRestartDuringOutage: a gateway that starts while the control plane is away
// routes by what it knew when it stopped.
func TestRestartDuringOutage(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		c.AddLane("green")
		lc := dial(t, order(c, "green"))
		write(t, c, &laneclient.Route{Meta: meta("api"), Host: "api.example.com", Service: "order"})
		write(t, c, &laneclient.Rule{Meta: meta("testers"), Lanes: []laneclient.LaneShare{{Lane: "green"}}})
		cfg := gateway(c)
		cfg.SnapshotFile = filepath.Join(t.TempDir(), "view.json")
		g, err := laneclient.Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		want := g.View()
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		c.Stop()
		start := time.Now()
		g = dial(t, cfg)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v to start", took)
		}
		v := g.View()
		if !v.Stale || !v.FromFile || v.StaleSince.IsZero() || v.Revision != want.Revision {
			t.Errorf("view is %+v, want the stale one of revision %d", v, want.Revision)
		}
		if s := g.Status(); !s.FromFile || s.Connected || s.LastError == "" {
			t.Errorf("status is %+v", s)
		}
		if reason(g, "order", "green") != lane.ReasonLane || len(v.Routes) != 1 || len(v.Rules) != 1 || !v.Snapshot.HasService("order") {
			t.Errorf("view is %+v, want %+v", v, want)
		}
		if err := g.Need(t.Context(), "order"); err != nil {
			t.Errorf("need: %v", err)
		}
		// Sessions ran out meanwhile: those that live come back, and are not missed.
		c.KillSessions()
		enough := never(t, g, "the living instance is gone", withoutOrder)
		before := lc.Status().Session
		c.Start()
		within(t, 10*time.Second, "all is well again", func() bool {
			return !g.View().Stale && !g.View().FromFile && lc.Status().Session != before && lc.Status().Registered && g.View().Held == 0
		})
		enough()
		c.Stop()
		c.Reset()
		c.Start()
		within(t, 10*time.Second, "a new registry", func() bool { return !g.View().Stale && len(g.View().Routes) == 0 })
	})
}

// TestFileIsForOutagesOnly: with the control plane there, what it says counts from
// the first moment.
func TestFileIsForOutagesOnly(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		cfg := gateway(c)
		cfg.SnapshotFile = filepath.Join(t.TempDir(), "view.json")
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		lc := dial(t, order(c, ""))
		g, err := laneclient.Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		_ = g.Close()
		if err := lc.Close(); err != nil {
			t.Fatal(err)
		}
		g = dial(t, cfg)
		if v := g.View(); v.Stale || v.FromFile || v.Held > 0 || v.Instances.Get("order/o1") != nil {
			t.Errorf("view is %+v, want the registry's", v)
		}
	})
}

func TestFileIsWrittenOnceASecond(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		cfg := gateway(c)
		dir := t.TempDir()
		cfg.SnapshotFile = filepath.Join(dir, "view.json")
		g := dial(t, cfg)
		pass(2 * time.Second) // since the first one
		writes := 0
		var last []byte
		for range 100 {
			c.AddInstance("order", "o1", "", "127.0.0.1:1")
			synctest.Wait()
			if data, err := os.ReadFile(cfg.SnapshotFile); err == nil && !bytes.Equal(data, last) {
				last = data
				writes++
			}
			pass(50 * time.Millisecond)
		}
		if writes < 4 || writes > 7 {
			t.Errorf("%d writes in 5 s of changes", writes)
		}
		c.AddInstance("order", "last", "", "127.0.0.1:1")
		synctest.Wait()
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(cfg.SnapshotFile)
		if err != nil || !bytes.Contains(data, []byte(`"last"`)) {
			t.Errorf("the last change is not in the file: %.300s (%v)", data, err)
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("%v are left beside the file (%v)", entries, err)
		}
		if info, err := os.Stat(cfg.SnapshotFile); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode is %v (%v), want that only its owner reads it", info.Mode(), err)
		}
	})
}

// TestBadFile: a file that is not whole is not believed, and no reason to fail where
// the control plane is there.
func TestBadFile(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		cfg := gateway(c)
		cfg.SnapshotFile = filepath.Join(t.TempDir(), "view.json")
		g, err := laneclient.Dial(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		_ = g.Close()
		good, err := os.ReadFile(cfg.SnapshotFile)
		if err != nil {
			t.Fatal(err)
		}
		for name, data := range map[string][]byte{
			"empty":     {},
			"truncated": good[:len(good)/2],
			"version":   bytes.Replace(good, []byte(`"version":1`), []byte(`"version":2`), 1),
			"changed":   bytes.Replace(good, []byte("127.0.0.1:1"), []byte("127.0.0.1:2"), 1),
			"garbage":   []byte("hello"),
			"null":      []byte("null"),
		} {
			if err := os.WriteFile(cfg.SnapshotFile, data, 0o600); err != nil {
				t.Fatal(err)
			}
			g := dial(t, cfg)
			if v := g.View(); v.Stale || v.FromFile || v.Instances.Get("order/o1").Endpoints[0].Address != "127.0.0.1:1" {
				t.Errorf("%s: view is %+v", name, v)
			}
			if s := g.Status(); !strings.Contains(s.LastError, cfg.SnapshotFile) {
				t.Errorf("%s: status says %q, want that the file was not used", name, s.LastError)
			}
			_ = g.Close()
			if healed, err := os.ReadFile(cfg.SnapshotFile); err != nil || len(healed) < len(good)/2 {
				t.Errorf("%s: the file was not replaced: %q (%v)", name, healed, err)
			}
		}
		// And with nobody there it is no view.
		if err := os.WriteFile(cfg.SnapshotFile, good[:len(good)/2], 0o600); err != nil {
			t.Fatal(err)
		}
		c.Stop()
		ctx, cancel := contextWithTimeout(t, 3*time.Second)
		defer cancel()
		if _, err := laneclient.Dial(ctx, cfg); err == nil {
			t.Error("dial began with half a view")
		}
		// One that cannot be written is said, and no more.
		c.Start()
		cfg.SnapshotFile = filepath.Join(t.TempDir(), "none", "view.json")
		g = dial(t, cfg)
		within(t, time.Second, "status says so", func() bool { return strings.Contains(g.Status().LastError, "write the snapshot") })
	})
}
