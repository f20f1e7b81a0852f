package lane

import (
	"slices"

	"github.com/laneway-dev/laneway/lane/internal/cow"
)

// State is where a lane or an instance stands in its life.
type State string

// States. An instance is ready or draining; a lane may be in any of them.
const (
	Creating State = "creating" // a lane: not in use yet; its instances count
	Ready    State = "ready"    // counts
	Draining State = "draining" // finishes what it has; gets nothing new
	Ended    State = "ended"    // a lane: over, kept so that its color can be explained
)

// TakesNew reports whether a lane in this state gets new requests: they go to its
// instances, and its color is not over. The zero State and unknown ones do not.
func (s State) TakesNew() bool { return s == Ready || s == Creating }

// Protocols that instances are commonly reached by. Others are allowed.
const (
	HTTP   = "http"
	GRPC   = "grpc"
	Thrift = "thrift"
	TCP    = "tcp"
)

// Lane is what routing needs to know of a lane.
type Lane struct {
	Name       Name
	Parent     Name   // zero: the baseline; ignored for strict lanes, which have none
	Generation uint64 // 1 and up; instances of another generation do not count
	State      State
}

// Endpoint is one address at which an instance is reached.
type Endpoint struct {
	Protocol  string // HTTP, GRPC, …
	Transport string // Thrift only: "header" (THeader), "framed" or "buffered"; else empty
	Address   string // host:port
}

// Instance is what routing needs to know of one running copy of a service.
type Instance struct {
	Service    string
	Name       string
	Lane       Name   // zero: of the baseline
	Generation uint64 // generation of the lane that it joined; 0 in the baseline
	Room       string
	State      State
	Weight     int // share of traffic among equals; below 1 counts as 1
	Endpoints  []Endpoint
}

// Target is an instance together with the endpoint by which it is to be reached.
// It is immutable and shared by all choices of a snapshot.
type Target struct {
	*Instance
	Endpoint
}

// Same reports whether other is the same endpoint of the same instance: of that service,
// name, protocol and address. Every snapshot has targets of its own, so that pointers say
// nothing of two that may be of different ones. What else there is to an instance, such as
// its state, weight and room, makes no difference. Nil is the same as nil alone.
func (t *Target) Same(other *Target) bool {
	if t == other {
		return true
	}
	return t != nil && other != nil && t.Name == other.Name && t.Address == other.Address &&
		t.Service == other.Service && t.Protocol == other.Protocol
}

// Input is what a [Snapshot] is built from. The builder keeps the slices and
// what they point to; the caller must not change them afterwards.
type Input struct {
	Revision  uint64      // registry revision that the rest stands for
	Room      string      // the reader's own room, which [Pick] prefers; may be empty
	Services  []string    // services that exist, also those without an instance
	Lanes     []Lane      // a later one of the same name wins
	Instances []*Instance // a later one of the same service and name wins
}

// Snapshot is an immutable picture of the registry, laid out for [Pick]. Build
// one with [NewSnapshot], and the next one from it with [Snapshot.With]; share it through
// an atomic pointer. The zero value and nil are snapshots that know nothing.
//
// A snapshot and those made from it share what is the same in them.
type Snapshot struct {
	revision uint64
	room     string
	lanes    cow.Map[Name, laneEntry]
	services cow.Map[string, serviceEntry]
	pools    int // how many pools there have been: the next one's id
}

// laneEntry is a lane, or the name of one that is not known but has instances already. Its
// parent is looked up by name, so that a change of one lane changes no other's entry.
type laneEntry struct {
	Lane
	known bool
	// sets are the lane's own targets, sorted by pool. A lane has a few services, so
	// that looking through them costs less than a hash would.
	sets []laneSet
	// members are the targets of all instances that are ready and name the lane, in the
	// order of sets; those of other generations too, since the lane may become theirs.
	members []*Target
}

type laneSet struct {
	pool int // pool.id
	targetSet
}

// serviceEntry is a service: it exists while it is named or has instances.
type serviceEntry struct {
	named     bool
	instances cow.Map[string, Instance] // by name, in whatever lane and state
	members   []*Target                 // those of the baseline that are ready, in the order of sets
	pools     []pool                    // one for each protocol that somebody is reached by
}

