package laneclient_test

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// never notes views in which something does not hold.
func never(t *testing.T, lc *laneclient.Client, what string, bad func(v *laneclient.View) bool) (enough func()) {
	t.Helper()
	cancel := lc.Subscribe(func() {
		if v := lc.View(); bad(v) {
			t.Errorf("at revision %d, stale %v: %s", v.Revision, v.Stale, what)
		}
	})
	t.Cleanup(cancel)
	return cancel
}

func withoutOrder(v *laneclient.View) bool { return v.Instances.Get("order/o1") == nil }

// TestOutage: a control plane that comes back as it was, since its leases did not run
// out meanwhile.
func TestOutage(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		g, lc := dial(t, gateway(c)), dial(t, order(c, ""))
		synctest.Wait()
		never(t, g, "the instance is gone", withoutOrder)
		sessions := c.Sessions()
		c.Stop()
		took := within(t, 3*time.Second, "the view is stale", func() bool { return g.View().Stale })
		if took > 1100*time.Millisecond {
			t.Errorf("it took %v to say that the view is stale", took)
		}
		if s := g.Status(); s.Connected || s.StaleSince.IsZero() || s.LastError == "" {
			t.Errorf("status is %+v", s)
		}
		pass(10 * time.Minute)
		if reason(g, "order", "") != lane.ReasonPlain {
			t.Error("the outage has cost an instance")
		}
		c.Start()
		within(t, 6*time.Second, "the views are fresh", func() bool {
			return !g.View().Stale && !lc.View().Stale && g.Status().Connected
		})
		if got := c.Sessions(); !reflect.DeepEqual(got, sessions) {
			t.Errorf("sessions are %v, want those from before, %v", got, sessions)
		}
		c.AddInstance("order", "o2", "", "127.0.0.1:2")
		within(t, 50*time.Millisecond, "a new instance", func() bool { return g.View().Instances.Get("order/o2") != nil })
		if v := g.View(); v.Held > 0 || v.StaleSince != (time.Time{}) {
			t.Errorf("view is %+v", v)
		}
	})
}

// TestOutageWithLostSessions: leases ran out while nobody could renew them. Whoever
// lives registers again, and is never missed; who does not is dropped in the end.
func TestOutageWithLostSessions(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		lc := dial(t, order(c, ""))
		dead := order(c, "")
		dead.Instance = "o2"
		dies := dial(t, dead)
		c.AddInstance("order", "static", "", "127.0.0.1:3")
		g := dial(t, gateway(c))
		enough := never(t, g, "the living instance is gone", withoutOrder)
		first := lc.Status().Session
		c.Stop()
		c.KillSessions()
		_ = dies.Close() // it cannot say so
		pass(time.Minute)
		c.Start()
		within(t, 7*time.Second, "the gateway is back", func() bool { return !g.View().Stale })
		v := g.View()
		if v.Instances.Get("order/o2") == nil || v.Held == 0 {
			t.Errorf("%d instances are held, o2 is %v: nobody can know yet that it is dead", v.Held, v.Instances.Get("order/o2"))
		}
		within(t, 7*time.Second, "o1 registers again", func() bool { return lc.Status().Session != first && lc.Status().Registered })
		within(t, 11*time.Second, "o2 is dropped", func() bool { return g.View().Instances.Get("order/o2") == nil })
		if v := g.View(); v.Held != 0 || v.Instances.Get("order/static") == nil || v.Instances.Len() != 2 {
			t.Errorf("view has %d held of %v", v.Held, v.Instances)
		}
		enough()
	})
}

// TestHeldInstanceIsDeleted: what is held goes at once where the registry says so.
func TestHeldInstanceIsDeleted(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		lc := dial(t, order(c, ""))
		g := dial(t, gateway(c))
		first := lc.Status().Session
		c.Stop()
		c.KillSessions()
		pass(time.Minute)
		c.Start()
		within(t, 15*time.Second, "both are back", func() bool {
			return !g.View().Stale && lc.Status().Session != first && lc.Status().Registered
		})
		if err := lc.Close(); err != nil {
			t.Error(err)
		}
		within(t, 50*time.Millisecond, "it is gone", func() bool { return g.View().Instances.Get("order/o1") == nil })
	})
}

