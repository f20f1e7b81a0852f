package lanehttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

const (
	// maxAttempts bounds the targets that one request is tried on.
	maxAttempts = 3
	// needTimeout bounds how long the first call to a service waits for its instances
	// where the request's context has no deadline.
	needTimeout = 5 * time.Second
)

// transport is what [Transport] returns.
type transport struct {
	base     http.RoundTripper
	dir      lane.Directory
	balancer *lane.Balancer
	*config
}

// Transport returns a RoundTripper that sends requests for services to the instance that
// the color of their context asks for (lane.Outgoing, lane.Pick) and injects that color.
// The Host header names the service, not the instance. Requests to third parties pass
// through base unchanged but for a color that the caller put into their headers, which is
// removed.
//
// A target that refuses the connection is passed over and another one of the same lane is
// tried, up to three in all, if the request can be sent again: it has no body, or has
// GetBody. Nothing else is retried.
//
// Errors: *lane.NoInstanceError where nobody may serve; the context's error while waiting
// for the first picture of a service (5 s where it has no deadline); those of base.
//
// base nil is a transport of its own with Go's defaults, without a proxy from the
// environment. dir is asked at every request, without a lock.
func Transport(base http.RoundTripper, dir lane.Directory, options ...Option) http.RoundTripper {
	if base == nil {
		base = newBase()
	}
	c := newConfig(options)
	return &transport{base: base, dir: dir, balancer: lane.NewBalancer(c.policy), config: c}
}

func newBase() *http.Transport {
	const idlePerHost = 64 // calls between services are many and to few
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
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
	if c, ok := t.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	service, ok := t.service(r.URL.Hostname())
	if !ok {
		return t.thirdParty(r)
	}
	if err := t.need(r.Context(), service); err != nil {
		closeBody(r)
		return nil, fmt.Errorf("learn of service %s: %w", service, err)
	}
	process := t.dir.Process()
	color := lane.Outgoing(r.Context(), process)
	t.dir.Used(color)

	var tried []*lane.Target
	for {
		choice := lane.Pick(t.dir.Snapshot(), service, color, lane.HTTP)
		if err := choice.Err(); err != nil {
			closeBody(r)
			return nil, err
		}
		target := t.balancer.Next(choice, time.Now(), avoid(tried))
		if target == nil { // all were tried; the last error stands
			target = t.balancer.Next(choice, time.Now(), nil)
			tried = nil
		}
		out, err := t.prepare(r, service, color, target, len(tried) > 0)
		if err != nil {
			return nil, err
		}
		resp, err := t.base.RoundTrip(out)
		t.balancer.Done(target, outcome(r.Context(), err), time.Now())
		if err == nil {
			t.explain(r, resp, choice, target, process)
			return resp, nil
		}
		tried = append(tried, target)
		if !refused(err) || !replayable(r) || len(tried) >= min(maxAttempts, len(choice.Targets)) {
			return nil, fmt.Errorf("call %s instance %s: %w", service, target.Name, err)
		}
	}
}

// need makes sure that the service's instances are known.
func (t *transport) need(ctx context.Context, service string) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, needTimeout)
		defer cancel()
	}
	return t.dir.Need(ctx, service)
}

// service tells a service from a third party by its host.
func (t *transport) service(host string) (string, bool) {
	name := host
	if t.domain != "" {
		name = strings.TrimSuffix(host, "."+t.domain)
	}
	if name == "localhost" || lane.CheckService(name) != nil {
		return "", false
	}
	return name, true
}

func (t *transport) thirdParty(r *http.Request) (*http.Response, error) {
	if color, bad := lane.Extract(carrier(r.Header), t.aliases...); color == lane.Baseline && bad == 0 {
		return t.base.RoundTrip(r)
	}
	out := r.Clone(r.Context())
	lane.Strip(carrier(out.Header), t.aliases...)
	return t.base.RoundTrip(out)
}

// prepare makes the request to a target. The caller's request is not changed.
func (t *transport) prepare(r *http.Request, service string, color lane.Name, target *lane.Target, again bool) (*http.Request, error) {
	out := r.Clone(r.Context())
	if again && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, fmt.Errorf("call %s again: %w", service, err)
		}
		out.Body = body
	}
	out.URL.Host = target.Address
	if out.Host == "" {
		out.Host = r.URL.Host
	}
	for _, key := range t.aliases {
		out.Header.Del(key)
	}
	lane.Inject(carrier(out.Header), color)
	trail := lane.TrailFrom(r.Context())
	if trail != nil {
		out.Header.Set(lane.ExplainHeader, "1")
	}
	return out, nil
}

// explain adds this call to the trail of the request that caused it, and its line to the
// answer where the caller asked for it itself.
func (t *transport) explain(r *http.Request, resp *http.Response, c lane.Choice, target *lane.Target, process lane.Name) {
	asked := r.Header.Get(lane.ExplainHeader) == "1"
	trail := lane.TrailFrom(r.Context())
	if !asked && trail == nil {
		return
	}
	own := lane.Hop{
		Service: c.Service, Lane: c.Lane, Instance: target.Name,
		Rule: lane.OutgoingRule(r.Context(), process), Reason: c.Reason,
	}
	further := resp.Header.Values(lane.RouteHeader)
	trail.Add(own, further)
	if asked {
		lines := append([]string{own.String()}, further...)
		resp.Header[http.CanonicalHeaderKey(lane.RouteHeader)] = lines[:min(len(lines), lane.MaxTrailHops)]
	}
}

func avoid(tried []*lane.Target) func(*lane.Target) bool {
	if len(tried) == 0 {
		return nil
	}
	return func(t *lane.Target) bool {
		for _, other := range tried {
			if other.Name == t.Name && other.Address == t.Address {
				return true
			}
		}
		return false
	}
}

func outcome(ctx context.Context, err error) lane.Outcome {
	switch {
	case err == nil:
		return lane.Success
	case refused(err):
		return lane.Refused
	case errors.Is(err, context.Canceled) || ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded):
		return lane.Neutral // the caller went away
	default:
		return lane.Failure
	}
}

// refused reports whether no connection was made, so that nothing was sent.
func refused(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" && !errors.Is(err, context.Canceled)
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
