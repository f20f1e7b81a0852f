package laneclient

import (
	"testing"
	"time"
)

// TestLeaseEndsByEitherClock: a machine that slept has lost its sessions though its steady
// clock does not know, and a wall clock that was set back prolongs nothing.
func TestLeaseEndsByEitherClock(t *testing.T) {
	t.Parallel()
	now := time.Now()
	l := leaseFrom(now, 10*time.Second)
	if got := l.left(now.Add(4 * time.Second)); got != 6*time.Second {
		t.Errorf("after 4 s awake: %s", got)
	}
	slept := lease{steady: now.Add(9 * time.Second), wall: now.Add(-time.Minute).Round(0)}
	if got := slept.left(now); got != -time.Minute {
		t.Errorf("after sleep: %s", got)
	}
	setBack := lease{steady: now.Add(-time.Second), wall: now.Add(time.Hour).Round(0)}
	if got := setBack.left(now); got != -time.Second {
		t.Errorf("after the wall clock was set back: %s", got)
	}
}
