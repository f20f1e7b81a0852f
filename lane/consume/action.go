package consume

import (
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Action is something that a Core's caller has to do. Actions are done in their order. Those
// that a [Core.Step] returned, and what they point to but for messages, records, notes and
// writes, are good until the next Step.
type Action interface{ action() }

// Propose asks the caller to send a write to the registry and tell of the answer by [Answered]. Attempt is 1 at
// first; a write in doubt is proposed again, unchanged, and then the caller waits a while
// before it sends, longer with each attempt.
type Propose struct {
	*Write
	Attempt int
}

// Fetch asks the caller to read from the engine and answer by [Fetched]. One fetch is under
// way for a run.
type Fetch struct {
	Run       uint64
	Partition Partition
	Cursor    lane.Name
	From      int64
	Filter    Filter // without an Epoch
	Max       int
	// Bounds: the batch must have bounds that are newer than the fetch, since a run begins, or
	// since it is not known yet where the log ends, below which messages may have been
	// dispatched by a holder that was lost. Else a batch without them does.
	Bounds bool
}

// Dispatch asks the caller to hand a message to a member of a lane that is in this process.
type Dispatch struct {
	Run    uint64
	Cursor lane.Name
	Lane   lane.Name // whose member; zero: the baseline
	*Message
	// Redelivered: it may have been dispatched before. After a holder was lost that is said of all
	// below the end of the log as the next one's first read shows it.
	Redelivered bool
	Reason      lane.Reason
}

// Withdraw tells that a run was given up. What its consumers still hold is no longer theirs; what they
// say of it is passed over, and so is what is still being fetched for it. In is empty, or
// how many messages were still with consumers.
type Withdraw struct {
	Run    uint64
	Cursor lane.Name
	In     int
	Why    Why
}

// Recall asks the caller to give back, by [Returned], what was dispatched of a run and nobody has begun
// with: the run is to be given up, and whoever is next need not wait for it, or nothing is to
// be handed out for now. What somebody has begun with is finished. Where there is no such message nothing
// has to be done.
type Recall struct {
	Run    uint64
	Cursor lane.Name
	Why    Why
}

// Why a [Recall] is asked for where no cursor is given up. A third one is [WhyNewSession]: until
// the cursors are taken under it they may be somebody else's.
const (
	WhyPaused Why = "paused"        // the group hands nothing out
	WhyHold   Why = "registry-lost" // nor does one that holds still without the registry
)

// Requeue asks the caller to append the message to the group's retry topic, to be given out after its delay,
// and tell of it by [Settled] once it is stored. It carries its color, attempts, error and
// origin, and an ID by which a copy is known.
type Requeue struct {
	Run    uint64
	Offset int64
	*Message
}

// Bury asks the caller to append the message to the group's dead-letter topic and tell of it by [Settled] once
// it is stored.
type Bury struct {
	Run    uint64
	Offset int64
	*Message
	Why BuryReason
}

// BuryReason says why a message is dead. The list is closed.
type BuryReason string

// Reasons of dead letters.
const (
	BuryAttempts      BuryReason = "attempts-used-up"
	BuryStrictEnded   BuryReason = "strict-lane-ended"
	BuryStrictUnknown BuryReason = "strict-lane-unknown"
)

// Resolve asks the caller to turn a start into an offset, and answer by [Resolved]: that of a
// new group, or of a reset, an offset which the log may not have (any more, or yet).
type Resolve struct {
	Partition Partition
	Start     Start
}

// Arm asks the caller to tell of a timer by [Fired] after a while. An earlier one of the same name is replaced.
type Arm struct {
	Timer Timer
	After time.Duration
}

// Disarm asks the caller to forget a timer.
type Disarm struct{ Timer Timer }

// Mirror asks the caller to tell the engine the lowest unsettled offset of a cursor. It may be left out.
type Mirror struct {
	Partition Partition
	Cursor    lane.Name
	Offset    int64
}

// AlarmKind is what is wrong. The list is closed.
type AlarmKind string

// Kinds of alarms.
const (
	AlarmRetention    AlarmKind = "retention-lost" // messages were deleted unread
	AlarmTruncated    AlarmKind = "log-truncated"  // the log ends below what was noted, or is another one: the partition is stopped
	AlarmRegistry     AlarmKind = "registry-lost"  // the lease may have run out: moves stand still
	AlarmRegistryBack AlarmKind = "registry-back"
	AlarmNoNote       AlarmKind = "note-missing" // a cursor that is in the record has no note, or a note no record: somebody changed the registry
	AlarmHandover     AlarmKind = "handover-cut" // a release did not wait for what is in flight any longer
	// AlarmForeign is raised by the [Runner], not by the Core: somebody who does not go through
	// Laneway consumes in the group. See [ForeignConsumer].
	AlarmForeign AlarmKind = "foreign-consumer"
)

// Alarm asks the caller to tell people.
type Alarm struct {
	Kind      AlarmKind
	Partition Partition
	Cursor    lane.Name
	// AlarmRetention: the offsets from From on, so many of them, are gone; there is an alarm for each
	// stretch. Ahead of the position messages of other cursors may be among them.
	From  int64
	Count int64 // AlarmHandover: messages in flight; AlarmForeign: consumers of the topic, of which Partition is the first
}

// Moved tells that moves that were proposed have taken place.
type Moved struct{ *Write }

// Refused tells that a write did not take place. Its moves are looked at anew.
type Refused struct{ *Write }

// Stopped follows [Stop] when every cursor is released. Nothing follows it.
type Stopped struct{}

func (*Propose) action()  {}
func (*Fetch) action()    {}
func (*Dispatch) action() {}
func (*Withdraw) action() {}
func (*Recall) action()   {}
func (*Requeue) action()  {}
func (*Bury) action()     {}
func (*Resolve) action()  {}
func (*Arm) action()      {}
func (*Disarm) action()   {}
func (*Mirror) action()   {}
func (*Alarm) action()    {}
func (*Moved) action()    {}
func (*Refused) action()  {}
func (*Stopped) action()  {}
