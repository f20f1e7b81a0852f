package consume

import (
	"github.com/laneway-dev/laneway/lane"
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

// drop settles a copy that is not for those who have it: its lane's consumers have left with it
// unread. Nothing is lost by that, since the original is where it was.
func (r *Runner) drop(a *Dispatch) {
	if w := r.worker(a.Run); !w.dropped {
		w.dropped = true // once for each cursor: there may be many
		r.log.InfoContext(r.life, "replayed messages are dropped: they were for a lane whose consumers have left",
			"group", r.o.Config.Group, "topic", a.Partition.Topic, "lane", string(a.Origin.Only))
	}
	id, offset := a.Run, a.Offset
	r.box.put(input{do: func() {
		if in, it := r.core.inFlight(id, offset); it != nil { // else it is another one's now
			r.counts.Dropped++
			r.hopEnded(HopDropped, in, it, ReasonOfOtherLane, "")
			r.tell(&Settled{id, offset})
		}
	}})
}
