package coloring

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
)

const (
	maxTokenBytes = 8 << 10
	minRSABits    = 2048
	// jwtLeeway is how far the clock of the issuer may be off: RFC 7519, 4.1.4.
	jwtLeeway = 60 * time.Second
)

// ErrToken is returned by [JWTKeys.Verify] for every token that is not good; what
// wraps it says why.
var ErrToken = errors.New("token is not good")

// JWTKey is one key by which bearer tokens are checked.
type JWTKey struct {
	ID        string // "kid"; empty: any token of this algorithm
	Algorithm string // HS256, RS256 or ES256; a token of another algorithm is refused
	Key       any    // []byte (at least 32), *rsa.PublicKey (at least 2048 bits) or *ecdsa.PublicKey (P-256)
	Issuer    string // "iss" that the token must have; empty: any
	Audience  string // what must be in "aud"; empty: anything
}

// JWTKeys checks bearer tokens. It is immutable.
type JWTKeys struct{ keys []JWTKey }

// NewJWTKeys takes the keys that are good at present, at least one. The error names
// the key that is wrong.
func NewJWTKeys(keys ...JWTKey) (*JWTKeys, error) {
	if len(keys) == 0 {
		return nil, errors.New("token keys: none is given")
	}
	for n, k := range keys {
		ok := false
		switch key := k.Key.(type) {
		case []byte:
			ok = k.Algorithm == "HS256" && len(key) >= sha256.Size
		case *rsa.PublicKey:
			ok = k.Algorithm == "RS256" && key != nil && key.N != nil && key.N.BitLen() >= minRSABits
		case *ecdsa.PublicKey:
			ok = k.Algorithm == "ES256" && key != nil && key.Curve == elliptic.P256()
		}
		if !ok {
			return nil, fmt.Errorf("token key %d (%q): want HS256 with a secret of 32 bytes or more, RS256 with an RSA key of 2048 bits or more, or ES256 with a key on P-256", n, k.ID)
		}
	}
	return &JWTKeys{keys: append([]JWTKey(nil), keys...)}, nil
}

type jwtHeader struct {
	Alg  string          `json:"alg"`
	Kid  string          `json:"kid"`
	Crit json.RawMessage `json:"crit"`
}

// Verify checks a token in JWS compact form (RFC 7515, 7519) and returns its
// claims. The algorithm is the key's; what the token says must be the same, so that
// neither "none" nor a public key taken for a secret gets through. "exp" and "nbf"
// are kept with a leeway of 60 s; a token without "exp" does not expire. The error
// is [ErrToken]. It takes any bytes.
func (k *JWTKeys) Verify(token string, now time.Time) (map[string]any, error) {
	if len(token) > maxTokenBytes {
		return nil, fmt.Errorf("%w: over %d bytes", ErrToken, maxTokenBytes)
	}
	first, rest, _ := strings.Cut(token, ".")
	payload, signature, found := strings.Cut(rest, ".")
	if !found || strings.Contains(signature, ".") {
		return nil, fmt.Errorf("%w: want three parts", ErrToken)
	}
	var header jwtHeader
	if err := decodePart(first, &header); err != nil {
		return nil, err
	}
	if header.Crit != nil { // extensions that must be understood, and none is
		return nil, fmt.Errorf("%w: crit is not supported", ErrToken)
	}
	mac, ok := decode64(signature)
	if !ok {
		return nil, fmt.Errorf("%w: the signature is no base64url", ErrToken)
	}
	signed := token[:len(first)+1+len(payload)]
	for n := range k.keys {
		key := &k.keys[n]
		if key.Algorithm != header.Alg || key.ID != "" && key.ID != header.Kid || !key.signed(signed, mac) {
			continue
		}
		claims := map[string]any{}
		if err := decodePart(payload, &claims); err != nil {
			return nil, err
		}
		if err := key.current(claims, now); err != nil {
			return nil, err
		}
		return claims, nil
	}
	return nil, fmt.Errorf("%w: no key of ours has signed it", ErrToken)
}

func decodePart(part string, into any) error {
	text, ok := decode64(part)
	if !ok {
		return fmt.Errorf("%w: a part is no base64url", ErrToken)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: a part is no JSON", ErrToken)
	}
	return nil
}

func (k *JWTKey) signed(text string, mac []byte) bool {
	sum := sha256.Sum256([]byte(text))
	switch key := k.Key.(type) {
	case []byte:
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return hmac.Equal(mac, h.Sum(nil))
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], mac) == nil
	case *ecdsa.PublicKey:
		const half = 32 // RFC 7518, 3.4: R and S, 32 bytes each
		if len(mac) != 2*half {
			return false
		}
		r, s := new(big.Int).SetBytes(mac[:half]), new(big.Int).SetBytes(mac[half:])
		return ecdsa.Verify(key, sum[:], r, s)
	}
	return false
}

// current checks what the claims say of when, from whom and for whom.
func (k *JWTKey) current(claims map[string]any, now time.Time) error {
	at := float64(now.UnixMilli()) / 1000
	if exp, there := claims["exp"]; there {
		if t, ok := exp.(float64); !ok || at >= t+jwtLeeway.Seconds() {
			return fmt.Errorf("%w: it has expired", ErrToken)
		}
	}
	if nbf, there := claims["nbf"]; there {
		if t, ok := nbf.(float64); !ok || at < t-jwtLeeway.Seconds() {
			return fmt.Errorf("%w: it is not good yet", ErrToken)
		}
	}
	if k.Issuer != "" && claims["iss"] != k.Issuer {
		return fmt.Errorf("%w: it is from another issuer", ErrToken)
	}
	if k.Audience == "" || claims["aud"] == k.Audience {
		return nil
	}
	if list, ok := claims["aud"].([]any); ok {
		for _, a := range list {
			if a == k.Audience {
				return nil
			}
		}
	}
	return fmt.Errorf("%w: it is for another audience", ErrToken)
}

// claimText is the text of a claim that names a user: a string, or a whole number.
func claimText(claim any) string {
	switch v := claim.(type) {
	case string:
		return v
	case float64:
		const exact = 1 << 53
		if v == math.Trunc(v) && math.Abs(v) < exact {
			return strconv.FormatInt(int64(v), 10)
		}
	}
	return ""
}
