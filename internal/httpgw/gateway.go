package httpgw

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Gateway routes HTTP by lane. Make one with [New].
type Gateway struct {
	cfg      Config
	balancer *lane.Balancer
	budget   budget
	metrics  *metrics
	tracer   trace.Tracer // nil: no spans
	tunnels  tunnels
	buffers  sync.Pool // of *buffer

	leaving sync.WaitGroup  // connections that are about to close, and handlers of tunnels
	pool    pool            // of HTTP/1.1
	h2      *http.Transport // for gRPC

	pseudonym string // in Via
	via       [3]string

	compiling sync.Mutex // held by who builds the next compiled
	compiled  atomic.Pointer[compiled]
}

// compiled is the table of a view.
type compiled struct {
	view     *laneclient.View
	services []string
	table    *coloring.Table
}

// New checks cfg and returns a gateway. It opens nothing and starts nothing. The
// error names every field that is wrong.
func New(cfg Config) (*Gateway, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Aliases = slices.Clone(cfg.Aliases)
	for n, a := range cfg.Aliases {
		cfg.Aliases[n] = http.CanonicalHeaderKey(a)
	}
	g := &Gateway{cfg: cfg, balancer: lane.NewBalancer(cfg.Policy), h2: newTransport()}
	g.budget.fill()
	g.pool.dial = dial
	var id [4]byte
	_, _ = rand.Read(id[:]) // does not fail: crypto/rand.Read
	g.pseudonym = "laneway-" + hex.EncodeToString(id[:])
	g.via = [3]string{"1.0 " + g.pseudonym, "1.1 " + g.pseudonym, "2.0 " + g.pseudonym}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, err
	}
	g.metrics = m
	if cfg.Tracer != nil {
		g.tracer = cfg.Tracer.Tracer(scope)
	}
	return g, nil
}

// Edge is the handler of the edge: colors from outside are not believed.
func (g *Gateway) Edge() http.Handler { return &side{g: g, name: "edge"} }

// Inside is the handler of the inside: colors are believed, and it is a forward
// proxy. Serve it to loopback or to peers with certificates only, as
// [Gateway.Run] does.
func (g *Gateway) Inside() http.Handler { return &side{g: g, name: "inside", inside: true} }

// side is one of the gateway's two handlers.
type side struct {
	g      *Gateway
	name   string
	inside bool
}

// table returns the table of view. The first request after a change builds the
// next one; those beside it go on with the one before.
func (g *Gateway) table(view *laneclient.View) *coloring.Table {
	c := g.compiled.Load()
	if c != nil && c.view == view {
		return c.table
	}
	if c == nil {
		g.compiling.Lock()
	} else if !g.compiling.TryLock() {
		return c.table
	}
	defer g.compiling.Unlock()
	c = g.compiled.Load()
	if c != nil && c.view == view {
		return c.table
	}
	next := &compiled{view: view, services: view.Snapshot.Services()}
	if c != nil && sameRouting(c.view, view) && slices.Equal(c.services, next.services) {
		next.table = c.table
	} else {
		next.table = coloring.Compile(view.Routes, view.Rules, coloring.Options{
			Domain: g.cfg.Domain, Cluster: g.cfg.Cluster, Aliases: g.cfg.Aliases, Services: next.services,
			JWT: g.cfg.JWT, Signing: g.cfg.Signing,
		})
	}
	g.compiled.Store(next)
	g.metrics.prune(view)
	return next.table
}

// sameRouting reports whether two views have the same routes and rules. Most
// changes are of instances.
func sameRouting(a, b *laneclient.View) bool {
	return sameObjects(a.Routes, b.Routes, func(r *laneclient.Route) *laneclient.Meta { return &r.Meta }) &&
		sameObjects(a.Rules, b.Rules, func(r *laneclient.Rule) *laneclient.Meta { return &r.Meta })
}

func sameObjects[T any](a, b []T, meta func(*T) *laneclient.Meta) bool {
	if len(a) != len(b) {
		return false
	}
	for n := range a {
		ma, mb := meta(&a[n]), meta(&b[n])
		if *ma != *mb || ma.Revision == 0 && !reflect.DeepEqual(a[n], b[n]) {
			return false
		}
	}
	return true
}

// trusts reports whether the edge believes a peer.
func (g *Gateway) trusts(peer netip.Addr) bool {
	for _, p := range g.cfg.Trusted {
		if p.Contains(peer) {
			return true
		}
	}
	return false
}

// peerOf is the address of who sent a request; invalid where the listener has none
// to give.
func peerOf(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// budget bounds retries to a share of the requests, so that retries cannot make an
// overload worse: each request adds a fifth of a retry, up to a burst.
type budget struct{ left atomic.Int64 } // in fifths of a retry

const (
	retryCost    = 5
	retryBurst   = 50 * retryCost
	retryDeposit = 1
)

func (b *budget) fill() { b.left.Store(retryBurst) }

func (b *budget) deposit() {
	if b.left.Load() < retryBurst {
		b.left.Add(retryDeposit)
	}
}

// take reports whether a retry may be made, and counts it.
func (b *budget) take() bool {
	if b.left.Add(-retryCost) >= 0 {
		return true
	}
	b.left.Add(retryCost)
	return false
}

func (g *Gateway) now() time.Time { return g.cfg.Now() }
