package coloring

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

var b64 = base64.RawURLEncoding

func token(t testing.TB, header, claims map[string]any, sign func(text []byte) []byte) string {
	t.Helper()
	part := func(m map[string]any) string {
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b64.EncodeToString(text)
	}
	text := part(header) + "." + part(claims)
	return text + "." + b64.EncodeToString(sign([]byte(text)))
}

func hs256(secret []byte) func([]byte) []byte {
	return func(text []byte) []byte {
		h := hmac.New(sha256.New, secret)
		h.Write(text)
		return h.Sum(nil)
	}
}

type m = map[string]any

func TestTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	secret := []byte(strings.Repeat("s", 32))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rs256 := func(text []byte) []byte {
		sum := sha256.Sum256(text)
		s, err := rsa.SignPKCS1v15(rand.Reader, rsaKey, crypto.SHA256, sum[:])
		if err != nil {
			t.Error(err)
		}
		return s
	}
	es256 := func(text []byte) []byte {
		sum := sha256.Sum256(text)
		r, s, err := ecdsa.Sign(rand.Reader, ecKey, sum[:])
		if err != nil {
			t.Error(err)
		}
		out := make([]byte, 64)
		r.FillBytes(out[:32])
		s.FillBytes(out[32:])
		return out
	}
	spki, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := NewJWTKeys(
		JWTKey{ID: "h", Algorithm: "HS256", Key: secret, Issuer: "us", Audience: "gw"},
		JWTKey{ID: "r", Algorithm: "RS256", Key: &rsaKey.PublicKey},
		JWTKey{Algorithm: "ES256", Key: &ecKey.PublicKey},
	)
	if err != nil {
		t.Fatal(err)
	}
	full := m{"sub": "ann", "iss": "us", "aud": "gw", "exp": now.Unix() + 10}
	with := func(k string, v any) m {
		out := m{}
		maps.Copy(out, full)
		out[k] = v
		return out
	}
	h := m{"alg": "HS256", "kid": "h"}
	good := map[string]string{
		"HS256":          token(t, h, full, hs256(secret)),
		"RS256":          token(t, m{"alg": "RS256", "kid": "r"}, m{"sub": "ann"}, rs256),
		"ES256, any kid": token(t, m{"alg": "ES256", "kid": "x"}, m{"sub": "ann"}, es256),
		"ES256, no kid":  token(t, m{"alg": "ES256"}, m{"sub": "ann"}, es256),
		"audience list":  token(t, h, with("aud", []string{"x", "gw"}), hs256(secret)),
		"just expired":   token(t, h, with("exp", now.Unix()-59), hs256(secret)),
		"soon good":      token(t, h, with("nbf", now.Unix()+59), hs256(secret)),
	}
	for name, text := range good {
		if claims, err := keys.Verify(text, now); err != nil || claims["sub"] != "ann" {
			t.Errorf("%s: got %v, %v", name, claims, err)
		}
	}
	none := func([]byte) []byte { return nil }
	bad := map[string]string{
		"none":               token(t, m{"alg": "none"}, full, none),
		"None, kid":          token(t, m{"alg": "None", "kid": "h"}, full, none),
		"no algorithm":       token(t, m{"kid": "h"}, full, hs256(secret)),
		"other kid":          token(t, m{"alg": "HS256", "kid": "r"}, full, hs256(secret)),
		"no kid":             token(t, m{"alg": "HS256"}, full, hs256(secret)),
		"public key as HMAC": token(t, m{"alg": "HS256", "kid": "r"}, full, hs256(spki)),
		"wrong secret":       token(t, h, full, hs256([]byte("x"))),
		"crit":               token(t, m{"alg": "HS256", "kid": "h", "crit": []string{"b64"}}, full, hs256(secret)),
		"expired":            token(t, h, with("exp", now.Unix()-60), hs256(secret)),
		"exp is text":        token(t, h, with("exp", "never"), hs256(secret)),
		"not yet":            token(t, h, with("nbf", now.Unix()+61), hs256(secret)),
		"issuer":             token(t, h, with("iss", "them"), hs256(secret)),
		"audience":           token(t, h, with("aud", []string{"x"}), hs256(secret)),
		"ES256 as DER": token(t, m{"alg": "ES256"}, m{"sub": "ann"}, func(text []byte) []byte {
			sum := sha256.Sum256(text)
			s, _ := ecdsa.SignASN1(rand.Reader, ecKey, sum[:])
			return s
		}),
		"empty": "", "dots": "..", "four parts": good["HS256"] + ".x", "long": strings.Repeat("a", maxTokenBytes+1),
		"changed": strings.Replace(good["RS256"], ".", ".e30", 1),
	}
	for name, text := range bad {
		if claims, err := keys.Verify(text, now); !errors.Is(err, ErrToken) || claims != nil {
			t.Errorf("%s: got %v, %v, want ErrToken", name, claims, err)
		}
	}
}

