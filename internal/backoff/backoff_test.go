package backoff_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/internal/backoff"
)

func TestWaitsGrowAndDiffer(t *testing.T) {
	t.Parallel()
	const least, most = 100 * time.Millisecond, time.Second
	b := backoff.New(least, most)
	first := map[time.Duration]bool{}
	for range 20 {
		for whole, n := least, 0; n < 8; whole, n = min(2*whole, most), n+1 {
			d := b.Next()
			if d < whole/2 || d > whole {
				t.Fatalf("wait %d is %v, want %v to %v", n, d, whole/2, whole)
			}
			if n == 0 {
				first[d] = true
			}
		}
		b.Reset()
	}
	if len(first) < 2 {
		t.Error("all first waits are the same: they have no jitter")
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		for _, c := range []struct {
			want bool
			took time.Duration
		}{{true, time.Minute}, {false, 30 * time.Second}} {
			began := time.Now()
			if got := backoff.Wait(ctx, time.Minute); got != c.want || time.Since(began) != c.took {
				t.Errorf("a minute is over: %t, after %s; want %t after %s", got, time.Since(began), c.want, c.took)
			}
		}
	})
}
