package lane

import "strings"

// Names under which a color travels. Header names are written in lower case;
// carriers that care about case canonicalize them.
const (
	Header          = "v-traffic-lane"     // HTTP header, gRPC metadata, Thrift info header
	SignatureHeader = "v-traffic-lane-sig" // proves a color that comes in from outside
	BaggageHeader   = "baggage"            // W3C Baggage, https://www.w3.org/TR/baggage/
	BaggageMember   = "v-traffic-lane"     // key of the baggage member
	ExplainHeader   = "x-laneway-explain"  // "1" asks for RouteHeader in the answer
	RouteHeader     = "x-laneway-route"    // one line a hop, see Hop
)

// Carrier is the header table of a request or message. Keys are given in lower
// case; an implementation folds case where its protocol does. net/http's Header
// satisfies it.
type Carrier interface {
	Values(key string) []string // all values of key, nil if none
	Set(key, value string)      // replaces all values of key
	Del(key string)             // removes all values of key
}

// Extract reads the color of a carrier: first hit wins of [Header], the baggage
// member, then aliases in their order. A value that is no lane name is no color:
// it is passed over, and ok is false if nothing else is found. malformed counts
// the values passed over.
func Extract(c Carrier, aliases ...string) (color Name, malformed int) {
	for _, v := range c.Values(Header) {
		if n := Name(strings.TrimSpace(v)); n.Valid() {
			return n, malformed
		}
		malformed++
	}
	for _, v := range c.Values(BaggageHeader) {
		if raw, found := baggageGet(v); found {
			if n := Name(raw); n.Valid() {
				return n, malformed
			}
			malformed++
		}
	}
	for _, key := range aliases {
		for _, v := range c.Values(key) {
			if n := Name(strings.TrimSpace(v)); n.Valid() {
				return n, malformed
			}
			malformed++
		}
	}
	return Baseline, malformed
}

// Inject writes color into a carrier, as [Header] and as a baggage member; all
// other baggage members are kept byte for byte. The zero Name removes both, so
// that plain traffic carries nothing. Aliases are never written; [Strip] removes
// them.
//
// Baggage that would pass the W3C limit of 8192 bytes is left without the member:
// [Header] alone then carries the color.
func Inject(c Carrier, color Name) {
	if color == Baseline {
		Strip(c)
		return
	}
	c.Set(Header, string(color))
	if kept := baggageWith(c.Values(BaggageHeader), color); kept != "" {
		c.Set(BaggageHeader, kept)
	}
}

// Strip removes the color, its signature and the aliases from a carrier. Other
// baggage members are kept byte for byte; without any, the baggage goes too.
func Strip(c Carrier, aliases ...string) {
	c.Del(Header)
	c.Del(SignatureHeader)
	for _, key := range aliases {
		c.Del(key)
	}
	values := c.Values(BaggageHeader)
	if len(values) == 0 {
		return
	}
	if kept := baggageWith(values, Baseline); kept != "" {
		c.Set(BaggageHeader, kept)
	} else {
		c.Del(BaggageHeader)
	}
}
