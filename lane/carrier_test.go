package lane_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// table is a carrier that keeps keys as they are given and values in order, so that tests
// see every byte.
type table map[string][]string

func (c table) Values(key string) []string { return c[key] }
func (c table) Set(key, value string)      { c[key] = []string{value} }
func (c table) Del(key string)             { delete(c, key) }

func TestExtract(t *testing.T) {
	for name, tc := range map[string]struct {
		c         table
		want      lane.Name
		malformed int
	}{
		"nothing":                       {table{}, "", 0},
		"header":                        {table{"v-traffic-lane": {"green"}}, "green", 0},
		"header with spaces":            {table{"v-traffic-lane": {" \tgreen "}}, "green", 0},
		"header before baggage":         {table{"v-traffic-lane": {"green"}, "baggage": {"v-traffic-lane=blue"}}, "green", 0},
		"baggage":                       {table{"baggage": {"v-traffic-lane=blue"}}, "blue", 0},
		"baggage before alias":          {table{"baggage": {"v-traffic-lane=blue"}, "x-env": {"red"}}, "blue", 0},
		"alias":                         {table{"x-env": {"red"}}, "red", 0},
		"aliases in their order":        {table{"x-env": {"red"}, "x-stage": {"pink"}}, "red", 0},
		"malformed header":              {table{"v-traffic-lane": {"Green!"}}, "", 1},
		"malformed header, baggage":     {table{"v-traffic-lane": {"Green!"}, "baggage": {"v-traffic-lane=blue"}}, "blue", 1},
		"all malformed":                 {table{"v-traffic-lane": {"A"}, "baggage": {"v-traffic-lane=B"}, "x-env": {"C", "D"}}, "", 4},
		"empty header is none":          {table{"v-traffic-lane": {""}}, "", 0},
		"empty baggage value is none":   {table{"baggage": {"v-traffic-lane="}}, "", 0},
		"two lines":                     {table{"v-traffic-lane": {"green", "blue"}}, "green", 0},
		"lines joined by a proxy":       {table{"v-traffic-lane": {"green, blue"}}, "green", 0},
		"first of a list malformed":     {table{"v-traffic-lane": {"GREEN ,, blue"}}, "blue", 1},
		"baggage among others":          {table{"baggage": {"userId=alice,serverNode=DF%2028 , v-traffic-lane = blue ; ttl=3,x=y"}}, "blue", 0},
		"baggage with tabs":             {table{"baggage": {"a=1\t,\tv-traffic-lane\t=\tblue\t"}}, "blue", 0},
		"baggage in the second line":    {table{"baggage": {"a=1", "v-traffic-lane=blue"}}, "blue", 0},
		"baggage percent-encoded":       {table{"baggage": {"v-traffic-lane=%62lue"}}, "blue", 0},
		"baggage wrongly encoded":       {table{"baggage": {"v-traffic-lane=%6"}}, "", 1},
		"baggage encoded space":         {table{"baggage": {"v-traffic-lane=%20blue"}}, "", 1},
		"baggage properties only":       {table{"baggage": {"a=1;v-traffic-lane=blue"}}, "", 0},
		"baggage key in another case":   {table{"baggage": {"V-Traffic-Lane=blue"}}, "", 0},
		"baggage key as prefix":         {table{"baggage": {"v-traffic-lane-sig=blue,xv-traffic-lane=red"}}, "", 0},
		"baggage without value":         {table{"baggage": {"v-traffic-lane"}}, "", 0},
		"baggage twice, first bad":      {table{"baggage": {"v-traffic-lane=BAD,v-traffic-lane=blue"}}, "blue", 1},
		"baggage twice":                 {table{"baggage": {"v-traffic-lane=blue,v-traffic-lane=green"}}, "blue", 0},
		"baggage value with '='":        {table{"baggage": {"v-traffic-lane=a=b"}}, "", 1},
		"strict":                        {table{"v-traffic-lane": {"strict-load"}}, "strict-load", 0},
		"empty members":                 {table{"baggage": {",, ,v-traffic-lane=blue,"}}, "blue", 0},
		"no break space is not a space": {table{"v-traffic-lane": {"\u00a0green"}}, "", 1},
	} {
		got, malformed := lane.Extract(tc.c, "x-env", "x-stage")
		if got != tc.want || malformed != tc.malformed {
			t.Errorf("%s: got %q with %d malformed, want %q with %d", name, got, malformed, tc.want, tc.malformed)
		}
	}
}

