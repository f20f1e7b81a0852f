//go:build !race

package consume

// exploreMost is how many states an exploration may have, so that it ends in any case.
const exploreMost = 200_000
