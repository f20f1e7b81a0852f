package consume

import (
	"context"
	"errors"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Errors of engines and registries. Others are passing faults: the call may be made again.
var (
	// ErrNoTopic: the engine has no such topic or partition.
	ErrNoTopic = errors.New("no such topic or partition: create it with Topics.Ensure")
	// ErrUnsupported: the engine cannot do it, as its Caps say.
	ErrUnsupported = errors.New("the engine cannot do that")
	// ErrClosed: the engine or registry was closed.
	ErrClosed = errors.New("closed")
	// ErrDoubt: whether a write took effect is not known. The same write is repeated,
	// unchanged, until it is answered.
	ErrDoubt = errors.New("no answer: the write may have taken effect or may still do so")
)

// Header is one name and value that travels with a message. Names may repeat.
type Header struct {
	Name  string
	Value []byte
}

// Origin is where a message that is retried or dead came from at first, and who had it last.
type Origin struct {
	Partition Partition
	Offset    int64
	Group     string
	Lane      lane.Name // zero: the baseline
	// Replay is the name of the replay that the message is a copy for; empty: it is none. See
	// [Message.Replayed].
	Replay string
	// Only is the lane whose members alone are handed such a copy: where it comes to others it
	// is settled, and not handed out. Zero: whoever its color belongs to.
	Only lane.Name
}

// Message is one message of an engine's log. Nobody changes one that an engine gave out.
type Message struct {
	Partition Partition
	Offset    int64     // set by the engine: unique in the partition and never used again
	Color     lane.Name // zero: plain
	Key       []byte
	Value     []byte
	Headers   []Header
	Time      time.Time
	Attempt   int           // how often it failed before; 0 at first
	Origin    *Origin       // of a message in a retry or dead-letter topic
	Error     string        // why it failed last
	Delay     time.Duration // to Append: not given out earlier than that; 0: at once
	ID        string        // to Append: a partition that has it already gets nothing; empty: none
}

// Bytes is what a message counts for in a window: payload, key and headers.
func (m *Message) Bytes() int64 {
	n := int64(len(m.Key) + len(m.Value))
	for _, h := range m.Headers {
		n += int64(len(h.Name) + len(h.Value))
	}
	return n
}

// Caps say what an engine can do beyond what every engine must.
type Caps struct {
	FilterColor bool // Read by color reads only that color's messages
	Delay       bool // Append honors Message.Delay
	Dedup       bool // Append honors Message.ID
	Mirror      bool // Mirror does something
	Grow        bool // Topics.Grow works
	// ForeignConsumers: the engine is a [ForeignFinder].
	ForeignConsumers bool
	Rooms            bool // the engine is a [RoomFinder]
}

// Filter says which messages of a partition a read wants.
type Filter struct {
	All   bool // every message; Color is not looked at
	Color lane.Name
	// Epoch, if it is not empty, is that of the log which the reader has read from before.
	// An engine that knows that the log still is this one, and that the batch has each
	// message from where it begins up to Next that the filter wants, none of them gone, may
	// leave out the Bounds of the batch: asking for them can cost more than the messages.
	Epoch string
}

// Bounds are the ends of a partition's log: it has offsets from First up to, not including,
// End. Epoch changes where offsets may be used again, as after the topic was deleted and
// created anew; then nothing that was noted holds.
type Bounds struct {
	First, End int64
	Epoch      string
}

// Batch is what a read gave.
type Batch struct {
	Messages []*Message // ascending by offset
	// Next is the first offset that was not examined: every message below it that the
	// filter wants and that is not in Messages is gone. It is never below from.
	Next int64
	// Bounds are as they were at the read. They may be zero where the read had an Epoch; see
	// [Filter].
	Bounds Bounds
}

// Source is what an engine must offer to be consumed from. All of its calls may be made at
// once. A call returns within the engine's request time-out  or when its
// context ends, whichever is first.
type Source interface {
	// Partitions is how many partitions a topic has now. ErrNoTopic: there is no such topic.
	Partitions(ctx context.Context, topic string) (int32, error)
	// Bounds are the ends of a partition's log.
	Bounds(ctx context.Context, p Partition) (Bounds, error)
	// Read gives up to max messages at or above from. Where there is none it waits for one
	// until its context ends, at most for the engine's longest fetch wait, and then
	// returns an empty batch.
	Read(ctx context.Context, p Partition, from int64, f Filter, max int) (Batch, error)
	// At is the first offset whose message is not older than t; the end where all are.
	At(ctx context.Context, p Partition, t time.Time) (int64, error)
	// Append adds messages, each to its topic: to the partition of its Index, or, where that
	// is negative, to one by its key, whose Index it sets before it sends anything: the same
	// message appended again goes to the same place, though the topic has grown. They are
	// durable when it returns without an error; with one, any of them may be there or come
	// later.
	Append(ctx context.Context, ms ...*Message) error
	// Mirror tells the engine a group's lowest unsettled offset, for the engine's own tools.
	// It is never read back. A color's goes under the name group%color.
	Mirror(ctx context.Context, group string, color lane.Name, p Partition, offset int64) error
	Caps() Caps
	// Close ends all calls with ErrClosed and frees what the engine holds.
	Close() error
}

// TopicSpec describes a topic.
type TopicSpec struct {
	Name       string
	Partitions int32         // 1 to 64
	Retention  time.Duration // how long messages are kept at least; 0: for ever
}

// Topics is the other half of an engine: what there is to consume from. All of its calls
// may be made at once.
type Topics interface {
	// Ensure creates a topic, or finds it as it is.
	Ensure(ctx context.Context, t TopicSpec) error
	// Describe tells of a topic. ErrNoTopic: there is no such topic.
	Describe(ctx context.Context, topic string) (TopicSpec, error)
	// Grow gives a topic more partitions; they are never taken away.
	Grow(ctx context.Context, topic string, partitions int32) error
}

// Registry is where records and notes are kept, and where a process learns of lanes,
// members and sessions. All of its calls may be made at once.
type Registry interface {
	// Session is the process's present session, empty if there is none, and how long it
	// surely lasts by the process's own clock if it is not renewed: last renewal sent + TTL −
	// margin. Once nothing remained, the session is never given again: it is deleted, and
	// a new one opened, as soon as the registry is in reach.
	Session() (id string, remaining time.Duration)
	// Views delivers, in one order of revisions, what a group's process must know: the
	// first update has everything. It tells how far the picture has got at least every
	// second, and at once after a record that names a session which does not live: that
	// the session is gone, and not too new to be seen, shows by the revision. The channel
	// is closed when ctx ends.
	Views(ctx context.Context, group string) <-chan Update
	// Move does one write. A nil error: the answer's outcome is Done or Conflict. ErrDoubt:
	// not known; repeat the write unchanged.
	Move(ctx context.Context, w *Write) (Answer, error)
	// Records reads all records of a group from the registry itself, not from a cache.
	Records(ctx context.Context, group string) ([]Stored, error)
	// Join makes a member known, under the process's session; Leave ends it. Grace above
	// zero: the member counts for so long after it left, or until another one comes.
	Join(ctx context.Context, group string, m Member) error
	Leave(ctx context.Context, group, member string, grace time.Duration) error
}

// Stored is a record with its revision. A nil Record: there is none.
type Stored struct {
	Partition Partition
	Record    *Record
	Revision  uint64
}

// Update is one step of a process's picture of the registry.
type Update struct {
	View     *View    // nil: as before
	Records  []Stored // what changed
	Revision uint64   // all of this is how the registry was then; 0: that of View
}
