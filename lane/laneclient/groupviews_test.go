package laneclient_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// script stands before a control plane and plays the watches of a group.
type script struct {
	http.RoundTripper
	opened chan *played

	mu     sync.Mutex
	renews int
}

// played is one watch that a client has opened.
type played struct {
	host, from, session string
	selects             []string
	w                   *io.PipeWriter
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/renew") {
		s.mu.Lock()
		s.renews++
		s.mu.Unlock()
	}
	query := r.URL.Query()
	if r.URL.Path != "/v1/watch" || !slices.Contains(query["select"], "cursors:group=billing") {
		return s.RoundTripper.RoundTrip(r)
	}
	pr, pw := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = pw.CloseWithError(r.Context().Err()) })
	p := &played{host: r.URL.Host, from: query.Get("from"), session: r.Header.Get(laneclient.SessionHeader), selects: query["select"], w: pw}
	select {
	case s.opened <- p:
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: pr, Request: r}, nil
}

func (s *script) renewals() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renews
}

// say plays lines such as "put 7 sessions s1" and "put 8 cursors main/billing/orders/0 s1".
func (p *played) say(t *testing.T, lines ...string) {
	t.Helper()
	out := bufio.NewWriter(p.w)
	for _, line := range lines {
		f := strings.Fields(line)
		e := map[string]any{"type": f[0]}
		var rev uint64
		if _, err := fmt.Sscan(f[1], &rev); err != nil {
			t.Fatal(err)
		}
		e["revision"] = rev
		if len(f) > 3 {
			e["kind"], e["name"] = f[2], f[3]
		}
		if f[0] == "put" {
			e["object"] = object(rev, f[2:])
		}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.Write(append(raw, '\n'))
	}
	_ = out.Flush() // a watch that was given up takes nothing
	synctest.Wait()
}

func object(rev uint64, f []string) any {
	meta := laneclient.Meta{Name: f[1][strings.LastIndexByte(f[1], '/')+1:], Revision: rev}
	switch f[0] {
	case "sessions":
		return laneclient.Session{Meta: meta}
	case "lanes":
		return laneclient.Lane{Meta: meta, State: f[2], Generation: 2}
	case "members":
		return laneclient.Member{Meta: meta, Group: "billing", Session: f[2], Topics: []string{"orders"}}
	case "groups":
		return laneclient.Group{Meta: meta, Engine: "main", Paused: f[2] == "paused", Reset: &laneclient.GroupReset{ID: "r", Offsets: map[string]int64{"orders/1": 9}}}
	case "cursors":
		record := `{"v":1,"main":{"holder":{"session":"` + f[2] + `"}}}`
		if f[2] == "later" {
			record = `{"v":9}`
		}
		return laneclient.Cursor{Meta: laneclient.Meta{Name: f[1], Revision: rev}, Record: json.RawMessage(record)}
	}
	return map[string]string{"of": "a later version"}
}

// groupViews is a client whose group's watches are played.
func groupViews(t *testing.T, c *lanetest.Control) (*script, *laneclient.Client, <-chan consume.Update) {
	t.Helper()
	s := &script{RoundTripper: c.Transport(), opened: make(chan *played)}
	cfg := c.Config()
	cfg.Transport = s
	lc := dial(t, cfg)
	return s, lc, lc.Views(t.Context(), "billing")
}

func (s *script) next(t *testing.T) *played {
	t.Helper()
	select {
	case p := <-s.opened:
		return p
	case <-time.After(time.Minute): // of the bubble's time
		t.Fatal("no watch is opened")
		return nil
	}
}

// show is an update in short.
func show(us <-chan consume.Update) string {
	var out []string
	for {
		synctest.Wait()
		select {
		case u, ok := <-us:
			if !ok {
				return "closed"
			}
			s := ""
			if v := u.View; v != nil {
				var sessions, lanes, members []string
				for id := range v.Sessions {
					sessions = append(sessions, id)
				}
				for name, l := range v.Lanes {
					lanes = append(lanes, fmt.Sprintf("%s#%d:%v", name, l.Generation, l.Ended))
				}
				for _, m := range v.Members {
					members = append(members, m.ID+"="+m.Session)
				}
				slices.Sort(sessions)
				slices.Sort(lanes)
				s = fmt.Sprintf("view %d %v %v %v ", v.Revision, sessions, lanes, members)
				if v.Group.Paused {
					s += "paused "
				}
				if r := v.Group.Reset; r != nil {
					s += fmt.Sprint(r.ID, r.Offsets, " ")
				}
			}
			for _, r := range u.Records {
				holder := "-"
				if r.Record != nil {
					holder = r.Record.Main.Session
				}
				s += fmt.Sprintf("%s=%s@%d ", r.Partition, holder, r.Revision)
			}
			out = append(out, fmt.Sprintf("%sat %d", s, u.Revision))
		default:
			return strings.Join(out, "; ")
		}
	}
}

