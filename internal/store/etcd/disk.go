package etcd

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/laneway-dev/laneway/internal/store"
)

// fitsMore is what has to be free beside a file that is there for a while.
const fitsMore = 32 << 20

// disk refuses writes while there is still some room: etcd does not survive a disk
// that has none, and takes some tens of megabytes at a time.
type disk struct {
	dir     string
	reserve uint64 // bytes that stay free
	free    func(dir string) (uint64, error)
	log     *slog.Logger

	mu  sync.Mutex
	low bool // guarded by mu
}

// admit says whether something may be written.
func (d *disk) admit() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Whoever else fills the disk may do so in a moment, and a look costs little beside a
	// write.
	if !d.low {
		d.look()
	}
	if d.low {
		return fmt.Errorf("%w: less than %d bytes of the disk are free", store.ErrFull, d.reserve)
	}
	return nil
}

// check looks at the disk. Only it finds that there is room again.
func (d *disk) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
}

// look is check for who holds mu.
func (d *disk) look() {
	free, err := d.free(d.dir)
	if err != nil {
		return // a disk that does not tell is no reason to refuse
	}
	want := d.reserve
	if d.low {
		want += want / 8 // so that it does not go back and forth
	}
	switch low := free < want; {
	case low == d.low:
	case low:
		d.low = true
		d.log.Error("disk is nearly used up: the registry refuses writes", "free_bytes", free, "reserve_bytes", d.reserve)
	case !nextSegment(d.dir):
		// etcd could not allocate it, and would fail when it wants to go on there.
	default:
		d.low = false
		d.log.Info("disk has room again: the registry takes writes", "free_bytes", free)
	}
}

// fits says whether there is room for a file of n bytes for a while, and for some more.
func (d *disk) fits(n int64) bool {
	free, err := d.free(d.dir)
	return err != nil || free >= fitsMore+uint64(max(n, 0))
}
