package coloring

// JWTKey is one key by which bearer tokens are checked.
type JWTKey struct {
	ID        string // "kid"; empty: any token of this algorithm
	Algorithm string // HS256, RS256 or ES256; a token of another algorithm is refused
	Key       any    // []byte, *rsa.PublicKey or *ecdsa.PublicKey
}

// JWTKeys checks bearer tokens.
type JWTKeys struct{}

// NewJWTKeys takes the keys that are good at present.
func NewJWTKeys(keys ...JWTKey) (*JWTKeys, error) { return &JWTKeys{}, nil }
