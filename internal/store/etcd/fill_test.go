package etcd_test

import (
	"fmt"
	"sync/atomic"
)

// freeSpace is what a pretended disk has.
type freeSpace struct{ atomic.Uint64 }

func key(n int) string { return fmt.Sprint("k", n) }
