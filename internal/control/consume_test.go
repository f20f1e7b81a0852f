package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	billing    = `{"engine":"main","topics":["orders"]}`
	ordersPath = "/v1/cursors/main/billing/orders/0"
	freeRecord = `{"v":1,"main":{"holder":null}}`
)

// held is a record whose main cursor a session holds.
func held(session string) string {
	return `{"v":1,"main":{"holder":{"session":"` + session + `"}}}`
}

// writing is the body of a write of a record.
func writing(record string, more ...string) string {
	return `{` + strings.Join(append([]string{`"record":` + record}, more...), ",") + `}`
}

func fieldsOf(p laneclient.Problem) []string {
	var fields []string
	for _, f := range p.Errors {
		fields = append(fields, f.Field)
	}
	return fields
}

func TestConsumeMistakes(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.session(`{"ttl":"5m"}`)
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		path, body string
		fields     []string
	}{
		{"/v1/topics/orders", `{}`, []string{"engine"}},
		{"/v1/topics/orders", `{"engine":"a b"}`, []string{"engine"}},
		{"/v1/topics/orders", `{"engine":"main","partitions":65}`, []string{"partitions"}},
		{"/v1/topics/orders", `{"engine":"main","partitions":-1,"retention":"-1s","durability":"best"}`, []string{"durability", "partitions", "retention"}},
		{"/v1/topics/" + long, `{"engine":"main"}`, []string{"name"}},
		{"/v1/topics/a%20b", `{"engine":"main"}`, []string{"name"}},
		{"/v1/engines/main", `{}`, []string{"address", "scheme"}},
		{"/v1/engines/main", `{"scheme":"nats","address":"nats://h:1","session":"other"}`, []string{"session"}},
		{"/v1/engines/main", `{"scheme":"nats","address":"nats://h:1,nats://u:secret@h:1?prefix=p"}`, []string{"address"}},
		{"/v1/groups/billing", `{"engine":"main"}`, []string{"topics"}},
		{"/v1/groups/" + strings.Repeat("g", 65), billing, []string{"name"}},
		{"/v1/groups/billing", `{"engine":"main","topics":["a","a","b c"]}`, []string{"topics[1]", "topics[2]"}},
		{"/v1/groups/billing", `{"engine":"main","topics":["a"],"start":"soon"}`, []string{"start"}},
		{"/v1/groups/billing", `{"engine":"main","topics":["a"],"start":"offset:-1","retry":["-1s"],"handover_timeout":"1ms","on_registry_loss":"panic"}`, []string{"handover_timeout", "on_registry_loss", "retry[0]", "start"}},
		{"/v1/groups/billing", `{"engine":"main","topics":["a"],"reset":{"offsets":{"a":1,"a/x":1,"a/01":1,"a/1":-1}}}`, []string{"reset.id", "reset.offsets.a", "reset.offsets.a/01", "reset.offsets.a/1", "reset.offsets.a/x"}},
		{"/v1/groups/billing", `{"engine":"main","topics":["a"],"partitions":{"a":0,"b c":1}}`, []string{"partitions.a", "partitions.b c"}},
		{"/v1/members/billing/m", `{}`, []string{"topics"}},
		{"/v1/members/billing/m", `{"topics":["a"],"lane":"No","client":{"name":"` + long + `"},"room":"` + long + `"}`, []string{"client.name", "lane", "room"}},
		{"/v1/members/billing/m", `{"topics":["a"],"group":"other"}`, []string{"group"}},
		{"/v1/members/billing/m", `{"topics":["a"],"session":"other"}`, []string{"session"}},
		{"/v1/members/billing/" + long, `{"topics":["a"]}`, []string{"name"}},
	} {
		p := r.refuse(http.StatusUnprocessableEntity, "PUT", c.path, c.body, laneclient.SessionHeader, s.Name)
		if got := fieldsOf(p); !slices.Equal(got, c.fields) {
			t.Errorf("%s %s: faults are in %q, want %q", c.path, c.body, got, c.fields)
		}
	}
	if p := r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/members/billing/m", `{"topics":["a"]}`); !slices.Equal(fieldsOf(p), []string{laneclient.SessionHeader}) {
		t.Errorf("a member without a session: %+v", p)
	}
	for _, query := range []string{"grace=10", "grace=11m", "grace=-1s", "graze=1s"} {
		r.refuse(http.StatusUnprocessableEntity, "DELETE", "/v1/members/billing/m?"+query, nil)
	}
}

