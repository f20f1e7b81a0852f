package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestNextStep(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	lane := func(state string, left time.Duration) laneclient.Lane {
		return laneclient.Lane{State: state, TTL: laneclient.Duration(100 * time.Hour), Expires: now.Add(left)}
	}
	with := func(l laneclient.Lane, edit func(*laneclient.Lane)) laneclient.Lane { edit(&l); return l }
	cases := []struct {
		name         string
		lane         laneclient.Lane
		inUse, child bool
		want         step
		due          time.Time
	}{
		{"new and idle", lane("creating", 100*time.Hour), false, false, stepNone, now.Add(90 * time.Hour)},
		{"new, with an instance", lane("creating", 100*time.Hour), true, false, stepReady, now},
		{"new, used", with(lane("creating", 9*time.Hour), func(l *laneclient.Lane) { l.LastUse = now }), false, false, stepReady, now},
		{"new, expired", lane("creating", 0), false, false, stepDrain, now},
		{"nearly expired", lane("ready", 10*time.Hour), true, false, stepWarn, now},
		{"warned", with(lane("ready", time.Hour), func(l *laneclient.Lane) { l.WarnedAt = now }), true, false, stepNone, now.Add(time.Hour)},
		{"expired", with(lane("ready", 0), func(l *laneclient.Lane) { l.WarnedAt = now }), true, false, stepDrain, now},
		{"expired, never warned", lane("ready", -time.Hour), true, false, stepDrain, now},
		{"expired, with a child", lane("ready", -time.Hour), true, true, stepWarn, now},
		{"expired and warned, with a child", with(lane("ready", -time.Hour), func(l *laneclient.Lane) { l.WarnedAt = now }), true, true, stepNone, time.Time{}},
		{"held", with(lane("ready", -time.Hour), func(l *laneclient.Lane) { l.Held = true }), true, false, stepNone, time.Time{}},
		{"new and held, with an instance", with(lane("creating", 0), func(l *laneclient.Lane) { l.Held = true }), true, false, stepReady, now},
		{"draining", laneclient.Lane{State: "draining", DrainingAt: now.Add(-29 * time.Second)}, false, false, stepNone, now.Add(time.Second)},
		{"drained", laneclient.Lane{State: "draining", DrainingAt: now.Add(-30 * time.Second)}, true, true, stepEnd, now},
		{"ended", laneclient.Lane{State: "ended", EndedAt: now.Add(-6 * 24 * time.Hour)}, false, false, stepNone, now.Add(24 * time.Hour)},
		{"ended a week ago", laneclient.Lane{State: "ended", EndedAt: now.Add(-7 * 24 * time.Hour)}, false, false, stepRemove, now},
	}
	for _, c := range cases {
		got, due := nextStep(&c.lane, c.inUse, c.child, now)
		if got != c.want || !due.Equal(c.due) {
			t.Errorf("%s: %q at %s, want %q at %s", c.name, got, due, c.want, c.due)
		}
	}
}

// TestStepsAreComparedAndSwapped: a step that rests on what is no longer so is not
// taken, whoever takes it.
func TestStepsAreComparedAndSwapped(t *testing.T) {
	t.Parallel()
	s := mem.New()
	defer s.Close()
	c, err := New(Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, value string) uint64 {
		t.Helper()
		res, err := s.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: []byte(value)}}})
		if err != nil {
			t.Fatal(err)
		}
		return res.Revision
	}
	load := func() *item {
		t.Helper()
		kvs, rev, err := s.List(t.Context(), root, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		c.cache.load(kvs, rev)
		return c.cache.get(laneRef("green"))
	}
	const lane = `{"name":"green","generation":1,"state":"ready","ttl":"1h","expires":"2026-01-01T00:00:00Z"}`
	leader := put(leaderKey, "me")
	put(laneRef("green").key(), lane)
	it := load()
	step := func(what string, want bool) {
		t.Helper()
		done, err := c.takeStep(t.Context(), it, stepDrain, leader, c.now())
		if err != nil || done != want {
			t.Errorf("%s: step is taken: %t (%v), want %t", what, done, err, want)
		}
	}
	put(usesPrefix+"green", `{"at":"2026-05-01T00:00:00Z"}`)
	load() // the step was decided before
	step("used meanwhile", false)
	it = load()
	put(laneRef("green").key(), lane)
	load()
	step("changed meanwhile", false)
	it = load()
	put(laneRef("top").key(), `{"name":"top","parent":"green","state":"ready","ttl":"1h"}`)
	load()
	step("with a child", false)
	put(laneRef("top").key(), `{"name":"top","parent":"green","state":"draining","ttl":"1h"}`)
	it = load()
	put(leaderKey, "another")
	load()
	step("without the lead", false)
	leader = put(leaderKey, "me")
	load()
	step("as decided", true)
}

