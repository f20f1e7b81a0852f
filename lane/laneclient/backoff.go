package laneclient

import (
	"math/rand/v2"
	"time"
)

// backoff gives growing, jittered waits. The zero value of n begins anew.
type backoff struct {
	least, most time.Duration
	n           int
}

// next returns between a half and the whole of least·2ⁿ, bounded by most.
func (b *backoff) next() time.Duration {
	d := b.most
	if b.n < 16 {
		d = min(b.most, b.least<<b.n)
		b.n++
	}
	return d/2 + jitter(d/2)
}

func (b *backoff) reset() { b.n = 0 }

// jitter returns between zero and d, inclusive.
func jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d + 1) //nolint:gosec // it spreads load; nothing secret hangs on it
}
