package consume

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// HopsTopic is the topic that [Hops] writes to by default.
const HopsTopic = "laneway.hops"

// MessageHeader carries the name under which hops of a message are kept. A [Producer] that
// records hops sets it on all that it sends; retried and dead messages keep it.
const MessageHeader = "laneway-message"

// HopKind is what happened to a message.
type HopKind string

// Kinds of hops.
const (
	HopProduced   HopKind = "produced"   // the engine has it, or Error says why that is not known
	HopDispatched HopKind = "dispatched" // it was handed to a member
	HopSettled    HopKind = "settled"    // the member has worked on it
	HopReturned   HopKind = "returned"   // the member gave it back: it is handed out again
	HopRetried    HopKind = "retried"    // it failed, and waits in a retry topic
	HopDead       HopKind = "dead"       // it is in a dead-letter topic
	HopReplayed   HopKind = "replayed"   // a copy of it was put into a retry topic, for a lane
	// HopDropped: nobody worked on it. A dead one was deleted; or it is a copy of a replay, and
	// came to members that it is not for.
	HopDropped HopKind = "dropped"
	// HopMissing is about no message: Count hops of any messages, since Since, were not kept,
	// because the engine did not take them as fast as they came.
	HopMissing HopKind = "missing"
)

// Reasons of hops that are not those of a lane.
const (
	ReasonByHand      = "by-hand"                 // somebody asked for it, by a command
	ReasonOfOtherLane = "replayed-for-other-lane" // the copy is for another lane's members alone
)

// Hop is one thing that happened to a message. A message of a hops topic has several of them
// as its value: JSON objects, one a line, those of one process in their order.
type Hop struct {
	Time time.Time `json:"time"` // by the clock of the process
	Kind HopKind   `json:"kind"`
	// Message is the value of the message's [MessageHeader]; empty: it has none, since its
	// producer records no hops.
	Message string `json:"message,omitempty"`
	Topic   string `json:"topic,omitempty"`  // that it was sent to at first
	Origin  string `json:"origin,omitempty"` // topic/partition@offset where it was at first; its producer does not know
	// Place is topic/partition@offset where the group read it, which differs from Origin once
	// it was retried; empty: it was produced.
	Place string    `json:"place,omitempty"`
	To    string    `json:"to,omitempty"` // the retry or dead-letter topic that it went to
	Key   string    `json:"key,omitempty"`
	Color lane.Name `json:"color"`
	Group string    `json:"group,omitempty"`

	Member   string    `json:"member,omitempty"` // of the group
	Lane     lane.Name `json:"lane"`             // whose member that is, the process's that produced it, or that it was replayed for; empty: the baseline
	Service  string    `json:"service,omitempty"`
	Instance string    `json:"instance,omitempty"`

	// Attempt is the number of the try, from 1; of a retried or dead message how many failed.
	Attempt     int    `json:"attempt,omitempty"`
	Reason      string `json:"reason,omitempty"` // why that lane, why it is dead or dropped; of a replayed message the replay's name
	Redelivered bool   `json:"redelivered,omitempty"`
	Error       string `json:"error,omitempty"`

	Count int64     `json:"count,omitempty"` // of a HopMissing
	Since time.Time `json:"since,omitzero"`
}

// SortHops puts hops of a message in their order: by time, so far as clocks of several machines
// agree; where that is the same, what produced it comes first, and others stay as they were.
func SortHops(hops []Hop) {
	produced := func(h *Hop) int {
		if h.Kind == HopProduced {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(hops, func(a, b Hop) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(produced(&a), produced(&b)))
	})
}

// Limits of what a hop says: longer texts are cut.
const (
	maxHopKey   = 128
	maxHopError = 256
)

// cut shortens a text from a peer.
func cut(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "\ufffd")
}

// ParseShare reads a share of messages as people write it: "none" or nothing, "all", a
// percentage such as "1%", or a number from 0 to 1.
func ParseShare(text string) (float64, error) {
	switch text = strings.TrimSpace(text); text {
	case "", "none":
		return 0, nil
	case "all":
		return 1, nil
	}
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(number, 64)
	if percent {
		share /= 100
	}
	if err != nil || !validShare(share) {
		return 0, fmt.Errorf("share %q: want none, all, a percentage such as 1%%, or a number from 0 to 1", text)
	}
	return share, nil
}

func validShare(share float64) bool { return share >= 0 && share <= 1 } // which no NaN is

// threshold is what the hash of a message is below if it belongs to the share.
func threshold(share float64) uint64 {
	if share >= 1 {
		return math.MaxUint64
	}
	return uint64(share * (1 << 32) * (1 << 32))
}

// hash is FNV-1a with the end of MurmurHash3, whose upper bits depend on all of the input. It
// is the same in all processes and versions: so they choose the same messages.
type hash uint64

const hashStart hash = 14695981039346656037

func (h hash) text(s string) hash {
	for i := range len(s) {
		h = (h ^ hash(s[i])) * 1099511628211
	}
	return h
}

func (h hash) bytes(b []byte) hash {
	for _, c := range b {
		h = (h ^ hash(c)) * 1099511628211
	}
	return h
}

func (h hash) number(n int64) hash {
	for range 8 {
		h = (h ^ hash(n&0xff)) * 1099511628211
		n >>= 8
	}
	return h
}

func (h hash) sum() uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return uint64(h ^ h>>33)
}

// named is the value of a message's header, or nil.
func (m *Message) named() []byte {
	for i := range m.Headers {
		if f := &m.Headers[i]; len(f.Name) == len(MessageHeader) && strings.EqualFold(f.Name, MessageHeader) {
			return f.Value
		}
	}
	return nil
}

// first is where a message was at first.
func (m *Message) first() (Partition, int64) {
	if m.Origin != nil {
		return m.Origin.Partition, m.Origin.Offset
	}
	return m.Partition, m.Offset
}

// score is what decides whether a message belongs to a share: the same for all of its hops.
func (m *Message) score() uint64 {
	if name := m.named(); name != nil {
		return hashStart.bytes(name).sum()
	}
	p, offset := m.first()
	return hashStart.text(p.Topic).number(int64(p.Index)).number(offset).sum()
}

func placeOf(p Partition, offset int64) string {
	return p.String() + "@" + strconv.FormatInt(offset, 10)
}
