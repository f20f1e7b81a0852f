package coloring

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

func signKeys(t testing.TB, ids ...string) *SignKeys {
	t.Helper()
	var keys []SignKey
	for _, id := range ids {
		keys = append(keys, SignKey{ID: id, Secret: []byte("secret of 16 b. " + id)})
	}
	k, err := NewSignKeys(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSignature(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	old, both, moved := signKeys(t, "k1"), signKeys(t, "k1", "k2"), signKeys(t, "k2", "k1")
	sig := old.Sign("green", now.Add(time.Minute))
	for name, k := range map[string]*SignKeys{"old": old, "new key added": both, "new key signs": moved} {
		if err := k.Verify(sig, "green", now); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	bad := map[string]error{
		"other color":    old.Verify(sig, "blue", now),
		"no color":       old.Verify(sig, "", now),
		"expired":        old.Verify(sig, "green", now.Add(time.Minute)),
		"key is gone":    signKeys(t, "k2").Verify(sig, "green", now),
		"other secret":   signKeys(t, "k2").Verify(strings.Replace(sig, "k1", "k2", 1), "green", now),
		"later expiry":   old.Verify(strings.Replace(sig, "1800000060", "1800000061", 1), "green", now),
		"leading zero":   old.Verify(strings.Replace(sig, "1800000060", "01800000060", 1), "green", now),
		"cut":            old.Verify(sig[:len(sig)-1], "green", now),
		"padded":         old.Verify(sig+"=", "green", now),
		"line break":     old.Verify(sig+"\n", "green", now),
		"empty":          old.Verify("", "green", now),
		"dots":           old.Verify("...", "green", now),
		"very long":      old.Verify(sig+strings.Repeat("a", 1000), "green", now),
		"two signatures": old.Verify(sig+", "+sig, "green", now),
	}
	for name, err := range bad {
		if !errors.Is(err, ErrSignature) {
			t.Errorf("%s: got %v, want ErrSignature", name, err)
		}
	}
}

// The format is a contract with who signs: computed by another program.
func TestSignatureIsFixed(t *testing.T) {
	t.Parallel()
	const want = "k1.1800000060.T-Bu3-iJaZwXr0H3b_Tt1wOlFrzfZORRtR1p0Wfbrwg"
	if got := signKeys(t, "k1").Sign("green", time.Unix(1_800_000_060, 0)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestSignKeysAreChecked(t *testing.T) {
	t.Parallel()
	long := []byte(strings.Repeat("s", 16))
	for name, keys := range map[string][]SignKey{
		"none": nil, "no id": {{"", long}}, "dot in id": {{"a.b", long}}, "long id": {{strings.Repeat("a", 33), long}},
		"short secret": {{"a", long[:15]}}, "twice": {{"a", long}, {"a", long}},
	} {
		if _, err := NewSignKeys(keys...); err == nil {
			t.Errorf("%s: was taken", name)
		} else if strings.Contains(err.Error(), "sss") {
			t.Errorf("%s: the error tells the secret", name)
		}
	}
}

func TestSignedColorIsBelieved(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	keys := signKeys(t, "k1")
	table := Compile(nil, nil, Options{Domain: "d.test", Signing: keys})
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api"}})
	sig := keys.Sign("green", now.Add(time.Minute))
	for _, c := range []struct {
		name   string
		header http.Header
		color  lane.Name
		drop   bool
	}{
		{"good", http.Header{"V-Traffic-Lane": {"green"}, "V-Traffic-Lane-Sig": {sig}}, "green", false},
		{"in baggage", http.Header{"Baggage": {"v-traffic-lane=green"}, "V-Traffic-Lane-Sig": {sig}}, "green", false},
		{"for another", http.Header{"V-Traffic-Lane": {"blue"}, "V-Traffic-Lane-Sig": {sig}}, "", true},
		{"two signatures", http.Header{"V-Traffic-Lane": {"green"}, "V-Traffic-Lane-Sig": {sig, sig}}, "", true},
		{"first color counts", http.Header{"V-Traffic-Lane": {"blue", "green"}, "V-Traffic-Lane-Sig": {sig}}, "", true},
		{"no color", http.Header{"V-Traffic-Lane-Sig": {sig}}, "", false},
		{"no signature", http.Header{"V-Traffic-Lane": {"green"}}, "", true},
	} {
		d := table.Decide(dir, &Request{Host: "api.d.test", Path: "/", Header: c.header, Now: now})
		if d.Color != c.color || d.Dropped != c.drop || c.color != "" && d.Rule != lane.RuleSigned {
			t.Errorf("%s: got color %q rule %q dropped %v, want %q, %v", c.name, d.Color, d.Rule, d.Dropped, c.color, c.drop)
		}
	}
}

func FuzzVerify(f *testing.F) {
	keys := signKeys(f, "k1", "k2")
	at := time.Unix(1_800_000_000, 0)
	good := keys.Sign("green", at.Add(time.Hour))
	for _, s := range []string{good, "", "..", "k1.1.", "k1.-1.AAAA", "k1.99999999999999999999.AA", strings.Repeat(".", 200)} {
		f.Add(s, "green")
	}
	f.Fuzz(func(t *testing.T, signature, color string) {
		if err := keys.Verify(signature, lane.Name(color), at); err == nil && (signature != good || color != "green") {
			t.Fatalf("believed %q for %q", signature, color)
		}
	})
}
