package control_test

import (
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func (r *replica) renew(status int, session string, reached uint64) answer {
	r.t.Helper()
	return r.must(status, nil, "POST", "/v1/sessions/"+session+"/renew", laneclient.Renewal{Reached: reached})
}

func TestSessionExpires(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		s := r.session(`{"instance":"order/a","host":"laptop","admin":"127.0.0.1:9","role":"run"}`)
		if len(s.Name) < 20 || time.Duration(s.TTL) != 10*time.Second || s.Since.IsZero() {
			t.Errorf("opened: %+v", s)
		}
		r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/a", instanceBody("", "127.0.0.1:1"), laneclient.SessionHeader, s.Name)
		for range 10 {
			pass(8 * time.Second)
			r.renew(http.StatusOK, s.Name, 0)
		}
		r.must(http.StatusOK, nil, "GET", "/v1/instances/order/a", nil)
		pass(13 * time.Second)
		r.refuse(http.StatusNotFound, "GET", "/v1/instances/order/a", nil)
		r.refuse(http.StatusNotFound, "GET", "/v1/sessions/"+s.Name, nil)
		if p := r.renew(http.StatusNotFound, s.Name, 0).problem(t); p.Type != laneclient.ProblemSessionGone {
			t.Errorf("renewed: %+v", p)
		}
		p := r.refuse(http.StatusConflict, "PUT", "/v1/instances/order/a", instanceBody("", "127.0.0.1:1"), laneclient.SessionHeader, s.Name)
		if p.Type != laneclient.ProblemSessionGone {
			t.Errorf("registered: %+v", p)
		}
		r.must(http.StatusOK, nil, "GET", "/v1/services/order", nil) // a service outlives its instances
	})
}

// TestEndedSessionWhileTheCacheLags: a session that was ended stays ended for who
// asks again, however late the replica's own picture is.
func TestEndedSessionWhileTheCacheLags(t *testing.T) {
	t.Parallel()
	r, f := startFaulty(t)
	s := r.session(`{}`)
	f.stalled.Store(true)
	defer f.stalled.Store(false)
	path := "/v1/sessions/" + s.Name
	r.must(http.StatusNoContent, nil, "DELETE", path, nil)
	for _, again := range []func() laneclient.Problem{
		func() laneclient.Problem { return r.refuse(http.StatusNotFound, "DELETE", path, nil) },
		func() laneclient.Problem { return r.renew(http.StatusNotFound, s.Name, 0).problem(t) },
	} {
		if p := again(); p.Type != laneclient.ProblemSessionGone {
			t.Errorf("%+v", p)
		}
	}
}

func TestSessionMistakes(t *testing.T) {
	t.Parallel()
	r := start(t)
	for body, field := range map[string]string{
		`{"ttl":"4s"}`: "ttl", `{"ttl":"6m"}`: "ttl", `{"name":"mine"}`: "name", `{"instance":"a"}`: "instance",
		`{"admin":"x"}`: "admin", `{"role":"A b"}`: "role", `{"ttl":5}`: "ttl",
	} {
		p := r.refuse(http.StatusUnprocessableEntity, "POST", "/v1/sessions", body)
		if len(p.Errors) != 1 || p.Errors[0].Field != field {
			t.Errorf("%s: %+v", body, p.Errors)
		}
	}
	r.refuse(http.StatusNotFound, "DELETE", "/v1/sessions/nobody", nil)
	r.renew(http.StatusNotFound, "nobody", 0)
	r.renew(http.StatusNotFound, "%20odd", 0)
}