// TestSessionLoss: the control plane is there all the time; sessions end under it.
func TestSessionLoss(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		g, lc := dial(t, gateway(c)), dial(t, order(c, ""))
		synctest.Wait()
		for range 5 {
			before := lc.Status().Session
			c.KillSessions()
			within(t, 700*time.Millisecond, "a new session, and the instance in it", func() bool {
				i := g.View().Instances.Get("order/o1")
				return lc.Status().Session != "" && lc.Status().Session != before && lc.Status().Registered && i != nil && i.Session == lc.Status().Session
			})
			within(t, 3*time.Second, "views in step", func() bool { return lc.Status().Connected && g.Status().Connected })
			if n := c.Replica(0).Watches(); n != 2 {
				t.Errorf("%d watches are open, want one for each client", n)
			}
		}
	})
}

// TestDeletedInstanceComesBack: somebody deletes the instance of a process that
// lives.
func TestDeletedInstanceComesBack(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		lc := dial(t, order(c, ""))
		if err := laneclient.Delete[laneclient.Instance](t.Context(), c.API(), "order/o1"); err != nil {
			t.Fatal(err)
		}
		within(t, time.Second, "it is registered again", func() bool {
			i, err := laneclient.Get[laneclient.Instance](t.Context(), c.API(), "order/o1")
			return err == nil && i.Session == lc.Status().Session
		})
	})
}

// TestLaneEndsUnderAnInstance: it is registered again once the lane is there again.
func TestLaneEndsUnderAnInstance(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.AddLane("green")
		lc := dial(t, order(c, "green"))
		if err := laneclient.Delete[laneclient.Lane](t.Context(), c.API(), "green"); err != nil {
			t.Fatal(err)
		}
		within(t, time.Minute, "the lane has ended", func() bool {
			l, err := laneclient.Get[laneclient.Lane](t.Context(), c.API(), "green")
			return err == nil && l.State == string(lane.Ended)
		})
		c.KillSessions() // so that it has to register anew, and is refused
		within(t, 5*time.Second, "it is refused", func() bool { return strings.Contains(lc.Status().LastError, "green") })
		pass(time.Minute)
		session := lc.Status().Session
		if session == "" || len(c.Sessions()) != 1 {
			t.Error("the session should live without the instance")
		}
		c.AddLane("green")
		within(t, 11*time.Second, "it is registered", func() bool { return lc.Status().Registered })
		if lc.Status().Session != session {
			t.Error("the session was changed for it")
		}
	})
}

// TestRegistryReset: a registry that forgot everything and counts revisions anew.
func TestRegistryReset(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		for n := range 50 {
			c.AddInstance("pay", fmt.Sprintf("p%d", n), "", "127.0.0.1:1")
		}
		g, lc := dial(t, gateway(c)), dial(t, order(c, ""))
		synctest.Wait()
		never(t, g, "the living instance is gone", withoutOrder)
		before := g.View().Revision
		c.Stop()
		c.Reset()
		c.Start()
		within(t, 5*time.Second, "both follow the new registry", func() bool {
			return g.View().Revision < before && !g.View().Stale && lc.Status().Registered && lc.Status().Connected
		})
		if g.View().Instances.Get("pay/p0") != nil {
			t.Error("static instances of the old registry are not held")
		}
		pass(time.Minute)
		if s := g.Status(); !s.Connected || g.View().Revision != c.Revision() {
			t.Errorf("a minute later: %+v, the registry is at %d", s, c.Revision())
		}
	})
}

func TestCompaction(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		c.AddInstance("order", "o2", "", "127.0.0.1:2")
		g := dial(t, gateway(c))
		never(t, g, "the first instance is gone", withoutOrder)
		c.Replica(0).Freeze() // so that the deletion is compacted away unseen
		if err := laneclient.Delete[laneclient.Instance](t.Context(), c.API(), "order/o2"); err != nil {
			t.Fatal(err)
		}
		c.Replica(0).Thaw()
		c.Compact()
		within(t, time.Second, "the deletion is seen", func() bool { return g.View().Instances.Get("order/o2") == nil })
		if g.View().Stale {
			t.Error("the view is stale")
		}
		c.AddInstance("order", "o3", "", "127.0.0.1:3")
		within(t, time.Second, "changes go on", func() bool { return g.View().Instances.Get("order/o3") != nil })
	})
}

