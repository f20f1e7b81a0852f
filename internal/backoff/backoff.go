// Package backoff spaces out tries: waits that grow, and differ from process to
// process, so that those who lost the same thing at once do not all come back for
// it at once.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff gives the waits between tries. It is for one goroutine.
type Backoff struct {
	least, most, next time.Duration
}

// New returns a Backoff that begins with least and doubles up to most; both are
// above zero.
func New(least, most time.Duration) *Backoff { return &Backoff{least: least, most: most, next: least} }

// Next returns how long to wait now: between a half and the whole of a time that
// doubles with each call.
func (b *Backoff) Next() time.Duration {
	d := b.next
	b.next = min(2*d, b.most)
	return d/2 + rand.N(d-d/2+1) //nolint:gosec // it spreads load; nothing secret hangs on it
}

// Reset begins anew, after a success.
func (b *Backoff) Reset() { b.next = b.least }

// Wait waits that long and reports true, or reports false as soon as ctx has ended; where d is not
// above 0 it does not wait.
func Wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil // both may have come at once
	case <-ctx.Done():
		return false
	}
}
