package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// Engine is an open engine; see the package. [Open] makes one.
type Engine struct {
	cfg     Config
	server  *embedded // nil: it is somewhere else
	nc      *nats.Conn
	js      natsjs.JetStream
	replies *replies
	wakes   *wakes
	follows followSet
	reads   chan struct{} // a token for each batch on its way
	appends chan struct{} // a token for each run of messages without an ack
	syncs   syncs

	life context.Context //nolint:containedctx // of all calls; Close ends it
	end  context.CancelFunc
	once sync.Once
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	topics  map[string]known
	turn    uint32                // where the next message without a key goes
	commits map[string][]*pending // by stream, while a commit runs
}

var (
	_ consume.Source = (*Engine)(nil)
	_ consume.Topics = (*Engine)(nil)

	_ consume.ForeignFinder = (*Engine)(nil)
	_ consume.RoomFinder    = (*Engine)(nil)
)

// Open starts the embedded server, or connects to the external one, within ctx and at most
// a minute. The engine is closed with [Engine.Close].
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	cfg, err := cfg.full()
	if err == nil {
		err = cfg.check()
	}
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, reads: make(chan struct{}, maxReads), appends: make(chan struct{}, maxAppends),
		topics: map[string]known{}, commits: map[string][]*pending{}, follows: followSet{of: map[string]*follows{}},
	}
	e.life, e.end = context.WithCancel(context.WithoutCancel(ctx))
	if err := e.open(ctx); err != nil {
		_ = e.Close()
		return nil, fmt.Errorf("jetstream: open %s%s: %w", cfg.Dir, cfg.URL, err)
	}
	return e, nil
}

func (e *Engine) open(ctx context.Context) (err error) {
	opts := []nats.Option{
		nats.Name("laneway"), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.Timeout(e.cfg.RequestTimeout),
		// A message that was kept while there was no connection would be appended long after
		// the append was given up.
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			e.cfg.Log.WarnContext(e.life, "connection to the engine", "error", err)
		}),
	}
	if e.cfg.Dir != "" {
		if e.server, err = startServer(ctx, &e.cfg); err != nil {
			return err
		}
		opts = append(opts, nats.InProcessServer(e.server))
	} else {
		access, err := e.cfg.Access.options()
		if err != nil {
			return err
		}
		opts = append(append(opts, access...), e.cfg.Options...)
	}
	if e.nc, err = nats.Connect(e.cfg.URL, opts...); err != nil {
		return e.cfg.Access.explain(err)
	}
	if e.js, err = natsjs.New(e.nc, natsjs.WithDefaultTimeout(e.cfg.RequestTimeout)); err != nil {
		return err
	}
	if e.replies, err = newReplies(e.nc); err != nil {
		return err
	}
	e.wakes = &wakes{nc: e.nc, subs: map[string]*wake{}}
	return e.openTopics(ctx)
}

// URL is where other processes open this engine, as [Config.URL], with what else they must
// know: the port of the embedded server, or the servers that the engine was opened with.
// Empty: the embedded server has no port.
func (e *Engine) URL() string {
	switch {
	case e.server == nil:
		return e.cfg.address(e.cfg.URL)
	case e.cfg.Listen == "":
		return ""
	default:
		return e.cfg.address("nats://" + e.server.Addr().String())
	}
}

// Durability is that of this engine's appends.
func (e *Engine) Durability() Durability { return e.cfg.Durability }

// Check asks the server whether it answers and keeps messages; the error says what is wrong.
func (e *Engine) Check(ctx context.Context) error {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	var info struct{ answer }
	err := e.ask(ctx, "$JS.API.STREAM.INFO."+e.topicsStream(), struct{}{}, &info)
	return e.fault(err)
}

// Close ends all calls with [consume.ErrClosed], then the connection and the embedded
// server. It returns when nothing of the engine runs, and may be called again.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.once.Do(func() {
		e.wg.Wait()
		if e.nc != nil {
			closed := make(chan struct{})
			e.nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
			if already := e.nc.IsClosed(); !already {
				e.nc.Close()
				<-closed
			}
		}
		if e.server != nil {
			e.server.stop()
		}
	})
	return nil
}

