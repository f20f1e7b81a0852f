package laneclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// maxObjects bounds what one view holds; the control plane stores far less.
const maxObjects = 2_000_000

// change is a decoded event.
type change struct {
	Event
	obj any // *Lane, *Service, *Instance, *Route or *Rule; nil unless it is a put
}

// decodeChange reads the object of an event. known is false for kinds and types of
// a newer control plane, which are passed over.
func decodeChange(e Event) (ch change, known bool, err error) {
	ch.Event = e
	switch e.Type {
	case EventSynced, EventProgress, EventCompacted:
		return ch, true, nil
	case EventPut, EventDelete:
	default:
		return ch, false, nil
	}
	switch e.Kind {
	case KindLanes:
		ch.obj = &Lane{}
	case KindServices:
		ch.obj = &Service{}
	case KindInstances:
		ch.obj = &Instance{}
	case KindRoutes:
		ch.obj = &Route{}
	case KindRules:
		ch.obj = &Rule{}
	case KindSessions: // this client's own: only its end is news
		if e.Type == EventPut {
			return ch, false, nil
		}
	default:
		return ch, false, nil
	}
	if e.Type == EventDelete {
		ch.obj = nil
		return ch, true, nil
	}
	if err := json.Unmarshal(e.Object, ch.obj); err != nil {
		return ch, true, fmt.Errorf("%s %q at revision %d cannot be read: %w", e.Kind, e.Name, e.Revision, err)
	}
	ch.Object = nil // the decoded form is what is kept
	return ch, true, nil
}

// held is an instance that the registry has lost and may get back.
type held struct {
	*Instance
	until time.Time
}

// model is the changing state behind views: what one watch has told. Objects in it
// are never changed, only replaced. It belongs to one goroutine.
type model struct {
	session  string // in which it was read: a revision means something only there
	selects  string // what was selected, joined
	lanes    map[string]Lane
	services map[string]Service
	inst     map[string]*Instance
	routes   map[string]*Route
	rules    map[string]*Rule
	held     map[string]held
	routed   map[string]*lane.Instance // what routing knows of inst and held; the same one until that changes

	seen     uint64 // revision of the last line
	complete uint64 // every change up to here has been seen: seen's own may be half there
	synced   bool

	// What has changed since the last view.
	routing, lanesDirty, servicesDirty, instDirty, routesDirty, rulesDirty bool
}

func newModel(session, selects string) *model {
	return &model{
		session: session, selects: selects,
		lanes: map[string]Lane{}, services: map[string]Service{}, inst: map[string]*Instance{},
		routes: map[string]*Route{}, rules: map[string]*Rule{}, held: map[string]held{},
		routed: map[string]*lane.Instance{},
	}
}

// clone is a model that goes on from m apart from it.
func (m *model) clone() *model {
	c := *m
	c.lanes, c.services, c.inst = maps.Clone(m.lanes), maps.Clone(m.services), maps.Clone(m.inst)
	c.routes, c.rules, c.held = maps.Clone(m.routes), maps.Clone(m.rules), maps.Clone(m.held)
	c.routed = maps.Clone(m.routed)
	c.synced = false
	return &c
}

func (m *model) size() int {
	return len(m.lanes) + len(m.services) + len(m.inst) + len(m.routes) + len(m.rules)
}

// apply takes one change in. Taking the same changes in again, in order, changes
// nothing.
func (m *model) apply(ch change) error {
	switch ch.Type {
	case EventSynced, EventProgress:
		m.seen, m.complete = max(m.seen, ch.Revision), max(m.complete, ch.Revision)
		m.synced = m.synced || ch.Type == EventSynced
		return nil
	case EventPut:
		if m.size() >= maxObjects {
			return fmt.Errorf("the control plane sends more than %d objects", maxObjects)
		}
		m.put(ch)
	case EventDelete:
		m.remove(ch.Kind, ch.Name)
	default:
		return nil
	}
	// Before synced, puts come in no particular order of revisions.
	if m.synced && ch.Revision > m.seen {
		m.complete = max(m.complete, ch.Revision-1)
		m.seen = ch.Revision
	}
	return nil
}

func (m *model) put(ch change) {
	switch o := ch.obj.(type) {
	case *Lane:
		old, had := m.lanes[ch.Name]
		m.lanes[ch.Name], m.lanesDirty = *o, true
		m.routing = m.routing || !had || old.Routing() != o.Routing()
	case *Service:
		if _, had := m.services[ch.Name]; !had {
			m.routing = true
		}
		m.services[ch.Name], m.servicesDirty = *o, true
	case *Instance:
		delete(m.held, ch.Name)
		m.inst[ch.Name], m.instDirty = o, true
		m.route(ch.Name, o)
	case *Route:
		m.routes[ch.Name], m.routesDirty = o, true
	case *Rule:
		m.rules[ch.Name], m.rulesDirty = o, true
	}
}

