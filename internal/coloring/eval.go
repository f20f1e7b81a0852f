package coloring

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// eval reads one request for the rules. What is dear to find is found once.
type eval struct {
	req    *Request
	host   string // as [cleanHost] gives it
	jwt    *JWTKeys
	claims map[string]any // of the bearer token
	tried  bool           // claims has been looked for
}

func newEval(req *Request, jwt *JWTKeys) *eval {
	return &eval{req: req, host: cleanHost(req.Host), jwt: jwt}
}

// ask is one thing that a rule may ask for.
type ask int

const (
	askNothing ask = iota
	askMethod
	askHost
	askPath
	askSource
	askHeader
	askQuery
	askCookie
	askUser // that there is one
	askUsers
)

// unmet is the first thing that a rule asks for and that is not so; askNothing: all is.
func (e *eval) unmet(r *rule) ask {
	if len(r.methods) > 0 && !slices.Contains(r.methods, e.req.Method) {
		return askMethod
	}
	if r.host != "" && !matchesHost(r.host, e.host) {
		return askHost
	}
	if r.path != "" && !hasPathPrefix(e.req.Path, r.path) {
		return askPath
	}
	if r.prefix.IsValid() && !r.prefix.Contains(e.req.Source.Unmap()) {
		return askSource
	}
	switch {
	case r.header != nil && !e.has(fromHeader, r.header):
		return askHeader
	case r.query != nil && !e.has(fromQuery, r.query):
		return askQuery
	case r.cookie != nil && !e.has(fromCookie, r.cookie):
		return askCookie
	case r.user == nil:
		return askNothing
	}
	user := e.first(*r.user)
	if user == "" {
		return askUser
	}
	if r.users == nil {
		return askNothing
	}
	if _, listed := r.users[user]; !listed {
		return askUsers
	}
	return askNothing
}

// has reports whether one of the named values is the wanted one, or any where none
// is named.
func (e *eval) has(kind sourceKind, m *laneclient.ValueMatch) bool {
	found := false
	e.values(source{kind, m.Name}, func(v string) bool {
		found = m.Value == "" || v == m.Value
		return !found
	})
	return found
}

// share gives the lane whose share the request falls into, or none.
func (e *eval) share(r *rule) lane.Name {
	if r.whole {
		return r.lanes[0]
	}
	key := e.first(r.key)
	if key == "" {
		return lane.Baseline // nothing to stick to
	}
	if n := laneAt(r.runs, slotOf(r.name, key)); n >= 0 {
		return r.lanes[n]
	}
	return lane.Baseline
}

// first returns the first of the named values, or "".
func (e *eval) first(s source) string {
	first := ""
	e.values(s, func(v string) bool {
		first = v
		return false
	})
	return first
}

// values calls yield with each of the named values, at most maxValues, until it
// returns false.
func (e *eval) values(s source, yield func(string) bool) {
	switch s.kind {
	case fromSource:
		if e.req.Source.IsValid() {
			yield(e.req.Source.Unmap().WithZone("").String())
		}
	case fromHeader:
		for n, v := range e.req.Header[s.name] {
			if n == maxValues || !yield(v) {
				return
			}
		}
	case fromCookie:
		cookies(e.req.Header, s.name, yield)
	case fromQuery:
		query(e.req.Query, s.name, yield)
	case fromClaim:
		if v := e.claim(s.name); v != "" {
			yield(v)
		}
	}
}

func (e *eval) claim(name string) string {
	if !e.tried {
		e.tried = true
		if token, ok := bearer(e.req.Header); ok && e.jwt != nil {
			e.claims, _ = e.jwt.Verify(token, e.req.Now)
		}
	}
	return claimText(e.claims[name])
}

// bearer returns the token of an Authorization header. With more than one such
// header there is none: which of them counts is anybody's guess.
func bearer(h http.Header) (token string, ok bool) {
	v := h["Authorization"]
	if len(v) != 1 {
		return "", false
	}
	scheme, token, found := strings.Cut(v[0], " ")
	if !found || !strings.EqualFold(scheme, "bearer") {
		return "", false
	}
	return strings.TrimLeft(token, " "), true
}

// cookies calls yield with the values of the cookies of that name: RFC 6265,
// section 4.2.1. Quotes around a value are taken off.
func cookies(h http.Header, name string, yield func(string) bool) {
	n := 0
	for _, line := range h["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			key, value, found := strings.Cut(strings.Trim(pair, " \t"), "=")
			if !found || key != name {
				continue
			}
			if len(value) > 1 && value[0] == '"' && value[len(value)-1] == '"' {
				value = value[1 : len(value)-1]
			}
			if n == maxValues || !yield(value) {
				return
			}
			n++
		}
	}
}

// query calls yield with the values of the query parameters of that name. A pair
// whose percent signs are no encoding is passed over.
func query(raw, name string, yield func(string) bool) {
	n := 0
	for raw != "" {
		var pair string
		pair, raw, _ = strings.Cut(raw, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key != name {
			if !strings.ContainsAny(key, "%+") {
				continue
			}
			decoded, err := url.QueryUnescape(key)
			if err != nil || decoded != name {
				continue
			}
		}
		decoded, err := url.QueryUnescape(value)
		if err != nil {
			continue
		}
		if n == maxValues || !yield(decoded) {
			return
		}
		n++
	}
}
