package coloring

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// rules is the compiled list of coloring rules.
type rules struct {
	all  []laneclient.Rule // as given, also those that are skipped
	jwt  *JWTKeys
	list []*rule // those in use, in order

	// Each rule in use is found by exactly one of these. The numbers are places in
	// list, ascending.
	groups  []*group // by the value of a header, cookie, query parameter or user
	sources map[netip.Prefix][]int32
	lengths []int              // the prefix lengths that occur in sources
	hosts   map[string][]int32 // by the host, or what stands behind the '*' with its dot
	paths   map[string][]int32
	depth   int     // the most slashes in a key of paths
	general []int32 // the rest
}

// group finds rules by one named value of the request.
type group struct {
	of    source
	byVal map[string][]int32
}

type rule struct {
	name    string
	host    string // as [foldHost] gives it; empty: any
	header  *laneclient.ValueMatch
	cookie  *laneclient.ValueMatch
	query   *laneclient.ValueMatch
	path    string // without '/' at its end
	methods []string
	user    *source
	users   map[string]struct{} // nil: any user
	prefix  netip.Prefix
	word    lane.Rule
	lanes   []lane.Name
	slots   []int  // how many each of them has
	whole   bool   // one lane has it all: no key needed
	runs    []span // who owns which slot
	key     source
}

// source names a value of a request.
type source struct {
	kind sourceKind
	name string // a header's in canonical form
}

type sourceKind int

const (
	fromSource sourceKind = iota // the peer's address
	fromHeader
	fromCookie
	fromQuery
	fromClaim // of a checked bearer token
)

func compileRules(list []laneclient.Rule, jwt *JWTKeys) *rules {
	t := &rules{all: list, jwt: jwt, sources: map[netip.Prefix][]int32{}, hosts: map[string][]int32{}, paths: map[string][]int32{}}
	inUse := make([]*laneclient.Rule, 0, len(list))
	for n := range list {
		if r := &list[n]; t.check(r, nil) == StatusOK {
			inUse = append(inUse, r)
		}
	}
	slices.SortStableFunc(inUse, inOrder)
	for n, src := range inUse {
		r := compileRule(src)
		t.list = append(t.list, r)
		t.index(r, int32(n))
	}
	return t
}

// check is [Check] by the keys that there are.
func (t *rules) check(r *laneclient.Rule, known func(lane.Name) bool) string {
	status := Check(r, known)
	if status == StatusOK && t.jwt == nil && needsToken(r) {
		return "match.user.from: the gateway has no key to check tokens with; configure one, or use a header or cookie"
	}
	return status
}

// inOrder compares rules by who comes first.
func inOrder(a, b *laneclient.Rule) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
}

// needsToken reports whether a rule reads a claim of a token.
func needsToken(r *laneclient.Rule) bool {
	return r.Match.User != nil && strings.HasPrefix(r.Match.User.From, "jwt:")
}

func compileRule(src *laneclient.Rule) *rule {
	m := &src.Match
	r := &rule{
		name: src.Name, host: foldHost(m.Host), header: m.Header, cookie: m.Cookie, query: m.Query,
		path: strings.TrimRight(m.Path, "/"), methods: m.Method, word: wordOf(m),
	}
	if m.Header != nil {
		r.header = &laneclient.ValueMatch{Name: http.CanonicalHeaderKey(m.Header.Name), Value: m.Header.Value}
	}
	if m.User != nil {
		s, _ := parseUser(m.User.From)
		r.user = &s
		if len(m.User.List) > 0 {
			r.users = make(map[string]struct{}, len(m.User.List))
			for _, u := range m.User.List {
				r.users[u] = struct{}{}
			}
		}
	}
	if m.Source != "" {
		r.prefix, _ = ParsePrefix(m.Source)
	}
	r.compileShares(src)
	return r
}

func (r *rule) compileShares(src *laneclient.Rule) {
	shares := make([]int, len(src.Lanes))
	for n, s := range src.Lanes {
		r.lanes = append(r.lanes, lane.Name(s.Lane))
		shares[n] = slotsFor(percentOf(s))
	}
	r.slots = shares
	if len(shares) == 1 && shares[0] >= slotCount {
		r.whole = true
		return
	}
	r.word = lane.RulePercent
	r.runs = spans(slots(shares))
	switch {
	case src.Key == "user" || src.Key == "" && r.user != nil:
		r.key = *r.user
	case src.Key != "":
		r.key, _ = parseKey(src.Key)
	}
}

// percentOf is the share of a lane; left out, it is the whole.
func percentOf(s laneclient.LaneShare) float64 {
	if s.Percent == 0 {
		return 100
	}
	return float64(s.Percent)
}

