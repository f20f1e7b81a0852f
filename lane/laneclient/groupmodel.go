package laneclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// readGroup is the [reader] of a group's views: it makes a consume.Lane, .Member, .Group or
// .Stored of what is put, also a .Stored of a cursor that is deleted; of a session, of which
// counts only that it is there, nothing.
func readGroup(e *Event) (obj any, known bool, err error) {
	if e.Kind == KindCursors {
		s, err := readCursor(e)
		return s, true, err
	}
	if e.Type == EventDelete {
		return nil, true, nil
	}
	switch e.Kind {
	case KindSessions:
		return nil, true, nil
	case KindLanes:
		var l Lane
		err = json.Unmarshal(e.Object, &l)
		l.Name = e.Name
		return LaneOf(&l), true, err
	case KindMembers:
		var m Member
		err = json.Unmarshal(e.Object, &m)
		_, m.Name, _ = strings.Cut(e.Name, "/")
		return MemberOf(&m), true, err
	case KindGroups:
		var g Group
		if err := json.Unmarshal(e.Object, &g); err != nil {
			return nil, true, err
		}
		out, err := groupOf(&g)
		return out, true, err
	default:
		return nil, false, nil
	}
}

func readCursor(e *Event) (consume.Stored, error) {
	var c Cursor
	if e.Type == EventPut {
		if err := json.Unmarshal(e.Object, &c); err != nil {
			return consume.Stored{}, err
		}
	}
	c.Name, c.Revision = e.Name, cmp.Or(c.Revision, e.Revision)
	return storedOf(&c)
}

// groupOf is what everybody may change of a group.
func groupOf(g *Group) (consume.Group, error) {
	out := consume.Group{Paused: g.Paused}
	if g.Reset == nil {
		return out, nil
	}
	out.Reset = &consume.Reset{ID: g.Reset.ID, Offsets: map[consume.Partition]int64{}}
	for name, offset := range g.Reset.Offsets {
		_, _, topic, index, ok := ParseCursorName("-/-/" + name)
		if !ok {
			return out, fmt.Errorf("reset: %q is no topic and partition", name)
		}
		out.Reset.Offsets[consume.Partition{Topic: topic, Index: int32(index)}] = offset
	}
	return out, nil
}

// groupModel is the changing state behind a group's updates. It belongs to one goroutine.
type groupModel struct {
	lanes    map[lane.Name]consume.Lane
	sessions map[string]bool
	members  map[string]consume.Member
	group    consume.Group
	records  map[consume.Partition]consume.Stored

	progress

	// What was not sent yet.
	lanesDirty, sessionsDirty, membersDirty, groupDirty bool

	fresh map[consume.Partition]bool // records
	sent  uint64                     // the revision that was told of
	view  *consume.View              // the last one
	built *consume.View              // the next one, if nothing has changed since it was made; nil: it has
	// lonely says that a record names a session that does not live, at a revision of which it
	// is not known yet whether it is complete.
	lonely bool
}

func newGroupModel() *groupModel {
	return &groupModel{
		lanes: map[lane.Name]consume.Lane{}, sessions: map[string]bool{}, members: map[string]consume.Member{},
		records: map[consume.Partition]consume.Stored{}, fresh: map[consume.Partition]bool{},
		lanesDirty: true, sessionsDirty: true, membersDirty: true, groupDirty: true,
	}
}

func (m *groupModel) size() int {
	return len(m.lanes) + len(m.sessions) + len(m.members) + len(m.records)
}

// apply takes one change in. Taking the same changes in again, in order, changes nothing.
func (m *groupModel) apply(ch change) error {
	switch ch.Type {
	case EventPut:
		if err := checkRoom(m.size()); err != nil {
			return err
		}
		m.put(&ch)
		m.built = nil
	case EventDelete:
		m.remove(&ch)
		m.built = nil
	default:
	}
	m.note(&ch)
	return nil
}