func wantShown(t *testing.T, us <-chan consume.Update, want string) {
	t.Helper()
	if got := show(us); got != want {
		t.Errorf("updates\n got %s\nwant %s", got, want)
	}
}

// TestGroupViews: nothing is told before everything is there, then whatever changes; and a
// watch that is cut goes on where it was.
func TestGroupViews(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		s, lc, us := groupViews(t, c)
		w := s.next(t)
		want := []string{"lanes", "sessions", "members:group=billing", "groups:name=billing", "cursors:group=billing"}
		if w.from != "" || w.session != lc.Status().Session || !slices.Equal(w.selects, want) {
			t.Errorf("watch of %v from %q by %q", w.selects, w.from, w.session)
		}
		w.say(t, "put 9 cursors main/billing/orders/1 s1", "put 3 sessions s1", "put 5 lanes green ready", "put 4 lanes strict-x draining",
			"put 2 members billing/e1 s1", "put 7 groups billing paused", "put 8 cursors main/billing/orders/0 s1")
		wantShown(t, us, "")
		w.say(t, "synced 10")
		wantShown(t, us, "view 10 [s1] [green#2:false strict-x#2:false] [e1=s1] paused r"+fmt.Sprint(map[consume.Partition]int64{{Topic: "orders", Index: 1}: 9})+" orders/0=s1@8 orders/1=s1@9 at 10")
		w.say(t, "put 12 cursors main/billing/orders/0 s1") // 12 may have more
		wantShown(t, us, "orders/0=s1@12 at 11")
		w.say(t, "progress 12")
		wantShown(t, us, "at 12")
		w.say(t, "put 13 lanes green draining", "delete 14 sessions s1", "delete 14 members billing/e1", "put 15 groups billing on", "delete 16 cursors main/billing/orders/1")
		got := show(us)
		if !strings.Contains(got, "[] [green#2:true strict-x#2:false] []") || !strings.Contains(got, "orders/1=-@16") || strings.Contains(got, "paused") || !strings.HasSuffix(got, "at 15") {
			t.Errorf("updates %s", got)
		}
		w.say(t, "put 17 cursors main/billing/orders/0 later", "put 18 somethings new x")
		if got := show(us); strings.Contains(got, "orders/0") {
			t.Errorf("a record that cannot be read: %s", got)
		}
		w.say(t, "progress 20")
		wantShown(t, us, "at 20")
		_ = w.w.Close()
		w = s.next(t)
		if w.from != "20" {
			t.Errorf("it goes on from %q", w.from)
		}
		w.say(t, "put 21 sessions s2", "synced 21")
		if got := show(us); !strings.Contains(got, "[s2]") || strings.Contains(got, "orders/0=") {
			t.Errorf("after a cut: %s", got)
		}
		if err := lc.Close(); err != nil {
			t.Error(err)
		}
		select {
		case u, ok := <-us:
			if ok {
				t.Errorf("%+v of a client that is closed", u)
			}
		default:
			t.Error("the views of a group outlive their client")
		}
		wantShown(t, lc.Views(t.Context(), "billing"), "closed")
	})
}

