package consumetest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// describe is a message for people, as in "orders/0@3 (green)".
func describe(m *consume.Message) string {
	color := "plain"
	if m.Color != lane.Baseline {
		color = string(m.Color)
	}
	s := fmt.Sprintf("%s@%d (%s)", m.Partition, m.Offset, color)
	if m.Attempt > 0 {
		s += fmt.Sprintf(" attempt %d", m.Attempt)
	}
	return s
}

func cursorName(c lane.Name) string {
	if c == consume.Main {
		return "main"
	}
	return string(c)
}

func describeNote(n *consume.Note) string {
	if n == nil {
		return "none"
	}
	if n.Doubtful != 0 {
		return fmt.Sprintf("{%d %v doubtful %d}", n.Pos, n.Left, n.Doubtful)
	}
	return fmt.Sprintf("{%d %v}", n.Pos, n.Left)
}

func describeRecord(r *consume.Record) string {
	if r == nil {
		return "none"
	}
	s := []string{"main " + r.Main.String()}
	for _, c := range slices.Sorted(maps.Keys(r.Colors)) {
		s = append(s, fmt.Sprintf("%s from %d %s", c, r.Colors[c].From, r.Colors[c].Holder))
	}
	return "{" + strings.Join(s, ", ") + "}"
}

func describeHands(f *fate) string {
	var s []string
	for _, h := range f.hands {
		state := [...]string{"in flight", "being stored", "given back", "settled", "withdrawn", "lost"}[h.state]
		if h.term != nil && h.term.taken > 0 {
			state += ", cut off"
		}
		s = append(s, fmt.Sprintf("%s run %d at %v: %s", h.by.name, h.run, h.at, state))
	}
	if len(s) == 0 {
		return "never dispatched"
	}
	return strings.Join(s, "; ")
}

func describeWrite(w *consume.Write) string {
	var s []string
	for _, m := range w.Moves {
		s = append(s, m.String())
	}
	for _, n := range w.Notes {
		cond := ""
		if n.Compare {
			cond = fmt.Sprintf(" if %d", n.IfRevision)
		}
		s = append(s, fmt.Sprintf("note %s %s%s", cursorName(n.Cursor), describeNote(n.Note), cond))
	}
	return fmt.Sprintf("write %d on %s if %d [%s]", w.ID, w.Partition, w.IfRevision, strings.Join(s, "; "))
}

func describeAnswer(a *consume.Answer) string {
	s := fmt.Sprintf("revision %d", a.Revision)
	if a.Outcome == consume.Conflict {
		s += " " + describeRecord(a.Record)
	}
	all := []string{s}
	for _, n := range a.Notes {
		all = append(all, fmt.Sprintf("%s=%s@%d", cursorName(n.Cursor), describeNote(n.Note), n.Revision))
	}
	return strings.Join(all, " ")
}

func describeEvent(e consume.Event) string {
	switch e := e.(type) {
	case *consume.Opened:
		return "opened " + e.Session
	case *consume.Several:
		var all []string
		for _, one := range e.Events {
			all = append(all, describeEvent(one))
		}
		return strings.Join(all, "; ")
	case *consume.LeaseLost:
		return "lease lost"
	case *consume.Joined:
		return fmt.Sprintf("joined %s in %q for %v", e.Member.ID, e.Member.Lane, e.Member.Topics)
	case *consume.Left:
		return "left " + e.Member
	case *consume.Viewed:
		return "viewed " + describeView(e.View)
	case *consume.Recorded:
		return fmt.Sprintf("recorded %s %s at %d fresh %v", e.Partition, describeRecord(e.Record), e.Revision, e.Fresh)
	case *consume.Partitioned:
		return fmt.Sprintf("%s has %d partitions", e.Topic, e.Count)
	case *consume.Resolved:
		return fmt.Sprintf("resolved %s %d", e.Partition, e.Offset)
	case *consume.Answered:
		return fmt.Sprintf("answered write %d: %s %s", e.Write, e.Outcome, describeAnswer(&e.Answer))
	case *consume.Reached:
		return fmt.Sprintf("reached %d", e.Revision)
	case *consume.Fetched:
		if e.Failed {
			return fmt.Sprintf("fetch of run %d failed", e.Run)
		}
		var offsets []int64
		for _, m := range e.Messages {
			offsets = append(offsets, m.Offset)
		}
		return fmt.Sprintf("fetched run %d %v next %d of [%d %d)", e.Run, offsets, e.Next, e.Bounds.First, e.Bounds.End)
	case *consume.Settled:
		return fmt.Sprintf("settled %d of run %d", e.Offset, e.Run)
	case *consume.Returned:
		return fmt.Sprintf("returned %d of run %d", e.Offset, e.Run)
	case *consume.Failed:
		return fmt.Sprintf("failed %d of run %d", e.Offset, e.Run)
	case *consume.Fired:
		return fmt.Sprintf("fired %s %s %s", e.Timer.Kind, e.Timer.Partition, cursorName(e.Timer.Cursor))
	case *consume.Stop:
		return "stop"
	}
	return fmt.Sprintf("%T", e)
}

