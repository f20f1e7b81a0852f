package lane

import (
	"cmp"
	"maps"
	"slices"
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
// one with [NewSnapshot]; share it through an atomic pointer. The zero value and
// nil are snapshots that know nothing.
type Snapshot struct {
	revision uint64
	room     string
	lanes    laneIndex
	services map[string]struct{}
	pools    map[poolKey]*pool
}

// laneEntry is a lane with its way up. The chain is a list of pointers, not a slice a
// lane: ten thousand lanes below each other would take as many slices of that length.
type laneEntry struct {
	Lane
	// parent is where this lane falls back to; nil: the baseline.
	parent *laneEntry
	// steps is how many different lanes there are from this one up, itself among them.
	// It ends the walk where parents run in a circle.
	steps int
	// sets are the lane's own targets, sorted by pool. A lane has a few services, so
	// that looking through them costs less than a hash would.
	sets []laneSet
}

type laneSet struct {
	pool int // pool.id
	targetSet
}

type poolKey struct{ service, protocol string }

// pool holds the baseline's targets of one service for one protocol. Those of lanes are
// with the lanes.
type pool struct {
	id       int
	baseline targetSet
	lanes    bool // some lane has a target of it
}

// targetSet is sorted: own room first, then by instance name.
type targetSet struct {
	targets []*Target
	local   int // how many of them are of the own room
}

// NewSnapshot lays in out for [Pick]. Its cost is linear in the size of in;
// instances that cannot count (not ready, of an older generation, of a lane that
// is not known or takes nothing new) are left out of the sets here, so that Pick
// has nothing to check. A parent chain that runs in a circle is cut where it
// closes; one that meets a strict lane ends before it, since such a lane is nobody's
// parent. Lanes without a name are passed over.
func NewSnapshot(in Input) *Snapshot {
	s := &Snapshot{
		revision: in.Revision,
		room:     in.Room,
		lanes:    newLaneIndex(in.Lanes),
		services: make(map[string]struct{}, len(in.Services)),
		pools:    map[poolKey]*pool{},
	}
	s.link()
	for _, name := range in.Services {
		s.services[name] = struct{}{}
	}
	latest := make(map[[2]string]*Instance, len(in.Instances))
	for _, i := range in.Instances {
		latest[[2]string{i.Service, i.Name}] = i
	}
	for _, i := range latest {
		s.services[i.Service] = struct{}{}
		if s.counts(i) {
			s.add(i)
		}
	}
	for _, p := range s.pools {
		p.baseline.sort(s.room)
	}
	for n := range s.lanes.entries {
		e := &s.lanes.entries[n]
		slices.SortFunc(e.sets, func(a, b laneSet) int { return cmp.Compare(a.pool, b.pool) })
		for i := range e.sets {
			e.sets[i].sort(s.room)
		}
	}
	return s
}

// link sets the parent and steps of every lane. It visits each once: a walk ends at the
// baseline, at a lane whose steps are known, or where it meets itself.
func (s *Snapshot) link() {
	for i := range s.lanes.entries {
		e := &s.lanes.entries[i]
		if parent := s.lanes.find(e.Parent); parent != nil && !parent.Name.Strict() {
			e.parent = parent
		}
	}
	var path []*laneEntry
	at := map[*laneEntry]int{} // positions in path
	for i := range s.lanes.entries {
		e := &s.lanes.entries[i]
		path = path[:0]
		clear(at)
		for ; e != nil && e.steps == 0; e = e.parent {
			if first, circle := at[e]; circle {
				for _, on := range path[first:] {
					on.steps = len(path) - first
				}
				path = path[:first]
				break
			}
			at[e] = len(path)
			path = append(path, e)
		}
		further := 0
		if e != nil {
			further = e.steps
		}
		for n, on := range path {
			on.steps = further + len(path) - n
		}
	}
}

// counts reports whether an instance takes part in routing at all.
func (s *Snapshot) counts(i *Instance) bool {
	if i.State != Ready {
		return false
	}
	if i.Lane == Baseline {
		return true
	}
	e := s.lanes.find(i.Lane)
	return e != nil && e.State.TakesNew() && e.Generation == i.Generation
}

func (s *Snapshot) add(i *Instance) {
	for n, endpoint := range i.Endpoints {
		// The first endpoint of a protocol is the one that is used.
		first := slices.IndexFunc(i.Endpoints, func(o Endpoint) bool { return o.Protocol == endpoint.Protocol })
		if first != n {
			continue
		}
		key := poolKey{i.Service, endpoint.Protocol}
		p := s.pools[key]
		if p == nil {
			p = &pool{id: len(s.pools)}
			s.pools[key] = p
		}
		set := &p.baseline
		if i.Lane != Baseline {
			set = s.lanes.find(i.Lane).add(p.id)
			p.lanes = true
		}
		set.targets = append(set.targets, &Target{Instance: i, Endpoint: endpoint})
	}
}

// add returns the set of a pool, which it makes if need be, while the sets are not sorted
// yet.
func (e *laneEntry) add(pool int) *targetSet {
	for i := range e.sets {
		if e.sets[i].pool == pool {
			return &e.sets[i].targetSet
		}
	}
	e.sets = append(e.sets, laneSet{pool: pool})
	return &e.sets[len(e.sets)-1].targetSet
}

// set returns the lane's targets of a pool, or nil.
func (e *laneEntry) set(pool int) *targetSet {
	sets := e.sets
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

func (t *targetSet) sort(room string) {
	slices.SortFunc(t.targets, func(a, b *Target) int {
		if c := cmp.Compare(distance(a, room), distance(b, room)); c != 0 {
			return c
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for _, target := range t.targets {
		t.local += 1 - distance(target, room)
	}
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
	_, ok := s.services[service]
	return ok
}

// Services lists the services that exist, sorted.
func (s *Snapshot) Services() []string {
	if s == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(s.services))
}

// Lane returns what is known of a lane.
func (s *Snapshot) Lane(name Name) (Lane, bool) {
	if s == nil {
		return Lane{}, false
	}
	e := s.lanes.find(name)
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
		p := s.pools[poolKey{service, protocol}]
		if p == nil {
			return
		}
		for _, t := range p.baseline.targets {
			if !yield(t) {
				return
			}
		}
		for n := range s.lanes.entries {
			e := &s.lanes.entries[n]
			set := e.set(p.id)
			if set == nil {
				continue
			}
			for _, t := range set.targets {
				if !yield(t) {
					return
				}
			}
		}
	}
}
