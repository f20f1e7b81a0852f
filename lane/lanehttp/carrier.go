package lanehttp

import (
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
)

// carrier is a header as a lane.Carrier, as http.Header is, but without an allocation to
// find out how the names of package lane are written in one.
type carrier http.Header

// The names of package lane as net/http writes them.
const (
	headerKey    = "V-Traffic-Lane"
	signatureKey = "V-Traffic-Lane-Sig"
	baggageKey   = "Baggage"
	explainKey   = "X-Laneway-Explain"
	routeKey     = "X-Laneway-Route"
)

func canonical(key string) string {
	switch key {
	case lane.Header:
		return headerKey
	case lane.SignatureHeader:
		return signatureKey
	case lane.BaggageHeader:
		return baggageKey
	case lane.ExplainHeader:
		return explainKey
	}
	return textproto.CanonicalMIMEHeaderKey(key)
}

func (c carrier) Values(key string) []string { return c[canonical(key)] }
func (c carrier) Set(key, value string)      { c[canonical(key)] = []string{value} }
func (c carrier) Del(key string)             { delete(c, canonical(key)) }

// ours says which of the keys that carry a color key is, in whatever case it was put into
// the table; empty: none of them.
func (c *config) ours(key string) string {
	switch len(key) {
	case len(headerKey), len(signatureKey), len(baggageKey), len(explainKey):
		for _, k := range [...]string{headerKey, signatureKey, baggageKey, explainKey} {
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
		case baggageKey:
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
	lane.Strip(carrier(out), c.aliases...)
	delete(out, explainKey)
	if color != lane.Baseline {
		lane.Inject(carrier(out), color)
	}
	return out
}
