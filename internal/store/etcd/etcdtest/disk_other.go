//go:build !linux

package etcdtest

import "testing"

// SmallDisk gives a test a directory on a small disk and true, on Linux; elsewhere it says
// that there is none.
func SmallDisk(t *testing.T, _ int) (dir string, here bool) {
	t.Helper()
	t.Log("no disk can be mounted here: only on Linux")
	return "", false
}
