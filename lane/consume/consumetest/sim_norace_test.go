//go:build !race

package consumetest

// How many seeds CI runs, and how often each kind of move and fault, and each rare meeting,
// has to occur in them.
const (
	ciSeeds  = 20_000
	ciCommon = 1_000
	ciRare   = 100
)
