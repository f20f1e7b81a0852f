package consume

import (
	"fmt"
	"slices"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// TestWritesAreBounded: 41 colors are to be taken at once, then 40 given up and main taken;
// no write has more moves than registries take.
func TestWritesAreBounded(t *testing.T) {
	r := newRig(t, Config{})
	r.view.Sessions["s2"] = true
	rec := &Record{Main: Holder{Session: "s2"}, Colors: map[lane.Name]Entry{}, Epoch: "e"}
	r.notes[" record"] = StoredNote{Revision: r.rev}
	r.notes[Main] = StoredNote{Cursor: Main, Note: &Note{}, Revision: r.rev}
	for i := range DefaultMaxMoves + 1 {
		l := lane.Name(fmt.Sprintf("lane%02d", i))
		r.view.Lanes[l] = Lane{}
		rec.Colors[l] = Entry{}
		r.notes[l] = StoredNote{Cursor: l, Note: &Note{}, Revision: r.rev}
	}
	r.record = rec
	r.step(&Recorded{Stored: Stored{Partition{"orders", 0}, rec, r.rev}})
	for l := range r.view.Lanes {
		m := Member{ID: "of " + string(l), Session: "s1", Lane: l, Topics: []string{"orders"}}
		r.view.Members = append(r.view.Members, m)
		r.step(&Joined{m})
	}
	r.view.Members = append(r.view.Members, Member{ID: "other", Session: "s2", Lane: "lane00", Topics: []string{"orders"}})
	r.look()
	if r.moves != DefaultMaxMoves {
		t.Errorf("%d colors are taken at once, want %d", r.moves, DefaultMaxMoves)
	}
	held := 0
	for _, e := range r.record.Colors {
		if e.Holder.Session == "s1" {
			held++
		}
	}
	if held < DefaultMaxMoves || r.record.Main.Session != "s2" {
		t.Fatalf("record %+v", r.record)
	}

	lanes := map[lane.Name]Lane{}
	for l := range r.view.Lanes {
		lanes[l] = Lane{Ended: l != "lane00"}
	}
	r.view.Lanes, r.view.Sessions, r.moves = lanes, map[string]bool{"s1": true}, 0
	r.look()
	r.step(&Reached{r.rev}) // with what was written, too
	if r.moves != DefaultMaxMoves || r.record.Main.Session != "s1" {
		t.Errorf("%d moves at once, want %d; main is %+v", r.moves, DefaultMaxMoves, r.record.Main)
	}
}

// TestNotesOfManyCursors: main and 100 colors of one partition have moved. One write of notes
// follows the other, and those that wait since the first round come before what moved since.
func TestNotesOfManyCursors(t *testing.T) {
	r := newRig(t, Config{})
	r.join("e1", lane.Baseline)
	var colors []lane.Name
	for i := range 100 {
		l := lane.Name(fmt.Sprintf("lane%03d", i))
		r.join("of "+string(l), l)
		colors = append(colors, l)
	}
	r.append(colors...)
	r.settleAll()
	r.hold = true
	r.step(&Fired{Timer{Kind: TimerNote}})
	r.append("lane000") // all have examined it
	r.settleAll()
	r.step(&Fired{Timer{Kind: TimerNote}})
	var rounds []int
	noted := map[lane.Name]int{}
	for len(r.writes) > 0 {
		w := r.writes[0]
		r.writes = nil
		rounds = append(rounds, len(w.Notes))
		for _, n := range w.Notes {
			noted[n.Cursor]++
		}
		if len(rounds) == 3 && len(noted) != 101 {
			t.Errorf("after three writes %d cursors are noted, want all 101: who waited longest is first", len(noted))
		}
		r.propose(w)
		r.answers()
	}
	if want := []int{40, 40, 40, 21}; !slices.Equal(rounds, want) {
		t.Errorf("writes have %v notes, want %v", rounds, want)
	}
	for l, s := range r.notes {
		if s.Note != nil && s.Note.Pos < 100 {
			t.Errorf("note of %q is %+v", l, s.Note)
		}
	}
}

// TestBehindWhatWasLeft: a color that is run for the baseline goes on as soon as main has handed
// out what it had left of that color, also where main stays where it is.
func TestBehindWhatWasLeft(t *testing.T) {
	r := newRig(t, Config{})
	r.view.Lanes["blue"] = Lane{}
	for i, color := range []lane.Name{"", "blue", "", "", "blue"} {
		r.log = append(r.log, &Message{Partition: Partition{"orders", 0}, Offset: int64(i), Color: color})
	}
	r.record = &Record{Colors: map[lane.Name]Entry{"blue": {From: 4}}, Epoch: "e"}
	r.notes[" record"] = StoredNote{Revision: r.rev}
	r.notes[Main] = StoredNote{Cursor: Main, Note: &Note{Pos: 5, Left: []int64{1}}, Revision: r.rev}
	r.notes["blue"] = StoredNote{Cursor: "blue", Note: &Note{Pos: 4}, Revision: r.rev}
	r.step(&Recorded{Stored: Stored{Partition{"orders", 0}, r.record, r.rev}})
	r.join("e1", lane.Baseline)
	r.want("[take main for the baseline: nobody-holds-it] [take blue for the baseline: nobody-holds-it]")
	main := r.core.parts[0].main.id
	late := r.fetches[main]
	delete(r.fetches, main)
	r.poll()
	r.want("")
	r.fetches[main] = late
	r.poll()
	r.want("1blue> 4blue>")
}
