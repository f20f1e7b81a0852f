// Package pause waits for a while, and no longer than somebody wants it.
package pause

import (
	"context"
	"time"
)

// For waits that long and reports true, or reports false as soon as ctx has ended; where d
// is not above 0 it does not wait.
func For(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil // both may have come at once
	case <-ctx.Done():
		return false
	}
}
