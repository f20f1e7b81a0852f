package laneclient_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }

// bubble runs a test in which waiting takes no time, over a control plane of n
// replicas.
func bubble(t *testing.T, n int, f func(t *testing.T, c *lanetest.Control)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, lanetest.NewReplicas(t, n)) })
}

// dial opens a client that is closed with the test.
func dial(t *testing.T, cfg laneclient.Config) *laneclient.Client {
	t.Helper()
	c, err := laneclient.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func gateway(c *lanetest.Control) laneclient.Config {
	cfg := c.Config()
	cfg.All = true
	return cfg
}

func order(c *lanetest.Control, in string) laneclient.Config {
	cfg := c.Config()
	cfg.Service, cfg.Instance, cfg.Lane = "order", "o1", in
	cfg.Endpoints = []laneclient.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}}
	return cfg
}

// within fails the test unless cond holds within d of the bubble's time, and returns
// how long it took.
func within(t *testing.T, d time.Duration, what string, cond func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		synctest.Wait()
		if cond() {
			return time.Since(start)
		}
		if time.Since(start) >= d {
			t.Fatalf("not within %v: %s", d, what)
		}
		time.Sleep(time.Millisecond)
	}
}

// pass lets the bubble's time pass, where that is what happens to the code under test.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func reason(d lane.Directory, service, color string) lane.Reason {
	return lane.Pick(d.Snapshot(), service, lane.Name(color), lane.HTTP).Reason
}

func write[T laneclient.Object](t *testing.T, c *lanetest.Control, obj *T) {
	t.Helper()
	if _, err := laneclient.Put(t.Context(), c.API(), obj); err != nil {
		t.Fatal(err)
	}
}

func meta(name string) laneclient.Meta { return laneclient.Meta{Name: name} }

func TestRegistersAndLeaves(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.AddLane("green")
		cfg := order(c, "green")
		cfg.Labels, cfg.Weight, cfg.Room = map[string]string{"version": "7"}, 3, "r1"
		lc := dial(t, cfg)
		i, err := laneclient.Get[laneclient.Instance](t.Context(), c.API(), "order/o1")
		if err != nil {
			t.Fatal(err)
		}
		if i.Session != lc.Status().Session || i.Lane != "green" || i.Generation != 1 || i.Weight != 3 || i.Room != "r1" || i.Labels["version"] != "7" || i.State != "ready" {
			t.Errorf("instance is %+v", i)
		}
		s := lc.Status()
		if !s.Connected || !s.Registered || s.Session == "" || s.LastError != "" || s.Control != c.URLs()[0] {
			t.Errorf("status is %+v", s)
		}
		if lc.Process() != "green" {
			t.Errorf("process is of lane %q", lc.Process())
		}
		pass(time.Minute) // it is renewed
		if got := c.Sessions(); !slices.Equal(got, []string{s.Session}) {
			t.Errorf("sessions are %v, want the first one alone, %s", got, s.Session)
		}
		if err := lc.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if _, err := laneclient.Get[laneclient.Instance](t.Context(), c.API(), "order/o1"); !laneclient.IsNotFound(err) {
			t.Errorf("the instance is still there: %v", err)
		}
		if got := c.Sessions(); len(got) > 0 {
			t.Errorf("sessions %v are still there", got)
		}
		if err := lc.Close(); err != nil {
			t.Errorf("close again: %v", err)
		}
	})
}

func TestCloseLeavesASuccessorAlone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		first := dial(t, order(c, ""))
		second := dial(t, order(c, ""))
		if err := first.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		i, err := laneclient.Get[laneclient.Instance](t.Context(), c.API(), "order/o1")
		if err != nil || i.Session != second.Status().Session {
			t.Errorf("the successor's instance is %+v (%v)", i, err)
		}
	})
}

