package consumetest_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/consume/consumetest"
)

func memory() consumetest.Engine {
	m := consume.NewMemory(consume.MemoryConfig{})
	return consumetest.Engine{
		Source: m, Topics: m,
		Recreate: func(_ context.Context, topic string) error { return m.Recreate(topic) },
		Trim:     func(_ context.Context, p consume.Partition, first int64) error { return m.Retain(p, first) },
		Foreign: func(_ context.Context, group string, p consume.Partition) (func() error, error) {
			leave, err := m.Foreign(consume.ForeignConsumer{Group: group, Partition: p})
			return func() error { leave(); return nil }, err
		},
		Place: func(_ context.Context, p consume.Partition, room string) error { return m.Place(p, room) },
	}
}

func TestMemoryEngine(t *testing.T) {
	consumetest.RunEngine(t, func(t *testing.T) consumetest.Engine {
		e := memory()
		t.Cleanup(func() { _ = e.Close() })
		return e
	})
}

// broken changes what an engine answers.
type broken struct {
	consume.Source
	read   func(b *consume.Batch, from int64, f consume.Filter)
	bounds func(b *consume.Bounds)
	append func(ms []*consume.Message) []*consume.Message

	foreign func(topic string, found []consume.ForeignConsumer, more int) ([]consume.ForeignConsumer, int)
	room    func(ctx context.Context, src consume.Source, p consume.Partition) (string, error)
}

func (x *broken) Room(ctx context.Context, p consume.Partition) (string, error) {
	if x.room != nil {
		return x.room(ctx, x.Source, p)
	}
	return consume.FindRoom(ctx, x.Source, p)
}

func (x *broken) ForeignConsumers(ctx context.Context, topic string) ([]consume.ForeignConsumer, int, error) {
	found, more, err := consume.FindForeign(ctx, x.Source, topic)
	if x.foreign != nil {
		found, more = x.foreign(topic, found, more)
	}
	return found, more, err
}

func (x *broken) Read(ctx context.Context, p consume.Partition, from int64, f consume.Filter, most int) (consume.Batch, error) {
	b, err := x.Source.Read(ctx, p, from, f, most)
	if err == nil && x.read != nil {
		x.read(&b, from, f)
	}
	return b, err
}

func (x *broken) Bounds(ctx context.Context, p consume.Partition) (consume.Bounds, error) {
	b, err := x.Source.Bounds(ctx, p)
	if err == nil && x.bounds != nil {
		x.bounds(&b)
	}
	return b, err
}

func (x *broken) Append(ctx context.Context, ms ...*consume.Message) error {
	if x.append != nil {
		ms = x.append(ms)
	}
	return x.Source.Append(ctx, ms...)
}

