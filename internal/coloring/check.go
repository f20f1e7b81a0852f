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
	if faults := Faults(r); len(faults) > 0 {
		return faults[0].Field + ": " + faults[0].Detail
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

// Faults lists what is wrong with a rule and can never become right while it is as it is:
// all but lanes that are not there. A rule that has one is skipped.
func Faults(r *laneclient.Rule) []laneclient.FieldError {
	f := &faults{}
	f.match(&r.Match)
	f.user(r.Match.User)
	f.lanes(r.Lanes)
	f.key(r)
	return f.list
}

// faults collects what is wrong, each with the path of its field.
type faults struct{ list []laneclient.FieldError }

func (f *faults) add(field, detail string, args ...any) {
	f.list = append(f.list, laneclient.FieldError{Field: field, Detail: fmt.Sprintf(detail, args...)})
}

func (f *faults) match(m *laneclient.Match) {
	if matchesAll(m) {
		// To leave it out by mistake would send everybody to the lane.
		f.add("match", "is missing; say which requests the rule is for, and match: {path: /} where it is for all")
	}
	if fault := HostFault(m.Host); fault != "" {
		f.add("match.host", "%s", fault)
	}
	if m.Header != nil && !httpguts.ValidHeaderFieldName(m.Header.Name) {
		f.add("match.header.name", "%q is no header name", m.Header.Name)
	}
	if m.Cookie != nil && !httpguts.ValidHeaderFieldName(m.Cookie.Name) {
		f.add("match.cookie.name", "%q is no cookie name", m.Cookie.Name)
	}
	if m.Query != nil && m.Query.Name == "" {
		f.add("match.query.name", "is empty; name a query parameter")
	}
	if m.Path != "" && m.Path[0] != '/' {
		f.add("match.path", `a prefix begins with "/"`)
	}
	for n, method := range m.Method {
		if !httpguts.ValidHeaderFieldName(method) || method != strings.ToUpper(method) {
			f.add(fmt.Sprintf("match.method[%d]", n), "%q is no method; write it in capitals, such as GET", method)
		}
	}
	if m.Source != "" {
		if _, err := ParsePrefix(m.Source); err != nil {
			f.add("match.source", "%q is no address or network; write 10.0.0.7 or 10.0.0.0/8", m.Source)
		}
	}
}

// matchesAll reports whether nothing is asked for.
func matchesAll(m *laneclient.Match) bool {
	return m.Host == "" && m.Header == nil && m.Cookie == nil && m.Query == nil && m.Path == "" &&
		len(m.Method) == 0 && m.User == nil && m.Source == ""
}

func (f *faults) user(u *laneclient.UserMatch) {
	if u == nil {
		return
	}
	if _, ok := parseUser(u.From); !ok {
		f.add("match.user.from", "%q is nowhere to find a user; write header:NAME, cookie:NAME or jwt:CLAIM", u.From)
	}
	if n := slices.Index(u.List, ""); n >= 0 {
		f.add(fmt.Sprintf("match.user.list[%d]", n), "is empty")
	}
}

// MaxLanes is how many lanes one rule may name.
const MaxLanes = 64

func (f *faults) lanes(lanes []laneclient.LaneShare) {
	switch {
	case len(lanes) == 0:
		f.add("lanes", "is empty; name the lane that the rule gives")
	case len(lanes) > MaxLanes:
		f.add("lanes", "has %d entries; at most %d are allowed", len(lanes), MaxLanes)
		return
	}
	sum, seen := 0, map[string]bool{}
	for n, s := range lanes {
		at := fmt.Sprintf("lanes[%d]", n)
		if _, err := lane.ParseName(s.Lane); err != nil {
			f.add(at+".lane", "%v", err)
		} else if seen[s.Lane] {
			f.add(at+".lane", "%s is named twice; add the two shares up", s.Lane)
		}
		seen[s.Lane] = true
		if math.IsNaN(float64(s.Percent)) || s.Percent < 0 || s.Percent > 100 {
			f.add(at+".percent", "%v is no percentage; use a number over 0 up to 100", s.Percent)
			continue
		}
		sum += slotsFor(percentOf(s))
	}
	if sum > slotCount {
		f.add("lanes", "the percentages add up to %v (one that is left out counts 100); at most 100 are there to give", float64(sum)*100/slotCount)
	}
}

func (f *faults) key(r *laneclient.Rule) {
	if r.Key == "" {
		return
	}
	if r.Key == "user" {
		if r.Match.User == nil {
			f.add("key", "is user, but match.user does not say where to find one")
		}
		return
	}
	if _, ok := parseKey(r.Key); !ok {
		f.add("key", "%q is nothing to stick to; write header:NAME, cookie:NAME, query:NAME, user or source", r.Key)
	}
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
