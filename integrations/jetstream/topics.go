package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/laneway-dev/laneway/lane/consume"
)

// Metadata of a partition's stream, for people and for epochs.
const (
	metaTopic       = "laneway_topic"
	metaPartition   = "laneway_partition"
	metaIncarnation = "laneway_incarnation"
)

// leastAge is the least that a server keeps messages for.
const leastAge = 100 * time.Millisecond

// topic is what is kept of a topic.
type topic struct {
	Name        string        `json:"name"`
	Partitions  int32         `json:"partitions"`
	Retention   time.Duration `json:"retention_ns,omitempty"`
	Incarnation string        `json:"incarnation"`

	revision uint64
	logs     []atomic.Pointer[log] // of a topic that was loaded: of its partitions, as far as they were asked for
}

func (t *topic) spec() consume.TopicSpec {
	return consume.TopicSpec{Name: t.Name, Partitions: t.Partitions, Retention: t.Retention}
}

// known is a topic as it was a while ago.
type known struct {
	*topic
	at time.Time
}

func (e *Engine) topicsStream() string { return e.cfg.Prefix + "_topics" }

func (e *Engine) topicSubject(name string) string { return e.cfg.Prefix + ".topics." + encode(name) }

// openTopics makes the stream that has the topics, or finds it.
func (e *Engine) openTopics(ctx context.Context) error {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	_, err := e.js.CreateStream(ctx, natsjs.StreamConfig{
		Name: e.topicsStream(), Subjects: []string{e.cfg.Prefix + ".topics.*"}, MaxMsgsPerSubject: 1,
		Replicas: e.cfg.Replicas, Description: "topics of Laneway",
	})
	if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) { // with other replicas
		return nil
	}
	return err
}

func checkTopic(name string, partitions int32) error {
	switch {
	case name == "" || len(name) > MaxTopicBytes:
		return fmt.Errorf("topic name has %d bytes: want 1 to %d", len(name), MaxTopicBytes)
	case partitions < 1 || partitions > MaxPartitions:
		return fmt.Errorf("topic %s: %d partitions: want 1 to %d", name, partitions, MaxPartitions)
	}
	return nil
}

// Ensure creates a topic, or finds it as it is. Two that create it at once both find one.
func (e *Engine) Ensure(ctx context.Context, spec consume.TopicSpec) error {
	if err := checkTopic(spec.Name, spec.Partitions); err != nil {
		return e.fault(err)
	}
	if spec.Retention < 0 {
		return e.fault(fmt.Errorf("topic %s: retention %s is negative", spec.Name, spec.Retention))
	}
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout*time.Duration(1+spec.Partitions))
	defer cancel()
	_, err := e.load(ctx, spec.Name)
	if !errors.Is(err, consume.ErrNoTopic) {
		return e.fault(err)
	}
	t := &topic{Name: spec.Name, Partitions: spec.Partitions, Retention: spec.Retention, Incarnation: nuid.Next()}
	// The topic is there once its record is, so the streams come first.
	if err := e.streams(ctx, t, 0, t.Partitions); err != nil {
		if _, refused := errors.AsType[*natsjs.APIError](err); refused { // as where a room is away: the others' streams are nobody's
			e.dropStreams(ctx, t)
		}
		return e.fault(err)
	}
	err = e.save(ctx, t)
	if err == nil {
		return nil
	}
	if !isConflict(err) {
		return e.fault(err)
	}
	if now, err := e.load(ctx, spec.Name); err != nil || now.Incarnation == t.Incarnation {
		return e.fault(err)
	}
	e.dropStreams(ctx, t) // somebody was faster: what was made here is nobody's
	return nil
}

// Describe tells of a topic as it is now.
func (e *Engine) Describe(ctx context.Context, name string) (consume.TopicSpec, error) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	t, err := e.load(ctx, name)
	if err != nil {
		return consume.TopicSpec{}, e.fault(err)
	}
	return t.spec(), nil
}

// Partitions is how many partitions a topic has now.
func (e *Engine) Partitions(ctx context.Context, name string) (int32, error) {
	t, err := e.Describe(ctx, name)
	return t.Partitions, err
}

// Grow gives a topic more partitions. Asked for no more than there are it does nothing.
func (e *Engine) Grow(ctx context.Context, name string, partitions int32) error {
	if err := checkTopic(name, partitions); err != nil {
		return e.fault(err)
	}
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout*time.Duration(1+partitions))
	defer cancel()
	for {
		t, err := e.load(ctx, name)
		if err != nil || partitions <= t.Partitions {
			return e.fault(err)
		}
		had := t.Partitions
		t.Partitions = partitions
		if err := e.streams(ctx, t, had, partitions); err != nil {
			return e.fault(err)
		}
		if err := e.save(ctx, t); !isConflict(err) {
			return e.fault(err)
		}
	}
}

// Delete deletes a topic with all that it has. One of its name that is created later has
// other epochs. [consume.ErrNoTopic]: there is no such topic.
func (e *Engine) Delete(ctx context.Context, name string) error {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout*(1+MaxPartitions))
	defer cancel()
	t, err := e.load(ctx, name)
	if err != nil {
		return e.fault(err)
	}
	s, err := e.js.Stream(ctx, e.topicsStream())
	if err != nil {
		return e.fault(err)
	}
	// Without its record the topic is not there, whatever becomes of its streams.
	if err := s.DeleteMsg(ctx, t.revision); err != nil && !errors.Is(err, natsjs.ErrMsgNotFound) {
		return e.fault(fmt.Errorf("delete topic %s: %w", name, err))
	}
	e.forget(name)
	e.dropStreams(ctx, t)
	return nil
}

