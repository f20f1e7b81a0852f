package coloring

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

const (
	minSecretBytes = 16
	maxKeyIDBytes  = 32
	// maxSignatureBytes bounds what is looked at: key id, expiry, MAC and two dots.
	maxSignatureBytes = maxKeyIDBytes + 20 + 43 + 2
	signContext       = "laneway-color-v1"
)

// ErrSignature is returned by [SignKeys.Verify] for every signature that is not
// good; what wraps it says why.
var ErrSignature = errors.New("signature of the color is not good")

// SignKey is one key of signed colors.
type SignKey struct {
	ID     string // [A-Za-z0-9_-]{1,32}
	Secret []byte // at least 16 bytes
}

// SignKeys are the keys by which signatures are made and checked. They are
// immutable; to rotate, build new ones: first add the new key at the end
// everywhere, then move it to the front, and drop the old one once all that it
// signed has expired.
type SignKeys struct{ keys []SignKey }

// NewSignKeys takes the keys that are good at present, at least one; the first one
// signs. The error names the key that is wrong, never its secret.
func NewSignKeys(keys ...SignKey) (*SignKeys, error) {
	if len(keys) == 0 {
		return nil, errors.New("signing keys: none is given")
	}
	seen := map[string]bool{}
	for _, k := range keys {
		switch {
		case !validKeyID(k.ID):
			return nil, fmt.Errorf("signing key %q: an id is 1 to %d letters, digits, '-' and '_'", k.ID, maxKeyIDBytes)
		case seen[k.ID]:
			return nil, fmt.Errorf("signing key %q: the id is there twice", k.ID)
		case len(k.Secret) < minSecretBytes:
			return nil, fmt.Errorf("signing key %q: the secret has %d bytes; use at least %d", k.ID, len(k.Secret), minSecretBytes)
		}
		seen[k.ID] = true
	}
	return &SignKeys{keys: append([]SignKey(nil), keys...)}, nil
}

func validKeyID(s string) bool {
	if s == "" || len(s) > maxKeyIDBytes {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// Sign returns the value of the signature header ([lane.SignatureHeader]) for a
// color, good until expires (whole seconds). It is
//
//	<key id> "." <expiry, Unix seconds> "." <base64url without padding of the MAC>
//
// and the MAC is HMAC-SHA-256 under the key's secret over
//
//	"laneway-color-v1" LF <key id> LF <expiry> LF <lane>
//
// so that neither lane nor expiry nor key id can be changed.
func (k *SignKeys) Sign(color lane.Name, expires time.Time) string {
	key := &k.keys[0]
	expiry := strconv.FormatInt(expires.Unix(), 10)
	return key.ID + "." + expiry + "." + base64.RawURLEncoding.EncodeToString(key.mac(expiry, color))
}

// Verify returns nil if signature is one of these keys' over color and has not
// expired by now, else an error that is [ErrSignature]. It takes any bytes.
func (k *SignKeys) Verify(signature string, color lane.Name, now time.Time) error {
	if len(signature) > maxSignatureBytes {
		return fmt.Errorf("%w: too long", ErrSignature)
	}
	id, rest, _ := strings.Cut(signature, ".")
	expiry, encoded, found := strings.Cut(rest, ".")
	if !found {
		return fmt.Errorf("%w: want KEY.EXPIRY.MAC", ErrSignature)
	}
	at, err := strconv.ParseInt(expiry, 10, 64)
	if err != nil || strconv.FormatInt(at, 10) != expiry {
		return fmt.Errorf("%w: the expiry is no number of seconds", ErrSignature)
	}
	mac, ok := decode64(encoded)
	if !ok {
		return fmt.Errorf("%w: the MAC is no base64url", ErrSignature)
	}
	for n := range k.keys {
		key := &k.keys[n]
		if key.ID != id {
			continue
		}
		if !hmac.Equal(mac, key.mac(expiry, color)) {
			return fmt.Errorf("%w: the MAC differs", ErrSignature)
		}
		if now.Unix() >= at {
			return fmt.Errorf("%w: it has expired", ErrSignature)
		}
		return nil
	}
	return fmt.Errorf("%w: there is no such key", ErrSignature)
}

func (key *SignKey) mac(expiry string, color lane.Name) []byte {
	h := hmac.New(sha256.New, key.Secret)
	h.Write([]byte(signContext + "\n" + key.ID + "\n" + expiry + "\n" + string(color)))
	return h.Sum(nil)
}

// decode64 reads base64url without padding. Unlike the package's decoder it takes no
// line breaks: one MAC has one spelling.
func decode64(s string) ([]byte, bool) {
	if strings.ContainsAny(s, "\r\n") {
		return nil, false
	}
	out, err := base64.RawURLEncoding.Strict().DecodeString(s)
	return out, err == nil
}
