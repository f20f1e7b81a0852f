package httpgw

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/laneway-dev/laneway/integrations/laneotel"
)

// Headers of W3C Trace Context, https://www.w3.org/TR/trace-context/.
const (
	traceparentKey = "Traceparent"
	tracestateKey  = "Tracestate"
)

// scope is the name of what makes the spans.
const scope = "github.com/laneway-dev/laneway/internal/httpgw"

// span is the span of a request.
type span struct{ trace.Span }

// startSpan begins the span of a request for a service whose choice has been made, and
// puts it into the request's trace context: what the upstream does is below it. Without a
// tracer the trace context stays as it came.
func (c *call) startSpan(ctx context.Context) {
	if c.g.tracer == nil {
		return
	}
	h := traceHeaders(c.r.Header)
	var w3c propagation.TraceContext
	if len(c.r.Header[traceparentKey]) == 1 { // several are none: W3C Trace Context, section 3.2
		ctx = w3c.Extract(ctx, h)
	}
	method := knownMethod(c.r.Method)
	attributes := append(laneotel.Attributes(c.choice),
		attribute.String("http.request.method", method),
		attribute.String("url.scheme", c.scheme()),
		attribute.String("url.path", clip(c.r.URL.Path)),
		attribute.String("server.address", clip(c.r.Host)),
		attribute.String("service.peer.name", c.choice.Service),
	)
	if route := c.decision.Route; route != nil && route.Path != "" {
		attributes = append(attributes, attribute.String("http.route", route.Path))
	}
	name := method
	if method == otherMethod {
		name = "HTTP"
	}
	ctx, made := c.g.tracer.Start(ctx, name+" "+c.choice.Service,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(c.began), trace.WithAttributes(attributes...))
	c.span = &span{made}
	// A state without its parent, or of another, says nothing.
	delete(c.r.Header, traceparentKey)
	delete(c.r.Header, tracestateKey)
	w3c.Inject(ctx, h)
}

// endSpan ends the span of a request that has one.
func (c *call) endSpan() {
	if c.span == nil {
		return
	}
	defer c.span.End()
	if !c.span.IsRecording() {
		return
	}
	if c.attempts > 1 {
		c.span.SetAttributes(attribute.Int("http.request.resend_count", c.attempts-1))
	}
	if c.target != nil {
		c.span.SetAttributes(attribute.String("service.peer.instance.id", c.target.Name))
	}
	if c.status == statusClientGone { // nobody was answered
		c.span.SetAttributes(attribute.String("error.type", "client_gone"))
		return
	}
	c.span.SetAttributes(attribute.Int("http.response.status_code", c.status))
	switch {
	case c.status >= http.StatusInternalServerError:
		c.span.SetAttributes(attribute.String("error.type", strconv.Itoa(c.status)))
		c.span.SetStatus(codes.Error, c.text())
	case c.cause != nil && c.status < http.StatusBadRequest:
		c.span.SetAttributes(attribute.String("error.type", "broken_off"))
		c.span.SetStatus(codes.Error, c.text())
	}
}

// text says why a request failed, as far as the gateway knows.
func (c *call) text() string {
	if err := cmp.Or(c.cause, c.choice.Err()); err != nil {
		return err.Error()
	}
	return ""
}

func (c *call) scheme() string {
	if c.r.TLS != nil {
		return "https"
	}
	return "http"
}

// otherMethod stands for methods that HTTP itself does not know, which a peer may make up
// without end.
const otherMethod = "_OTHER"

func knownMethod(method string) string {
	if slices.Contains([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}, method) {
		return method
	}
	return otherMethod
}

// traceHeaders are headers as a carrier of trace context.
type traceHeaders http.Header

// Get returns a field; one of several lines, as tracestate may be, is joined.
func (h traceHeaders) Get(key string) string {
	return strings.Join(h[http.CanonicalHeaderKey(key)], ",")
}

// Set replaces a field.
func (h traceHeaders) Set(key, value string) { h[http.CanonicalHeaderKey(key)] = []string{value} }

// Keys lists the fields.
func (h traceHeaders) Keys() []string { return []string{traceparentKey, tracestateKey} }
