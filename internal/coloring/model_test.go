package coloring

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// The model is what the package doc says, done the slow way: every rule in order,
// every route and service tried, nothing compiled but who owns a slot.

func modelDecide(routes []laneclient.Route, rules []laneclient.Rule, o Options, dir *lane.Snapshot, req *Request) Decision {
	d := modelRoute(routes, o, dir, req)
	tag := d.Color
	came, malformed := lane.Extract(req.Header, o.Aliases...)
	d.Malformed = malformed
	d.Dropped = !req.Trusted && (came != "" || malformed > 0)
	switch {
	case tag != "":
		d.Rule = lane.RuleHost
	case req.Trusted && came != "":
		d.Color, d.Rule = came, lane.RuleTrusted
	case !req.Inside:
		modelRules(rules, dir, req, &d)
	}
	return d
}

func modelRules(rules []laneclient.Rule, dir *lane.Snapshot, req *Request, d *Decision) {
	sorted := append([]laneclient.Rule(nil), rules...)
	sort.SliceStable(sorted, func(i, j int) bool {
		a, b := sorted[i], sorted[j]
		return a.Priority < b.Priority || a.Priority == b.Priority && a.Name < b.Name
	})
	for n := range sorted {
		r := &sorted[n]
		if Check(r, nil) != StatusOK || !modelMatches(&r.Match, req) {
			continue
		}
		color, whole := modelShare(r, req)
		if color == "" {
			continue
		}
		l, ok := dir.Lane(color)
		if !color.Strict() && (!ok || l.State == lane.Ended) {
			continue
		}
		d.Color, d.RuleName, d.Rule = color, r.Name, lane.RulePercent
		if whole {
			d.Rule = wordOf(&r.Match)
		}
		return
	}
}

func modelValues(from string, req *Request) []string {
	kind, name, _ := strings.Cut(from, ":")
	switch kind {
	case "header":
		return req.Header.Values(name)
	case "cookie":
		var out []string
		for _, c := range (&http.Request{Header: req.Header}).CookiesNamed(name) {
			out = append(out, c.Value)
		}
		return out
	case "query":
		q, _ := url.ParseQuery(req.Query)
		return q[name]
	case "source":
		if req.Source.IsValid() {
			return []string{req.Source.Unmap().String()}
		}
	}
	return nil
}

func modelMatches(m *laneclient.Match, req *Request) bool {
	value := func(kind string, v *laneclient.ValueMatch) bool {
		if v == nil {
			return true
		}
		for _, got := range modelValues(kind+":"+v.Name, req) {
			if v.Value == "" || got == v.Value {
				return true
			}
		}
		return false
	}
	if !value("header", m.Header) || !value("cookie", m.Cookie) || !value("query", m.Query) {
		return false
	}
	if p := strings.TrimRight(m.Path, "/"); p != "" && req.Path != p && !strings.HasPrefix(req.Path, p+"/") {
		return false
	}
	if len(m.Method) > 0 && !strings.Contains(" "+strings.Join(m.Method, " ")+" ", " "+req.Method+" ") {
		return false
	}
	if m.Source != "" {
		p, err := netip.ParsePrefix(m.Source)
		if err != nil {
			p = netip.PrefixFrom(netip.MustParseAddr(m.Source), netip.MustParseAddr(m.Source).BitLen())
		}
		if !p.Contains(req.Source.Unmap()) {
			return false
		}
	}
	if m.User == nil {
		return true
	}
	users := modelValues(m.User.From, req)
	if len(users) == 0 || users[0] == "" {
		return false
	}
	return len(m.User.List) == 0 || slices.Contains(m.User.List, users[0])
}

func modelShare(r *laneclient.Rule, req *Request) (color lane.Name, whole bool) {
	if len(r.Lanes) == 1 && percentOf(r.Lanes[0]) == 100 {
		return lane.Name(r.Lanes[0].Lane), true
	}
	from := r.Key
	if from == "" && r.Match.User != nil || from == "user" {
		from = r.Match.User.From
	} else if from == "" {
		from = "source"
	}
	keys := modelValues(from, req)
	if len(keys) == 0 || keys[0] == "" {
		return "", false
	}
	var shares []int
	for _, s := range r.Lanes {
		shares = append(shares, slotsFor(percentOf(s)))
	}
	if n := slots(shares)[slotOf(r.Name, keys[0])]; n >= 0 {
		return lane.Name(r.Lanes[n].Lane), false
	}
	return "", false
}

