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

// TestSeveralMirror: a note that took place is not shown to the engine's own tools by one who is
// told beside the answer that the cursor is another's now.
func TestSeveralMirror(t *testing.T) {
	orders := Partition{"orders", 0}
	for _, lost := range []bool{false, true} {
		c, err := NewCore(Config{Group: "billing", Topics: []Topic{{Name: "orders", Partitions: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		var run, write uint64
		var shown []int64
		step := func(e Event) {
			for _, a := range c.Step(e) {
				switch a := a.(type) {
				case *Propose:
					write = a.ID
				case *Fetch:
					run = a.Run
				case *Mirror:
					shown = append(shown, a.Offset)
				}
			}
		}
		m := Member{ID: "e1", Session: "s1", Topics: []string{"orders"}}
		step(&Opened{"s1"})
		step(&Partitioned{Topic: "orders", Count: 1})
		step(&Joined{m})
		step(&Viewed{&View{Revision: 5, Lanes: map[lane.Name]Lane{}, Members: []Member{m}, Sessions: map[string]bool{"s1": true}}})
		step(&Resolved{Partition: orders, Offset: 7, Epoch: "e"})
		step(&Answered{write, Answer{Outcome: Done, Revision: 10, Notes: []StoredNote{{Note: &Note{Pos: 7}, Revision: 10}}}})
		step(&Fetched{Run: run, Batch: Batch{Messages: []*Message{{Partition: orders, Offset: 7}}, Next: 8, Bounds: Bounds{End: 8, Epoch: "e"}}})
		step(&Settled{run, 7})
		step(&Fired{Timer{Kind: TimerNote}})
		events := []Event{&Answered{write, Answer{Outcome: Done, Revision: 10, Notes: []StoredNote{{Note: &Note{Pos: 8}, Revision: 11}}}}}
		if lost {
			events = append(events, &Recorded{Stored: Stored{orders, &Record{Main: Holder{Session: "s2"}, Epoch: "e"}, 12}})
		}
		shown = nil
		step(&Several{events})
		if want := !lost; want != (len(shown) == 1 && shown[0] == 8) {
			t.Errorf("lost %t: shown %v", lost, shown)
		}
	}
}
