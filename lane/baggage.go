package lane

import (
	"net/url"
	"strings"
)

// What every platform must pass on, and so the most that we make: W3C Baggage, section
// 3.3.2 (Limits) and the grammar below.
const (
	maxBaggageBytes   = 8192
	maxBaggageMembers = 180
)

// ows is optional white space: RFC 9110, section 5.6.3.
const ows = " \t"

// The grammar, W3C Baggage section 3.3.1:
//
//	baggage-string = list-member 0*179( OWS "," OWS list-member )
//	list-member    = key OWS "=" OWS value *( OWS ";" OWS property )
//
// A value holds no comma and no semicolon, so members can be cut at commas
// without parsing what is in them.

// baggageColor reads the color of one header value: that of the first member which is
// ours and holds a lane name. malformed counts those before it that hold something else.
func baggageColor(header string) (color Name, malformed int) {
	for member := range strings.SplitSeq(header, ",") {
		raw, ours := ourMember(member)
		if !ours || raw == "" {
			continue
		}
		// What cannot be decoded is left as it is: no lane name has a '%'.
		if decoded, err := url.PathUnescape(raw); err == nil {
			raw = decoded
		}
		if n := Name(raw); n.Valid() {
			return n, malformed
		}
		malformed++
	}
	return Baseline, malformed
}

// ourMember returns the value of a list member, without properties, if its key is
// BaggageMember.
func ourMember(member string) (value string, ours bool) {
	key, rest, found := strings.Cut(member, "=")
	if !found || strings.Trim(key, ows) != BaggageMember {
		return "", false
	}
	value, _, _ = strings.Cut(rest, ";")
	return strings.Trim(value, ows), true
}

// hasOurs reports whether any member of the header values is ours.
func hasOurs(values []string) bool {
	for _, header := range values {
		for member := range strings.SplitSeq(header, ",") {
			if _, ours := ourMember(member); ours {
				return true
			}
		}
	}
	return false
}

// baggageWith returns the header values joined to one, every member but ours kept
// byte for byte, and ours added with the color (or left out where color is zero, or
// the whole would pass the limits).
func baggageWith(values []string, color Name) string {
	var b strings.Builder
	members := 0
	for _, header := range values {
		for member := range strings.SplitSeq(header, ",") {
			if _, ours := ourMember(member); ours || strings.Trim(member, ows) == "" {
				continue
			}
			if members > 0 {
				b.WriteByte(',')
			}
			b.WriteString(member)
			members++
		}
	}
	if color == Baseline {
		return b.String()
	}
	ours := BaggageMember + "=" + string(color)
	if members == 0 {
		return ours
	}
	if members < maxBaggageMembers && b.Len()+1+len(ours) <= maxBaggageBytes {
		b.WriteByte(',')
		b.WriteString(ours)
	}
	return b.String()
}