// TestStaleViewIsNotRenewed: a session whose view has lagged for more than a TTL has
// to go, while it keeps renewing, and status says so before.
func TestStaleViewIsNotRenewed(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		s := r.session(`{"role":"gateway","host":"edge1"}`)
		var renewed laneclient.Renewed
		r.renew(http.StatusOK, s.Name, 0).into(t, &renewed)
		reached := renewed.Revision
		for range 6 { // nothing happens: a view does not age by itself
			r.renew(http.StatusOK, s.Name, reached)
			pass(3 * time.Second)
		}
		r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
		pass(6 * time.Second)
		r.renew(http.StatusOK, s.Name, reached)
		var st laneclient.Status
		r.must(http.StatusOK, &st, "GET", "/v1/status", nil)
		if len(st.Stale) != 1 || st.Stale[0].Session != s.Name || st.Stale[0].Host != "edge1" || st.OK {
			t.Errorf("status: %+v", st.Stale)
		}
		var shown laneclient.Session
		r.must(http.StatusOK, &shown, "GET", "/v1/sessions/"+s.Name, nil)
		if shown.Reached != reached {
			t.Errorf("reached is shown as %d, was told %d", shown.Reached, reached)
		}
		pass(5 * time.Second)
		if p := r.renew(http.StatusConflict, s.Name, reached).problem(t); p.Type != laneclient.ProblemStaleView {
			t.Errorf("%+v", p)
		}
		pass(8 * time.Second)
		r.renew(http.StatusNotFound, s.Name, reached) // not renewed: it ended
	})
}

func TestViewAheadOfTheRegistry(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.session(`{}`)
	if p := r.renew(http.StatusConflict, s.Name, 1<<40).problem(t); p.Type != laneclient.ProblemStaleView {
		t.Errorf("%+v", p)
	}
	r.watch("select=lanes&from=1099511627776").want("compacted")
}

// TestProgressAfterRenewal: the watch tells at once how far it is, also where
// nothing that it selects changed, and also when nothing changed at all.
func TestProgressAfterRenewal(t *testing.T) {
	inBubble(t, func(r *timed) {
		t := r.t
		s := r.session(`{}`)
		w := r.watch("select=lanes", laneclient.SessionHeader, s.Name)
		w.want("synced")
		progress := func(within time.Duration) uint64 {
			t.Helper()
			start := time.Now()
			e := <-w.lines
			if e.Type != laneclient.EventProgress || time.Since(start) > within {
				t.Fatalf("%s at %d after %s, want progress within %s", e.Type, e.Revision, time.Since(start), within)
			}
			return e.Revision
		}
		progress(time.Second)
		for range 3 {
			r.must(http.StatusCreated, nil, "PUT", "/v1/services/order", `{}`)
			r.must(http.StatusNoContent, nil, "DELETE", "/v1/services/order", nil)
			for range 2 {
				var renewed laneclient.Renewed
				r.renew(http.StatusOK, s.Name, 0).into(t, &renewed)
				if got := progress(0); got < renewed.Revision {
					t.Errorf("progress to %d, renewal said %d", got, renewed.Revision)
				}
			}
		}
		progress(time.Second)
		progress(time.Second)
	})
}

