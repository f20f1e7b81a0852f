package consume

import (
	"context"
	"log/slog"
	"time"
)

// Option changes how [Run] consumes. Where two contradict each other the later one counts.
type Option func(*consumption)

// consumption is what Run was asked for.
type consumption struct {
	Options
	topics     []string
	want       Settings
	demands    demands
	partitions int32
}

// WithTopics lets the consumer read further topics.
func WithTopics(topics ...string) Option {
	return func(c *consumption) { c.topics = append(c.topics, topics...) }
}

// WithBatches hands out up to n messages of one color at a time, to h; the handler that Run
// was given must be nil. Batches of one color come one after the other, where the
// concurrency is 1.
func WithBatches(n int, h BatchHandler) Option {
	return func(c *consumption) { c.Batch, c.HandleBatch = n, h }
}

// WithConcurrency lets n handlers run at once for each cursor, which is a partition's plain
// messages or one color of them. Default: 16, and 1 for an ordered group.
func WithConcurrency(n int) Option { return func(c *consumption) { c.Concurrency = n } }

// WithKeyOrder hands out messages of one key one after the other, in their order, whatever
// the concurrency.
func WithKeyOrder() Option { return func(c *consumption) { c.KeyOrder = true } }

// WithDeadline ends the context of each call of a handler after d. Default: it has no
// deadline.
func WithDeadline(d time.Duration) Option { return func(c *consumption) { c.Deadline = d } }

// WithWindow bounds what is in flight with one cursor: messages and their bytes. Zero stands
// for [DefaultWindow] and [DefaultWindowBytes].
func WithWindow(messages int, bytes int64) Option {
	return func(c *consumption) { c.Config.Window, c.Config.WindowBytes = messages, bytes }
}

// WithGrace lets the members count for so long after they have left, or until others of their
// lane come: for a deployment that stops the old before it starts the new.
func WithGrace(d time.Duration) Option { return func(c *consumption) { c.Grace = d } }

// WithFilter settles the messages that keep does not report without handing them out. It is
// pure, and the same in all members of a group.
func WithFilter(keep func(*Message) bool) Option {
	return func(c *consumption) { c.Config.Filter = keep }
}

// WithContext lets f add to the context of each call of a handler, such as the span that the
// message's headers name; it is given the first message of a batch.
func WithContext(f func(context.Context, *Delivery) context.Context) Option {
	return func(c *consumption) { c.Context = f }
}

// WithLog logs what happens to the group here. Default: nothing is logged.
func WithLog(log *slog.Logger) Option { return func(c *consumption) { c.Log = log } }

// WithPartitions creates the topics that are not there, with n partitions each. Default: a
// topic that is not there is an error. The engine must be a [Topics], too.
func WithPartitions(n int32) Option { return func(c *consumption) { c.partitions = n } }

// WithEngine demands that the group is on the engine of this name. Default, when the group is
// created: the engine of its topics, or the only one that there is.
func WithEngine(name string) Option {
	return func(c *consumption) { c.want.Engine, c.demands.engine = name, true }
}

// WithStart demands that the group begins, or has begun, there. Default, when the group is
// created: at the first message that there is.
func WithStart(s Start) Option {
	return func(c *consumption) { c.want.Start, c.demands.start = s, true }
}

// WithOrdered demands that the group is ordered, or that it is not: one color is never with
// two lanes at once, also while it moves from the one to the other. Default, when the group
// is created: it is not.
func WithOrdered(ordered bool) Option {
	return func(c *consumption) { c.want.Ordered, c.demands.ordered = ordered, true }
}

// WithRetries demands that a message that fails is retried after these delays, and is dead
// after the last; without any it is dead at once. Default, when the group is created: 1 s,
// 10 s, 1 min, 10 min.
func WithRetries(delays ...time.Duration) Option {
	return func(c *consumption) {
		c.want.RetryDelays, c.demands.retries = append([]time.Duration{}, delays...), true
	}
}

// WithHandoverTimeout demands that a cursor that is given up waits so long, at most, for what
// is in flight. Default, when the group is created: [DefaultHandoverTimeout].
func WithHandoverTimeout(d time.Duration) Option {
	return func(c *consumption) { c.want.HandoverTimeout, c.demands.handover = d, true }
}

// WithOnLoss demands what the group's members do when they lose the registry. Default, when
// the group is created: [LossDefault].
func WithOnLoss(p LossPolicy) Option {
	return func(c *consumption) { c.want.OnLoss, c.demands.onLoss = p, true }
}

// defaultRetries are the delays of a group that nobody has said anything of.
func defaultRetries() []time.Duration {
	return []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute}
}
