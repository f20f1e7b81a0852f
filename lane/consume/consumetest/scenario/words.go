package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// step lets a process's Core take an event, does what follows, and tells of it.
func (p *process) step(e consume.Event) {
	for _, a := range p.core.Step(e) {
		p.act(a)
	}
	p.w.check.notes()
}

func (p *process) act(a consume.Action) {
	w := p.w
	switch a := a.(type) {
	case *consume.Propose:
		p.writes = append(p.writes, a.Write)
		switch {
		case a.Attempt > 1:
			w.say("%s asks again (%s)", p.name, w.writeWords(a.Write))
		case p.held["writes"] || p.held["answers"] || p.cut:
			w.say("%s asks for (%s)", p.name, w.writeWords(a.Write))
		}
		if len(a.Moves) == 0 && a.Attempt == 1 && !p.held["writes"] && !p.cut {
			w.say("%s %s notes %s", p.name, a.Partition, noteList(a.Write))
		}
	case *consume.Fetch:
		p.runs[a.Run] = a.Partition
		p.reads = append(p.reads, &read{Fetch: *a, last: p.bounds(a.Partition)})
	case *consume.Dispatch:
		h := &handed{*a}
		p.out = append(p.out, h)
		again := ""
		if a.Redelivered {
			again = ", perhaps again"
		}
		w.say("%s gives %s %s to %s%s: %s", p.name, where(a.Message), colorWords(a.Color), laneWords(a.Lane), again, words(string(a.Reason)))
		w.check.dispatched(p, h)
	case *consume.Withdraw:
		p.reads = slices.DeleteFunc(p.reads, func(r *read) bool { return r.Run == a.Run })
		n := len(p.out)
		p.out = slices.DeleteFunc(p.out, func(h *handed) bool { return h.Run == a.Run })
		if n != len(p.out) {
			w.say("%s takes %d of %s out of its consumers' hands: %s", p.name, n-len(p.out), cursorWords(a.Cursor), words(string(a.Why)))
		} else if a.Why == consume.WhyGone {
			w.say("%s drops %s: the record does not name it", p.name, cursorWords(a.Cursor))
		}
	case *consume.Recall:
		w.say("%s asks back what nobody has begun with of %s: %s", p.name, cursorWords(a.Cursor), words(string(a.Why)))
	case *consume.Requeue:
		p.follow(a.Run, a.Offset, a.Message, "for another try")
	case *consume.Bury:
		p.follow(a.Run, a.Offset, a.Message, "as dead: "+words(string(a.Why)))
	case *consume.Resolve:
		p.resolve = append(p.resolve, *a)
	case *consume.Arm:
		p.timers[a.Timer] = true
	case *consume.Disarm:
		delete(p.timers, a.Timer)
	case *consume.Alarm:
		w.say("%s ALARM %s", p.name, alarmWords(a))
	case *consume.Moved:
		w.say("%s %s", p.name, w.writeWords(a.Write))
	case *consume.Refused:
		w.say("%s is refused (%s)", p.name, w.writeWords(a.Write))
	case *consume.Stopped:
		w.say("%s has stopped", p.name)
		p.alive = false
		w.registry.End(p.session)
	case *consume.Mirror:
	}
}

// follow stores the message that goes on for another one, and settles that.
func (p *process) follow(run uint64, offset int64, m *consume.Message, what string) {
	w := p.w
	from := fmt.Sprintf("%s@%d", p.runs[run], offset)
	w.say("%s puts %s %s into %s %s", p.name, from, colorWords(m.Color), m.Partition.Topic, what)
	if err := w.engine.Append(context.Background(), m); err != nil {
		w.check.fault("%s stores %s: %v", p.name, from, err)
		return
	}
	for _, at := range w.check.log(p.runs[run]) {
		if at.Offset == offset {
			w.check.settled(at)
		}
	}
	p.step(&consume.Settled{Run: run, Offset: offset})
}

func (p *process) bounds(id consume.Partition) consume.Bounds {
	b, _ := p.w.engine.Bounds(context.Background(), id)
	return b
}

// writeWords says what a write does.
func (w *stage) writeWords(wr *consume.Write) string {
	if len(wr.Moves) == 0 {
		return fmt.Sprintf("%s notes %s", wr.Partition, noteList(wr))
	}
	var moves []string
	for _, m := range wr.Moves {
		moves = append(moves, moveWords(wr, m))
	}
	return wr.Partition.String() + " " + strings.Join(moves, "; ")
}

func moveWords(w *consume.Write, m consume.Move) string {
	note := ""
	for _, n := range w.Notes {
		if n.Cursor == m.Cursor && n.Note != nil {
			note = ", " + noteWords(n.Note)
		}
	}
	why := words(string(m.Why))
	switch m.Kind {
	case consume.Take:
		return fmt.Sprintf("takes %s for %s: %s", cursorWords(m.Cursor), laneWords(m.Lane), why)
	case consume.Release:
		return fmt.Sprintf("gives up %s%s: %s", cursorWords(m.Cursor), note, why)
	case consume.Split:
		return fmt.Sprintf("splits %s off from %d: %s", m.Cursor, m.From, why)
	case consume.Merge:
		return fmt.Sprintf("merges %s into main: %s", m.Cursor, why)
	case consume.Create:
		return fmt.Sprintf("begins the record%s: %s", note, why)
	case consume.Rewind:
		return fmt.Sprintf("resets to %d: %s", m.From, why)
	}
	return m.String()
}

func noteList(w *consume.Write) string {
	var out []string
	for _, n := range w.Notes {
		out = append(out, cursorWords(n.Cursor)+" "+noteWords(n.Note))
	}
	return strings.Join(out, ", ")
}

// noteWords is "5 but for 2 4": all below 5 is settled, except 2 and 4.
func noteWords(n *consume.Note) string {
	if n == nil {
		return "gone"
	}
	s := fmt.Sprintf("below %d settled", n.Pos)
	if len(n.Left) > 0 {
		s += " but for " + strings.Trim(fmt.Sprint(n.Left), "[]")
	}
	return s
}

func alarmWords(a *consume.Alarm) string {
	s := words(string(a.Kind))
	switch a.Kind {
	case consume.AlarmRetention:
		return fmt.Sprintf("%s: %s %s from %d, %d offsets", s, a.Partition, cursorWords(a.Cursor), a.From, a.Count)
	case consume.AlarmHandover:
		return fmt.Sprintf("%s: %s %s, %d in flight", s, a.Partition, cursorWords(a.Cursor), a.Count)
	case consume.AlarmTruncated, consume.AlarmNoNote:
		return s + ": " + a.Partition.String()
	case consume.AlarmRegistry, consume.AlarmRegistryBack, consume.AlarmForeign:
	}
	return s
}

// holder says who holds a cursor and for whom.
func (w *stage) holder(h consume.Holder) string {
	if h.None() {
		return "nobody"
	}
	return w.sessions[h.Session] + " for " + laneWords(h.Lane)
}

// words makes a reason readable.
func words(reason string) string { return strings.ReplaceAll(reason, "-", " ") }

func where(m *consume.Message) string { return fmt.Sprintf("%s@%d", m.Partition, m.Offset) }

func colorWords(c lane.Name) string {
	if c == lane.Baseline {
		return "plain"
	}
	return string(c)
}

func cursorWords(c lane.Name) string {
	if c == consume.Main {
		return "main"
	}
	return string(c)
}

func laneWords(l lane.Name) string {
	if l == lane.Baseline {
		return "the baseline"
	}
	return "lane " + string(l)
}
