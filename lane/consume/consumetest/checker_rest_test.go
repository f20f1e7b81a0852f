package consumetest

import (
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// TestCheckerAtRest gives the checker states in which all is quiet and not all is well.
func TestCheckerAtRest(t *testing.T) {
	const base = lane.Baseline
	for _, tt := range []struct {
		name, rule, what string
		lanes            []lane.Name // that have a member, of p
		stuck            *lane.Name
		run              func(h *history)
	}{
		{name: "all is well", lanes: []lane.Name{base}, run: func(h *history) {
			h.append("", "red")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.settle(h.p, h.hand(h.p, base, base, 1, false), 1)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(2)})
		}},
		{name: "a message that nobody got", rule: "I1", what: "never dispatched", lanes: []lane.Name{base}, run: func(h *history) { h.append("") }},
		{name: "nobody there for it", lanes: []lane.Name{"red"}, run: func(h *history) {
			h.append("")
			h.land(h.p, split(record(h.p), "red", 0, nil, base), map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.p, split(record(h.p), "red", 0, h.p, "red"), nil)
		}},
		{name: "main without a holder", rule: "I1", what: "main is held by none", lanes: []lane.Name{base}, run: func(h *history) {
			h.land(h.p, record(nil), map[lane.Name]*consume.Note{base: noteOf(0)})
		}},
		{name: "a holder that is gone", rule: "I1", what: "main is held by", lanes: []lane.Name{base}, run: func(h *history) {
			h.land(h.p, record(nil), map[lane.Name]*consume.Note{base: noteOf(0)})
			h.land(h.q, record(h.q), nil)
			h.lose(h.q)
		}},
		{name: "settled and never noted", rule: "NOTE", what: "does not say so", lanes: []lane.Name{base}, run: func(h *history) {
			h.append("")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
		}},
		{name: "no split", rule: "I2", what: "not split off", lanes: []lane.Name{base, "red"}, run: func(*history) {}},
		{name: "no merge", rule: "I2", what: "it is the baseline's", lanes: []lane.Name{base}, run: func(h *history) {
			h.land(h.p, split(record(h.p), "red", 0, nil, base), map[lane.Name]*consume.Note{"red": noteOf(0)})
		}},
		{name: "the wrong lane", rule: "I2", what: `blue is "blue"'s`, lanes: []lane.Name{base, "red", "blue"}, run: func(h *history) {
			r := split(split(record(h.p), "red", 0, nil, base), "blue", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0), "blue": noteOf(0)})
			h.land(h.p, split(split(record(h.p), "red", 0, h.p, "red"), "blue", 0, h.p, "red"), nil)
		}},
		{name: "a lane that waits for a stuck baseline", rule: "I1", what: "never dispatched", lanes: []lane.Name{base, "red"}, stuck: new(lane.Name), run: func(h *history) {
			h.append("", "red")
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "a log that is another one", rule: "ALARM", what: "nobody says so", lanes: []lane.Name{base}, run: func(h *history) { h.k.broke(thePart) }},
		{name: "deleted unread, and not said", rule: "ALARM", what: "deleted unread", lanes: []lane.Name{base}, run: func(h *history) {
			h.append("")
			h.k.deleted(thePart, 0, 1, true)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(1)})
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := newHistory(func(c *consume.Config) { c.Topics[0].Retry, c.Topics[0].Dead = "", "" })
			tt.run(h)
			if h.k.violation != nil {
				t.Fatal(h.k.violation)
			}
			tg := truthGroup{partitions: map[string]int32{"orders": 1}}
			h.see(h.p, tt.lanes...)
			tg.members = h.p.view.Members
			for i, m := range tg.members {
				if m.Lane == base {
					tg.members[i].Generation = 0
				}
			}
			got := h.k.atRest(&truth{
				lanes: h.p.view.Lanes, groups: []truthGroup{tg}, alive: func(s string) bool { return h.alive[s] },
				actors: []*actor{h.p, h.q}, stuck: tt.stuck,
			})
			switch {
			case tt.rule == "" && got != nil:
				t.Errorf("got %s: %s, want nothing missing", got.rule, got.what)
			case tt.rule != "" && (got == nil || got.rule != tt.rule || !strings.Contains(got.what, tt.what)):
				t.Errorf("got %+v, want %s with %q", got, tt.rule, tt.what)
			}
		})
	}
}

// TestCheckerCounts: a checker that never saw some message, or forgets a color, says so.
func TestCheckerCounts(t *testing.T) {
	h := newHistory(nil)
	h.append("", "red", "red")
	h.k.judged, h.k.skipped = map[lane.Name]int{"": 1, "red": 1}, map[lane.Name]int{"red": 1}
	h.k.finalCounts(map[lane.Name]int{"": 1, "red": 2})
	if h.k.violation != nil {
		t.Fatal(h.k.violation)
	}
	h.k.finalCounts(map[lane.Name]int{"": 1, "red": 2, "blue": 1})
	if v := h.k.violation; v == nil || v.Rule != "COUNT" {
		t.Fatalf("got %v, want COUNT", v)
	}
}
