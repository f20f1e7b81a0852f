package lanetest

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	maxHistory = 16_384 // changes that a watch can go back
	drainTime  = 30 * time.Second
	endedTime  = 7 * 24 * time.Hour
)

type ref struct {
	kind laneclient.Kind
	name string
}

// object is one object as it was written. obj is never changed.
type object struct {
	ref
	obj any
	rev uint64
}

func (o *object) body() json.RawMessage {
	b, err := json.Marshal(o.obj)
	if err != nil {
		panic("lanetest: an object cannot be encoded: " + err.Error())
	}
	return b
}

// record is one change in the history.
type record struct {
	ref
	rev           uint64
	before, after *object // nil: it was not, or is no longer, there
}

// lease ends its session when it is not renewed in time.
type lease struct {
	ttl   time.Duration
	timer *time.Timer
}

// registry is what all replicas share.
type registry struct {
	mu          sync.Mutex
	rev         uint64
	objects     map[ref]*object
	history     []record
	from        uint64 // history has every change after it
	leases      map[string]*lease
	generations map[string]uint64 // of lanes that are gone
	asked       map[string]uint64 // by session: how often it was renewed
	life        *time.Timer
	advanced    chan struct{} // closed, and replaced, at every change
	closed      bool

	consumption
}

func newRegistry() *registry {
	r := &registry{advanced: make(chan struct{})}
	r.clear()
	return r
}

// clear makes it the registry of another installation.
func (r *registry) clear() {
	for _, l := range r.leases {
		l.timer.Stop()
	}
	r.consumption = newConsumption()
	r.rev, r.from, r.history = 1, 1, nil
	r.objects, r.leases = map[ref]*object{}, map[string]*lease{}
	r.generations, r.asked = map[string]uint64{}, map[string]uint64{}
	r.wake()
}

// wake tells watches that there is something new. All methods that follow are called
// with mu held.
func (r *registry) wake() {
	close(r.advanced)
	r.advanced = make(chan struct{})
}

// mutation is one write of a transaction; obj nil: a deletion.
type mutation struct {
	ref
	obj any
}

// commit makes all mutations at one revision.
func (r *registry) commit(mutations ...mutation) {
	if len(mutations) == 0 {
		return
	}
	for _, m := range mutations {
		r.followLane(m)
	}
	r.commitAt(r.revise(), mutations...)
}

// commitAt is commit at a revision that consumption has given.
func (r *registry) commitAt(rev uint64, mutations ...mutation) {
	r.rev = rev
	for _, m := range mutations {
		before := r.objects[m.ref]
		if m.obj == nil {
			if before == nil {
				continue
			}
			delete(r.objects, m.ref)
			r.history = append(r.history, record{ref: m.ref, rev: r.rev, before: before})
			continue
		}
		laneclient.MetaOf(m.obj).Revision = r.rev
		after := &object{ref: m.ref, obj: m.obj, rev: r.rev}
		r.objects[m.ref] = after
		r.history = append(r.history, record{ref: m.ref, rev: r.rev, before: before, after: after})
	}
	if extra := len(r.history) - maxHistory; extra > 0 {
		r.compact(r.history[extra].rev)
	}
	r.wake()
	r.plan(0)
}

// compact forgets the history up to rev.
func (r *registry) compact(rev uint64) {
	at, _ := slices.BinarySearchFunc(r.history, rev+1, func(h record, rev uint64) int {
		if h.rev < rev {
			return -1
		}
		return 1
	})
	r.history, r.from = slices.Clone(r.history[at:]), max(r.from, rev)
	r.wake()
}

// list returns the objects of a kind, sorted by name.
func (r *registry) list(kind laneclient.Kind, keep func(*object) bool) []*object {
	return listIn(r.objects, kind, keep)
}

func listIn(objects map[ref]*object, kind laneclient.Kind, keep func(*object) bool) []*object {
	var list []*object
	for at, o := range objects {
		if at.kind == kind && (keep == nil || keep(o)) {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *object) int { return strings.Compare(a.name, b.name) })
	return list
}

func (r *registry) lane(name string) *laneclient.Lane {
	o := r.objects[ref{laneclient.KindLanes, name}]
	if o == nil {
		return nil
	}
	l, _ := o.obj.(*laneclient.Lane)
	return l
}

func alive(l *laneclient.Lane) bool {
	s := lane.State(l.State)
	return s == lane.Creating || s == lane.Ready
}

// livingChild names a lane that falls back to this one.
func (r *registry) livingChild(name string) string {
	for at, o := range r.objects {
		if l, ok := o.obj.(*laneclient.Lane); ok && l.Parent == name && alive(l) {
			return at.name
		}
	}
	return ""
}

