package control_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// timed is a replica in a bubble of fake time, whose wall clock can be set ahead so
// that a week costs no ticks.
type timed struct {
	*replica

	ahead atomic.Int64
}

func (c *timed) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// pass sets the clock ahead and lets the leader notice.
func (c *timed) pass(d time.Duration) {
	c.ahead.Add(int64(d))
	pass(6 * time.Second)
}

// pass lets the time of a bubble pass where that stands for no event: what must not happen has
// the time to, or leases run out.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func inBubble(t *testing.T, f func(r *timed)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := mem.New()
		r := &timed{}
		r.replica = startOver(t, s, control.Config{Now: r.now})
		f(r)
		r.stop()
		_ = s.Close()
	})
}

func TestLaneLife(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		var l laneclient.Lane
		r.must(http.StatusCreated, &l, "POST", "/v1/lanes", `{"name":"green","owner":"ann"}`)
		if l.State != "creating" || time.Duration(l.TTL) != 72*time.Hour || l.Expires.Sub(l.Created) != 72*time.Hour {
			t.Errorf("created: %+v", l)
		}
		if p := r.refuse(http.StatusConflict, "POST", "/v1/lanes", `{"name":"green"}`); p.Type != laneclient.ProblemExists || p.Current == nil {
			t.Errorf("created twice: %+v", p)
		}
		r.pass(65*time.Hour + 50*time.Minute) // 9 % left
		if l = r.lane("green"); l.WarnedAt.IsZero() || l.State != "creating" {
			t.Errorf("nearly expired: %+v", l)
		}
		r.must(http.StatusOK, &l, "POST", "/v1/lanes/green/extend", `{}`)
		if !l.WarnedAt.IsZero() || l.Expires.Sub(r.now()) < 71*time.Hour {
			t.Errorf("extended: %+v", l)
		}
		r.pass(73 * time.Hour)
		if l = r.lane("green"); l.State != "draining" || l.DrainingAt.IsZero() {
			t.Errorf("expired: %+v", l)
		}
		for _, c := range [][2]string{{"/v1/lanes/green/extend", `{}`}, {"/v1/lanes/green/hold", `{"held":true}`}, {"/v1/lanes", `{"name":"green"}`}} {
			if p := r.refuse(http.StatusConflict, "POST", c[0], c[1]); p.Type != laneclient.ProblemLane {
				t.Errorf("%s while draining: %+v", c[0], p)
			}
		}
		r.refuse(http.StatusConflict, "PUT", "/v1/instances/order/a", instanceBody("green", "127.0.0.1:1"))
		pass(30 * time.Second)
		if l = r.lane("green"); l.State != "ended" || l.EndedAt.Sub(l.DrainingAt) < 30*time.Second {
			t.Errorf("drained: %+v", l)
		}
		r.must(http.StatusOK, &l, "DELETE", "/v1/lanes/green", nil) // is over: stays as it is
		if l.State != "ended" {
			t.Errorf("deleted again: %+v", l)
		}
		r.pass(6 * 24 * time.Hour)
		r.must(http.StatusOK, nil, "GET", "/v1/lanes/green", nil)
		r.pass(25 * time.Hour)
		r.refuse(http.StatusNotFound, "GET", "/v1/lanes/green", nil)
		// Its generation is not forgotten.
		r.must(http.StatusCreated, &l, "PUT", "/v1/lanes/green", `{}`)
		if l.Generation != 2 || l.Owner != "" || !l.DrainingAt.IsZero() || !l.LastUse.IsZero() {
			t.Errorf("created again: %+v", l)
		}
	})
}

func TestLaneIsCreatedAgainAsNextGeneration(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
		r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/old", instanceBody("green", "127.0.0.1:1"))
		var l laneclient.Lane
		r.must(http.StatusOK, &l, "DELETE", "/v1/lanes/green", nil)
		if l.State != "draining" {
			t.Errorf("deleted: %+v", l)
		}
		pass(40 * time.Second)
		r.must(http.StatusCreated, &l, "POST", "/v1/lanes", `{"name":"green"}`)
		if l.Generation != 2 {
			t.Errorf("generation %d", l.Generation)
		}
		var e laneclient.Explanation
		r.must(http.StatusOK, &e, "GET", "/v1/explain?service=order&color=green", nil)
		if e.Reason != "none" {
			t.Errorf("an instance of the old generation counts: %+v", e)
		}
		var i laneclient.Instance
		r.must(http.StatusOK, &i, "PUT", "/v1/instances/order/old", instanceBody("green", "127.0.0.1:1"))
		if i.Generation != 2 {
			t.Errorf("registered again: %+v", i)
		}
	})
}

