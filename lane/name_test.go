package lane_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/laneway-dev/laneway/lane"
)

func TestParseName(t *testing.T) {
	forty := strings.Repeat("a", 40)
	for _, s := range []string{"a", "7", "abc", "green", "green-2", "a-b-c", "strict-load", "strict", "x1n-a", forty} {
		n, err := lane.ParseName(s)
		if err != nil || string(n) != s || !n.Valid() {
			t.Errorf("ParseName(%q) = %q, %v", s, n, err)
		}
	}
	for s, reason := range map[string]string{
		"":            "empty",
		"ab":          "two characters",
		"xn":          "two characters",
		"xn-a":        "reserved",
		"-abc":        "begin and end",
		"abc-":        "begin and end",
		"-":           "begin and end",
		"a--b":        "--",
		"Green":       "'G'",
		"gre en":      "' '",
		"green\n":     `'\n'`,
		"grün":        "'ü'",
		"green,":      "','",
		"a\x80b":      `'\x80'`,
		"strict-":     "begin and end",
		"green.blue":  "'.'",
		"green_blue":  "'_'",
		"%67reen":     "'%'",
		forty + "a":   "41 bytes",
		"a-" + "-b-c": "--",
	} {
		n, err := lane.ParseName(s)
		var fault *lane.NameError
		if !errors.As(err, &fault) || n != "" {
			t.Errorf("ParseName(%q) = %q, %v; want a *NameError", s, n, err)
			continue
		}
		if fault.Kind != "lane" || !strings.Contains(fault.Reason, reason) {
			t.Errorf("ParseName(%q): %v; want a reason with %q", s, err, reason)
		}
		if lane.Name(s).Valid() {
			t.Errorf("%q is valid, although it is refused", s)
		}
	}
}

func TestNameErrorIsShortAndWhole(t *testing.T) {
	_, err := lane.ParseName(strings.Repeat("ü", 1000))
	var fault *lane.NameError
	if !errors.As(err, &fault) || len(fault.Name) > 80 || !utf8.ValidString(fault.Name) {
		t.Errorf("error of a long name: %v", err)
	}
}

func TestStrictIsTheName(t *testing.T) {
	for s, want := range map[lane.Name]bool{
		"strict-load": true, "strict-a": true, "strict": false, "strictly": false, "green": false,
		"a-strict-b": false, lane.Baseline: false,
	} {
		if s.Strict() != want {
			t.Errorf("%q: strict is %v, want %v", s, s.Strict(), want)
		}
	}
}

func TestCheckService(t *testing.T) {
	for _, s := range []string{"a", "ab", "order", "order-2", "xn-a", "1", strings.Repeat("s", 40)} {
		if err := lane.CheckService(s); err != nil {
			t.Errorf("service %q: %v", s, err)
		}
	}
	for _, s := range []string{"", "Order", "order.shop", "a--b", "-a", "a-", "a_b", "127.0.0.1", "::1", strings.Repeat("s", 41)} {
		var fault *lane.NameError
		if err := lane.CheckService(s); !errors.As(err, &fault) || fault.Kind != "service" {
			t.Errorf("service %q: %v; want a *NameError", s, err)
		}
	}
}

func TestCheckInstance(t *testing.T) {
	for _, s := range []string{"a", "order-7f", "pod_1.Zone-A", "..", strings.Repeat("i", 64)} {
		if err := lane.CheckInstance(s); err != nil {
			t.Errorf("instance %q: %v", s, err)
		}
	}
	for _, s := range []string{"", "a b", "a/b", "ä", "a\n", "a=b", strings.Repeat("i", 65)} {
		var fault *lane.NameError
		if err := lane.CheckInstance(s); !errors.As(err, &fault) || fault.Kind != "instance" {
			t.Errorf("instance %q: %v; want a *NameError", s, err)
		}
	}
}
