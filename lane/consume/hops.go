package consume

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/internal/pause"
)

// Defaults of [HopsConfig], and limits of [Hops].
const (
	DefaultHopsRetention = 24 * time.Hour
	DefaultHopsQueue     = 8192
	hopsWait             = 200 * time.Millisecond // for more of them to write at once
	hopsBatch            = 1024                   // so many are not waited with
	hopsValueBytes       = 256 << 10              // of one message in the hops topic, and what one hop takes
)

// HopsConfig says of which messages hops are kept, and where.
type HopsConfig struct {
	// Share of messages, from 0 to 1, whose hops are kept: all hops of the same messages in
	// all processes with that share. 0: of none, 1: of all. It is read by [ParseShare].
	Share float64
	// Topic that they go to. Empty: [HopsTopic]. Of its own messages none are kept. An engine
	// that is a [Topics], too, makes it where it is not there.
	Topic string
	// Retention of the topic where it is made: how long hops are kept at least. 0:
	// [DefaultHopsRetention].
	Retention time.Duration
	// Queue bounds how many hops wait to be written, each of them some hundred bytes. Further
	// ones are not kept, which a [HopMissing] tells of. 0: [DefaultHopsQueue].
	Queue int
	// Service and Instance are who the process is. Empty: what lc says.
	Service, Instance string
	Log               *slog.Logger // nil: none
}

// Hops records what happens to messages in a topic of its own, for whoever has to know later
// which member had one: `laneway message show` reads it. One of them serves all consumers
// ([WithHops]) and producers ([RecordHops]) of a process. Recording never blocks and never
// fails what is recorded: hops are written together, some 200 ms later, and where the engine
// does not take them fast enough, they are missing and that is recorded. A process that
// crashes takes those with it that were not written.
//
// All of its methods may be called at once, and on nil, which records nothing.
type Hops struct {
	src    Source
	topics Topics // nil: the topic has to be there
	cfg    HopsConfig
	below  uint64

	life    context.Context //nolint:containedctx // of what writes; Close ends it
	cancel  context.CancelFunc
	closing chan struct{}
	full    chan struct{} // there is enough to write
	wg      sync.WaitGroup

	mu      sync.Mutex
	queue   []Hop
	spare   []Hop // its room, used in turn
	missing int64 // since it was last written
	since   time.Time
	total   int64
	writing bool
	closed  bool

	ensured bool // of the one that writes
}

// NewHops makes a recorder. lc is the process's connection to the control plane; neither it
// nor the engine is closed. The error names what is wrong in cfg.
func NewHops(src Source, lc Identity, cfg HopsConfig) (*Hops, error) {
	switch {
	case src == nil:
		return nil, errors.New("consume: hops: an engine is needed")
	case !validShare(cfg.Share):
		return nil, fmt.Errorf("consume: hops: share %v: want 0 to 1", cfg.Share)
	case cfg.Retention < 0 || cfg.Queue < 0:
		return nil, errors.New("consume: hops: retention and queue cannot be negative")
	}
	if lc, ok := lc.(interface{ Service() string }); ok {
		cfg.Service = cmp.Or(cfg.Service, lc.Service())
	}
	if lc, ok := lc.(interface{ Instance() string }); ok {
		cfg.Instance = cmp.Or(cfg.Instance, lc.Instance())
	}
	cfg.Topic = cmp.Or(cfg.Topic, HopsTopic)
	cfg.Retention = cmp.Or(cfg.Retention, DefaultHopsRetention)
	cfg.Queue = cmp.Or(cfg.Queue, DefaultHopsQueue)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	h := &Hops{
		src: src, cfg: cfg, below: threshold(cfg.Share),
		closing: make(chan struct{}), full: make(chan struct{}, 1),
	}
	h.topics, _ = src.(Topics)
	h.life, h.cancel = context.WithCancel(context.Background())
	return h, nil
}

// Close writes what waits, and then records nothing more. Consumers and producers that use h
// are closed before. Where ctx ends first, what was not written is missing: the error says how
// many. It may be called again.
func (h *Hops) Close(ctx context.Context) error {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	h.mu.Unlock()
	stop := context.AfterFunc(ctx, h.cancel)
	h.wg.Wait()
	stop()
	h.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.queue); n > 0 {
		h.lose(n)
		h.queue = nil
	}
	if h.missing > 0 {
		return fmt.Errorf("consume: %d hops of messages were not written", h.missing)
	}
	return nil
}