// route notes what routing needs to know of an instance, if that is new.
func (m *model) route(name string, i *Instance) {
	if r := i.Routing(); !reflect.DeepEqual(m.routed[name], r) {
		m.routed[name], m.routing = r, true
	}
}

func (m *model) remove(kind Kind, name string) {
	switch kind {
	case KindLanes:
		delete(m.lanes, name)
		m.routing, m.lanesDirty = true, true
	case KindServices:
		delete(m.services, name)
		m.routing, m.servicesDirty = true, true
	case KindInstances:
		delete(m.inst, name)
		delete(m.held, name)
		delete(m.routed, name)
		m.routing, m.instDirty = true, true
	case KindRoutes:
		delete(m.routes, name)
		m.routesDirty = true
	case KindRules:
		delete(m.rules, name)
		m.rulesDirty = true
	default:
	}
}

// hold keeps the instances of old that m does not have, until then: their sessions
// may have run out with the control plane away, and they are about to register
// again. Static ones have no session; those are gone on purpose.
func (m *model) hold(old *model, until time.Time) {
	keep := func(name string, i *Instance) {
		if _, here := m.inst[name]; !here && !i.Static && m.selected(i.Service) {
			m.held[name] = held{i, until}
			m.route(name, i)
		}
	}
	for name, i := range old.inst {
		keep(name, i)
	}
	for name, h := range old.held {
		keep(name, h.Instance)
	}
	m.routing, m.instDirty = true, true
}

// inherit keeps what old holds and m does not have.
func (m *model) inherit(old *model) {
	for name, h := range old.held {
		if _, here := m.inst[name]; !here {
			m.held[name] = h
			m.route(name, h.Instance)
		}
	}
}

// selected reports whether m would have been told of the service's instances.
func (m *model) selected(service string) bool {
	for s := range strings.SplitSeq(m.selects, selectSeparator) {
		if s == selectInstances || s == selectInstancesOf+service {
			return true
		}
	}
	return false
}

// release drops held instances whose time is over, and returns when the next one's
// is; zero: none is held.
func (m *model) release(now time.Time) (next time.Time) {
	for name, h := range m.held {
		switch {
		case !now.Before(h.until):
			delete(m.held, name)
			delete(m.routed, name)
			m.routing, m.instDirty = true, true
		case next.IsZero() || h.until.Before(next):
			next = h.until
		}
	}
	return next
}

func (m *model) dirty() bool {
	return m.routing || m.lanesDirty || m.servicesDirty || m.instDirty || m.routesDirty || m.rulesDirty
}

func (m *model) markAll() {
	m.routing, m.lanesDirty, m.servicesDirty = true, true, true
	m.instDirty, m.routesDirty, m.rulesDirty = true, true, true
}

// fill writes the changed parts into a new view, whose other parts are those of the
// last one.
func (m *model) fill(v *View, room string) {
	if m.lanesDirty {
		v.Lanes = maps.Clone(m.lanes)
	}
	if m.servicesDirty {
		v.Services = maps.Clone(m.services)
	}
	if m.instDirty {
		v.Instances = make(map[string]*Instance, len(m.inst)+len(m.held))
		for name, h := range m.held {
			v.Instances[name] = h.Instance
		}
		maps.Copy(v.Instances, m.inst)
		v.Held = len(m.held)
	}
	if m.routesDirty {
		v.Routes = sortedValues(m.routes, func(a, b Route) int { return cmp.Compare(a.Name, b.Name) })
	}
	if m.rulesDirty {
		v.Rules = sortedValues(m.rules, func(a, b Rule) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
		})
	}
	if m.routing {
		v.Snapshot = m.snapshot(room)
	}
	m.routing, m.lanesDirty, m.servicesDirty = false, false, false
	m.instDirty, m.routesDirty, m.rulesDirty = false, false, false
}

// snapshot lays the model out for routing.
func (m *model) snapshot(room string) *lane.Snapshot {
	in := lane.Input{
		Revision:  m.seen,
		Room:      room,
		Services:  slices.Collect(maps.Keys(m.services)),
		Lanes:     make([]lane.Lane, 0, len(m.lanes)),
		Instances: slices.Collect(maps.Values(m.routed)),
	}
	for _, l := range m.lanes {
		in.Lanes = append(in.Lanes, l.Routing())
	}
	return lane.NewSnapshot(in)
}

func sortedValues[T any](m map[string]*T, compare func(a, b T) int) []T {
	list := make([]T, 0, len(m))
	for _, v := range m {
		list = append(list, *v)
	}
	slices.SortFunc(list, compare)
	return list
}
