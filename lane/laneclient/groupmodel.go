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

// groupChange is a decoded event of a group's watch.
type groupChange struct {
	Event
	lane   consume.Lane
	member consume.Member
	group  consume.Group
	stored consume.Stored
}

// decodeGroupChange reads the object of an event. known is false for what is passed over.
func decodeGroupChange(e Event) (ch groupChange, known bool, err error) {
	ch.Event = e
	ch.Object = nil
	switch e.Type {
	case EventSynced, EventProgress, EventCompacted:
		return ch, true, nil
	case EventPut, EventDelete:
	default:
		return ch, false, nil
	}
	if e.Kind == KindCursors {
		return decodeCursor(ch, e)
	}
	if e.Type == EventDelete {
		return ch, true, nil
	}
	switch e.Kind {
	case KindSessions:
	case KindLanes:
		var l Lane
		if err = json.Unmarshal(e.Object, &l); err == nil {
			l.Name = e.Name
			ch.lane = LaneOf(&l)
		}
	case KindMembers:
		var m Member
		if err = json.Unmarshal(e.Object, &m); err == nil {
			_, m.Name, _ = strings.Cut(e.Name, "/")
			ch.member = MemberOf(&m)
		}
	case KindGroups:
		var g Group
		if err = json.Unmarshal(e.Object, &g); err == nil {
			ch.group, err = groupOf(&g)
		}
	default:
		return ch, false, nil
	}
	if err != nil {
		return ch, true, fmt.Errorf("%s %q at revision %d cannot be read: %w", e.Kind, e.Name, e.Revision, err)
	}
	return ch, true, nil
}

func decodeCursor(ch groupChange, e Event) (groupChange, bool, error) {
	c := Cursor{Meta: Meta{Name: e.Name, Revision: e.Revision}}
	if e.Type == EventPut {
		if err := json.Unmarshal(e.Object, &c); err != nil {
			return ch, true, fmt.Errorf("%s %q at revision %d cannot be read: %w", e.Kind, e.Name, e.Revision, err)
		}
		c.Name = e.Name
		c.Revision = cmp.Or(c.Revision, e.Revision)
	}
	var err error
	if ch.stored, err = storedOf(&c); err != nil {
		return ch, true, fmt.Errorf("%s %q at revision %d cannot be read: %w", e.Kind, e.Name, e.Revision, err)
	}
	return ch, true, nil
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

	seen     uint64 // revision of the last line
	complete uint64 // every change up to here has been seen: seen's own may be half there
	synced   bool

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
func (m *groupModel) apply(ch *groupChange) error {
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
		m.remove(ch)
	default:
		return nil
	}
	m.built = nil
	// Before synced, puts come in no particular order of revisions.
	if m.synced && ch.Revision > m.seen {
		m.complete = max(m.complete, ch.Revision-1)
		m.seen = ch.Revision
	}
	return nil
}

func (m *groupModel) put(ch *groupChange) {
	switch ch.Kind {
	case KindLanes:
		name := lane.Name(ch.Name)
		if old, ok := m.lanes[name]; !ok || old != ch.lane {
			m.lanes[name], m.lanesDirty = ch.lane, true
		}
	case KindSessions:
		if !m.sessions[ch.Name] {
			m.sessions[ch.Name], m.sessionsDirty = true, true
		}
	case KindMembers:
		m.members[ch.member.ID], m.membersDirty = ch.member, true
	case KindGroups:
		m.group, m.groupDirty = ch.group, true
	case KindCursors:
		m.putRecord(ch.stored)
	default:
	}
}

func (m *groupModel) remove(ch *groupChange) {
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
		m.putRecord(ch.stored)
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