func TestOwnedRegistersNothing(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		cfg := order(c, "")
		cfg.Owned = true
		lc := dial(t, cfg)
		if all, _, err := laneclient.ListAll[laneclient.Instance](t.Context(), c.API(), laneclient.ListOptions{}); err != nil || len(all) > 0 {
			t.Errorf("instances are %v (%v), want none", all, err)
		}
		s, err := laneclient.Get[laneclient.Session](t.Context(), c.API(), lc.Status().Session)
		if err != nil || s.Instance != "order/o1" || s.Role != "instance" {
			t.Errorf("session is %+v (%v), want one of order/o1", s, err)
		}
	})
}

func TestFromEnv(t *testing.T) {
	for _, key := range []string{laneclient.EnvControl, laneclient.EnvService, laneclient.EnvLane, laneclient.EnvRoom, laneclient.EnvInstance, laneclient.EnvTokenFile} {
		t.Setenv(key, "")
	}
	if cfg := laneclient.FromEnv(); cfg.Owned || len(cfg.Control) > 0 || cfg.Validate() != nil {
		t.Errorf("from nothing: %+v", cfg)
	}
	t.Setenv(laneclient.EnvControl, "http://a:1, https://b ,")
	t.Setenv(laneclient.EnvService, "order")
	t.Setenv(laneclient.EnvLane, "green")
	t.Setenv(laneclient.EnvInstance, "o1")
	cfg := laneclient.FromEnv()
	if !cfg.Owned || !slices.Equal(cfg.Control, []string{"http://a:1", "https://b"}) || cfg.Service != "order" || cfg.Lane != "green" {
		t.Errorf("got %+v", cfg)
	}
}

func TestValidateSaysAll(t *testing.T) {
	cfg := laneclient.Config{Control: []string{"nowhere", "ftp://x"}, Service: "NO", Instance: "a b", Lane: "ab", TTL: time.Second, SnapshotFile: "f"}
	err := cfg.Validate()
	for _, field := range []string{"Control[0]", "Control[1]", "Service", "Instance", "Lane", "TTL", "SnapshotFile"} {
		if err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s is not among the mistakes: %v", field, err)
		}
	}
	if _, dialErr := laneclient.Dial(t.Context(), cfg); dialErr == nil || dialErr.Error() != err.Error() {
		t.Errorf("dial says %v, want %v", dialErr, err)
	}
}

func TestDialWithoutControlPlane(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		c.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		start := time.Now()
		_, err := laneclient.Dial(ctx, order(c, ""))
		var silent *laneclient.UnreachableError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &silent) || len(silent.Control) != 2 {
			t.Errorf("got %v: want that ctx ended, and that the control plane does not answer", err)
		}
		if took := time.Since(start); took != 7*time.Second {
			t.Errorf("it took %v, want what ctx gives", took)
		}
		c.Start()
		if got := c.Sessions(); len(got) > 0 {
			t.Errorf("sessions %v are left", got)
		}
	})
}

func TestDialRefused(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		_, err := laneclient.Dial(t.Context(), order(c, "nobody"))
		var p *laneclient.Problem
		if !errors.As(err, &p) || p.Type != laneclient.ProblemLane {
			t.Errorf("got %v: want the problem that the lane does not exist", err)
		}
		if got := c.Sessions(); len(got) > 0 {
			t.Errorf("sessions %v are left", got)
		}
		cfg := c.Config()
		cfg.TokenFile = filepath.Join(t.TempDir(), "none")
		if _, err := laneclient.Dial(t.Context(), cfg); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v: want that the token file is not there", err)
		}
	})
}

// tokens notes what is sent as authorization.
type tokens struct {
	http.RoundTripper
	seen chan string
}

func (t *tokens) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case t.seen <- r.Header.Get("Authorization"):
	default:
	}
	return t.RoundTripper.RoundTrip(r)
}