// pool holds the baseline's targets of one service for one protocol. Those of lanes are
// with the lanes.
type pool struct {
	id       int
	protocol string
	baseline targetSet
	lanes    cow.Map[Name, targetSet] // the lanes that have targets of it; the sets are theirs
}

// targetSet is sorted: own room first, then by instance name.
type targetSet struct {
	targets []*Target
	local   int // how many of them are of the own room
}

// NewSnapshot lays in out for [Pick]. Its cost is linear in the size of in;
// instances that cannot count (not ready, of an older generation, of a lane that
// is not known or takes nothing new) are left out of the sets here, so that Pick
// has nothing to check. Lanes without a name are passed over.
func NewSnapshot(in Input) *Snapshot {
	s := &Snapshot{room: in.Room}
	return s.With(Changes{Revision: in.Revision, Services: in.Services, Lanes: in.Lanes, Instances: in.Instances})
}

// known returns the lane of that name, or nil.
func (s *Snapshot) known(name Name) *laneEntry {
	if e := s.lanes.Get(name); e != nil && e.known {
		return e
	}
	return nil
}

// parent returns where a lane falls back to; nil is the baseline. A strict lane is nobody's
// parent.
func (s *Snapshot) parent(e *laneEntry) *laneEntry {
	if e.Parent == Baseline || e.Parent.Strict() {
		return nil
	}
	return s.known(e.Parent)
}

// pool returns the pool of a service and protocol, or nil.
func (s *Snapshot) pool(service, protocol string) *pool {
	e := s.services.Get(service)
	if e == nil {
		return nil
	}
	return e.pool(protocol)
}

func (e *serviceEntry) pool(protocol string) *pool {
	for i := range e.pools {
		if e.pools[i].protocol == protocol {
			return &e.pools[i]
		}
	}
	return nil
}

// setOf returns a lane's targets of a pool, or nil.
func setOf(sets []laneSet, pool int) *targetSet {
	for len(sets) > 8 { // halve, then look through what is left
		half := len(sets) / 2
		if sets[half].pool <= pool {
			sets = sets[half:]
		} else {
			sets = sets[:half]
		}
	}
	for i := range sets {
		if sets[i].pool == pool {
			return &sets[i].targetSet
		}
	}
	return nil
}

// distance is 0 for a target in the reader's room and 1 for any other. A reader
// that does not know its room is near to all.
func distance(t *Target, room string) int {
	if room == "" || t.Room == room {
		return 0
	}
	return 1
}

// Revision is the registry revision that the snapshot stands for.
func (s *Snapshot) Revision() uint64 {
	if s == nil {
		return 0
	}
	return s.revision
}

// At returns the same picture as of a later revision, at which nothing in it had changed.
// It shares all but the number with s, and works on a nil snapshot.
func (s *Snapshot) At(revision uint64) *Snapshot {
	if s == nil {
		return &Snapshot{revision: revision}
	}
	later := *s
	later.revision = revision
	return &later
}

// HasService reports whether the service exists, with or without an instance.
func (s *Snapshot) HasService(service string) bool {
	if s == nil {
		return false
	}
	return s.services.Get(service) != nil
}

// Services lists the services that exist, sorted.
func (s *Snapshot) Services() []string {
	if s == nil {
		return nil
	}
	names := make([]string, 0, s.services.Len())
	for name := range s.services.All() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Lane returns what is known of a lane.
func (s *Snapshot) Lane(name Name) (Lane, bool) {
	if s == nil {
		return Lane{}, false
	}
	e := s.known(name)
	if e == nil {
		return Lane{}, false
	}
	return e.Lane, true
}

// Targets calls yield for every target that counts for the service and protocol,
// in every lane and the baseline, in no order, until yield returns false.
// Balancers use it to keep one connection pool per target. It may be called on a
// nil snapshot.
func (s *Snapshot) Targets(service, protocol string) func(yield func(*Target) bool) {
	return func(yield func(*Target) bool) {
		if s == nil {
			return
		}
		p := s.pool(service, protocol)
		if p == nil {
			return
		}
		for _, t := range p.baseline.targets {
			if !yield(t) {
				return
			}
		}
		for _, set := range p.lanes.All() {
			for _, t := range set.targets {
				if !yield(t) {
					return
				}
			}
		}
	}
}
