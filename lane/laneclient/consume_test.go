package laneclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// moves stands before a control plane and answers what belongs to groups.
type moves struct {
	http.RoundTripper
	hold   chan struct{} // what answers wait for; nil: nothing
	answer func(path string, w *laneclient.CursorBatchWrite) laneclient.CursorAnswer
	raw    func(r *http.Request) (*http.Response, error) // instead of answers

	mu       sync.Mutex
	requests [][]string // the names of each request's writes
	bytes    []int64    // how long each request was
	sessions []string
	hosts    []string
}

func (m *moves) RoundTrip(r *http.Request) (*http.Response, error) {
	reply := func(status int, body any) (*http.Response, error) {
		raw, err := json.Marshal(body)
		return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(raw)), Request: r}, err
	}
	switch path := r.URL.Path; {
	case strings.HasPrefix(path, "/v1/groups/"):
		return reply(200, laneclient.Group{Engine: "main", Topics: []string{"orders"}})
	case path != "/v1/cursors:batch" && path != "/v1/notes":
		return m.RoundTripper.RoundTrip(r)
	}
	var batch laneclient.CursorBatch
	if err := json.NewDecoder(r.Body).Decode(&batch); err != nil {
		return nil, err
	}
	m.mu.Lock()
	var names []string
	for i := range batch.Writes {
		names = append(names, batch.Writes[i].Name)
	}
	m.requests, m.bytes = append(m.requests, names), append(m.bytes, r.ContentLength)
	m.sessions, m.hosts = append(m.sessions, r.Header.Get(laneclient.SessionHeader)), append(m.hosts, r.URL.Host)
	m.mu.Unlock()
	if m.hold != nil {
		select {
		case <-m.hold:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	if m.raw != nil {
		return m.raw(r)
	}
	var out laneclient.CursorAnswers
	for i := range batch.Writes {
		out.Answers = append(out.Answers, m.answer(r.URL.Path, &batch.Writes[i]))
	}
	return reply(200, out)
}

func (m *moves) sizes() (out []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests {
		out = append(out, len(r))
	}
	return out
}

func movesBefore(c *lanetest.Control) (*moves, laneclient.Config) {
	m := &moves{RoundTripper: c.Transport()}
	m.answer = func(_ string, w *laneclient.CursorBatchWrite) laneclient.CursorAnswer {
		_, _, _, n, _ := laneclient.ParseCursorName(w.Name)
		return laneclient.CursorAnswer{Status: 200, Revision: uint64(1000 + n)}
	}
	cfg := c.Config()
	cfg.Transport = m
	return m, cfg
}

func moveOf(n int, session string) *consume.Write {
	return &consume.Write{Group: "billing", Partition: consume.Partition{Topic: "orders", Index: int32(n)}, Session: session, Record: &consume.Record{}}
}

// TestMovesShareRequests: a move goes at once while few are under way, and what comes
// meanwhile goes together, as far as it is of one session; each gets its own answer.
func TestMovesShareRequests(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		m, cfg := movesBefore(c)
		m.hold = make(chan struct{})
		lc := dial(t, cfg)
		var wg sync.WaitGroup
		send := func(n int, session string) {
			wg.Go(func() {
				a, err := lc.Move(t.Context(), moveOf(n, session))
				if err != nil || a.Outcome != consume.Done || a.Revision != uint64(1000+n) {
					t.Errorf("move %d: %+v, %v", n, a, err)
				}
			})
			synctest.Wait()
		}
		send(0, "s1")
		send(1, "s1")
		if got := m.sizes(); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("requests of %v moves: want each at once", got)
		}
		for n := range 250 {
			send(2+n, "s1")
		}
		send(252, "s2")
		wg.Go(func() {
			w := moveOf(253, "s1")
			w.Record, w.Notes = nil, []consume.NoteWrite{{Note: &consume.Note{Pos: 3}}}
			if a, err := lc.Move(t.Context(), w); err != nil || a.Revision != 1253 {
				t.Errorf("a note: %+v, %v", a, err)
			}
		})
		synctest.Wait()
		if got := m.sizes(); !slices.Equal(got, []int{1, 1, 1}) {
			t.Errorf("requests of %v moves: a note should not wait for moves, nor moves for nothing", got)
		}
		close(m.hold)
		wg.Wait()
		got := m.sizes()
		slices.Sort(got)
		if !slices.Equal(got, []int{1, 1, 1, 1, 50, 100, 100}) {
			t.Errorf("requests of %v moves", got)
		}
		for i, r := range m.requests {
			if slices.Contains(r, "main/billing/orders/252") != (m.sessions[i] == "s2") {
				t.Errorf("session %s sends %v", m.sessions[i], r)
			}
		}
	})
}

