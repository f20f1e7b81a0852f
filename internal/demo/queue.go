package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/integrations/laneotel"
	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// The queue between d and e.
const (
	Queue           = "queue" // the word for it where others have a protocol
	Topic           = "orders"
	TopicPartitions = 2
	Group           = "e" // of its consumers

	// Headers of a message, beside those of the SDK.
	headerID      = "demo-id"
	headerReplyTo = "demo-reply-to" // a URL that gets a Receipt
	headerWork    = "demo-work"     // how long the consumer is to work on it

	// consumerWindow is how many messages of a cursor a consumer has at once: so many are
	// in flight when it is killed.
	consumerWindow = 4
	maxWork        = time.Second
)

// Messages is an engine, and this process's connection to the control plane as those who
// consume need it.
type Messages struct {
	Source     consume.Source
	Connection consume.Connection
}

// openMessages opens the default engine of the installation.
func openMessages(ctx context.Context, lc *laneclient.Client) (Messages, error) {
	at, err := lc.Engine(ctx, "")
	if err != nil {
		return Messages{}, err
	}
	src, err := jetstream.Open(ctx, jetstream.Config{URL: at, Access: jetstream.AccessFromEnv("")})
	if err != nil {
		return Messages{}, err
	}
	return Messages{Source: src, Connection: lc}, nil
}

// recordAll keeps all hops of messages, so that it can be looked up who had one.
func (m Messages) recordAll() (*consume.Hops, error) {
	return consume.NewHops(m.Source, m.Connection, consume.HopsConfig{Share: 1})
}

// closeHops writes what waits. The engine may have gone before: then nobody looks at hops.
func closeHops(ctx context.Context, h *consume.Hops) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout) // it is closed since ctx has ended
	defer cancel()
	_ = h.Close(ctx)
}

// Order is a message for e. id is unique; whoever consumes it posts a [Receipt] to replyTo
// and then works on it for a while.
func Order(id, replyTo string, work time.Duration) consume.Outgoing {
	out := consume.Outgoing{Topic: Topic, Key: []byte(id), Value: []byte("order " + id), ID: id}
	out.Headers = append(out.Headers, consume.Header{Name: headerID, Value: []byte(id)}, consume.Header{Name: headerReplyTo, Value: []byte(replyTo)})
	if work > 0 {
		out.Headers = append(out.Headers, consume.Header{Name: headerWork, Value: []byte(work.String())})
	}
	return out
}

// queueCaller sends messages to the next service and waits until it is told who consumed
// them.
type queueCaller struct {
	service  string
	from     lane.Name // of this process
	source   consume.Source
	producer *consume.Producer
	hops     *consume.Hops
	receipts *Receipts

	mu      sync.Mutex
	waiting map[string]chan<- Receipt
}

func newQueueCaller(ctx context.Context, service string, m Messages) (*queueCaller, error) {
	c := &queueCaller{service: service, from: m.Connection.Process(), source: m.Source, waiting: map[string]chan<- Receipt{}}
	var err error
	if c.hops, err = m.recordAll(); err != nil {
		return nil, errors.Join(err, m.Source.Close())
	}
	c.producer = consume.NewProducer(m.Source, m.Connection, consume.RecordHops(c.hops), consume.WithInject(func(ctx context.Context, to lane.Carrier) {
		w3c().Inject(ctx, carried{to})
	}))
	if c.receipts, err = ListenReceipts(ctx, c.take); err != nil {
		return nil, errors.Join(err, m.Source.Close())
	}
	return c, nil
}

