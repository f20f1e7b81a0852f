package lanetest

import (
	"crypto/rand"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// consumption is what a registry knows of groups beside their objects: who is a member, and
// the records and notes of cursors. Whatever happens to them is decided by a
// [consume.MemoryRegistry]. It is told of sessions and lanes, and it counts the revisions of
// everything, so that what it answers and what is watched are in one order. Guarded by the
// registry's mu.
type consumption struct {
	memory *consume.MemoryRegistry
	writer *consume.MemoryProcess // through which writes of all sessions go
	counts uint64                 // the revision that revise gave last
	era    string                 // what the ids of sessions begin with
	logs   map[string]string      // by group: its name in memory, which no other one ever has
}

func newConsumption() consumption {
	memory := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{})
	return consumption{
		memory: memory, writer: memory.Connect(), logs: map[string]string{},
		era: strings.ToLower(rand.Text()[:10]) + "-", // session ids are never used twice, over all registries
	}
}

// revise makes a new revision. In memory no group has the empty name.
func (c *consumption) revise() uint64 {
	c.counts = c.memory.Apply(&consume.Write{IfRevision: c.counts, Record: &consume.Record{}}).Revision
	return c.counts
}

// openSession gives the id of a new session.
func (c *consumption) openSession() string { return c.outer(c.memory.Open()) }

func (c *consumption) endSession(id string) { c.memory.End(c.inner(id)) }

// inner is the id that a session has in memory, where none that lives has the empty one.
func (c *consumption) inner(id string) string {
	in, ours := strings.CutPrefix(id, c.era)
	if !ours {
		return ""
	}
	return in
}

func (c *consumption) outer(id string) string {
	if id == "" {
		return "" // of a tombstone
	}
	return c.era + id
}

// followLane tells the memory of a lane what it has to know.
func (r *registry) followLane(m mutation) {
	if m.kind != laneclient.KindLanes {
		return
	}
	name, old := lane.Name(m.name), r.lane(m.name)
	now, _ := m.obj.(*laneclient.Lane)
	var err error
	switch {
	case now == nil:
		r.memory.ForgetLane(name)
	case old == nil || old.Generation != now.Generation:
		err = r.memory.CreateLane(name, lane.Name(now.Parent))
	case alive(old) && !alive(now):
		err = r.memory.EndLane(name)
	}
	if err != nil {
		panic("lanetest: lanes are known differently: " + err.Error())
	}
}

func (r *registry) group(name string) *laneclient.Group {
	o := r.objects[ref{laneclient.KindGroups, name}]
	if o == nil {
		return nil
	}
	g, _ := o.obj.(*laneclient.Group)
	return g
}

func (r *registry) groupGone(name string) *laneclient.Problem {
	return problem(http.StatusConflict, laneclient.ProblemGroup, "there is no group %q: create it first", name)
}

// putMember lets a member join its group, or changes it.
func (r *registry) putMember(m *laneclient.Member, at ref, session string) error {
	group, _, _ := strings.Cut(at.name, "/")
	switch {
	case session == "":
		return invalid(laneclient.SessionHeader, "is missing: a member is of the session that this header names, and ends with it")
	case m.Session != "" && m.Session != session:
		return invalid("session", "is not the one that the header %s names", laneclient.SessionHeader)
	case m.Group != "" && m.Group != group:
		return invalid("group", "is %q, but the path says %q", m.Group, group)
	}
	if err := checkTopics(m.Topics, laneclient.MaxMemberTopics); err != nil {
		return err
	}
	if r.leases[session] == nil {
		return sessionGone(http.StatusConflict, session)
	}
	g := r.group(group)
	switch {
	case g == nil:
		return r.groupGone(group)
	case m.Engine != "" && m.Engine != g.Engine:
		return invalid("engine", "is %q, but group %q is of %q", m.Engine, group, g.Engine)
	}
	_, writes, err := r.enterLane(m.Lane, true)
	if err != nil {
		return err
	}
	m.Engine, m.Group, m.Since, m.Until = g.Engine, group, time.Now(), time.Time{}
	if o := r.objects[at]; o != nil {
		if old, _ := o.obj.(*laneclient.Member); old.Session == session {
			m.Since = old.Since
		}
	}
	err = r.memory.Join(r.logs[group], consume.Member{
		ID: m.Name, Session: r.inner(session), Lane: lane.Name(m.Lane), Topics: m.Topics, Room: m.Room,
	})
	if err != nil {
		panic("lanetest: sessions or lanes are known differently: " + err.Error())
	}
	r.commit(append(writes, r.membersOf(group, m)...)...)
	return nil
}

// leave ends a member. With grace it leaves a tombstone.
func (r *registry) leave(m *laneclient.Member, at ref, session string, grace time.Duration) error {
	if m.Session == "" {
		return notFound(at) // it has left already
	}
	if err := notOf(at, m.Session, session); err != nil {
		return err
	}
	r.memory.Leave(r.logs[m.Group], m.Name, grace)
	stone := *m
	stone.Until = time.Now().Add(grace) // not before it is over in memory
	r.commit(r.membersOf(m.Group, &stone)...)
	return nil
}