func TestTokenIsReadAnew(t *testing.T) {
	c := lanetest.NewControl(t)
	cfg := c.Config()
	spy := &tokens{cfg.Transport, make(chan string, 1)}
	cfg.Transport, cfg.TokenFile = spy, filepath.Join(t.TempDir(), "token")
	api := laneclient.NewAPI(cfg)
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(cfg.TokenFile, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := api.Do(t.Context(), http.MethodGet, "/v1/lanes", nil, nil); err != nil {
			t.Fatal(err)
		}
		if got := <-spy.seen; got != "Bearer "+token {
			t.Errorf("authorization is %q", got)
		}
	}
	for _, bad := range []string{"", "two words", "\x00"} {
		if err := os.WriteFile(cfg.TokenFile, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := api.Do(t.Context(), http.MethodGet, "/v1/lanes", nil, nil); err == nil {
			t.Errorf("token %q was sent", bad)
		}
	}
}

func TestNeed(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		c.AddInstance("pay", "p1", "", "127.0.0.1:2")
		c.AddInstance("stock", "s1", "", "127.0.0.1:3")
		consumes := c.Config()
		consumes.Service, consumes.NoListen = "order", true
		dial(t, consumes)
		lc := dial(t, c.Config())
		if r := reason(lc, "order", ""); r != lane.ReasonNone {
			t.Errorf("order is routed by %s before it is needed", r)
		}
		if !lc.Snapshot().HasService("order") {
			t.Error("the service's name is not known")
		}
		for _, service := range []string{"order", "pay", "order"} {
			if err := lc.Need(t.Context(), service); err != nil {
				t.Fatal(err)
			}
			if r := reason(lc, service, ""); r != lane.ReasonPlain {
				t.Errorf("%s is routed by %s as soon as Need returns", service, r)
			}
		}
		if n := lc.View().Instances.Len(); n != 2 {
			t.Errorf("%d instances are in the view, want those of the two needed services that can be called", n)
		}
		if err := lc.Need(t.Context(), "nobody"); err != nil {
			t.Errorf("a service that does not exist is known as such: %v", err)
		}
		if err := lc.Need(t.Context(), "NO"); err == nil {
			t.Error("a name that is none is accepted")
		}
		synctest.Wait()
		if n := c.Replica(0).Watches(); n != 2 {
			t.Errorf("%d watches are open, want one of each client", n)
		}
	})
}

// TestNeedLeavesNoGap grows the needs while the registry changes: what is known stays
// known, and no change is missed.
func TestNeedLeavesNoGap(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		c.SetDelay(30 * time.Millisecond)
		lc := dial(t, c.Config())
		if err := lc.Need(t.Context(), "order"); err != nil {
			t.Fatal(err)
		}
		gaps := 0
		last := uint64(0)
		defer lc.Subscribe(func() {
			v := lc.View()
			if v.Revision < last || reason(lc, "order", "") != lane.ReasonPlain {
				gaps++
			}
			last = v.Revision
		})()
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for range 20 {
				c.AddInstance("order", "o2", "", "127.0.0.1:2")
				time.Sleep(7 * time.Millisecond)
				_ = laneclient.Delete[laneclient.Instance](t.Context(), c.API(), "order/o2")
			}
		}()
		for n := range 200 { // past what is watched service by service
			if err := lc.Need(t.Context(), "s"+strings.Repeat("x", n%30)+string(rune('a'+n%26))+string(rune('a'+n/26))); err != nil {
				t.Fatal(err)
			}
		}
		<-stop
		c.AddInstance("order", "o3", "", "127.0.0.1:3")
		within(t, 200*time.Millisecond, "the last change", func() bool { return lc.View().Instances.Get("order/o3") != nil })
		if gaps > 0 {
			t.Errorf("%d views had lost what was known", gaps)
		}
		if lc.View().Instances.Get("order/o2") != nil {
			t.Error("a deletion was missed")
		}
	})
}