func (m *groupModel) put(ch *change) {
	switch o := ch.obj.(type) {
	case consume.Lane:
		name := lane.Name(ch.Name)
		if old, ok := m.lanes[name]; !ok || old != o {
			m.lanes[name], m.lanesDirty = o, true
		}
	case consume.Member:
		m.members[o.ID], m.membersDirty = o, true
	case consume.Group:
		m.group, m.groupDirty = o, true
	case consume.Stored:
		m.putRecord(o)
	default: // a session
		if !m.sessions[ch.Name] {
			m.sessions[ch.Name], m.sessionsDirty = true, true
		}
	}
}

func (m *groupModel) remove(ch *change) {
	switch ch.Kind {
	case KindLanes:
		delete(m.lanes, lane.Name(ch.Name))
		m.lanesDirty = true
	case KindSessions:
		delete(m.sessions, ch.Name)
		m.sessionsDirty = true
	case KindMembers:
		_, id, _ := strings.Cut(ch.Name, "/")
		delete(m.members, id)
		m.membersDirty = true
	case KindGroups:
		m.group, m.groupDirty = consume.Group{}, true
	case KindCursors:
		m.put(ch) // a record that is not there
	default:
	}
}

func (m *groupModel) putRecord(s consume.Stored) {
	if s.Revision < m.records[s.Partition].Revision {
		return
	}
	m.records[s.Partition], m.fresh[s.Partition] = s, true
	if s.Record == nil {
		return
	}
	alone := func(h consume.Holder) bool { return !h.None() && !m.sessions[h.Session] }
	m.lonely = m.lonely || alone(s.Record.Main)
	for _, e := range s.Record.Colors {
		m.lonely = m.lonely || alone(e.Holder)
	}
}

// follow makes m tell what it has over an older picture that was sent: all of it, and what is
// gone from it.
func (m *groupModel) follow(old *groupModel) {
	for p, s := range old.records {
		if _, ok := m.records[p]; !ok && s.Record != nil {
			m.records[p] = consume.Stored{Partition: p, Revision: max(m.complete, s.Revision)}
			m.fresh[p] = true
		}
	}
	m.view, m.sent = nil, 0
}

// viewDirty reports whether the next update needs another view than the last one.
func (m *groupModel) viewDirty() bool {
	return m.lanesDirty || m.sessionsDirty || m.membersDirty || m.groupDirty
}

// update is what has not been told yet; ok is false where there is nothing.
func (m *groupModel) update() (u consume.Update, ok bool) {
	u.Revision = m.complete
	if m.viewDirty() {
		u.View = m.nextView()
	}
	for p := range m.fresh {
		u.Records = append(u.Records, m.records[p])
	}
	slices.SortFunc(u.Records, func(a, b consume.Stored) int {
		return cmp.Or(cmp.Compare(a.Partition.Topic, b.Partition.Topic), cmp.Compare(a.Partition.Index, b.Partition.Index))
	})
	return u, u.View != nil || len(u.Records) > 0 || m.complete > m.sent
}

// nextView shares with the last view what has not changed.
func (m *groupModel) nextView() *consume.View {
	if m.built != nil && m.built.Revision == m.complete {
		return m.built
	}
	v := &consume.View{Revision: m.complete, Group: m.group}
	if m.view != nil {
		v.Lanes, v.Sessions, v.Members = m.view.Lanes, m.view.Sessions, m.view.Members
	}
	if m.lanesDirty || m.view == nil {
		v.Lanes = maps.Clone(m.lanes)
	}
	if m.sessionsDirty || m.view == nil {
		v.Sessions = maps.Clone(m.sessions)
	}
	if m.membersDirty || m.view == nil {
		v.Members = make([]consume.Member, 0, len(m.members))
		for _, id := range slices.Sorted(maps.Keys(m.members)) {
			v.Members = append(v.Members, m.members[id])
		}
	}
	m.built = v
	return v
}

// told notes that an update was sent.
func (m *groupModel) told(u *consume.Update) {
	m.sent = u.Revision
	for p := range m.fresh {
		if m.records[p].Record == nil {
			delete(m.records, p)
		}
	}
	clear(m.fresh)
	if u.View != nil {
		m.view, m.built = u.View, nil
		m.lanesDirty, m.sessionsDirty, m.membersDirty, m.groupDirty = false, false, false, false
	}
}
