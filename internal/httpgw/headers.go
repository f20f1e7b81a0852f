package httpgw

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

// Names of headers in the form that net/http keeps them in.
const (
	headerVia   = "Via"
	headerFor   = "X-Forwarded-For"
	headerProto = "X-Forwarded-Proto"
	headerHost  = "X-Forwarded-Host"
)

// dropHops removes what belongs to one connection only: RFC 9110, section 7.6.1.
// It returns the protocol that an upgrade was asked for, or "".
func dropHops(h http.Header) (upgrade string) {
	if connection := h["Connection"]; len(connection) > 0 {
		if httpguts.HeaderValuesContainsToken(connection, "Upgrade") {
			upgrade = upgradeOf(h["Upgrade"])
		}
		for _, line := range connection {
			for name := range strings.SplitSeq(line, ",") {
				if name = strings.Trim(name, " \t"); name != "" {
					h.Del(name)
				}
			}
		}
	}
	trailers := httpguts.HeaderValuesContainsToken(h["Te"], "trailers")
	for _, name := range [...]string{
		"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
	} {
		delete(h, name)
	}
	if trailers {
		h["Te"] = []string{"trailers"}
	}
	return upgrade
}

// upgradeOf is what an Upgrade header asks for, without other versions of HTTP, plain or
// over TLS: the requests in such a tunnel would be routed, and colored, by nobody.
func upgradeOf(lines []string) string {
	var protocols []string
	for _, line := range lines {
		for protocol := range strings.SplitSeq(line, ",") {
			protocol = strings.Trim(protocol, " \t")
			name, _, _ := strings.Cut(protocol, "/")
			switch strings.ToLower(name) {
			case "", "h2c", "h2", "http", "tls":
			default:
				protocols = append(protocols, protocol)
			}
		}
	}
	return strings.Join(protocols, ", ")
}

// dropClaims removes what only a trusted peer may say: for whom it asks, and, in other
// spelling, a color. CGI, WSGI and their like know no difference between '-' and '_' in a
// name and would take the one for the other.
func dropClaims(h http.Header, aliases []string) {
	for name := range h {
		if !strings.Contains(name, "_") {
			if forwarding(name) {
				delete(h, name)
			}
			continue
		}
		if plain := dashed(name); forwarding(plain) || laneways(plain, aliases) {
			delete(h, name)
		}
	}
}

// dashed is a name as those read it who know no difference between '-' and '_'.
func dashed(name string) string {
	if !strings.Contains(name, "_") {
		return name
	}
	return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
}

// forwarding reports whether a header says for whom a proxy asks.
func forwarding(key string) bool {
	return key == "Forwarded" || key == "X-Real-Ip" || strings.HasPrefix(key, "X-Forwarded-")
}

// laneways reports whether a header, as [dashed] gives it, carries a color, proves one,
// asks for the route or tells it.
func laneways(key string, aliases []string) bool {
	switch key {
	case lanehttp.ColorKey, lanehttp.SignatureKey, lanehttp.ExplainKey, lanehttp.RouteKey:
		return true
	}
	return slices.ContainsFunc(aliases, func(alias string) bool { return dashed(alias) == key })
}

// forwarded tells the upstream who asked.
func forwarded(r *http.Request, peer netip.Addr) {
	h := r.Header
	if peer.IsValid() {
		from := peer.String()
		if prior := h[headerFor]; len(prior) > 0 {
			from = strings.Join(prior, ", ") + ", " + from
		}
		h[headerFor] = []string{from}
	}
	if len(h[headerProto]) == 0 {
		proto := "http"
		if r.TLS != nil {
			proto = "https"
		}
		h[headerProto] = []string{proto}
	}
	if len(h[headerHost]) == 0 && r.Host != "" {
		h[headerHost] = []string{r.Host}
	}
}

// source is the address that rules see: the peer, or, behind trusted ones, the
// last address of X-Forwarded-For that is not of a trusted peer.
func source(h http.Header, peer netip.Addr, trusted func(netip.Addr) bool) netip.Addr {
	lines := h[headerFor]
	for _, line := range slices.Backward(lines) {
		for line != "" && trusted(peer) {
			comma := strings.LastIndexByte(line, ',')
			addr, err := netip.ParseAddr(strings.Trim(line[comma+1:], " \t"))
			if err != nil {
				return peer
			}
			peer = addr.Unmap()
			line = line[:max(comma, 0)]
		}
	}
	return peer
}

// passages counts how often a request has come through the gateway of this
// pseudonym.
func passages(h http.Header, pseudonym string) int {
	n := 0
	for _, line := range h[headerVia] {
		n += strings.Count(line, pseudonym)
	}
	return n
}

// addVia notes the passage: RFC 9110, section 7.6.3.
func addVia(r *http.Request, via string) {
	if prior := r.Header[headerVia]; len(prior) > 0 {
		via = strings.Join(prior, ", ") + ", " + via
	}
	r.Header[headerVia] = []string{via}
}

// isGRPC reports whether a request is a gRPC call, which is one over HTTP/2.
// grpc-web is not: it is spoken by http endpoints.
func isGRPC(r *http.Request) bool { return r.ProtoMajor == 2 && coloring.IsGRPC(r.Method, r.Header) }

// idempotent reports whether a method may be repeated: RFC 9110, section 9.2.2.
func idempotent(method string) bool {
	return slices.Contains([]string{
		http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete,
	}, method)
}
