package coloring

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func routeOf(name, host, path, service string) laneclient.Route {
	return laneclient.Route{Meta: laneclient.Meta{Name: name}, Host: host, Path: path, Service: service}
}

func TestHosts(t *testing.T) {
	t.Parallel()
	clustered := routeOf("clustered", "shop.example.com", "", "shop")
	clustered.Cluster = "eu"
	routes := []laneclient.Route{
		routeOf("api", "api.example.com", "", "api"), routeOf("api-v2", "api.example.com", "/v2", "apiv2"),
		routeOf("wild", "*.example.com", "", "web"), routeOf("deep", "*.eu.example.com", "", "webeu"),
		clustered, routeOf("any", "", "/metrics", "metrics"), routeOf("long", longSub+".example.com", "", "long"),
	}
	dir := lane.NewSnapshot(lane.Input{Services: []string{"order", longSub}})
	table := Compile(routes, nil, Options{Domain: "lane.localhost", Cluster: "c1", Services: dir.Services()})
	lng := lane.Name("a-lane-with-a-rather-long-name")
	for _, c := range []struct {
		host, path string
		inside     bool
		service    string
		color      lane.Name
	}{
		{"api.example.com", "/", false, "api", ""},
		{"Api.Example.Com.:443", "/", false, "api", ""},
		{"api.example.com", "/v2/x", false, "apiv2", ""},
		{"api.example.com", "/v20", false, "api", ""},
		{"green--api.example.com", "/v2", false, "apiv2", "green"},
		{"green--api.c1.example.com", "/", false, "api", "green"},
		{"api.c1.example.com", "/", false, "api", ""},
		{"green--shop.eu.example.com", "/", false, "shop", "green"},
		{"green--shop.c1.example.com", "/", false, "web", "green"},
		{"x.example.com", "/", false, "web", ""},
		{"green--x.example.com", "/", false, "web", "green"},
		{"a.b.eu.example.com", "/", false, "webeu", ""},
		{"example.com", "/", false, "", ""},
		{"xn--bcher-kva.example.com", "/", false, "web", ""},
		{lane.HostLabel(lng, longSub) + ".example.com", "/", false, "long", lng},
		{lane.HostLabel(lng, longSub) + ".lane.localhost", "/", false, longSub, lng},
		{"order.lane.localhost:7780", "/", false, "order", ""},
		{"green--order.lane.localhost", "/", false, "order", "green"},
		{"green--order.c1.lane.localhost", "/", false, "order", "green"},
		{"green--order.c2.lane.localhost", "/", false, "", ""},
		{"nobody.lane.localhost", "/", false, "", ""},
		{"nobody.lane.localhost", "/metrics", false, "metrics", ""},
		{"order", "/", false, "", ""},
		{"order:8080", "/", true, "order", ""},
		{"green--order", "/", true, "order", "green"},
		{lane.HostLabel(lng, longSub), "/", true, longSub, lng},
		{"", "/", true, "", ""},
		{".", "/", true, "", ""},
		{"..example.com", "/", true, "web", ""},
		{"[::1]:7780", "/", true, "", ""},
		{"127.0.0.1:7780", "/", true, "", ""},
	} {
		d := table.Decide(dir, &Request{Host: c.host, Path: c.path, Inside: c.inside, Trusted: c.inside})
		if d.Service != c.service || d.Service != "" && d.Color != c.color {
			t.Errorf("host %q path %q inside %v: got %q color %q, want %q color %q", c.host, c.path, c.inside, d.Service, d.Color, c.service, c.color)
		}
	}
}

func TestCheckRoute(t *testing.T) {
	t.Parallel()
	for field, r := range map[string]laneclient.Route{
		"service":        routeOf("r", "a.test", "", "Bad Name"),
		"host":           routeOf("r", "a.test:80", "", "a"),
		"path":           routeOf("r", "a.test", "v1", "a"),
		"cluster":        {Service: "a", Cluster: "a.b"},
		"rewrite.prefix": {Service: "a", Rewrite: &laneclient.Rewrite{Prefix: "x"}},
		"rewrite.host":   {Service: "a", Rewrite: &laneclient.Rewrite{Host: "a b"}},
		"timeouts":       {Service: "a", Timeouts: &laneclient.Timeouts{Idle: -1}},
	} {
		if s := CheckRoute(&r); !strings.HasPrefix(s, field+":") {
			t.Errorf("%s: got %q", field, s)
		}
	}
	for _, host := range []string{"*", "*.", "*x.test", "a.*.test", "a..b", "a b", strings.Repeat("a", 64) + ".test", "-" + strings.Repeat("a.", 130)} {
		if CheckRoute(&laneclient.Route{Host: host, Service: "a"}) == StatusOK {
			t.Errorf("host %q was taken", host)
		}
	}
	for _, host := range []string{"", "a", "a.test", "a.test.", "*.test", "A-1_b.test"} {
		if s := CheckRoute(&laneclient.Route{Host: host, Service: "a"}); s != StatusOK {
			t.Errorf("host %q: %s", host, s)
		}
	}
}

