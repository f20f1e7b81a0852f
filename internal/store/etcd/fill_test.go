package etcd_test

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
)

// freeSpace is what a pretended disk has.
type freeSpace struct{ atomic.Uint64 }

func key(n int) string { return fmt.Sprint("k", n) }

// fill writes a file until nothing more fits.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 1<<20); len(block) > 0; {
		_, err := f.Write(block)
		switch {
		case errors.Is(err, syscall.ENOSPC):
			block = block[:len(block)/2]
		case err != nil:
			t.Fatal(err)
		}
	}
}