// TestSuiteIsStrict: each engine that breaks a promise fails the suite, at the check that is
// for it.
func TestSuiteIsStrict(t *testing.T) {
	at := func(m *consume.Message, o int64) *consume.Message {
		c := *m
		c.Offset = o
		return &c
	}
	var asked atomic.Int64
	for _, c := range []struct {
		name, check string
		x           broken
	}{
		{"next too far", "Reads", broken{read: func(b *consume.Batch, _ int64, f consume.Filter) {
			if !f.All && len(b.Messages) > 1 {
				b.Messages = b.Messages[:len(b.Messages)-1]
			}
		}}},
		{"next past the end", "Reads", broken{read: func(b *consume.Batch, _ int64, _ consume.Filter) { b.Next += 5 }}},
		{"next never moves", "Reads", broken{read: func(b *consume.Batch, from int64, _ consume.Filter) {
			b.Messages, b.Next = nil, from
		}}},
		{"next behind", "Waits", broken{read: func(b *consume.Batch, from int64, _ consume.Filter) {
			if len(b.Messages) == 0 {
				b.Next = from - 1
			}
		}}},
		{"a gap", "Reads", broken{read: func(b *consume.Batch, _ int64, _ consume.Filter) {
			if len(b.Messages) > 3 {
				b.Messages = append(b.Messages[:1:1], b.Messages[2:]...)
			}
		}}},
		{"backward", "Reads", broken{read: func(b *consume.Batch, _ int64, _ consume.Filter) {
			if len(b.Messages) > 1 {
				b.Messages = append([]*consume.Message{b.Messages[1], b.Messages[0]}, b.Messages[2:]...)
			}
		}}},
		{"an offset twice", "Reads", broken{read: func(b *consume.Batch, _ int64, _ consume.Filter) {
			if len(b.Messages) > 1 {
				b.Messages = append([]*consume.Message{at(b.Messages[0], b.Messages[1].Offset)}, b.Messages[1:]...)
			}
		}}},
		{"no bounds of another log", "ReadsOn", broken{read: func(b *consume.Batch, _ int64, f consume.Filter) {
			if f.Epoch != "" && len(b.Messages) > 0 {
				b.Bounds = consume.Bounds{}
			}
		}}},
		{"no bounds at a gap", "ReadsOn", broken{read: func(b *consume.Batch, _ int64, f consume.Filter) {
			if f.Epoch == b.Bounds.Epoch {
				b.Bounds = consume.Bounds{}
			}
		}}},
		{"another color", "Reads", broken{read: func(b *consume.Batch, _ int64, _ consume.Filter) {
			for i, m := range b.Messages {
				c := *m
				c.Color = lane.Name("red")
				b.Messages[i] = &c
			}
		}}},
		{"appends that are forgotten", "Messages", broken{append: func(ms []*consume.Message) []*consume.Message { return ms[:len(ms)-1] }}},
		{"a place that is not told", "Places", broken{append: func(ms []*consume.Message) []*consume.Message {
			copies := make([]*consume.Message, len(ms))
			for i, m := range ms {
				copies[i] = at(m, 0)
			}
			return copies
		}}},
		{"one epoch for all", "Recreated", broken{
			bounds: func(b *consume.Bounds) { b.Epoch = "1" },
			read:   func(b *consume.Batch, _ int64, _ consume.Filter) { b.Bounds.Epoch = "1" },
		}},
		{"nobody is foreign", "Foreign", broken{foreign: func(string, []consume.ForeignConsumer, int) ([]consume.ForeignConsumer, int) {
			return nil, 0
		}}},
		{"everybody is foreign", "Foreign", broken{foreign: func(topic string, found []consume.ForeignConsumer, more int) ([]consume.ForeignConsumer, int) {
			return append(found, consume.ForeignConsumer{Group: "self", Partition: consume.Partition{Topic: topic}}), more
		}}},
		{"foreign without a group", "Foreign", broken{foreign: func(_ string, found []consume.ForeignConsumer, more int) ([]consume.ForeignConsumer, int) {
			for i := range found {
				found[i].Group = ""
			}
			return found, more
		}}},
		{"foreign that are not counted", "Foreign", broken{foreign: func(_ string, found []consume.ForeignConsumer, _ int) ([]consume.ForeignConsumer, int) {
			return found, 0
		}}},
		{"a room of what is not there", "Rooms", broken{room: func(ctx context.Context, src consume.Source, p consume.Partition) (string, error) {
			room, _ := consume.FindRoom(ctx, src, p)
			return room, nil
		}}},
		{"another room for each who asks", "Rooms", broken{room: func(ctx context.Context, src consume.Source, p consume.Partition) (string, error) {
			_, err := consume.FindRoom(ctx, src, p)
			return strconv.FormatInt(asked.Add(1), 10), err
		}}},
		{"one room for all partitions", "Rooms", broken{room: func(ctx context.Context, src consume.Source, p consume.Partition) (string, error) {
			if _, err := consume.FindRoom(ctx, src, p); err != nil {
				return "", err
			}
			return consume.FindRoom(ctx, src, consume.Partition{Topic: p.Topic, Index: 1})
		}}},
		{"a room that is not left", "Rooms", broken{room: func(ctx context.Context, src consume.Source, p consume.Partition) (string, error) {
			room, err := consume.FindRoom(ctx, src, p)
			return strings.Replace(room, "west", "east", 1), err
		}}},
		{"retention that is not told", "Retention", broken{
			bounds: func(b *consume.Bounds) { b.First = 0 },
			read:   func(b *consume.Batch, _ int64, _ consume.Filter) { b.Bounds.First = 0 },
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			failed := consumetest.CheckEngine(ctx, func() (consumetest.Engine, error) {
				e := memory()
				x := c.x
				x.Source = e.Source
				e.Source = &x
				return e, nil
			}, c.check)
			if failed[c.check] == nil {
				t.Errorf("check %s passes; failed: %v", c.check, failed)
			}
		})
	}
}
