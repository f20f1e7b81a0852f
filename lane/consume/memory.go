package consume

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Defaults of [MemoryConfig].
const (
	DefaultMemoryFetchWait = time.Second
	// MaxMemoryPartitions is how many partitions a topic of [Memory] may have.
	MaxMemoryPartitions = 64
)

// MemoryConfig is what [NewMemory] makes an engine of. Zero fields have their defaults.
type MemoryConfig struct {
	// Now is the engine's clock: delays, retention, and the time of messages that bring
	// none. Nil: time.Now. Whoever moves a clock of their own calls [Memory.Tick] after it.
	Now func() time.Time
	// FetchWait is how long a read waits for a message at most. Zero:
	// [DefaultMemoryFetchWait]. It is measured by the machine's clock.
	FetchWait time.Duration
}

// Memory is an engine that keeps its topics in memory, for tests: everything that a [Source]
// and [Topics] promise holds, and it has all of [Caps]. What is lost is lost with the
// process. Beyond the interfaces it does on demand what befalls a real log: messages are
// deleted ([Memory.Retain], [Memory.Drop]), the end is lost ([Memory.Truncate]), a topic is
// deleted and created anew ([Memory.Recreate]).
//
// Messages with a delay get their offset when they are due, and not before. A message whose
// ID its topic has had before is passed over, however long ago that was.
//
// A Memory starts no goroutine. All of its methods may be called at once.
type Memory struct {
	now  func() time.Time
	wait time.Duration

	mu      sync.Mutex
	topics  map[string]*memoryTopic
	mirrors map[memoryMirror]int64
	foreign map[*ForeignConsumer]bool
	epochs  int           // given out so far
	added   uint64        // messages that were taken in so far: orders delays of one time
	changed chan struct{} // closed and replaced when a reader should look again
	closed  bool
}

type memoryTopic struct {
	spec    TopicSpec
	parts   []*memoryLog
	ids     map[string]bool
	delayed []delayedMessage
	turn    uint32 // where the next message without a key goes
}

// memoryLog has the messages of one partition: those in ms, ascending by offset, and every
// offset below end is used up.
type memoryLog struct {
	ms         []*Message
	stored     []time.Time // by the engine's clock, one for each of ms
	first, end int64
	epoch      string
	room       string
}

type delayedMessage struct {
	*Message
	due  time.Time
	turn uint64
}

type memoryMirror struct {
	group string
	color lane.Name
	p     Partition
}

var (
	_ Source = (*Memory)(nil)
	_ Topics = (*Memory)(nil)

	_ ForeignFinder = (*Memory)(nil)
	_ RoomFinder    = (*Memory)(nil)
)

// NewMemory makes an engine without topics.
func NewMemory(cfg MemoryConfig) *Memory {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.FetchWait == 0 {
		cfg.FetchWait = DefaultMemoryFetchWait
	}
	return &Memory{
		now: cfg.Now, wait: cfg.FetchWait,
		topics:  map[string]*memoryTopic{},
		mirrors: map[memoryMirror]int64{},
		foreign: map[*ForeignConsumer]bool{},
		changed: make(chan struct{}),
	}
}

// Ensure creates a topic, or finds it as it is.
func (m *Memory) Ensure(_ context.Context, spec TopicSpec) error {
	switch {
	case spec.Name == "":
		return errors.New("ensure topic: it has no name")
	case spec.Partitions < 1 || spec.Partitions > MaxMemoryPartitions:
		return fmt.Errorf("ensure topic %s: %d partitions: want 1 to %d", spec.Name, spec.Partitions, MaxMemoryPartitions)
	case spec.Retention < 0:
		return fmt.Errorf("ensure topic %s: retention %s is negative", spec.Name, spec.Retention)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return ErrClosed
	}
	if m.topics[spec.Name] != nil {
		return nil
	}
	t := &memoryTopic{spec: spec, ids: map[string]bool{}}
	m.topics[spec.Name] = t
	m.grow(t, spec.Partitions)
	return nil
}

// Describe tells of a topic as it is now.
func (m *Memory) Describe(_ context.Context, topic string) (TopicSpec, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.topic(topic)
	if err != nil {
		return TopicSpec{}, err
	}
	return t.spec, nil
}

// Grow gives a topic more partitions. Asked for no more than there are it does nothing.
func (m *Memory) Grow(_ context.Context, topic string, partitions int32) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.topic(topic)
	if err != nil {
		return err
	}
	if partitions > MaxMemoryPartitions {
		return fmt.Errorf("grow topic %s: %d partitions: want at most %d", topic, partitions, MaxMemoryPartitions)
	}
	m.grow(t, partitions)
	return nil
}

func (m *Memory) grow(t *memoryTopic, partitions int32) {
	for int32(len(t.parts)) < partitions {
		m.epochs++
		t.parts = append(t.parts, &memoryLog{epoch: strconv.Itoa(m.epochs)})
	}
	t.spec.Partitions = int32(len(t.parts))
}