func TestSamples(t *testing.T) {
	t.Parallel()
	var s samples
	t0 := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	if s.behind(0, t0) != 0 {
		t.Error("behind without a sample")
	}
	s.add(10, t0)
	s.add(11, t0.Add(5*time.Second))
	s.add(11, t0.Add(7*time.Second)) // seen again: no news
	s.add(20, t0.Add(8*time.Second))
	now := t0.Add(10 * time.Second)
	for reached, want := range map[uint64]time.Duration{20: 0, 30: 0, 19: 2 * time.Second, 11: 2 * time.Second, 10: 5 * time.Second, 3: 10 * time.Second} {
		if got := s.behind(reached, now); got != want {
			t.Errorf("at revision %d: %s behind, want %s", reached, got, want)
		}
	}
	for n := range 100_000 {
		s.add(uint64(100+n), now.Add(time.Duration(n)*time.Second))
	}
	if most := int(maxSampleAge/time.Second) + 2; len(s.list) > most {
		t.Errorf("%d samples are kept, want at most %d", len(s.list), most)
	}
}

// TestHistoryKeepsWholeRevisions: what is cut off is cut between revisions.
func TestHistoryKeepsWholeRevisions(t *testing.T) {
	t.Parallel()
	h := newHub()
	for n := range 3 * maxHistory {
		h.remember(&change{rev: uint64(n/3 + 1)})
		if len(h.history) > maxHistory {
			t.Fatalf("%d changes are kept", len(h.history))
		}
	}
	first := h.history[0].rev
	if h.from != first-1 || h.history[2].rev != first || h.history[3].rev != first+1 {
		t.Errorf("history begins at %d, %d, %d; everything after %d is said to be there", first, h.history[2].rev, h.history[3].rev, h.from)
	}
	if _, ok := h.since(h.from - 1); ok {
		t.Error("a revision that is gone is said to be there")
	}
	list, ok := h.since(first)
	if !ok || list[0].rev != first+1 || len(list) != len(h.history)-3 {
		t.Errorf("after %d: %d changes from %d, of %d", first, len(list), list[0].rev, len(h.history))
	}
}