func TestSlowControlPlane(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.SetDelay(700 * time.Millisecond)
		g, lc := dial(t, gateway(c)), dial(t, order(c, ""))
		within(t, 5*time.Second, "the instance is seen", func() bool { return g.View().Instances.Get("order/o1") != nil })
		opened := c.Sessions()
		pass(5 * time.Minute)
		if got := c.Sessions(); !reflect.DeepEqual(got, opened) || len(got) != 2 {
			t.Errorf("sessions are %v, want those from the beginning, %v", got, opened)
		}
		if s := lc.Status(); !s.Registered || g.Status().Revision != c.Revision() {
			t.Errorf("status is %+v and %+v, the registry at %d", s, g.Status(), c.Revision())
		}
	})
}

// TestLaggingReplica: a view that does not reach a renewal's revision moves on.
func TestLaggingReplica(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		g := dial(t, gateway(c))
		if c.Replica(0).Watches() != 1 {
			t.Fatal("the watch is not at the first replica")
		}
		never(t, g, "the first instance is gone", withoutOrder)
		c.Replica(0).Freeze()
		c.AddInstance("order", "o2", "", "127.0.0.1:2")
		// A renewal is due within 3.4 s, and the view may take 1 s to reach it.
		took := within(t, 5*time.Second, "the change is seen", func() bool { return g.View().Instances.Get("order/o2") != nil })
		if c.Replica(1).Watches() != 1 || c.Replica(0).Watches() != 0 {
			t.Errorf("after %v, %d and %d watches are open: want the second replica's alone", took, c.Replica(0).Watches(), c.Replica(1).Watches())
		}
		within(t, time.Second, "the view is fresh", func() bool { return !g.View().Stale })
		pass(2 * time.Minute)
		if c.Replica(1).Watches() != 1 || g.View().Stale {
			t.Error("it does not stay with the replica that keeps up")
		}
	})
}

// TestAllReplicasLag: there is nowhere to go; the view says that it is stale, keeps
// what it has, and is not opened again and again.
func TestAllReplicasLag(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		g := dial(t, gateway(c))
		never(t, g, "the first instance is gone", withoutOrder)
		for n := range 2 {
			c.Replica(n).Freeze()
		}
		c.AddInstance("order", "o2", "", "127.0.0.1:2")
		within(t, 5*time.Second, "the view is stale", func() bool { return g.View().Stale })
		pass(time.Minute)
		if n := c.Replica(0).Watches() + c.Replica(1).Watches(); n > 2 {
			t.Errorf("%d watches are open", n)
		}
		for n := range 2 {
			c.Replica(n).Thaw()
		}
		within(t, 10*time.Second, "the change is seen", func() bool { return g.View().Instances.Get("order/o2") != nil && !g.View().Stale })
	})
}

func TestReplicaDies(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *lanetest.Control) {
		c.Replica(0).Stop() // before anything: the next one is asked
		g, lc := dial(t, gateway(c)), dial(t, order(c, ""))
		synctest.Wait()
		sessions := c.Sessions()
		never(t, g, "the view is stale, though replicas are there", func(v *laneclient.View) bool { return v.Stale })
		c.Replica(1).Stop()
		c.AddInstance("pay", "p1", "", "127.0.0.1:1")
		within(t, time.Second, "the change is seen by another", func() bool { return g.View().Instances.Get("pay/p1") != nil })
		c.Replica(0).Start()
		c.Replica(2).Stop()
		c.AddInstance("pay", "p2", "", "127.0.0.1:1")
		within(t, time.Second, "the change is seen by the first", func() bool { return g.View().Instances.Get("pay/p2") != nil })
		within(t, time.Second, "the instance stays", func() bool { return lc.Status().Connected })
		if got := c.Sessions(); !reflect.DeepEqual(got, sessions) {
			t.Errorf("sessions are %v, want those from before, %v", got, sessions)
		}
	})
}

