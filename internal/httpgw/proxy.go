package httpgw

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

func dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: tcpKeepAlive}
	return dialer.DialContext(ctx, network, address) //nolint:wrapcheck // neverSent looks at it
}

// newTransport makes the pool of connections for gRPC: HTTP/2 in plain text.
func newTransport() *http.Transport {
	t := &http.Transport{
		DialContext:            dial,
		IdleConnTimeout:        upstreamIdle,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
		DisableCompression:     true, // bodies pass as they are
		Protocols:              new(http.Protocols),
		HTTP2:                  http2Config(),
	}
	t.Protocols.SetUnencryptedHTTP2(true)
	return t
}

func http2Config() *http.HTTP2Config {
	return &http.HTTP2Config{
		MaxConcurrentStreams:          maxStreams,
		MaxReceiveBufferPerStream:     streamBuffer,
		MaxReceiveBufferPerConnection: connBuffer,
		SendPingTimeout:               pingAfter,
		PingTimeout:                   pingTimeout,
		WriteByteTimeout:              stuckWrite,
	}
}

// proxy sends the request to an instance of the choice, to another one where that
// fails and may be repeated, and passes the answer on.
func (c *call) proxy(ctx context.Context) {
	ctx, cancel := c.exchange(ctx)
	defer cancel(nil)
	c.g.budget.deposit()
	keep := 0
	if idempotent(c.r.Method) {
		keep = replayBytes
	}
	wait, fixed, idle := c.timeouts()
	w := newWatch(c.rc, cancel, wait, fixed)
	defer w.stop()
	c.duplex(keep, w)
	out := c.outgoing(ctx)

	var tried [MaxAttempts]*lane.Target
	wasTried := func(t *lane.Target) bool { return slices.ContainsFunc(tried[:c.attempts], t.Same) }
	var avoid func(*lane.Target) bool // nil: nobody, which is cheaper
	for {
		target := c.g.balancer.Next(c.choice, c.g.now(), avoid)
		if target == nil {
			break // nobody is left who has not been tried
		}
		avoid = wasTried
		tried[c.attempts] = target
		c.attempts++
		c.target = target
		if c.cause = c.attempt(out, w, idle); c.cause == nil {
			return
		}
		if !c.again(ctx, c.cause) {
			break
		}
		c.g.metrics.retries.Inc()
	}
	c.failUpstream(ctx)
}

// exchange gives the context of the exchange with the upstream, which ends when the
// client goes.
func (c *call) exchange(client context.Context) (context.Context, context.CancelCauseFunc) {
	if c.body == nil || c.r.ProtoMajor != 1 {
		return context.WithCancelCause(client)
	}
	// net/http also takes it for the client's going when we break off the reading of
	// its body.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(client))
	stop := context.AfterFunc(client, func() {
		if !c.body.ours.Load() {
			cancel(context.Cause(client))
		}
	})
	return ctx, func(cause error) {
		if cause == nil {
			stop() // the end of the exchange
		}
		cancel(cause)
	}
}

// attempt sends the request to c.target and passes the answer on. The error is set
// where there was no answer. It panics as [call.pass] does.
func (c *call) attempt(out *http.Request, w *watch, idle time.Duration) error {
	outcome := lane.Failure // also where pass panics
	defer func() { c.g.balancer.Done(c.target, outcome, c.g.now()) }()
	ctx := out.Context()
	if c.attempts > 1 { // a copy: a transport may still look at the one before
		out = out.WithContext(ctx)
		u := *out.URL
		out.URL = &u
	}
	out.URL.Host = c.target.Address
	resp, err := c.roundTrip(out)
	if err != nil {
		outcome = failureOf(ctx, c.body, err)
		return err
	}
	outcome = outcomeOf(resp.StatusCode)
	w.headers(idle)
	if err := c.pass(resp, w); err != nil {
		outcome = failureOf(ctx, c.body, err)
		c.cause = err
		c.breakOff()
	}
	return nil
}

// roundTrip sends a request by what fits it best. An answer 101 is one to an upgrade that
// the client asked for.
func (c *call) roundTrip(out *http.Request) (*http.Response, error) {
	resp, err := c.send(out)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols && !c.switches(resp) {
		_ = resp.Body.Close() // the connection is of no more use
		return nil, errUnasked
	}
	return resp, err
}

