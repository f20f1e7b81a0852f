package laneclient

import (
	"iter"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/internal/cow"
)

// View is an immutable picture of the registry, as far as its client watches it.
// Nothing in it may be changed.
type View struct {
	Snapshot *lane.Snapshot // laid out for lane.Pick; never nil

	Lanes     Objects[Lane]     // by name, ended ones among them
	Services  Objects[Service]  // by name
	Instances Objects[Instance] // by "service/name": all, or those of needed services that have endpoints
	Routes    []Route           // by name; with Config.All only
	Rules     []Rule            // by priority, then by name; with Config.All only

	Revision   uint64    // registry revision that has been reached
	Stale      bool      // the control plane cannot be reached, or lags: this may be out of date
	StaleSince time.Time // when Stale became true; zero if it is not
	Held       int       // instances that are gone from the registry and kept for a while after an outage
	FromFile   bool      // read from Config.SnapshotFile; the control plane has not been reached since
}

// Objects are the objects of one kind in a [View], by name. They are immutable and share
// with those of the last view what is the same, so that a change costs the same however many
// there are. The zero Objects are none. Methods may be called at once.
type Objects[T any] struct{ byName cow.Map[string, T] }

// NewObjects makes Objects of a map, whose objects must not be changed afterwards.
func NewObjects[T any](byName map[string]*T) Objects[T] {
	var o Objects[T]
	for name, obj := range byName {
		o.byName.Put(name, obj)
	}
	o.byName.Seal()
	return o
}

// Get returns the object of that name, or nil. It must not be changed.
func (o Objects[T]) Get(name string) *T { return o.byName.Get(name) }

// Len is how many objects there are.
func (o Objects[T]) Len() int { return o.byName.Len() }

// All goes through the objects and their names, in no order.
func (o Objects[T]) All() iter.Seq2[string, *T] { return o.byName.All() }