func ruleOf(change func(*laneclient.Rule)) *laneclient.Rule {
	r := &laneclient.Rule{Meta: laneclient.Meta{Name: "r"}, Match: laneclient.Match{Path: "/"}, Lanes: []laneclient.LaneShare{{Lane: "green"}}}
	change(r)
	return r
}

func TestCheckNamesTheField(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*laneclient.Rule){
		"match: is missing":  func(r *laneclient.Rule) { r.Match = laneclient.Match{Method: []string{}} },
		"match.header.name":  func(r *laneclient.Rule) { r.Match.Header = &laneclient.ValueMatch{Name: "a b"} },
		"match.cookie.name":  func(r *laneclient.Rule) { r.Match.Cookie = &laneclient.ValueMatch{Name: "a;b"} },
		"match.query.name":   func(r *laneclient.Rule) { r.Match.Query = &laneclient.ValueMatch{} },
		"match.path":         func(r *laneclient.Rule) { r.Match.Path = "x" },
		"match.method[1]":    func(r *laneclient.Rule) { r.Match.Method = []string{"GET", "get"} },
		"match.source":       func(r *laneclient.Rule) { r.Match.Source = "10.0.0.0/33" },
		"match.user.from":    func(r *laneclient.Rule) { r.Match.User = &laneclient.UserMatch{From: "jwt:"} },
		"match.user.list[0]": func(r *laneclient.Rule) { r.Match.User = &laneclient.UserMatch{From: "jwt:sub", List: []string{""}} },
		"lanes":              func(r *laneclient.Rule) { r.Lanes = nil },
		"lanes[0].lane":      func(r *laneclient.Rule) { r.Lanes[0].Lane = "xn-green" },
		"lanes[1].lane": func(r *laneclient.Rule) {
			r.Lanes = []laneclient.LaneShare{{Lane: "a", Percent: 1}, {Lane: "a", Percent: 1}}
		},
		"lanes[0].percent":    func(r *laneclient.Rule) { r.Lanes[0].Percent = 101 },
		"lanes: the percent":  func(r *laneclient.Rule) { r.Lanes = []laneclient.LaneShare{{Lane: "a", Percent: 1}, {Lane: "b"}} },
		"key":                 func(r *laneclient.Rule) { r.Key = "header:" },
		"key: is user":        func(r *laneclient.Rule) { r.Key = "user" },
		"lanes[0]: there is":  func(*laneclient.Rule) {},
		"lanes[0]: there is ": func(r *laneclient.Rule) { r.Lanes[0].Lane = "strict-x" },
	} {
		got := Check(ruleOf(change), func(lane.Name) bool { return false })
		if !strings.HasPrefix(got, strings.TrimSuffix(field, " ")) {
			t.Errorf("%s: got %q", field, got)
		}
	}
	if s := Check(ruleOf(func(*laneclient.Rule) {}), func(lane.Name) bool { return true }); s != StatusOK {
		t.Errorf("a good rule: %s", s)
	}
}

