package consume

import (
	"reflect"
	"testing"
)

func TestBalance(t *testing.T) {
	a, b, c := seat{"a", "r1"}, seat{"b", "r2"}, seat{"c", "r1"}
	of := func(holders []string, able ...seat) (cs []claim) {
		for _, h := range holders {
			cs = append(cs, claim{holder: h, able: able})
		}
		return cs
	}
	none := []string{"", "", "", ""}
	for _, x := range []struct {
		name   string
		claims []claim
		want   []string
	}{
		{"even", of(none, a, b), []string{"a", "b", "a", "b"}},
		{"nobody", of([]string{"a", ""}), []string{"", ""}},
		{"sticky", of([]string{"b", "b", "a", "a"}, a, b), []string{"b", "b", "a", "a"}},
		{"one more is no reason to move", of([]string{"b", "b", "a"}, a, b), []string{"b", "b", "a"}},
		{"a newcomer gets its share, and no more moves than that", of([]string{"a", "a", "b", "b"}, a, b, c), []string{"a", "a", "b", "c"}},
		{"two more is one", of([]string{"a", "a", "a", "b"}, a, b, c), []string{"a", "a", "c", "b"}},
		{"a holder that cannot any more", of([]string{"z", "a"}, a, b), []string{"b", "a"}},
	} {
		if got := balance(x.claims, 0); !reflect.DeepEqual(got, x.want) {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
	in := []claim{{room: "r2", able: []seat{a, b, c}}, {room: "r2", able: []seat{a, b, c}}, {room: "r9", able: []seat{a, b, c}}}
	if got := balance(in, 0); !reflect.DeepEqual(got, []string{"b", "b", "a"}) {
		t.Errorf("own room first: %v", got)
	}
}

// TestBalanceIsStable: what was decided once is decided again as long as nothing changes, and
// loads differ by at most one where all can run all.
func TestBalanceIsStable(t *testing.T) {
	for n := range 40 {
		for k := 1; k < 7; k++ {
			var able []seat
			for i := range k {
				able = append(able, seat{session: string(rune('a' + i))})
			}
			claims := make([]claim, n)
			for i := range claims {
				claims[i] = claim{able: able, holder: []string{"", "a", "b", "zz"}[(i*7+n)%4]}
			}
			first := balance(claims, uint32(n+k))
			load := map[string]int{}
			for i, s := range first {
				claims[i].holder = s
				load[s]++
			}
			if again := balance(claims, uint32(n+k)); !reflect.DeepEqual(first, again) {
				t.Fatalf("%d over %d: %v, then %v", n, k, first, again)
			}
			for _, s := range able {
				if d := n/k - load[s.session]; d > 0 || d < -1 {
					t.Fatalf("%d over %d: %s has %d", n, k, s.session, load[s.session])
				}
			}
		}
	}
}
