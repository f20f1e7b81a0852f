package consume

import (
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// TestSeveral: what is told at once comes to the same as what is told one after the other,
// for every partition that it concerns.
func TestSeveral(t *testing.T) {
	const partitions = 3
	play := func(told func(c *Core, events []Event) []Action) (fetches []Fetch) {
		c, err := NewCore(Config{Group: "billing", Topics: []Topic{{Name: "orders", Partitions: partitions}}})
		if err != nil {
			t.Fatal(err)
		}
		m := Member{ID: "e1", Session: "s1", Topics: []string{"orders"}}
		c.Step(&Opened{"s1"})
		c.Step(&Partitioned{Topic: "orders", Count: partitions})
		c.Step(&Joined{m})
		c.Step(&Viewed{&View{
			Revision: 5, Lanes: map[lane.Name]Lane{}, Members: []Member{m}, Sessions: map[string]bool{"s1": true},
		}})
		var answers []Event
		for i := range int32(partitions) {
			for _, a := range c.Step(&Resolved{Partition: Partition{"orders", i}, Offset: 7, Epoch: "e"}) {
				if w, ok := a.(*Propose); ok {
					rev := uint64(10 + i)
					answers = append(answers,
						&Answered{w.ID, Answer{Outcome: Done, Revision: rev, Notes: []StoredNote{{Note: w.Notes[0].Note, Revision: rev}}}},
						&Recorded{Stored: Stored{w.Partition, w.Record, rev}}, &Reached{rev})
				}
			}
		}
		for _, a := range told(c, answers) {
			if f, ok := a.(*Fetch); ok {
				f := *f
				f.Run = 0
				fetches = append(fetches, f)
			}
		}
		return fetches
	}
	var alone []Action
	one := play(func(c *Core, events []Event) []Action {
		for _, e := range events {
			for _, a := range c.Step(e) {
				if f, ok := a.(*Fetch); ok {
					f := *f // the next step uses it again
					a = &f
				}
				alone = append(alone, a)
			}
		}
		return alone
	})
	all := play(func(c *Core, events []Event) []Action { return c.Step(&Several{events}) })
	if len(one) != partitions || len(all) != partitions {
		t.Fatalf("%d fetches follow one by one, %d at once: want %d", len(one), len(all), partitions)
	}
	for i := range one {
		if one[i] != all[i] {
			t.Errorf("one by one %+v, at once %+v", one[i], all[i])
		}
	}
}
