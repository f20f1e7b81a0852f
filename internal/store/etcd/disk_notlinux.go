//go:build !linux

package etcd

import "errors"

// hold does nothing: the reserve is all there is.
func hold(string, int64) error { return nil }

// release cannot do its work here.
func release(string) error {
	return errors.New("locks of this process cannot be given back on this system")
}
