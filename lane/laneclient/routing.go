package laneclient

import (
	"maps"
	"reflect"

	"github.com/laneway-dev/laneway/lane"
)

// routing is the part of a model that routing knows of: the snapshot of the last view, and
// what has changed since then.
type routing struct {
	last      *lane.Snapshot            // nil: the next one is built from the whole
	instances map[string]*lane.Instance // of the model's, by their names there; the same one until that changes

	// Since last, by the names that the objects have for routing; nil is gone.
	lanesSince     map[lane.Name]*Lane
	servicesSince  map[string]bool
	instancesSince map[lane.InstanceID]*lane.Instance
}

func newRouting() routing {
	r := routing{instances: map[string]*lane.Instance{}}
	r.begin()
	return r
}

// begin forgets what has changed.
func (r *routing) begin() {
	r.lanesSince, r.servicesSince, r.instancesSince = map[lane.Name]*Lane{}, map[string]bool{}, map[lane.InstanceID]*lane.Instance{}
}

func (r *routing) clone() routing {
	c := *r
	c.instances = maps.Clone(r.instances)
	c.lanesSince, c.servicesSince, c.instancesSince = maps.Clone(r.lanesSince), maps.Clone(r.servicesSince), maps.Clone(r.instancesSince)
	return c
}

// lane notes that a lane was replaced; old and now may be nil. The use of a lane is
// nothing that routing knows of.
func (r *routing) lane(old, now *Lane) {
	if old != nil && now != nil && old.Routing() == now.Routing() {
		return
	}
	if old != nil {
		r.lanesSince[lane.Name(old.Name)] = nil
	}
	if now != nil {
		r.lanesSince[lane.Name(now.Name)] = now
	}
}

// service notes whether a service was there and is.
func (r *routing) service(name string, was, is bool) {
	if was != is {
		r.servicesSince[name] = is
	}
}

// instance notes that the instance of that name in the model was replaced, or has gone
// (nil).
func (r *routing) instance(name string, now *Instance) {
	old := r.instances[name]
	if now == nil {
		delete(r.instances, name)
		if old != nil {
			r.instancesSince[idOf(old)] = nil
		}
		return
	}
	i := now.Routing()
	if reflect.DeepEqual(old, i) {
		return
	}
	if old != nil {
		r.instancesSince[idOf(old)] = nil
	}
	r.instances[name], r.instancesSince[idOf(i)] = i, i
}

func idOf(i *lane.Instance) lane.InstanceID {
	return lane.InstanceID{Service: i.Service, Name: i.Name}
}

// snapshot is that of the model as it is now; the last one, where nothing has changed that
// routing knows of.
func (r *routing) snapshot(m *model, room string) *lane.Snapshot {
	switch {
	case r.last == nil:
		r.last = r.whole(m, room)
	case len(r.lanesSince)+len(r.servicesSince)+len(r.instancesSince) > 0:
		r.last = r.last.With(r.changes(m.seen))
	default:
		return r.last
	}
	r.begin()
	return r.last
}

func (r *routing) changes(revision uint64) lane.Changes {
	c := lane.Changes{Revision: revision}
	for name, l := range r.lanesSince {
		if l != nil {
			c.Lanes = append(c.Lanes, l.Routing())
		} else {
			c.LanesGone = append(c.LanesGone, name)
		}
	}
	for name, is := range r.servicesSince {
		if is {
			c.Services = append(c.Services, name)
		} else {
			c.ServicesGone = append(c.ServicesGone, name)
		}
	}
	for id, i := range r.instancesSince {
		if i != nil {
			c.Instances = append(c.Instances, i)
		} else {
			c.InstancesGone = append(c.InstancesGone, id)
		}
	}
	return c
}

// whole lays all of a model out for routing.
func (r *routing) whole(m *model, room string) *lane.Snapshot {
	in := lane.Input{
		Revision: m.seen, Room: room,
		Services: make([]string, 0, m.services.Len()), Lanes: make([]lane.Lane, 0, m.lanes.Len()),
		Instances: make([]*lane.Instance, 0, len(r.instances)),
	}
	for name := range m.services.All() {
		in.Services = append(in.Services, name)
	}
	for _, l := range m.lanes.All() {
		in.Lanes = append(in.Lanes, l.Routing())
	}
	for _, i := range r.instances {
		in.Instances = append(in.Instances, i)
	}
	return lane.NewSnapshot(in)
}
