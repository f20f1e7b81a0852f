package control

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/store"
)

// errPanicked stands for a handler that panicked; the log has the rest.
var errPanicked = errors.New("handler panicked")

// Config is what a replica of the control plane needs. What is not said to be required
// may be left out.
type Config struct {
	Store   store.Store          // required; the caller closes it, after Run has returned
	Node    string               // name of this replica in status and explain; unique; default: host name and 8 hex digits
	Cluster string               // cluster label, for status and explain; default: none
	Address string               // host:port that it listens on, told in status, so that it can be asked itself; also one that is none elsewhere, as 0.0.0.0:7700; default: not told
	Hosts   []string             // names, beside localhost and loopback addresses, by which requests on loopback may call it; see [CheckHost]
	Domain  string               // domain of service hosts, for explain http; empty: no host is a service's
	Version string               // of the program, for status; default: none
	Log     *slog.Logger         // nil: discard
	Metrics *prometheus.Registry // served at /metrics, and where this replica's metrics go, which it must not have yet; nil: one of its own
	Now     func() time.Time     // wall clock, for what is stored and what expires; called by many goroutines at once; nil: time.Now
}

// Control is one replica of the control plane. All its methods may be called at
// once.
type Control struct {
	cfg      Config
	node     string
	log      *slog.Logger
	cache    *cache
	router   *router
	openapi  []byte
	hosts    hosts
	origins  *http.CrossOriginProtection
	metrics  *metrics
	reached  views
	samples  samples
	uses     uses
	pictures pictures
	chunks   sync.Pool    // what streams of watches write in
	asker    *http.Client // of gateways
	health   storeHealth
	since    time.Time     // when this replica was made, by Config.Now
	started  time.Time     // the same, by the machine's clocks
	term     atomic.Int64  // the lease that this replica leads under, if it does; 0: it has none
	synced   atomic.Int64  // when the store's watch last spoke, in Unix nanoseconds
	running  atomic.Bool   // Run was called
	stopping chan struct{} // closed when Run ends: watches end

	mu    sync.Mutex
	roles []role // beside control
}

// New makes a replica. It does no I/O and starts nothing: until [Control.Run] has read
// the registry once, requests for objects are answered with 503. Errors: there is no
// Store, an entry of Hosts is no host, or Metrics has metrics of these names already.
func New(cfg Config) (*Control, error) {
	if cfg.Store == nil {
		return nil, errors.New("control: Config.Store is nil: open a store first")
	}
	c := &Control{cfg: cfg, node: cfg.Node, log: cfg.Log, stopping: make(chan struct{}), started: time.Now(), asker: newAsker()}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.node == "" {
		c.node = nodeName()
	}
	c.since = c.now()
	c.synced.Store(c.started.UnixNano())
	c.cache = newCache(c.now)
	c.reached.at = map[string]seenView{}
	c.uses.pending, c.uses.wake = map[string]struct{}{}, make(chan struct{}, 1)
	c.origins = http.NewCrossOriginProtection()
	var err error
	if c.hosts, err = newHosts(cfg.Hosts); err != nil {
		return nil, fmt.Errorf("control: Config.Hosts: %w", err)
	}
	c.metrics = newMetrics(cfg.Metrics)
	for _, g := range []prometheus.Collector{newGauges(c), newGroupGauges(c)} {
		if err := c.metrics.registry.Register(g); err != nil {
			return nil, fmt.Errorf("control: register metrics: %w", err)
		}
	}
	c.router = newRouter(c.endpoints())
	if c.openapi, err = document(c.router.endpoints, cfg.Version); err != nil {
		return nil, fmt.Errorf("control: build the OpenAPI document: %w", err)
	}
	return c, nil
}

// nodeName is unique among replicas, also of one host.
func nodeName() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand
	return cmp.Or(hostName(), "control") + "-" + hex.EncodeToString(b[:])
}

// hostName is this machine's; empty: not known.
func hostName() string {
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	return host
}

// now is the wall clock as it is stored: UTC, to the millisecond.
func (c *Control) now() time.Time {
	now := time.Now
	if c.cfg.Now != nil {
		now = c.cfg.Now
	}
	return now().UTC().Truncate(time.Millisecond)
}

// Node is the name of this replica: Config.Node, or the one that it made up.
func (c *Control) Node() string { return c.node }

// Handler serves the API: everything under /v1, /healthz, /readyz and /metrics. It may
// be served by several servers and called in process ([laneclient.InMemory]) at once; a
// server of it accepts by [Listener]. A request waits at most 3 s for this replica to
// be in step with the registry, and for the store as long as that lets it; a watch
// lasts until its client goes or Run ends. A handler that panics answers 500, and the
// server goes on. The handler has no authentication: whoever reaches it may do all.
func (c *Control) Handler() http.Handler { return c }

// Run keeps this replica in step with the store, ends what expires while the
// replica leads, and returns when ctx has ended and all its goroutines are gone.
// Open watches end with ctx, so that a server that is shut down need not wait for
// them, and this replica's lease is given back, which takes at most 2 s where the store
// does not answer. Run retries what fails, between 100 ms and 5 s later, and returns an
// error only if it was called before.
func (c *Control) Run(ctx context.Context) error {
	if !c.running.CompareAndSwap(false, true) {
		return errors.New("control: Run was called before: make another Control")
	}
	var wg sync.WaitGroup
	wg.Go(func() { c.runSync(ctx) })
	wg.Go(func() { c.runReplica(ctx) })
	wg.Go(func() { c.runUses(ctx) })
	wg.Go(func() { c.runLife(ctx) })
	wg.Go(func() { c.runChecks(ctx) })
	<-ctx.Done()
	close(c.stopping)
	wg.Wait()
	return nil
}
