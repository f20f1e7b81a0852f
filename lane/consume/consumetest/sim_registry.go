package consumetest

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// registry is the plainest that keeps its word: it is one map for each kind of thing, and
// does one write after the other. What goes wrong on the way to it and back is the network's.
type registry struct {
	revision uint64
	sessions map[string]*regSession
	lanes    map[lane.Name]consume.Lane
	groups   []*regGroup
	lively   uint64 // the revision of the last change to sessions, lanes, members or groups
	changed  func() // something did
	persists bool   // records and notes are kept in their persisted form
	refused  error  // one of them could not be read again
}

type regSession struct {
	expires time.Duration
	ttl     time.Duration
}

type regGroup struct {
	name    string
	members []consume.Member // ascending by ID
	seqs    map[string]uint64
	group   consume.Group
	stored  map[consume.Partition]*regRecord
	order   []consume.Partition // of stored
	view    *consume.View
	viewed  uint64 // the registry's lively at that view
}

type regRecord struct {
	record   *consume.Record
	revision uint64
	notes    map[lane.Name]regNote
}

type regNote struct {
	note     *consume.Note
	revision uint64
}

func newRegistry(groups []consume.Config) *registry {
	r := &registry{sessions: map[string]*regSession{}, lanes: map[lane.Name]consume.Lane{}, revision: 1, changed: func() {}}
	for _, g := range groups {
		r.groups = append(r.groups, &regGroup{
			name: g.Group, seqs: map[string]uint64{}, stored: map[consume.Partition]*regRecord{},
		})
	}
	return r
}

// touch begins a new revision.
func (r *registry) touch() {
	r.revision++
	r.lively = r.revision
	r.changed()
}

// move does a write: whole, or not at all.
func (r *registry) move(g *regGroup, w *consume.Write) consume.Answer {
	s := g.stored[w.Partition]
	if s == nil {
		s = &regRecord{notes: map[lane.Name]regNote{}}
	}
	if !r.holds(s, w) {
		a := consume.Answer{Outcome: consume.Conflict, Record: s.record, Revision: s.revision}
		for _, n := range w.Notes {
			a.Notes = append(a.Notes, s.note(n.Cursor))
		}
		for _, c := range w.Read {
			a.Notes = append(a.Notes, s.note(c))
		}
		return a
	}
	if r.persists {
		w = r.kept(w)
	}
	r.revision++
	if w.Record != nil {
		s.record, s.revision = w.Record.Clone(), r.revision
	}
	if g.stored[w.Partition] == nil {
		g.stored[w.Partition] = s
		g.order = append(g.order, w.Partition)
	}
	a := consume.Answer{Outcome: consume.Done, Revision: s.revision}
	for _, n := range w.Notes {
		if n.Note == nil {
			delete(s.notes, n.Cursor)
			continue
		}
		s.notes[n.Cursor] = regNote{cloneNote(n.Note), r.revision}
		a.Notes = append(a.Notes, s.note(n.Cursor))
	}
	for _, c := range w.Read {
		a.Notes = append(a.Notes, s.note(c))
	}
	if w.Record != nil {
		r.changed()
	}
	return a
}

// kept is a write with what comes back of its record and notes.
func (r *registry) kept(w *consume.Write) *consume.Write {
	k := *w
	if w.Record != nil {
		k.Record = persisted(r, w.Record, &consume.Record{})
	}
	k.Notes = slices.Clone(w.Notes)
	for i := range k.Notes {
		if n := k.Notes[i].Note; n != nil {
			k.Notes[i].Note = persisted(r, n, &consume.Note{})
		}
	}
	return &k
}

// persisted is what comes back of something that was stored.
func persisted[T any](r *registry, what, back *T) *T {
	data, err := json.Marshal(what)
	if err == nil {
		err = json.Unmarshal(data, back)
	}
	if err != nil {
		r.refused = err
	}
	return back
}

// holds reports whether all that a write compares is as it says.
func (r *registry) holds(s *regRecord, w *consume.Write) bool {
	if s.revision != w.IfRevision {
		return false
	}
	for _, n := range w.Notes {
		if n.Compare && s.notes[n.Cursor].revision != n.IfRevision {
			return false
		}
	}
	for _, gone := range w.Gone {
		if r.sessions[gone] != nil {
			return false
		}
	}
	return true
}

func (s *regRecord) note(cursor lane.Name) consume.StoredNote {
	n := s.notes[cursor]
	return consume.StoredNote{Cursor: cursor, Note: n.note, Revision: n.revision}
}

// open begins a session.
func (r *registry) open(id string, now, ttl time.Duration) {
	r.sessions[id] = &regSession{expires: now + ttl, ttl: ttl}
	r.touch()
}

// renew reports whether a session lives, and lets it live on.
func (r *registry) renew(id string, now time.Duration) bool {
	s := r.sessions[id]
	if s != nil {
		s.expires = now + s.ttl
	}
	return s != nil
}

// end ends a session, and its members with it.
func (r *registry) end(id string) bool {
	if r.sessions[id] == nil {
		return false
	}
	delete(r.sessions, id)
	for _, g := range r.groups {
		g.members = slices.DeleteFunc(g.members, func(m consume.Member) bool { return m.Session == id })
	}
	r.touch()
	return true
}

// sync makes the members of a session those that it says, unless it has said something newer.
func (r *registry) sync(g *regGroup, session string, seq uint64, members []consume.Member) {
	if r.sessions[session] == nil || seq <= g.seqs[session] {
		return
	}
	g.seqs[session] = seq
	before := g.members
	var after []consume.Member
	for _, m := range before {
		if m.Session == session {
			continue
		}
		if !slices.ContainsFunc(members, func(n consume.Member) bool { return n.ID == m.ID }) &&
			!(m.Session == "" && slices.ContainsFunc(members, func(n consume.Member) bool { return n.Lane == m.Lane })) {
			after = append(after, m)
		}
	}
	g.setMembers(r, append(after, members...))
}

func (g *regGroup) setMembers(r *registry, members []consume.Member) {
	slices.SortFunc(members, func(a, b consume.Member) int {
		switch {
		case a.ID < b.ID:
			return -1
		case a.ID > b.ID:
			return 1
		}
		return 0
	})
	g.members = members
	r.touch()
}

// tombstone lets a member count that left; bury ends that.
func (r *registry) tombstone(g *regGroup, m consume.Member) {
	m.ID, m.Session = "gone-"+m.ID, ""
	g.setMembers(r, append(slices.DeleteFunc(slices.Clone(g.members), func(o consume.Member) bool { return o.ID == m.ID }), m))
}

func (r *registry) buryTombstone(g *regGroup, id string) {
	g.setMembers(r, slices.DeleteFunc(slices.Clone(g.members), func(o consume.Member) bool {
		return o.ID == "gone-"+id && o.Session == ""
	}))
}

// picture is the registry as it is now, for one group.
func (r *registry) picture(g *regGroup) *consume.View {
	if g.view == nil || g.viewed != r.lively {
		v := &consume.View{
			Lanes: maps.Clone(r.lanes), Members: slices.Clone(g.members), Sessions: map[string]bool{}, Group: g.group,
		}
		for id := range r.sessions {
			v.Sessions[id] = true
		}
		g.view, g.viewed = v, r.lively
	}
	v := *g.view
	v.Revision = r.revision
	return &v
}