// hanging is a transport to a host that takes everything and says nothing.
type hanging struct {
	http.RoundTripper
	hangs func(*http.Request) bool
}

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.hangs(r) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return h.RoundTripper.RoundTrip(r)
}

// TestReplicaGoesSilent: connections stay open and nothing comes.
func TestReplicaGoesSilent(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		g := dial(t, gateway(c))
		opened := g.Status().Session
		c.Replica(0).SetDelay(24 * time.Hour)
		c.AddInstanceAt(1, "order", "o1", "", "127.0.0.1:1")
		within(t, 15*time.Second, "the other replica is asked", func() bool { return g.View().Instances.Get("order/o1") != nil && !g.View().Stale })
		if g.Status().Session != opened {
			t.Error("it took so long that the session was lost")
		}
	})
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		cfg := gateway(c)
		var hangs atomic.Bool
		cfg.Transport = &hanging{cfg.Transport, func(*http.Request) bool { return hangs.Load() }}
		g := dial(t, cfg)
		hangs.Store(true)
		start := time.Now()
		_ = g.Close()
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("close took %v", took)
		}
	})
}

// garbage answers watches with lines that are none.
type garbage struct {
	http.RoundTripper
	lines atomic.Pointer[func() io.Reader] // nil: what the control plane says
}

func (g *garbage) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.RoundTripper.RoundTrip(r)
	if lines := g.lines.Load(); err == nil && strings.HasPrefix(r.URL.Path, "/v1/watch") && lines != nil {
		_ = resp.Body.Close()
		resp.Body = io.NopCloser((*lines)())
	}
	return resp, err
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for n := range p {
		p[n] = 'x'
	}
	return len(p), nil
}

func TestGarbageFromTheControlPlane(t *testing.T) {
	for name, lines := range map[string]func() io.Reader{
		"endless line": func() io.Reader { return endless{} },
		"no JSON":      func() io.Reader { return strings.NewReader("hello\n") },
		"half a line":  func() io.Reader { return strings.NewReader(`{"type":"put","kind":"lanes"`) },
		"odd objects": func() io.Reader {
			return strings.NewReader(`{"type":"put","kind":"lanes","name":"x","revision":1,"object":[]}` + "\n" +
				`{"type":"put","kind":"ducks","name":"x","revision":1,"object":{}}` + "\n" +
				`{"type":"quack"}` + "\n" + `null` + "\n" + `{"type":"delete","kind":"lanes","name":"none","revision":1}` + "\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
				cfg := gateway(c)
				spoiled := &garbage{RoundTripper: cfg.Transport}
				cfg.Transport = spoiled
				c.AddInstance("order", "o1", "", "127.0.0.1:1")
				g := dial(t, cfg)
				never(t, g, "the instance is gone", withoutOrder)
				spoiled.lines.Store(&lines)
				c.Compact() // makes the client read anew, and get garbage
				pass(30 * time.Second)
				spoiled.lines.Store(nil)
				within(t, 10*time.Second, "it recovers", func() bool { return !g.View().Stale && g.View().Revision == c.Revision() })
			})
		})
	}
}

// TestOddObjectSpoilsNoOther: an object of a form that this version cannot read is
// passed over and reported.
func TestOddObjectSpoilsNoOther(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		cfg := gateway(c)
		spoiled := &garbage{RoundTripper: cfg.Transport}
		cfg.Transport = spoiled
		pr, pw := io.Pipe()
		lines := func() io.Reader { return pr }
		spoiled.lines.Store(&lines)
		go func() {
			_, _ = io.WriteString(pw, `{"type":"put","kind":"lanes","name":"odd","revision":1,"object":{"name":7}}`+"\n"+
				`{"type":"put","kind":"lanes","name":"green","revision":1,"object":{"name":"green","state":"ready","new_field":{}}}`+"\n"+
				`{"type":"synced","revision":1000}`+"\n")
		}()
		g := dial(t, cfg)
		if v := g.View(); v.Lanes.Len() != 1 || v.Lanes.Get("green").State != "ready" {
			t.Errorf("lanes are %+v, want green alone", v.Lanes)
		}
		if s := g.Status(); !strings.Contains(s.LastError, `"odd"`) {
			t.Errorf("status says %q, want that odd cannot be read", s.LastError)
		}
		_ = pw.Close()
	})
}