func TestNeedDuringOutage(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		c.AddInstance("order", "o1", "", "127.0.0.1:1")
		lc := dial(t, c.Config())
		if err := lc.Need(t.Context(), "order"); err != nil {
			t.Fatal(err)
		}
		c.Stop()
		pass(time.Minute)
		if err := lc.Need(t.Context(), "order"); err != nil {
			t.Errorf("an older picture is at hand: %v", err)
		}
		start := time.Now()
		if err := lc.Need(t.Context(), "pay"); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("got %v after %v: want that it waits for 5 s", err, time.Since(start))
		}
		c.Start()
		c.AddInstance("pay", "p1", "", "127.0.0.1:1")
		within(t, 10*time.Second, "pay is known, since it was asked for", func() bool { return reason(lc, "pay", "") == lane.ReasonPlain })
	})
}

func TestViewHoldsAll(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		g := dial(t, gateway(c))
		c.AddLane("green")
		c.AddInstance("order", "o1", "green", "127.0.0.1:1")
		for _, name := range []string{"b", "a"} {
			write(t, c, &laneclient.Route{Meta: meta(name), Host: name + ".example.com", Service: "order"})
		}
		for name, priority := range map[string]int{"a": 2, "b": 1, "c": 1} {
			write(t, c, &laneclient.Rule{Meta: meta(name), Priority: priority, Lanes: []laneclient.LaneShare{{Lane: "green"}}})
		}
		synctest.Wait()
		v := g.View()
		if v.Revision != c.Revision() || v.Snapshot.Revision() != v.Revision || v.Stale || v.Lanes.Get("green").State != "ready" ||
			v.Instances.Get("order/o1") == nil || v.Services.Get("order").Name != "order" {
			t.Errorf("view is %+v at revision %d, the registry at %d", v, v.Revision, c.Revision())
		}
		if len(v.Routes) != 2 || v.Routes[0].Name != "a" || len(v.Rules) != 3 || v.Rules[0].Name != "b" || v.Rules[1].Name != "c" || v.Rules[2].Name != "a" {
			t.Errorf("routes are %+v, rules %+v: want them sorted", v.Routes, v.Rules)
		}
		if err := g.Need(t.Context(), "anything"); err != nil {
			t.Errorf("need: %v", err)
		}
	})
}

func TestUsedKeepsALane(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		for _, name := range []string{"green", "blue"} {
			write(t, c, &laneclient.Lane{Meta: meta(name), TTL: laneclient.Duration(time.Minute)})
		}
		lc := dial(t, c.Config())
		for range 120 {
			lc.Used("green")
			lc.Used("nobody")
			lc.Used("")
			lc.Used("NOT A LANE")
			pass(time.Second)
		}
		if s := lc.View().Lanes.Get("green").State; s != "ready" {
			t.Errorf("lane green is %s: it is in use", s)
		}
		if s := lc.View().Lanes.Get("blue").State; s != "ended" {
			t.Errorf("lane blue is %s: nobody uses it", s)
		}
	})
}

func TestUsedDoesNotAllocate(t *testing.T) {
	c := lanetest.NewControl(t)
	c.AddLane("green")
	lc := dial(t, c.Config())
	lc.Used("green")
	if n := testing.AllocsPerRun(1000, func() { lc.Used("green"); lc.Used("nobody") }); n > 0 {
		t.Errorf("%v allocations for a use", n)
	}
}

