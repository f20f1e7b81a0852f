package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/laneway-dev/laneway/lane"
)

// Ending is how E2 leaves the lane while it still has messages to read.
type Ending string

// The endings of the demo.
const (
	Stopped Ending = "stopped cleanly" // asked to end, as by a deployment
	Killed  Ending = "killed (kill -9)"
)

// MessageReport is what `laneway demo -o json` says of messages.
type MessageReport struct {
	Sent        int `json:"sent"`
	Lost        int `json:"lost"`
	Twice       int `json:"twice"`       // handed out again, beyond what is promised
	Redelivered int `json:"redelivered"` // handed out again since a consumer was killed that had them in flight
}

// Trial is one time that E2 is in the lane and leaves it: what was sent, and who said that
// it was handed it. All of its methods may be called at once.
type Trial struct {
	Ending Ending

	mu       sync.Mutex
	excuse   string               // why more may come twice than the ending says; empty: it may not
	sent     map[string]lane.Name // color by id
	receipts map[string][]Receipt // by id, in their order
	settled  map[string]bool      // ids that the registry knew to be settled when E2 was killed
}

// NewTrial begins one.
func NewTrial(ending Ending) *Trial {
	return &Trial{Ending: ending, sent: map[string]lane.Name{}, receipts: map[string][]Receipt{}, settled: map[string]bool{}}
}

// Send notes that a message is about to be sent.
func (t *Trial) Send(id string, color lane.Name) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sent[id] = color
}

// Take notes a receipt, if it is for a message of this trial.
func (t *Trial) Take(r Receipt) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, mine := t.sent[r.ID]; mine {
		t.receipts[r.ID] = append(t.receipts[r.ID], r)
	}
}

// Excuse notes that something else than the ending befell a consumer, as on a machine that
// stands still for longer than a lease: then what it had in flight may come again, flagged.
func (t *Trial) Excuse(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.excuse = why
}

// Settled notes what the registry has as settled: nothing of it may be handed out again,
// whatever happens. It gives how many messages of a color that are.
func (t *Trial) Settled(color lane.Name, settled func(partition int, offset int64) bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, rs := range t.receipts {
		if t.sent[id] == color && settled(rs[0].Partition, rs[0].Offset) {
			t.settled[id] = true
			n++
		}
	}
	return n
}

// Handed counts messages of a color that an instance was handed; empty instance: any.
func (t *Trial) Handed(color lane.Name, instance string) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, rs := range t.receipts {
		if t.sent[id] == color && slices.ContainsFunc(rs, func(r Receipt) bool { return instance == "" || r.Visit.Instance == instance }) {
			n++
		}
	}
	return n
}

// First is the place of the first message of a color that an instance alone was handed,
// as topic/partition@offset; empty: there is none.
func (t *Trial) First(color lane.Name, instance string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first *Receipt
	for id, rs := range t.receipts {
		if t.sent[id] != color || slices.ContainsFunc(rs, func(r Receipt) bool { return r.Visit.Instance != instance }) {
			continue
		}
		if r := &rs[0]; first == nil || cmp.Or(cmp.Compare(r.Partition, first.Partition), cmp.Compare(r.Offset, first.Offset)) < 0 {
			first = r
		}
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("%s/%d@%d", Topic, first.Partition, first.Offset)
}

// Missing counts messages that nobody was handed yet.
func (t *Trial) Missing() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.sent) - len(t.receipts)
}

// Judge counts what became of the messages. faults are what is not as promised, a sentence
// each.
func (t *Trial) Judge() (report MessageReport, faults []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf("E2 %s: ", t.Ending)+fmt.Sprintf(format, args...))
	}
	report.Sent = len(t.sent)
	for id, color := range t.sent {
		rs := t.receipts[id]
		if len(rs) == 0 {
			report.Lost++
			fault("%s message %s was handed to nobody", colorName(color), id)
			continue
		}
		for _, r := range rs {
			if r.Visit.Color != color || color == lane.Baseline && r.Visit.Lane != lane.Baseline {
				fault("%s message %s was handed to %s as %s", colorName(color), id, r.Visit.Instance, colorName(r.Visit.Color))
			}
		}
		switch again := rs[1:]; {
		case len(again) == 0:
		case len(again) == 1 && t.mayRepeat(id, rs[0], again[0]):
			report.Redelivered++
		default:
			report.Twice += len(again)
			for _, r := range again {
				fault("%s message %s (%s) was handed out again, to %s, after %s had it", colorName(color), id, place(r.Partition, r.Offset), r.Visit.Instance, rs[0].Visit.Instance)
			}
		}
	}
	slices.Sort(faults)
	return report, faults
}

// mayRepeat reports whether a message may be handed out a second time: E2 had it in flight
// when it was killed, or had settled it since its last note, and the second one is told.
func (t *Trial) mayRepeat(id string, one, two Receipt) bool {
	if t.settled[id] || !two.Redelivered {
		return false
	}
	return t.excuse != "" || t.Ending == Killed && one.Visit.Lane == Green && two.Visit.Lane == lane.Baseline
}

// Sum adds up what several trials gave.
func Sum(trials []*Trial) (all MessageReport, faults []string) {
	for _, t := range trials {
		r, f := t.Judge()
		all.Sent += r.Sent
		all.Lost += r.Lost
		all.Twice += r.Twice
		all.Redelivered += r.Redelivered
		faults = append(faults, f...)
	}
	return all, faults
}

// WriteTrials says what became of the messages, for people. With color, what the lane read
// is green.
func WriteTrials(w io.Writer, trials []*Trial, color bool) error {
	rows := [][]string{{"E2 LEAVES", "GREEN SENT", "READ BY E2", "THE REST BY E1", "AGAIN BY E1", "PLAIN, ALL BY E1", "LOST", "TWICE"}}
	var excuses strings.Builder
	for _, t := range trials {
		r, _ := t.Judge()
		if why := t.excused(); why != "" {
			fmt.Fprintf(&excuses, "\nE2 %s: %s; what was in flight then may have come again.\n", t.Ending, why)
		}
		green := t.count(func(c lane.Name) bool { return c == Green })
		byLane := t.Handed(Green, "E2")
		rows = append(rows, []string{
			string(t.Ending), fmt.Sprint(green), fmt.Sprint(byLane), fmt.Sprint(t.Handed(Green, "") - byLane), fmt.Sprint(r.Redelivered),
			fmt.Sprint(t.Handed(lane.Baseline, "E1")), fmt.Sprint(r.Lost), fmt.Sprint(r.Twice),
		})
	}
	var b strings.Builder
	writeRows(&b, rows, func(row, column int) lane.Name {
		if row > 0 && column == 2 {
			return Green
		}
		return lane.Baseline
	}, color)
	all, _ := Sum(trials)
	b.WriteByte('\n')
	switch {
	case all.Lost > 0 || all.Twice > 0:
		fmt.Fprintf(&b, "NOT AS PROMISED: of %d messages %d were lost and %d came twice.\n", all.Sent, all.Lost, all.Twice)
	case all.Redelivered == 0:
		fmt.Fprintf(&b, "%d messages: none was lost, and none came twice.\n", all.Sent)
	default:
		fmt.Fprintf(&b, "%d messages: none was lost, and none came twice but the %d that E2 was at, or had\njust done, when it was killed: it could not tell anybody any more which were done.\n", all.Sent, all.Redelivered)
	}
	_, err := io.WriteString(w, b.String()+excuses.String())
	return err
}

func (t *Trial) excused() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.excuse
}

func (t *Trial) count(of func(lane.Name) bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.sent {
		if of(c) {
			n++
		}
	}
	return n
}
