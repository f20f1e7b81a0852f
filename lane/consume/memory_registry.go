package consume

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// Defaults of [MemoryRegistryConfig].
const (
	DefaultMemoryTTL    = 10 * time.Second
	DefaultMemoryMargin = 3 * time.Second
)

// MemoryRegistryConfig is what [NewMemoryRegistry] makes a registry of. Zero fields have
// their defaults.
type MemoryRegistryConfig struct {
	// Now is the clock of leases and tombstones, of the registry and of its processes. Nil:
	// time.Now. Whoever moves a clock of their own calls [MemoryRegistry.Tick] after it.
	Now func() time.Time
	// TTL is how long a session lasts after its process was cut off; zero:
	// [DefaultMemoryTTL]. Margin is by how much a process takes it for shorter; zero:
	// [DefaultMemoryMargin].
	TTL, Margin time.Duration
}

// MemoryRegistry is a registry that lives in memory, for tests: one for all groups of an
// engine. It holds sessions, lanes, members, records and notes, all under one order of
// revisions. [MemoryRegistry.Connect] gives a process its own access, a [Registry]; what
// operators do, and what befalls sessions, are methods of the registry itself, and so are
// views and writes for tests that go step by step.
//
// It starts no goroutine but those of [MemoryProcess.Views]. All of its methods may be
// called at once; each takes effect whole, at one revision.
type MemoryRegistry struct {
	now         func() time.Time
	ttl, margin time.Duration

	mu       sync.Mutex
	revision uint64
	seen     uint64 // the revision at which views changed last
	opened   int    // sessions so far
	sessions map[string]time.Time
	lanes    map[lane.Name]Lane
	births   map[lane.Name]uint64 // the last generation of every name
	groups   map[string]*memoryGroup
	changed  chan struct{} // closed and replaced at every change
}

type memoryGroup struct {
	settings Group
	hold     *Settings // nil: nobody has entered it
	members  []memoryMember
	records  map[Partition]Stored
	notes    map[memoryNote]StoredNote
}

type memoryMember struct {
	Member
	until time.Time // of a tombstone
}

type memoryNote struct {
	p      Partition
	cursor lane.Name
}

// NewMemoryRegistry makes an empty registry.
func NewMemoryRegistry(cfg MemoryRegistryConfig) *MemoryRegistry {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &MemoryRegistry{
		now: cfg.Now, ttl: cmp.Or(cfg.TTL, DefaultMemoryTTL), margin: cmp.Or(cfg.Margin, DefaultMemoryMargin),
		revision: 1, seen: 1,
		sessions: map[string]time.Time{}, lanes: map[lane.Name]Lane{}, births: map[lane.Name]uint64{},
		groups: map[string]*memoryGroup{}, changed: make(chan struct{}),
	}
}

// lock locks, and lets what has run out end.
func (r *MemoryRegistry) lock() {
	r.mu.Lock()
	now := r.now()
	var over []string
	for id, until := range r.sessions {
		if !until.IsZero() && !now.Before(until) {
			over = append(over, id)
		}
	}
	slices.Sort(over)
	for _, id := range over {
		r.close(id)
	}
	for _, g := range r.groups {
		n := len(g.members)
		g.members = slices.DeleteFunc(g.members, func(m memoryMember) bool {
			return m.Session == "" && !now.Before(m.until)
		})
		if len(g.members) != n {
			r.bump(true)
		}
	}
}

