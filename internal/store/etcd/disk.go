package etcd

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/laneway-dev/laneway/internal/store"
)

// lookEvery is how many bytes are written before the disk is looked at again.
const lookEvery = 1 << 20

// disk refuses writes while there is still some room: etcd does not survive a disk
// that has none, and takes some tens of megabytes at a time.
type disk struct {
	dir     string
	reserve uint64 // bytes that stay free
	free    func(dir string) (uint64, error)
	log     *slog.Logger

	mu     sync.Mutex
	low    bool // guarded by mu, as is unseen
	unseen int  // bytes written since the last look
}

// admit says whether n bytes may be written.
func (d *disk) admit(n int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unseen += n; d.unseen >= lookEvery && !d.low {
		d.look()
	}
	if d.low {
		return fmt.Errorf("%w: less than %d bytes of the disk are free", store.ErrFull, d.reserve)
	}
	return nil
}

// check looks at the disk.
func (d *disk) check() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.look()
}

// look is check for who holds mu.
func (d *disk) look() {
	d.unseen = 0
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
	default:
		d.low = false
		d.log.Info("disk has room again: the registry takes writes", "free_bytes", free)
	}
}

// fits says whether there is room for a file of n bytes for a while, for which half of
// the reserve may be used.
func (d *disk) fits(n int64) bool {
	free, err := d.free(d.dir)
	return err != nil || free >= d.reserve/2+uint64(max(n, 0))
}
