package etcd

// WithFree makes free tell how much of the disk is free.
func (c Config) WithFree(free func() uint64) Config {
	c.free = func(string) (uint64, error) { return free(), nil }
	return c
}

// TooOld is tooOld.
func TooOld(version string) bool { return tooOld(version) }

// DatabaseBytes is how much of the disk the database has.
func (s *Store) DatabaseBytes() int64 { return s.link.server.Backend().Size() }
