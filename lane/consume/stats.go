package consume

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Stats is what a consumer has done since it was started, and how it is just now: all of it as
// of one moment. Counters only go up, and begin at 0 with each consumer. Its JSON has names as
// they are here, in snake_case; [WriteMetrics] writes it for Prometheus.
type Stats struct {
	Group string `json:"group"`

	// Counted in messages, each as often as it happens to it.
	Dispatched  int64 `json:"dispatched"`  // handed to handlers
	Redelivered int64 `json:"redelivered"` // of those, flagged: they may have been handed out before
	Settled     int64 `json:"settled"`     // handlers were done with them
	Failed      int64 `json:"failed"`      // handlers could not do their work on them
	Returned    int64 `json:"returned"`    // given back, by handlers or before one had begun
	Late        int64 `json:"late"`        // answered for when their cursor was somebody else's: they are handed out again
	Dropped     int64 `json:"dropped"`     // settled and not handed out: a replay had copied them for another lane
	Retried     int64 `json:"retried"`     // stored in the retry topic
	// Dead are those that were stored in the dead-letter topic, by why.
	Dead map[BuryReason]int64 `json:"dead"`
	// Lost are the offsets that were deleted by retention before they were read. Those of
	// other colors may be among them.
	Lost int64 `json:"lost"`

	// Moves are those of this process that took place, by kind and why.
	Moves map[MoveKind]map[Why]int64 `json:"moves"`
	// Alarms are those that were raised, by what is wrong.
	Alarms map[AlarmKind]int64 `json:"alarms"`
	// Writes to the registry, of moves and of notes, by how they were answered: "done",
	// "conflict", or "doubt" for each time that no answer came.
	Writes map[string]int64 `json:"writes"`
	// FailedReads are reads that the engine did not answer; each is made again.
	FailedReads int64 `json:"failed_reads"`

	// Session is the one under which cursors are held. Empty: there has been none yet.
	Session string `json:"session"`
	// LostSince is since when the registry is out of reach, so that the session may have run
	// out and moves stand still. Zero: it is in reach.
	LostSince time.Time `json:"lost_since,omitzero"`
	// InFlight are the messages that are with handlers, or on their way to the retry or
	// dead-letter topic.
	InFlight int `json:"in_flight"`
	// Cursors are those that this process holds, by topic, partition and color. It is nil when
	// the consumer has ended.
	Cursors []CursorStats `json:"cursors"`
}

// CursorStats is one cursor that a process holds.
type CursorStats struct {
	Topic     string    `json:"topic"` // also a retry topic of the group
	Partition int32     `json:"partition"`
	Color     lane.Name `json:"color"` // empty: main
	Lane      lane.Name `json:"lane"`  // for whose members; empty: the baseline
	// Position is the offset below which all is settled, but for Unsettled.
	Position  int64 `json:"position"`
	InFlight  int   `json:"in_flight"` // as in Stats
	Unsettled int   `json:"unsettled"` // messages below Position that are not settled; InFlight are among them
	// Behind is how many offsets there are from Position to the end of the log, as the last
	// read of the partition showed it: a cursor whose handlers are all busy reads nothing, so it
	// may be further behind. Messages of other cursors are among them. −1: nothing was read yet.
	Behind int64 `json:"behind"`
	// Oldest is when the oldest message was produced that has come here and is not settled, by
	// the engine's clock; in a retry topic when it was put there. A cursor that stands still
	// shows by one that gets old. Zero: there is no such message.
	Oldest time.Time `json:"oldest,omitzero"`
	// Stopped: the log is not the one that the cursor is of ([AlarmTruncated]). Nothing is
	// handed out until the group is reset there.
	Stopped bool `json:"stopped,omitempty"`
}

// Stats tells of the consumer. It waits for the loop that runs it to come to that, some
// microseconds, and costs nothing beside a copy for each cursor. It may be called at any time,
// also by handlers, and after the consumer has ended, when it tells of the end.
func (c *Consumer) Stats() Stats { return c.runner.Stats() }

// Stats is [Consumer.Stats] of a runner. One that was not run has done nothing. It is not
// called from within [Options.Observe], which it would wait for.
func (r *Runner) Stats() Stats {
	if !r.begun.Load() {
		return newStats(r.o.Config.Group)
	}
	told := make(chan Stats, 1)
	r.box.put(input{do: func() { told <- r.snapshot() }})
	select {
	case s := <-told:
		return s
	case <-r.over:
		return r.last.clone()
	}
}

// newStats are those of who has done nothing.
func newStats(group string) Stats {
	s := Stats{Group: group, Dead: map[BuryReason]int64{}, Moves: map[MoveKind]map[Why]int64{}, Alarms: map[AlarmKind]int64{}, Writes: map[string]int64{}}
	// What has not happened is 0, and not left out: who watches a counter would not see it
	// begin.
	for _, why := range []BuryReason{BuryAttempts, BuryStrictEnded, BuryStrictUnknown} {
		s.Dead[why] = 0
	}
	for _, kind := range []AlarmKind{AlarmRetention, AlarmTruncated, AlarmRegistry, AlarmRegistryBack, AlarmNoNote, AlarmHandover, AlarmForeign} {
		s.Alarms[kind] = 0
	}
	for _, o := range []Outcome{Done, Conflict, Doubt} {
		s.Writes[o.String()] = 0
	}
	return s
}

