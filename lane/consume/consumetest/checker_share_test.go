package consumetest

import (
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// TestCheckerShares gives the checker states in which all is quiet, and who holds a cursor is not who
// should hold it.
func TestCheckerShares(t *testing.T) {
	for _, tt := range []struct {
		name, what string
		held       string   // by whom main of each partition is
		rooms      []string // of the partitions
		p, q       string   // their rooms
		member     func(*consume.Member)
	}{
		{name: "one each", held: "pq"},
		{name: "one more than another", held: "pqp"},
		{name: "two more than another", held: "pqpp", what: `held by p, which holds 3, and q holds 1`},
		{name: "all by one", held: "qq", what: "which holds 2, and p holds 0"},
		{name: "in its room", held: "p", rooms: []string{"east"}, p: "east", q: "west"},
		{name: "in another room", held: "q", rooms: []string{"east"}, p: "east", q: "west", what: `held by "q", and to be held by one of [p]`},
		{name: "its room is empty", held: "q", rooms: []string{"north"}, p: "east", q: "west"},
		{name: "no room", held: "q", rooms: []string{""}, p: "east", q: "west"},
		{name: "its room before evenness", held: "ppp", rooms: []string{"east", "east", "east"}, p: "east", q: "west"},
		{name: "evenly in its room", held: "pp", rooms: []string{"east", "east"}, p: "east", q: "east", what: "which holds 2"},
		{
			name: "the other one is of an older generation of the lane", held: "pp",
			member: func(m *consume.Member) { m.Lane, m.Generation = "red", 0 },
		},
		{
			name: "the other one reads something else", held: "pp",
			member: func(m *consume.Member) { m.Topics = []string{"mails"} },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(func(c *consume.Config) { c.Topics[0].Retry, c.Topics[0].Dead = "", "" })
			n := int32(len(tt.held))
			h.k.told(h.p, 0, &consume.Partitioned{Topic: "orders", Count: n, Rooms: tt.rooms})
			for i, who := range tt.held {
				a := h.p
				if who == 'q' {
					a = h.q
				}
				h.k.groups[0].part(consume.Partition{Topic: "orders", Index: int32(i)}).record = record(a)
			}
			tg := truthGroup{partitions: map[string]int32{"orders": n}, members: []consume.Member{
				{ID: "p", Session: "p", Topics: []string{"orders"}, Room: tt.p}, {ID: "q", Session: "q", Topics: []string{"orders"}, Room: tt.q},
			}}
			if tt.member != nil {
				tt.member(&tg.members[1])
			}
			at := &truth{lanes: h.p.view.Lanes, alive: func(s string) bool { return h.alive[s] }}
			got := h.k.sharesAtRest(at, &tg, h.k.groups[0])
			switch {
			case tt.what == "" && got != nil:
				t.Errorf("got %s: %s, want nothing missing", got.rule, got.what)
			case tt.what != "" && (got == nil || got.rule != "BALANCE" || !strings.Contains(got.what, tt.what)):
				t.Errorf("got %+v, want BALANCE with %q", got, tt.what)
			}
		})
	}
}

// TestCheckerSharesOfALane: a color that goes with main counts for nobody, one of a lane for its holder.
func TestCheckerSharesOfALane(t *testing.T) {
	h := newHistory(nil)
	tg := truthGroup{partitions: map[string]int32{"orders": 2}}
	for _, a := range []*actor{h.p, h.q} {
		for _, l := range []lane.Name{lane.Baseline, "red"} {
			m := consume.Member{ID: a.name + string(l), Session: a.name, Lane: l, Topics: []string{"orders"}}
			if l != lane.Baseline {
				m.Generation = 1
			}
			tg.members = append(tg.members, m)
		}
	}
	at := &truth{lanes: h.p.view.Lanes, alive: func(s string) bool { return h.alive[s] }}
	for i, a := range []*actor{h.p, h.q} {
		h.k.groups[0].part(consume.Partition{Topic: "orders", Index: int32(i)}).record = split(split(record(a), "red", 0, h.p, "red"), "nobody", 0, a, lane.Baseline)
	}
	if m := h.k.sharesAtRest(at, &tg, h.k.groups[0]); m == nil || !strings.Contains(m.what, `cursor "red" is held by p, which holds 2`) {
		t.Errorf("got %+v, want that p holds two of red", m)
	}
	h.k.groups[0].part(consume.Partition{Topic: "orders", Index: 1}).record = split(record(h.q), "red", 0, h.q, "red")
	if m := h.k.sharesAtRest(at, &tg, h.k.groups[0]); m != nil {
		t.Errorf("got %+v, want nothing missing", m)
	}
}