// TestMovesFitIntoARequest: moves that are too long for one request, all of them together, go
// in as many as it takes. Refused as too long, they would be repeated for ever.
func TestMovesFitIntoARequest(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		m, cfg := movesBefore(c)
		m.hold = make(chan struct{})
		lc := dial(t, cfg)
		long := &consume.Record{Colors: map[lane.Name]consume.Entry{}}
		for n := range 1000 {
			color := lane.Name(fmt.Sprintf("%s-%d", strings.Repeat("x", 40), n))
			long.Colors[color] = consume.Entry{Holder: consume.Holder{Session: strings.Repeat("s", 40)}}
		}
		var wg sync.WaitGroup
		for n := range 2 + laneclient.MaxCursorBatch {
			wg.Go(func() {
				w := moveOf(n, "s1")
				w.Record = long
				if a, err := lc.Move(t.Context(), w); err != nil || a.Revision != uint64(1000+n) {
					t.Errorf("move %d: %+v, %v", n, a, err)
				}
			})
		}
		synctest.Wait()
		close(m.hold)
		wg.Wait()
		most := slices.Max(m.bytes)
		if most > laneclient.MaxBatchBytes || most < laneclient.MaxBatchBytes/2 {
			t.Errorf("requests of %d bytes, in %v moves: want at most %d bytes, and not much less", m.bytes, m.sizes(), laneclient.MaxBatchBytes)
		}
	})
}

// TestCloseOfWaitingMoves: who closes the client does not wait for moves that were not sent.
func TestCloseOfWaitingMoves(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		m, cfg := movesBefore(c)
		m.hold = make(chan struct{})
		lc := dial(t, cfg)
		var wg sync.WaitGroup
		for n := range 5 { // two are sent, three wait, two of them of one session
			wg.Go(func() {
				_, err := lc.Move(t.Context(), moveOf(n, fmt.Sprint("s", n/2)))
				if !errors.Is(err, consume.ErrDoubt) || n > 1 && !errors.Is(err, laneclient.ErrClosed) {
					t.Errorf("move %d: %v", n, err)
				}
			})
			synctest.Wait()
		}
		begun := time.Now()
		if err := lc.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it takes %v: want no longer than the moves that were sent", took)
		}
		wg.Wait()
		if got := m.sizes(); !slices.Equal(got, []int{1, 1}) {
			t.Errorf("requests of %v moves", got)
		}
	})
}

