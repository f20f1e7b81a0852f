package consumetest

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// TestLedger has a history for each breach, and for what looks like one and is none.
func TestLedger(t *testing.T) {
	t.Parallel()
	at := func(second int) time.Time { return time.Unix(int64(1000+second), 0) }
	had := func(life string, begun, settled int) Handling {
		h := Handling{Life: life, Begun: at(begun)}
		if settled > 0 {
			h.Settled = at(settled)
		}
		return h
	}
	with := func(h Handling, change func(*Handling)) Handling {
		change(&h)
		return h
	}
	flagged := func(h *Handling) { h.Redelivered = true }
	in := func(name lane.Name) func(*Handling) { return func(h *Handling) { h.Lane = name } }
	type disturbance struct {
		life     string
		from, to int
	}
	for name, c := range map[string]struct {
		color     lane.Name
		handled   []Handling
		disturbed []disturbance
		want      Breach
		again     int
	}{
		"once":                            {handled: []Handling{had("a", 1, 2)}},
		"nobody had it":                   {want: Lost},
		"nobody settled it":               {handled: []Handling{had("a", 1, 0)}, want: Lost},
		"twice":                           {handled: []Handling{had("a", 1, 2), with(had("b", 3, 4), flagged)}, want: Twice, again: 1},
		"twice in one life":               {handled: []Handling{had("a", 1, 2), with(had("a", 3, 4), flagged)}, want: Twice, again: 1},
		"killed in flight":                {handled: []Handling{had("a", 1, 0), with(had("b", 3, 4), flagged)}, disturbed: []disturbance{{"a", 2, 2}}, again: 1},
		"killed in flight, not told":      {handled: []Handling{had("a", 1, 0), had("b", 3, 4)}, disturbed: []disturbance{{"a", 2, 2}}, want: Unflagged, again: 1},
		"killed before the note":          {handled: []Handling{had("a", 1, 2), with(had("b", 4, 5), flagged)}, disturbed: []disturbance{{"a", 3, 3}}, again: 1},
		"killed long after":               {handled: []Handling{had("a", 1, 2), with(had("b", 99, 99), flagged)}, disturbed: []disturbance{{"a", 98, 98}}, want: Stale, again: 1},
		"killed only afterwards":          {handled: []Handling{had("a", 1, 2), with(had("b", 3, 4), flagged)}, disturbed: []disturbance{{"a", 5, 5}}, want: Twice, again: 1},
		"stopped before it had it":        {handled: []Handling{had("a", 5, 6), with(had("b", 7, 8), flagged)}, disturbed: []disturbance{{"a", 1, 3}}, want: Twice, again: 1},
		"settled elsewhere in between":    {handled: []Handling{had("a", 1, 0), with(had("b", 3, 4), flagged), with(had("c", 5, 6), flagged)}, disturbed: []disturbance{{"a", 2, 2}}, want: Twice, again: 1},
		"wakes up with what it had":       {handled: []Handling{had("a", 9, 10), with(had("b", 5, 6), flagged)}, disturbed: []disturbance{{"a", 2, 12}}, again: 1},
		"before it was cut off, not told": {handled: []Handling{had("a", 1, 2), had("b", 7, 8)}, disturbed: []disturbance{{"a", 2, 12}}, want: Unflagged, again: 1},
		"went on while it was cut off":    {handled: []Handling{had("a", 5, 6), had("b", 7, 8)}, disturbed: []disturbance{{"a", 2, 12}}, again: 1},
		"given back":                      {handled: []Handling{with(had("a", 1, 0), func(h *Handling) { h.Returned = true }), with(had("b", 2, 3), flagged)}, again: 1},
		"to its own lane":                 {color: "green", handled: []Handling{with(had("a", 1, 2), in("green"))}},
		"to the parent":                   {color: "green-child", handled: []Handling{with(had("a", 1, 2), in("green"))}},
		"to the child":                    {color: "green", handled: []Handling{with(had("a", 1, 2), in("green-child"))}, want: Misrouted},
		"plain to a lane":                 {handled: []Handling{with(had("a", 1, 2), in("green"))}, want: Misrouted},
		"a color that nobody knows":       {color: "nowhere", handled: []Handling{had("a", 1, 2)}},
		"strict to the baseline":          {color: "strict-x", handled: []Handling{had("a", 1, 2)}, want: Misrouted},
		"a color that no lane can have":   {color: "strict-No Name", handled: []Handling{had("a", 1, 2)}},
		"what the log does not have":      {color: "not logged", handled: []Handling{had("a", 1, 2)}, want: Unknown},
		"noted in the order of the files": {handled: []Handling{with(had("b", 3, 4), flagged), had("a", 1, 0)}, disturbed: []disturbance{{"a", 2, 2}}, again: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLedger(LedgerConfig{Parents: map[lane.Name]lane.Name{"green": "", "green-child": "green"}, NotesWithin: 10 * time.Second})
			p := consume.Partition{Topic: "t", Index: 3}
			if c.color != "not logged" {
				l.Logged(&consume.Message{Partition: p, Offset: 7, Color: c.color})
			}
			for _, h := range c.handled {
				h.Partition, h.Offset = p, 7
				l.Handled(h)
			}
			for _, d := range c.disturbed {
				l.Disturbed(d.life, at(d.from), at(d.to))
			}
			v := l.Verdict()
			want := map[Breach]int{}
			if c.want != "" {
				want[c.want] = 1
			}
			if !maps.Equal(v.Breaches, want) || v.Handlings != len(c.handled) || v.Redelivered != c.again {
				t.Errorf("%+v", v)
			}
			if err := v.Err(); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), "t/3@7") {
				t.Errorf("Err: %v", err)
			}
		})
	}
}
