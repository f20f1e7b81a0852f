package laneclient

import (
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// View is an immutable picture of the registry, as far as its client watches it.
// Nothing in it may be changed.
type View struct {
	Snapshot *lane.Snapshot // laid out for lane.Pick; never nil

	Lanes     map[string]Lane      // by name, ended ones among them
	Services  map[string]Service   // by name
	Instances map[string]*Instance // by "service/name": all, or those of needed services
	Routes    []Route              // by name; with Config.All only
	Rules     []Rule               // by priority, then by name; with Config.All only

	Revision   uint64    // registry revision that has been reached
	Stale      bool      // the control plane cannot be reached, or lags: this may be out of date
	StaleSince time.Time // when Stale became true; zero if it is not
	Held       int       // instances that are gone from the registry and kept for a while after an outage
	FromFile   bool      // read from Config.SnapshotFile; the control plane has not been reached since
}
