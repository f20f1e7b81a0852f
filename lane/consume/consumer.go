package consume

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// Names of topics that are derived: see [RetryTopic] and [DeadTopic].
const (
	retrySuffix   = ".retry"
	deadSuffix    = ".dead"
	maxTopicBytes = 249
	// maxMemberBytes bounds what of an instance's name goes into a member's: with the rest
	// it is not longer than 64.
	maxMemberBytes = 64 - 1 - 2*memberRandom
	memberRandom   = 4
)

// RetryTopic is the topic in which a group's messages of a topic wait for their next try:
// "orders.billing.retry". A group whose name has a dot, or names too long for a topic, get a
// hash in place of what would be ambiguous.
func RetryTopic(topic, group string) string { return derived(topic, group, retrySuffix) }

// DeadTopic is the topic in which a group's messages of a topic end that could not be worked
// on: "orders.billing.dead". It is made like [RetryTopic].
func DeadTopic(topic, group string) string { return derived(topic, group, deadSuffix) }

func derived(topic, group, suffix string) string {
	name := topic + "." + group + suffix
	if !strings.Contains(group, ".") && len(name) <= maxTopicBytes {
		return name
	}
	sum := sha256.Sum256([]byte(topic + "\x00" + group))
	tail := "-" + hex.EncodeToString(sum[:8]) + suffix
	name = topic + "." + group
	return name[:min(len(name), maxTopicBytes-len(tail))] + tail
}

// Consumer consumes until it is closed, or until the context ends that [Run] was given. All
// of its methods may be called at once.
type Consumer struct {
	member string
	runner *Runner
	stop   context.CancelFunc
	done   chan struct{}
	err    error // read after done is closed
}

// Run consumes a topic for a group: handle is called with each message that belongs to this
// process's lane, its color in the context. lc is the process's connection to the control
// plane, whose lane and room are the consumer's.
//
// It returns once the process counts as a member; as soon as the group's other processes know
// of it, what its lane is to get comes here. Errors before that: ctx has ended; [ErrNoTopic];
// [ErrEntered]; [ErrMismatch], where the group has other settings than the options demand;
// [ErrRefused], such as for a lane that is not there.
//
// The first consumer of a group creates it with what its options say. After that the group's
// settings hold for all: an option that demands another one is an error, and what no option
// names is as the group has it.
//
// A message that fails goes to [RetryTopic], and after its last try to [DeadTopic]. An engine
// that is a [Topics], too, makes them; else they have to be there.
//
// The consumer goes on until ctx ends or it is closed; then it takes nothing new, lets
// handlers finish what they have begun within the group's hand-over time-out, notes what is
// settled, gives up its cursors and leaves the group. Neither the engine nor lc is closed.
func Run(ctx context.Context, src Source, lc Connection, topic, group string, handle Handler, options ...Option) (*Consumer, error) {
	c := &consumption{topics: []string{topic}}
	c.Handle, c.Source, c.Registry, c.Config.Group = handle, src, lc, group
	c.want.RetryDelays = defaultRetries()
	for _, o := range options {
		o(c)
	}
	if src == nil || lc == nil {
		return nil, errors.New("consume: an engine and a connection to the control plane are needed")
	}
	c.Topics, _ = src.(Topics)
	leave, err := c.prepare(ctx, lc)
	if err != nil {
		return nil, err
	}
	return c.start(ctx, leave)
}

// prepare learns what holds for the group, and completes the runner's options.
func (c *consumption) prepare(ctx context.Context, lc Connection) (leave func(), err error) {
	c.want.Topics, c.want.Partitions = c.topics, map[string]int32{}
	for _, t := range c.topics {
		if c.want.Partitions[t], err = c.count(ctx, t); err != nil {
			return nil, fmt.Errorf("consume: %w", err)
		}
	}
	hold, leave, err := lc.Enter(ctx, c.Config.Group, c.want.clone())
	if err != nil {
		return nil, fmt.Errorf("consume: enter group %s: %w", c.Config.Group, err)
	}
	if err := c.demands.check(c.Config.Group, &hold, &c.want); err != nil {
		leave()
		return nil, fmt.Errorf("consume: %w", err)
	}
	c.Config.Start, c.Config.Ordered, c.Config.OnLoss = hold.Start, hold.Ordered, hold.OnLoss
	c.Config.RetryDelays, c.Config.HandoverTimeout = hold.RetryDelays, hold.HandoverTimeout
	for _, t := range c.topics {
		c.Config.Topics = append(c.Config.Topics, Topic{
			Name: t, Retry: RetryTopic(t, c.Config.Group), Dead: DeadTopic(t, c.Config.Group), Partitions: hold.Partitions[t],
		})
	}
	if c.Concurrency == 0 && hold.Ordered && !c.KeyOrder {
		c.Concurrency = 1
	}
	c.Members = []Member{{ID: memberID(lc.Instance()), Lane: lc.Process(), Topics: c.topics, Room: lc.Room()}}
	c.wrap(lc)
	return leave, nil
}

