package lane

import (
	"cmp"
	"slices"
)

// InstanceID names an instance: its name is unique in its service.
type InstanceID struct{ Service, Name string }

// Changes are what has happened to a registry since a [Snapshot] of it. What is gone is
// taken out first, then the rest put in. The builder keeps the slices of new instances and
// what they point to; the caller must not change them afterwards.
type Changes struct {
	Revision      uint64       // of the registry, with the changes
	ServicesGone  []string     // services that exist no longer, unless they have instances
	Services      []string     // services that exist, also without an instance
	LanesGone     []Name       // lanes that are not known any more
	Lanes         []Lane       // new or changed lanes; a later one of the same name wins
	InstancesGone []InstanceID // instances that have left
	Instances     []*Instance  // new or changed instances; a later one of the same service and name wins
}

// With returns the snapshot with the changes made, as [NewSnapshot] would build it from the
// whole. Its cost is that of the changes: it grows with how many targets the lanes have
// that are named, or the baselines of the services, and hardly with what else there is.
// Target sets in which nothing has changed are the same in both. It works on a nil snapshot,
// and may be called at once.
func (s *Snapshot) With(c Changes) *Snapshot {
	next := &Snapshot{}
	if s != nil {
		*next = *s
	}
	next.revision = c.Revision
	e := &edit{Snapshot: next, laneEdits: map[Name]*laneEdit{}, serviceEdits: map[string]*serviceEdit{}}
	for _, name := range c.ServicesGone {
		e.service(name).named = false
	}
	for _, name := range c.Services {
		e.service(name).named = true
	}
	for _, name := range c.LanesGone {
		l := e.lane(name)
		l.known, l.Lane = false, Lane{Name: name}
	}
	for _, of := range c.Lanes {
		if of.Name != Baseline {
			l := e.lane(of.Name)
			l.known, l.Lane = true, of
		}
	}
	for _, id := range c.InstancesGone {
		e.remove(id)
	}
	for _, i := range c.Instances {
		e.put(i)
	}
	e.finish()
	return next
}

// edit is a snapshot in the making. Entries that change are copied first: those of the last
// snapshot belong to it.
type edit struct {
	*Snapshot
	laneEdits    map[Name]*laneEdit
	serviceEdits map[string]*serviceEdit
}

type laneEdit struct {
	laneEntry
	memberEdit
}

type serviceEdit struct {
	serviceEntry
	memberEdit
}

// memberEdit is what happens to the members of a lane, or of a service's baseline.
type memberEdit struct {
	left map[*Instance]struct{}
	came []*Target
}

func (e *edit) lane(name Name) *laneEdit {
	l := e.laneEdits[name]
	if l == nil {
		l = &laneEdit{laneEntry: laneEntry{Lane: Lane{Name: name}}}
		if old := e.lanes.Get(name); old != nil {
			l.laneEntry = *old
		}
		e.laneEdits[name] = l
	}
	return l
}

func (e *edit) service(name string) *serviceEdit {
	v := e.serviceEdits[name]
	if v == nil {
		v = &serviceEdit{}
		if old := e.services.Get(name); old != nil {
			v.serviceEntry = *old
			v.pools = slices.Clone(old.pools)
		}
		e.serviceEdits[name] = v
	}
	return v
}

// members is where an instance is one.
func (e *edit) members(i *Instance) *memberEdit {
	if i.Lane == Baseline {
		return &e.service(i.Service).memberEdit
	}
	return &e.lane(i.Lane).memberEdit
}

func (e *edit) remove(id InstanceID) {
	instances := &e.service(id.Service).instances
	if old := instances.Get(id.Name); old != nil {
		instances.Delete(id.Name)
		e.members(old).leave(old)
	}
}

func (e *edit) put(i *Instance) {
	v := e.service(i.Service)
	old := v.instances.Get(i.Name)
	if old == i {
		return
	}
	if old != nil {
		e.members(old).leave(old)
	}
	m := e.members(i)
	if _, back := m.left[i]; back {
		another := *i
		i = &another
	}
	v.instances.Put(i.Name, i)
	m.join(i)
}

func (m *memberEdit) leave(i *Instance) {
	if m.left == nil {
		m.left = map[*Instance]struct{}{}
	}
	m.left[i] = struct{}{}
}

// join adds the targets of an instance, if it is ready: as it is it can never count else.
func (m *memberEdit) join(i *Instance) {
	if i.State != Ready {
		return
	}
	for n, endpoint := range i.Endpoints {
		// The first endpoint of a protocol is the one that is used.
		if slices.IndexFunc(i.Endpoints, func(o Endpoint) bool { return o.Protocol == endpoint.Protocol }) == n {
			m.came = append(m.came, &Target{Instance: i, Endpoint: endpoint})
		}
	}
}