// clone is a copy that shares nothing.
func (s *Stats) clone() Stats {
	out := *s
	out.Dead, out.Alarms, out.Writes, out.Cursors = maps.Clone(s.Dead), maps.Clone(s.Alarms), maps.Clone(s.Writes), slices.Clone(s.Cursors)
	out.Moves = make(map[MoveKind]map[Why]int64, len(s.Moves))
	for kind, whys := range s.Moves {
		out.Moves[kind] = maps.Clone(whys)
	}
	return out
}

// heard counts an event that the Core has not heard of yet, and records what a member says of a
// message.
func (r *Runner) heard(e Event) {
	switch e := e.(type) {
	case *Settled:
		if in, it := r.out(e.Run, e.Offset); it != nil {
			r.counts.Settled++
			r.hopEnded(HopSettled, in, it, "", "")
		}
	case *Returned:
		if in, it := r.out(e.Run, e.Offset); it != nil {
			r.counts.Returned++
			r.hopEnded(HopReturned, in, it, "", "")
		}
	case *Failed:
		if in, it := r.out(e.Run, e.Offset); it != nil {
			r.counts.Failed++
			if in.p.topic.Retry == "" { // else what is stored for it is recorded then
				r.hopEnded(HopReturned, in, it, "", e.Error)
			}
		}
	case *Fetched:
		if e.Failed {
			r.counts.FailedReads++
		}
	case *Answered:
		r.counts.Writes[e.Outcome.String()]++
	case *Several:
		for _, one := range e.Events {
			r.heard(one)
		}
	}
}

// out is a message that is with a handler; nil: what is said of it is late, and counts for nothing.
func (r *Runner) out(id uint64, offset int64) (*run, *item) {
	in, it := r.core.inFlight(id, offset)
	if it == nil || it.state != itemOut {
		r.counts.Late++
		return nil, nil
	}
	return in, it
}

// stored counts a message that came to a dead-letter topic, or, where why is empty, to a retry topic.
func (s *Stats) stored(why BuryReason) {
	if why == "" {
		s.Retried++
	} else {
		s.Dead[why]++
	}
}

// did counts an action.
func (s *Stats) did(a Action) {
	switch a := a.(type) {
	case *Dispatch:
		s.Dispatched++
		if a.Redelivered {
			s.Redelivered++
		}
	case *Alarm:
		s.alarm(a)
	case *Moved:
		for _, m := range a.Moves {
			if s.Moves[m.Kind] == nil {
				s.Moves[m.Kind] = map[Why]int64{}
			}
			s.Moves[m.Kind][m.Why]++
		}
	}
}

func (s *Stats) alarm(a *Alarm) {
	s.Alarms[a.Kind]++
	switch a.Kind {
	case AlarmRetention:
		s.Lost += a.Count
	case AlarmRegistry:
		s.LostSince = time.Now()
	case AlarmRegistryBack:
		s.LostSince = time.Time{}
	case AlarmTruncated, AlarmNoNote, AlarmHandover, AlarmForeign:
	}
}

// snapshot is all that there is to tell. The loop makes it.
func (r *Runner) snapshot() Stats {
	s := r.counts.clone()
	s.Session = r.session
	s.Cursors = make([]CursorStats, 0, len(r.core.runs))
	for _, run := range r.core.runs {
		c := run.stats()
		s.InFlight += c.InFlight
		s.Cursors = append(s.Cursors, c)
	}
	slices.SortFunc(s.Cursors, func(a, b CursorStats) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Color, b.Color))
	})
	return s
}

// ended keeps what there is to tell when the loop is over.
func (r *Runner) ended() {
	r.last = r.snapshot()
	r.last.Cursors, r.last.InFlight = nil, 0
	close(r.over)
}

func (r *run) stats() CursorStats {
	c := CursorStats{
		Topic: r.p.id.Topic, Partition: r.p.id.Index, Color: r.cursor, Lane: r.lane,
		Position: r.pos, InFlight: r.flight.out, Unsettled: r.flight.open + len(r.redo), Behind: -1, Stopped: r.p.halted,
	}
	if r.p.bounds != (Bounds{}) {
		c.Behind = max(r.p.bounds.End-r.pos, 0)
	}
	c.Oldest = r.oldest()
	return c
}

// oldest is the time of the first message that is here and not settled.
func (r *run) oldest() time.Time {
	for i := range r.flight.items {
		if it := &r.flight.items[i]; it.state != itemDone {
			return it.msg.Time
		}
	}
	if len(r.buf) > 0 {
		return r.buf[0].Time
	}
	return time.Time{}
}
