package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	defaultReplay = 1000
	replayAtOnce  = 256     // copies that are put there together
	replayBytes   = 4 << 20 // and what they take, and one more
)

// again is a copy of a message for the retry topic of a group, from which it goes to whoever
// its color belongs to, with all of its attempts before it.
func again(m *consume.Message, topic, group string) *consume.Message {
	next := *m
	next.Partition, next.Offset = consume.Partition{Topic: consume.RetryTopic(topic, group), Index: -1}, 0
	next.Attempt, next.Delay, next.ID = 0, 0, ""
	return &next
}

// replay hands messages of a topic to a lane's consumers of a group again.
type replay struct {
	engine  engine
	group   *laneclient.Group
	topic   string
	lane    lane.Name
	only    lane.Name // see [consume.Origin]
	filter  consume.Filter
	name    string
	retries int32           // partitions of the group's retry topic
	there   map[string]bool // origins of copies that an earlier run has made
	hops    *consume.Hops
	told    func() // after each few copies

	view   *replayView
	copies []*consume.Message // not there yet
	bytes  int64
}

// replayView is what `group replay` prints.
type replayView struct {
	Name       string       `json:"name"`
	Group      string       `json:"group"`
	Topic      string       `json:"topic"`
	Lane       string       `json:"lane"`
	Reason     string       `json:"reason"`           // why whoever gets them does
	Paused     bool         `json:"paused,omitempty"` // the group is
	DryRun     bool         `json:"dry_run,omitempty"`
	Partitions []replayPart `json:"partitions"`
	Found      int64        `json:"found"`   // messages of the range
	Copied     int64        `json:"copied"`  // that were put before the lane's consumers
	Already    int64        `json:"already"` // that a replay of this name had put there before
	LeftOut    int64        `json:"left_out"`
}

// replayPart is the range in one partition, and what became of it.
type replayPart struct {
	Partition int   `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"` // the last offset
	Found     int64 `json:"found"`
	Copied    int64 `json:"copied"`
	Already   int64 `json:"already"`
	LeftOut   int64 `json:"left_out"`
}

// messageRange says which messages of a partition.
type messageRange struct {
	from, to     int64 // offsets; 0 and negative: no limit
	since, until time.Time
}

// find looks up what of the range there is in a topic, all of it or in one partition.
func (r *replay) find(ctx context.Context, only int, in messageRange, now time.Time) error {
	spec, err := r.engine.Describe(ctx, r.topic)
	if errors.Is(err, consume.ErrNoTopic) {
		return noTopic(r.topic)
	}
	if err != nil {
		return err
	}
	switch n := int(spec.Partitions); {
	case only >= n:
		return fmt.Errorf("topic %s has %s, numbered from 0", r.topic, plural(n, "partition"))
	case only < 0 && n > 1 && (in.from > 0 || in.to >= 0):
		return usageError(fmt.Errorf("topic %s has %s, each with offsets of its own: say which with --partition, or say when with --since and --until", r.topic, plural(n, "partition")))
	}
	for i := range spec.Partitions {
		if only >= 0 && int(i) != only {
			continue
		}
		part, err := r.part(ctx, spec, i, in, now)
		if err != nil {
			return err
		}
		if part.Found > 0 {
			r.view.Partitions = append(r.view.Partitions, part)
			r.view.Found += part.Found
		}
	}
	if r.view.Found == 0 {
		return fmt.Errorf("topic %s has no such message in that range: `laneway topic show %s` says which offsets there are", r.topic, r.topic)
	}
	return nil
}

// part looks up the range in one partition.
func (r *replay) part(ctx context.Context, spec consume.TopicSpec, index int32, in messageRange, now time.Time) (part replayPart, err error) {
	at := consume.Partition{Topic: r.topic, Index: index}
	b, err := r.engine.Bounds(ctx, at)
	if err != nil {
		return part, err
	}
	from, end := b.First, b.End
	if in.from > 0 {
		if in.from < b.First {
			return part, fmt.Errorf("offsets %d to %d of %s are gone: what is left begins with --from %d", in.from, b.First-1, at, b.First)
		}
		from = in.from
	}
	if !in.since.IsZero() {
		then, err := r.engine.At(ctx, at, in.since)
		if err != nil {
			return part, err
		}
		if then == b.First && b.First > 1 && spec.Retention > 0 && in.since.Before(now.Add(-spec.Retention)) {
			return part, fmt.Errorf("messages of %s since then may be gone, since topic %s keeps them for %s: what is left begins with --from %d --partition %d", at, r.topic, span(spec.Retention), b.First, index)
		}
		from = max(from, then)
	}
	if in.to >= 0 && in.to < math.MaxInt64 {
		end = min(end, in.to+1)
	}
	if !in.until.IsZero() {
		then, err := r.engine.At(ctx, at, in.until)
		if err != nil {
			return part, err
		}
		end = min(end, then)
	}
	part = replayPart{Partition: int(index), From: from, To: end - 1}
	if from >= end {
		return part, nil
	}
	all, err := r.engine.Count(ctx, at, from, r.filter)
	if err != nil {
		return part, err
	}
	beyond, err := r.engine.Count(ctx, at, end, r.filter)
	part.Found = max(all-beyond, 0)
	return part, err
}

