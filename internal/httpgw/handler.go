package httpgw

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

// call is one request on its way.
type call struct {
	g     *Gateway
	s     *side
	w     http.ResponseWriter
	rc    *http.ResponseController
	r     *http.Request
	began time.Time

	grpc     bool
	explain  bool
	hijacked bool // the server does not wait for it any more; Run does
	answered bool // no interim answer may be written any more; guarded by mu
	mu       sync.Mutex
	body     *upload // nil: none
	upgrade  string  // protocol asked for, or ""
	decision coloring.Decision
	choice   lane.Choice
	target   *lane.Target // who got it; nil: nobody, or a third party
	attempts int
	status   int
	cause    error // why the answer is the gateway's own, or not whole
	span     *span // nil: none
}

// ServeHTTP routes one request.
func (s *side) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := &call{g: s.g, s: s, w: w, rc: http.NewResponseController(w), r: r, began: time.Now(), grpc: isGRPC(r)}
	s.g.metrics.began(s)
	defer c.end(r.Context())
	defer c.noMoreEarly()
	if r.Method != http.MethodConnect {
		c.body = newUpload(r, c.rc, s.g.cfg.Aliases)
		defer c.body.stop()
	}
	c.serve(r.Context())
}

func (c *call) serve(ctx context.Context) {
	g, r := c.g, c.r
	if !r.ProtoAtLeast(1, 1) {
		// net/http leaves Transfer-Encoding out of account in HTTP/1.0: what follows may
		// be a body and not the next request.
		c.w.Header()["Connection"] = []string{"close"}
	}
	if fault := c.malformed(); fault != nil {
		c.fail(fault)
		return
	}
	view := g.cfg.Views()
	if view == nil {
		c.fail(&failure{Status: http.StatusServiceUnavailable, Detail: "the gateway has no picture of the registry yet: try again, and check that the control plane can be reached"})
		return
	}
	peer := peerOf(r)
	trusted := c.s.inside || g.trusts(peer)
	c.explain = trusted && lane.WantsRoute(lanehttp.Carrier(r.Header))
	if !trusted {
		delete(r.Header, lanehttp.ExplainKey)
		dropClaims(r.Header, g.cfg.Aliases)
	}
	delete(r.Header, lanehttp.RouteKey)
	c.decide(g.table(view), view.Snapshot, peer, trusted)

	if r.Method == http.MethodConnect {
		c.connect(ctx, view.Snapshot)
		return
	}
	c.upgrade = dropHops(r.Header)
	if r.ProtoMajor != 1 || c.body != nil || !r.ProtoAtLeast(1, 1) {
		c.upgrade = "" // the connection is not free to be taken over; HTTP/1.0 knows no upgrade
	}
	if c.decision.Service == "" {
		if c.s.inside && r.URL.IsAbs() {
			c.forwardOut(ctx)
			return
		}
		c.fail(&failure{Type: laneclient.ProblemNoRoute, Status: http.StatusNotFound, Detail: fmt.Sprintf(
			"no route and no service for host %q and path %q: use <service>.%s, or add a route", clip(r.Host), clip(r.URL.Path), g.cfg.Domain)})
		return
	}
	color := c.decision.Color
	lane.Strip(lanehttp.Carrier(r.Header), g.cfg.Aliases...)
	lane.Inject(lanehttp.Carrier(r.Header), color)
	if color != lane.Baseline {
		g.cfg.Used(color)
	}
	protocol := lane.HTTP
	if c.grpc {
		protocol = lane.GRPC
	}
	c.choice = lane.Pick(view.Snapshot, c.decision.Service, color, protocol)
	c.startSpan(ctx)
	if err := c.choice.Err(); err != nil {
		c.fail(&failure{Status: http.StatusServiceUnavailable, Detail: err.Error()})
		return
	}
	forwarded(r, peer)
	addVia(r, g.viaOf(r))
	c.proxy(ctx)
}

