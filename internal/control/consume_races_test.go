package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/store/mem"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestJoinAndLeaveAtOnce: members that come and go at the same time, at two replicas, leave
// no tombstone where somebody lives, and one where nobody does.
func TestJoinAndLeaveAtOnce(t *testing.T) {
	t.Parallel()
	replicas := startTwo(t)
	r := replicas[0]
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	session := r.session(`{"ttl":"5m"}`)
	const topics = `{"topics":["orders"]}`
	members := func() (live, dead int) {
		var list laneclient.List
		r.must(http.StatusOK, &list, "GET", "/v1/members?group=billing", nil)
		for _, raw := range list.Items {
			var m laneclient.Member
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Fatal(err)
			}
			if m.Session == "" {
				dead++
			} else {
				live++
			}
		}
		return live, dead
	}
	for round := range 30 {
		var wg sync.WaitGroup
		do := func(n int, method, path string, body any) {
			wg.Go(func() {
				for { // one that is always beaten is told to come again
					a := replicas[n%2].do(method, path, body, laneclient.SessionHeader, session.Name)
					if a.status != http.StatusServiceUnavailable {
						if a.status/100 != 2 {
							t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
						}
						return
					}
				}
			})
		}
		for n := range 4 {
			do(n, "PUT", fmt.Sprintf("/v1/members/billing/m%d", n), topics)
		}
		wg.Wait()
		comes := round%2 == 0
		for n := range 4 {
			do(n, "DELETE", fmt.Sprintf("/v1/members/billing/m%d?grace=5m", n), nil)
		}
		if comes {
			do(round/2, "PUT", "/v1/members/billing/new", topics)
		}
		wg.Wait()
		live, dead := members()
		if comes && (live != 1 || dead != 0) {
			t.Fatalf("round %d: %d members and %d tombstones, want 1 and 0", round, live, dead)
		}
		if !comes && (live != 0 || dead != 1) {
			t.Fatalf("round %d: %d members and %d tombstones, want 0 and 1", round, live, dead)
		}
		if comes {
			r.must(http.StatusNoContent, nil, "DELETE", "/v1/members/billing/new", nil)
		}
	}
}

// TestGroupGoesWhole: whatever comes in while a group is deleted, nothing of it is left, and
// none of what belongs to a group that has the name after it is taken.
func TestGroupGoesWhole(t *testing.T) {
	t.Parallel()
	replicas := startTwo(t)
	r := replicas[0]
	session := r.session(`{"ttl":"5m"}`)
	in := []string{laneclient.SessionHeader, session.Name}
	for round := range 20 {
		r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
		var wg sync.WaitGroup
		for n := range 8 {
			wg.Go(func() {
				replicas[n%2].do("PUT", fmt.Sprintf("/v1/cursors/main/billing/orders/%d", n),
					writing(freeRecord, `"notes":[{"cursor":"","note":{"v":1,"pos":1}}]`), append(in, "If-None-Match", "*")...)
			})
		}
		joined := 0
		wg.Go(func() {
			joined = replicas[round%2].do("PUT", "/v1/members/billing/m", `{"topics":["orders"]}`, in...).status
		})
		deleted := 0
		wg.Go(func() { deleted = replicas[1].status("DELETE", "/v1/groups/billing", nil) })
		wg.Wait()
		if (joined/100 == 2) == (deleted == http.StatusNoContent) {
			t.Fatalf("round %d: the member is answered %d, the delete %d", round, joined, deleted)
		}
		if joined/100 == 2 {
			r.must(http.StatusNoContent, nil, "DELETE", "/v1/members/billing/m", nil)
			r.must(http.StatusNoContent, nil, "DELETE", "/v1/groups/billing", nil)
		}
		for _, family := range []string{"notes/", "cursors/", "members/", "membership/", "groups/"} {
			if kvs, _, err := r.store.List(t.Context(), "laneway/"+family, "", 0); err != nil || len(kvs) > 0 {
				t.Fatalf("round %d: of %s there are left %+v, %v", round, family, kvs, err)
			}
		}
	}
}

// overtaken is a store of which one list or one transaction is held up while something
// happens.
type overtaken struct {
	store.Store

	once   sync.Once
	list   string               // the prefix of the list
	writes func(store.Txn) bool // whether it is that transaction
	by     func()
}

