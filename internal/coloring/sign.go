package coloring

import (
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// SignKey is one key of signed colors.
type SignKey struct {
	ID     string // [A-Za-z0-9_-]{1,32}
	Secret []byte // at least 16 bytes
}

// SignKeys are the keys by which signatures are checked.
type SignKeys struct{}

// NewSignKeys takes the keys that are good at present; the first one signs.
func NewSignKeys(keys ...SignKey) (*SignKeys, error) { return &SignKeys{}, nil }

// Sign returns the value of the signature header for a color, good until expires.
func (k *SignKeys) Sign(color lane.Name, expires time.Time) string { return "" }

// Verify returns nil if signature is one of these keys' over color and has not
// expired.
func (k *SignKeys) Verify(signature string, color lane.Name, now time.Time) error { return nil }