func (c *call) send(out *http.Request) (*http.Response, error) {
	if !c.grpc {
		return c.g.pool.roundTrip(out, c.body, c.early)
	}
	if c.body != nil {
		out.Body = c.body.attempt()
	}
	return c.g.h2.RoundTrip(out) //nolint:wrapcheck // neverSent looks at it
}

// duplex prepares the request's body to be sent on while the answer comes back.
func (c *call) duplex(keep int, w *watch) {
	if c.body == nil {
		return
	}
	c.body.keep, c.body.watch, c.body.grpc = keep, w, c.grpc
	if c.r.ProtoMajor == 1 {
		// Without it the server reads the rest of the body before it sends headers.
		_ = c.rc.EnableFullDuplex()
	}
}

// unfinished makes the connection of HTTP/1.1 end with the answer that is about to
// be written, where the request has not ended by then: net/http would take what is
// left of the body for the next request, or wait for it.
func (c *call) unfinished() {
	if c.r.ProtoMajor == 1 && c.body.unfinished() {
		c.w.Header()["Connection"] = []string{"close"}
	}
}

// timeouts are how long the response's headers may take after the last byte of the
// request, and in all, and how long the exchange may stand still afterwards.
func (c *call) timeouts() (wait, fixed, idle time.Duration) {
	wait, idle = DefaultRequestTimeout, DefaultIdleTimeout
	if c.grpc {
		wait, idle = 0, 0
	}
	if c.upgrade != "" {
		idle = TunnelIdleTimeout
	}
	if route := c.decision.Route; route != nil && route.Timeouts != nil {
		if t := time.Duration(route.Timeouts.Request); t > 0 {
			wait, fixed = 0, t
		}
		if t := time.Duration(route.Timeouts.Idle); t > 0 {
			idle = t
		}
	}
	return wait, fixed, idle
}

// outgoing is the request as the upstream gets it, but for its address and body.
func (c *call) outgoing(ctx context.Context) *http.Request {
	r := c.r
	target := &url.URL{Scheme: "http", Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}
	host := r.Host
	if route := c.decision.Route; route != nil && route.Rewrite != nil {
		rewrite(target, route)
		if route.Rewrite.Host != "" {
			host = route.Rewrite.Host
		}
	}
	if _, there := r.Header["User-Agent"]; !there {
		r.Header["User-Agent"] = nil // else the transport would add its own
	}
	if c.upgrade != "" {
		r.Header["Connection"], r.Header["Upgrade"] = []string{"Upgrade"}, []string{c.upgrade}
	}
	out := &http.Request{Method: r.Method, URL: target, Host: host, Header: r.Header}
	if c.body != nil {
		out.ContentLength, out.Trailer = r.ContentLength, c.body.to
	}
	if c.grpc {
		out.Proto, out.ProtoMajor, out.ProtoMinor = "HTTP/1.1", 1, 1
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: c.early})
	}
	return out.WithContext(ctx)
}

// rewrite replaces the path prefix by which a route was found.
func rewrite(u *url.URL, route *laneclient.Route) {
	if route.Rewrite.Prefix == "" {
		return
	}
	prefix, with := strings.TrimRight(route.Path, "/"), strings.TrimRight(route.Rewrite.Prefix, "/")
	replace := func(path string) string {
		rest := strings.TrimPrefix(path, prefix)
		if path = with + rest; path == "" {
			return "/"
		}
		return path
	}
	if raw := u.RawPath; raw != "" {
		if strings.HasPrefix(raw, prefix) {
			u.RawPath = replace(raw)
		} else {
			u.RawPath = "" // the prefix itself was percent-encoded: encode anew
		}
	}
	u.Path = replace(u.Path)
}

// early passes interim answers on (103 Early Hints). 100 Continue is the server's
// matter: it is sent when the body is first read. HTTP/1.0 knows none: RFC 9110,
// section 15.2.
func (c *call) early(code int, header textproto.MIMEHeader) error {
	c.mu.Lock() // the transport may call when the round trip has been given up
	defer c.mu.Unlock()
	if c.answered || !c.r.ProtoAtLeast(1, 1) || code == http.StatusContinue || code == http.StatusSwitchingProtocols {
		return nil
	}
	h := c.w.Header()
	final := maps.Clone(h) // what the answer itself is to have
	clear(h)
	maps.Copy(h, http.Header(header))
	dropHops(h)
	delete(h, lanehttp.RouteKey)
	c.w.WriteHeader(code)
	clear(h)
	maps.Copy(h, final)
	return nil
}

