package coloring

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Check returns [StatusOK], or what is wrong with a rule and what would be right,
// as one sentence that begins with the field. known says whether a lane is there;
// nil: that is not checked. A rule that is right but for lanes that are not there
// still gives the colors of the others, and of strict lanes.
func Check(r *laneclient.Rule, known func(lane.Name) bool) string {
	for _, check := range []func(*laneclient.Rule) string{checkMatch, checkUser, checkLanes, checkKey} {
		if fault := check(r); fault != "" {
			return fault
		}
	}
	if known == nil {
		return StatusOK
	}
	for n, s := range r.Lanes {
		if known(lane.Name(s.Lane)) {
			continue
		}
		if lane.Name(s.Lane).Strict() {
			return fmt.Sprintf("lanes[%d]: there is no lane %s, and what the rule gives to it is refused, since it is a strict lane; create it, or change the rule", n, s.Lane)
		}
		return fmt.Sprintf("lanes[%d]: there is no lane %s, and the rule gives no color for it; create it, or change the rule", n, s.Lane)
	}
	return StatusOK
}

func checkMatch(r *laneclient.Rule) string {
	m := &r.Match
	if fault := HostFault(m.Host); fault != "" {
		return "match.host: " + fault
	}
	if m.Header != nil && !httpguts.ValidHeaderFieldName(m.Header.Name) {
		return fmt.Sprintf("match.header.name: %q is no header name", m.Header.Name)
	}
	if m.Cookie != nil && !httpguts.ValidHeaderFieldName(m.Cookie.Name) {
		return fmt.Sprintf("match.cookie.name: %q is no cookie name", m.Cookie.Name)
	}
	if m.Query != nil && m.Query.Name == "" {
		return "match.query.name: is empty; name a query parameter"
	}
	if m.Path != "" && m.Path[0] != '/' {
		return `match.path: a prefix begins with "/"`
	}
	for n, method := range m.Method {
		if !httpguts.ValidHeaderFieldName(method) || method != strings.ToUpper(method) {
			return fmt.Sprintf("match.method[%d]: %q is no method; write it in capitals, such as GET", n, method)
		}
	}
	if m.Source != "" {
		if _, err := ParsePrefix(m.Source); err != nil {
			return fmt.Sprintf("match.source: %q is no address or network; write 10.0.0.7 or 10.0.0.0/8", m.Source)
		}
	}
	return ""
}

func checkUser(r *laneclient.Rule) string {
	u := r.Match.User
	if u == nil {
		return ""
	}
	if _, ok := parseUser(u.From); !ok {
		return fmt.Sprintf("match.user.from: %q is nowhere to find a user; write header:NAME, cookie:NAME or jwt:CLAIM", u.From)
	}
	if n := slices.Index(u.List, ""); n >= 0 {
		return fmt.Sprintf("match.user.list[%d]: is empty", n)
	}
	return ""
}

// MaxLanes is how many lanes one rule may name.
const MaxLanes = 64

func checkLanes(r *laneclient.Rule) string {
	if len(r.Lanes) == 0 {
		return "lanes: is empty; name the lane that the rule gives"
	}
	if len(r.Lanes) > MaxLanes {
		return fmt.Sprintf("lanes: has %d entries; at most %d are allowed", len(r.Lanes), MaxLanes)
	}
	sum, seen := 0, map[string]bool{}
	for n, s := range r.Lanes {
		if _, err := lane.ParseName(s.Lane); err != nil {
			return fmt.Sprintf("lanes[%d]: %v", n, err)
		}
		if seen[s.Lane] {
			return fmt.Sprintf("lanes[%d]: %s is named twice; add the two shares up", n, s.Lane)
		}
		seen[s.Lane] = true
		if math.IsNaN(s.Percent) || s.Percent < 0 || s.Percent > 100 {
			return fmt.Sprintf("lanes[%d].percent: %v is no percentage; use a number over 0 up to 100", n, s.Percent)
		}
		sum += slotsFor(percentOf(s))
	}
	if sum > slotCount {
		return fmt.Sprintf("lanes: the percentages add up to %v (one that is left out counts 100); at most 100 are there to give", float64(sum)*100/slotCount)
	}
	return ""
}

func checkKey(r *laneclient.Rule) string {
	switch r.Key {
	case "":
		return ""
	case "user":
		if r.Match.User == nil {
			return "key: is user, but match.user does not say where to find one"
		}
		return ""
	}
	if _, ok := parseKey(r.Key); !ok {
		return fmt.Sprintf("key: %q is nothing to stick to; write header:NAME, cookie:NAME, query:NAME, user or source", r.Key)
	}
	return ""
}

// parseUser reads where a user is found: "header:NAME", "cookie:NAME", "jwt:CLAIM".
func parseUser(text string) (s source, ok bool) {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case "header":
		return source{fromHeader, http.CanonicalHeaderKey(name)}, httpguts.ValidHeaderFieldName(name)
	case "cookie":
		return source{fromCookie, name}, httpguts.ValidHeaderFieldName(name)
	case "jwt":
		return source{fromClaim, name}, name != ""
	}
	return source{}, false
}

// parseKey reads what a percentage sticks to, but for "user": "header:NAME",
// "cookie:NAME", "query:NAME", "source".
func parseKey(text string) (s source, ok bool) {
	kind, name, _ := strings.Cut(text, ":")
	switch kind {
	case "header", "cookie":
		return parseUser(text)
	case "query":
		return source{fromQuery, name}, name != ""
	}
	return source{kind: fromSource}, text == "source"
}

// ParsePrefix reads an address or a network. Bits behind the mask are dropped; an
// IPv4 address in IPv6 clothes is taken as IPv4.
func ParsePrefix(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("address %q: %w", text, err)
		}
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("network %q: %w", text, err)
	}
	if p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, fmt.Errorf("network %q: mixes IPv4 and IPv6", text)
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}
