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
// they are here, in snake_case; [Stats.WriteMetrics] writes it for Prometheus.
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
		return newCounters(&r.o.Config).Stats
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

// counters are what of Stats is counted. They are the loop's own.
type counters struct {
	Stats
	cfg     *Config
	storing map[uint64]map[int64]BuryReason // what is being stored, by run and offset; empty: to be retried
}

func newCounters(cfg *Config) counters {
	c := counters{
		cfg: cfg,
		Stats: Stats{
			Group: cfg.Group, Dead: map[BuryReason]int64{}, Moves: map[MoveKind]map[Why]int64{}, Alarms: map[AlarmKind]int64{}, Writes: map[string]int64{},
		},
		storing: map[uint64]map[int64]BuryReason{},
	}
	// What has not happened is 0, and not left out: who watches a counter would not see it
	// begin.
	for _, why := range []BuryReason{BuryAttempts, BuryStrictEnded, BuryStrictUnknown} {
		c.Dead[why] = 0
	}
	for _, kind := range []AlarmKind{AlarmRetention, AlarmTruncated, AlarmRegistry, AlarmRegistryBack, AlarmNoNote, AlarmHandover, AlarmForeign} {
		c.Alarms[kind] = 0
	}
	for _, o := range []Outcome{Done, Conflict, Doubt} {
		c.Writes[o.String()] = 0
	}
	return c
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

// heard counts an event that the Core has not heard of yet.
func (c *counters) heard(core *Core, e Event) {
	switch e := e.(type) {
	case *Settled:
		switch in, it := core.inFlight(e.Run, e.Offset); {
		case it == nil:
			c.Late++
		case it.state == itemOut && c.cfg.forOther(it.msg, in.lane):
			c.Dropped++
		case it.state == itemOut:
			c.Settled++
		default:
			c.stored(e.Run, e.Offset)
		}
	case *Returned:
		c.answered(core, e.Run, e.Offset, &c.Returned)
	case *Failed:
		c.answered(core, e.Run, e.Offset, &c.Failed)
	case *Fetched:
		if e.Failed {
			c.FailedReads++
		}
	case *Answered:
		c.Writes[e.Outcome.String()]++
	case *Several:
		for _, one := range e.Events {
			c.heard(core, one)
		}
	}
}

func (c *counters) answered(core *Core, run uint64, offset int64, n *int64) {
	if _, it := core.inFlight(run, offset); it == nil || it.state != itemOut {
		n = &c.Late
	}
	*n++
}

// stored counts a message that came to a retry or dead-letter topic.
func (c *counters) stored(run uint64, offset int64) {
	why := c.storing[run][offset]
	delete(c.storing[run], offset)
	if why == "" {
		c.Retried++
	} else {
		c.Dead[why]++
	}
}

// did counts an action.
func (c *counters) did(a Action) {
	switch a := a.(type) {
	case *Dispatch:
		if c.cfg.forOther(a.Message, a.Lane) {
			return
		}
		c.Dispatched++
		if a.Redelivered {
			c.Redelivered++
		}
	case *Requeue:
		c.stores(a.Run, a.Offset, "")
	case *Bury:
		c.stores(a.Run, a.Offset, a.Why)
	case *Withdraw:
		delete(c.storing, a.Run)
	case *Alarm:
		c.alarm(a)
	case *Moved:
		for _, m := range a.Moves {
			if c.Moves[m.Kind] == nil {
				c.Moves[m.Kind] = map[Why]int64{}
			}
			c.Moves[m.Kind][m.Why]++
		}
	}
}

func (c *counters) stores(run uint64, offset int64, why BuryReason) {
	if c.storing[run] == nil {
		c.storing[run] = map[int64]BuryReason{}
	}
	c.storing[run][offset] = why
}

func (c *counters) alarm(a *Alarm) {
	c.Alarms[a.Kind]++
	switch a.Kind {
	case AlarmRetention:
		c.Lost += a.Count
	case AlarmRegistry:
		c.LostSince = time.Now()
	case AlarmRegistryBack:
		c.LostSince = time.Time{}
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