// A mistake costs its rule, not the others; a lane that is gone gives no color,
// but a strict one does.
func TestMistakesAreSkipped(t *testing.T) {
	t.Parallel()
	all := laneclient.Match{Path: "/"}
	list := []laneclient.Rule{
		{Meta: laneclient.Meta{Name: "a-bad"}, Match: all, Lanes: []laneclient.LaneShare{{Lane: "Bad"}}},
		{Meta: laneclient.Meta{Name: "a-forgot"}, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
		{Meta: laneclient.Meta{Name: "b-gone"}, Match: all, Lanes: []laneclient.LaneShare{{Lane: "gone"}}},
		{Meta: laneclient.Meta{Name: "c-strict"}, Match: laneclient.Match{Path: "/load"}, Lanes: []laneclient.LaneShare{{Lane: "strict-load"}}},
		{Meta: laneclient.Meta{Name: "d-good"}, Match: all, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
	}
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api"}, Lanes: []lane.Lane{{Name: "green", State: lane.Ready}}})
	table := Compile(nil, list, Options{Domain: "d.test"})
	for path, want := range map[string]lane.Name{"/": "green", "/load/1": "strict-load"} {
		if d := table.Decide(dir, &Request{Host: "api.d.test", Path: path}); d.Color != want {
			t.Errorf("%s: got %q, want %q", path, d.Color, want)
		}
	}
	statuses := table.Statuses(dir)
	for name, ok := range map[string]bool{"a-bad": false, "a-forgot": false, "b-gone": false, "c-strict": false, "d-good": true} {
		if (statuses[name] == StatusOK) != ok {
			t.Errorf("status of %s: %q", name, statuses[name])
		}
	}
}

func TestPercentIsStickyAndDisjoint(t *testing.T) {
	t.Parallel()
	rule := func(green, blue laneclient.Percent) []laneclient.Rule {
		return []laneclient.Rule{{
			Meta: laneclient.Meta{Name: "canary"}, Match: laneclient.Match{Path: "/"}, Key: "header:X-User",
			Lanes: []laneclient.LaneShare{{Lane: "green", Percent: green}, {Lane: "blue", Percent: blue}},
		}}
	}
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api"}, Lanes: []lane.Lane{{Name: "green", State: lane.Ready}, {Name: "blue", State: lane.Ready}}})
	colors := func(rules []laneclient.Rule) []lane.Name {
		table := Compile(nil, rules, Options{Domain: "d.test"})
		var out []lane.Name
		for n := range 20_000 {
			d := table.Decide(dir, &Request{Host: "api.d.test", Path: "/", Header: http.Header{"X-User": {fmt.Sprint(n)}}})
			if d.Color != "" && d.Rule != lane.RulePercent {
				t.Fatalf("rule %q", d.Rule)
			}
			out = append(out, d.Color)
		}
		return out
	}
	before, again, after := colors(rule(10, 30)), colors(rule(10, 30)), colors(rule(25, 30))
	n := map[lane.Name]int{}
	for i := range before {
		n[after[i]]++
		if before[i] != again[i] {
			t.Fatal("another gateway decides otherwise")
		}
		if before[i] != "" && before[i] != after[i] {
			t.Fatalf("key %d moved from %q to %q", i, before[i], after[i])
		}
	}
	for name, want := range map[lane.Name]int{"green": 5000, "blue": 6000} {
		if n[name] < want*95/100 || n[name] > want*105/100 {
			t.Errorf("%s has %d of 20,000, want about %d", name, n[name], want)
		}
	}
	table := Compile(nil, rule(10, 30), Options{Domain: "d.test"})
	if d := table.Decide(dir, &Request{Host: "api.d.test", Path: "/"}); d.Color != "" {
		t.Errorf("without a key: got %q", d.Color)
	}
}

// lanesAndRules makes one lane and one rule per lane.
func lanesAndRules(n int) (*lane.Snapshot, []laneclient.Rule) {
	in := lane.Input{Services: []string{"api"}}
	var list []laneclient.Rule
	for i := range n {
		name := fmt.Sprint("lane-", i)
		in.Lanes = append(in.Lanes, lane.Lane{Name: lane.Name(name), State: lane.Ready})
		list = append(list, laneclient.Rule{
			Meta: laneclient.Meta{Name: fmt.Sprintf("rule-%06d", i)}, Lanes: []laneclient.LaneShare{{Lane: name}},
			Match: laneclient.Match{Header: &laneclient.ValueMatch{Name: "X-Dev", Value: fmt.Sprint("dev-", i)}},
		})
	}
	return lane.NewSnapshot(in), list
}

func benchRequest() *Request {
	return &Request{
		Host: "api.lane.localhost", Method: "GET", Path: "/v1/orders/7", Source: netip.MustParseAddr("10.1.2.3"), Now: time.Unix(1_800_000_000, 0),
		Header: http.Header{"X-Dev": {"dev-0"}, "Accept": {"*/*"}, "Cookie": {"session=abcdefgh; theme=dark"}, "User-Agent": {"bench"}},
	}
}

func TestDecideDoesNotAllocate(t *testing.T) {
	for _, n := range []int{1, 1000} {
		dir, list := lanesAndRules(n)
		table := Compile(nil, list, Options{Domain: "lane.localhost", Services: dir.Services()})
		req := benchRequest()
		if d := table.Decide(dir, req); d.Color != "lane-0" || d.Service != "api" {
			t.Fatalf("got %+v", d)
		}
		if got := testing.AllocsPerRun(200, func() { table.Decide(dir, req) }); got > 0 {
			t.Errorf("%d lanes: %v allocations, want none", n, got)
		}
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		dir, list := lanesAndRules(n)
		table := Compile(nil, list, Options{Domain: "lane.localhost", Services: dir.Services()})
		b.Run(fmt.Sprint("lanes=", n), func(b *testing.B) {
			b.ReportAllocs()
			req := benchRequest()
			for b.Loop() {
				table.Decide(dir, req)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{1, 1000} {
		dir, list := lanesAndRules(n)
		b.Run(fmt.Sprint("rules=", n), func(b *testing.B) {
			for b.Loop() {
				Compile(nil, list, Options{Domain: "lane.localhost", Services: dir.Services()})
			}
		})
	}
}

// What a request brings is any bytes: no panic, and what is found is what the
// slow way finds.
func FuzzDecide(f *testing.F) {
	f.Add("green--api.lane.localhost", "/v1", "a=1&b=2", "uid=ann; x=\"y\"", "Bearer a.b.c", "green", "v-traffic-lane=blue;p,k=v", "k.1.x")
	f.Add("[::1", "", "&&=&%", ";=;\"", "bearer ", "\x00", ",,;", "..")
	f.Add("a--b--c.example.com:x:y", "*", "a=%zz", "uid=", "", "", "", "")
	rules := []laneclient.Rule{
		{Meta: laneclient.Meta{Name: "cookie"}, Match: laneclient.Match{Cookie: &laneclient.ValueMatch{Name: "uid", Value: "ann"}}, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
		{Meta: laneclient.Meta{Name: "query"}, Match: laneclient.Match{Query: &laneclient.ValueMatch{Name: "a", Value: "1"}}, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
		{Meta: laneclient.Meta{Name: "user"}, Match: laneclient.Match{User: &laneclient.UserMatch{From: "jwt:sub"}}, Lanes: []laneclient.LaneShare{{Lane: "green"}}},
		{Meta: laneclient.Meta{Name: "share"}, Key: "cookie:uid", Lanes: []laneclient.LaneShare{{Lane: "green", Percent: 50}}},
	}
	routes := []laneclient.Route{routeOf("api", "api.example.com", "/v1", "api"), routeOf("wild", "*.example.com", "", "api"), routeOf("long", longSub+".example.com", "", "api")}
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api", longSub}, Lanes: []lane.Lane{{Name: "green", State: lane.Ready}}})
	jwt, err := NewJWTKeys(JWTKey{Algorithm: "HS256", Key: []byte(strings.Repeat("s", 32))})
	if err != nil {
		f.Fatal(err)
	}
	o := Options{Domain: "lane.localhost", Cluster: "c1", Services: dir.Services(), JWT: jwt, Signing: signKeys(f, "k")}
	table := Compile(routes, rules, o)
	f.Fuzz(func(t *testing.T, host, path, query, cookie, auth, color, baggage, sig string) {
		req := &Request{Host: host, Method: "GET", Path: path, Query: query, Now: time.Unix(1, 0), Header: http.Header{
			"Cookie": {cookie}, "Authorization": {auth}, "V-Traffic-Lane": {color}, "Baggage": {baggage}, "V-Traffic-Lane-Sig": {sig},
		}}
		d := table.Decide(dir, req)
		if d.Color != "" && !d.Color.Valid() {
			t.Fatalf("color %q is no lane name", d.Color)
		}
		if d.Rule == lane.RuleSigned || d.Rule == lane.RuleTrusted || d.Rule == lane.RuleUser {
			t.Fatalf("believed what nobody signed: %+v", d)
		}
		if inside := table.Decide(dir, &Request{Host: host, Path: path, Inside: true, Trusted: true, Header: req.Header}); inside.Service == "" && d.Service != "" {
			t.Fatalf("the edge knows %q and the inside does not", host)
		}
	})
}

// What is taken for a host is one to whoever reads it in a URL.
func FuzzValidHost(f *testing.F) {
	for _, s := range []string{"api.lane.localhost", "api:80", "api:", "[::1]:80", "[::1]", "a/b", "u@a", "a:b:c", "[::1", "[]", ":80", "a%zz", "[fe80::1%25eth0]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !ValidHost(s) || strings.Contains(s, "%") {
			return
		}
		u, err := url.Parse("http://" + s + "/")
		if err != nil || u.Host != s || u.User != nil || u.Path != "/" || u.Hostname() == "" {
			t.Errorf("%q is taken for a host: %v, %v", s, u, err)
		}
	})
}
