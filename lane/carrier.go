package lane

import "strings"

// Names under which a color travels. Header names are written in lower case;
// carriers that care about case canonicalize them.
const (
	Header          = "v-traffic-lane"     // HTTP header, gRPC metadata, Thrift info header
	SignatureHeader = "v-traffic-lane-sig" // proves a color that comes in from outside
	BaggageHeader   = "baggage"            // W3C Baggage, https://www.w3.org/TR/baggage/
	BaggageMember   = "v-traffic-lane"     // key of the baggage member
	ExplainHeader   = "x-laneway-explain"  // "1" asks for RouteHeader in the answer, see WantsRoute
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
// member, then aliases in their order. Several values of a key are looked at in
// their order, also where somebody on the way has joined them with commas. A value
// that is no lane name is no color: it is passed over. malformed counts the values
// passed over; empty ones do not count.
func Extract(c Carrier, aliases ...string) (color Name, malformed int) {
	if color, malformed = headerColor(c.Values(Header)); color != Baseline {
		return color, malformed
	}
	for _, v := range c.Values(BaggageHeader) {
		n, bad := baggageColor(v)
		malformed += bad
		if n != Baseline {
			return n, malformed
		}
	}
	for _, key := range aliases {
		n, bad := headerColor(c.Values(key))
		malformed += bad
		if n != Baseline {
			return n, malformed
		}
	}
	return Baseline, malformed
}

func headerColor(values []string) (color Name, malformed int) {
	for _, value := range values {
		if n := Name(value); n.Valid() { // as nearly all are
			return n, malformed
		}
		for element := range strings.SplitSeq(value, ",") {
			n := Name(strings.Trim(element, ows))
			if n.Valid() {
				return n, malformed
			}
			if n != Baseline {
				malformed++
			}
		}
	}
	return Baseline, malformed
}

// WantsRoute reports whether who sent the carrier wants to know its route: the first value
// of [ExplainHeader] is "1". It says nothing of whether that peer may be told.
func WantsRoute(c Carrier) bool {
	values := c.Values(ExplainHeader)
	return len(values) > 0 && values[0] == "1"
}

// Inject writes color into a carrier, as [Header] and as a baggage member; all
// other baggage members are kept byte for byte. The zero Name removes both, so
// that plain traffic carries nothing. Aliases are never written; [Strip] removes
// them.
//
// Baggage that would pass the limits of W3C Baggage, 8192 bytes and 180 members, is
// left without the member: [Header] alone then carries the color.
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
// Baggage that holds no color is not touched.
func Strip(c Carrier, aliases ...string) {
	c.Del(Header)
	c.Del(SignatureHeader)
	for _, key := range aliases {
		c.Del(key)
	}
	values := c.Values(BaggageHeader)
	if !hasOurs(values) {
		return
	}
	if kept := baggageWith(values, Baseline); kept != "" {
		c.Set(BaggageHeader, kept)
	} else {
		c.Del(BaggageHeader)
	}
}
