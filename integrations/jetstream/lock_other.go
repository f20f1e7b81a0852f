//go:build !unix

package jetstream

import (
	"os"
	"path/filepath"
)

// lockDir does not know how to keep others out here.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	return os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
}
