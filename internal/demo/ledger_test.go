package demo

import (
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// handed is a receipt of a green message: by E1 of the baseline, or by E2 of the lane.
func handed(id, by string, again bool) Receipt {
	r := Receipt{ID: id, Visit: Visit{Service: "e", Instance: by, Color: Green, Protocol: Queue}, Offset: 7, Redelivered: again}
	if by == "E2" {
		r.Visit.Lane = Green
	}
	return r
}

func TestTrial(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		ending   Ending
		receipts []Receipt
		settled  bool // by its note, when E2 was killed
		want     MessageReport
		fault    string // in the only one; empty: none
	}{
		{"once, in the lane", Stopped, []Receipt{handed("m", "E2", false)}, false, MessageReport{Sent: 1}, ""},
		{"once, after it", Killed, []Receipt{handed("m", "E1", true)}, false, MessageReport{Sent: 1}, ""},
		{"of another trial", Stopped, []Receipt{handed("m", "E2", false), handed("x", "E2", false)}, false, MessageReport{Sent: 1}, ""},
		{"to nobody", Stopped, nil, false, MessageReport{Sent: 1, Lost: 1}, "was handed to nobody"},
		{"again after a clean stop", Stopped, []Receipt{handed("m", "E2", false), handed("m", "E1", true)}, false, MessageReport{Sent: 1, Twice: 1}, "handed out again, to E1, after E2"},
		{"again after a kill", Killed, []Receipt{handed("m", "E2", false), handed("m", "E1", true)}, false, MessageReport{Sent: 1, Redelivered: 1}, ""},
		{"again, and it does not say so", Killed, []Receipt{handed("m", "E2", false), handed("m", "E1", false)}, false, MessageReport{Sent: 1, Twice: 1}, "handed out again"},
		{"again what was settled", Killed, []Receipt{handed("m", "E2", false), handed("m", "E1", true)}, true, MessageReport{Sent: 1, Twice: 1}, "handed out again"},
		{"again by the baseline alone", Killed, []Receipt{handed("m", "E1", false), handed("m", "E1", true)}, false, MessageReport{Sent: 1, Twice: 1}, "handed out again"},
		{"excused: again after a clean stop", Stopped, []Receipt{handed("m", "E2", false), handed("m", "E1", true)}, false, MessageReport{Sent: 1, Redelivered: 1}, ""},
		{"excused: again what was settled", Stopped, []Receipt{handed("m", "E2", false), handed("m", "E1", true)}, true, MessageReport{Sent: 1, Twice: 1}, "handed out again"},
		{"excused: and it does not say so", Stopped, []Receipt{handed("m", "E2", false), handed("m", "E1", false)}, false, MessageReport{Sent: 1, Twice: 1}, "handed out again"},
		{"three times", Killed, []Receipt{handed("m", "E2", false), handed("m", "E1", true), handed("m", "E1", true)}, false, MessageReport{Sent: 1, Twice: 2}, "handed out again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			trial := NewTrial(tt.ending)
			if excused := strings.HasPrefix(tt.name, "excused"); excused {
				trial.Excuse("the machine stood still")
			}
			trial.Send("m", Green)
			for n, r := range tt.receipts {
				trial.Take(r)
				if n == 0 {
					trial.Settled(Green, func(_ int, offset int64) bool { return tt.settled && offset == 7 })
				}
			}
			got, faults := trial.Judge()
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if (len(faults) > 0) != (tt.fault != "") || len(faults) > 0 && !strings.Contains(faults[0], tt.fault) {
				t.Errorf("faults: got %q, want %q", faults, tt.fault)
			}
		})
	}
}

// TestTrialLanes: a plain message in the lane is a fault, and so is one whose color got lost.
func TestTrialLanes(t *testing.T) {
	t.Parallel()
	plain := handed("p", "E2", false)
	plain.Visit.Color = lane.Baseline
	faded := handed("g", "E1", false)
	faded.Visit.Color = lane.Baseline
	trial := NewTrial(Stopped)
	trial.Send("p", lane.Baseline)
	trial.Send("g", Green)
	trial.Take(plain)
	trial.Take(faded)
	if _, faults := trial.Judge(); len(faults) != 2 || !strings.Contains(faults[0], "green message g was handed to E1 as plain") ||
		!strings.Contains(faults[1], "plain message p was handed to E2") {
		t.Errorf("got %q, want both", faults)
	}
}

// TestTrialFirst: the first message that one instance alone was handed is found by its place.
func TestTrialFirst(t *testing.T) {
	t.Parallel()
	trial := NewTrial(Stopped)
	if got := trial.First(Green, "E1"); got != "" {
		t.Errorf("of none: got %q", got)
	}
	for i, id := range []string{"a", "b", "c", "d"} {
		color := Green
		if id == "d" {
			color = lane.Baseline
		}
		trial.Send(id, color)
		r := handed(id, "E1", false)
		r.Partition, r.Offset = 1, int64(10-i)
		trial.Take(r)
	}
	trial.Take(handed("c", "E2", true))
	if got, want := trial.First(Green, "E1"), "orders/1@9"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWriteTrials(t *testing.T) {
	t.Parallel()
	clean, killed := NewTrial(Stopped), NewTrial(Killed)
	for _, trial := range []*Trial{clean, killed} {
		for _, id := range []string{"a", "b", "c"} {
			trial.Send(id, Green)
		}
		trial.Take(handed("a", "E2", false))
		trial.Take(handed("b", "E2", false))
		trial.Take(handed("c", "E1", false))
	}
	text := func() string {
		t.Helper()
		var b strings.Builder
		if err := WriteTrials(&b, []*Trial{clean, killed}, false); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	if got := text(); !strings.Contains(got, "6 messages: none was lost, and none came twice.") ||
		!strings.Contains(got, "stopped cleanly   3           2           1 ") || strings.Contains(got, "\x1b") {
		t.Errorf("got\n%s", got)
	}
	killed.Take(handed("b", "E1", true))
	if got := text(); !strings.Contains(got, "none came twice but the 1 that E2 was at") {
		t.Errorf("got\n%s", got)
	}
	clean.Take(handed("a", "E1", true))
	if got := text(); !strings.Contains(got, "NOT AS PROMISED: of 6 messages 0 were lost and 1 came twice.") {
		t.Errorf("got\n%s", got)
	}
}
