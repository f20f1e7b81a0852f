package consume

import (
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Reasons of hops that are not those of a lane.
const (
	ReasonByHand      = "by-hand"                 // somebody asked for it, by a command
	ReasonOfOtherLane = "replayed-for-other-lane" // the copy is for another lane's members alone
)

// Replayed is the name of the replay that m is a copy for, made by a person who had messages
// handed out again, as `laneway group replay` does; empty: it is none. The group, or another
// lane's member of it, may have worked on the original, whose place m.Origin has. Attempts are
// counted anew.
func (m *Message) Replayed() string {
	if m.Origin == nil {
		return ""
	}
	return m.Origin.Replay
}

// forOther reports whether m, with members of a lane, is a copy that a replay made for those of
// another one alone. Only a group's own retry topic has such copies: a dead one that somebody
// else reads is a message like others to him.
func (c *Config) forOther(m *Message, in lane.Name) bool {
	o := m.Origin
	if o == nil || o.Only == lane.Baseline || o.Only == in || o.Group != c.Group {
		return false
	}
	t, retry, ok := c.origin(m.Partition.Topic)
	return ok && retry && t.Name == o.Partition.Topic
}

// dropReplayed settles a copy that is not for those who have it: its lane's consumers have left
// with it unread. Nothing is lost by that, since the original is where it was.
func (r *Runner) dropReplayed(a *Dispatch) {
	if w := r.worker(a.Run); !w.dropped {
		w.dropped = true // once for each cursor: there may be many
		r.log.InfoContext(r.life, "replayed messages are dropped: they were for a lane whose consumers have left",
			"group", r.o.Config.Group, "topic", a.Partition.Topic, "lane", string(a.Origin.Only))
	}
	r.post(&Settled{a.Run, a.Offset})
}

// Record keeps a hop of m that is none of consuming or producing, such as what a command did
// with it: hop says Time (zero: now), Kind, Group, Lane, Place, To, Attempt, Reason and Error, the
// rest is m's and the process's. Where others may be handed m as soon as that is done, Time is
// when it began. Like all recording it does not block.
func (h *Hops) Record(m *Message, hop Hop) {
	if !h.wants(m) {
		return
	}
	if hop.Time.IsZero() {
		hop.Time = time.Now()
	}
	full := of(m, hop.Time)
	full.Kind, full.Group, full.Lane, full.Place, full.To = hop.Kind, hop.Group, hop.Lane, hop.Place, hop.To
	full.Attempt, full.Reason, full.Error = hop.Attempt, hop.Reason, hop.Error
	h.add(full)
}