// apply returns the members as they are afterwards.
func (m *memberEdit) apply(old []*Target, room string) []*Target {
	if len(m.left)+len(m.came) == 0 {
		return old
	}
	before := func(a, b *Target) int {
		return cmp.Or(cmp.Compare(distance(a, room), distance(b, room)), cmp.Compare(a.Name, b.Name))
	}
	slices.SortStableFunc(m.came, before)
	out := make([]*Target, 0, len(old)+len(m.came))
	came := m.came
	for len(old)+len(came) > 0 {
		from := &came
		if len(came) == 0 || len(old) > 0 && before(old[0], came[0]) <= 0 {
			from = &old
		}
		t := (*from)[0]
		*from = (*from)[1:]
		if _, gone := m.left[t.Instance]; !gone {
			out = append(out, t)
		}
	}
	return slices.Clip(out)
}

// finish writes what was edited into the snapshot. Lanes come first: they change what is
// known of services.
func (e *edit) finish() {
	for name, l := range e.laneEdits {
		e.finishLane(name, l)
	}
	for name, v := range e.serviceEdits {
		e.finishService(name, v)
	}
	e.lanes.Seal()
	e.services.Seal()
}

func (e *edit) finishLane(name Name, l *laneEdit) {
	old := l.sets
	l.members = l.apply(l.members, e.room)
	l.sets = e.setsOf(l)
	for i := range l.sets {
		set := &l.sets[i]
		if before := setOf(old, set.pool); before != nil && slices.Equal(set.targets, before.targets) {
			set.targets = before.targets
			continue
		}
		t := set.targets[0]
		e.service(t.Service).pool(t.Protocol).lanes.Put(name, &set.targetSet)
	}
	for i := range old {
		if setOf(l.sets, old[i].pool) == nil {
			t := old[i].targets[0]
			e.service(t.Service).pool(t.Protocol).lanes.Delete(name)
		}
	}
	if !l.known && len(l.members) == 0 {
		e.lanes.Delete(name)
		return
	}
	entry := l.laneEntry
	e.lanes.Put(name, &entry)
}

// setsOf sorts those members of a lane that count into sets.
func (e *edit) setsOf(l *laneEdit) []laneSet {
	if !l.State.TakesNew() { // as that of a lane which is not known
		return nil
	}
	type placed struct {
		pool int
		*Target
	}
	counts := make([]placed, 0, len(l.members))
	sets := 0
	for _, t := range l.members {
		if t.Generation == l.Generation {
			counts = append(counts, placed{e.poolID(t), t})
		}
	}
	slices.SortStableFunc(counts, func(a, b placed) int { return cmp.Compare(a.pool, b.pool) })
	for i := range counts {
		if i == 0 || counts[i].pool != counts[i-1].pool {
			sets++
		}
	}
	targets := make([]*Target, len(counts)) // of all sets, in one piece
	out := make([]laneSet, 0, sets)
	for i, first := 0, 0; i < len(counts); i++ {
		targets[i] = counts[i].Target
		if i+1 == len(counts) || counts[i+1].pool != counts[i].pool {
			out = append(out, laneSet{counts[i].pool, newTargetSet(targets[first:i+1:i+1], e.room)})
			first = i + 1
		}
	}
	return out
}

// poolID is the id of the pool that t belongs to, which is made if need be.
func (e *edit) poolID(t *Target) int {
	if e.serviceEdits[t.Service] == nil { // it is not copied only to be looked at
		if p := e.pool(t.Service, t.Protocol); p != nil {
			return p.id
		}
	}
	v := e.service(t.Service)
	if p := v.pool(t.Protocol); p != nil {
		return p.id
	}
	e.pools++
	v.pools = append(v.pools, pool{id: e.pools, protocol: t.Protocol})
	return e.pools
}

func (e *edit) finishService(name string, v *serviceEdit) {
	before := v.members
	v.members = v.apply(before, e.room)
	if len(v.left)+len(v.came) > 0 {
		for _, t := range v.members {
			e.poolID(t)
		}
		for i := range v.pools {
			v.pools[i].renew(v.members, e.room)
		}
	}
	v.pools = slices.DeleteFunc(v.pools, func(p pool) bool { return len(p.baseline.targets)+p.lanes.Len() == 0 })
	for i := range v.pools {
		v.pools[i].lanes.Seal()
	}
	v.instances.Seal()
	if !v.named && v.instances.Len() == 0 {
		e.services.Delete(name)
		return
	}
	entry := v.serviceEntry
	e.services.Put(name, &entry)
}

// renew takes the baseline's targets from the members of all protocols.
func (p *pool) renew(members []*Target, room string) {
	targets := make([]*Target, 0, len(members))
	for _, t := range members {
		if t.Protocol == p.protocol {
			targets = append(targets, t)
		}
	}
	if !slices.Equal(targets, p.baseline.targets) {
		p.baseline = newTargetSet(slices.Clip(targets), room)
	}
}

// newTargetSet is that of targets which are sorted already.
func newTargetSet(targets []*Target, room string) targetSet {
	local := 0
	for local < len(targets) && distance(targets[local], room) == 0 {
		local++
	}
	return targetSet{targets, local}
}