// TestMoveAnswers: only an answer about the write itself ends a doubt.
func TestMoveAnswers(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		m, cfg := movesBefore(c)
		lc := dial(t, cfg)
		record := json.RawMessage(`{"v":1,"main":{"holder":{"session":"s9"}}}`)
		notes := []laneclient.CursorNote{{Cursor: "", Note: json.RawMessage(`{"v":1,"pos":7}`), Revision: 3}, {Cursor: "green", Note: json.RawMessage("null")}}
		for _, x := range []struct {
			name    string
			answer  laneclient.CursorAnswer
			outcome consume.Outcome
			ended   bool
		}{
			{"done", laneclient.CursorAnswer{Status: 200, Revision: 5, Notes: notes}, consume.Done, false},
			{"changed", laneclient.CursorAnswer{Status: 412, Type: laneclient.ProblemChanged, Revision: 5, Record: record, Notes: notes}, consume.Conflict, false},
			{"no record", laneclient.CursorAnswer{Status: 412, Type: laneclient.ProblemChanged}, consume.Conflict, false},
			{"session gone", laneclient.CursorAnswer{Status: 409, Type: laneclient.ProblemSessionGone, Revision: 5, Record: record, Notes: notes}, consume.Conflict, true},
			{"no group", laneclient.CursorAnswer{Status: 409, Type: laneclient.ProblemGroup}, consume.Doubt, false},
			{"unavailable", laneclient.CursorAnswer{Status: 503}, consume.Doubt, false},
			{"failed", laneclient.CursorAnswer{Status: 500}, consume.Doubt, false},
			{"refused", laneclient.CursorAnswer{Status: 422}, consume.Doubt, false},
			{"nothing", laneclient.CursorAnswer{}, consume.Doubt, false},
			{"a record of a later version", laneclient.CursorAnswer{Status: 412, Revision: 5, Record: json.RawMessage(`{"v":9}`)}, consume.Doubt, false},
			{"a note of a later version", laneclient.CursorAnswer{Status: 200, Revision: 5, Notes: []laneclient.CursorNote{{Note: json.RawMessage(`{"v":9}`)}}}, consume.Doubt, false},
		} {
			m.answer = func(string, *laneclient.CursorBatchWrite) laneclient.CursorAnswer { return x.answer }
			a, err := lc.Move(t.Context(), moveOf(0, "s1"))
			if doubt := x.outcome == consume.Doubt; doubt != errors.Is(err, consume.ErrDoubt) || !doubt && (err != nil || a.Outcome != x.outcome) {
				t.Errorf("%s: %+v, %v", x.name, a, err)
			}
			if err != nil {
				continue
			}
			if a.Ended != x.ended || a.Revision != x.answer.Revision || (a.Record != nil) != (x.answer.Record != nil) || len(a.Notes) != len(x.answer.Notes) {
				t.Errorf("%s: %+v", x.name, a)
			}
			if a.Record != nil && a.Record.Main.Session != "s9" || len(a.Notes) > 0 && (a.Notes[0].Note.Pos != 7 || a.Notes[0].Revision != 3 || a.Notes[1].Cursor != "green" || a.Notes[1].Note != nil) {
				t.Errorf("%s: %+v", x.name, a)
			}
		}
		body := func(status int, text string) func(*http.Request) (*http.Response, error) {
			return func(r *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
			}
		}
		for name, raw := range map[string]func(*http.Request) (*http.Response, error){
			"a cut":              func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
			"an answer too few":  body(200, `{"answers":[]}`),
			"an answer too many": body(200, `{"answers":[{"status":200},{"status":200}]}`),
			"half an answer":     body(200, `{"answers":[{"st`),
			"unavailable":        body(503, "no"),
			"not allowed":        body(403, "no"),
		} {
			m.raw = raw
			if a, err := lc.Move(t.Context(), moveOf(0, "s1")); !errors.Is(err, consume.ErrDoubt) {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
		}
	})
}

// TestMoveIsGivenUp: who waits no longer is told so, what hangs is in doubt after a while, and
// what nobody waits for is not sent.
func TestMoveIsGivenUp(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		m, cfg := movesBefore(c)
		m.hold = make(chan struct{})
		lc := dial(t, cfg)
		var wg sync.WaitGroup
		for n := range 3 { // two are sent, one waits
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			wg.Go(func() {
				if _, err := lc.Move(ctx, moveOf(n, "s1")); !errors.Is(err, consume.ErrDoubt) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("move %d: %v", n, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		begun := time.Now()
		if _, err := lc.Move(t.Context(), moveOf(9, "s1")); !errors.Is(err, consume.ErrDoubt) {
			t.Errorf("a move that hangs: %v", err)
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("a move hangs for %v", took)
		}
		if got := fmt.Sprint(m.requests); strings.Contains(got, "orders/2") || !strings.Contains(got, "orders/9") {
			t.Errorf("requests %v: nobody waited for the third", got)
		}
		if err := lc.Close(); err != nil {
			t.Error(err)
		}
		if _, err := lc.Move(t.Context(), moveOf(0, "s1")); !errors.Is(err, consume.ErrDoubt) {
			t.Errorf("a move of a closed client: %v", err)
		}
	})
}

// TestMoveGoesElsewhere: what one replica does not answer is repeated at another.
func TestMoveGoesElsewhere(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *lanetest.Control) {
		m, cfg := movesBefore(c)
		m.hold = make(chan struct{})
		lc := dial(t, cfg)
		for range 2 {
			if _, err := lc.Move(t.Context(), moveOf(0, "s1")); !errors.Is(err, consume.ErrDoubt) {
				t.Errorf("a move that hangs: %v", err)
			}
		}
		if len(m.hosts) != 2 || m.hosts[0] == m.hosts[1] {
			t.Errorf("moves went to %v", m.hosts)
		}
	})
}

