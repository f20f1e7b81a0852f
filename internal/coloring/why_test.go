package coloring

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestPassedOver asks for everything that a rule can ask for, and gives something else.
func TestPassedOver(t *testing.T) {
	t.Parallel()
	value := func(name, value string) *laneclient.ValueMatch {
		return &laneclient.ValueMatch{Name: name, Value: value}
	}
	var list []laneclient.Rule
	want := map[string]string{}
	add := func(name, reason string, m laneclient.Match, key string, lanes ...laneclient.LaneShare) {
		if lanes == nil {
			lanes = []laneclient.LaneShare{{Lane: "green"}}
		}
		list = append(list, laneclient.Rule{Meta: laneclient.Meta{Name: name}, Match: m, Lanes: lanes, Key: key})
		want[name] = reason
	}
	everybody := laneclient.Match{Path: "/"}
	add("header", `header x-try is "gren", not "green"`, laneclient.Match{Header: value("X-Try", "green")}, "")
	add("no-header", `no header x-other`, laneclient.Match{Header: value("x-other", "")}, "")
	add("twice", `header x-twice is "1" and "2", not "3"`, laneclient.Match{Header: value("x-twice", "3")}, "")
	add("cookie", `cookie try is "1", not "2"`, laneclient.Match{Cookie: value("try", "2")}, "")
	add("query", `no query parameter q`, laneclient.Match{Query: value("q", "1")}, "")
	add("path", `path "/cart" is not below "/api"`, laneclient.Match{Path: "/api/"}, "")
	add("host", `host is "api.d.test", not "shop.d.test"`, laneclient.Match{Host: "shop.d.test"}, "")
	add("wildcard", `host "api.d.test" is not below "*.e.test"`, laneclient.Match{Host: "*.e.test"}, "")
	add("method", `method is GET, not POST or PUT`, laneclient.Match{Method: []string{"POST", "PUT"}}, "")
	add("source", `source 192.0.2.7 is not in 10.0.0.0/8`, laneclient.Match{Source: "10.0.0.0/8"}, "")
	add("user", `user "ann" is not in the list`, laneclient.Match{User: &laneclient.UserMatch{From: "header:x-user", List: []string{"bob"}}}, "")
	add("no-user", `no cookie uid that names the user`, laneclient.Match{User: &laneclient.UserMatch{From: "cookie:uid"}}, "")
	add("share", `header x-user "ann" is not in the 0.01 % of lane green, nor in the 0.02 % of lane blue`, everybody, "header:x-user",
		laneclient.LaneShare{Lane: "green", Percent: 0.01}, laneclient.LaneShare{Lane: "blue", Percent: 0.02})
	add("no-key", `no header x-account to stick to`, everybody, "header:x-account", laneclient.LaneShare{Lane: "green", Percent: 20})
	add("gone", `there is no lane gone`, everybody, "", laneclient.LaneShare{Lane: "gone"})
	add("ended", `lane ended has ended`, everybody, "", laneclient.LaneShare{Lane: "ended"})
	add("broken", `is skipped: match: is missing; say which requests the rule is for, and match: {path: /} where it is for all`, laneclient.Match{}, "")
	add("token", `is skipped: match.user.from: the gateway has no key to check tokens with; configure one, or use a header or cookie`,
		laneclient.Match{User: &laneclient.UserMatch{From: "jwt:sub"}}, "")

	table := Compile(nil, list, Options{Domain: "d.test"})
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api"}, Lanes: []lane.Lane{
		{Name: "green", State: lane.Ready}, {Name: "blue", State: lane.Ready}, {Name: "ended", State: lane.Ended},
	}})
	view := &laneclient.View{Snapshot: dir, Instances: laneclient.NewObjects(map[string]*laneclient.Instance{})}
	req := &Request{
		Host: "api.d.test:80", Method: "GET", Path: "/cart", Source: netip.MustParseAddr("192.0.2.7"),
		Header: http.Header{"X-Try": {"gren"}, "X-Twice": {"1", "2"}, "Cookie": {"try=1"}, "X-User": {"ann"}, "V-Traffic-Lane": {"green"}},
	}
	e := table.Explain(view, req, "here")
	if e.Color != "" || len(e.PassedOver) != len(list) || e.MorePassedOver != 0 {
		t.Errorf("color %q, %d rules passed over and %d more, want none and all %d", e.Color, len(e.PassedOver), e.MorePassedOver, len(list))
	}
	for _, p := range e.PassedOver {
		if p.Reason != want[p.Name] {
			t.Errorf("%s:\n got %s\nwant %s", p.Name, p.Reason, want[p.Name])
		}
	}
	if !strings.Contains(e.Dropped, "gateway.edge.trusted") {
		t.Errorf("of the color that came along: %q", e.Dropped)
	}
	if e = table.Explain(view, &Request{Host: "api.d.test", Path: "/", Header: http.Header{"V-Traffic-Lane": {"No Lane"}}}, "here"); !strings.Contains(e.Dropped, "no lane name") {
		t.Errorf("of what is no lane name: %q", e.Dropped)
	}
	for what, req := range map[string]*Request{
		"host tag": {Host: "green--api.d.test", Path: "/"},
		"inside":   {Host: "api.d.test", Path: "/", Inside: true, Trusted: true},
	} {
		if e := table.Explain(view, req, "here"); len(e.PassedOver) > 0 || e.Dropped != "" {
			t.Errorf("%s: rules were not asked, and %v were passed over; dropped %q", what, e.PassedOver, e.Dropped)
		}
	}
}

// However many rules there are, an answer stays readable.
func TestPassedOverIsBounded(t *testing.T) {
	t.Parallel()
	dir, list := lanesAndRules(maxPassedOver + 20)
	table := Compile(nil, list, Options{Domain: "d.test"})
	d := Decision{}
	told, more := table.rules.passedOver(dir, &Request{Host: "api.d.test", Path: "/"}, &d)
	if len(told) != maxPassedOver || more != 20 {
		t.Errorf("%d and %d more, want %d and 20", len(told), more, maxPassedOver)
	}
}

// What was passed over is what came before the rule that decided, and each of those has a
// reason, whatever rules and requests there are.
func TestPassedOverLikeDecide(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 2))
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api", "web"}, Lanes: []lane.Lane{
		{Name: "green", State: lane.Ready}, {Name: "blue", State: lane.Creating}, {Name: "red", State: lane.Draining}, {Name: "ended", State: lane.Ended},
	}})
	decided := 0
	for n := range 500 {
		rules, req := randomRules(r), randomRequest(r)
		table := Compile(nil, rules, Options{Domain: "lane.test"})
		d := table.Decide(dir, req)
		told, _ := table.rules.passedOver(dir, req, &d)
		want := []string{}
		if !req.Inside && (d.Rule == "" || d.RuleName != "") {
			all := make([]*laneclient.Rule, len(rules))
			for i := range rules {
				all[i] = &rules[i]
			}
			slices.SortStableFunc(all, inOrder)
			for _, rule := range all {
				if rule.Name == d.RuleName {
					decided++
					break
				}
				want = append(want, rule.Name)
			}
		}
		got := []string{}
		for _, p := range told {
			got = append(got, p.Name)
			if p.Reason == "" {
				t.Errorf("seed %d, case %d: %s has no reason", seed, n, p.Name)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d, case %d: passed over %v, want %v before %q", seed, n, got, want, d.RuleName)
		}
	}
	if decided == 0 {
		t.Errorf("seed %d: no rule gave a color: the cases are too tame", seed)
	}
}
