package consumetest

import (
	"testing"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestUrgent: of what a Core does when it is told of nothing new, merges and timers might have
// waited, and nothing else.
func TestUrgent(t *testing.T) {
	t.Parallel()
	write := func(kinds ...consume.MoveKind) *consume.Propose {
		w := &consume.Write{}
		for _, k := range kinds {
			w.Moves = append(w.Moves, consume.Move{Kind: k})
		}
		return &consume.Propose{Write: w}
	}
	for _, tt := range []struct {
		name   string
		action consume.Action
		want   bool
	}{
		{"merge", write(consume.Merge), false},
		{"two merges", write(consume.Merge, consume.Merge), false},
		{"merge and split", write(consume.Merge, consume.Split), true},
		{"release", write(consume.Release), true},
		{"timer", &consume.Arm{}, false},
		{"end of a timer", &consume.Disarm{}, false},
		{"dispatch", &consume.Dispatch{}, true},
		{"fetch", &consume.Fetch{}, true},
	} {
		if got := urgent(tt.action); got != tt.want {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
