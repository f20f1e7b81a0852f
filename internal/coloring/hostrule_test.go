package coloring

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func hostRule(name, host string, priority int) laneclient.Rule {
	return laneclient.Rule{
		Meta: laneclient.Meta{Name: name}, Priority: priority, Match: laneclient.Match{Host: host}, Lanes: []laneclient.LaneShare{{Lane: "green"}},
	}
}

func TestRuleMatchesHost(t *testing.T) {
	t.Parallel()
	withPath := hostRule("path", "api.example.com", 1)
	withPath.Match.Path = "/v1"
	rules := []laneclient.Rule{
		withPath, hostRule("exact", "API.example.com.", 2), hostRule("deep", "*.eu.example.com", 3), hostRule("wild", "*.example.com", 4),
	}
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api"}, Lanes: []lane.Lane{{Name: "green", State: lane.Ready}}})
	table := Compile([]laneclient.Route{routeOf("any", "", "", "api")}, rules, Options{})
	for _, c := range []struct{ host, path, rule string }{
		{"api.example.com", "/v1/x", "path"},
		{"api.example.com", "/", "exact"},
		{"Api.Example.Com.:8080", "/", "exact"},
		{"www.example.com:443", "/", "wild"},
		{"a.b.eu.example.com", "/", "deep"},
		{"eu.example.com", "/", "wild"},
		{"example.com", "/", ""},
		{"badexample.com", "/", ""},
		{"api.example.com.test", "/", ""},
		{"", "/", ""},
		{"[::1]:80", "/", ""},
	} {
		d := table.Decide(dir, &Request{Host: c.host, Path: c.path})
		if d.RuleName != c.rule {
			t.Errorf("host %q path %q: rule %q, want %q", c.host, c.path, d.RuleName, c.rule)
		}
		if c.rule != "" && c.rule != "path" && (d.Color != "green" || d.Rule != lane.RuleHost) {
			t.Errorf("host %q: color %q by %q, want green by host", c.host, d.Color, d.Rule)
		}
	}
}

func TestCheckHostOfRule(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"a.test:80", ".", "*", "*.", "*x.test", "a.*.test", "a..b", "a b", "http://a.test", "[::1]"} {
		r := hostRule("r", host, 0)
		if s := Check(&r, nil); !strings.HasPrefix(s, "match.host: ") {
			t.Errorf("host %q: got %q", host, s)
		}
	}
	for _, host := range []string{"a", "A.test", "a.test.", "*.test", "127.0.0.1"} {
		r := hostRule("r", host, 0)
		if s := Check(&r, nil); s != StatusOK {
			t.Errorf("host %q: %s", host, s)
		}
	}
}

// Rules of other hosts cost a request nothing, as with every other exact match.
func TestHostRulesAreFoundByHost(t *testing.T) {
	t.Parallel()
	var rules []laneclient.Rule
	for n := range 1000 {
		rules = append(rules, hostRule(fmt.Sprintf("r%d", n), fmt.Sprintf("h%d.example.com", n), 0), hostRule(fmt.Sprintf("w%d", n), fmt.Sprintf("*.w%d.example.com", n), 0))
	}
	table := Compile(nil, rules, Options{})
	for host, want := range map[string]int{"h7.example.com": 1, "x.w7.example.com": 1, "other.test": 0} {
		found := 0
		for _, list := range table.rules.candidates(newEval(&Request{Host: host, Path: "/"}, nil), nil) {
			found += len(list)
		}
		if found != want {
			t.Errorf("%s: %d rules looked at, want %d", host, found, want)
		}
	}
}

func TestParsePrefix(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"10.1.2.3": "10.1.2.3/32", "10.1.2.3/8": "10.0.0.0/8", "::ffff:10.1.2.3": "10.1.2.3/32", "::ffff:10.1.2.3/104": "10.0.0.0/8", "fe80::1%eth0": "fe80::1/128",
	} {
		if p, err := ParsePrefix(text); err != nil || p.String() != want {
			t.Errorf("%s: %v, %v, want %s", text, p, err, want)
		}
	}
	for _, text := range []string{"", "here", "10.0.0.0/33", "::ffff:10.0.0.0/64"} {
		if p, err := ParsePrefix(text); err == nil {
			t.Errorf("%q: taken as %v", text, p)
		}
	}
}