// bump makes a new revision; view: one at which views change.
func (r *MemoryRegistry) bump(view bool) {
	r.revision++
	if view {
		r.seen = r.revision
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *MemoryRegistry) group(name string) *memoryGroup {
	g := r.groups[name]
	if g == nil {
		g = &memoryGroup{records: map[Partition]Stored{}, notes: map[memoryNote]StoredNote{}}
		r.groups[name] = g
	}
	return g
}

// Tick ends what has run out, for clocks that tests move; otherwise that happens by itself.
func (r *MemoryRegistry) Tick() {
	r.lock()
	r.mu.Unlock()
}

// CreateLane makes a lane, or makes one that ended anew: the next generation. The parent is
// zero for the baseline. A lane that lives is refused.
func (r *MemoryRegistry) CreateLane(name, parent lane.Name) error {
	if !name.Valid() {
		return fmt.Errorf("create lane %q: no lane name", name)
	}
	if (name.Strict() || parent.Strict()) && parent != lane.Baseline {
		return fmt.Errorf("create lane %s under %s: a strict lane has no parent and is none", name, parent)
	}
	r.lock()
	defer r.mu.Unlock()
	if l, ok := r.lanes[name]; ok && !l.Ended {
		return fmt.Errorf("create lane %s: there is one", name)
	}
	r.births[name]++
	r.lanes[name] = Lane{Parent: parent, Generation: r.births[name]}
	r.bump(true)
	return nil
}

// EndLane marks a lane as over.
func (r *MemoryRegistry) EndLane(name lane.Name) error {
	r.lock()
	defer r.mu.Unlock()
	l, ok := r.lanes[name]
	if !ok {
		return fmt.Errorf("end lane %s: there is none", name)
	}
	l.Ended = true
	r.lanes[name] = l
	r.bump(true)
	return nil
}

// ForgetLane deletes every trace of a lane but the number of its generation.
func (r *MemoryRegistry) ForgetLane(name lane.Name) {
	r.lock()
	defer r.mu.Unlock()
	delete(r.lanes, name)
	r.bump(true)
}

// SetGroup changes what everybody may change of a group.
func (r *MemoryRegistry) SetGroup(name string, to Group) {
	r.lock()
	defer r.mu.Unlock()
	r.group(name).settings = to
	r.bump(true)
}

// Open opens a session that lasts until [MemoryRegistry.End]. Ids are never used again.
func (r *MemoryRegistry) Open() string {
	r.lock()
	defer r.mu.Unlock()
	return r.open()
}

func (r *MemoryRegistry) open() string {
	r.opened++
	id := "s" + strconv.Itoa(r.opened)
	r.sessions[id] = time.Time{}
	r.bump(true)
	return id
}

// End ends a session, as when its lease runs out, and with it its members. One that has
// ended stays so.
func (r *MemoryRegistry) End(session string) {
	r.lock()
	defer r.mu.Unlock()
	r.close(session)
}

func (r *MemoryRegistry) close(session string) {
	if _, ok := r.sessions[session]; !ok {
		return
	}
	delete(r.sessions, session)
	for _, g := range r.groups {
		g.members = slices.DeleteFunc(g.members, func(m memoryMember) bool { return m.Session == session })
	}
	r.bump(true)
}

// Join makes a member known. Its session lives; its lane, if it has one, is there and not
// over, and its generation becomes the lane's. A member of the same id is replaced, and
// tombstones of the lane go as far as they stand for topics of the new member.
func (r *MemoryRegistry) Join(group string, m Member) error {
	r.lock()
	defer r.mu.Unlock()
	if _, ok := r.sessions[m.Session]; !ok {
		return fmt.Errorf("join member %s: session %q has ended", m.ID, m.Session)
	}
	if m.Lane != lane.Baseline {
		l, ok := r.lanes[m.Lane]
		if !ok || l.Ended {
			return fmt.Errorf("join member %s: no lane %s: create it first: %w", m.ID, m.Lane, ErrRefused)
		}
		m.Generation = l.Generation
	}
	m.Topics = slices.Clone(m.Topics)
	g := r.group(group)
	for i := range g.members {
		if t := &g.members[i]; t.Session == "" && t.Lane == m.Lane {
			t.Topics = slices.DeleteFunc(slices.Clone(t.Topics), func(s string) bool { return slices.Contains(m.Topics, s) })
		}
	}
	g.members = slices.DeleteFunc(g.members, func(t memoryMember) bool {
		return t.ID == m.ID || t.Session == "" && len(t.Topics) == 0
	})
	g.members = append(g.members, memoryMember{Member: m})
	r.bump(true)
	return nil
}

// Leave ends a member; with grace it counts for so long, or until another one comes. One
// that is not there has left.
func (r *MemoryRegistry) Leave(group, member string, grace time.Duration) {
	r.lock()
	defer r.mu.Unlock()
	g := r.group(group)
	i := slices.IndexFunc(g.members, func(m memoryMember) bool { return m.ID == member && m.Session != "" })
	if i < 0 {
		return
	}
	m := g.members[i]
	g.members = slices.Delete(g.members, i, i+1)
	if grace > 0 {
		m.Topics = slices.DeleteFunc(slices.Clone(m.Topics), func(topic string) bool {
			return slices.ContainsFunc(g.members, func(o memoryMember) bool {
				return o.Session != "" && o.Lane == m.Lane && slices.Contains(o.Topics, topic)
			})
		})
		m.Session, m.until = "", r.now().Add(grace)
		if len(m.Topics) > 0 {
			g.members = append(g.members, m)
		}
	}
	r.bump(true)
}

// View is the picture of a group as it is now. It is not changed afterwards.
func (r *MemoryRegistry) View(group string) *View {
	r.lock()
	defer r.mu.Unlock()
	return r.view(group)
}

func (r *MemoryRegistry) view(group string) *View {
	g := r.group(group)
	v := &View{Revision: r.revision, Lanes: maps.Clone(r.lanes), Sessions: map[string]bool{}, Group: g.settings}
	for id := range r.sessions {
		v.Sessions[id] = true
	}
	for _, m := range g.members {
		v.Members = append(v.Members, m.Member)
	}
	return v
}

// Records are all records of a group, by partition.
func (r *MemoryRegistry) Records(group string) []Stored {
	r.lock()
	defer r.mu.Unlock()
	return r.since(group, 0)
}

// since are the records that were written after a revision.
func (r *MemoryRegistry) since(group string, revision uint64) []Stored {
	var out []Stored
	for _, s := range r.group(group).records {
		if s.Revision > revision {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Stored) int {
		return cmp.Or(cmp.Compare(a.Partition.Topic, b.Partition.Topic), cmp.Compare(a.Partition.Index, b.Partition.Index))
	})
	return out
}

// Note is a cursor's note as it is now.
func (r *MemoryRegistry) Note(group string, p Partition, cursor lane.Name) StoredNote {
	r.lock()
	defer r.mu.Unlock()
	return r.group(group).note(p, cursor)
}

func (g *memoryGroup) note(p Partition, cursor lane.Name) StoredNote {
	if s, ok := g.notes[memoryNote{p, cursor}]; ok {
		return s
	}
	return StoredNote{Cursor: cursor}
}

// Apply does one write, whole or not at all, and answers it. It never answers [Doubt].
//
// It does not ask whether the writer's session lives, so that tests can let a write of one
// that has ended arrive; [MemoryProcess.Move] does.
func (r *MemoryRegistry) Apply(w *Write) Answer {
	r.lock()
	defer r.mu.Unlock()
	return r.apply(w)
}

// applyLiving is Apply for a session that must live.
func (r *MemoryRegistry) applyLiving(w *Write) Answer {
	r.lock()
	defer r.mu.Unlock()
	if _, lives := r.sessions[w.Session]; !lives {
		a := r.refusal(w)
		a.Ended = true
		return a
	}
	return r.apply(w)
}

// refusal shows what there is.
func (r *MemoryRegistry) refusal(w *Write) Answer {
	g := r.group(w.Group)
	was := g.records[w.Partition]
	a := Answer{Outcome: Conflict, Revision: was.Revision, Record: was.Record}
	for _, n := range w.Notes {
		a.Notes = append(a.Notes, g.note(w.Partition, n.Cursor))
	}
	a.Notes = g.read(a.Notes, w)
	return a
}

func (r *MemoryRegistry) apply(w *Write) Answer {
	g := r.group(w.Group)
	if !r.allows(g, w) {
		return r.refusal(w)
	}
	was := g.records[w.Partition]
	if w.Record != nil || len(w.Notes) > 0 {
		r.bump(false)
	}
	if w.Record != nil {
		was = Stored{Partition: w.Partition, Record: w.Record, Revision: r.revision}
		g.records[w.Partition] = was
	}
	a := Answer{Outcome: Done, Revision: was.Revision}
	for _, n := range w.Notes {
		key, s := memoryNote{w.Partition, n.Cursor}, StoredNote{Cursor: n.Cursor}
		delete(g.notes, key)
		if n.Note != nil {
			s.Note, s.Revision = n.Note, r.revision
			g.notes[key] = s
		}
		a.Notes = append(a.Notes, s)
	}
	a.Notes = g.read(a.Notes, w)
	return a
}

// read appends the notes that a write asks for, unless they are there already.
func (g *memoryGroup) read(to []StoredNote, w *Write) []StoredNote {
	for _, c := range w.Read {
		if !slices.ContainsFunc(to, func(s StoredNote) bool { return s.Cursor == c }) {
			to = append(to, g.note(w.Partition, c))
		}
	}
	return to
}

// allows reports whether everything that a write compares is as it says.
func (r *MemoryRegistry) allows(g *memoryGroup, w *Write) bool {
	if g.records[w.Partition].Revision != w.IfRevision {
		return false
	}
	for _, n := range w.Notes {
		if n.Compare && g.note(w.Partition, n.Cursor).Revision != n.IfRevision {
			return false
		}
	}
	for _, id := range w.Gone {
		if _, lives := r.sessions[id]; lives {
			return false
		}
	}
	return true
}

// errCut is what a process that is cut off is told.
var errCut = errors.New("the registry is out of reach")