func TestInject(t *testing.T) {
	for name, tc := range map[string]struct {
		baggage []string
		color   lane.Name
		want    []string
	}{
		"none":                         {nil, "green", []string{"v-traffic-lane=green"}},
		"kept byte for byte":           {[]string{"userId=alice , n=DF%2028;p=\"q\";r,isProduction=false"}, "green", []string{"userId=alice , n=DF%2028;p=\"q\";r,isProduction=false,v-traffic-lane=green"}},
		"old color replaced":           {[]string{"a=1, v-traffic-lane=blue;ttl=1 , b=2"}, "green", []string{"a=1, b=2,v-traffic-lane=green"}},
		"two old colors replaced":      {[]string{"v-traffic-lane=blue", "a=1,v-traffic-lane=red"}, "green", []string{"a=1,v-traffic-lane=green"}},
		"lines become one":             {[]string{"a=1", "b=2"}, "green", []string{"a=1,b=2,v-traffic-lane=green"}},
		"only the old color":           {[]string{"v-traffic-lane=blue"}, "green", []string{"v-traffic-lane=green"}},
		"no members kept as they are":  {[]string{"what is this"}, "green", []string{"what is this,v-traffic-lane=green"}},
		"plain: color removed":         {[]string{"a=1 ,v-traffic-lane=blue, b=2"}, "", []string{"a=1 , b=2"}},
		"plain: nothing left":          {[]string{"v-traffic-lane=blue"}, "", nil},
		"plain: two lines":             {[]string{"a=1", "v-traffic-lane=blue"}, "", []string{"a=1"}},
		"plain: untouched":             {[]string{"a=1,, ,b=2", " c=3"}, "", []string{"a=1,, ,b=2", " c=3"}},
		"plain: untouched, even empty": {[]string{""}, "", []string{""}},
	} {
		c := table{}
		if tc.baggage != nil {
			c["baggage"] = tc.baggage
		}
		before := slices.Clone(tc.baggage)
		lane.Inject(c, tc.color)
		if got := c["baggage"]; fmt.Sprintf("%q", got) != fmt.Sprintf("%q", tc.want) {
			t.Errorf("%s: baggage %q, want %q", name, got, tc.want)
		}
		if !slices.Equal(before, tc.baggage) {
			t.Errorf("%s: the slice that the carrier gave was changed", name)
		}
		if got, _ := lane.Extract(c); got != tc.color {
			t.Errorf("%s: read back as %q, want %q", name, got, tc.color)
		}
	}
}

func TestInjectReplacesHeader(t *testing.T) {
	c := table{"v-traffic-lane": {"blue", "red"}, "x-other": {"1"}}
	lane.Inject(c, "green")
	if got := c["v-traffic-lane"]; len(got) != 1 || got[0] != "green" {
		t.Errorf("header %q, want green", got)
	}
	lane.Inject(c, lane.Baseline)
	if len(c) != 1 {
		t.Errorf("plain traffic carries %v, want x-other alone", c)
	}
}

