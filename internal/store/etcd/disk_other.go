//go:build !linux && !darwin && !freebsd

package etcd

import "errors"

// freeBytes is not known here: only the quota guards the disk.
func freeBytes(string) (uint64, error) { return 0, errors.ErrUnsupported }