// decide asks the table.
func (c *call) decide(table *coloring.Table, dir *lane.Snapshot, peer netip.Addr, trusted bool) {
	r := c.r
	req := coloring.Request{
		Host: r.Host, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: r.Header,
		Source: peer, Trusted: trusted, Inside: c.s.inside, Now: c.g.now(),
	}
	if trusted && !c.s.inside {
		req.Source = source(r.Header, peer, c.g.trusts)
	}
	c.decision = table.Decide(dir, &req)
	c.g.metrics.colored(&c.decision)
}

// malformed finds what must not be passed on.
func (c *call) malformed() *failure {
	r := c.r
	if r.TLS != nil && r.TLS.ServerName != "" && !c.s.inside && !sameHost(r.TLS.ServerName, r.Host) {
		return &failure{Status: http.StatusMisdirectedRequest, Detail: fmt.Sprintf(
			"the connection was opened for %q and the request is for %q: open another connection", clip(r.TLS.ServerName), clip(r.Host))}
	}
	if r.Method == http.MethodConnect && !c.s.inside {
		return &failure{Status: http.StatusMethodNotAllowed, Detail: "the edge is no proxy: CONNECT is for the inside listener"}
	}
	if !httpguts.ValidHeaderFieldName(r.Method) { // a method is a token too; HTTP/2 lets others in
		return &failure{Status: http.StatusBadRequest, Detail: fmt.Sprintf("the method %q is no token", clip(r.Method))}
	}
	if fault := hostFault(r); fault != "" {
		return &failure{Status: http.StatusBadRequest, Detail: fault}
	}
	if strings.Contains(r.URL.RawQuery, " ") { // HTTP/2 lets it in; in HTTP/1.1 the target ends there
		return &failure{Status: http.StatusBadRequest, Detail: "the request's query has a space in it: encode it as %20"}
	}
	if passages(r.Header, c.g.pseudonym) >= maxPassages {
		return &failure{Status: http.StatusLoopDetected, Detail: fmt.Sprintf(
			"the request has come through this gateway %d times: an instance's address, or a route, leads back to the gateway", maxPassages)}
	}
	return nil
}

func (g *Gateway) viaOf(r *http.Request) string {
	switch {
	case r.ProtoMajor == 2:
		return g.via[2]
	case r.ProtoMinor == 0:
		return g.via[0]
	}
	return g.via[1]
}

// clip shortens what a peer sent for a message.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

// hop is this gateway's line of the route.
func (c *call) hop() lane.Hop { return c.choice.Hop(c.target, c.decision.Rule) }

// fail answers in the gateway's own name.
func (c *call) fail(f *failure) {
	c.noMoreEarly()
	f.Service, f.Color, f.Lane, f.Reason = c.decision.Service, c.decision.Color, c.choice.Lane, c.choice.Reason
	c.status = f.Status
	if c.attempts == 0 {
		c.body.discard()
	}
	c.body.stop()
	c.unfinished()
	if c.tells() {
		c.w.Header()[lanehttp.RouteKey] = []string{c.hop().String()}
	}
	f.write(c.w, c.grpc)
}

// end counts the request and writes its line of the access log.
func (c *call) end(ctx context.Context) {
	took := time.Since(c.began)
	c.g.metrics.ended(c, took)
	c.endSpan()
	if c.hijacked {
		defer c.g.leaving.Done()
	}
	log := c.g.cfg.AccessLog
	if log == nil {
		return
	}
	instance := ""
	if c.target != nil {
		instance = c.target.Name
	}
	log.LogAttrs(context.WithoutCancel(ctx), slog.LevelInfo, "request",
		slog.String("listener", c.s.name), slog.String("method", c.r.Method), slog.String("host", clip(c.r.Host)),
		slog.String(telemetry.KeyPath, clip(c.r.URL.Path)), slog.Int(telemetry.KeyStatus, c.status),
		slog.String(telemetry.KeyService, c.decision.Service), slog.String("color", string(c.decision.Color)),
		slog.String(telemetry.KeyLane, string(c.choice.Lane)), slog.String(telemetry.KeyInstance, instance),
		slog.String(telemetry.KeyRule, string(c.decision.Rule)), slog.String(telemetry.KeyReason, string(c.choice.Reason)),
		slog.Int("attempts", c.attempts), slog.Duration("took", took))
}