// graceOf reads the one parameter that the request to delete a member may have.
func graceOf(k kind, q url.Values) (time.Duration, error) {
	var grace laneclient.Duration
	for key := range q {
		if key != laneclient.GraceParam || k.name != laneclient.KindMembers {
			return 0, invalid(key, "is no parameter of this request")
		}
		if err := grace.UnmarshalText([]byte(q.Get(key))); err != nil {
			return 0, invalid(key, "%v", err)
		}
	}
	if d := time.Duration(grace); d < 0 || d > laneclient.MaxGrace {
		return 0, invalid(laneclient.GraceParam, "is %s: want 0s to %s", d, laneclient.MaxGrace)
	}
	return time.Duration(grace), nil
}

// membersOf is what has to be written so that the members of a group are those in memory. one
// is what else there is to show of a member that has come or left, nil: nobody has.
func (r *registry) membersOf(group string, one *laneclient.Member) (writes []mutation) {
	gone := map[string]*object{}
	for _, o := range r.list(laneclient.KindMembers, func(o *object) bool { return chosen(o, "group", group) }) {
		gone[o.name] = o
	}
	for _, m := range r.memory.View(r.logs[group]).Members {
		at := ref{laneclient.KindMembers, group + "/" + m.ID}
		now, old := one, (*laneclient.Member)(nil)
		if o := gone[at.name]; o != nil {
			old, _ = o.obj.(*laneclient.Member)
			delete(gone, at.name)
		}
		if now == nil || now.Name != m.ID {
			now = old
		}
		shown := *now
		shown.Session, shown.Generation, shown.Topics = r.outer(m.Session), m.Generation, m.Topics
		if old != nil {
			shown.Revision = old.Revision
		}
		if old == nil || !reflect.DeepEqual(&shown, old) {
			writes = append(writes, mutation{at, &shown})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		writes = append(writes, mutation{gone[name].ref, nil})
	}
	return writes
}

// allMembers is membersOf for all groups.
func (r *registry) allMembers() (writes []mutation) {
	for _, group := range slices.Sorted(maps.Keys(r.logs)) {
		writes = append(writes, r.membersOf(group, nil)...)
	}
	return writes
}

// putEngine says where an engine is found. One that is written in a session ends with it, and
// nobody else writes it meanwhile.
func (r *registry) putEngine(e *laneclient.Engine, at ref, session string) error {
	switch {
	case e.Scheme == "":
		return invalid("scheme", "is missing: want nats, rocketmq, kafka, or another word")
	case e.Address == "" || strings.Contains(e.Address, "@"):
		return invalid("address", "want how clients reach the engine, without credentials")
	case e.Session != "" && e.Session != session:
		return invalid("session", "is not the one that the header %s names", laneclient.SessionHeader)
	}
	e.Session, e.Since = session, time.Now()
	if o := r.objects[at]; o != nil {
		old, _ := o.obj.(*laneclient.Engine)
		if old.Session != session {
			p := problem(http.StatusConflict, laneclient.ProblemExists, "engine %q is there already, at %s, and is not yours", old.Name, old.Address)
			p.Current = o.body()
			return p
		}
		e.Since = old.Since
	}
	if session != "" && r.leases[session] == nil {
		return sessionGone(http.StatusConflict, session)
	}
	r.commit(mutation{at, e})
	return nil
}

func (r *registry) putTopic(t *laneclient.Topic, at ref) error {
	if err := checkTopic(t); err != nil {
		return err
	}
	if o := r.objects[at]; o != nil {
		old, _ := o.obj.(*laneclient.Topic)
		switch {
		case t.Engine != old.Engine:
			return invalid("engine", "is fixed at creation and is %q", old.Engine)
		case t.Partitions < old.Partitions:
			return invalid("partitions", "is %d, but there are %d, which are never taken away", t.Partitions, old.Partitions)
		}
	}
	r.commit(mutation{at, t})
	return nil
}

func (r *registry) putGroup(g *laneclient.Group, at ref) error {
	if err := checkGroup(g); err != nil {
		return err
	}
	if old := r.group(g.Name); old != nil && old.Engine != g.Engine {
		return invalid("engine", "is fixed at creation and is %q", old.Engine)
	}
	for n, name := range g.Topics {
		o := r.objects[ref{laneclient.KindTopics, name}]
		if o == nil {
			continue
		}
		if t, _ := o.obj.(*laneclient.Topic); t.Engine != g.Engine {
			return invalid(fmt.Sprintf("topics[%d]", n), "topic %q is of engine %q, not of %q", name, t.Engine, g.Engine)
		}
	}
	if r.logs[g.Name] == "" {
		r.logs[g.Name] = fmt.Sprintf("%s since %d", g.Name, r.rev)
	}
	r.commit(mutation{at, g})
	return nil
}

// clearGroup is what goes with a group, which nobody may be a member of.
func (r *registry) clearGroup(g *laneclient.Group) (gone []mutation, err error) {
	of := func(o *object) bool { return chosen(o, "group", g.Name) }
	for _, o := range r.list(laneclient.KindCursors, of) {
		gone = append(gone, mutation{o.ref, nil})
	}
	for _, o := range r.list(laneclient.KindMembers, of) {
		if m, _ := o.obj.(*laneclient.Member); m.Session != "" {
			return nil, problem(http.StatusConflict, "", "group %q has members, %s among them: stop them first", g.Name, o.name)
		}
		gone = append(gone, mutation{o.ref, nil})
	}
	delete(r.logs, g.Name)
	return gone, nil
}
