package lanehttp

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
)

// The names of package lane as the table of an http.Header has them.
const (
	ColorKey     = "V-Traffic-Lane"     // lane.Header
	SignatureKey = "V-Traffic-Lane-Sig" // lane.SignatureHeader
	BaggageKey   = "Baggage"            // lane.BaggageHeader
	ExplainKey   = "X-Laneway-Explain"  // lane.ExplainHeader
	RouteKey     = "X-Laneway-Route"    // lane.RouteHeader
)

// Carrier is a header as a lane.Carrier. http.Header itself is one, too; this one does not
// allocate to find out how the names of package lane are written in a table.
type Carrier http.Header

func canonical(key string) string {
	switch key {
	case lane.Header:
		return ColorKey
	case lane.SignatureHeader:
		return SignatureKey
	case lane.BaggageHeader:
		return BaggageKey
	case lane.ExplainHeader:
		return ExplainKey
	case lane.RouteHeader:
		return RouteKey
	}
	return textproto.CanonicalMIMEHeaderKey(key)
}

// Values returns all values of key, nil if there are none. They are those of the table.
func (c Carrier) Values(key string) []string { return c[canonical(key)] }

// Set replaces all values of key.
func (c Carrier) Set(key, value string) { c[canonical(key)] = []string{value} }

// Del removes all values of key.
func (c Carrier) Del(key string) { delete(c, canonical(key)) }

// ours says which of the keys that carry a color key is, in whatever case it was put into
// the table; empty: none of them.
func (c *config) ours(key string) string {
	switch len(key) {
	case len(ColorKey), len(SignatureKey), len(BaggageKey), len(ExplainKey):
		for _, k := range [...]string{ColorKey, SignatureKey, BaggageKey, ExplainKey} {
			if strings.EqualFold(key, k) {
				return k
			}
		}
	}
	for _, alias := range c.aliases {
		if strings.EqualFold(key, alias) {
			return canonical(alias)
		}
	}
	return ""
}

// tells reports whether a header tells of lanes.
func (c *config) tells(h http.Header) bool {
	for key, values := range h {
		switch c.ours(key) {
		case "":
		case BaggageKey:
			if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, lane.BaggageMember) }) {
				return true
			}
		default:
			return true
		}
	}
	return false
}

// outgoing is a copy of a header that carries the color and nothing else of lanes.
func (c *config) outgoing(h http.Header, color lane.Name) http.Header {
	out := h.Clone()
	if out == nil {
		out = http.Header{}
	}
	for key, values := range h {
		// A program may have written into the table without regard to case.
		if k := c.ours(key); k != "" && k != key {
			delete(out, key)
			out[k] = append(out[k], values...)
		}
	}
	lane.Strip(Carrier(out), c.aliases...)
	delete(out, ExplainKey)
	if color != lane.Baseline {
		lane.Inject(Carrier(out), color)
	}
	return out
}