// Partitions is how many partitions a topic has now.
func (m *Memory) Partitions(_ context.Context, topic string) (int32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.topic(topic)
	if err != nil {
		return 0, err
	}
	return t.spec.Partitions, nil
}

// Bounds are the ends of a partition's log.
func (m *Memory) Bounds(_ context.Context, p Partition) (Bounds, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return Bounds{}, err
	}
	return l.bounds(), nil
}

// At is the first offset whose message is not older than t; the end where all are.
func (m *Memory) At(_ context.Context, p Partition, t time.Time) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return 0, err
	}
	for _, msg := range l.ms {
		if !msg.Time.Before(t) {
			return msg.Offset, nil
		}
	}
	return l.end, nil
}

// Read gives up to max messages at or above from; a max below 1 is 1. Where there is none it
// waits for one until ctx ends, at most for the engine's fetch wait, and then returns an
// empty batch without an error. A from above the log's end is answered at once with an empty
// batch, whose Bounds show what is wrong.
func (m *Memory) Read(ctx context.Context, p Partition, from int64, f Filter, max int) (Batch, error) {
	end := time.NewTimer(m.wait)
	defer end.Stop()
	for {
		b, changed, due, err := m.read(p, from, f, max)
		if err != nil || len(b.Messages) > 0 || b.Bounds.End < from {
			return b, err
		}
		// A delayed message that is due sooner than the read ends.
		var soon <-chan time.Time
		if due > 0 {
			t := time.NewTimer(due)
			soon = t.C
			defer t.Stop()
		}
		select {
		case <-changed:
		case <-soon:
		case <-end.C:
			return b, nil
		case <-ctx.Done():
			return b, nil
		}
	}
}

// Peek is [Memory.Read] without waiting, for tests that go step by step.
func (m *Memory) Peek(p Partition, from int64, f Filter, max int) (Batch, error) {
	b, _, _, err := m.read(p, from, f, max)
	return b, err
}

func (m *Memory) read(p Partition, from int64, f Filter, limit int) (Batch, <-chan struct{}, time.Duration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return Batch{}, nil, 0, err
	}
	b := Batch{Next: from, Bounds: l.bounds()}
	i, _ := slices.BinarySearchFunc(l.ms, from, func(msg *Message, o int64) int { return int(msg.Offset - o) })
	for ; i < len(l.ms) && len(b.Messages) < max(limit, 1); i++ {
		if msg := l.ms[i]; f.All || msg.Color == f.Color {
			b.Messages = append(b.Messages, msg)
		}
	}
	switch {
	case i < len(l.ms):
		b.Next = max(from, l.ms[i-1].Offset+1)
	default:
		b.Next = max(from, l.end)
	}
	return b, m.changed, m.nextDue(p.Topic), nil
}

// Append adds messages, each to its topic: all of them, or with an error none.
func (m *Memory) Append(_ context.Context, ms ...*Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range ms {
		if msg.Partition.Index < 0 {
			if _, err := m.topic(msg.Partition.Topic); err != nil {
				return fmt.Errorf("append: %w", err)
			}
		} else if _, err := m.log(msg.Partition); err != nil {
			return fmt.Errorf("append: %w", err)
		}
		if msg.Color != lane.Baseline && !msg.Color.Valid() {
			return fmt.Errorf("append to %s: color %q is no lane name", msg.Partition, msg.Color)
		}
	}
	now := m.now()
	for _, msg := range ms {
		t := m.topics[msg.Partition.Topic]
		if msg.Partition.Index < 0 {
			msg.Partition.Index = t.place(msg.Key)
		}
		if msg.ID != "" {
			if t.ids[msg.ID] {
				continue
			}
			t.ids[msg.ID] = true
		}
		c := *msg
		m.added++
		if c.Delay > 0 {
			t.delayed = append(t.delayed, delayedMessage{&c, now.Add(c.Delay), m.added})
			continue
		}
		t.parts[c.Partition.Index].put(&c, now)
	}
	m.wake()
	return nil
}

// place is the partition of a key: the same one for the same key as long as the topic does
// not grow. Messages without a key go round.
func (t *memoryTopic) place(key []byte) int32 {
	n := uint32(len(t.parts))
	if len(key) == 0 {
		t.turn++
		return int32((t.turn - 1) % n)
	}
	h := fnv.New32a()
	_, _ = h.Write(key)
	return int32(h.Sum32() % n)
}

// put gives a message its offset.
func (l *memoryLog) put(msg *Message, now time.Time) {
	if msg.Time.IsZero() {
		msg.Time = now
	}
	msg.Offset = l.end
	l.end++
	l.ms = append(l.ms, msg)
	l.stored = append(l.stored, now)
}

