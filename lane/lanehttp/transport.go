package lanehttp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

const (
	// maxAttempts bounds the targets that one request is tried on.
	maxAttempts = 3
	// needTimeout bounds how long the first call to a service waits for its instances
	// where the request's context has no deadline.
	needTimeout = 5 * time.Second
	// maxNeeded bounds the services that are remembered as asked for; the directory is
	// asked for others at every call.
	maxNeeded = 4096
)

// transport is what [Transport] returns.
type transport struct {
	services http.RoundTripper
	others   http.RoundTripper // for third parties
	dir      lane.Directory
	balancer *lane.Balancer
	*config

	needMu sync.Mutex // serializes writers of needed
	// needed holds the services that the directory has been asked for, which is once for
	// all. It is replaced, never changed.
	needed atomic.Pointer[map[string]struct{}]
}

// Transport returns a RoundTripper that sends requests for services to the instance that
// the color of their context asks for (lane.Outgoing, lane.Pick), and that color with
// them. The package's documentation says what is a service; requests to others pass
// through base.
//
// The Host header names the service, not the instance, unless the request sets it. Headers
// that carry a color or ask for an explanation, set by the caller, are replaced or, for
// third parties, removed. The request itself is not changed.
//
// A target that refuses the connection is passed over and another one of the same lane is
// tried, up to three in all, if the request can be sent again: it has no body, or has
// GetBody. Nothing else is retried. Targets that fail are avoided for a while; see
// [lane.Balancer]. A target that answers with 502, 503 or 504 counts as failing, and its
// answer is returned.
//
// A request with lane.ExplainHeader "1" gets lane.RouteHeader lines into its answer, that
// of this call first. Answers to others have none, whatever the instance sends.
//
// Errors: *lane.NoInstanceError where nobody may serve, wrapped together with the failed
// look-up where the host does not resolve either; the context's error while waiting for
// the first picture of a service (5 s where the context has no deadline); those of base.
// All are wrapped.
//
// base nil: transports of its own with Go's defaults, which use the proxy of the
// environment for third parties and none for services. A base of the caller's must not
// use a proxy for services.
func Transport(base http.RoundTripper, dir lane.Directory, options ...Option) http.RoundTripper {
	c := newConfig(options)
	t := &transport{services: base, others: base, dir: dir, balancer: lane.NewBalancer(c.policy), config: c}
	if base == nil {
		t.services, t.others = newBase(nil), newBase(http.ProxyFromEnvironment)
	}
	return t
}

func newBase(proxy func(*http.Request) (*url.URL, error)) *http.Transport {
	const idlePerHost = 64 // calls between services are many and to few
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 proxy,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		MaxIdleConnsPerHost:   idlePerHost,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   5 * time.Second,
		ExpectContinueTimeout: time.Second,
	}
}

// CloseIdleConnections serves http.Client's method of that name.
func (t *transport) CloseIdleConnections() {
	for _, base := range []http.RoundTripper{t.services, t.others} {
		if c, ok := base.(interface{ CloseIdleConnections() }); ok {
			c.CloseIdleConnections()
		}
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	service, ok := t.service(r.URL)
	if !ok {
		return t.thirdParty(r)
	}
	if err := t.need(r.Context(), service); err != nil {
		closeBody(r)
		return nil, fmt.Errorf("learn of service %s: %w", service, err)
	}
	c := &call{t: t, r: r, service: service, process: t.dir.Process()}
	c.color = lane.Outgoing(r.Context(), c.process)
	t.dir.Used(c.color)
	return c.do(r.Context())
}

// service tells a service from a third party.
func (t *transport) service(u *url.URL) (string, bool) {
	if u.Scheme != "http" {
		return "", false
	}
	name := strings.ToLower(u.Hostname())
	if t.domain != "" {
		name = strings.TrimSuffix(name, t.domain)
	}
	if name == "localhost" || lane.CheckService(name) != nil {
		return "", false
	}
	return name, true
}

// need makes sure that the service's instances are known.
func (t *transport) need(ctx context.Context, service string) error {
	if needed := t.needed.Load(); needed != nil {
		if _, known := (*needed)[service]; known {
			return nil
		}
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, needTimeout)
		defer cancel()
	}
	if err := t.dir.Need(ctx, service); err != nil {
		return err
	}
	t.needMu.Lock()
	defer t.needMu.Unlock()
	needed := map[string]struct{}{}
	if old := t.needed.Load(); old != nil {
		needed = maps.Clone(*old)
	}
	if len(needed) < maxNeeded {
		needed[service] = struct{}{}
		t.needed.Store(&needed)
	}
	return nil
}