func TestDeleteInstanceEndsItsSessions(t *testing.T) {
	t.Parallel()
	r := start(t)
	run := r.session(`{"instance":"order/a","role":"run"}`)
	sdk := r.session(`{"instance":"order/a"}`)
	other := r.session(`{"instance":"order/b"}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/a", instanceBody("", "127.0.0.1:1"), laneclient.SessionHeader, run.Name)
	w := r.watch("select=sessions:instance=order/a&select=instances:service=order")
	w.want("put sessions " + run.Name)
	w.want("put sessions " + sdk.Name)
	w.want("put instances order/a")
	w.want("synced")
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/instances/order/a", nil, laneclient.SessionHeader, run.Name)
	w.want("delete instances order/a")
	w.next()
	w.next()
	for _, id := range []string{run.Name, sdk.Name} {
		r.refuse(http.StatusNotFound, "GET", "/v1/sessions/"+id, nil)
	}
	r.must(http.StatusOK, nil, "GET", "/v1/sessions/"+other.Name, nil)
}

func TestWhoseAnInstanceIs(t *testing.T) {
	t.Parallel()
	r := start(t)
	const path = "/v1/instances/order/a"
	body := func(more string) string {
		return `{"endpoints":[{"protocol":"http","address":"127.0.0.1:1"}]` + more + `}`
	}
	first, second := r.session(`{}`), r.session(`{}`)
	in := func(s laneclient.Session) []string { return []string{laneclient.SessionHeader, s.Name} }
	var i laneclient.Instance
	r.must(http.StatusCreated, &i, "PUT", path, body(""), in(first)...)
	since := i.Since
	r.refuse(http.StatusUnprocessableEntity, "PUT", path, body(`,"static":true`), in(first)...)
	r.refuse(http.StatusUnprocessableEntity, "PUT", path, body(`,"session":"other"`), in(first)...)
	r.refuse(http.StatusConflict, "PUT", path, body(""))
	// Somebody else may change the spec of one that stays whose it is.
	r.must(http.StatusOK, &i, "PUT", path, body(`,"state":"draining","session":"`+first.Name+`"`))
	if i.Session != first.Name || i.State != "draining" || !i.Since.Equal(since) {
		t.Errorf("changed from outside: %+v", i)
	}
	// A process that comes back under its name takes it over, and its predecessor
	// cannot take it with it.
	r.must(http.StatusOK, &i, "PUT", path, body(""), in(second)...)
	if i.Session != second.Name {
		t.Errorf("taken over: %+v", i)
	}
	r.refuse(http.StatusConflict, "DELETE", path, nil, in(first)...)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+first.Name, nil)
	r.must(http.StatusOK, nil, "GET", path, nil)
	r.must(http.StatusNoContent, nil, "DELETE", path, nil, in(second)...)
	// Static ones have none, and stay.
	r.must(http.StatusCreated, &i, "PUT", path, body(""))
	if !i.Static || i.Session != "" {
		t.Errorf("static: %+v", i)
	}
	r.must(http.StatusNoContent, nil, "DELETE", path, nil)
}

// TestSecondReplica: what is answered by one replica is there at another at once,
// and one of them leads, the other when that is gone.
func TestSecondReplica(t *testing.T) {
	t.Parallel()
	s := mem.New()
	defer s.Close()
	a := startOver(t, s, control.Config{Node: "a", Address: "127.0.0.1:7700"})
	b := startOver(t, s, control.Config{Node: "b", Address: "[::]:7700"})
	defer b.stop()
	defer a.stop()
	sess := a.session(`{}`)
	for n := range 50 {
		ra, rb := a, b
		if n%2 == 1 {
			ra, rb = b, a
		}
		var l laneclient.Lane
		ra.must(http.StatusCreated, &l, "POST", "/v1/lanes", `{"name":"lane`+string(rune('a'+n%26))+string(rune('a'+n/26))+`"}`)
		rb.must(http.StatusOK, nil, "GET", "/v1/lanes/"+l.Name, nil)
		w := rb.watch("select=lanes:name=" + l.Name)
		w.want("put lanes " + l.Name)
		rb.renew(http.StatusOK, sess.Name, l.Revision)
	}
	leader := func(r *replica) (name string, replicas int) {
		var st laneclient.Status
		r.must(http.StatusOK, &st, "GET", "/v1/status", nil)
		for _, rep := range st.Replicas {
			if rep.Leader {
				name += rep.Name
			}
		}
		return name, len(st.Replicas)
	}
	var first string
	a.until("a leader, and both to be known", func() bool {
		name, n := leader(a)
		first = name
		return name != "" && n == 2
	})
	if other, _ := leader(b); other != first || len(first) != 1 {
		t.Fatalf("leaders %q and %q", first, other)
	}
	host, _ := os.Hostname()
	b.until("each to tell where all of them listen", func() bool {
		var st laneclient.Status
		b.must(http.StatusOK, &st, "GET", "/v1/status", nil)
		got := map[string]string{}
		for _, rep := range st.Replicas {
			got[rep.Name] = rep.Host + " " + rep.Address
		}
		return got["a"] == host+" 127.0.0.1:7700" && got["b"] == host+" [::]:7700"
	})
	gone, stays := a, b
	if first == "b" {
		gone, stays = b, a
	}
	gone.stop()
	stays.until("the other to lead", func() bool { name, n := leader(stays); return name != "" && name != first && n == 1 })
}
