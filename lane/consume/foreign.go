package consume

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// MaxForeignConsumers is how many foreign consumers of a topic an engine names at most.
const MaxForeignConsumers = 100

const (
	foreignLook = time.Minute      // how often a runner looks for foreign consumers
	foreignTick = 5 * time.Second  // how often it looks whether it is the one to do so
	foreignWait = 30 * time.Second // how long the engine may take to tell
)

// ForeignConsumer is somebody who reads a topic from the engine itself and not through
// Laneway. One that is in a group of Laneway's works on messages that the group's members
// are handed, too, whatever their color.
type ForeignConsumer struct {
	// Group is the group that it is in, by the engine's own word for that: a consumer group
	// of Kafka or RocketMQ, a consumer of JetStream by its name. Empty: none.
	Group string
	// Name is what the engine calls this one. Empty: it has no name of its own.
	Name string
	// Partition is what it reads. A negative Index: the whole topic, or it is not known what.
	Partition Partition
	// Kind is what it is, in the engine's words, for people.
	Kind string
	// Client is what is known of its process, such as an ID and an address. Empty: nothing.
	Client string
	// Since is when it came, Active when it last took or settled a message. Zero: not known.
	Since, Active time.Time
	// Position is the offset below which it has settled all; negative: not known.
	Position int64
}

// In reports whether the consumer is in a group, or takes one color of it by the name under
// which the engine's own tools show that; see [Source.Mirror].
func (c *ForeignConsumer) In(group string) bool {
	of, _, _ := strings.Cut(c.Group, "%")
	return of == group
}

// Compare is the order in which engines name those of a topic: by partition, group and name.
func (c *ForeignConsumer) Compare(o *ForeignConsumer) int {
	return cmp.Or(cmp.Compare(c.Partition.Index, o.Partition.Index), strings.Compare(c.Group, o.Group), strings.Compare(c.Name, o.Name))
}

// ForeignFinder is an engine whose [Caps] say ForeignConsumers.
type ForeignFinder interface {
	// ForeignConsumers tells who reads a topic past Laneway: those that the engine knows,
	// also where they are not connected just now. At most [MaxForeignConsumers] are named,
	// in the order of [ForeignConsumer.Compare]; more is how many there are beside them. Who
	// reads through an engine of Laneway is never among them. ErrNoTopic: there is no such
	// topic. It may be called at any time, and returns as calls of a [Source] do.
	ForeignConsumers(ctx context.Context, topic string) (found []ForeignConsumer, more int, err error)
}

// FindForeign asks an engine who reads a topic past Laneway, as
// [ForeignFinder.ForeignConsumers] does. ErrUnsupported: it cannot tell.
func FindForeign(ctx context.Context, src Source, topic string) (found []ForeignConsumer, more int, err error) {
	f, ok := src.(ForeignFinder)
	if !ok || !src.Caps().ForeignConsumers {
		return nil, 0, ErrUnsupported
	}
	return f.ForeignConsumers(ctx, topic)
}

// lookForeign tells of foreign consumers in the group when they come. Of all the processes
// of a group one looks at each topic: that which has its first partition's main cursor.
func (r *Runner) lookForeign(ctx context.Context) {
	if _, ok := r.o.Source.(ForeignFinder); !ok || !r.o.Source.Caps().ForeignConsumers {
		return
	}
	looks := map[string]*foreignLooks{} // by topic
	for pause.For(ctx, foreignTick) {
		leads := make(chan map[string]bool, 1)
		r.box.put(input{do: func() { leads <- r.leads() }})
		select {
		case topics := <-leads:
			maps.DeleteFunc(looks, func(topic string, _ *foreignLooks) bool { return !topics[topic] })
			for topic := range topics {
				r.tellForeign(ctx, topic, looks)
			}
		case <-ctx.Done(): // the loop may have ended
			return
		}
	}
}

// foreignLooks are those at one topic.
type foreignLooks struct {
	last time.Time
	told bool // that there are foreign consumers in the group
}

// leads are the topics whose first partition's main cursor is run here.
func (r *Runner) leads() map[string]bool {
	out := map[string]bool{}
	for _, run := range r.core.runs {
		if run.cursor == Main && run.p.id.Index == 0 {
			out[run.p.id.Topic] = true
		}
	}
	return out
}

// tellForeign looks at one topic if it is time to, and tells of what is there where it was not
// before.
func (r *Runner) tellForeign(ctx context.Context, topic string, looks map[string]*foreignLooks) {
	look := looks[topic]
	if look == nil {
		look = &foreignLooks{}
		looks[topic] = look
	} else if time.Since(look.last) < foreignLook {
		return
	}
	look.last = time.Now()
	call, cancel := context.WithTimeout(ctx, foreignWait)
	defer cancel()
	found, _, err := FindForeign(call, r.o.Source, topic)
	if err != nil {
		if !errors.Is(err, ErrNoTopic) && ctx.Err() == nil {
			r.log.DebugContext(ctx, "foreign consumers are not known", "topic", topic, "error", err)
		}
		return
	}
	a := Alarm{Kind: AlarmForeign, Partition: Partition{Topic: topic}}
	for i := range found {
		if !found[i].In(r.o.Config.Group) {
			continue
		}
		if a.Count == 0 {
			a.Partition.Index = max(found[i].Partition.Index, 0)
		}
		a.Count++
	}
	if a.Count > 0 && !look.told {
		r.box.put(input{do: func() { r.act(&a) }}) //nolint:contextcheck // the loop does it, with the runner's own
	}
	look.told = a.Count > 0
}