// TestInjectLimits: W3C Baggage, section 3.3.2: 180 members and 8192 bytes. What is there
// stays; the header carries the color.
func TestInjectLimits(t *testing.T) {
	ours := len(",v-traffic-lane=green")
	for name, tc := range map[string]struct {
		baggage string
		added   bool
	}{
		"just fits":    {"a=" + strings.Repeat("x", 8192-2-ours), true},
		"one too long": {"a=" + strings.Repeat("x", 8192-2-ours+1), false},
		"far too long": {"a=" + strings.Repeat("x", 100_000), false},
		"179 members":  {strings.Repeat("a=1,", 178) + "a=1", true},
		"180 members":  {strings.Repeat("a=1,", 179) + "a=1", false},
	} {
		c := table{"baggage": {tc.baggage}}
		lane.Inject(c, "green")
		want := tc.baggage
		if tc.added {
			want += ",v-traffic-lane=green"
		}
		if got := c["baggage"]; len(got) != 1 || got[0] != want {
			t.Errorf("%s: baggage has %d bytes, want %d", name, len(got[0]), len(want))
		}
		if got, _ := lane.Extract(c); got != "green" {
			t.Errorf("%s: read back as %q", name, got)
		}
	}
	// An old color does not stay behind where the new one finds no room.
	c := table{"baggage": {"v-traffic-lane=b,a=" + strings.Repeat("x", 9000)}}
	lane.Inject(c, "green")
	if strings.Contains(c["baggage"][0], "v-traffic-lane") {
		t.Error("an old color stayed in baggage")
	}
}

func TestStrip(t *testing.T) {
	c := table{
		"v-traffic-lane": {"green"}, "v-traffic-lane-sig": {"k1"}, "x-env": {"green"},
		"baggage": {"a=1, v-traffic-lane=green,b=2"}, "cookie": {"a=b"},
	}
	lane.Strip(c, "x-env")
	if len(c) != 2 || c["baggage"][0] != "a=1,b=2" || c["cookie"][0] != "a=b" {
		t.Errorf("left %q", c)
	}
}

// TestHTTPHeaderIsCarrier: net/http writes its keys in its own way and folds case.
func TestHTTPHeaderIsCarrier(t *testing.T) {
	h := http.Header{}
	h.Set("V-TRAFFIC-LANE", "blue")
	h.Add("Baggage", "a=1")
	if got, _ := lane.Extract(h); got != "blue" {
		t.Errorf("got %q, want blue", got)
	}
	lane.Inject(h, "green")
	if len(h) != 2 || h.Get("v-traffic-lane") != "green" || h.Get("baggage") != "a=1,v-traffic-lane=green" {
		t.Errorf("header %q", h)
	}
	lane.Strip(h)
	if len(h) != 1 || h.Get("baggage") != "a=1" {
		t.Errorf("stripped header %q", h)
	}
}

func TestExtractDoesNotAllocate(t *testing.T) {
	plain := table{"accept": {"*/*"}, "baggage": {"a=1,b=2"}}
	colored := table{"v-traffic-lane": {"green"}}
	inBaggage := table{"baggage": {"a=1,v-traffic-lane=green;p=1"}}
	if n := testing.AllocsPerRun(100, func() {
		lane.Extract(plain)
		lane.Extract(colored)
		lane.Extract(inBaggage)
		lane.Strip(plain)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWantsRoute(t *testing.T) {
	for name, tc := range map[string]struct {
		c    lane.Carrier
		want bool
	}{
		"no header":      {table{}, false},
		"1":              {table{"x-laneway-explain": {"1"}}, true},
		"no value":       {table{"x-laneway-explain": {}}, false},
		"empty":          {table{"x-laneway-explain": {""}}, false},
		"0":              {table{"x-laneway-explain": {"0"}}, false},
		"true":           {table{"x-laneway-explain": {"true"}}, false},
		"space":          {table{"x-laneway-explain": {" 1"}}, false},
		"first counts":   {table{"x-laneway-explain": {"1", "0"}}, true},
		"second doesn't": {table{"x-laneway-explain": {"0", "1"}}, false},
		"net/http":       {http.Header{"X-Laneway-Explain": {"1"}}, true},
	} {
		if got := lane.WantsRoute(tc.c); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
