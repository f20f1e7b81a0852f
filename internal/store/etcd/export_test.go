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

// Trouble is what an etcd comes upon.
type Trouble struct {
	Err error
	// Locked: the goroutine that does so keeps the database's lock, as one does whose
	// commit fails.
	Locked bool
	// Then: another goroutine does so after that, and keeps the database's lock.
	Then time.Duration
	// Busy is how long a goroutine that fails in nothing has the database's lock.
	Busy time.Duration
}

// Fail has the store's etcd come upon trouble.
func (s *Store) Fail(t Trouble) {
	l, _ := s.use()
	defer l.calls.Done()
	database := l.server.Backend().BatchTx()
	if t.Locked || t.Then > 0 || t.Busy > 0 {
		database.LockOutsideApply()
	}
	switch {
	case t.Locked:
		l.fuse.keepLock()
	case t.Then > 0:
		time.AfterFunc(t.Then, l.fuse.keepLock)
	case t.Busy > 0:
		time.AfterFunc(t.Busy, database.Unlock)
	}
	l.fuse.once.Do(func() {
		l.fuse.err = t.Err
		close(l.fuse.blown)
	})
}

// Left is how many etcds the store has left behind. The store is closed.
func (s *Store) Left() int { return s.member.left }