// plan sets the timer to the next step in the life of a lane, or of what stands for a member
// that left, which is not sooner than least from now.
func (r *registry) plan(least time.Duration) {
	if r.life != nil {
		r.life.Stop()
	}
	if r.closed {
		return
	}
	var next time.Time
	for _, o := range r.objects {
		due := dueOf(o.obj)
		if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	if next.IsZero() {
		return
	}
	r.life = time.AfterFunc(max(least, time.Until(next)), r.live)
}

// dueOf is when time alone changes an object; zero: never.
func dueOf(obj any) time.Time {
	if m, ok := obj.(*laneclient.Member); ok {
		return m.Until
	}
	l, ok := obj.(*laneclient.Lane)
	switch {
	case !ok:
		return time.Time{}
	case l.State == string(lane.Draining):
		return l.DrainingAt.Add(drainTime)
	case l.State == string(lane.Ended):
		return l.EndedAt.Add(endedTime)
	case l.Held:
		return time.Time{}
	case l.WarnedAt.IsZero():
		return l.Expires.Add(-time.Duration(l.TTL) / 10)
	}
	return l.Expires
}

// live takes the steps that are due.
func (r *registry) live() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var steps []mutation
	for at, o := range r.objects {
		l, ok := o.obj.(*laneclient.Lane)
		if !ok || dueOf(l).IsZero() || now.Before(dueOf(l)) {
			continue
		}
		c := *l
		switch {
		case l.State == string(lane.Draining):
			c.State, c.EndedAt = string(lane.Ended), now
		case l.State == string(lane.Ended):
			r.generations[l.Name] = l.Generation
			steps = append(steps, mutation{at, nil})
			continue
		case l.WarnedAt.IsZero():
			c.WarnedAt = now
		case r.livingChild(l.Name) != "":
			continue
		default:
			c.State, c.DrainingAt = string(lane.Draining), now
		}
		steps = append(steps, mutation{at, &c})
	}
	steps = append(steps, r.allMembers()...)
	r.commit(steps...)
	if len(steps) == 0 {
		r.plan(100 * time.Millisecond) // a lane that its child keeps is looked at again
	}
}

// use notes that a lane was used.
func (r *registry) use(name string) {
	l := r.lane(name)
	if l == nil || !alive(l) || time.Since(l.LastUse) < time.Duration(l.TTL)/100 {
		return
	}
	c := *l
	c.LastUse, c.WarnedAt, c.State = time.Now(), time.Time{}, string(lane.Ready)
	if !c.Held {
		c.Expires = c.LastUse.Add(time.Duration(c.TTL))
	}
	r.commit(mutation{ref{laneclient.KindLanes, name}, &c})
}

// grant begins the lease of a new session.
func (r *registry) grant(ttl time.Duration) (id string) {
	id = r.openSession()
	r.leases[id] = &lease{ttl: ttl, timer: time.AfterFunc(ttl, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.end(id)
	})}
	return id
}

// end ends sessions and what is bound to them, at one revision.
func (r *registry) end(ids ...string) {
	var gone []mutation
	for _, id := range ids {
		l := r.leases[id]
		if l == nil {
			continue
		}
		l.timer.Stop()
		delete(r.leases, id)
		delete(r.asked, id)
		r.endSession(id)
		gone = append(gone, mutation{ref{laneclient.KindSessions, id}, nil})
	}
	for _, kind := range []laneclient.Kind{laneclient.KindInstances, laneclient.KindEngines} {
		bound := r.list(kind, func(o *object) bool {
			session := fieldsOf(o.obj)["session"][0]
			return session != "" && slices.Contains(ids, session)
		})
		for _, o := range bound {
			gone = append(gone, mutation{o.ref, nil})
		}
	}
	gone = append(gone, r.allMembers()...)
	r.commit(gone...)
}

// endOf ends the sessions that belong to an instance.
func (r *registry) endOf(instance, bound string) {
	var ids []string
	for at, o := range r.objects {
		if s, ok := o.obj.(*laneclient.Session); ok && (s.Instance == instance || at.name == bound) {
			ids = append(ids, at.name)
		}
	}
	r.end(ids...)
}

// pause stops the leases, as they are when nobody is there to count; resume begins
// them anew.
func (r *registry) pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.leases {
		l.timer.Stop()
	}
}

func (r *registry) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.leases {
		l.timer.Reset(l.ttl)
	}
}

// close stops all timers.
func (r *registry) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, l := range r.leases {
		l.timer.Stop()
	}
	if r.life != nil {
		r.life.Stop()
	}
}

// picture is the registry as it was.
type picture struct {
	objects map[ref]*object
	rev     uint64
}

func (r *registry) picture() *picture { return &picture{maps.Clone(r.objects), r.rev} }