// TestGroupViewsCompacted: what was compacted is read anew; it is shown once it is not older
// than what was, with what has gone meanwhile.
func TestGroupViewsCompacted(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		s, _, us := groupViews(t, c)
		w := s.next(t)
		w.say(t, "put 3 sessions s1", "put 8 cursors main/billing/orders/0 s1", "put 9 cursors main/billing/orders/1 s1", "synced 10")
		_ = show(us)
		w.say(t, "compacted 11")
		w = s.next(t)
		if w.from != "" {
			t.Errorf("it is read anew from %q", w.from)
		}
		w.say(t, "put 8 cursors main/billing/orders/0 s1", "put 4 sessions s2", "synced 9")
		wantShown(t, us, "") // older than what was shown
		w.say(t, "put 12 cursors main/billing/orders/0 s2", "progress 12")
		if got := show(us); !strings.HasPrefix(got, "view 12 [s2]") || !strings.Contains(got, "orders/0=s2@12 orders/1=-@11") || !strings.HasSuffix(got, "at 12") {
			t.Errorf("updates %s", got)
		}
		w.say(t, "compacted 13")
		w = s.next(t)
		w.say(t, "compacted 13") // before it has come to anything
		begun := time.Now()
		w = s.next(t)
		if time.Since(begun) == 0 {
			t.Error("it is read anew without a pause, for ever")
		}
		w.say(t, "put 4 sessions s2", "synced 14")
		if got := show(us); !strings.Contains(got, "orders/0=-@14") {
			t.Errorf("updates %s", got)
		}
	})
}

// TestGroupViewsAnew: what is read anew is not late before it is there, however long that takes.
func TestGroupViewsAnew(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		s, _, us := groupViews(t, c)
		w := s.next(t)
		w.say(t, "put 3 sessions s1", "synced 3")
		_ = show(us)
		for range 20 {
			c.AddLane(fmt.Sprintf("lane%d", c.Revision())) // the registry goes on
		}
		w.say(t, "compacted 3")
		w = s.next(t)
		for n := range 10 {
			pass(time.Second)
			w.say(t, fmt.Sprintf("put 5 sessions s%d", n))
		}
		w.say(t, fmt.Sprintf("synced %d", c.Revision()))
		if got := show(us); !strings.HasPrefix(got, fmt.Sprintf("view %d [s0 s1 s2 s3 s4 s5 s6 s7 s8 s9]", c.Revision())) {
			t.Errorf("updates %s", got)
		}
		select {
		case <-s.opened:
			t.Error("it was given up for another watch")
		default:
		}
	})
}

// TestGroupViewsOfTheGone: a record that names a session which does not live has the client
// ask at once how far its picture goes; a record of one that lives has not.
func TestGroupViewsOfTheGone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		s, _, us := groupViews(t, c)
		w := s.next(t)
		w.say(t, "put 3 sessions s1", "put 8 cursors main/billing/orders/0 s9", "synced 10")
		before := s.renewals()
		w.say(t, "put 11 cursors main/billing/orders/0 s1")
		if n := s.renewals() - before; n != 0 {
			t.Errorf("%d renewals after a record of a session that lives", n)
		}
		w.say(t, "put 12 cursors main/billing/orders/0 s9")
		if n := s.renewals() - before; n != 1 {
			t.Errorf("%d renewals after a record of a session that is gone", n)
		}
		_ = show(us)
	})
}

// TestGroupViewsLag: a watch that does not come to what the control plane has answered is
// opened at another replica; one of a session that was replaced is opened anew.
func TestGroupViewsLag(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		s, lc, us := groupViews(t, c)
		w := s.next(t)
		w.say(t, "put 3 sessions s1", "synced 3")
		_ = show(us)
		for range 20 {
			c.AddLane(fmt.Sprintf("lane%d", c.Revision())) // the registry goes on, and the watch does not
		}
		stop := make(chan struct{})
		defer close(stop)
		go func() { // it lives, and lags
			for p := w; ; {
				select {
				case <-stop:
					return
				case <-time.After(time.Second):
					if _, err := p.w.Write([]byte(`{"type":"progress","revision":3}` + "\n")); err != nil {
						return
					}
				}
			}
		}()
		next := s.next(t)
		if next.host == w.host || next.from != "3" {
			t.Errorf("the next watch is at %s from %q, after one at %s", next.host, next.from, w.host)
		}
		next.say(t, fmt.Sprintf("progress %d", c.Revision()+1000))
		before := lc.Status().Session
		c.KillSessions()
		last := s.next(t)
		if last.session == before || last.session == "" || last.from == "" {
			t.Errorf("the watch of the new session is by %q from %q, the last one was by %q", last.session, last.from, before)
		}
		_ = show(us)
	})
}
