package consume

import "testing"

// TestCounters: what is said of a cursor that is not held any more is late, events that come
// together are counted each, and nothing is kept of what was stored or withdrawn.
func TestCounters(t *testing.T) {
	t.Parallel()
	core, err := NewCore(Config{Group: "billing", Topics: []Topic{{Name: "orders"}}})
	if err != nil {
		t.Fatal(err)
	}
	c := newCounters(&core.cfg)
	for _, e := range []Event{
		&Settled{Run: 7}, &Returned{Run: 7}, &Failed{Run: 7}, &Fetched{Run: 7, Failed: true}, &Fetched{Run: 7},
		&Several{[]Event{&Answered{Answer: Answer{Outcome: Done}}, &Reached{1}, &Answered{Answer: Answer{Outcome: Conflict}}}},
		&Answered{Answer: Answer{Outcome: Doubt}},
	} {
		c.heard(core, e)
	}
	if c.Late != 3 || c.Settled != 0 || c.Returned != 0 || c.Failed != 0 || c.FailedReads != 1 {
		t.Errorf("counted %+v", c.Stats)
	}
	for _, o := range []Outcome{Done, Conflict, Doubt} {
		if c.Writes[o.String()] != 1 {
			t.Errorf("writes %v, want one %s", c.Writes, o)
		}
	}
	c.did(&Requeue{Run: 1, Offset: 5})
	c.did(&Bury{Run: 1, Offset: 6, Why: BuryStrictEnded})
	c.did(&Requeue{Run: 2, Offset: 5})
	c.stored(1, 5)
	c.stored(1, 6)
	if c.Retried != 1 || c.Dead[BuryStrictEnded] != 1 || len(c.storing[1]) != 0 {
		t.Errorf("stored %+v, kept %v", c.Stats, c.storing)
	}
	c.did(&Withdraw{Run: 1})
	c.did(&Withdraw{Run: 2})
	if len(c.storing) != 0 {
		t.Errorf("kept %v", c.storing)
	}
}