// Missing is how many hops were not kept since h was made.
func (h *Hops) Missing() int64 {
	if h == nil {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// on reports whether anything is recorded of a topic.
func (h *Hops) on(topic string) bool { return h != nil && h.below > 0 && topic != h.cfg.Topic }

// wants reports whether hops of a message are kept.
func (h *Hops) wants(m *Message) bool {
	if h == nil {
		return false // as for most
	}
	p, _ := m.first()
	return h.on(p.Topic) && (h.cfg.Share >= 1 || m.score() < h.below)
}

// mark names a message that is to be sent. One with an ID has the same name whenever it is
// sent again.
func (h *Hops) mark(m *Message) {
	if !h.on(m.Partition.Topic) {
		return
	}
	n := rand.Uint64() //nolint:gosec // a name, no secret
	if m.ID != "" {
		n = hashStart.text(m.Partition.Topic).text("/").text(m.ID).sum()
	}
	(*Headers)(&m.Headers).Set(MessageHeader, fmt.Sprintf("%016x", n))
}

// of is a hop of a message, without what happened.
func of(m *Message, at time.Time) Hop {
	p, offset := m.first()
	hop := Hop{
		Time: at, Message: cut(string(m.named()), maxHopKey), Topic: p.Topic, Color: m.Color,
		Key: cut(string(m.Key[:min(len(m.Key), maxHopKey)]), maxHopKey),
	}
	if p.Index >= 0 {
		hop.Origin = placeOf(p, offset)
	}
	return hop
}

// add records a hop.
func (h *Hops) add(hop Hop) {
	hop.Service, hop.Instance, hop.Error = h.cfg.Service, h.cfg.Instance, cut(hop.Error, maxHopError)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.queue) >= h.cfg.Queue {
		h.lose(1)
		return
	}
	h.queue = append(h.queue, hop)
	if len(h.queue) == min(hopsBatch, h.cfg.Queue) {
		select {
		case h.full <- struct{}{}:
		default:
		}
	}
	if !h.writing {
		h.writing = true
		h.wg.Go(h.write)
	}
}

// lose counts hops that are not kept. The lock is held.
func (h *Hops) lose(n int) {
	if h.missing == 0 {
		h.since = time.Now()
	}
	h.missing += int64(n)
	h.total += int64(n)
}

// write writes what waits until there is nothing for a while: there is no goroutine while
// nothing happens.
func (h *Hops) write() {
	for {
		h.await()
		hops, missing, since := h.take()
		if len(hops) == 0 && missing == 0 {
			return
		}
		written := h.store(h.encode(hops, missing, since), len(hops))
		h.taken(hops, missing, written)
		if !written {
			return // Close counts the rest
		}
		if missing > 0 {
			h.cfg.Log.WarnContext(h.life, "hops of messages are missing: they came faster than they are written", "topic", h.cfg.Topic, "count", missing)
		}
	}
}

// await waits for more to write at once.
func (h *Hops) await() {
	t := time.NewTimer(hopsWait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-h.full:
	case <-h.closing:
	case <-h.life.Done():
	}
}

// take takes what waits. Where that is nothing, the next hop starts a writer.
func (h *Hops) take() (hops []Hop, missing int64, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hops, missing, since = h.queue, h.missing, h.since
	h.queue, h.spare, h.missing = h.spare, nil, 0
	h.writing = len(hops) > 0 || missing > 0
	return hops, missing, since
}

// taken is told whether what was taken is written.
func (h *Hops) taken(hops []Hop, missing int64, written bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !written {
		h.lose(len(hops))
		h.missing += missing
	}
	clear(hops)
	h.spare = hops[:0]
}

// encode makes messages of hops. Each has an ID, so that one that may be there already can be
// sent again, where the engine knows IDs.
func (h *Hops) encode(hops []Hop, missing int64, since time.Time) (ms []*Message) {
	var b bytes.Buffer
	id := rand.Uint64() //nolint:gosec // a name, no secret
	flush := func() {
		m := &Message{Partition: Partition{Topic: h.cfg.Topic, Index: -1}, Value: bytes.Clone(b.Bytes())}
		if h.src.Caps().Dedup {
			m.ID = fmt.Sprintf("hops/%s/%016x/%d", h.cfg.Instance, id, len(ms))
		}
		ms = append(ms, m)
		b.Reset()
	}
	lines := json.NewEncoder(&b)
	lines.SetEscapeHTML(false)
	if missing > 0 {
		hops = append(hops, Hop{Time: time.Now(), Kind: HopMissing, Service: h.cfg.Service, Instance: h.cfg.Instance, Count: missing, Since: since})
	}
	for i := range hops {
		_ = lines.Encode(&hops[i]) // texts, numbers and times of our own: that cannot fail
		if b.Len() >= hopsValueBytes {
			flush()
		}
	}
	if b.Len() > 0 {
		flush()
	}
	return ms
}

// store appends to the topic until it is done, which it reports, or Close waits no longer.
func (h *Hops) store(ms []*Message, count int) bool {
	for n := 0; ; n++ {
		err := h.append(ms)
		if err == nil {
			return true
		}
		h.cfg.Log.WarnContext(h.life, "hops of messages wait to be written", "topic", h.cfg.Topic, "count", count, "error", err)
		if !pause.For(h.life, backoff(n)) {
			return false
		}
	}
}

// append appends to the topic, and makes it where it is not there.
func (h *Hops) append(ms []*Message) error {
	ctx, cancel := context.WithTimeout(h.life, moveTimeout)
	defer cancel()
	if !h.ensured && h.topics != nil {
		if err := h.topics.Ensure(ctx, TopicSpec{Name: h.cfg.Topic, Partitions: 1, Retention: h.cfg.Retention}); err != nil {
			return err
		}
		h.ensured = true
	}
	err := h.src.Append(ctx, ms...)
	if errors.Is(err, ErrNoTopic) {
		h.ensured = false // somebody has deleted it
	}
	return err
}

// RecordHops lets h record what the producer sends.
func RecordHops(h *Hops) ProducerOption { return func(p *Producer) { p.hops = h } }

// WithHops lets h record what happens to messages here. Default: nothing is recorded.
func WithHops(h *Hops) Option { return func(c *consumption) { c.Hops = h } }

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

// produced records what a producer has sent.
func (h *Hops) produced(ms []*Message, from lane.Name, at time.Time, err error) {
	for _, m := range ms {
		if !h.wants(m) {
			continue
		}
		hop := of(m, at)
		hop.Kind, hop.Lane, hop.Origin = HopProduced, from, ""
		if err != nil {
			hop.Error = err.Error()
		}
		h.add(hop)
	}
}

// hopHere is a hop of a message in this group.
func (r *Runner) hopHere(kind HopKind, m *Message, in lane.Name) Hop {
	hop := of(m, time.Now())
	hop.Kind, hop.Group, hop.Lane, hop.Attempt = kind, r.o.Config.Group, in, m.Attempt+1
	hop.Place = placeOf(m.Partition, m.Offset)
	for i := range r.o.Members {
		if r.o.Members[i].Lane == in {
			hop.Member = r.o.Members[i].ID
			break
		}
	}
	return hop
}

// hopDispatched records that a message goes to a member.
func (r *Runner) hopDispatched(a *Dispatch) {
	if !r.o.Hops.wants(a.Message) {
		return
	}
	hop := r.hopHere(HopDispatched, a.Message, a.Lane)
	hop.Reason, hop.Redelivered = string(a.Reason), a.Redelivered
	r.o.Hops.add(hop)
}

// hopEnded records what became of a message that was with a member: before the Core has heard
// of it.
func (r *Runner) hopEnded(kind HopKind, in *run, it *item, reason, failure string) {
	if !r.o.Hops.wants(it.msg) {
		return
	}
	hop := r.hopHere(kind, it.msg, in.lane)
	hop.Reason, hop.Error = reason, failure
	r.o.Hops.add(hop)
}

// hopStoring prepares the hop of a message that goes to a retry or dead-letter topic; nil:
// none is kept. It is recorded once the message is there.
func (r *Runner) hopStoring(runID uint64, offset int64, m *Message, why BuryReason) *Hop {
	in := r.core.runs[runID]
	if in == nil || !r.o.Hops.wants(m) {
		return nil
	}
	hop := r.hopHere(HopRetried, m, in.lane)
	hop.Attempt, hop.Error, hop.Reason, hop.To, hop.Place = m.Attempt, m.Error, string(why), m.Partition.Topic, placeOf(in.p.id, offset)
	if why != "" {
		hop.Kind = HopDead
	}
	return &hop
}
