package lanetest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/laneway-dev/laneway/lane"
)

// Directory is a [lane.Directory] of what a test gives it. Its zero value knows
// nothing and is ready to use. All methods may be called at once.
type Directory struct {
	snapshot atomic.Pointer[lane.Snapshot]
	process  atomic.Pointer[lane.Name]

	mu   sync.Mutex // guards what follows; no callback runs under it
	in   lane.Input
	subs map[int]func()
	next int
	used map[lane.Name]int
	need map[string]int
	fail error

	calls sync.Mutex // held while subscribers are called: never twice at once
}

var _ lane.Directory = (*Directory)(nil)

// NewDirectory returns a directory of these lanes and instances. Lanes that have no
// state are ready, and of generation 1 if they have none; instances without a state
// are ready, and of the generation of their lane if they have none.
func NewDirectory(lanes []lane.Lane, instances ...*lane.Instance) *Directory {
	d := &Directory{}
	d.Set(lanes, instances...)
	return d
}

// Set replaces what the directory knows, at the next revision, and calls the
// subscribers before it returns.
func (d *Directory) Set(lanes []lane.Lane, instances ...*lane.Instance) {
	d.SetInput(lane.Input{Lanes: slices.Clone(lanes), Instances: slices.Clone(instances)})
}

// SetInput is Set with all that a snapshot is built from. A revision of zero: the
// next one.
func (d *Directory) SetInput(in lane.Input) {
	generations := map[lane.Name]uint64{}
	in.Lanes, in.Instances = slices.Clone(in.Lanes), slices.Clone(in.Instances)
	for n := range in.Lanes {
		l := &in.Lanes[n]
		if l.State == "" {
			l.State = lane.Ready
		}
		l.Generation = max(l.Generation, 1)
		generations[l.Name] = l.Generation
	}
	for n, given := range in.Instances {
		i := *given
		if i.State == "" {
			i.State = lane.Ready
		}
		if i.Generation == 0 {
			i.Generation = generations[i.Lane]
		}
		in.Instances[n] = &i
	}
	d.calls.Lock()
	defer d.calls.Unlock()
	d.mu.Lock()
	if in.Revision == 0 {
		in.Revision = d.in.Revision + 1
	}
	d.in = in
	d.snapshot.Store(lane.NewSnapshot(in))
	subs := slices.Collect(maps.Values(d.subs))
	d.mu.Unlock()
	for _, changed := range subs {
		changed()
	}
}

// Add adds an instance, or replaces it, as Set does.
func (d *Directory) Add(i *lane.Instance) {
	d.mu.Lock()
	in := d.in
	d.mu.Unlock()
	in.Revision = 0
	in.Instances = append(slices.Clone(in.Instances), i)
	d.SetInput(in)
}

// Remove takes an instance out, as Set does.
func (d *Directory) Remove(service, name string) {
	d.mu.Lock()
	in := d.in
	d.mu.Unlock()
	in.Revision = 0
	in.Instances = slices.DeleteFunc(slices.Clone(in.Instances), func(i *lane.Instance) bool {
		return i.Service == service && i.Name == name
	})
	d.SetInput(in)
}

// SetProcess sets the lane of the process.
func (d *Directory) SetProcess(name lane.Name) { d.process.Store(&name) }

// SetNeedError makes Need fail for services that no instance or Input names; nil
// ends that.
func (d *Directory) SetNeedError(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// Snapshot implements [lane.Directory].
func (d *Directory) Snapshot() *lane.Snapshot {
	if s := d.snapshot.Load(); s != nil {
		return s
	}
	return lane.NewSnapshot(lane.Input{})
}

// Need implements [lane.Directory]: everything is here already.
func (d *Directory) Need(ctx context.Context, service string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.need == nil {
		d.need = map[string]int{}
	}
	d.need[service]++
	if d.fail != nil && !d.Snapshot().HasService(service) {
		return d.fail
	}
	return ctx.Err()
}

// Needed is how often Need was called for a service.
func (d *Directory) Needed(service string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.need[service]
}

// Subscribe implements [lane.Directory]. changed is called from within Set.
func (d *Directory) Subscribe(changed func()) (cancel func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.subs == nil {
		d.subs = map[int]func(){}
	}
	id := d.next
	d.next++
	d.subs[id] = changed
	return func() {
		d.calls.Lock() // waits for a call that is under way
		defer d.calls.Unlock()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.subs, id)
	}
}

// Subscribers is how many subscriptions have not been canceled.
func (d *Directory) Subscribers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.subs)
}

// Process implements [lane.Directory].
func (d *Directory) Process() lane.Name {
	if p := d.process.Load(); p != nil {
		return *p
	}
	return lane.Baseline
}

// Used implements [lane.Directory].
func (d *Directory) Used(color lane.Name) {
	if !color.Valid() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.used == nil {
		d.used = map[lane.Name]int{}
	}
	d.used[color]++
}

// Uses is how often Used was called for a color.
func (d *Directory) Uses(color lane.Name) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used[color]
}