func (s *overtaken) List(ctx context.Context, prefix, after string, limit int) ([]store.KV, uint64, error) {
	if s.list != "" && strings.HasPrefix(prefix, s.list) {
		s.once.Do(s.by)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *overtaken) Do(ctx context.Context, txn store.Txn) (store.Result, error) {
	if s.writes != nil && s.writes(txn) {
		s.once.Do(s.by)
	}
	return s.Store.Do(ctx, txn)
}

// TestMembersMissNobody: one that leaves with grace while another joins, or joins while
// another leaves, has decided by what is no longer so, and decides again.
func TestMembersMissNobody(t *testing.T) {
	t.Parallel()
	const leave, join = "/v1/members/billing/a?grace=5m", "/v1/members/billing/b"
	for _, name := range []string{"leave", "join", "last"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := mem.New()
			defer s.Close()
			r := startOver(t, s, control.Config{})
			defer r.stop()
			slow := &overtaken{Store: s}
			late := startOver(t, slow, control.Config{})
			defer late.stop()
			session := r.session(`{"ttl":"5m"}`)
			do := func(r *replica, method, path string) {
				t.Helper()
				if a := r.do(method, path, `{"topics":["orders"]}`, laneclient.SessionHeader, session.Name); a.status/100 != 2 {
					t.Errorf("%s %s: %d %s", method, path, a.status, a.body)
				}
			}
			r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
			do(r, "PUT", "/v1/members/billing/a")
			key := "laneway/members/billing/a"
			if name == "join" {
				key = "laneway/members/billing/b"
			}
			slow.writes = func(txn store.Txn) bool {
				return slices.ContainsFunc(txn.Ops, func(op store.Op) bool { return op.Key == key })
			}
			want := []string{"b " + session.Name}
			switch name {
			case "leave":
				slow.by = func() { do(r, "PUT", join) }
				do(late, "DELETE", leave)
			case "join":
				slow.by = func() { do(r, "DELETE", leave) }
				do(late, "PUT", join)
			case "last": // each of two would leave the topic to the other
				do(r, "PUT", join)
				slow.by = func() { do(r, "DELETE", "/v1/members/billing/b?grace=5m") }
				do(late, "DELETE", leave)
				want = []string{"a "}
			}
			var list laneclient.List
			r.must(http.StatusOK, &list, "GET", "/v1/members?group=billing", nil)
			var got []string
			for _, raw := range list.Items {
				var m laneclient.Member
				if err := json.Unmarshal(raw, &m); err != nil {
					t.Fatal(err)
				}
				got = append(got, m.Name+" "+m.Session)
			}
			if !slices.Equal(got, want) {
				t.Errorf("members are %q, want %q", got, want)
			}
		})
	}
}

// TestGroupIsOvertaken: what a group was checked against has changed when it is written, and is
// looked at again.
func TestGroupIsOvertaken(t *testing.T) {
	t.Parallel()
	const topic, here, there = "/v1/topics/orders", `{"engine":"main"}`, `{"engine":"other"}`
	for name, c := range map[string]struct {
		before, meanwhile func(r *replica)
		status            int
	}{
		"its topic comes, elsewhere": {
			func(*replica) {},
			func(r *replica) { r.must(http.StatusCreated, nil, "PUT", topic, there) },
			http.StatusUnprocessableEntity,
		},
		"its topic is elsewhere": {
			func(r *replica) { r.must(http.StatusCreated, nil, "PUT", topic, here) },
			func(r *replica) {
				r.must(http.StatusNoContent, nil, "DELETE", topic, nil)
				r.must(http.StatusCreated, nil, "PUT", topic, there)
			},
			http.StatusUnprocessableEntity,
		},
		"it is being deleted": {
			func(r *replica) { r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing) },
			func(r *replica) {
				if _, err := r.store.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "laneway/membership/billing", Delete: true}}}); err != nil {
					t.Error(err)
				}
			},
			http.StatusConflict,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			slow := &overtaken{Store: r.store, by: func() { c.meanwhile(r) }, writes: func(txn store.Txn) bool {
				return slices.ContainsFunc(txn.Ops, func(op store.Op) bool { return op.Key == "laneway/groups/billing" })
			}}
			c.before(r)
			late := startOver(t, slow, control.Config{})
			late.refuse(c.status, "PUT", "/v1/groups/billing", `{"engine":"main","topics":["orders"],"paused":true}`)
		})
	}
}

