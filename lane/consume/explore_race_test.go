//go:build race

package consume

// exploreMost is how many states an exploration may have. The race detector makes a state
// some ten times as dear, and an exploration has one thread.
const exploreMost = 9_000