func (t *transport) thirdParty(r *http.Request) (*http.Response, error) {
	if !t.tells(r.Header) {
		return t.others.RoundTrip(r)
	}
	out := r.WithContext(r.Context()) // a copy
	out.Header = t.outgoing(r.Header, lane.Baseline)
	resp, err := t.others.RoundTrip(out)
	if resp != nil {
		resp.Request = r
	}
	return resp, err
}

// call is one request to a service.
type call struct {
	t       *transport
	r       *http.Request
	service string
	process lane.Name // the lane of this process
	color   lane.Name

	tried  [maxAttempts]*lane.Target
	nTried int
}

func (c *call) do(ctx context.Context) (*http.Response, error) {
	var last error
	var avoid func(*lane.Target) bool
	for {
		snapshot := c.t.dir.Snapshot()
		choice := lane.Pick(snapshot, c.service, c.color, lane.HTTP)
		if err := choice.Err(); err != nil {
			return c.nobody(snapshot, err, last)
		}
		target := c.t.balancer.Next(choice, time.Now(), avoid)
		if target == nil {
			return nil, last // all of the lane were tried
		}
		resp, err := c.attempt(ctx, choice, target)
		if err == nil {
			return resp, nil
		}
		last = fmt.Errorf("call %s, instance %s: %w", c.service, target.Name, err)
		c.tried[c.nTried] = target
		c.nTried++
		if !refused(err) || !replayable(c.r) || c.nTried == maxAttempts {
			return nil, last
		}
		avoid = c.wasTried
	}
}

// nobody answers where no instance may serve.
func (c *call) nobody(snapshot *lane.Snapshot, none, last error) (*http.Response, error) {
	if last != nil { // they left while we tried: the body is closed
		return nil, errors.Join(last, none)
	}
	host := c.r.URL.Hostname()
	if snapshot.HasService(c.service) || c.color.Strict() || strings.Contains(host, ".") {
		closeBody(c.r)
		return nil, fmt.Errorf("call %s: %w", c.service, none)
	}
	resp, err := c.t.thirdParty(c.r)
	var lookup *net.DNSError
	if errors.As(err, &lookup) && lookup.IsNotFound {
		return nil, fmt.Errorf("%s is neither a service that is registered nor a host: %w; %w", c.service, none, err)
	}
	return resp, err
}

// attempt sends the request to a target.
func (c *call) attempt(ctx context.Context, choice lane.Choice, target *lane.Target) (*http.Response, error) {
	if c.t.observe != nil {
		c.t.observe(ctx, choice, target)
	}
	out := c.r.WithContext(ctx) // a copy that shares Trailer, which is filled while the body is read
	if c.nTried > 0 && c.r.GetBody != nil {
		body, err := c.r.GetBody()
		if err != nil {
			c.t.balancer.Done(target, lane.Neutral, time.Now())
			return nil, fmt.Errorf("get the body again: %w", err)
		}
		out.Body = body
	}
	u := *c.r.URL
	u.Host = target.Address
	out.URL = &u
	if out.Host == "" {
		out.Host = c.r.URL.Host
	}
	trail := lane.TrailFrom(ctx)
	asked := lane.WantsRoute(Carrier(c.r.Header))
	out.Header = c.t.outgoing(c.r.Header, c.color)
	if trail != nil || asked {
		out.Header[ExplainKey] = []string{"1"}
	}

	resp, err := c.t.services.RoundTrip(out)
	if err != nil {
		c.t.balancer.Done(target, outcomeOf(ctx, err), time.Now())
		return nil, err
	}
	resp.Request = c.r
	c.settle(ctx, target, resp)
	c.explain(ctx, resp, choice, target, trail, asked)
	return resp, nil
}

// explain adds this call to the trail of the request that caused it, and its line to the
// answer where the caller asked for it. Lines of an instance reach the caller in no other
// way, so that a handler which passes answers on passes on none of them unseen.
func (c *call) explain(ctx context.Context, resp *http.Response, choice lane.Choice, target *lane.Target, trail *lane.Trail, asked bool) {
	further := resp.Header[RouteKey]
	delete(resp.Header, RouteKey)
	if trail == nil && !asked {
		return
	}
	own := choice.Hop(target, lane.OutgoingRule(ctx, c.process))
	trail.Add(own, further)
	if asked {
		if resp.Header == nil { // a base that is no real one
			resp.Header = http.Header{}
		}
		resp.Header[RouteKey] = lane.AppendHops(nil, own, further)
	}
}

// wasTried goes by name, not pointer: a new snapshot may have come in between.
func (c *call) wasTried(t *lane.Target) bool {
	return slices.ContainsFunc(c.tried[:c.nTried], t.Same)
}

// refused reports whether no connection was made, so that nothing was sent.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

func replayable(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

// closeBody does what a RoundTripper owes also where it sends nothing.
func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // nobody reads it
	}
}
