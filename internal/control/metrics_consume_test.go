package control_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// series are all that /metrics shows whose names begin with one of prefixes, with their values.
func (r *replica) series(prefixes ...string) map[string]string {
	r.t.Helper()
	out := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(string(r.must(http.StatusOK, nil, "GET", "/metrics", nil).body)))
	for lines.Scan() {
		at := strings.LastIndex(lines.Text(), " ")
		for _, p := range prefixes {
			if strings.HasPrefix(lines.Text(), p) && !strings.Contains(lines.Text(), "_bucket{") {
				out[lines.Text()[:at]] = lines.Text()[at+1:]
			}
		}
	}
	return out
}

func (r *replica) wantSeries(got, want map[string]string) {
	r.t.Helper()
	for name, value := range want {
		if got[name] != value {
			r.t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	for name, value := range got {
		if _, wanted := want[name]; !wanted {
			r.t.Errorf("there is %s, which is %s", name, value)
		}
	}
}

// TestCursorMetrics: moves are counted by what became of them and by group, with words of
// closed lists; notes, members and cursors by group; and what is of a group goes with it.
func TestCursorMetrics(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	s := r.session(`{"ttl":"5m"}`)
	headers := func(more ...string) []string { return append(more, laneclient.SessionHeader, s.Name) }
	r.must(http.StatusCreated, nil, "PUT", "/v1/members/billing/a", `{"topics":["orders"]}`, headers()...)
	record := `{"v":1,"main":{"holder":{"session":"` + s.Name + `"}},"colors":{"green":{"from":3,"holder":null},"blue":{"from":4,"holder":{"session":"gone"}}}}`
	moves := `"moves":[{"kind":"create","why":"new-group"},{"kind":"take","why":"nobody-holds-it"},{"kind":"take","cursor":"green","why":"nobody-holds-it"}]`
	notes := `"notes":[{"cursor":"","note":{"v":1,"pos":1}},{"cursor":"green","note":{"v":1,"pos":3}}]`
	var done laneclient.CursorDone
	r.must(http.StatusOK, &done, "PUT", ordersPath, writing(record, moves, notes), headers("If-None-Match", "*")...)
	// Again: what it rests on has changed.
	r.refuse(http.StatusPreconditionFailed, "PUT", ordersPath, writing(record, moves), headers("If-None-Match", "*")...)
	// Words that are no move's, of a session that has ended; a group that is not there; a mistake.
	made := `"moves":[{"kind":"made-up","why":"made up, too"}]`
	r.refuse(http.StatusConflict, "PUT", ordersPath, writing(record, made), "If-Match", etagOf(done.Revision), laneclient.SessionHeader, "nobody")
	r.refuse(http.StatusConflict, "PUT", "/v1/cursors/main/shipping/orders/0", writing(record), headers("If-None-Match", "*")...)
	var a laneclient.CursorAnswers
	r.must(http.StatusOK, &a, "POST", "/v1/notes", `{"writes":[{"name":"main/billing/orders/0","if_revision":`+fmt.Sprint(done.Revision)+
		`,"notes":[{"cursor":"","note":{"v":1,"pos":2}}]},{"name":"main/billing/orders/0","notes":[{"cursor":"No","note":null}]}]}`, headers()...)
	if a.Answers[0].Status != http.StatusOK || a.Answers[1].Status != http.StatusUnprocessableEntity {
		t.Fatalf("answered %+v", a.Answers)
	}
	want := map[string]string{
		`laneway_cursor_writes_total{outcome="done"}`:                                         "2",
		`laneway_cursor_writes_total{outcome="conflict"}`:                                     "1",
		`laneway_cursor_writes_total{outcome="refused"}`:                                      "3",
		`laneway_cursor_writes_total{outcome="unknown"}`:                                      "0",
		`laneway_cursor_moves_total{kind="create",outcome="done",reason="new-group"}`:         "1",
		`laneway_cursor_moves_total{kind="take",outcome="done",reason="nobody-holds-it"}`:     "2",
		`laneway_cursor_moves_total{kind="create",outcome="conflict",reason="new-group"}`:     "1",
		`laneway_cursor_moves_total{kind="take",outcome="conflict",reason="nobody-holds-it"}`: "2",
		`laneway_cursor_moves_total{kind="other",outcome="refused",reason="other"}`:           "1",
		`laneway_cursor_write_seconds_count`:                                                  "5",
		`laneway_group_moves_total{group="billing",kind="create"}`:                            "1",
		`laneway_group_moves_total{group="billing",kind="take"}`:                              "2",
		`laneway_group_notes_total{group="billing"}`:                                          "3",
		`laneway_group_members{group="billing"}`:                                              "1",
		`laneway_group_cursors{group="billing",state="held"}`:                                 "1",
		`laneway_group_cursors{group="billing",state="free"}`:                                 "2",
	}
	// The cache is behind the store by a moment.
	r.until("the cursors to be in the cache", func() bool {
		return r.series("laneway_group_cursors")[`laneway_group_cursors{group="billing",state="free"}`] == "2"
	})
	got := r.series("laneway_cursor_", "laneway_group_")
	delete(got, "laneway_cursor_write_seconds_sum") // some time
	r.wantSeries(got, want)

	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+s.Name, nil)
	r.until("nobody to hold a cursor, and no member to live", func() bool {
		got := r.series("laneway_group_")
		return got[`laneway_group_cursors{group="billing",state="free"}`] == "3" && got[`laneway_group_members{group="billing"}`] == "0"
	})
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/groups/billing", nil)
	r.until("the group's series to be gone", func() bool { return len(r.series("laneway_group_")) == 0 })
	if got := r.series("laneway_cursor_moves_total"); len(got) != 5 {
		t.Errorf("moves after the group's end are %v, want all that there were", got)
	}
}

// TestCursorMetricsInDoubt: a write that the registry does not answer is neither done nor
// refused.
func TestCursorMetricsInDoubt(t *testing.T) {
	t.Parallel()
	r, f := startFaulty(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	session := r.session(`{"ttl":"5m"}`)
	f.fail(&f.writes, store.ErrUnavailable)
	defer f.fail(&f.writes, nil)
	r.refuse(http.StatusServiceUnavailable, "PUT", ordersPath, writing(freeRecord), "If-None-Match", "*", laneclient.SessionHeader, session.Name)
	if got := r.series("laneway_cursor_writes_total")[`laneway_cursor_writes_total{outcome="unknown"}`]; got != "1" {
		t.Errorf("%s writes are not known, want 1", got)
	}
}

// TestGroupSeriesAreBounded: past 1,000 groups the rest share series.
func TestGroupSeriesAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t)
	const groups = 1003
	var txn store.Txn
	for n := range groups {
		if txn.Ops = append(txn.Ops, store.Op{
			Key: fmt.Sprintf("laneway/groups/g%04d", n), Value: []byte(`{"engine":"main","topics":["orders"]}`),
		}); len(txn.Ops) == 100 || n == groups-1 {
			if _, err := r.store.Do(t.Context(), txn); err != nil {
				t.Fatal(err)
			}
			txn = store.Txn{}
		}
	}
	r.until("all groups to be known", func() bool {
		return r.series("laneway_objects")[`laneway_objects{kind="groups"}`] == fmt.Sprint(groups)
	})
	got := r.series("laneway_group_members")
	if len(got) != 1001 || got[`laneway_group_members{group="*"}`] != "0" {
		t.Errorf("%d series of members, want those of 1,000 groups and one for the rest", len(got))
	}
}