// modelRoute tries every way of writing the host of every route and service, and
// keeps the best.
func modelRoute(routes []laneclient.Route, o Options, dir *lane.Snapshot, req *Request) Decision {
	host := strings.ToLower(req.Host)
	if i := strings.LastIndex(host, ":"); i >= 0 {
		host = host[:i]
	}
	host = strings.TrimSuffix(host, ".")
	label, rest, _ := strings.Cut(host, ".")
	tag, _, valid := lane.SplitHostLabel(label)
	if !valid {
		tag = ""
	}
	type option struct {
		rank    [3]int // of the host, of the path; less is better
		name    string
		service string
		route   *laneclient.Route
		tag     lane.Name
	}
	var options []option
	names := func(sub, domain, cluster string) []string {
		out := []string{sub + "." + domain}
		if cluster != "" {
			out = append(out, sub+"."+cluster+"."+domain)
		}
		return out
	}
	for n := range routes {
		r := &routes[n]
		prefix := strings.TrimRight(r.Path, "/")
		if CheckRoute(r) != StatusOK || prefix != "" && req.Path != prefix && !strings.HasPrefix(req.Path, prefix+"/") {
			continue
		}
		add := func(hostRank, length int, t lane.Name) {
			options = append(options, option{[3]int{hostRank, -length, -len(prefix)}, r.Name, r.Service, r, t})
		}
		cluster := r.Cluster
		if cluster == "" {
			cluster = o.Cluster
		}
		switch {
		case r.Host == "":
			add(4, 0, tag)
		case strings.HasPrefix(r.Host, "*"):
			if strings.HasSuffix(host, r.Host[1:]) && len(host) > len(r.Host[1:]) {
				add(2, len(r.Host), tag)
			}
		default:
			sub, domain, _ := strings.Cut(r.Host, ".")
			for _, h := range names(sub, domain, cluster) {
				if h == host {
					add(0, 0, "")
				}
			}
			if tag != "" {
				for _, h := range names(lane.HostLabel(tag, sub), domain, cluster) {
					if h == host {
						add(1, 0, tag)
					}
				}
			}
		}
	}
	for _, s := range dir.Services() {
		in := append(names("", o.Domain, o.Cluster), "")
		for _, domain := range in {
			match := "."+rest == domain
			if domain == "" {
				match = req.Inside && rest == ""
			}
			if !match {
				continue
			}
			if s == label || tag != "" && lane.HostLabel(tag, s) == label {
				options = append(options, option{[3]int{3}, s, s, nil, tag})
			}
		}
	}
	if len(options) == 0 {
		return Decision{}
	}
	sort.SliceStable(options, func(i, j int) bool {
		a, b := options[i], options[j]
		for k := range a.rank {
			if a.rank[k] != b.rank[k] {
				return a.rank[k] < b.rank[k]
			}
		}
		return a.name < b.name
	})
	best := options[0]
	return Decision{Service: best.service, Route: best.route, Color: best.tag}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

const longSub = "a-very-long-service-name-of-forty-byte-x"

func randomRoutes(r *rand.Rand) []laneclient.Route {
	var out []laneclient.Route
	for n := range r.IntN(8) {
		out = append(out, laneclient.Route{
			Meta: laneclient.Meta{Name: fmt.Sprint("r", n)},
			Host: pick(r, "", "api.example.com", "www.example.com", "*.example.com", "*.eu.example.com", longSub+".example.com", "bad host", "*x"),
			Path: pick(r, "", "/", "/v1", "/v1/", "/v1/users", "/static", "no"), Service: pick(r, "api", "web", "Bad"),
			Cluster: pick(r, "", "c2"),
		})
	}
	return out
}

func randomRules(r *rand.Rand) []laneclient.Rule {
	var out []laneclient.Rule
	value := func(names ...string) *laneclient.ValueMatch {
		if r.IntN(4) != 0 {
			return nil
		}
		return &laneclient.ValueMatch{Name: pick(r, names...), Value: pick(r, "", "1", "2", "x y")}
	}
	for n := range r.IntN(12) {
		rule := laneclient.Rule{Meta: laneclient.Meta{Name: fmt.Sprint("rule", n)}, Priority: r.IntN(4)}
		m := &rule.Match
		m.Header, m.Cookie, m.Query = value("x-a", "X-B", "bad name"), value("ca", "cb"), value("qa", "q b")
		if r.IntN(5) == 0 {
			m.Path = pick(r, "/", "/v1", "/v1/users/", "/static")
		}
		if r.IntN(5) == 0 {
			m.Method = pick(r, []string{"GET"}, []string{"POST", "PUT"}, []string{"get"})
		}
		if r.IntN(5) == 0 {
			m.Source = pick(r, "10.0.0.0/8", "10.1.2.3", "10.1.0.0/16", "::1", "nonsense")
		}
		if r.IntN(4) == 0 {
			m.User = &laneclient.UserMatch{From: pick(r, "header:X-User", "cookie:uid", "nowhere"), List: pick(r, nil, []string{"1", "2"}, []string{"x y"})}
		}
		if matchesAll(m) && r.IntN(8) > 0 {
			m.Path = "/"
		}
		for range 1 + r.IntN(3) {
			rule.Lanes = append(rule.Lanes, laneclient.LaneShare{
				Lane: pick(r, "green", "blue", "red", "gone", "ended", "strict-load"), Percent: pick[laneclient.Percent](r, 0, 5, 33.33, 50, 100),
			})
		}
		rule.Key = pick(r, "", "", "user", "header:X-User", "cookie:uid", "query:qa", "source", "what")
		out = append(out, rule)
	}
	return out
}

func randomRequest(r *rand.Rand) *Request {
	req := &Request{
		Host: pick(r, "api.example.com", "API.example.com:8080", "green--api.example.com", "green--api.c2.example.com", "api.c2.example.com",
			"www.eu.example.com", "blue--www.eu.example.com", "api.lane.test", "green--api.lane.test", "red--web.c1.lane.test", "api", "green--api",
			"gone--api", "no--api", "xn--api.example.com", "", "[::1]:80", "127.0.0.1", "other.test",
			lane.HostLabel("some-long-lane-name", longSub)+".example.com", lane.HostLabel("some-long-lane-name", longSub)+".lane.test",
			lane.HostLabel("some-long-lane-name", longSub), lane.HostLabel("green", longSub)+".c1.lane.test"),
		Method: pick(r, "GET", "POST", "PUT"), Path: pick(r, "/", "/v1", "/v1/users", "/v1/users/7", "/v10", "/static/a/b"),
		Query:  pick(r, "", "qa=1", "qa=x+y&qa=2", "q+b=1", "q%20b=x%20y", "qa"),
		Header: http.Header{}, Trusted: r.IntN(3) == 0,
		Source: pick(r, netip.Addr{}, netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("::ffff:10.1.9.9"), netip.MustParseAddr("::1"), netip.MustParseAddr("192.0.2.1")),
	}
	if r.IntN(4) == 0 {
		req.Inside, req.Trusted = true, true
	}
	set := func(key string, values ...string) {
		for range r.IntN(3) {
			req.Header.Add(key, pick(r, values...))
		}
	}
	set("X-A", "1", "2", "x y")
	set("X-B", "1", "")
	set("X-User", "1", "2", "x y", "77", "78", "79")
	set("Cookie", "ca=1", "cb=2; ca=2", `uid=1; ca="1"`, "uid=80", ";;=;")
	if r.IntN(3) == 0 {
		set("V-Traffic-Lane", "green", "Bad Name", "gone")
		set("Baggage", "v-traffic-lane=blue,k=v", "k=v", "v-traffic-lane=%%%")
		set("X-Alias", "red", "no")
	}
	return req
}

func TestDecideLikeModel(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	words := map[lane.Rule]int{}
	routed := 0
	for n := range 3000 {
		routes, rules := randomRoutes(r), randomRules(r)
		o := Options{Domain: "lane.test", Cluster: pick(r, "", "c1"), Aliases: []string{"x-alias"}}
		dir := lane.NewSnapshot(lane.Input{
			Services: []string{"api", "web", longSub}[:r.IntN(4)],
			Lanes: []lane.Lane{
				{Name: "green", State: lane.Ready}, {Name: "blue", State: lane.Draining}, {Name: "red", State: lane.Creating}, {Name: "ended", State: lane.Ended},
			},
		})
		o.Services = dir.Services()
		table := Compile(routes, rules, o)
		for range 10 {
			req := randomRequest(r)
			got, want := table.Decide(dir, req), modelDecide(routes, rules, o, dir, req)
			if got.Service == "" {
				// Where nothing serves, the color is nobody's: the tag of a host that
				// is not ours means nothing.
				got.Color, got.Rule, got.RuleName, want.Color, want.Rule, want.RuleName = "", "", "", "", "", ""
			}
			if got != want {
				t.Fatalf("seed %d, case %d:\n got %+v\nwant %+v\nrequest %+v\nroutes %+v\nrules %+v\noptions %+v", seed, n, got, want, req, routes, rules, o)
			}
			words[got.Rule]++
			if got.Route != nil {
				routed++
			}
		}
	}
	for _, word := range []lane.Rule{
		"", lane.RuleHost, lane.RuleTrusted, lane.RuleHeader, lane.RuleCookie, lane.RuleQuery, lane.RuleUser, lane.RuleSource, lane.RulePath, lane.RuleMethod, lane.RulePercent,
	} {
		if words[word] == 0 {
			t.Errorf("no case gave rule %q: the cases are too tame", word)
		}
	}
	if routed == 0 {
		t.Error("no case met a route")
	}
}
