package laneclient

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Kinds of what is consumed, and by whom.
const (
	KindTopics  Kind = "topics"
	KindEngines Kind = "engines"
	KindGroups  Kind = "groups"
	KindMembers Kind = "members"
	KindCursors Kind = "cursors"
)

// ProblemGroup is the type of a [Problem], 409: a write names a group that does not exist or
// is being deleted. Create the group, or wait until it is gone.
const ProblemGroup = "urn:laneway:problem:group"

// Limits of the objects of consumption.
const (
	MaxTopicBytes   = 249 // of a topic's name: Kafka's own limit
	MaxGroupBytes   = 64  // of a group's name
	MaxGroupTopics  = 32  // of one group
	MaxMemberTopics = 64  // of one member; retry topics count
	MaxCursorKeys   = 120 // notes, gone and read of one write, together
	MaxNoteLeft     = 4096
	MaxRecordBytes  = 128 << 10 // of a record's JSON
	MaxCursorBatch  = 100       // writes of one POST to /v1/cursors:batch or /v1/notes
	MaxBatchBytes   = 4 << 20   // of the body of such a POST
	MaxGrace        = 10 * time.Minute
	MaxPartitions   = 64     // of a topic that is written; cursors may have more
	MaxPartition    = 99_999 // the highest index in a cursor's name
	MaxRetries      = 32     // delays of a group
	MaxRetryDelay   = 7 * 24 * time.Hour
	MaxHandover     = time.Hour
	MaxResetOffsets = 4096 // partitions of a group's reset
	MaxRetention    = 10 * 365 * 24 * time.Hour
	DefaultHandover = 10 * time.Second
	DefaultStart    = StartEarliest
	DefaultOnLoss   = OnLossContinue // of a group that is not ordered; of one that is: OnLossHold
)

// Durability of a topic: what an append has survived when it returns. Empty: as its engine
// is configured.
const (
	DurabilityFast    = "fast"    // the process
	DurabilityBounded = "bounded" // the machine, but for the last moments
	DurabilitySync    = "sync"    // the machine
)

// Topic is an object of kind topics: a log with partitions on an engine. A group may also
// name topics that no object describes.
type Topic struct {
	Meta
	Engine     string   `json:"engine"`               // fixed at creation
	Partitions int      `json:"partitions,omitempty"` // 1 to MaxPartitions, default 1; never fewer than before
	Retention  Duration `json:"retention,omitempty"`  // how long messages are kept at least; zero: for ever
	Durability string   `json:"durability,omitempty"` // DurabilityFast, …
}

// Engine is an object of kind engines: where a message log is found. One that a server embeds
// ends with that server's session; any other stays until it is deleted.
type Engine struct {
	Meta
	Scheme  string    `json:"scheme"`            // nats, rocketmq, kafka
	Address string    `json:"address"`           // how clients reach it, such as nats://127.0.0.1:7742
	Session string    `json:"session,omitempty"` // of the server that embeds it; empty: it is external
	Default bool      `json:"default,omitempty"` // the one for whoever names none; see [FindEngine]
	Since   time.Time `json:"since,omitzero"`
}

// Where a group begins, in Group.Start; or "offset:N", or a time as RFC 3339 has it.
const (
	StartEarliest = "earliest"
	StartLatest   = "latest"
)

// What the holders of a group do while they cannot reach the registry, in
// Group.OnRegistryLoss.
const (
	OnLossContinue = "continue"
	OnLossHold     = "hold"
)

// Group is an object of kind groups: one logical subscription. Its name is unique over all
// engines. Members can join, and cursors be written, as long as it exists.
type Group struct {
	Meta
	Engine string   `json:"engine"` // fixed at creation
	Topics []string `json:"topics"` // at least one
	// Partitions are how many each topic had when the group got to know it. Those that come
	// later are read from their first offset, wherever the group starts. A topic that is not
	// named here: all of its partitions begin where the group starts.
	Partitions      map[string]int `json:"partitions,omitempty"`
	Start           string         `json:"start,omitempty"`
	Ordered         bool           `json:"ordered,omitempty"`
	Retry           []Duration     `json:"retry,omitempty"`            // delay of each retry, in order; empty: none
	HandoverTimeout Duration       `json:"handover_timeout,omitempty"` // default DefaultHandover; 1s to 1h
	OnRegistryLoss  string         `json:"on_registry_loss,omitempty"`
	Paused          bool           `json:"paused,omitempty"`
	Reset           *GroupReset    `json:"reset,omitempty"`
}

// GroupReset asks that partitions begin again at an offset. A partition whose record has the
// ID is done; one that Offsets does not name is left alone.
type GroupReset struct {
	ID      string           `json:"id"`
	Offsets map[string]int64 `json:"offsets"` // by "topic/partition"
}

// Member is an object of kind members: one consumer of a group. Name is unique in Group; in
// paths and events it is "group/name". One without a session is a tombstone: it counts as a
// member until Until, or until another one of its lane comes for its topics.
type Member struct {
	Meta
	Engine     string        `json:"engine,omitempty"` // the group's
	Group      string        `json:"group,omitempty"`
	Topics     []string      `json:"topics"`
	Lane       string        `json:"lane,omitempty"`       // empty: the baseline
	Generation uint64        `json:"generation,omitempty"` // of the lane; set by the control plane as it joins
	Session    string        `json:"session,omitempty"`    // ends with it
	Room       string        `json:"room,omitempty"`
	Client     *MemberClient `json:"client,omitempty"`
	Since      time.Time     `json:"since,omitzero"`
	Until      time.Time     `json:"until,omitzero"` // of a tombstone
}

// MemberClient is the program behind a member.
type MemberClient struct {
	Name    string `json:"name,omitempty"`
	Address string `json:"address,omitempty"`
	Version string `json:"version,omitempty"`
}

