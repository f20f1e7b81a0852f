package httpgw

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestSource(t *testing.T) {
	t.Parallel()
	trusted := func(a netip.Addr) bool { return netip.MustParsePrefix("10.0.0.0/8").Contains(a) }
	for _, c := range []struct {
		peer  string
		lines []string
		want  string
	}{
		{"10.0.0.1", nil, "10.0.0.1"},
		{"10.0.0.1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1", []string{"198.51.100.1, 192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1", []string{"198.51.100.1, 192.0.2.1", " 10.0.0.3,10.0.0.2 "}, "192.0.2.1"},
		{"10.0.0.1", []string{"::ffff:192.0.2.1"}, "192.0.2.1"},
		{"10.0.0.1", []string{"192.0.2.1, unknown"}, "10.0.0.1"},
		{"10.0.0.1", []string{"10.0.0.9"}, "10.0.0.9"},
		{"10.0.0.1", []string{",,"}, "10.0.0.1"},
		{"192.0.2.9", []string{"10.0.0.1"}, "192.0.2.9"},
	} {
		if got := source(http.Header{headerFor: c.lines}, netip.MustParseAddr(c.peer), trusted); got.String() != c.want {
			t.Errorf("%s %q: got %s, want %s", c.peer, c.lines, got, c.want)
		}
	}
}

func TestDialAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"http://example.com/x": "example.com:80", "http://example.com:/": "example.com:80", "http://example.com:8080/": "example.com:8080",
		"http://[::1]/": "[::1]:80", "http://[::1]:81/": "[::1]:81", "http://192.0.2.1": "192.0.2.1:80",
	} {
		u, err := url.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		if got := dialAddress(u); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// Whatever a Connection header names, what it names goes, and the rest stays.
func FuzzHops(f *testing.F) {
	f.Add("X-A, keep-alive", "trailers", "1.1 laneway-00", "10.0.0.1")
	f.Add(",,\t,", "", "", ",")
	f.Fuzz(func(t *testing.T, connection, te, via, from string) {
		h := http.Header{"Connection": {connection}, "Te": {te}, "Via": {via}, headerFor: {from}, "X-Kept": {"1"}}
		listed := false
		for name := range strings.SplitSeq(connection, ",") {
			listed = listed || http.CanonicalHeaderKey(strings.Trim(name, " \t")) == "X-Kept"
		}
		dropHops(h)
		if len(h["Connection"]) > 0 || len(h["X-Kept"]) == 0 != listed {
			t.Fatalf("%q: left %v", connection, h)
		}
		passages(h, "laneway-00")
		source(h, netip.MustParseAddr("10.0.0.1"), func(netip.Addr) bool { return true })
	})
}
