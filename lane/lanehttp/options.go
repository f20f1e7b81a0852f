package lanehttp

import (
	"net/http"
	"strings"

	"github.com/laneway-dev/laneway/lane"
)

// config is what options change.
type config struct {
	aliases  []string
	domain   string // with a dot before it; empty: none
	policy   lane.Policy
	trust    func(*http.Request) bool // nil: everybody
	hostTags bool
	observe  lane.Observer // may be nil
}

// Option changes what [Middleware] or [Transport] does. Those that say nothing to one of
// the two may be given to it all the same.
type Option func(*config)

func newConfig(options []Option) *config {
	c := &config{}
	for _, o := range options {
		o(c)
	}
	return c
}

// WithAliases names headers that [Middleware] also reads a color from, after those of
// package lane. They are never written, and [Transport] removes them from what it sends.
func WithAliases(names ...string) Option { return func(c *config) { c.aliases = names } }

// WithDomain makes hosts below domain services for [Transport]: "order.<domain>" is
// service order. Default: none, only hosts of one label are services.
func WithDomain(domain string) Option {
	return func(c *config) {
		c.domain = strings.ToLower(strings.Trim(domain, "."))
		if c.domain != "" {
			c.domain = "." + c.domain
		}
	}
}

// WithPolicy sets how [Transport] chooses among equals. Default: lane.RoundRobin. With
// lane.LeastRequests a request counts until its response's body is closed or at its end.
func WithPolicy(p lane.Policy) Option { return func(c *config) { c.policy = p } }

// WithTrust limits from whom [Middleware] believes a color and answers
// lane.ExplainHeader. From others the request is handed on without them. Default:
// everybody, since a service is called by services; the gateway's edge is where colors
// from outside are dropped.
func WithTrust(trusted func(*http.Request) bool) Option {
	return func(c *config) { c.trust = trusted }
}

// WithHostTags makes [Middleware] read a color from the host first, as the gateway does:
// "green--api.example.com". It is for services that are called by such names directly.
func WithHostTags() Option { return func(c *config) { c.hostTags = true } }

// WithObserver has [Transport] tell of every choice, before the request goes out: for
// example laneotel.Observe, which notes it on the span of the request's context.
func WithObserver(o lane.Observer) Option { return func(c *config) { c.observe = o } }
