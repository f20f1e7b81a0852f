package laneclient

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane/internal/cow"
)

// readViewed is the [reader] of a view: it makes a *Lane, *Service, *Instance, *Route or
// *Rule of what is put, and nothing of what is deleted.
func readViewed(e *Event) (obj any, known bool, err error) {
	switch e.Kind {
	case KindLanes:
		obj = &Lane{}
	case KindServices:
		obj = &Service{}
	case KindInstances:
		obj = &Instance{}
	case KindRoutes:
		obj = &Route{}
	case KindRules:
		obj = &Rule{}
	case KindSessions: // this client's own: only its end is news
		return nil, e.Type == EventDelete, nil
	default:
		return nil, false, nil
	}
	if e.Type == EventDelete {
		return nil, true, nil
	}
	return obj, true, json.Unmarshal(e.Object, obj)
}

// model is the changing state behind views: what one watch has told. Objects in it
// are never changed, only replaced. It belongs to one goroutine.
type model struct {
	session  string // in which it was read: a revision means something only there
	selects  string // what was selected, joined
	lanes    cow.Map[string, Lane]
	services cow.Map[string, Service]
	inst     cow.Map[string, Instance] // also those that are held
	routes   map[string]*Route
	rules    map[string]*Rule
	held     map[string]time.Time // instances that the registry has lost and may get back until then

	progress

	// What has changed since the last view.
	changed, routesDirty, rulesDirty bool

	routing routing
}

func newModel(session, selects string) *model {
	return &model{
		session: session, selects: selects,
		routes: map[string]*Route{}, rules: map[string]*Rule{}, held: map[string]time.Time{},
		routing: newRouting(),
	}
}

// clone is a model that goes on from m apart from it.
func (m *model) clone() *model {
	c := *m
	c.lanes, c.services, c.inst = m.lanes.Clone(), m.services.Clone(), m.inst.Clone()
	c.routes, c.rules, c.held = maps.Clone(m.routes), maps.Clone(m.rules), maps.Clone(m.held)
	c.routing = m.routing.clone()
	c.synced = false
	return &c
}

func (m *model) size() int {
	return m.lanes.Len() + m.services.Len() + m.inst.Len() + len(m.routes) + len(m.rules)
}

// apply takes one change in. Taking the same changes in again, in order, changes
// nothing.
func (m *model) apply(ch change) error {
	switch ch.Type {
	case EventPut:
		if err := checkRoom(m.size()); err != nil {
			return err
		}
		m.put(ch)
	case EventDelete:
		m.remove(ch.Kind, ch.Name)
	default:
	}
	m.note(&ch)
	return nil
}

func (m *model) put(ch change) {
	m.changed = true
	switch o := ch.obj.(type) {
	case *Lane:
		m.routing.lane(m.lanes.Get(ch.Name), o)
		m.lanes.Put(ch.Name, o)
	case *Service:
		m.routing.service(ch.Name, m.services.Get(ch.Name) != nil, true)
		m.services.Put(ch.Name, o)
	case *Instance:
		delete(m.held, ch.Name)
		m.putInstance(ch.Name, o)
	case *Route:
		m.routes[ch.Name], m.routesDirty = o, true
	case *Rule:
		m.rules[ch.Name], m.rulesDirty = o, true
	}
}

func (m *model) putInstance(name string, i *Instance) {
	m.routing.instance(name, i)
	m.inst.Put(name, i)
	m.changed = true
}

func (m *model) removeInstance(name string) {
	m.routing.instance(name, nil)
	m.inst.Delete(name)
	delete(m.held, name)
	m.changed = true
}

func (m *model) remove(kind Kind, name string) {
	m.changed = true
	switch kind {
	case KindLanes:
		m.routing.lane(m.lanes.Get(name), nil)
		m.lanes.Delete(name)
	case KindServices:
		m.routing.service(name, m.services.Get(name) != nil, false)
		m.services.Delete(name)
	case KindInstances:
		m.removeInstance(name)
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
	for name, i := range old.inst.All() {
		if m.inst.Get(name) == nil && !i.Static && m.selected(i.Service) {
			m.putInstance(name, i)
			m.held[name] = until
		}
	}
}

// inherit keeps what old holds and m does not have.
func (m *model) inherit(old *model) {
	for name, until := range old.held {
		if m.inst.Get(name) == nil {
			m.putInstance(name, old.inst.Get(name))
			m.held[name] = until
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
	for name, until := range m.held {
		switch {
		case !now.Before(until):
			m.removeInstance(name)
		case next.IsZero() || until.Before(next):
			next = until
		}
	}
	return next
}

func (m *model) dirty() bool { return m.changed }

// markAll lets nothing of the last view stay.
func (m *model) markAll() { m.changed, m.routesDirty, m.rulesDirty = true, true, true }

// fill writes what has changed into a new view, whose other parts are those of the last
// one.
func (m *model) fill(v *View, room string) {
	v.Lanes.byName, v.Services.byName, v.Instances.byName = m.lanes.Clone(), m.services.Clone(), m.inst.Clone()
	v.Held = len(m.held)
	if m.routesDirty {
		v.Routes = sortedValues(m.routes, func(a, b Route) int { return cmp.Compare(a.Name, b.Name) })
	}
	if m.rulesDirty {
		v.Rules = sortedValues(m.rules, func(a, b Rule) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
		})
	}
	v.Snapshot = m.routing.snapshot(m, room)
	m.changed, m.routesDirty, m.rulesDirty = false, false, false
}

func sortedValues[T any](m map[string]*T, compare func(a, b T) int) []T {
	list := make([]T, 0, len(m))
	for _, v := range m {
		list = append(list, *v)
	}
	slices.SortFunc(list, compare)
	return list
}
