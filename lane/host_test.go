package lane_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

func TestHostLabel(t *testing.T) {
	long := lane.Name(strings.Repeat("l", 40))
	for _, tc := range []struct {
		name lane.Name
		sub  string
		want string
	}{
		{"green", "api", "green--api"},
		{"", "api", "api"},
		{"a", "b", "a--b"},
		{"green", "xn--mnchen-3ya", "green--xn--mnchen-3ya"},
		{long, strings.Repeat("s", 21), string(long) + "--" + strings.Repeat("s", 21)}, // 63 bytes: whole
		{long, strings.Repeat("s", 22), string(long) + "--ssssssssssss-01c4e7b2"},
		{long, "eleven-byte-and-more-than-that", string(long) + "--eleven-byte-4d6dae0f"}, // no "--" at the cut
	} {
		got := lane.HostLabel(tc.name, tc.sub)
		if got != tc.want || len(got) > 63 {
			t.Errorf("HostLabel(%q, %q) = %q, want %q", tc.name, tc.sub, got, tc.want)
		}
	}
}

func TestHostLabelsDiffer(t *testing.T) {
	long := lane.Name(strings.Repeat("l", 40))
	a, b := lane.HostLabel(long, strings.Repeat("s", 30)+"-one"), lane.HostLabel(long, strings.Repeat("s", 30)+"-two")
	if a == b {
		t.Errorf("two services share the label %q", a)
	}
}

// TestHostLabelOfAnyName: a name that nobody checked gives a label that is no use, not a
// crash.
func TestHostLabelOfAnyName(t *testing.T) {
	for _, n := range []int{41, 52, 53, 54, 60, 63, 64, 1000} {
		if got := lane.HostLabel(lane.Name(strings.Repeat("x", n)), strings.Repeat("s", 40)); got == "" {
			t.Errorf("a name of %d bytes gave no label", n)
		}
	}
}

func TestSplitHostLabel(t *testing.T) {
	for _, tc := range []struct {
		label string
		name  lane.Name
		sub   string
		ok    bool
	}{
		{"green--api", "green", "api", true},
		{"api", "", "api", true},
		{"", "", "", true},
		{"a--b--c", "a", "b--c", true},
		{"green--xn--mnchen-3ya", "green", "xn--mnchen-3ya", true},
		{"xn--mnchen-3ya", "", "xn--mnchen-3ya", false}, // a host of its own, no lane "xn"
		{"r3--sn-4g5e6nsk", "", "r3--sn-4g5e6nsk", false},
		{"--api", "", "--api", false},
		{"green--", "", "green--", false},
		{"--", "", "--", false},
		{"GREEN--api", "", "GREEN--api", false},
		{"green---api", "green", "-api", true},
		{"strict-load--api", "strict-load", "api", true},
		{"-green--api", "", "-green--api", false},
		{"my-app-", "", "my-app-", true},
	} {
		name, sub, ok := lane.SplitHostLabel(tc.label)
		if name != tc.name || sub != tc.sub || ok != tc.ok {
			t.Errorf("SplitHostLabel(%q) = %q, %q, %v; want %q, %q, %v", tc.label, name, sub, ok, tc.name, tc.sub, tc.ok)
		}
	}
}

func TestHostLabels(t *testing.T) {
	var labels lane.HostLabels
	long := strings.Repeat("s", 30)
	one, two, short := long+"-one", long+"-two", "api"
	if got := labels.Whose(lane.HostLabel(lane.Name(strings.Repeat("l", 40)), one)); got != nil {
		t.Errorf("the zero value knows %q", got)
	}
	for _, sub := range []string{one, two, short, one} {
		labels.Add(sub)
	}
	for length := 1; length <= 40; length++ {
		if length == 2 {
			continue // no lane name
		}
		name := lane.Name(strings.Repeat("l", length))
		for _, sub := range []string{one, two, short} {
			label := lane.HostLabel(name, sub)
			var want []string
			if label != string(name)+"--"+sub {
				want = []string{sub}
			}
			if got := labels.Whose(label); !slices.Equal(got, want) {
				t.Errorf("%q: got %q, want %q", label, got, want)
			}
		}
	}
	for _, label := range []string{"", "-", "a--", "a---", "a--01c4e7b2", "a---01c4e7b2", one, "xn--01c4e7b2-01c4e7b2"} {
		if got := labels.Whose(label); got != nil {
			t.Errorf("%q: got %q", label, got)
		}
	}
}