// renewals stands before a control plane, and lets renewals fail or their answers come late.
type renewals struct {
	http.RoundTripper
	mu    sync.Mutex
	fail  bool
	delay time.Duration
	log   []string // what was done with sessions and instances
}

func (r *renewals) RoundTrip(q *http.Request) (*http.Response, error) {
	renewal := strings.HasSuffix(q.URL.Path, "/renew")
	r.mu.Lock()
	fail, delay := renewal && r.fail, r.delay
	if !renewal && (strings.HasPrefix(q.URL.Path, "/v1/sessions") || strings.HasPrefix(q.URL.Path, "/v1/instances")) {
		r.log = append(r.log, q.Method+" "+strings.TrimPrefix(q.URL.Path, "/v1/"))
	}
	r.mu.Unlock()
	if fail {
		return nil, io.ErrUnexpectedEOF
	}
	resp, err := r.RoundTripper.RoundTrip(q)
	if err != nil || !renewal {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body) // the control plane is not held up
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	late := time.NewTimer(delay)
	defer late.Stop()
	select {
	case <-late.C:
		return resp, err
	case <-q.Context().Done(): // it is not waited for any more
		return nil, q.Context().Err()
	}
}

func (r *renewals) set(fail bool, delay time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fail, r.delay = fail, delay
}

// TestSessionIsSpent: a session of which nothing remained is not given again, though its
// renewal succeeds after all, whether anybody has looked meanwhile or not. It is ended before
// another one is given, and the instance goes over from the one to the other.
func TestSessionIsSpent(t *testing.T) {
	for _, looks := range []bool{true, false} {
		bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
			m, _ := movesBefore(c)
			r := &renewals{RoundTripper: m}
			o := order(c, "")
			o.Transport, o.TTL = r, time.Minute // longer than an answer may take
			lc, g := dial(t, o), dial(t, gateway(c))
			_, leave, err := lc.Enter(t.Context(), "billing", consume.Settings{Topics: []string{"orders"}})
			if err != nil {
				t.Fatal(err)
			}
			defer leave()
			synctest.Wait()
			never(t, g, "the instance is gone", withoutOrder)
			id, left := lc.Session()
			if left < 50*time.Second || left > 57*time.Second {
				t.Errorf("%v remain at first", left)
			}
			r.set(true, 0)
			r.log = nil
			pass(left - 8*time.Second)
			if now, left := lc.Session(); now != id || left <= 0 {
				t.Errorf("%v remain of %s", left, now)
			}
			r.set(false, 11*time.Second)
			lost := false
			for range 400 {
				pass(100 * time.Millisecond)
				if !looks {
					continue
				}
				now, left := lc.Session()
				if now == id && left > 0 && lost {
					t.Fatal("the session is given again after nothing of it remained")
				}
				lost = lost || left <= 0
			}
			if now, left := lc.Session(); now == id || left <= 0 {
				t.Errorf("%v remain of session %s after %s", left, now, id)
			}
			if want := "POST sessions, PUT instances/order/o1, DELETE sessions/" + id; strings.Join(r.log, ", ") != want {
				t.Errorf("%s, want %s", r.log, want)
			}
			if n := len(c.Sessions()); n != 2 || !lc.Status().Registered {
				t.Errorf("%d sessions, want those of two clients; registered: %v", n, lc.Status().Registered)
			}
		})
	}
}

// TestSessionOfOthersStays: a process that does not consume goes on with a session that may
// have run out, where it has not.
func TestSessionOfOthersStays(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *lanetest.Control) {
		r := &renewals{RoundTripper: c.Transport()}
		o := order(c, "")
		o.Transport, o.TTL = r, laneclient.MinTTL
		lc := dial(t, o)
		id, _ := lc.Session()
		r.set(false, 1200*time.Millisecond)
		is := func(lasts bool) func() bool {
			return func() bool {
				now, left := lc.Session()
				return now == id && (left > 0) == lasts
			}
		}
		within(t, 3*time.Second, "nothing of the session remains", is(false))
		within(t, 3*time.Second, "the session lasts again", is(true))
	})
}
