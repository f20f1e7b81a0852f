package lanetest_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

func green(t *testing.T, c *lanetest.Control) *laneclient.Lane {
	t.Helper()
	l, err := laneclient.Get[laneclient.Lane](t.Context(), c.API(), "green")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLaneLife takes a lane from its creation to its name's second generation.
func TestLaneLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.NewControl(t)
		const ttl = 100 * time.Hour
		l, err := laneclient.CreateLane(t.Context(), c.API(), &laneclient.Lane{Meta: laneclient.Meta{Name: "green"}, TTL: laneclient.Duration(ttl)})
		if err != nil {
			t.Fatal(err)
		}
		pass(ttl * 9 / 10)
		synctest.Wait()
		if w := green(t, c).WarnedAt; w.IsZero() {
			t.Error("nobody was warned when 10 % was left")
		}
		c.AddInstance("order", "o1", "green", "127.0.0.1:1")
		pass(ttl / 10)
		synctest.Wait()
		if s := green(t, c).State; s != "draining" {
			t.Errorf("after its TTL it is %s", s)
		}
		pass(30 * time.Second)
		synctest.Wait()
		if s := green(t, c).State; s != "ended" {
			t.Errorf("after the drain it is %s", s)
		}
		c.AddLane("green")
		if g := green(t, c).Generation; g != l.Generation+1 {
			t.Errorf("again, it is of generation %d", g)
		}
		e, err := laneclient.ExplainCall(t.Context(), c.API(), "order", "green", lane.HTTP)
		if err != nil || e.Reason != "none" {
			t.Errorf("%+v (%v): the instance of the old generation counts", e, err)
		}
		if err := laneclient.Delete[laneclient.Lane](t.Context(), c.API(), "green"); err != nil {
			t.Fatal(err)
		}
		pass(8 * 24 * time.Hour)
		synctest.Wait()
		if _, err := laneclient.Get[laneclient.Lane](t.Context(), c.API(), "green"); !laneclient.IsNotFound(err) {
			t.Errorf("after a week it is still there (%v)", err)
		}
		c.AddLane("green")
		if g := green(t, c).Generation; g != l.Generation+2 {
			t.Errorf("after it was forgotten, it is of generation %d", g)
		}
	})
}

// TestChildKeepsItsParent: a lane whose time is up drains once no living lane falls back to it.
func TestChildKeepsItsParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.NewControl(t)
		for _, l := range []*laneclient.Lane{
			{Meta: laneclient.Meta{Name: "green"}, TTL: laneclient.Duration(time.Hour)},
			{Meta: laneclient.Meta{Name: "mint"}, Parent: "green", TTL: laneclient.Duration(3 * time.Hour)},
		} {
			if _, err := laneclient.CreateLane(t.Context(), c.API(), l); err != nil {
				t.Fatal(err)
			}
		}
		pass(2 * time.Hour)
		if s := green(t, c).State; s != "creating" {
			t.Errorf("with a child it is %s", s)
		}
		pass(time.Hour + time.Second)
		if s := green(t, c).State; s != "draining" {
			t.Errorf("when its child drains it is %s", s)
		}
	})
}

func TestLeaseRunsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.NewControl(t)
		s, err := laneclient.OpenSession(t.Context(), c.API(), &laneclient.Session{})
		if err != nil {
			t.Fatal(err)
		}
		pass(laneclient.DefaultTTL - time.Millisecond)
		if _, err := laneclient.RenewSession(t.Context(), c.API(), s.Name, &laneclient.Renewal{}); err != nil {
			t.Fatal(err)
		}
		pass(laneclient.DefaultTTL + time.Millisecond)
		if _, err := laneclient.RenewSession(t.Context(), c.API(), s.Name, &laneclient.Renewal{}); !laneclient.IsNotFound(err) {
			t.Errorf("got %v, want that the session is gone", err)
		}
	})
}

func TestStopCutsWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := lanetest.NewControl(t)
		w, err := c.API().Watch(t.Context(), 0, []string{"lanes"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(); err != nil {
			t.Fatal(err)
		}
		c.Stop()
		if e, err := w.Next(); err == nil {
			t.Errorf("got %+v from a control plane that has stopped", e)
		}
		var silent *laneclient.UnreachableError
		if err := c.API().Do(t.Context(), http.MethodGet, "/v1/lanes", nil, nil); !errors.As(err, &silent) {
			t.Errorf("got %v, want that nobody answers", err)
		}
	})
}

func TestDirectory(t *testing.T) {
	var d lanetest.Directory
	if d.Snapshot() == nil || d.Process() != lane.Baseline {
		t.Error("the zero value is not ready to use")
	}
	calls := 0
	cancel := d.Subscribe(func() { calls++ })
	d.Set([]lane.Lane{{Name: "green"}}, &lane.Instance{Service: "order", Name: "o1", Lane: "green", Endpoints: []lane.Endpoint{{Protocol: lane.HTTP}}})
	if r := lane.Pick(d.Snapshot(), "order", "green", lane.HTTP).Reason; r != lane.ReasonLane || calls != 1 || d.Snapshot().Revision() != 1 {
		t.Errorf("reason %s after %d calls at revision %d", r, calls, d.Snapshot().Revision())
	}
	d.Add(&lane.Instance{Service: "pay", Name: "p1", Endpoints: []lane.Endpoint{{Protocol: lane.HTTP}}})
	d.Remove("order", "o1")
	if calls != 3 || d.Snapshot().HasService("order") || !d.Snapshot().HasService("pay") {
		t.Errorf("%d calls, services %v", calls, d.Snapshot().Services())
	}
	cancel()
	d.Set(nil)
	if calls != 3 || d.Subscribers() != 0 {
		t.Error("called after cancel")
	}
	d.SetProcess("green")
	d.Used("green")
	d.Used("NOT A LANE")
	if d.Process() != "green" || d.Uses("green") != 1 || d.Uses("NOT A LANE") != 0 {
		t.Error("process or uses are wrong")
	}
	boom := errors.New("boom")
	d.SetNeedError(boom)
	if err := d.Need(t.Context(), "x"); !errors.Is(err, boom) || d.Needed("x") != 1 {
		t.Errorf("need: %v", err)
	}
}

func TestService(t *testing.T) {
	s := lanetest.NewService(t, "order", "o1", "green")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/pay", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	lane.Inject(req.Header, "blue")
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	r := lanetest.ReadReport(t, resp)
	if r.Service != "order" || r.Instance != "o1" || r.Lane != "green" || r.Color != "blue" || r.Path != "/pay" || r.Body != "hello" || r.Method != http.MethodPost {
		t.Errorf("report is %+v", r)
	}
	if i := s.Routing(); i.Endpoints[0].Address != s.Address() || i.Lane != "green" {
		t.Errorf("routing is %+v", i)
	}
}

// recorder is a test that only notes that it failed.
type recorder struct {
	testing.TB
	failed  bool
	cleanup []func()
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Cleanup(f func())      { r.cleanup = append(r.cleanup, f) }

func TestCheckLeaks(t *testing.T) {
	for _, leaks := range []bool{true, false} {
		r := &recorder{}
		lanetest.CheckLeaks(r)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); <-ctx.Done() }()
		if !leaks {
			cancel()
		}
		for _, f := range r.cleanup {
			f()
		}
		cancel()
		<-done
		if r.failed != leaks {
			t.Errorf("leak %v, reported %v", leaks, r.failed)
		}
	}
}

// pass lets the time of a bubble pass: leases run out in it, lanes end, and what must not happen
// has had the time to.
func pass(d time.Duration) { time.Sleep(d) }