func TestLaneUse(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green","ttl":"100h"}`)
		s := r.session(`{"ttl":"5m"}`)
		spec := r.lane("green").Revision
		use := func() {
			t.Helper()
			r.must(http.StatusOK, nil, "POST", "/v1/sessions/"+s.Name+"/renew", `{"reached":0,"lanes":["green","nobody","NOT A LANE"]}`)
			synctest.Wait()
		}
		use()
		r.until("the leader makes it ready, which changes the object once", func() bool { return r.lane("green").State == "ready" })
		first := r.lane("green")
		if first.LastUse.IsZero() || first.State != "ready" || first.Revision == spec {
			t.Errorf("used: %+v", first)
		}
		pass(time.Minute)
		use()
		if l := r.lane("green"); l.LastUse != first.LastUse {
			t.Error("a use within 1 % of the TTL was written")
		}
		r.pass(time.Hour)
		use()
		l := r.lane("green")
		if l.LastUse.Sub(first.LastUse) < time.Hour || l.Revision != first.Revision || l.Expires.Sub(l.LastUse) != 100*time.Hour {
			t.Errorf("used an hour later: %+v", l)
		}
		// It lives as long as it is used, and is no longer warned once it is.
		r.pass(95 * time.Hour)
		if l = r.lane("green"); l.WarnedAt.IsZero() {
			t.Errorf("not warned: %+v", l)
		}
		use()
		if l = r.lane("green"); !l.WarnedAt.IsZero() || l.State != "ready" {
			t.Errorf("used after the warning: %+v", l)
		}
		r.pass(91 * time.Hour)
		if l = r.lane("green"); l.WarnedAt.IsZero() || l.State != "ready" {
			t.Errorf("not warned again: %+v", l)
		}
		r.pass(10 * time.Hour)
		if l = r.lane("green"); l.State != "draining" {
			t.Errorf("not expired: %+v", l)
		}
	})
}

func TestHeldLaneStays(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green","ttl":"1h"}`)
		var l laneclient.Lane
		r.must(http.StatusOK, &l, "POST", "/v1/lanes/green/hold", `{"held":true}`)
		if !l.Held || !l.Expires.IsZero() {
			t.Errorf("held: %+v", l)
		}
		r.pass(100 * time.Hour)
		if l = r.lane("green"); l.State != "creating" {
			t.Errorf("a held lane is %s", l.State)
		}
		r.must(http.StatusOK, &l, "POST", "/v1/lanes/green/hold", `{"held":false}`)
		if left := l.Expires.Sub(r.now()); left < 59*time.Minute {
			t.Errorf("let go, it has %s left", left)
		}
		r.pass(time.Hour)
		if l = r.lane("green"); l.State != "draining" {
			t.Errorf("let go, it is %s", l.State)
		}
	})
}

func TestParentOutlivesChildren(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"base","ttl":"1h"}`)
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"top","parent":"base","ttl":"3h"}`)
		if p := r.refuse(http.StatusConflict, "DELETE", "/v1/lanes/base", nil); !strings.Contains(p.Detail, "top") {
			t.Errorf("detail %q", p.Detail)
		}
		r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/lanes/top", `{"parent":""}`)
		r.pass(2 * time.Hour)
		if l := r.lane("base"); l.State != "creating" {
			t.Errorf("the parent of a living lane is %s", l.State)
		}
		r.pass(time.Hour)
		if top, base := r.lane("top"), r.lane("base"); top.State != "draining" || base.State != "draining" {
			t.Errorf("after the child's TTL: %s, parent %s", top.State, base.State)
		}
		r.refuse(http.StatusUnprocessableEntity, "POST", "/v1/lanes", `{"name":"late","parent":"base"}`)
	})
}

func TestChainOfParentsIsBounded(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"lane0"}`)
	for n := 1; n < 16; n++ {
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", fmt.Sprintf(`{"name":"lane%d","parent":"lane%d"}`, n, n-1))
		r.lane(fmt.Sprintf("lane%d", n)) // the cache has seen it
	}
	r.refuse(http.StatusUnprocessableEntity, "POST", "/v1/lanes", `{"name":"lane16","parent":"lane15"}`)
}

func TestLanesAreStrictByName(t *testing.T) {
	t.Parallel()
	r := start(t)
	var l laneclient.Lane
	r.must(http.StatusCreated, &l, "POST", "/v1/lanes", `{"name":"strict-load","kind":"strict"}`)
	if l.Kind != "strict" {
		t.Errorf("%+v", l)
	}
	r.refuse(http.StatusUnprocessableEntity, "POST", "/v1/lanes", `{"name":"green","parent":"strict-load"}`)
}

// TestLaneRace: of a child that is created and a parent that is deleted at once,
// one loses, however they fall.
func TestLaneRace(t *testing.T) {
	t.Parallel()
	r := start(t)
	for n := range 30 {
		base, top := fmt.Sprintf("base%d", n), fmt.Sprintf("top%d", n)
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", fmt.Sprintf(`{"name":%q}`, base))
		created := make(chan int, 1)
		go func() {
			created <- r.status("POST", "/v1/lanes", fmt.Sprintf(`{"name":%q,"parent":%q}`, top, base))
		}()
		deleted := r.status("DELETE", "/v1/lanes/"+base, nil)
		got := [2]int{<-created, deleted}
		if got != [2]int{http.StatusCreated, http.StatusConflict} && got != [2]int{http.StatusUnprocessableEntity, http.StatusOK} {
			t.Fatalf("child and deletion: %v", got)
		}
	}
}