// TestJoinOvertakesDelete: a group is not deleted that has a member by then.
func TestJoinOvertakesDelete(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.session(`{"ttl":"5m"}`)
	const member = "/v1/members/billing/a"
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	slow := &overtaken{
		Store: r.store,
		by: func() {
			r.must(http.StatusCreated, nil, "PUT", member, `{"topics":["orders"]}`, laneclient.SessionHeader, session.Name)
		},
		writes: func(txn store.Txn) bool {
			return slices.ContainsFunc(txn.Ops, func(op store.Op) bool { return op.Key == "laneway/membership/billing" && op.Delete })
		},
	}
	late := startOver(t, slow, control.Config{})
	late.refuse(http.StatusConflict, "DELETE", "/v1/groups/billing", nil)
	r.must(http.StatusOK, nil, "GET", member, nil)
}

// TestDeleteIsOvertaken: a delete of a group takes nothing from another group that has the
// name by then.
func TestDeleteIsOvertaken(t *testing.T) {
	t.Parallel()
	s := mem.New()
	defer s.Close()
	r := startOver(t, s, control.Config{})
	defer r.stop()
	slow := &overtaken{Store: s, list: "laneway/notes/"}
	late := startOver(t, slow, control.Config{})
	defer late.stop()
	session := r.session(`{"ttl":"5m"}`)
	in := []string{laneclient.SessionHeader, session.Name}
	write := func() {
		t.Helper()
		r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
		r.must(http.StatusOK, nil, "PUT", ordersPath, writing(freeRecord, `"notes":[{"cursor":"","note":{"v":1,"pos":7}}]`), append(in, "If-None-Match", "*")...)
	}
	write()
	slow.by = func() {
		r.must(http.StatusNoContent, nil, "DELETE", "/v1/groups/billing", nil)
		write()
		r.must(http.StatusCreated, nil, "PUT", "/v1/members/billing/a", `{"topics":["orders"]}`, in...)
	}
	late.refuse(http.StatusNotFound, "DELETE", "/v1/groups/billing", nil)
	var c laneclient.Cursor
	r.must(http.StatusOK, &c, "GET", ordersPath, nil)
	if len(c.Notes) != 1 || !strings.Contains(string(c.Notes[0].Note), "7") {
		t.Errorf("the new group has %+v", c)
	}
	r.must(http.StatusOK, nil, "GET", "/v1/members/billing/a", nil)
}

// TestDeleteIsCutShort: what one delete of a group has begun, the next one ends; until then
// the group takes nothing.
func TestDeleteIsCutShort(t *testing.T) {
	t.Parallel()
	r := start(t)
	session := r.session(`{"ttl":"5m"}`)
	in := []string{laneclient.SessionHeader, session.Name}
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
	r.must(http.StatusOK, nil, "PUT", ordersPath, writing(freeRecord), append(in, "If-None-Match", "*")...)
	// As one leaves it that ends after its first step.
	if _, err := r.store.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: "laneway/membership/billing", Delete: true}}}); err != nil {
		t.Fatal(err)
	}
	for _, p := range []laneclient.Problem{
		r.refuse(http.StatusConflict, "PUT", "/v1/members/billing/a", `{"topics":["orders"]}`, in...),
		r.refuse(http.StatusConflict, "PUT", "/v1/groups/billing", `{"engine":"main","topics":["orders"],"paused":true}`),
		r.refuse(http.StatusConflict, "PUT", "/v1/cursors/main/billing/orders/1", writing(freeRecord), append(in, "If-None-Match", "*")...),
	} {
		if p.Type != laneclient.ProblemGroup {
			t.Errorf("type %q: %s", p.Type, p.Detail)
		}
	}
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/groups/billing", nil)
	r.refuse(http.StatusNotFound, "GET", ordersPath, nil)
	r.must(http.StatusCreated, nil, "PUT", "/v1/groups/billing", billing)
}