// spawn starts what Close waits for.
func (e *Engine) spawn(f func()) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return consume.ErrClosed
	}
	e.wg.Go(f)
	return nil
}

// within gives the context of one call: it ends with the caller's and with the engine.
func (e *Engine) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, d)
	stop := context.AfterFunc(e.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// fault makes the error of a call: that the engine was closed goes before all.
func (e *Engine) fault(err error) error {
	switch {
	case err == nil:
		return nil
	case e.life.Err() != nil:
		return consume.ErrClosed
	default:
		return fmt.Errorf("jetstream: %w", err)
	}
}

// Caps are color filters, delays, IDs, growth, and that foreign consumers and rooms are told of.
func (e *Engine) Caps() consume.Caps {
	return consume.Caps{FilterColor: true, Delay: true, Dedup: true, Grow: true, ForeignConsumers: true, Rooms: true}
}

// Mirror does nothing: JetStream has no place for offsets of others.
func (e *Engine) Mirror(context.Context, string, lane.Name, consume.Partition, int64) error {
	return e.fault(e.life.Err())
}

// errGone: the stream is not there. The topic may have been deleted, or created anew.
var errGone = errors.New("the partition's stream is not there")

// apiError is an error of JetStream as answers have it.
type apiError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (a *apiError) Error() string { return fmt.Sprintf("%s (%d)", a.Description, a.ErrCode) }

// Codes of apiError.
const (
	codeNoConsumer            = 10014
	codeNoMessage             = 10037
	codeNoSequence            = 10043
	codeDeleteFailed          = 10057
	codeNoStream              = 10059
	codeWrongSequence         = 10071
	codeWrongSequenceConstant = 10164
	codeTooManyBatches        = 10210
)

// answer is what every answer of the API has.
type answer struct {
	Error *apiError `json:"error"`
}

func (a *answer) fault() *apiError { return a.Error }

func isCode(err error, code int) bool {
	var a *apiError
	return errors.As(err, &a) && a.ErrCode == code
}

// ask sends a request to JetStream's API and takes in its answer.
func (e *Engine) ask(ctx context.Context, subject string, request any, answer interface{ fault() *apiError }) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	reply, ch, forget := e.replies.expect(1)
	defer forget()
	if err := e.nc.PublishRequest(subject, reply, body); err != nil {
		return err
	}
	m, err := await(ctx, ch)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("answer on %s: %w", subject, err)
	}
	switch failed := answer.fault(); {
	case failed == nil:
		return nil
	case failed.ErrCode == codeNoStream:
		return errGone
	default:
		return failed
	}
}

// await takes the next answer.
func await(ctx context.Context, ch <-chan *nats.Msg) (*nats.Msg, error) {
	select {
	case m := <-ch:
		if len(m.Data) == 0 && m.Header.Get("Status") == "503" && len(m.Header["Nats-Sequence"]) == 0 {
			return nil, nats.ErrNoResponders
		}
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// streamInfo is what a stream's leader says of it.
type streamInfo struct {
	answer
	Created time.Time `json:"created"`
	Config  struct {
		Metadata  map[string]string `json:"metadata"`
		Placement struct {
			Tags []string `json:"tags"`
		} `json:"placement"`
	} `json:"config"`
	State struct {
		First int64 `json:"first_seq"`
		Last  int64 `json:"last_seq"`
	} `json:"state"`
	Cluster struct {
		Name string `json:"name"`
	} `json:"cluster"`
}

// info asks a stream's leader.
func (e *Engine) info(ctx context.Context, l log) (*streamInfo, error) {
	info := &streamInfo{}
	err := e.ask(ctx, "$JS.API.STREAM.INFO."+l.stream, struct{}{}, info)
	return info, err
}

// state asks a stream's leader for its ends.
func (e *Engine) state(ctx context.Context, l log) (consume.Bounds, error) {
	info, err := e.info(ctx, l)
	if err != nil {
		return consume.Bounds{}, err
	}
	return consume.Bounds{
		First: max(info.State.First, 1),
		End:   info.State.Last + 1,
		// The time shows that somebody made the stream anew by hand.
		Epoch: fmt.Sprintf("%s-%d", info.Config.Metadata[metaIncarnation], info.Created.UnixNano()),
	}, nil
}
