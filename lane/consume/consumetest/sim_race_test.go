//go:build race

package consumetest

// The race detector makes a seed some ten times as dear, and a simulation has one thread.
const (
	ciSeeds  = 600
	ciCommon = 5
	ciRare   = 1
)