// GraceParam is the parameter of DELETE /v1/members/{group}/{name} by which a member leaves a
// tombstone for so long, such as grace=10s; at most MaxGrace.
const GraceParam = "grace"

// Cursor is an object of kind cursors: who holds the cursors of one partition of a group.
// Name is "engine/group/topic/partition", see [CursorName]. It is written by [CursorWrite].
type Cursor struct {
	Meta
	Engine    string `json:"engine"`
	Group     string `json:"group"`
	Topic     string `json:"topic"`
	Partition int    `json:"partition"`
	// Record is a consume.Record in JSON; nil: there is none, and Revision is 0.
	Record json.RawMessage `json:"record,omitempty"`
	// Notes are shown where one cursor is read, main first and then by color, and in the
	// Current of a refused write; never in lists and watches.
	Notes []CursorNote `json:"notes,omitempty"`
}

// CursorNote is the note of a cursor as it is stored.
type CursorNote struct {
	Cursor   string          `json:"cursor"`   // the color; empty: main
	Note     json.RawMessage `json:"note"`     // a consume.Note in JSON; null: there is none
	Revision uint64          `json:"revision"` // 0: there is none
}

// CursorWrite is the body of PUT /v1/cursors/{engine}/{group}/{topic}/{partition}: one
// transaction. It takes place, whole, if the record has the revision in If-Match (none:
// If-None-Match: *), the notes to be compared have theirs, the session in [SessionHeader]
// lives, and those in Gone do not; the group must exist. The answer is a [CursorDone].
//
// Refused, 412 of type [ProblemChanged]: something compared is different. 409 of type
// [ProblemSessionGone]: the writer's session does not live; it never will again, though a
// copy of the write that was under way may have landed before. Both carry in Current a
// [Cursor] with record and notes as they are, all read in the write's own transaction: the
// notes that Notes names, in its order, then those that Read names beside them. 409 of type
// [ProblemGroup]: there is no such group, and so no record.
type CursorWrite struct {
	Record json.RawMessage `json:"record,omitempty"` // a consume.Record in JSON; left out: it stays, with its revision
	Notes  []NoteWrite     `json:"notes,omitempty"`
	Gone   []string        `json:"gone,omitempty"`  // sessions that must not live
	Read   []string        `json:"read,omitempty"`  // cursors whose notes are asked for
	Moves  []CursorMove    `json:"moves,omitempty"` // what it does, for people
}

// NoteWrite puts or deletes the note of a cursor.
type NoteWrite struct {
	Cursor   string          `json:"cursor"`            // the color; empty: main
	Note     json.RawMessage `json:"note"`              // a consume.Note in JSON; null: deleted
	Compare  bool            `json:"compare,omitempty"` // the note must have Revision
	Revision uint64          `json:"revision,omitempty"`
}

// CursorMove tells people of a move: the fields of a consume.Move.
type CursorMove struct {
	Kind   string `json:"kind"`
	Cursor string `json:"cursor,omitempty"`
	Lane   string `json:"lane,omitempty"`
	From   int64  `json:"from,omitempty"`
	Why    string `json:"why,omitempty"`
}

// CursorDone is the answer to a write that took place. Revision is the record's after it.
// Notes are those that were written, in the order of the write, and then those that Read
// names beside them.
type CursorDone struct {
	Revision uint64       `json:"revision"`
	Notes    []CursorNote `json:"notes"`
}

// CursorBatch is the body of POST /v1/cursors:batch, and, of writes without a record, of
// POST /v1/notes: up to MaxCursorBatch writes in MaxBatchBytes, of the session in
// [SessionHeader]. Each is a transaction of its own, answered by itself; a refused one refuses
// no other. They are carried out at once, in no order.
type CursorBatch struct {
	Writes []CursorBatchWrite `json:"writes"`
}

// CursorBatchWrite is one write of a batch.
type CursorBatchWrite struct {
	Name       string `json:"name"`                  // of the cursor: "engine/group/topic/partition"
	IfRevision uint64 `json:"if_revision,omitempty"` // of the record; 0: there is none
	CursorWrite
}

// CursorAnswers answers a [CursorBatch]: one for each write, in its order.
type CursorAnswers struct {
	Answers []CursorAnswer `json:"answers"`
}

// CursorAnswer says what became of a write of a batch. Status is what the write would have
// been answered with alone. 200: Revision and Notes are those of a [CursorDone]. 409 and 412:
// Revision, Record and Notes are as they are, as in the Current of a refused write. Any
// other: Type and Detail are those of a [Problem]; 500 and above: whether the write took
// place is not known.
type CursorAnswer struct {
	Status   int             `json:"status"`
	Type     string          `json:"type,omitempty"`
	Detail   string          `json:"detail,omitempty"`
	Errors   []FieldError    `json:"errors,omitempty"`
	Revision uint64          `json:"revision,omitempty"`
	Record   json.RawMessage `json:"record,omitempty"`
	Notes    []CursorNote    `json:"notes,omitempty"`
}

// CursorName is the name of the cursors of a partition: "engine/group/topic/partition".
func CursorName(engine, group, topic string, partition int) string {
	return engine + "/" + group + "/" + topic + "/" + strconv.Itoa(partition)
}

// ParseCursorName takes apart what [CursorName] put together. Names are not checked, but the
// partition is one, written as strconv does.
func ParseCursorName(name string) (engine, group, topic string, partition int, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 4 {
		return "", "", "", 0, false
	}
	n, err := strconv.Atoi(parts[3])
	if err != nil || n < 0 || n > MaxPartition || strconv.Itoa(n) != parts[3] {
		return "", "", "", 0, false
	}
	return parts[0], parts[1], parts[2], n, true
}
