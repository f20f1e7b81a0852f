package etcd

import "time"

// WithFree makes free tell how much of the disk is free.
func (c Config) WithFree(free func() uint64) Config {
	c.free = func(string) (uint64, error) { return free(), nil }
	return c
}

// TooOld is tooOld.
func TooOld(version string) bool { return tooOld(version) }

// DatabaseBytes is how much of the disk the database has.
func (s *Store) DatabaseBytes() int64 { return s.link.server.Backend().Size() }

// WithPatience has an etcd that failed be left behind after d.
func (c Config) WithPatience(d time.Duration) Config {
	c.patience = d
	return c
}

// Fail has the store's etcd come upon trouble. With locked, the goroutine that does so
// keeps the database's lock, as one does whose commit fails.
func (s *Store) Fail(err error, locked bool) {
	l, _ := s.use()
	defer l.calls.Done()
	if locked {
		l.server.Backend().BatchTx().LockOutsideApply()
		l.fuse.backend = true
	}
	l.fuse.once.Do(func() {
		l.fuse.err = err
		close(l.fuse.blown)
	})
}

// Left is how many etcds the store has left behind. The store is closed.
func (s *Store) Left() int { return s.member.left }