// wordOf is what a rule that gives a color says for itself: the most particular
// thing that it asks for.
func wordOf(m *laneclient.Match) lane.Rule {
	switch {
	case m.User != nil:
		return lane.RuleUser
	case m.Header != nil:
		return lane.RuleHeader
	case m.Cookie != nil:
		return lane.RuleCookie
	case m.Query != nil:
		return lane.RuleQuery
	case m.Source != "":
		return lane.RuleSource
	case m.Path != "":
		return lane.RulePath
	case m.Host != "":
		return lane.RuleHost
	}
	return lane.RuleMethod
}

// index puts a rule where the fewest requests meet it.
func (t *rules) index(r *rule, n int32) {
	switch {
	case r.header != nil && r.header.Value != "":
		t.group(source{fromHeader, r.header.Name}).add(r.header.Value, n)
	case r.cookie != nil && r.cookie.Value != "":
		t.group(source{fromCookie, r.cookie.Name}).add(r.cookie.Value, n)
	case r.query != nil && r.query.Value != "":
		t.group(source{fromQuery, r.query.Name}).add(r.query.Value, n)
	case r.users != nil:
		g := t.group(*r.user)
		for u := range r.users {
			g.add(u, n)
		}
	case r.prefix.IsValid():
		t.sources[r.prefix] = append(t.sources[r.prefix], n)
		if !slices.Contains(t.lengths, r.prefix.Bits()) {
			t.lengths = append(t.lengths, r.prefix.Bits())
		}
	case r.host != "":
		key := strings.TrimPrefix(r.host, "*")
		t.hosts[key] = append(t.hosts[key], n)
	case r.path != "":
		t.paths[r.path] = append(t.paths[r.path], n)
		t.depth = max(t.depth, strings.Count(r.path, "/"))
	default:
		t.general = append(t.general, n)
	}
}

func (t *rules) group(of source) *group {
	for _, g := range t.groups {
		if g.of == of {
			return g
		}
	}
	g := &group{of: of, byVal: map[string][]int32{}}
	t.groups = append(t.groups, g)
	return g
}

func (g *group) add(value string, n int32) { g.byVal[value] = append(g.byVal[value], n) }

// maxValues is how many values of one name in a request are looked at. Further
// ones are passed over, so that a peer cannot make a request expensive.
const maxValues = 16

// apply finds the first rule that gives the request a color.
func (t *rules) apply(dir *lane.Snapshot, req *Request, d *Decision) {
	if len(t.list) == 0 {
		return
	}
	e := newEval(req, t.jwt)
	var room [8][]int32
	lists := t.candidates(e, room[:0])
	for {
		n := takeLeast(lists)
		if n < 0 {
			return
		}
		r := t.list[n]
		if e.unmet(r) != askNothing {
			continue
		}
		if color := e.share(r); gives(dir, color) {
			d.Color, d.Rule, d.RuleName = color, r.word, r.name
			return
		}
	}
}

// gives reports whether a rule gives a color, which is that of a lane that is there, or of
// a strict one.
func gives(dir *lane.Snapshot, color lane.Name) bool {
	return color != lane.Baseline && (color.Strict() || exists(dir, color))
}

// candidates lists the places of rules that may match, in ascending lists.
func (t *rules) candidates(e *eval, lists [][]int32) [][]int32 {
	if len(t.general) > 0 {
		lists = append(lists, t.general)
	}
	for _, g := range t.groups {
		e.values(g.of, func(v string) bool {
			if l := g.byVal[v]; l != nil {
				lists = append(lists, l)
			}
			return true
		})
	}
	if len(t.sources) > 0 && e.req.Source.IsValid() {
		addr := e.req.Source.Unmap()
		for _, bits := range t.lengths {
			if p, err := addr.Prefix(bits); err == nil {
				if l := t.sources[p]; l != nil {
					lists = append(lists, l)
				}
			}
		}
	}
	if len(t.hosts) > 0 {
		lists = t.ofHost(e.host, lists)
	}
	if len(t.paths) > 0 {
		path, depth := e.req.Path, 0
		for i := 1; i <= len(path) && depth <= t.depth; i++ {
			if i < len(path) && path[i] != '/' {
				continue
			}
			depth++
			if l := t.paths[path[:i]]; l != nil {
				lists = append(lists, l)
			}
		}
	}
	return lists
}

// ofHost adds the rules of a host, and those of the wildcards that it is under.
func (t *rules) ofHost(host string, lists [][]int32) [][]int32 {
	if l := t.hosts[host]; l != nil {
		lists = append(lists, l)
	}
	for i := range len(host) {
		if host[i] == '.' && i > 0 {
			if l := t.hosts[host[i:]]; l != nil {
				lists = append(lists, l)
			}
		}
	}
	return lists
}

// takeLeast removes the least number from the heads of ascending lists and returns
// it; -1 where all are empty. A number that stands in several is removed from all.
func takeLeast(lists [][]int32) int32 {
	least := int32(-1)
	for _, l := range lists {
		if len(l) > 0 && (least < 0 || l[0] < least) {
			least = l[0]
		}
	}
	for i, l := range lists {
		if len(l) > 0 && l[0] == least {
			lists[i] = l[1:]
		}
	}
	return least
}
