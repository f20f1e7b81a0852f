package lane_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

var nameGrammar = regexp.MustCompile(`\A[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?\z`)

// FuzzParseName holds names to the grammar, written down a second time, and to what names
// are for: being told apart in host names.
func FuzzParseName(f *testing.F) {
	f.Fuzz(func(t *testing.T, s string) {
		n, err := lane.ParseName(s)
		want := nameGrammar.MatchString(s) && !strings.Contains(s, "--") && len(s) != 2 && !strings.HasPrefix(s, "xn-")
		if (err == nil) != want || lane.Name(s).Valid() != want {
			t.Fatalf("%q: %v, want a name: %v", s, err, want)
		}
		if err != nil {
			if n != lane.Baseline || err.Error() == "" {
				t.Fatalf("%q is refused with %q, %q", s, n, err)
			}
			return
		}
		if string(n) != s {
			t.Fatalf("%q became %q", s, n)
		}
		if back, sub, ok := lane.SplitHostLabel(lane.HostLabel(n, "api")); !ok || back != n || sub != "api" {
			t.Fatalf("%q is %q, %q in a host name", s, back, sub)
		}
	})
}

// others lists the members of baggage that are not ours, byte for byte.
func others(values []string) (members []string) {
	for _, v := range values {
		for m := range strings.SplitSeq(v, ",") {
			key, _, found := strings.Cut(m, "=")
			if strings.Trim(m, " \t") != "" && (!found || strings.Trim(key, " \t") != lane.BaggageMember) {
				members = append(members, m)
			}
		}
	}
	return members
}

// FuzzCarrier: whatever a carrier holds, what is injected is read back, what is stripped
// is gone, and members of others stay as they are.
func FuzzCarrier(f *testing.F) {
	f.Fuzz(func(t *testing.T, header, first, second, alias, color string) {
		fresh := func() table {
			return table{lane.Header: {header}, lane.BaggageHeader: {first, second}, "x-env": {alias}, "other": {header}}
		}
		c := fresh()
		found, malformed := lane.Extract(c, "x-env")
		if found != lane.Baseline && !found.Valid() {
			t.Fatalf("extracted %q", found)
		}
		if malformed < 0 || malformed > len(header)+len(first)+len(second)+len(alias) {
			t.Fatalf("%d malformed", malformed)
		}
		if fmt.Sprint(c) != fmt.Sprint(fresh()) {
			t.Fatalf("reading changed the carrier: %q", c)
		}

		n := lane.Name(color)
		if !n.Valid() {
			n = lane.Baseline
		}
		lane.Inject(c, n)
		if got, bad := lane.Extract(c); got != n || bad != 0 {
			t.Fatalf("injected %q, read back %q with %d malformed from %q", n, got, bad, c)
		}
		keeps(t, "Inject", fresh(), c)
		again := fmt.Sprint(c)
		lane.Inject(c, n)
		if fmt.Sprint(c) != again {
			t.Fatalf("a second time changed %s to %q", again, c)
		}

		lane.Strip(c, "x-env")
		if got, bad := lane.Extract(c, "x-env"); got != lane.Baseline || bad != 0 {
			t.Fatalf("stripped, and read back %q with %d malformed from %q", got, bad, c)
		}
		keeps(t, "Strip", fresh(), c)
	})
}

func keeps(t *testing.T, what string, before, after table) {
	t.Helper()
	if got, want := others(after[lane.BaggageHeader]), others(before[lane.BaggageHeader]); !slices.Equal(got, want) {
		t.Fatalf("%s left the members %q, want %q", what, got, want)
	}
	if !slices.Equal(after["other"], before["other"]) {
		t.Fatalf("%s changed another header", what)
	}
}

// FuzzHostLabel: a label of a lane is a label, and gives the lane and what it is for back.
func FuzzHostLabel(f *testing.F) {
	f.Fuzz(func(t *testing.T, name, sub string) {
		n := lane.Name(name)
		label := lane.HostLabel(n, sub)
		if !n.Valid() || len(sub) > 63 || sub == "" {
			return // no use, but no crash either
		}
		if len(label) > 63 {
			t.Fatalf("%q has %d bytes", label, len(label))
		}
		back, rest, ok := lane.SplitHostLabel(label)
		if !ok || back != n {
			t.Fatalf("%q gives lane %q, %v; want %q", label, back, ok, n)
		}
		if whole := name + "--" + sub; len(whole) <= 63 && (label != whole || rest != sub) {
			t.Fatalf("%q gives %q, want %q", label, rest, sub)
		}
		if lane.HostLabel(n, sub) != label {
			t.Fatalf("two labels for %q, %q", name, sub)
		}
	})
}

// FuzzSplitHostLabel: what is split can be put together again.
func FuzzSplitHostLabel(f *testing.F) {
	f.Fuzz(func(t *testing.T, label string) {
		n, sub, ok := lane.SplitHostLabel(label)
		switch {
		case !ok || n == lane.Baseline:
			if n != lane.Baseline || sub != label {
				t.Fatalf("%q without a tag gives %q, %q", label, n, sub)
			}
		case !n.Valid() || sub == "" || string(n)+"--"+sub != label:
			t.Fatalf("%q gives %q, %q", label, n, sub)
		}
		if !ok && !strings.Contains(label, "--") {
			t.Fatalf("%q has no tag and is refused", label)
		}
	})
}

// FuzzParseHop: a line that is read is written as a line that is read the same.
func FuzzParseHop(f *testing.F) {
	f.Fuzz(func(t *testing.T, line string) {
		h, err := lane.ParseHop(line)
		if err != nil {
			return
		}
		written := h.String()
		if len(written) > lane.MaxHopBytes || strings.ContainsAny(written, "\r\n\t") || len(strings.Fields(written)) != 5 {
			t.Fatalf("%q was written as %q", line, written)
		}
		back, err := lane.ParseHop(written)
		if err != nil || back.String() != written {
			t.Fatalf("%q is read back as %q, %v", written, back, err)
		}
		if lane.CheckInstance(h.Instance) == nil && h.Instance != back.Instance {
			t.Fatalf("instance %q became %q", h.Instance, back.Instance)
		}
	})
}