// TestChaos does random writes under random faults. In the end every view must be
// what the registry is: nothing lost, nothing left over.
func TestChaos(t *testing.T) {
	seed := rand.Uint64()
	for n := range uint64(15) {
		t.Run("", func(t *testing.T) { chaos(t, seed+n) })
	}
}

func chaos(t *testing.T, seed uint64) {
	t.Logf("seed %d", seed)
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		r := rand.New(rand.NewPCG(seed, 1))
		c.AddLane("green")
		g, lc := dial(t, gateway(c)), dial(t, order(c, "green"))
		caller := dial(t, c.Config())
		for _, service := range []string{"s0", "s1"} {
			if err := caller.Need(t.Context(), service); err != nil {
				t.Fatal(err)
			}
		}
		last := uint64(0)
		defer g.Subscribe(func() {
			v := g.View()
			if v.Revision < last {
				t.Errorf("the view went back from revision %d to %d", last, v.Revision)
			}
			last = v.Revision
		})()
		for range 150 {
			stir(t, c, r)
			pass(time.Duration(r.Int64N(int64(800 * time.Millisecond))))
		}
		c.Start()
		for n := range 2 {
			c.Replica(n).Thaw()
		}
		c.SetDelay(0)
		within(t, 2*time.Minute, "everybody is in step", func() bool {
			return lc.Status().Registered && g.View().Held == 0 && caller.View().Held == 0 &&
				g.View().Revision == c.Revision() && caller.View().Revision == c.Revision() && !g.View().Stale && !caller.View().Stale
		})
		compareWithRegistry(t, c, g.View(), caller.View())
	})
}

// stir does one random thing.
func stir(t *testing.T, c *lanetest.Control, r *rand.Rand) {
	replica := c.Replica(r.IntN(2))
	service, name := fmt.Sprintf("s%d", r.IntN(4)), fmt.Sprintf("i%d", r.IntN(6))
	switch r.IntN(14) {
	case 0:
		replica.Stop()
	case 1, 2:
		replica.Start()
	case 3:
		c.Compact()
	case 4:
		replica.Freeze()
	case 5, 6:
		replica.Thaw()
	case 7:
		c.KillSessions()
	case 8:
		replica.SetDelay(time.Duration(r.IntN(300)) * time.Millisecond)
	case 9, 10:
		_ = laneclient.Delete[laneclient.Instance](t.Context(), c.API(), service+"/"+name) // may not be there, or the control plane not
	default:
		_, _ = laneclient.Put(t.Context(), c.API(), &laneclient.Instance{ // the control plane may not be there
			Meta: meta(name), Service: service, Lane: []string{"", "green"}[r.IntN(2)],
			Endpoints: []laneclient.Endpoint{{Protocol: lane.HTTP, Address: fmt.Sprintf("127.0.0.1:%d", 1+r.IntN(1000))}},
		})
	}
}

func compareWithRegistry(t *testing.T, c *lanetest.Control, all, some *laneclient.View) {
	t.Helper()
	list, _, err := laneclient.ListAll[laneclient.Instance](t.Context(), c.API(), laneclient.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]*laneclient.Instance{}
	needed := map[string]*laneclient.Instance{}
	for _, i := range list {
		want[laneclient.FullName(&i)] = &i
		if i.Service == "s0" || i.Service == "s1" {
			needed[laneclient.FullName(&i)] = &i
		}
	}
	if !reflect.DeepEqual(maps.Collect(all.Instances.All()), want) {
		t.Errorf("the gateway's view has %v, the registry %v", all.Instances, want)
	}
	if !reflect.DeepEqual(maps.Collect(some.Instances.All()), needed) {
		t.Errorf("the caller's view has %v, the registry %v", some.Instances, needed)
	}
}
