package consume

import "testing"

// TestHeard: what is said of a cursor that is not held any more is late, and events that come
// together are counted each.
func TestHeard(t *testing.T) {
	t.Parallel()
	core, err := NewCore(Config{Group: "billing", Topics: []Topic{{Name: "orders"}}})
	if err != nil {
		t.Fatal(err)
	}
	r := &Runner{core: core, counts: newStats("billing")}
	for _, e := range []Event{
		&Settled{Run: 7}, &Returned{Run: 7}, &Failed{Run: 7}, &Fetched{Run: 7, Failed: true}, &Fetched{Run: 7},
		&Several{[]Event{&Answered{Answer: Answer{Outcome: Done}}, &Reached{1}, &Answered{Answer: Answer{Outcome: Conflict}}}},
		&Answered{Answer: Answer{Outcome: Doubt}},
	} {
		r.heard(e)
	}
	if c := r.counts; c.Late != 3 || c.Settled != 0 || c.Returned != 0 || c.Failed != 0 || c.FailedReads != 1 {
		t.Errorf("counted %+v", c)
	}
	for _, o := range []Outcome{Done, Conflict, Doubt} {
		if r.counts.Writes[o.String()] != 1 {
			t.Errorf("writes %v, want one %s", r.counts.Writes, o)
		}
	}
}