func describeView(v *consume.View) string {
	s := []string{fmt.Sprintf("at %d sessions %v lanes", v.Revision, slices.Sorted(maps.Keys(v.Sessions)))}
	for _, l := range slices.Sorted(maps.Keys(v.Lanes)) {
		over := ""
		if v.Lanes[l].Ended {
			over = "(over)"
		}
		s = append(s, fmt.Sprintf("%s/%d%s", l, v.Lanes[l].Generation, over))
	}
	s = append(s, "members")
	for _, m := range v.Members {
		s = append(s, fmt.Sprintf("%s:%s@%q/%d%v", m.ID, m.Session, m.Lane, m.Generation, m.Topics))
	}
	if v.Group.Paused {
		s = append(s, "paused")
	}
	return strings.Join(s, " ")
}

// quietAction reports whether an action is left out of traces.
func quietAction(a consume.Action) bool {
	switch a.(type) {
	case *consume.Arm, *consume.Disarm, *consume.Mirror:
		return true
	}
	return false
}

func describeAction(a consume.Action) string {
	switch a := a.(type) {
	case *consume.Propose:
		return fmt.Sprintf("propose %s attempt %d", describeWrite(a.Write), a.Attempt)
	case *consume.Fetch:
		return fmt.Sprintf("fetch %s from %d for %s, run %d, at most %d", a.Partition, a.From, cursorName(a.Cursor), a.Run, a.Max)
	case *consume.Dispatch:
		again := ""
		if a.Redelivered {
			again = " again"
		}
		return fmt.Sprintf("dispatch %s%s to %q by %s, run %d: %s", describe(a.Message), again, a.Lane, cursorName(a.Cursor), a.Run, a.Reason)
	case *consume.Withdraw:
		return fmt.Sprintf("withdraw run %d of %s with %d in flight: %s", a.Run, cursorName(a.Cursor), a.In, a.Why)
	case *consume.Recall:
		return fmt.Sprintf("recall run %d of %s: %s", a.Run, cursorName(a.Cursor), a.Why)
	case *consume.Requeue:
		return fmt.Sprintf("requeue %d of run %d as %s", a.Offset, a.Run, describe(a.Message))
	case *consume.Bury:
		return fmt.Sprintf("bury %d of run %d as %s: %s", a.Offset, a.Run, describe(a.Message), a.Why)
	case *consume.Resolve:
		return fmt.Sprintf("resolve %s", a.Partition)
	case *consume.Alarm:
		return fmt.Sprintf("alarm %s %s %s from %d count %d", a.Kind, a.Partition, cursorName(a.Cursor), a.From, a.Count)
	case *consume.Moved:
		return "moved " + describeWrite(a.Write)
	case *consume.Refused:
		return "refused " + describeWrite(a.Write)
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", a), "*consume.")
}

// cloneWrite is a copy that a later change of the original does not reach.
func cloneWrite(w *consume.Write) consume.Write {
	c := *w
	if w.Record != nil {
		c.Record = w.Record.Clone()
	}
	c.Notes = slices.Clone(w.Notes)
	for i, n := range c.Notes {
		if n.Note != nil {
			c.Notes[i].Note = cloneNote(n.Note)
		}
	}
	c.Gone, c.Read, c.Moves = slices.Clone(w.Gone), slices.Clone(w.Read), slices.Clone(w.Moves)
	return c
}

func cloneNote(n *consume.Note) *consume.Note {
	c := *n
	c.Left = slices.Clone(n.Left)
	return &c
}

func sameNote(a, b *consume.Note) bool {
	return a.Pos == b.Pos && a.Doubtful == b.Doubtful && slices.Equal(a.Left, b.Left)
}

func sameWrite(a, b *consume.Write) bool {
	if len(a.Notes) != len(b.Notes) || a.IfRevision != b.IfRevision || a.Partition != b.Partition || !slices.Equal(a.Gone, b.Gone) {
		return false
	}
	for i, n := range a.Notes {
		o := b.Notes[i]
		if n.Cursor != o.Cursor || n.Compare != o.Compare || n.IfRevision != o.IfRevision || (n.Note == nil) != (o.Note == nil) {
			return false
		}
		if n.Note != nil && !sameNote(n.Note, o.Note) {
			return false
		}
	}
	if (a.Record == nil) != (b.Record == nil) {
		return false
	}
	return a.Record == nil || a.Record.Main == b.Record.Main && reflect.DeepEqual(a.Record.Colors, b.Record.Colors)
}