// count is how many partitions a topic has; where it may, it creates it.
func (c *consumption) count(ctx context.Context, topic string) (int32, error) {
	for n := 0; ; n++ {
		call, cancel := context.WithTimeout(ctx, moveTimeout)
		count, err := c.Source.Partitions(call, topic)
		if errors.Is(err, ErrNoTopic) && c.partitions > 0 && c.Topics != nil {
			if err = c.Topics.Ensure(call, TopicSpec{Name: topic, Partitions: c.partitions}); err == nil {
				count, err = c.Source.Partitions(call, topic)
			}
		}
		cancel()
		if err == nil || errors.Is(err, ErrNoTopic) || errors.Is(err, ErrClosed) {
			return count, err
		}
		if !pause.For(ctx, backoff(n)) {
			return 0, fmt.Errorf("ask the engine for topic %s: %w", topic, errors.Join(ctx.Err(), err))
		}
	}
}

// wrap lets what handlers do keep lanes in use, and pass traces on.
func (c *consumption) wrap(id Identity) {
	if h := c.Handle; h != nil {
		c.Handle = func(ctx context.Context, d *Delivery) error {
			id.Used(d.Color)
			return h(ctx, d)
		}
	}
	if h := c.HandleBatch; h != nil {
		c.HandleBatch = func(ctx context.Context, ds []*Delivery) error {
			id.Used(ds[0].Color)
			return h(ctx, ds)
		}
		return // messages of several traces: what is sent from their handler belongs to none
	}
	more := c.Context
	c.Context = func(ctx context.Context, d *Delivery) context.Context {
		ctx = withTrace(ctx, d.Headers)
		if more != nil {
			ctx = more(ctx, d)
		}
		return ctx
	}
}

// memberID is a member's name: unique also where several processes are one instance.
func memberID(instance string) string {
	if instance == "" {
		instance = "member"
	}
	var b [memberRandom]byte
	_, _ = rand.Read(b[:]) // never fails
	return instance[:min(len(instance), maxMemberBytes)] + "-" + hex.EncodeToString(b[:])
}

// start runs the runner, and waits until it has joined. leave is called when it has ended.
func (c *consumption) start(ctx context.Context, leave func()) (*Consumer, error) {
	told := make(chan error, 1)
	c.told = func(err error) {
		select {
		case told <- err:
		default: // the first counts
		}
	}
	r, err := NewRunner(c.Options)
	if err != nil {
		leave()
		return nil, err
	}
	run, stop := context.WithCancel(ctx)
	out := &Consumer{member: c.Members[0].ID, runner: r, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(out.done)
		defer stop()
		defer leave()
		out.err = r.Run(run)
	}()
	select {
	case err = <-told:
		if err == nil {
			return out, nil
		}
	case <-out.done:
		err = cmp.Or(out.err, ctx.Err(), ErrClosed)
	case <-ctx.Done():
		err = ctx.Err()
	}
	stop()
	<-out.done
	return nil, fmt.Errorf("consume: join group %s: %w", c.Config.Group, err)
}

// Member is the name of the group's member that this consumer is.
func (c *Consumer) Member() string { return c.member }

// Close stops consuming, as [Run] says, and returns when all of that is done: no handler runs
// any more. Where ctx ends first it returns ctx's error, and the rest goes on by itself. The
// error is otherwise that of [Consumer.Err]. It may be called again.
func (c *Consumer) Close(ctx context.Context) error {
	c.stop()
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("consume: wait for handlers to end and cursors to be given up: %w", ctx.Err())
	}
}

// Done is closed when the consumer has ended.
func (c *Consumer) Done() <-chan struct{} { return c.done }

// Err is nil until the consumer has ended, and then says what it has not given up in time;
// the end of the process's session gives it up.
func (c *Consumer) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}