// load reads a topic from the leader, and remembers it.
func (e *Engine) load(ctx context.Context, name string) (*topic, error) {
	if name == "" || len(name) > MaxTopicBytes {
		return nil, fmt.Errorf("topic %q: %w", name[:min(len(name), 80)], consume.ErrNoTopic)
	}
	var got struct {
		answer
		Message struct {
			Sequence uint64 `json:"seq"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	request := map[string]string{"last_by_subj": e.topicSubject(name)}
	err := e.ask(ctx, "$JS.API.STREAM.MSG.GET."+e.topicsStream(), request, &got)
	if isCode(err, codeNoMessage) {
		e.forget(name)
		return nil, fmt.Errorf("topic %s: %w", name, consume.ErrNoTopic)
	}
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", name, err)
	}
	t := &topic{revision: got.Message.Sequence}
	if err := json.Unmarshal(got.Message.Data, t); err != nil {
		return nil, fmt.Errorf("topic %s: its record: %w", name, err)
	}
	if err := checkTopic(t.Name, t.Partitions); err != nil {
		return nil, fmt.Errorf("topic %s: its record: %w", name, err)
	}
	t.logs = make([]atomic.Pointer[log], t.Partitions)
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.topics) >= maxKnownTopics {
		clear(e.topics)
	}
	kept := *t // Grow changes what it gets
	e.topics[name] = known{&kept, time.Now()}
	return t, nil
}

func (e *Engine) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.topics, name)
}

// topic gives what is known of a topic, if that is not too old: that it grew shows late, that
// it was deleted shows by its streams.
func (e *Engine) topic(ctx context.Context, name string) (*topic, error) {
	e.mu.Lock()
	k, ok := e.topics[name]
	e.mu.Unlock()
	if ok && time.Since(k.at) < knownTopicFor {
		return k.topic, nil
	}
	return e.load(ctx, name)
}

// log finds a partition's stream.
func (e *Engine) log(ctx context.Context, p consume.Partition) (log, error) {
	t, err := e.topic(ctx, p.Topic)
	if err == nil && p.Index >= t.Partitions { // it may have grown
		t, err = e.load(ctx, p.Topic)
	}
	if err != nil {
		return log{}, err
	}
	if p.Index < 0 || p.Index >= t.Partitions {
		return log{}, fmt.Errorf("partition %s: %w", p, consume.ErrNoTopic)
	}
	l := t.logs[p.Index].Load()
	if l == nil {
		made := newLog(e.cfg.Prefix, t.Name, t.Incarnation, p.Index)
		l = &made
		t.logs[p.Index].Store(l)
	}
	return *l, nil
}

// found runs f on a partition's stream. Where it is gone the topic is looked up again: there
// may be another of its name by now.
func (e *Engine) found(ctx context.Context, p consume.Partition, f func(log) error) error {
	for again := false; ; again = true {
		l, err := e.log(ctx, p)
		if err != nil {
			return err
		}
		err = f(l)
		if !errors.Is(err, errGone) {
			return err
		}
		e.forget(p.Topic)
		if again {
			return fmt.Errorf("partition %s: %w: %w", p, err, consume.ErrNoTopic)
		}
	}
}

// save writes a topic's record if nobody has since.
func (e *Engine) save(ctx context.Context, t *topic) error {
	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_, err = e.js.Publish(ctx, e.topicSubject(t.Name), data, natsjs.WithExpectLastSequencePerSubject(t.revision))
	if err != nil {
		return fmt.Errorf("record of topic %s: %w", t.Name, err)
	}
	return nil
}

func isConflict(err error) bool {
	var a *natsjs.APIError
	return errors.As(err, &a) &&
		(a.ErrorCode == natsjs.JSErrCodeStreamWrongLastSequence || a.ErrorCode == natsjs.JSErrCodeStreamWrongLastSequenceConstant)
}

// streams makes the streams of some partitions, or finds them.
func (e *Engine) streams(ctx context.Context, t *topic, from, to int32) error {
	for i := from; i < to; i++ {
		l := newLog(e.cfg.Prefix, t.Name, t.Incarnation, i)
		age, dedup := t.Retention, DedupWindow
		if age > 0 {
			age = max(age, leastAge)
			dedup = min(dedup, age)
		}
		_, err := e.js.CreateStream(ctx, natsjs.StreamConfig{
			Name: l.stream, Subjects: []string{l.base + ".>"}, Replicas: e.cfg.Replicas,
			MaxAge: age, Duplicates: dedup,
			Placement: e.placement(t.Name, i), AllowDirect: true, AllowAtomicPublish: true, AllowMsgSchedules: true, AllowMsgTTL: true, AllowRollup: true,
			Metadata: map[string]string{
				metaTopic: t.Name, metaPartition: strconv.Itoa(int(i)), metaIncarnation: t.Incarnation,
			},
		})
		if err != nil && !errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) {
			if in := e.placement(t.Name, i); in != nil {
				return fmt.Errorf("stream of partition %s in room %s: %w", l.p, in.Cluster, err)
			}
			return fmt.Errorf("stream of partition %s: %w", l.p, err)
		}
	}
	return nil
}

// dropStreams deletes what belongs to no topic any more. What it cannot delete takes room,
// and is never found again.
func (e *Engine) dropStreams(ctx context.Context, t *topic) {
	for i := range t.Partitions {
		l := newLog(e.cfg.Prefix, t.Name, t.Incarnation, i)
		if err := e.js.DeleteStream(ctx, l.stream); err != nil && !errors.Is(err, natsjs.ErrStreamNotFound) && !errors.Is(err, nats.ErrConnectionClosed) {
			e.cfg.Log.WarnContext(ctx, "stream of a deleted topic stays", "topic", t.Name, "stream", l.stream, "error", err)
		}
	}
}
