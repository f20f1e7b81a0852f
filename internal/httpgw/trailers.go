package httpgw

import (
	"net/http"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

// fitTrailer reports whether a field may come behind a body. What decides of routing,
// framing, access and how to read the body has been decided by then, and whoever merges
// trailers into headers would be told something else: RFC 9110, section 6.5.1. The same
// goes for all that we write, drop or believe as a header, a color above all. connection is
// the Connection header of the message.
func fitTrailer(key string, connection, aliases []string) bool {
	key = dashed(key)
	return fitMetadata(key, connection, aliases) && httpguts.ValidTrailerHeader(key) && !controls(key) && !forwarding(key)
}

// fitMetadata is fitTrailer for the answer of a gRPC call, whose trailers hold a map of the
// application and not headers.
func fitMetadata(key string, connection, aliases []string) bool {
	key = dashed(key)
	switch key {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
		"Content-Length", "Host":
		return false
	}
	return !laneways(key, aliases) && !httpguts.HeaderValuesContainsToken(connection, key)
}

// controls reports whether a field must be known before the body, or is ours to say, beyond
// those that [httpguts.ValidTrailerHeader] knows.
func controls(key string) bool {
	switch key {
	case headerVia, "Baggage", "Traceparent", "Tracestate", "Cookie", "Set-Cookie",
		"Content-Location", "Content-Language", "Content-Disposition",
		"Location", "Date", "Age", "Expires", "Vary", "Retry-After", "Warning":
		return true
	}
	return strings.HasPrefix(key, "Access-Control-") || key == "Strict-Transport-Security" || key == "Content-Security-Policy"
}

// tail is what of an answer's head its end depends on.
type tail struct {
	connection []string // the Connection header
	further    []string // lines of the route that came in the head and go behind the body
}

// announce says which trailers will follow. One that stands in the headers as well is not
// announced: net/http would write the header's value there, too.
func (c *call) announce(h http.Header, resp *http.Response, t tail) {
	for key := range resp.Trailer {
		if _, both := h[key]; !both && (c.fit(key, t) || key == lanehttp.RouteKey && c.tells()) {
			h.Add("Trailer", key)
		}
	}
}

// trailers writes what came behind the body.
func (c *call) trailers(h http.Header, resp *http.Response, t tail) {
	for key, values := range resp.Trailer {
		if len(values) > 0 && c.fit(key, t) {
			// The prefix, and not the plain key, also where the key was announced: one
			// that stands in the headers as well is another field.
			h[http.TrailerPrefix+key] = values
		}
	}
	c.routeTrailer(h, t, resp.Trailer[lanehttp.RouteKey])
}

// fit reports whether a trailer of the answer is passed on.
func (c *call) fit(key string, t tail) bool {
	if c.grpc {
		return fitMetadata(key, t.connection, c.g.cfg.Aliases)
	}
	return fitTrailer(key, t.connection, c.g.cfg.Aliases)
}

// tells reports whether the answer has lines of the route.
func (c *call) tells() bool { return c.explain && c.decision.Service != "" }

// routeLines puts our line before those of the upstream, or drops all where nobody asked.
// A gRPC call gets them as trailers, unless its answer has only headers: further are then
// those of a server that writes them first.
func (c *call) routeLines(h http.Header, trailersOnly bool) (further []string) {
	lines := h[lanehttp.RouteKey]
	delete(h, lanehttp.RouteKey)
	switch {
	case !c.tells():
	case c.grpc && !trailersOnly:
		return lines
	default:
		h[lanehttp.RouteKey] = lane.AppendHops(nil, c.hop(), lines)
	}
	return nil
}

// routeTrailer writes the lines of the route that go behind the body: for gRPC all of them,
// else those that the upstream sent there.
func (c *call) routeTrailer(h http.Header, t tail, further []string) {
	const key = http.TrailerPrefix + lanehttp.RouteKey
	switch {
	case !c.tells():
	case c.grpc:
		h[key] = lane.AppendHops(nil, c.hop(), slices.Concat(t.further, further))
	case len(further) > 0:
		head := h[lanehttp.RouteKey] // begins with our line
		lines := lane.AppendHops(nil, c.hop(), slices.Concat(head[1:], further))
		if lines = lines[len(head):]; len(lines) > 0 {
			h[key] = lines
		}
	}
}
