package lane

import (
	"net/url"
	"strings"
)

// maxBaggageBytes is the size up to which every platform must pass baggage on:
// W3C Baggage, section 3.3.2 (Limits).
const maxBaggageBytes = 8192

// The grammar, W3C Baggage section 3.3.1:
//
//	baggage-string = list-member 0*179( OWS "," OWS list-member )
//	list-member    = key OWS "=" OWS value *( OWS ";" OWS property )
//
// A value holds no comma and no semicolon, so members can be cut at commas
// without parsing what is in them.

// baggageGet returns the percent-decoded value of our member in one header value.
func baggageGet(header string) (value string, found bool) {
	for member := range strings.SplitSeq(header, ",") {
		raw, ours := ourMember(member)
		if !ours {
			continue
		}
		decoded, err := url.PathUnescape(raw)
		if err != nil {
			return raw, true // malformed: no lane name has a '%', so it is refused later
		}
		return decoded, true
	}
	return "", false
}

// ourMember returns the value of a list member, without properties, if its key is
// BaggageMember.
func ourMember(member string) (value string, ours bool) {
	key, rest, found := strings.Cut(member, "=")
	if !found || strings.Trim(key, " \t") != BaggageMember {
		return "", false
	}
	value, _, _ = strings.Cut(rest, ";")
	return strings.Trim(value, " \t"), true
}

// baggageWith returns the header values joined to one, every member but ours kept
// byte for byte, and ours added with the color (or left out where color is zero).
func baggageWith(values []string, color Name) string {
	var b strings.Builder
	for _, header := range values {
		for member := range strings.SplitSeq(header, ",") {
			if _, ours := ourMember(member); ours || strings.Trim(member, " \t") == "" {
				continue
			}
			if b.Len() > 0 {
				b.WriteByte(',')
			}
			b.WriteString(member)
		}
	}
	if color != Baseline {
		ours := BaggageMember + "=" + string(color)
		if b.Len() == 0 {
			return ours
		}
		if b.Len()+1+len(ours) <= maxBaggageBytes {
			b.WriteByte(',')
			b.WriteString(ours)
		}
	}
	return b.String()
}
