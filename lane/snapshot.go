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
	lanes    map[Name]*laneEntry
	services map[string]struct{}
	pools    map[poolKey]*pool
}

type laneEntry struct {
	Lane
	// fallback is the chain to walk from this lane: itself, its parent and so on,
	// without the baseline. Lanes that take no new traffic are left out.
	fallback []Name
}

type poolKey struct{ service, protocol string }

// pool holds the targets of one service for one protocol.
type pool struct {
	baseline targetSet
	lanes    map[Name]targetSet
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
// closes.
func NewSnapshot(in Input) *Snapshot {
	s := &Snapshot{
		revision: in.Revision,
		room:     in.Room,
		lanes:    make(map[Name]*laneEntry, len(in.Lanes)),
		services: make(map[string]struct{}, len(in.Services)),
		pools:    map[poolKey]*pool{},
	}
	for _, l := range in.Lanes {
		s.lanes[l.Name] = &laneEntry{Lane: l}
	}
	for _, e := range s.lanes {
		e.fallback = s.chain(e)
	}
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
		for name, set := range p.lanes {
			set.sort(s.room)
			p.lanes[name] = set
		}
	}
	return s
}

// chain lists the lanes from e up to, without, the baseline.
func (s *Snapshot) chain(e *laneEntry) []Name {
	if e.Name.Strict() {
		return []Name{e.Name}
	}
	var names []Name
	for seen := map[Name]bool{}; e != nil && !seen[e.Name]; e = s.lanes[e.Parent] {
		if e.Name.Strict() { // a strict lane is nobody's parent
			break
		}
		seen[e.Name] = true
		if e.takesNew() {
			names = append(names, e.Name)
		}
	}
	return names
}

func (e *laneEntry) takesNew() bool { return e.State == Ready || e.State == Creating }

// counts reports whether an instance takes part in routing at all.
func (s *Snapshot) counts(i *Instance) bool {
	if i.State != Ready {
		return false
	}
	if i.Lane == Baseline {
		return true
	}
	e := s.lanes[i.Lane]
	return e != nil && e.takesNew() && e.Generation == i.Generation
}

func (s *Snapshot) add(i *Instance) {
	for n, e := range i.Endpoints {
		// The first endpoint of a protocol is the one that is used.
		first := slices.IndexFunc(i.Endpoints, func(o Endpoint) bool { return o.Protocol == e.Protocol })
		if first != n {
			continue
		}
		key := poolKey{i.Service, e.Protocol}
		p := s.pools[key]
		if p == nil {
			p = &pool{}
			s.pools[key] = p
		}
		t := &Target{Instance: i, Endpoint: e}
		if i.Lane == Baseline {
			p.baseline.targets = append(p.baseline.targets, t)
			continue
		}
		if p.lanes == nil {
			p.lanes = map[Name]targetSet{}
		}
		set := p.lanes[i.Lane]
		set.targets = append(set.targets, t)
		p.lanes[i.Lane] = set
	}
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
	e, ok := s.lanes[name]
	if !ok {
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
		for _, set := range p.lanes {
			for _, t := range set.targets {
				if !yield(t) {
					return
				}
			}
		}
	}
}
