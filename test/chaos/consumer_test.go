package chaos

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// handover is long: a handler that outlasts it may see its message handed out twice, and on a
// machine that is busy with other things it might.
const handover = 30 * time.Second

// groupSettings is one group that a consumer belongs to.
type groupSettings struct {
	Topic, Group string
	Ordered      bool
}

// consumerSettings are those of a consumer's process.
type consumerSettings struct {
	Life    string
	Lane    string
	Control []string
	Engine  string
	Book    string
	TTL     time.Duration
	// Delay is how long a message takes, Window how many of them are in flight with a cursor.
	Delay       time.Duration
	Window      int
	Concurrency int
	Groups      []groupSettings
}

// beConsumer consumes until it is asked to end.
func beConsumer(s consumerSettings) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go exitWithParent()
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil)).With("life", s.Life)
	b, err := openBook(s.Book)
	if err != nil {
		return err
	}
	engine, err := openEngine(ctx, s.Engine, log)
	if err != nil {
		return err
	}
	client, err := laneclient.Dial(ctx, laneclient.Config{Control: s.Control, Lane: s.Lane, TTL: s.TTL, Log: log})
	if err != nil {
		return err
	}
	lc := &watched{Client: client, book: b, last: map[string]time.Time{}, consumers: map[string]*consume.Consumer{}}
	var consumers []*consume.Consumer
	for _, g := range s.Groups {
		options := []consume.Option{
			consume.WithLog(log), consume.WithHandoverTimeout(handover), consume.WithOrdered(g.Ordered), consume.WithWindow(s.Window, 0),
			consume.WithRetries(retries()...),
		}
		if s.Concurrency > 0 {
			options = append(options, consume.WithConcurrency(s.Concurrency))
		}
		c, err := consume.Run(context.WithoutCancel(ctx), engine, lc, g.Topic, g.Group, handler(b, lc, s.Delay), options...)
		if err != nil {
			return err
		}
		lc.entered(g.Group, c)
		consumers = append(consumers, c)
	}
	<-ctx.Done()
	return leave(b, client, engine, consumers)
}

// leave ends as a good consumer does, and notes so if it has.
func leave(b *book, client *laneclient.Client, engine *jetstream.Engine, consumers []*consume.Consumer) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*handover)
	defer cancel()
	errs := make([]error, len(consumers))
	var wg sync.WaitGroup
	for i, c := range consumers {
		wg.Go(func() { errs[i] = c.Close(ctx) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	if err == nil {
		b.write(lineEnded, "")
	}
	return errors.Join(err, client.Close(), engine.Close())
}

// handler takes its time for each message. Of the topic that was reset nothing fails any more:
// what comes again has its tries anew, and the judge knows tries by where they began and by their
// number.
func handler(b *book, lc *watched, delay time.Duration) consume.Handler {
	return func(ctx context.Context, d *consume.Delivery) error {
		n := b.begun(d)
		if !pause(ctx, delay) {
			b.over(lineReturned, n, d)
			return consume.ErrReturn
		}
		if fails(d.Message) && (d.Partition.Topic != ordersTopic || !lc.again.Load()) {
			b.over(lineFailed, n, d)
			return errors.New("this one fails")
		}
		b.over(lineSettled, n, d)
		return nil
	}
}

// retries are the delays of messages that fail.
func retries() []time.Duration { return []time.Duration{time.Second, 3 * time.Second} }

// fails reports whether a message fails at this try: one in 50 once, one in 250 always.
func fails(m *consume.Message) bool {
	_, number, _ := strings.Cut(string(m.Value), ":")
	n, err := strconv.Atoi(number)
	return err == nil && (n%250 == 0 || n%50 == 0 && m.Attempt == 0)
}

func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// openEngine opens the engine as soon as it can be reached.
func openEngine(ctx context.Context, url string, log *slog.Logger) (*jetstream.Engine, error) {
	for {
		e, err := jetstream.Open(ctx, jetstream.Config{URL: url, RequestTimeout: 2 * time.Second, Log: log})
		if err == nil {
			return e, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return nil, err
		}
	}
}

// exitWithParent ends the process when the one that started it has gone: its standard input
// is a pipe from there.
func exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	os.Exit(3)
}

// watched is a connection to the control plane that writes down what its user is told of
// sessions, and of groups that are paused.
type watched struct {
	*laneclient.Client
	book *book

	mu   sync.Mutex
	last map[string]time.Time // by session: until when it lasts, by the last that was written
	lost string               // the session whose loss was written last
	seen string               // the session that was given last

	consumers map[string]*consume.Consumer // by group

	again atomic.Bool // a group was reset
}

var _ consume.Connection = (*watched)(nil)

func (w *watched) Session() (id string, remaining time.Duration) {
	id, remaining = w.Client.Session()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.seen != "" && w.seen != w.lost && (id != w.seen || remaining <= 0) {
		w.lost = w.seen
		w.book.write(lineLost, "%s", w.seen)
	}
	if id == "" || remaining <= 0 {
		return id, remaining
	}
	if until := time.Now().Add(remaining); until.After(w.last[id].Add(100 * time.Millisecond)) {
		w.book.write(lineLasts, "%s", id)
		w.last[id] = until
	}
	w.seen = id
	return id, remaining
}

func (w *watched) Join(ctx context.Context, group string, m consume.Member) error {
	err := w.Client.Join(ctx, group, m)
	if err == nil {
		w.book.write(lineJoined, "%s %s", group, m.Session)
	}
	return err
}
