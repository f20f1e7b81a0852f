package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane/internal/pause"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		for _, c := range []struct {
			want bool
			took time.Duration
		}{{true, time.Minute}, {false, 30 * time.Second}} {
			began := time.Now()
			if got := pause.For(ctx, time.Minute); got != c.want || time.Since(began) != c.took {
				t.Errorf("a minute is over: %t, after %s; want %t after %s", got, time.Since(began), c.want, c.took)
			}
		}
	})
}