// TestTwice: a field that stands twice is found, also among so many that they are kept in a map.
func TestTwice(t *testing.T) {
	for _, n := range []int{1, manyKeys - 1, manyKeys, manyKeys + 1, 3 * manyKeys} {
		var labels strings.Builder
		for i := range n {
			fmt.Fprintf(&labels, `"l%d":"",`, i)
		}
		once := fmt.Sprintf(`{"name":"a","service":"b","labels":{%s"x":""}}`, labels.String())
		if err := decode([]byte(once), &laneclient.Instance{}); err != nil {
			t.Errorf("%d labels and another: %v", n, err)
		}
		for _, again := range []int{0, n - 1} {
			body := fmt.Sprintf(`{"name":"a","service":"b","labels":{%s"l%d":""}}`, labels.String(), again)
			err := decode([]byte(body), &laneclient.Instance{})
			if want := fmt.Sprintf("labels.l%d", again); err == nil || len(toProblem(err).Errors) != 1 || toProblem(err).Errors[0].Field != want {
				t.Errorf("%d labels, and %s again: %v", n, want, err)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"name":"green","parent":"blue","ttl":"72h","held":true,"expires":"2026-01-01T00:00:00Z"}`,
		`{"name":"a","service":"b","endpoints":[{"protocol":"thrift","transport":"framed","address":"h:1"}],"labels":{"a":"b"},"weight":3}`,
		`{"match":{"header":{"name":"x"},"user":{"from":"cookie:u","list":["a"]},"method":["GET"]},"lanes":[{"lane":"green","percent":12.5}]}`,
		`{"engine":"main","topics":["a"],"start":"offset:3","retry":["1s"],"reset":{"id":"x","offsets":{"a/0":1}},"partitions":{"a":2}}`,
		`{"topics":["a"],"lane":"green","client":{"name":"c"},"until":"2026-01-01T00:00:00Z"}`, `{"record":{"v":1},"notes":[{"cursor":"","note":null}]}`,
		`{"check":{"interval":"5s"},"endpoints":null}`, `{"a":{"a":{"a":[[[1]]]}}}`, `[`, `null`, `[null]`, `{}{}`, `{"endpoints":[null]}`, ``, `{"ttl":1e400}`, `{"weight":1e400}`, "{\"name\":\"\xff\"}",
		`{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,"m":1,"n":1,"o":1,"p":1,"q":1,"a":1,"q":2}`,
		` { "n\u0061me" : "x" , "name":"y\"" } `, "0\f",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, k := range kinds() {
			obj := k.newObject()
			if err := decode(body, obj); err != nil {
				if p := toProblem(err); p.Status != http.StatusBadRequest && p.Status != http.StatusUnprocessableEntity {
					t.Fatalf("%q is answered with %d: %v", body, p.Status, err)
				}
				continue
			}
			if b := bytes.TrimSpace(body); b[0] != '{' || b[len(b)-1] != '}' {
				t.Fatalf("%q is taken for an object", body)
			}
			faults := &faults{}
			if k.check(obj, faults); len(faults.list) > maxFaults {
				t.Fatalf("%d mistakes", len(faults.list))
			}
			// What is accepted is stored, and what is stored reads as the same.
			stored, err := k.encode(obj, nil)
			if err != nil {
				t.Fatal(err)
			}
			again := k.newObject()
			if err := decode(stored, again); err != nil {
				t.Fatalf("%s cannot be read back: %v", stored, err)
			}
			twice, err := k.encode(again, nil)
			if err != nil || !bytes.Equal(stored, twice) {
				t.Fatalf("%s reads back as %s (%v)", stored, twice, err)
			}
			selectorsOf(k, obj)
		}
	})
}

func FuzzKeepUnknown(f *testing.F) {
	f.Add([]byte(`{"name":"a","owner":"b"}`), []byte(`{"name":"a","mood":1,"check":{"x":2},"endpoints":[{"protocol":"http","y":3}]}`))
	f.Add([]byte(`{"name":"a","endpoints":[{"protocol":"http"}]}`), []byte(`{"endpoints":[null,{"protocol":"http","y":3}]}`))
	f.Add([]byte(`{"name":"a"}`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, now, stored []byte) {
		typ := reflect.TypeFor[laneclient.Service]()
		var obj laneclient.Service
		if decode(now, &obj) != nil || !json.Valid(stored) {
			return
		}
		encoded, err := json.Marshal(&obj)
		if err != nil {
			t.Fatal(err)
		}
		kept := keepUnknown(encoded, stored, typ)
		// What this version knows is as it was written.
		var back laneclient.Service
		if err := json.Unmarshal(kept, &back); err != nil {
			t.Fatalf("%s: %v", kept, err)
		}
		if again, _ := json.Marshal(&back); !bytes.Equal(again, encoded) {
			t.Fatalf("%s has become %s", encoded, again)
		}
		if twice := keepUnknown(encoded, kept, typ); !sameJSON(kept, twice) {
			t.Fatalf("kept once it is %s, twice %s", kept, twice)
		}
	})
}

func sameJSON(a, b []byte) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

func FuzzRequestLine(f *testing.F) {
	for _, seed := range []string{
		"/v1/watch?select=lanes&select=instances:service=order&from=7", "/v1/lanes/%2e%2e", "/v1/lanes?limit=3&after=x&lane=-",
		"//v1//lanes/", "/v1/watch?select=:=", "/v1/explain?service=a&color=green", "/v1/instances/a/b/c/d/e/f/g/h/i/j",
	} {
		f.Add(seed)
	}
	c := newCache(time.Now)
	rt := newRouter((&Control{cache: c}).endpoints())
	f.Fuzz(func(t *testing.T, line string) {
		u, err := url.ParseRequestURI(line)
		if err != nil {
			return
		}
		segments, bad := segmentsOf(u)
		if bad != nil {
			return
		}
		if len(segments) > maxSegments+1 {
			t.Fatalf("%d segments", len(segments))
		}
		for _, s := range segments {
			if s == "" || s == "." || s == ".." || strings.Contains(s, "/") {
				t.Fatalf("%q has the segment %q", line, s)
			}
		}
		rt.find(http.MethodGet, segments)
		query, err := url.ParseQuery(u.RawQuery)
		if err != nil {
			return
		}
		if req, err := c.parseWatch(query); err == nil && (len(req.selected) == 0 || len(req.selected) > maxSelects) {
			t.Fatalf("%q selects %d", line, len(req.selected))
		}
		for _, k := range kinds() {
			if q, err := parseList(k, query); err == nil && (q.limit < 1 || q.limit > maxListLimit) {
				t.Fatalf("%q: limit %d", line, q.limit)
			}
		}
		laneclient.ParseCall(query)
	})
}

// BenchmarkChange: a change costs the same however many watches select others.
func BenchmarkChange(b *testing.B) {
	for _, watches := range []int{1, 10_000} {
		b.Run(map[int]string{1: "1 watch", 10_000: "10000 watches"}[watches], func(b *testing.B) {
			h := newHub()
			for n := range watches {
				sel := selector{laneclient.KindInstances, "service", "s" + string(rune('a'+n%26)) + "x"}
				h.add(&watcher{wake: make(chan struct{}, 1)}, sel.value, map[selector]struct{}{sel: {}})
			}
			k := newCache(time.Now).kinds[laneclient.KindInstances]
			i := &laneclient.Instance{Meta: laneclient.Meta{Name: "a"}, Service: "other"}
			it := &item{ref: instanceRef("other", "a"), body: []byte(`{"name":"a"}`), sels: selectorsOf(k, i)}
			b.ReportAllocs()
			rev := uint64(0)
			for b.Loop() {
				rev++
				h.publish(rev, newChange(rev, it.ref, it, it))
			}
		})
	}
}

// BenchmarkWatchStart: a watch of all lanes and one service begins in a registry of
// 10,000 lanes and 10,000 instances.
func BenchmarkWatchStart(b *testing.B) {
	const n = 10_000
	c := newCache(time.Now)
	var kvs []store.KV
	add := func(r ref, body string) {
		kvs = append(kvs, store.KV{Key: r.key(), Value: []byte(body), ModRevision: uint64(len(kvs) + 1)})
	}
	for i := range n {
		name := fmt.Sprintf("s%d/i%d", i%1000, i)
		add(ref{laneclient.KindInstances, name}, fmt.Sprintf(
			`{"name":"i%d","service":"s%d","lane":"lane%d","state":"ready","endpoints":[{"protocol":"http","address":"127.0.0.1:1"}]}`, i, i%1000, i))
	}
	for i := range n {
		name := fmt.Sprintf("lane%d", i)
		add(laneRef(name), fmt.Sprintf(`{"name":%q,"state":"ready","ttl":"72h","generation":1}`, name))
	}
	c.load(kvs, uint64(len(kvs)))
	req := watchRequest{selected: map[selector]struct{}{
		{kind: laneclient.KindLanes}: {}, {laneclient.KindInstances, "service", "s7"}: {},
	}}
	b.ReportAllocs()
	for b.Loop() {
		w, start, err := c.open(req, "")
		if err != nil || len(start.lines) != n+10 {
			b.Fatal(len(start.lines), err)
		}
		c.hub.remove(w)
	}
}

// TestPanicIsOneRequest: a handler that panics fails one request, with a problem.
func TestPanicIsOneRequest(t *testing.T) {
	t.Parallel()
	c := &Control{metrics: newMetrics(nil), log: slog.New(slog.DiscardHandler), origins: http.NewCrossOriginProtection()}
	c.router = newRouter([]endpoint{{method: "GET", pattern: "/boom", handle: func(http.ResponseWriter, *http.Request, params) error { panic("boom") }}})
	rec := httptest.NewRecorder()
	c.ServeHTTP(rec, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/boom", http.NoBody))
	if rec.Code != http.StatusInternalServerError || strings.Contains(rec.Body.String(), "boom") {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
}