// look finds the copies that a replay of this name has made before.
func (r *replay) look(ctx context.Context) error {
	r.there = map[string]bool{}
	p := peek{topic: consume.RetryTopic(r.topic, r.group.Name), partition: -1, filter: consume.Filter{Color: r.lane}, limit: math.MaxInt}
	return eachMessage(ctx, r.engine, p, func(m *consume.Message) {
		if m.Replayed() == r.name {
			r.there[placeID(m.Origin.Partition, m.Origin.Offset)] = true
		}
	})
}

// run makes the copies, partition by partition and in the order of each.
func (r *replay) run(ctx context.Context) error {
	for i := range r.view.Partitions {
		if err := r.runPart(ctx, &r.view.Partitions[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *replay) runPart(ctx context.Context, part *replayPart) error {
	at := consume.Partition{Topic: r.topic, Index: int32(part.Partition)}
	for next := part.From; next <= part.To; {
		got, err := r.engine.Read(ctx, at, next, r.filter, readAtOnce)
		if err != nil {
			return err
		}
		for _, m := range got.Messages {
			if m.Offset > part.To {
				break
			}
			if err := r.take(ctx, part, m); err != nil {
				return err
			}
		}
		if got.Next <= next {
			break
		}
		next = got.Next
	}
	return r.flush(ctx, part)
}

// take makes a copy of one message, unless it has one, or is a strict lane's: load tests have
// what they write kept apart by their color, which the copy would not have.
func (r *replay) take(ctx context.Context, part *replayPart, m *consume.Message) error {
	switch {
	case r.there[idOf(m)]:
		part.Already++
		r.view.Already++
		return nil
	case r.filter.All && m.Color.Strict() && m.Color != r.lane:
		part.LeftOut++
		r.view.LeftOut++
		return nil
	}
	r.copies = append(r.copies, r.copyOf(m))
	r.bytes += m.Bytes()
	if len(r.copies) < replayAtOnce && r.bytes < replayBytes {
		return nil
	}
	return r.flush(ctx, part)
}

// copyOf is what the lane's consumers are handed for a message.
func (r *replay) copyOf(m *consume.Message) *consume.Message {
	next := again(m, r.topic, r.group.Name)
	next.Partition.Index = m.Partition.Index % r.retries // so the order of a partition, and of a key, is kept
	next.Color = r.lane
	headers := consume.Headers(slices.Clone(m.Headers))
	lane.Inject(&headers, r.lane)
	next.Headers = headers
	next.Origin = &consume.Origin{Partition: m.Partition, Offset: m.Offset, Group: r.group.Name, Replay: r.name, Only: r.only}
	if r.engine.Caps().Dedup {
		next.ID = fmt.Sprintf("%s/replay/%s/%s/%s", r.group.Name, r.name, r.lane, idOf(m))
	}
	return next
}

// flush puts copies there.
func (r *replay) flush(ctx context.Context, part *replayPart) error {
	if len(r.copies) == 0 {
		return nil
	}
	began := time.Now()
	if err := r.engine.Append(ctx, r.copies...); err != nil {
		return err
	}
	for _, m := range r.copies {
		r.hops.Record(m, consume.Hop{
			Time: began, Kind: consume.HopReplayed, Group: r.group.Name, Lane: r.lane, Reason: r.name,
			Place: placeID(m.Origin.Partition, m.Origin.Offset), To: m.Partition.Topic,
		})
	}
	n := int64(len(r.copies))
	part.Copied += n
	r.view.Copied += n
	r.copies, r.bytes = r.copies[:0], 0
	r.told()
	return nil
}