// noMoreEarly makes the ResponseWriter and its headers this goroutine's alone. Whoever
// answers calls it first, and the handler before it returns: after that the writer is
// dead, and the transport may still be reading interim answers.
func (c *call) noMoreEarly() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answered = true
}

// again answers, for a request that got no response: may it be sent to another
// instance?
func (c *call) again(ctx context.Context, err error) bool {
	switch {
	case c.attempts >= MaxAttempts || ctx.Err() != nil:
		return false // enough, or nobody waits any more, or the time is up
	case c.body.failed():
		return false // it will not be whole
	case !c.body.replayable():
		return false // part of it is gone
	case neverSent(err):
		return c.g.budget.take()
	case !idempotent(c.r.Method) || c.upgrade != "":
		return false // the instance may have begun with it
	}
	return c.g.budget.take()
}

// neverSent reports whether the upstream cannot have seen the request.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// outcomeOf is what a response says of its instance's health: only that which stands
// for "not able to serve" counts against it; other errors are its answer.
func outcomeOf(status int) lane.Outcome {
	switch status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return lane.Failure
	}
	return lane.Success
}

// failureOf is what a failed exchange says of the instance's health.
func failureOf(ctx context.Context, body *upload, err error) lane.Outcome {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errRequestTimeout):
		return lane.Failure
	case cause != nil || body.failed() || errors.Is(err, errClient):
		return lane.Neutral // the client has gone, or is too slow
	case neverSent(err):
		return lane.Refused
	}
	return lane.Failure
}

// failUpstream answers for an upstream that did not.
func (c *call) failUpstream(ctx context.Context) {
	instance := c.target.Name
	where := fmt.Sprintf("instance %s of %s in %s", instance, c.decision.Service, laneText(c.choice.Lane))
	c.g.cfg.Log.DebugContext(ctx, "upstream failed", telemetry.KeyService, c.decision.Service,
		telemetry.KeyInstance, instance, telemetry.KeyError, c.cause)
	cause := context.Cause(ctx)
	switch {
	case c.grpcDeadline():
		c.fail(&failure{Status: http.StatusGatewayTimeout, Detail: "the call's deadline has passed"})
	case errors.Is(cause, errRequestTimeout):
		c.fail(&failure{Status: http.StatusGatewayTimeout, Detail: where + " sent no response in time: look at its load, or raise the route's timeouts.request"})
	case c.clientFault(cause):
	case neverSent(c.cause):
		c.fail(&failure{Status: http.StatusBadGateway, Detail: where + " cannot be reached: check that it listens at its registered address"})
	case errors.Is(c.cause, errUnasked):
		c.fail(&failure{Status: http.StatusBadGateway, Detail: where + " switched to a protocol that was not asked for"})
	default:
		c.fail(&failure{Status: http.StatusBadGateway, Detail: where + " broke off before it answered"})
	}
}

// clientFault reports whether an exchange failed by what the client did, and answers it as
// far as it can be: cause is that of the exchange's context. It panics as [call.breakOff]
// does.
func (c *call) clientFault(cause error) bool {
	fault := c.body.fault()
	switch {
	case cause != nil || fault == nil && c.body.failed():
		c.status = statusClientGone
		c.breakOff() // there is nobody to answer
	case fault != nil:
		c.fail(&failure{Status: http.StatusBadRequest, Detail: "the request's body is not well formed: " + clip(fault.Error())})
		return true
	}
	return false
}

// grpcDeadline reports whether the deadline that a gRPC call brought has passed. Its
// server may be the first to notice, and break off.
func (c *call) grpcDeadline() bool {
	text := c.r.Header.Get("Grpc-Timeout")
	if !c.grpc || len(text) < 2 {
		return false
	}
	n, err := strconv.ParseInt(text[:len(text)-1], 10, 64)
	unit, known := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': 1,
	}[text[len(text)-1]]
	return err == nil && known && time.Since(c.began) >= time.Duration(n)*unit
}

// breakOff ends the client's request without a proper end: the only way to say that
// an answer is not whole.
func (c *call) breakOff() { panic(http.ErrAbortHandler) }

// statusClientGone is what logs and metrics call a request whose client left.
const statusClientGone = 499

func laneText(name lane.Name) string {
	if name == lane.Baseline {
		return "the baseline"
	}
	return "lane " + string(name)
}