func (c *queueCaller) call(ctx context.Context) (Reply, error) {
	id := rand.Text()
	answered := make(chan Receipt, 1)
	c.mu.Lock()
	c.waiting[id] = answered
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}()
	if err := c.producer.Send(ctx, Order(id, c.receipts.URL(), 0)); err != nil {
		return Reply{}, err
	}
	select {
	case r := <-answered:
		v := r.Visit
		// As the SDK does where it calls itself: who got it, and why, for traces and for
		// whoever asked for the route.
		laneotel.Observe(ctx, lane.Choice{Service: v.Service, Color: v.Color, Lane: v.Lane, Reason: v.Reason}, nil)
		lane.TrailFrom(ctx).Add(lane.Hop{Service: v.Service, Lane: v.Lane, Instance: v.Instance, Rule: lane.OutgoingRule(ctx, c.from), Reason: v.Reason}, nil)
		return Reply{Visits: []Visit{v}}, nil
	case <-ctx.Done():
		return Reply{}, fmt.Errorf("nobody has consumed the message in time; it waits in topic %s for whoever comes: %w", Topic, ctx.Err())
	}
}

// take hands a receipt to the call that waits for it. One that nobody waits for is late.
func (c *queueCaller) take(r Receipt) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits := c.waiting[r.ID]; waits != nil {
		delete(c.waiting, r.ID)
		waits <- r
	}
}

func (c *queueCaller) close() error {
	err := c.receipts.Close()
	closeHops(context.Background(), c.hops)
	return errors.Join(err, c.source.Close())
}

// consumeQueue consumes until ctx ends.
func consumeQueue(ctx context.Context, s *service, m Messages, cfg *Config) error {
	sender := newReceiptSender()
	defer sender.close()
	hops, err := m.recordAll()
	if err != nil {
		return err
	}
	defer closeHops(ctx, hops)
	c, err := consume.Run(ctx, m.Source, m.Connection, Topic, Group,
		func(ctx context.Context, d *consume.Delivery) error { return s.handle(ctx, d, sender) },
		// One after the other, so that it can be seen how far a consumer has got.
		consume.WithConcurrency(1), consume.WithWindow(consumerWindow, 0), consume.WithPartitions(TopicPartitions), consume.WithHops(hops), consume.WithLog(cfg.Client.Log))
	if err != nil {
		return err
	}
	<-c.Done()
	return c.Err()
}

// handle works on one message.
func (s *service) handle(ctx context.Context, d *consume.Delivery, sender *receiptSender) error {
	headers := consume.Headers(d.Headers)
	ctx, span := s.consuming(ctx, carried{&headers})
	defer span.End()
	v := s.self
	v.Color, v.Reason = lane.From(ctx), d.Reason
	sender.send(ctx, first(headers.Values(headerReplyTo)), Receipt{
		ID: first(headers.Values(headerID)), Visit: v, Partition: int(d.Partition.Index), Offset: d.Offset, Redelivered: d.Redelivered,
	})
	work, err := time.ParseDuration(first(headers.Values(headerWork)))
	if err != nil || work <= 0 {
		return nil // there is nothing to work on
	}
	if !backoff.Wait(ctx, min(work, maxWork)) { // it is somebody else's by now
		return consume.ErrReturn
	}
	return nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// consuming begins the span of a message that is handled.
func (s *service) consuming(ctx context.Context, carrier carried) (context.Context, trace.Span) {
	ctx, span := s.tracer.Start(w3c().Extract(ctx, carrier), "consume "+Topic, trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attribute.String("messaging.destination.name", Topic), attribute.String("messaging.consumer.group.name", Group)))
	laneotel.Annotate(ctx, s.self.Lane)
	return ctx, span
}

// carried are the headers of a message as trace context wants them.
type carried struct{ lane.Carrier }

// Get returns a header.
func (c carried) Get(key string) string { return first(c.Values(key)) }

// Keys lists nothing: trace context knows its headers.
func (carried) Keys() []string { return nil }

// loopbackURL reports whether a URL leads to this machine.
func loopbackURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "http" && slices.Contains([]string{"127.0.0.1", "::1"}, u.Hostname())
}

// place names a message's place in the topic, for people.
func place(partition int, offset int64) string {
	return Topic + "/" + strconv.Itoa(partition) + " at " + strconv.FormatInt(offset, 10)
}