func TestSetState(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		g, lc := dial(t, gateway(c)), dial(t, order(c, ""))
		synctest.Wait()
		if reason(g, "order", "") != lane.ReasonPlain {
			t.Fatal("the instance is not seen")
		}
		lc.Drain()
		synctest.Wait()
		if r := reason(g, "order", ""); r != lane.ReasonNone {
			t.Errorf("a draining instance is routed to by %s", r)
		}
		if err := lc.SetState(t.Context(), lane.Ready); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if r := reason(g, "order", ""); r != lane.ReasonPlain {
			t.Errorf("a ready instance is routed to by %s", r)
		}
		if err := lc.SetState(t.Context(), lane.Ended); err == nil {
			t.Error("an instance cannot end")
		}
		if err := g.SetState(t.Context(), lane.Ready); err == nil {
			t.Error("a gateway has no instance")
		}
		// What is wanted is kept over the loss of the session.
		lc.Drain()
		c.KillSessions()
		within(t, time.Second, "it is registered again", func() bool { return len(c.Sessions()) == 2 && lc.Status().Registered })
		synctest.Wait()
		if i := g.View().Instances.Get("order/o1"); i == nil || i.State != "draining" {
			t.Errorf("instance is %+v, want it draining still", i)
		}
		// With the control plane away, Drain gives up in time.
		c.Stop()
		start := time.Now()
		lc.Drain()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("drain took %v", took)
		}
	})
}

func TestSubscribe(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		lc := dial(t, gateway(c))
		synctest.Wait()
		calls := 0
		cancel := lc.Subscribe(func() { calls++ })
		c.AddLane("green")
		synctest.Wait()
		if calls != 1 {
			t.Errorf("%d calls for one change", calls)
		}
		pass(10 * time.Second) // revisions are reported; nothing changes
		if calls != 1 {
			t.Errorf("%d calls, though nothing has changed", calls)
		}
		cancel()
		cancel()
		c.AddLane("blue")
		synctest.Wait()
		if calls != 1 {
			t.Error("called after cancel")
		}
		// cancel waits for a call that is under way.
		entered, leave := make(chan struct{}), make(chan struct{})
		done := false
		cancel = lc.Subscribe(func() { close(entered); <-leave; done = true })
		c.AddLane("pink")
		<-entered
		time.AfterFunc(time.Second, func() { close(leave) })
		cancel()
		if !done {
			t.Error("cancel returned while a call was under way")
		}
	})
}

func TestAdminHandler(t *testing.T) {
	c := lanetest.NewControl(t)
	c.AddLane("green")
	c.AddInstance("order", "o1", "green", "127.0.0.1:1")
	lc := dial(t, c.Config())
	server := lanetest.NewHandler(t, lc.AdminHandler())
	api := laneclient.NewAPI(laneclient.Config{Control: []string{server}})
	defer api.Close()
	e, err := laneclient.ExplainCall(t.Context(), api, "order", "green", "")
	if err != nil {
		t.Fatal(err)
	}
	if e.Reason != "lane-instance" || e.Lane != "green" || len(e.Instances) != 1 || e.Revision != lc.View().Revision || e.Node == "" || e.Protocol != "http" {
		t.Errorf("explanation is %+v", e)
	}
	var p *laneclient.Problem
	for _, q := range [][2]string{{"NO", ""}, {"order", "Bad Color"}} {
		if _, err := laneclient.ExplainCall(t.Context(), api, q[0], q[1], ""); !errors.As(err, &p) || p.Status != http.StatusUnprocessableEntity {
			t.Errorf("%v: got %v, want a problem", q, err)
		}
	}
	if e, err := laneclient.ExplainCall(t.Context(), api, "order", laneclient.BaselineWord, ""); err != nil || e.Color != "" {
		t.Errorf("plain: %+v, %v", e, err)
	}
	var h laneclient.Health
	if err := api.Do(t.Context(), http.MethodGet, "/healthz", nil, &h); err != nil || !h.OK || h.Roles[0].Reason != "" {
		t.Errorf("health is %+v (%v)", h, err)
	}
	c.Stop()
	deadline := time.Now().Add(10 * time.Second)
	for h.Roles[0].Reason == "" && time.Now().Before(deadline) {
		if err := api.Do(t.Context(), http.MethodGet, "/healthz", nil, &h); err != nil || !h.OK {
			t.Fatalf("health is %+v (%v)", h, err)
		}
	}
	if h.Roles[0].Reason == "" {
		t.Error("health does not say that the view is stale")
	}
}

func contextWithTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), d)
}