func TestJWTKeysAreChecked(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		small = &rsa.PrivateKey{PublicKey: rsa.PublicKey{N: big.NewInt(3233), E: 17}} // Go refuses to make one
	}
	other, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	long := []byte(strings.Repeat("s", 32))
	for name, k := range map[string]JWTKey{
		"short secret": {Algorithm: "HS256", Key: long[:31]}, "algorithm of another key": {Algorithm: "RS256", Key: long},
		"small RSA": {Algorithm: "RS256", Key: &small.PublicKey}, "other curve": {Algorithm: "ES256", Key: &other.PublicKey},
		"none": {Algorithm: "none", Key: long}, "no key": {Algorithm: "RS256", Key: (*rsa.PublicKey)(nil)}, "nothing": {},
	} {
		if _, err := NewJWTKeys(k); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
}

func TestRuleByTokenUser(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	secret := []byte(strings.Repeat("s", 32))
	keys, err := NewJWTKeys(JWTKey{Algorithm: "HS256", Key: secret})
	if err != nil {
		t.Fatal(err)
	}
	rule := laneclient.Rule{Meta: laneclient.Meta{Name: "ann"}, Lanes: []laneclient.LaneShare{{Lane: "green"}}}
	rule.Match.User = &laneclient.UserMatch{From: "jwt:sub", List: []string{"ann", "7"}}
	dir := lane.NewSnapshot(lane.Input{Services: []string{"api"}, Lanes: []lane.Lane{{Name: "green", State: lane.Ready}}})
	ann := token(t, m{"alg": "HS256"}, m{"sub": "ann"}, hs256(secret))
	decide := func(k *JWTKeys, auth ...string) Decision {
		table := Compile(nil, []laneclient.Rule{rule}, Options{Domain: "d.test", JWT: k})
		return table.Decide(dir, &Request{Host: "api.d.test", Path: "/", Header: http.Header{"Authorization": auth}, Now: now})
	}
	for name, auth := range map[string]string{
		"good": "Bearer " + ann, "lower case": "bearer  " + ann, "number": "Bearer " + token(t, m{"alg": "HS256"}, m{"sub": 7}, hs256(secret)),
	} {
		if d := decide(keys, auth); d.Color != "green" || d.Rule != lane.RuleUser || d.RuleName != "ann" {
			t.Errorf("%s: got %+v", name, d)
		}
	}
	for name, auth := range map[string][]string{
		"forged": {"Bearer " + token(t, m{"alg": "HS256"}, m{"sub": "ann"}, hs256([]byte("x")))}, "basic": {"Basic " + ann}, "bare": {ann},
		"twice": {"Bearer " + ann, "Bearer " + ann}, "other user": {"Bearer " + token(t, m{"alg": "HS256"}, m{"sub": "bob"}, hs256(secret))}, "none": nil,
	} {
		if d := decide(keys, auth...); d.Color != "" {
			t.Errorf("%s: got color %q", name, d.Color)
		}
	}
	if d := decide(nil, "Bearer "+ann); d.Color != "" {
		t.Errorf("without keys: got color %q", d.Color)
	}
	table := Compile(nil, []laneclient.Rule{rule}, Options{})
	if s := table.Statuses(dir)["ann"]; !strings.Contains(s, "no key") {
		t.Errorf("without keys the status is %q", s)
	}
}

func FuzzToken(f *testing.F) {
	secret := []byte(strings.Repeat("s", 32))
	keys, err := NewJWTKeys(JWTKey{Algorithm: "HS256", Key: secret})
	if err != nil {
		f.Fatal(err)
	}
	good := token(f, m{"alg": "HS256"}, m{"sub": "ann"}, hs256(secret))
	for _, s := range []string{good, "", "..", "e30.e30.", "eyJhbGciOiJub25lIn0.e30.", "bnVsbA.bnVsbA.bnVsbA"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if claims, err := keys.Verify(text, time.Unix(1, 0)); err == nil && text != good {
			t.Fatalf("believed %q: %v", text, claims)
		}
	})
}