func TestCursorMistakes(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.session(`{"ttl":"5m"}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	many := func(n int, format string) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(format, i)
		}
		return strings.Join(list, ",")
	}
	headers := []string{"If-None-Match", "*", laneclient.SessionHeader, s.Name}
	for _, c := range []struct {
		body   string
		fields []string
	}{
		{`{"record":{}}`, []string{"record"}},
		{`{"record":{"v":2}}`, []string{"record"}},
		{`{"record":7}`, []string{"record"}},
		{`{"record":{"v":1,"colors":{"No":{"from":1,"holder":null}}}}`, []string{"record"}},
		{`{"record":{"v":1,"epoch":"` + strings.Repeat("e", laneclient.MaxRecordBytes) + `"}}`, []string{"record"}},
		{`{"notes":[{"cursor":""}]}`, []string{"notes[0].note"}},
		{`{"notes":[{"cursor":"No","note":null}]}`, []string{"notes[0].cursor"}},
		{`{"notes":[{"cursor":"green","note":null},{"cursor":"green","note":null}]}`, []string{"notes[1].cursor"}},
		{`{"notes":[{"cursor":"","note":{"v":1,"pos":3,"left":[3]}}]}`, []string{"notes[0].note"}},
		{`{"notes":[{"cursor":"","note":null,"revision":3}]}`, []string{"notes[0].revision"}},
		{`{"notes":[{"cursor":"","note":{"v":1,"pos":99999,"left":[` + many(laneclient.MaxNoteLeft+1, "%d") + `]}}]}`, []string{"notes[0].note.left"}},
		{`{"gone":["a b"],"read":["-"]}`, []string{"gone[0]", "read[0]"}},
		{`{"read":[` + many(laneclient.MaxCursorKeys+1, `"c%d"`) + `]}`, []string{"notes"}},
		{`{"moves":[` + many(129, `{"kind":"take%d"}`) + `]}`, []string{"moves"}},
		{`{"notes":{}, "nots":1}`, []string{"notes", "nots"}},
	} {
		p := r.refuse(http.StatusUnprocessableEntity, "PUT", ordersPath, c.body, headers...)
		if got := fieldsOf(p); !slices.Equal(got, c.fields) {
			t.Errorf("%.200s: faults are in %q, want %q", c.body, got, c.fields)
		}
		// In a batch it is refused alone.
		if !strings.HasPrefix(c.body, `{"notes":{}`) {
			var a laneclient.CursorAnswers
			r.must(http.StatusOK, &a, "POST", "/v1/cursors:batch", `{"writes":[{"name":"main/billing/orders/0",`+c.body[1:]+`]}`, laneclient.SessionHeader, s.Name)
			if len(a.Answers) != 1 || a.Answers[0].Status != http.StatusUnprocessableEntity || a.Answers[0].Errors[0].Field != c.fields[0] {
				t.Errorf("%.200s: in a batch it is answered %+v", c.body, a)
			}
		}
	}
	for _, path := range []string{"/v1/cursors/main/billing/orders/x", "/v1/cursors/main/billing/orders/01", "/v1/cursors/main/billing/orders/-1", "/v1/cursors/main/b%20g/orders/1"} {
		r.refuse(http.StatusUnprocessableEntity, "PUT", path, writing(freeRecord), headers...)
	}
	for _, h := range [][]string{nil, {"If-Match", "*"}, {"If-None-Match", "3"}, {"If-Match", "3", "If-None-Match", "*"}, {"If-Match", `"3", "4"`}} {
		r.refuse(http.StatusPreconditionRequired, "PUT", ordersPath, writing(freeRecord), append(h, laneclient.SessionHeader, s.Name)...)
	}
	if p := r.refuse(http.StatusUnprocessableEntity, "PUT", ordersPath, writing(freeRecord), "If-None-Match", "*"); !slices.Equal(fieldsOf(p), []string{laneclient.SessionHeader}) {
		t.Errorf("a write in no session: %+v", p)
	}
	r.refuse(http.StatusUnprocessableEntity, "POST", "/v1/notes", `{"writes":[]}`)
	writes := many(laneclient.MaxCursorBatch+1, `{"name":"main/billing/orders/%d"}`)
	r.refuse(http.StatusUnprocessableEntity, "POST", "/v1/notes", `{"writes":[`+writes+`]}`, laneclient.SessionHeader, s.Name)
	var a laneclient.CursorAnswers
	r.must(http.StatusOK, &a, "POST", "/v1/notes", `{"writes":[{"name":"main/billing/orders/0","record":`+freeRecord+`}]}`, laneclient.SessionHeader, s.Name)
	if len(a.Answers) != 1 || a.Answers[0].Status != http.StatusUnprocessableEntity {
		t.Errorf("a record among notes is answered %+v", a)
	}
	// The largest write that is allowed fits into one transaction.
	r.must(http.StatusOK, nil, "PUT", ordersPath, `{"record":`+freeRecord+`,"notes":[`+
		many(laneclient.MaxCursorKeys, `{"cursor":"color%d","note":{"v":1,"pos":1}}`)+`]}`, headers...)
	r.must(http.StatusOK, nil, "PUT", "/v1/cursors/main/billing/orders/1", `{"record":`+freeRecord+`,"notes":[`+
		many(laneclient.MaxCursorKeys/2, `{"cursor":"color%d","note":{"v":1,"pos":1},"compare":true}`)+`],"gone":[`+
		many(laneclient.MaxCursorKeys/2, `"s%d"`)+`]}`, headers...)
	r.refuse(http.StatusRequestEntityTooLarge, "PUT", ordersPath, `{"record":"`+strings.Repeat("x", 1<<20)+`"}`, headers...)
}

// TestCursorOfNoGroup: nothing is written for a group that is not there, or is elsewhere.
func TestCursorOfNoGroup(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.session(`{"ttl":"5m"}`)
	headers := []string{"If-None-Match", "*", laneclient.SessionHeader, s.Name}
	for range 2 {
		p := r.refuse(http.StatusConflict, "PUT", ordersPath, writing(freeRecord), headers...)
		m := r.refuse(http.StatusConflict, "PUT", "/v1/members/billing/m", `{"topics":["orders"]}`, laneclient.SessionHeader, s.Name)
		if p.Type != laneclient.ProblemGroup || m.Type != laneclient.ProblemGroup {
			t.Errorf("types are %q and %q", p.Type, m.Type)
		}
		r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
		if p := r.refuse(http.StatusConflict, "PUT", "/v1/cursors/other/billing/orders/0", writing(freeRecord), headers...); p.Type != laneclient.ProblemGroup {
			t.Errorf("on another engine: type %q", p.Type)
		}
		r.must(http.StatusOK, nil, "PUT", ordersPath, writing(freeRecord), headers...)
		r.must(http.StatusNoContent, nil, "DELETE", "/v1/groups/billing", nil)
	}
	r.refuse(http.StatusNotFound, "GET", ordersPath, nil)
	r.refuse(http.StatusNotFound, "DELETE", "/v1/groups/billing", nil)
}

// TestRefusedCursor: who is refused learns what there is, also one whose session has ended;
// fields that this version does not know are kept.
func TestRefusedCursor(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	a, b := r.session(`{"ttl":"5m"}`), r.session(`{"ttl":"5m"}`)
	const record = `{"v":1,"main":{"holder":{"session":"x","new":1},"more":2},"colors":{"green":{"from":3,"holder":null,"new":[1]}},"extra":{"k":null}}`
	const note = `{"v":1,"pos":5,"left":[1,3],"later":"x"}`
	var done laneclient.CursorDone
	r.must(http.StatusOK, &done, "PUT", ordersPath, writing(record, `"notes":[{"cursor":"green","note":`+note+`,"compare":true}]`, `"read":["blue",""]`),
		"If-None-Match", "*", laneclient.SessionHeader, a.Name)
	if len(done.Notes) != 3 || done.Notes[0].Revision != done.Revision || done.Notes[1].Cursor != "blue" || done.Notes[1].Revision != 0 {
		t.Errorf("answered %+v", done)
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+b.Name, nil)
	for _, c := range []struct {
		name, session string
		headers       []string
		status        int
		problem       string
	}{
		{"another revision", a.Name, []string{"If-None-Match", "*"}, http.StatusPreconditionFailed, laneclient.ProblemChanged},
		{"the session has ended", b.Name, []string{"If-Match", etagOf(done.Revision)}, http.StatusConflict, laneclient.ProblemSessionGone},
		{"there never was such a session", "nobody", []string{"If-Match", etagOf(done.Revision)}, http.StatusConflict, laneclient.ProblemSessionGone},
	} {
		p := r.refuse(c.status, "PUT", ordersPath, writing(freeRecord, `"read":["green"]`), append(c.headers, laneclient.SessionHeader, c.session)...)
		var got laneclient.Cursor
		if err := json.Unmarshal(p.Current, &got); err != nil {
			t.Fatal(err)
		}
		if p.Type != c.problem || got.Revision != done.Revision || string(got.Record) != record || len(got.Notes) != 1 ||
			string(got.Notes[0].Note) != note || got.Notes[0].Revision != done.Revision || got.Group != "billing" {
			t.Errorf("%s: refused with %s, and current is %s", c.name, p.Type, p.Current)
		}
	}
	var shown laneclient.Cursor
	answer := r.must(http.StatusOK, &shown, "GET", ordersPath, nil)
	if string(shown.Record) != record || len(shown.Notes) != 2 || string(shown.Notes[1].Note) != note || answer.header.Get("ETag") != etagOf(done.Revision) {
		t.Errorf("shown is %s", answer.body)
	}
}

// TestBatchOfCursors: each write of a batch is answered by itself.
func TestBatchOfCursors(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	s := r.session(`{"ttl":"5m"}`)
	var batch laneclient.CursorBatch
	for n := range laneclient.MaxCursorBatch {
		w := laneclient.CursorBatchWrite{Name: laneclient.CursorName("main", "billing", "orders", n)}
		w.Record = json.RawMessage(held(s.Name))
		if n%3 == 1 {
			w.IfRevision = 7 // there is none
		}
		batch.Writes = append(batch.Writes, w)
	}
	var a laneclient.CursorAnswers
	r.must(http.StatusOK, &a, "POST", "/v1/cursors:batch", batch, laneclient.SessionHeader, s.Name)
	if len(a.Answers) != len(batch.Writes) {
		t.Fatalf("%d answers", len(a.Answers))
	}
	for n, answer := range a.Answers {
		if n%3 == 1 {
			if answer.Status != http.StatusPreconditionFailed || answer.Type != laneclient.ProblemChanged || answer.Revision != 0 || answer.Detail == "" {
				t.Errorf("write %d is answered %+v", n, answer)
			}
			continue
		}
		var c laneclient.Cursor
		r.must(http.StatusOK, &c, "GET", "/v1/cursors/"+batch.Writes[n].Name, nil)
		if answer.Status != http.StatusOK || answer.Revision != c.Revision || string(c.Record) != held(s.Name) {
			t.Errorf("write %d is answered %+v, and there is %+v", n, answer, c)
		}
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+s.Name, nil)
	r.must(http.StatusOK, &a, "POST", "/v1/notes", `{"writes":[{"name":"main/billing/orders/0","if_revision":1,"notes":[{"cursor":"","note":{"v":1,"pos":1}}]}]}`,
		laneclient.SessionHeader, s.Name)
	if got := a.Answers[0]; got.Status != http.StatusConflict || got.Type != laneclient.ProblemSessionGone || string(got.Record) != held(s.Name) {
		t.Errorf("a session that has ended is answered %+v", got)
	}
}

// TestBrokenRecordInABatch: a record that is stored and cannot be read fails the writes of its
// partition alone.
func TestBrokenRecordInABatch(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	s := r.session(`{"ttl":"5m"}`)
	broken := store.Op{Key: "laneway/cursors/main/billing/orders/0", Value: []byte(`{"v":1,`)}
	if _, err := r.store.Do(t.Context(), store.Txn{Ops: []store.Op{broken}}); err != nil {
		t.Fatal(err)
	}
	var a laneclient.CursorAnswers
	r.must(http.StatusOK, &a, "POST", "/v1/cursors:batch", `{"writes":[{"name":"main/billing/orders/0","record":`+freeRecord+`},`+
		`{"name":"main/billing/orders/1","record":`+freeRecord+`}]}`, laneclient.SessionHeader, s.Name)
	if len(a.Answers) != 2 || a.Answers[0].Status != http.StatusInternalServerError || a.Answers[1].Status != http.StatusOK {
		t.Errorf("answered %+v", a.Answers)
	}
	r.refuse(http.StatusInternalServerError, "PUT", ordersPath, writing(freeRecord), "If-None-Match", "*", laneclient.SessionHeader, s.Name)
}

// TestMembersEndWithTheirSession: in the very revision in which it does.
func TestMembersEndWithTheirSession(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	s := r.session(`{"ttl":"5m"}`)
	var m laneclient.Member
	r.must(http.StatusCreated, &m, "PUT", "/v1/members/billing/a", `{"topics":["orders"],"lane":"green","generation":7,"until":"2030-01-01T00:00:00Z"}`, laneclient.SessionHeader, s.Name)
	if m.Generation != 1 || m.Session != s.Name || m.Engine != "main" || m.Group != "billing" || !m.Until.IsZero() || m.Since.IsZero() {
		t.Errorf("member is %+v", m)
	}
	r.until("the lane to be ready", func() bool { return r.lane("green").State == "ready" })
	w := r.watch("select=members:group=billing&select=sessions&select=groups:name=billing")
	w.want("put groups billing")
	w.want("put sessions " + s.Name)
	w.want("put members billing/a")
	w.want("synced")
	// What was read can be written back, and changes nothing.
	var again laneclient.Member
	r.must(http.StatusOK, &again, "PUT", "/v1/members/billing/a", m, laneclient.SessionHeader, s.Name)
	if again.Revision != m.Revision {
		t.Error("written back it has another revision")
	}
	other := r.session(`{"ttl":"5m"}`)
	w.want("put sessions " + other.Name)
	r.refuse(http.StatusConflict, "DELETE", "/v1/members/billing/a", nil, laneclient.SessionHeader, other.Name)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+s.Name, nil)
	first, _ := w.next()
	second, _ := w.next()
	if first.Type != laneclient.EventDelete || second.Type != laneclient.EventDelete || first.Revision != second.Revision || first.Kind == second.Kind {
		t.Errorf("the session's end is told as %+v and %+v", first, second)
	}
	if p := r.refuse(http.StatusConflict, "PUT", "/v1/members/billing/a", `{"topics":["orders"]}`, laneclient.SessionHeader, s.Name); p.Type != laneclient.ProblemSessionGone {
		t.Errorf("type %q", p.Type)
	}
	r.must(http.StatusOK, nil, "DELETE", "/v1/lanes/green", nil)
	if p := r.refuse(http.StatusConflict, "PUT", "/v1/members/billing/b", `{"topics":["orders"],"lane":"green"}`, laneclient.SessionHeader, other.Name); p.Type != laneclient.ProblemLane {
		t.Errorf("a lane that drains: type %q", p.Type)
	}
	if p := r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/members/billing/b", `{"topics":["orders"],"lane":"grey"}`, laneclient.SessionHeader, other.Name); p.Type != laneclient.ProblemLane {
		t.Errorf("a lane that is not there: type %q", p.Type)
	}
}

// TestListsOfGroups: lists choose by group, topic and engine.
func TestListsOfGroups(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.session(`{"ttl":"5m"}`)
	in := []string{laneclient.SessionHeader, session.Name}
	for _, group := range []string{"billing", "ledger"} {
		r.must(http.StatusCreated, nil, "PUT", "/v1/groups/"+group, `{"engine":"`+group+`","topics":["orders","`+group+`"]}`)
		for _, topic := range []string{"orders", group} {
			for n := range 3 {
				r.must(http.StatusOK, nil, "PUT", "/v1/cursors/"+laneclient.CursorName(group, group, topic, n), writing(freeRecord), append(in, "If-None-Match", "*")...)
			}
		}
		r.must(http.StatusCreated, nil, "PUT", "/v1/members/"+group+"/a", `{"topics":["orders"]}`, in...)
	}
	api := laneclient.NewAPI(laneclient.Config{Control: []string{r.base}, Transport: r.http.Transport})
	cursors := func(o laneclient.ListOptions) int {
		t.Helper()
		o.PageSize = 2
		list, _, err := laneclient.ListAll[laneclient.Cursor](t.Context(), api, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if o.Group != "" && c.Group != o.Group || o.Topic != "" && c.Topic != o.Topic || o.Engine != "" && c.Engine != o.Engine {
				t.Errorf("among those of %+v is %s", o, c.Name)
			}
		}
		return len(list)
	}
	got := []int{
		cursors(laneclient.ListOptions{}), cursors(laneclient.ListOptions{Group: "billing"}), cursors(laneclient.ListOptions{Topic: "orders"}),
		cursors(laneclient.ListOptions{Group: "ledger", Topic: "ledger"}), cursors(laneclient.ListOptions{Group: "billing", Engine: "ledger"}),
		cursors(laneclient.ListOptions{Engine: "ledger"}), cursors(laneclient.ListOptions{Group: "nobody"}),
	}
	if want := []int{12, 6, 6, 3, 0, 6, 0}; !slices.Equal(got, want) {
		t.Errorf("there are %d cursors, want %d", got, want)
	}
	members, _, err := laneclient.ListAll[laneclient.Member](t.Context(), api, laneclient.ListOptions{Group: "ledger"})
	if err != nil || len(members) != 1 || members[0].Engine != "ledger" {
		t.Errorf("members are %+v, %v", members, err)
	}
	groups, _, err := laneclient.ListAll[laneclient.Group](t.Context(), api, laneclient.ListOptions{Topic: "billing"})
	if err != nil || len(groups) != 1 || groups[0].Name != "billing" {
		t.Errorf("groups are %+v, %v", groups, err)
	}
	r.refuse(http.StatusUnprocessableEntity, "GET", "/v1/topics?group=billing", nil)
}

// TestGroupIsInUse: a group with members and a topic with groups stay; a group's cursors,
// notes and tombstones go with it.
func TestGroupIsInUse(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/topics/orders", `{"engine":"main","partitions":2}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/topics/else", `{"engine":"other"}`)
	r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/topics/orders", `{"engine":"other","partitions":2}`)
	r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/topics/orders", `{"engine":"main"}`)
	r.must(http.StatusOK, nil, "PUT", "/v1/topics/orders", `{"engine":"main","partitions":3}`)
	r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/groups/billing", `{"engine":"main","topics":["orders","else"]}`)
	var g laneclient.Group
	r.must(http.StatusCreated, &g, "PUT", "/v1/groups/billing", billing)
	if g.Start != "earliest" || g.OnRegistryLoss != "continue" || time.Duration(g.HandoverTimeout) != laneclient.DefaultHandover {
		t.Errorf("defaults are %+v", g)
	}
	r.must(http.StatusCreated, &g, "PUT", "/v1/groups/ledger", `{"engine":"main","topics":["other"],"ordered":true}`)
	if g.OnRegistryLoss != "hold" {
		t.Errorf("an ordered group is to %q", g.OnRegistryLoss)
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/groups/ledger", nil)
	r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/groups/billing", `{"engine":"other","topics":["orders"]}`)
	if p := r.refuse(http.StatusConflict, "DELETE", "/v1/topics/orders", nil); !strings.Contains(p.Detail, "billing") {
		t.Errorf("the topic stays: %q", p.Detail)
	}
	s := r.session(`{"ttl":"5m"}`)
	in := []string{laneclient.SessionHeader, s.Name}
	r.must(http.StatusCreated, nil, "PUT", "/v1/members/billing/a", `{"topics":["orders"]}`, in...)
	if p := r.refuse(http.StatusConflict, "DELETE", "/v1/groups/billing", nil); !strings.Contains(p.Detail, "billing/a") {
		t.Errorf("the group stays: %q", p.Detail)
	}
	for n := range 3 {
		r.must(http.StatusOK, nil, "PUT", fmt.Sprintf("/v1/cursors/main/billing/orders/%d", n),
			writing(freeRecord, `"notes":[{"cursor":"","note":{"v":1,"pos":1}},{"cursor":"green","note":{"v":1,"pos":1}}]`), append(in, "If-None-Match", "*")...)
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/members/billing/a?grace=10m", nil, in...)
	w := r.watch("select=cursors:group=billing&select=members:group=billing&select=groups:name=billing&select=topics:name=orders")
	for range 6 {
		w.next() // the topic, the group, three records, the tombstone
	}
	w.want("synced")
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/groups/billing", nil)
	for n := range 3 {
		w.want(fmt.Sprintf("delete cursors main/billing/orders/%d", n))
	}
	w.want("delete members billing/a")
	w.want("delete groups billing")
	for _, family := range []string{"notes/", "cursors/", "members/", "membership/", "tombstones/", "groups/"} {
		if kvs, _, err := r.store.List(t.Context(), "laneway/"+family, "", 0); err != nil || len(kvs) > 0 {
			t.Errorf("of %s there are left %+v, %v", family, kvs, err)
		}
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/topics/orders", nil)
	if kvs, _, err := r.store.List(t.Context(), "laneway/topicuses/", "", 0); err != nil || len(kvs) > 1 { // of "other", which no object describes, there is none
		t.Errorf("left are %+v, %v", kvs, err)
	}
}

// TestEngineHasOneServer: nobody else embeds an engine of the same name meanwhile.
func TestEngineHasOneServer(t *testing.T) {
	t.Parallel()
	r := start(t)
	a, b := r.session(`{"ttl":"5m"}`), r.session(`{"ttl":"5m"}`)
	const one, two = `{"scheme":"nats","address":"nats://127.0.0.1:1"}`, `{"scheme":"nats","address":"nats://127.0.0.1:2"}`
	const path = "/v1/engines/main"
	r.must(http.StatusCreated, nil, "PUT", path, one, laneclient.SessionHeader, a.Name)
	for _, headers := range [][]string{nil, {laneclient.SessionHeader, b.Name}} {
		p := r.refuse(http.StatusConflict, "PUT", path, two, headers...)
		if p.Type != laneclient.ProblemExists || !strings.Contains(p.Detail, "127.0.0.1:1") || p.Current == nil {
			t.Errorf("refused with %+v", p)
		}
	}
	r.must(http.StatusOK, nil, "PUT", path, two, laneclient.SessionHeader, a.Name)
	r.refuse(http.StatusConflict, "DELETE", path, nil, laneclient.SessionHeader, b.Name)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+a.Name, nil)
	r.refuse(http.StatusNotFound, "GET", path, nil)
	r.must(http.StatusCreated, nil, "PUT", path, two, laneclient.SessionHeader, b.Name)
	r.must(http.StatusNoContent, nil, "DELETE", path, nil, laneclient.SessionHeader, b.Name)
	r.must(http.StatusCreated, nil, "PUT", path, one)
	r.must(http.StatusOK, nil, "PUT", path, two)
	if p := r.refuse(http.StatusConflict, "PUT", path, one, laneclient.SessionHeader, b.Name); p.Type != laneclient.ProblemExists {
		t.Errorf("an external one: type %q", p.Type)
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+b.Name, nil)
	r.must(http.StatusNoContent, nil, "DELETE", path, nil)
}

// TestSinceStays: an engine or a member that is written again by its session is there since it
// was written first; one that another session writes, since then.
func TestSinceStays(t *testing.T) {
	t.Parallel()
	var ahead atomic.Int64 // of the true time
	s := mem.New()
	t.Cleanup(func() { _ = s.Close() })
	r := startOver(t, s, control.Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
	a, b := r.session(`{"ttl":"5m"}`), r.session(`{"ttl":"5m"}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	put := func(path, body string, headers ...string) time.Time {
		t.Helper()
		var out struct {
			Since time.Time `json:"since"`
		}
		if answered := r.do("PUT", path, body, headers...); answered.status/100 != 2 || json.Unmarshal(answered.body, &out) != nil || out.Since.IsZero() {
			t.Fatalf("PUT %s: %d %s", path, answered.status, answered.body)
		}
		ahead.Add(int64(time.Hour))
		return out.Since
	}
	const nats = `{"scheme":"nats","address":"nats://127.0.0.1:`
	mine, theirs := []string{laneclient.SessionHeader, a.Name}, []string{laneclient.SessionHeader, b.Name}
	for _, c := range []struct {
		path, first, second string
		headers             []string
	}{
		{"/v1/engines/embedded", nats + `1"}`, nats + `2"}`, mine},
		{"/v1/engines/external", nats + `1"}`, nats + `2"}`, nil},
		{"/v1/members/billing/m", `{"topics":["orders"]}`, `{"topics":["orders"],"room":"r1"}`, mine},
	} {
		first := put(c.path, c.first, c.headers...)
		if second := put(c.path, c.second, c.headers...); !second.Equal(first) {
			t.Errorf("%s is there since %s, and when it was written again since %s", c.path, first, second)
		}
	}
	first := put("/v1/members/billing/m", `{"topics":["orders"]}`, mine...)
	if taken := put("/v1/members/billing/m", `{"topics":["orders"]}`, theirs...); taken.Sub(first) < time.Hour {
		t.Errorf("a member that another session writes is there since %s, and was before since %s", taken, first)
	}
}

// TestNotesAreNotWatched: no watch is told of notes, and reads get past them at once.
func TestNotesAreNotWatched(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	s := r.session(`{"ttl":"5m"}`)
	var done laneclient.CursorDone
	r.must(http.StatusOK, &done, "PUT", ordersPath, writing(held(s.Name)), "If-None-Match", "*", laneclient.SessionHeader, s.Name)
	w := r.watch("select=cursors&select=groups")
	w.want("put groups billing")
	w.want("put cursors main/billing/orders/0")
	w.want("synced")
	const notes = 20 * laneclient.MaxCursorBatch
	for n := range notes / laneclient.MaxCursorBatch {
		var batch laneclient.CursorBatch
		for i := range laneclient.MaxCursorBatch {
			batch.Writes = append(batch.Writes, laneclient.CursorBatchWrite{
				Name: "main/billing/orders/0", IfRevision: done.Revision,
				CursorWrite: laneclient.CursorWrite{Notes: []laneclient.NoteWrite{{Note: json.RawMessage(fmt.Sprintf(`{"v":1,"pos":%d}`, n*100+i))}}},
			})
		}
		var a laneclient.CursorAnswers
		r.must(http.StatusOK, &a, "POST", "/v1/notes", batch, laneclient.SessionHeader, s.Name)
		for _, answer := range a.Answers {
			if answer.Status != http.StatusOK || answer.Revision != done.Revision {
				t.Fatalf("a note is answered %+v", answer)
			}
		}
	}
	var list laneclient.List
	r.must(http.StatusOK, &list, "GET", "/v1/cursors?group=billing", nil)
	if list.Revision < done.Revision+notes || len(list.Items) != 1 || strings.Contains(string(list.Items[0]), "pos") {
		t.Errorf("at %d the list is %s", list.Revision, list.Items)
	}
	r.must(http.StatusOK, nil, "PUT", "/v1/groups/billing", `{"engine":"main","topics":["orders"],"paused":true}`)
	w.want("put groups billing")
	late := r.watch(fmt.Sprintf("select=cursors&select=groups&from=%d", done.Revision))
	late.want("put groups billing")
	late.want("synced")
}

// TestProgressFollowsRecords: a watch that has told of a record tells at once how far it has
// got, before it tells of another one.
func TestProgressFollowsRecords(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	s := r.session(`{"ttl":"5m"}`)
	w := r.watch("select=cursors:group=billing")
	w.want("synced")
	in := []string{laneclient.SessionHeader, s.Name, "If-None-Match", "*"}
	r.must(http.StatusOK, nil, "PUT", ordersPath, writing(freeRecord), in...)
	for n := range 20 {
		put := w.want(fmt.Sprintf("put cursors main/billing/orders/%d", n))
		r.must(http.StatusOK, nil, "PUT", fmt.Sprintf("/v1/cursors/main/billing/orders/%d", n+1), writing(freeRecord), in...)
		if e := <-w.lines; e.Type != laneclient.EventProgress || e.Revision < put.Revision {
			t.Fatalf("after the record at %d comes %s at %d", put.Revision, e.Type, e.Revision)
		}
	}
}
