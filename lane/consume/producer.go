package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// DefaultSendTimeout bounds a [Producer.Send] whose context has no deadline.
const DefaultSendTimeout = 10 * time.Second

// maxDoubtful is of how many messages that may have arrived a producer knows the place; past
// that it forgets some, which matters only where a topic grows just then.
const maxDoubtful = 10_000

// Outgoing is a message that is to be sent.
type Outgoing struct {
	Topic string
	// Key: messages of one key go to one partition, in their order. Empty: to any.
	Key     []byte
	Value   []byte
	Headers []Header
	// ID lets the message be sent again where it is not known whether it arrived: the engine
	// takes it once. Another process may do so, too, such as one that follows one that was
	// killed, with the same key, if the topic has not grown meanwhile. An engine knows IDs for a
	// while only. Empty: it may be there twice then.
	ID string
	// Delay is how long it is not handed out; 0: at once.
	Delay time.Duration
}

// Producer sends messages with the color that they should have. All of its methods may be
// called at once.
type Producer struct {
	src    Source
	id     Identity
	inject func(context.Context, lane.Carrier)
	hops   *Hops

	mu sync.Mutex
	// Where messages with an ID went that may have arrived: sent again they go there, or the
	// partition that has the ID would not be asked.
	doubtful map[doubtful]int32
}

// doubtful is a message that may have arrived.
type doubtful struct{ topic, id string }

// ProducerOption changes a [Producer].
type ProducerOption func(*Producer)

// WithInject lets f write the trace of the context into a message's headers, as a propagator
// of OpenTelemetry does. It is called for every message and may be called at once. Default:
// a handler's messages carry the trace of the message that is being handled.
func WithInject(f func(context.Context, lane.Carrier)) ProducerOption {
	return func(p *Producer) { p.inject = f }
}

// NewProducer makes a producer of an engine and of the process's connection to the control
// plane, neither of which it closes.
func NewProducer(src Source, lc Identity, options ...ProducerOption) *Producer {
	p := &Producer{src: src, id: lc, doubtful: map[doubtful]int32{}}
	for _, o := range options {
		o(p)
	}
	return p
}

// Send sends messages. Their color is that of ctx; where ctx says nothing of one, that of the
// process's lane; with [lane.Plain] they are plain. In the context of a handler it is thus the
// color of the message that is being handled, and its trace and baggage go along.
//
// They are durable when it returns without an error. With one, any of them may be there, or
// come later: those that have an ID can be sent again, by the same producer also where the
// topic grows meanwhile. Errors are [ErrUnsupported], where the
// engine has no delays or no IDs; [ErrNoTopic]; and the engine's, which pass. Where ctx has no
// deadline it takes [DefaultSendTimeout] at most. Keys, values and headers belong to the
// engine from then on and must not be changed.
func (p *Producer) Send(ctx context.Context, ms ...Outgoing) error {
	if len(ms) == 0 {
		return nil
	}
	color := lane.Outgoing(ctx, p.id.Process())
	out := make([]*Message, len(ms))
	caps := p.src.Caps()
	for i := range ms {
		m := &ms[i]
		switch {
		case m.Topic == "":
			return errors.New("send: a message has no topic")
		case m.Delay < 0:
			return fmt.Errorf("send to %s: the delay %s is negative", m.Topic, m.Delay)
		case m.Delay > 0 && !caps.Delay:
			return fmt.Errorf("send to %s: a delay: %w", m.Topic, ErrUnsupported)
		case m.ID != "" && !caps.Dedup:
			return fmt.Errorf("send to %s: an ID: %w", m.Topic, ErrUnsupported)
		}
		out[i] = &Message{
			Partition: Partition{Topic: m.Topic, Index: -1}, Color: color, Key: m.Key, Value: m.Value,
			Headers: p.headers(ctx, m.Headers, color), ID: m.ID, Delay: m.Delay,
		}
		p.hops.mark(out[i])
	}
	p.id.Used(color)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, DefaultSendTimeout)
		defer cancel()
	}
	p.aim(out)
	began := time.Now() // who gets one of them may be told of it before it is all done here
	err := p.src.Append(ctx, out...)
	p.doubt(out, err)
	p.hops.produced(out, p.id.Process(), began, err)
	if err != nil {
		return fmt.Errorf("send to %s: %w", ms[0].Topic, err)
	}
	return nil
}

// aim has what may have arrived go where it went.
func (p *Producer) aim(ms []*Message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.doubtful) == 0 {
		return
	}
	for _, m := range ms {
		if at, ok := p.doubtful[doubtful{m.Partition.Topic, m.ID}]; ok && m.ID != "" {
			m.Partition.Index = at
		}
	}
}

// doubt remembers where messages went that may have arrived, and forgets those that have.
func (p *Producer) doubt(ms []*Message, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && len(p.doubtful) == 0 {
		return
	}
	for _, m := range ms {
		key := doubtful{m.Partition.Topic, m.ID}
		switch {
		case m.ID == "" || m.Partition.Index < 0:
		case err == nil:
			delete(p.doubtful, key)
		default:
			for other := range p.doubtful {
				if len(p.doubtful) < maxDoubtful {
					break
				}
				delete(p.doubtful, other)
			}
			p.doubtful[key] = m.Partition.Index
		}
	}
}

// headers are a message's own with its trace and color.
func (p *Producer) headers(ctx context.Context, own []Header, color lane.Name) []Header {
	h := Headers(slices.Clone(own))
	if p.inject != nil {
		p.inject(ctx, &h)
	} else {
		passTrace(ctx, &h)
	}
	lane.Inject(&h, color)
	return h
}