// drop deletes the first n messages and moves the first offset to at least first.
func (l *memoryLog) drop(n int, first int64) {
	l.ms, l.stored = slices.Delete(l.ms, 0, n), slices.Delete(l.stored, 0, n)
	l.first = max(l.first, first)
}

func (l *memoryLog) bounds() Bounds { return Bounds{First: l.first, End: l.end, Epoch: l.epoch} }

// topic finds a topic with everything in it that time has brought about.
func (m *Memory) topic(name string) (*memoryTopic, error) {
	if m.closed {
		return nil, ErrClosed
	}
	t := m.topics[name]
	if t == nil {
		return nil, fmt.Errorf("topic %s: %w", name, ErrNoTopic)
	}
	now := m.now()
	slices.SortFunc(t.delayed, func(a, b delayedMessage) int {
		if c := a.due.Compare(b.due); c != 0 {
			return c
		}
		return int(int64(a.turn) - int64(b.turn))
	})
	n := 0
	for ; n < len(t.delayed) && !t.delayed[n].due.After(now); n++ {
		d := t.delayed[n]
		t.parts[d.Partition.Index].put(d.Message, now)
	}
	t.delayed = slices.Delete(t.delayed, 0, n)
	if n > 0 {
		m.wake()
	}
	if t.spec.Retention > 0 {
		for _, l := range t.parts {
			old := 0
			for old < len(l.ms) && now.Sub(l.stored[old]) > t.spec.Retention {
				old++
			}
			if old > 0 {
				l.drop(old, l.ms[old-1].Offset+1)
			}
		}
	}
	return t, nil
}

func (m *Memory) log(p Partition) (*memoryLog, error) {
	t, err := m.topic(p.Topic)
	if err != nil {
		return nil, err
	}
	if p.Index < 0 || int(p.Index) >= len(t.parts) {
		return nil, fmt.Errorf("partition %s: %w", p, ErrNoTopic)
	}
	return t.parts[p.Index], nil
}

// nextDue is how long the topic's next delayed message still takes; 0: there is none.
func (m *Memory) nextDue(topic string) time.Duration {
	t := m.topics[topic]
	if len(t.delayed) == 0 {
		return 0
	}
	// They are in order: m.topic has just been here.
	return max(t.delayed[0].due.Sub(m.now()), time.Nanosecond)
}

func (m *Memory) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// Tick lets reads that wait look at the clock again: for clocks that tests move.
func (m *Memory) Tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wake()
}

// Mirror keeps the offset for [Memory.Mirrored].
func (m *Memory) Mirror(_ context.Context, group string, color lane.Name, p Partition, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.log(p); err != nil {
		return err
	}
	m.mirrors[memoryMirror{group, color, p}] = offset
	return nil
}

// Mirrored is the last offset that [Memory.Mirror] was told of, and whether there was one.
func (m *Memory) Mirrored(group string, color lane.Name, p Partition) (int64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.mirrors[memoryMirror{group, color, p}]
	return o, ok
}

// Caps are all there are.
func (m *Memory) Caps() Caps {
	return Caps{FilterColor: true, Delay: true, Dedup: true, Mirror: true, Grow: true, ForeignConsumers: true, Rooms: true}
}

// Close ends all calls with [ErrClosed]. It may be called again.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.wake()
	return nil
}

// Retain deletes a partition's messages below first, as retention does.
func (m *Memory) Retain(p Partition, first int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return err
	}
	first = min(first, l.end)
	n := 0
	for n < len(l.ms) && l.ms[n].Offset < first {
		n++
	}
	l.drop(n, first)
	return nil
}

// Drop deletes one message and leaves its offset unused, as compaction and markers do.
func (m *Memory) Drop(p Partition, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(l.ms, func(msg *Message) bool { return msg.Offset == offset }); i >= 0 {
		l.ms, l.stored = slices.Delete(l.ms, i, i+1), slices.Delete(l.stored, i, i+1)
	}
	return nil
}

// Truncate loses a partition's messages at and above end, whose offsets are then used
// again: the fault that no engine may have, and that consumers must notice. The epoch stays.
func (m *Memory) Truncate(p Partition, end int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	l, err := m.log(p)
	if err != nil {
		return err
	}
	n := 0
	for n < len(l.ms) && l.ms[n].Offset < end {
		n++
	}
	l.ms, l.stored = slices.Delete(l.ms, n, len(l.ms)), slices.Delete(l.stored, n, len(l.stored))
	l.end = min(l.end, max(end, 0))
	l.first = min(l.first, l.end)
	m.wake()
	return nil
}

// Recreate deletes a topic and creates it anew: its offsets begin again, its partitions have
// other epochs, and IDs are forgotten.
func (m *Memory) Recreate(topic string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, err := m.topic(topic)
	if err != nil {
		return err
	}
	n := t.spec.Partitions
	t.parts, t.delayed, t.ids = nil, nil, map[string]bool{}
	m.grow(t, n)
	m.wake()
	return nil
}
