package consume

import (
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Event is something that happened. [Core.Step] does not keep the event itself, but may keep
// what it points to: views, records and messages are not changed afterwards.
type Event interface{ event() }

// Opened tells that a session was opened, at the start or after [LeaseLost]. Before it is told of a
// session that follows a lost one, a Core is told of every record of the group as read from
// the registry itself after it was in reach again ([Recorded] with Fresh), and the old
// session was deleted.
type Opened struct{ Session string }

// LeaseLost tells that the session can not be renewed, and may have run out by the process's own
// clock: last renewal sent + TTL − margin. It is told as soon as a clock shows it, and
// always before any event by which something could be used that was fetched until then.
type LeaseLost struct{}

// Joined tells that a member of this process joined.
type Joined struct{ Member Member }

// Left tells that a member of this process left. The registry is told of it first, or at
// the same time.
type Left struct{ Member string }

// Viewed tells that the picture of the registry is another one.
type Viewed struct{ View *View }

// Reached tells that the last view and the records that were told of are how the registry was at this
// revision, too.
type Reached struct{ Revision uint64 }

// Recorded tells that a record is as it is at a revision. Records of lower revision than what is known
// are passed over.
type Recorded struct {
	Stored
	Fresh bool // read from the registry itself after a lost lease
}

// Several tells of some of [Viewed], [Recorded], [Reached] and [Answered], in their order. What is due
// is decided once, after the last of them: with many cursors that is what costs.
type Several struct{ Events []Event }

// Partitioned tells that a topic has so many partitions. Rooms may name a room for each, whose members
// are to be preferred.
type Partitioned struct {
	Topic string
	Count int32
	Rooms []string
}

// Resolved answers [Resolve].
type Resolved struct {
	Partition Partition
	Offset    int64
	Epoch     string
}

// Answered tells that a write was answered, or no answer came (Doubt).
type Answered struct {
	Write uint64
	Answer
}

// Fetched answers [Fetch]. A fetch that failed says nothing of the log, and is asked for
// again.
type Fetched struct {
	Run    uint64
	Failed bool
	// Cached: the batch has no bounds. It comes from what was read for another cursor before,
	// or the engine left them out; see [Filter]. A fetch that wants bounds is never
	// answered so.
	Cached bool
	Batch
}

// Settled tells that a message that was dispatched is settled: acknowledged, filtered out, or stored
// durably in the retry or dead-letter topic.
type Settled struct {
	Run    uint64
	Offset int64
}

// Returned tells that a consumer gave a message back unsettled. It is dispatched again, by this holder
// or by the next one.
type Returned struct {
	Run    uint64
	Offset int64
}

// Failed tells that a consumer could not do its work on a message. It is retried later by way of the
// retry topic, or goes to the dead-letter topic.
type Failed struct {
	Run    uint64
	Offset int64
	Error  string
}

// Fired tells that a timer that was armed has run out. One that was armed anew or disarmed since then
// must not be told of.
type Fired struct{ Timer Timer }

// Stop tells that the process stops consuming; its members leave at the same time. All cursors are
// released; [Stopped] follows, but not while the registry does not answer: who waits for it
// gives up after a while, and the session's end does the rest.
type Stop struct{}

func (*Opened) event()      {}
func (*LeaseLost) event()   {}
func (*Joined) event()      {}
func (*Left) event()        {}
func (*Viewed) event()      {}
func (*Reached) event()     {}
func (*Recorded) event()    {}
func (*Several) event()     {}
func (*Partitioned) event() {}
func (*Resolved) event()    {}
func (*Answered) event()    {}
func (*Fetched) event()     {}
func (*Settled) event()     {}
func (*Returned) event()    {}
func (*Failed) event()      {}
func (*Fired) event()       {}
func (*Stop) event()        {}

// TimerKind is a kind of timer.
type TimerKind uint8

// Kinds of timers.
const (
	TimerNote     TimerKind = iota // the next round of notes; one for all cursors
	TimerHandover                  // a release has waited for what is in flight long enough
	TimerStall                     // main may have stood still long enough for a split
	TimerUnknown                   // a strict color's lane has been unknown long enough
)

func (k TimerKind) String() string {
	switch k {
	case TimerNote:
		return "note"
	case TimerHandover:
		return "handover"
	case TimerStall:
		return "stall"
	case TimerUnknown:
		return "unknown"
	}
	return fmt.Sprintf("TimerKind(%d)", k)
}

// Timer names a timer of a Core. It compares with ==; what a kind does not need is zero.
type Timer struct {
	Kind      TimerKind
	Partition Partition
	Cursor    lane.Name
}

// LossPolicy says what the holders of a group do while they cannot renew and their lease may
// have run out.
type LossPolicy uint8

// Policies on loss of the registry.
const (
	// LossDefault is LossHold for ordered groups and LossContinue for others.
	LossDefault LossPolicy = iota
	// LossContinue: go on with the cursors held. Nothing is taken, split or merged.
	LossContinue
	// LossHold: dispatch nothing.
	LossHold
)

// filled is the policy with its default.
func (p LossPolicy) filled(ordered bool) LossPolicy {
	switch {
	case p != LossDefault:
		return p
	case ordered:
		return LossHold
	}
	return LossContinue
}

// StartKind says where a new group begins.
type StartKind uint8

// Starts of a group.
const (
	StartEarliest StartKind = iota // at the first offset there is
	StartLatest                    // at the end
	StartTime                      // at the first message that is not older than Time
	StartOffset                    // at Offset, in every partition
)

// Start is where a new group begins. It is turned into a number once for each partition.
type Start struct {
	Kind   StartKind
	Time   time.Time
	Offset int64
}
