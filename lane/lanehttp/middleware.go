package lanehttp

import (
	"net/http"

	"github.com/laneway-dev/laneway/lane"
)

// config is what options change.
type config struct {
	aliases []string
	domain  string
	policy  lane.Policy
	trust   func(*http.Request) bool
}

// Option changes what [Middleware] or [Transport] does.
type Option func(*config)

// WithAliases names headers that a color is also read from, after those of package lane.
// They are never written.
func WithAliases(names ...string) Option { return func(c *config) { c.aliases = names } }

// WithDomain makes hosts below domain services for [Transport]: "order.<domain>" is
// service order. Default: none, only hosts of one label are services.
func WithDomain(domain string) Option { return func(c *config) { c.domain = domain } }

// WithPolicy sets how [Transport] chooses among equals. Default: lane.RoundRobin.
func WithPolicy(p lane.Policy) Option { return func(c *config) { c.policy = p } }

// WithTrust limits from whom [Middleware] believes a color and answers
// lane.ExplainHeader. Default: everybody, since a service is called by services; the
// gateway's edge is where colors from outside are dropped.
func WithTrust(trusted func(*http.Request) bool) Option {
	return func(c *config) { c.trust = trusted }
}

// Middleware wraps a handler so that its requests' contexts carry their color
// (lane.From). A request with lane.ExplainHeader "1" is answered with lane.RouteHeader
// lines for the calls that the handler made with its context before it sent headers. The
// ResponseWriter that next gets supports http.NewResponseController as the original does.
func Middleware(next http.Handler, options ...Option) http.Handler {
	c := newConfig(options)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.trust(r) {
			next.ServeHTTP(w, r)
			return
		}
		ctx := r.Context()
		if color, _ := lane.Extract(carrier(r.Header), c.aliases...); color != lane.Baseline {
			ctx = lane.With(ctx, color)
		}
		if r.Header.Get(lane.ExplainHeader) != "1" {
			next.ServeHTTP(w, r.WithContext(ctx))
			return
		}
		ctx, trail := lane.WithTrail(ctx)
		explained := &explainWriter{ResponseWriter: w, trail: trail}
		next.ServeHTTP(explained, r.WithContext(ctx))
		explained.explain() // for a handler that wrote nothing
	})
}

func newConfig(options []Option) *config {
	c := &config{trust: func(*http.Request) bool { return true }}
	for _, o := range options {
		o(c)
	}
	return c
}

// carrier is a header as a lane.Carrier.
type carrier http.Header

func (c carrier) Values(key string) []string { return http.Header(c).Values(key) }
func (c carrier) Set(key, value string)      { http.Header(c).Set(key, value) }
func (c carrier) Del(key string)             { http.Header(c).Del(key) }

// explainWriter adds the trail to the headers just before they go out.
type explainWriter struct {
	http.ResponseWriter
	trail *lane.Trail
	done  bool
}

func (w *explainWriter) explain() {
	if w.done {
		return
	}
	w.done = true
	for _, line := range w.trail.Lines() {
		w.Header().Add(lane.RouteHeader, line)
	}
}

// WriteHeader implements http.ResponseWriter. Informational answers (1xx, but for the
// switch of protocols) are not the last, so they carry no lines.
func (w *explainWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.explain()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *explainWriter) Write(b []byte) (int, error) {
	w.explain()
	return w.ResponseWriter.Write(b)
}

// Flush implements http.Flusher: many handlers ask for it by type.
func (w *explainWriter) Flush() {
	w.explain()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // Flusher has no error to give
}

// Unwrap serves http.NewResponseController.
func (w *explainWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
