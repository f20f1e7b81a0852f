package consumetest

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// checker counts every message of every color of a history against what is promised. It sees
// what goes into and out of the cores and what the registry holds, and knows nothing of how
// a Core works.
type checker struct {
	groups    []*checkGroup
	clock     func() (time.Duration, int)
	violation *Violation // the first one
	ancestors map[lane.Name]map[lane.Name]bool
	endedOnce map[lane.Name]bool // lanes that were over at some time
	endedAt   map[lane.Name]bool // that are over now
	known     map[lane.Name]bool // lanes that there were
	forced    map[string]bool    // sessions that ended before their time
	counts    checkCounts
	judged    map[lane.Name]int // messages that the last look has judged, by color
	skipped   map[lane.Name]int // and those that it had nothing to say of
	ids       map[string]string
}

// checkCounts are figures for coverage.
type checkCounts struct {
	takesWithLeft, mergesWithLeft, lossyTakes, zombies, redelivered, dispatches, lost int
}

type checkGroup struct {
	cfg    consume.Config
	dead   map[string]bool
	origin map[string]string // of the topics that it reads
	parts  map[consume.Partition]*checkPart
	order  []*checkPart
	actors []*actor
	topics []string
}

// actor is one process's part in one group, as the checker sees it.
type actor struct {
	name     string
	group    int
	policy   consume.LossPolicy
	sessions []string // that it had, the present one last
	lost     bool
	said     bool // that it is
	cursors  map[uint64]lane.Name
	wrote    map[uint64]consume.Partition
	asked    map[uint64]*term
	dead     bool
	view     *consume.View
	members  []consume.Member
	learned  map[consume.Partition]uint64 // the newest revision of a record that it was told of
	unknown  map[lane.Name]time.Duration  // strict colors: since when its pictures have no such lane
	halted   map[consume.Partition]bool
	runs     map[uint64]*checkPart // which partition a run reads
	fetching map[uint64]bool
	running  map[cursorAt]uint64 // the runs that were not given up
}

// cursorAt is one cursor of a partition.
type cursorAt struct {
	p      consume.Partition
	cursor lane.Name
}

// checkPart is one partition as one group reads it.
type checkPart struct {
	g        *checkGroup
	id       consume.Partition
	messages []*fate // ascending
	record   *consume.Record
	revision uint64
	notes    map[lane.Name]*consume.Note
	terms    map[lane.Name]*term   // of each cursor
	past     map[lane.Name][]*term // those that a loss ended
	first    map[lane.Name]int64   // the highest offset that was dispatched first, by color
	resolved []int64               // what the engine said of the start
	broken   bool                  // the log is another one now
	alarmed  bool                  // and somebody said so
	alarms   [][2]int64            // what is gone, by what was said
	losses   int
	start    int64
	doubtEnd int64              // a first dispatch at or above it is not flagged
	open     map[lane.Name]bool // cursors of a lost holder whose next one has not seen the end
	overs    map[lane.Name]bool // strict colors that were buried with good reason
}

// term is the time that one session holds one cursor.
type term struct {
	session string
	lane    lane.Name
	lossy   bool // its take was from a session that was gone
	from    int64
	last    map[lane.Name]int64 // the highest offset dispatched, by color
	record  *consume.Record     // the last record that names it, once it is over
	taken   uint64              // the revision of the take that ended it
}

// fate is what became of one message in one group.
type fate struct {
	msg     *consume.Message
	n       int  // how often a holder dispatched it
	permit  bool // it may be dispatched by a holder
	back    bool // its consumer gave it back
	loose   bool // freed by a loss and not dispatched since
	settled bool
	gone    bool // deleted, or before the group's start
	unread  bool // it was deleted by retention
	maybe   bool // dispatched before a reset, perhaps
	foreign bool // the group's filter does not want it
	hands   []handed
}

// handed is a message with a consumer.
type handed struct {
	by     *actor
	run    uint64
	lane   lane.Name
	at     time.Duration
	zombie bool
	stored bool // its copy is on its way
	lost   bool // its session ended, or its cursor was taken
	state  handState
}

type handState uint8

const (
	inFlight  handState = iota
	storing             // on its way to another topic
	given               // given back
	done                // settled
	cut                 // its run was given up
	abandoned           // its process is gone
)

func newChecker(groups []consume.Config, _ bool) *checker {
	k := &checker{
		ancestors: map[lane.Name]map[lane.Name]bool{}, endedOnce: map[lane.Name]bool{}, endedAt: map[lane.Name]bool{},
		ids: map[string]string{}, known: map[lane.Name]bool{}, forced: map[string]bool{},
		clock: func() (time.Duration, int) { return 0, 0 },
	}
	for _, cfg := range groups {
		g := &checkGroup{
			cfg: cfg, origin: map[string]string{}, dead: map[string]bool{}, parts: map[consume.Partition]*checkPart{},
		}
		for _, t := range cfg.Topics {
			g.origin[t.Name] = t.Name
			g.topics = append(g.topics, t.Name)
			if t.Retry != "" {
				g.origin[t.Retry] = t.Name
				g.topics = append(g.topics, t.Retry)
			}
			g.dead[t.Dead] = true
		}
		k.groups = append(k.groups, g)
	}
	return k
}

// fail keeps the first violation.
func (k *checker) fail(rule, format string, args ...any) {
	if k.violation == nil {
		at, step := k.clock()
		k.violation = &Violation{Rule: rule, What: fmt.Sprintf(format, args...), At: at, Step: step}
	}
}

func (g *checkGroup) part(id consume.Partition) *checkPart {
	p := g.parts[id]
	if p == nil {
		p = &checkPart{
			g: g, id: id, notes: map[lane.Name]*consume.Note{}, terms: map[lane.Name]*term{},
			past: map[lane.Name][]*term{}, first: map[lane.Name]int64{}, overs: map[lane.Name]bool{}, open: map[lane.Name]bool{},
		}
		g.parts[id] = p
		g.order = append(g.order, p)
	}
	return p
}

// find gives a message by its offset, or nil.
func (p *checkPart) find(offset int64) *fate {
	i := sort.Search(len(p.messages), func(i int) bool { return p.messages[i].msg.Offset >= offset })
	if i < len(p.messages) && p.messages[i].msg.Offset == offset {
		return p.messages[i]
	}
	return nil
}

func (k *checker) actor(group int, name string) *actor {
	cfg := &k.groups[group].cfg
	policy := cfg.OnLoss
	if policy == consume.LossDefault {
		policy = consume.LossContinue
		if cfg.Ordered {
			policy = consume.LossHold
		}
	}
	a := &actor{
		name: name, group: group, policy: policy, learned: map[consume.Partition]uint64{},
		unknown: map[lane.Name]time.Duration{}, halted: map[consume.Partition]bool{}, runs: map[uint64]*checkPart{},
		fetching: map[uint64]bool{}, running: map[cursorAt]uint64{}, cursors: map[uint64]lane.Name{}, wrote: map[uint64]consume.Partition{}, asked: map[uint64]*term{},
	}
	k.groups[group].actors = append(k.groups[group].actors, a)
	return a
}

// appended is told of every message that a log was given.
func (k *checker) appended(m *consume.Message) {
	for _, g := range k.groups {
		if g.origin[m.Partition.Topic] == "" {
			continue
		}
		p := g.part(m.Partition)
		if p.broken {
			continue
		}
		f := &fate{msg: m, permit: true, foreign: g.cfg.Filter != nil && !g.cfg.Filter(m)}
		p.messages = append(p.messages, f)
		if p.noted(f) && !f.exempt() {
			k.fail("I1", "%s: message %d is new, and the note of its cursor says that it is settled", p.name(), m.Offset)
		}
	}
}

func (p *checkPart) name() string { return p.g.cfg.Group + " " + p.id.String() }

// exempt reports whether nobody has to settle a message.
func (f *fate) exempt() bool { return f.settled || f.gone || f.foreign }

// owning is the cursor that a message belongs to by a record.
func owning(r *consume.Record, m *consume.Message) lane.Name {
	if r == nil || m.Color == lane.Baseline {
		return consume.Main
	}
	if e, ok := r.Colors[m.Color]; ok && m.Offset >= e.From {
		return m.Color
	}
	return consume.Main
}

func says(n *consume.Note, offset int64) bool {
	return n != nil && offset < n.Pos && !slices.Contains(n.Left, offset)
}

// noted reports whether the note of a message's cursor says that it is settled.
func (p *checkPart) noted(f *fate) bool { return says(p.notes[owning(p.record, f.msg)], f.msg.Offset) }

// deleted is told of offsets that are there no longer.
func (k *checker) deleted(id consume.Partition, from, to int64, retention bool) {
	for _, g := range k.groups {
		p := g.parts[id]
		if p == nil {
			continue
		}
		for _, f := range p.messages {
			if f.msg.Offset >= from && f.msg.Offset < to {
				f.unread = retention && !f.exempt()
				f.gone = true
			}
		}
	}
}

// broke is told that a log is another one now, or has lost its end.
func (k *checker) broke(id consume.Partition) {
	for _, g := range k.groups {
		if g.origin[id.Topic] != "" {
			g.part(id).broken = true
		}
	}
}

func (k *checker) laneUp(name, parent lane.Name) {
	k.known[name] = true
	delete(k.endedAt, name)
	if k.ancestors[name] == nil {
		k.ancestors[name] = map[lane.Name]bool{}
	}
	if parent != lane.Baseline {
		k.ancestors[name][parent] = true
	}
}

func (k *checker) laneDown(name lane.Name) { k.endedOnce[name], k.endedAt[name] = true, true }

// mayRun reports whether a lane is one that could own a color at some time.
func (k *checker) mayRun(l, color lane.Name) bool {
	if l == color {
		return true
	}
	for up := range k.ancestors[color] {
		if up != color && k.mayRun(l, up) {
			return true
		}
	}
	return false
}

// session is told that an actor goes on under a session.
func (k *checker) session(a *actor, id string) { a.sessions = append(a.sessions, id) }

// revoked is told that a session is ended though it could still be renewed.
func (k *checker) revoked(id string) { k.forced[id] = true }

// sessionEnded is told that a session is not in the registry any more.
func (k *checker) sessionEnded(id string) {
	for _, g := range k.groups {
		for _, a := range g.actors {
			if slices.Contains(a.sessions, id) {
				g.each(a, func(h *handed) { h.lost = true })
			}
		}
	}
}

// crashed is told that an actor is no more.
func (k *checker) crashed(a *actor) {
	a.dead = true
	k.groups[a.group].each(a, func(h *handed) { h.lost, h.state = true, abandoned })
}

// each does something with all that an actor has in flight.
func (g *checkGroup) each(a *actor, do func(*handed)) {
	for _, p := range g.order {
		for _, f := range p.messages {
			for i := range f.hands {
				if h := &f.hands[i]; h.by == a && (h.state == inFlight || h.state == storing) {
					do(h)
				}
			}
		}
	}
}

func (k *checker) alarmed(a *actor, al *consume.Alarm) {
	switch al.Kind {
	case consume.AlarmNoNote:
		k.fail("ALARM", "%s says that %s has no note or no record, and nobody took one away", a.name, al.Partition)
	case consume.AlarmRetention:
		p := k.groups[a.group].part(al.Partition)
		p.alarms = append(p.alarms, [2]int64{al.From, al.From + al.Count})
	case consume.AlarmTruncated:
		p := k.groups[a.group].part(al.Partition)
		if !p.broken {
			k.fail("ALARM", "%s says that the log of %s was truncated, and it was not", a.name, al.Partition)
		}
		p.alarmed = true
		a.halted[al.Partition] = true
	case consume.AlarmRegistry:
		a.said = true
	case consume.AlarmRegistryBack, consume.AlarmHandover:
	}
}

// mirrored is told what the engine is shown as a group's offset.
func (k *checker) mirrored(a *actor, m *consume.Mirror) {
	p := k.groups[a.group].part(m.Partition)
	for _, f := range p.messages {
		if f.msg.Offset < m.Offset && !f.exempt() && owning(p.record, f.msg) == m.Cursor {
			k.fail("MIRROR", "%s shows %d as the lowest unsettled offset of cursor %q of %s, and %d is not settled", a.name, m.Offset,
				m.Cursor, m.Partition, f.msg.Offset)
			return
		}
	}
}

// stopped is told that a Core has given up all that it held.
func (k *checker) stopped(a *actor) {
	if a.lost {
		return // what is left goes with the session
	}
	for _, p := range k.groups[a.group].order {
		if p.record == nil || p.broken {
			continue
		}
		for _, c := range p.cursors() {
			if h, _ := holderOf(p.record, c); len(a.sessions) > 0 && h.Session == a.sessions[len(a.sessions)-1] {
				k.fail("MOVE", "%s has stopped, and it is named as the holder of cursor %q of %s", a.name, c, p.name())
			}
		}
	}
}

// cursors are those that the record has, main first.
func (p *checkPart) cursors() []lane.Name {
	all := []lane.Name{consume.Main}
	return append(all, slices.Sorted(maps.Keys(p.record.Colors))...)
}

// resolving and resolved are told of a start that is turned into an offset.
func (k *checker) resolving(a *actor, r consume.Resolve) {
	g := k.groups[a.group]
	want := g.cfg.Start
	for _, t := range g.cfg.Topics {
		if r.Partition.Topic == t.Retry || r.Partition.Topic == t.Name && r.Partition.Index >= t.Partitions {
			want = consume.Start{}
		}
	}
	if r.Start != want {
		k.fail("I1", "%s lets %s begin at %+v, not at %+v", a.name, r.Partition, r.Start, want)
	}
}

func (k *checker) resolved(group int, id consume.Partition, offset int64) {
	p := k.groups[group].part(id)
	p.resolved = append(p.resolved, offset)
}

// told is told of every event before its Core is.
func (k *checker) told(a *actor, now time.Duration, e consume.Event) {
	switch e := e.(type) {
	case *consume.Fetched:
		delete(a.fetching, e.Run)
		if p := a.runs[e.Run]; p != nil && !e.Failed {
			c := a.cursors[e.Run]
			if t := a.asked[e.Run]; len(p.open) > 0 {
				p.doubtEnd = max(p.doubtEnd, e.Bounds.End)
				if t != nil && t == p.terms[c] && slices.Contains(a.sessions, t.session) {
					delete(p.open, c)
				}
			}
		}
	case *consume.Answered:
		if id, sent := a.wrote[e.Write]; sent && e.Outcome == consume.Conflict {
			a.learned[id] = max(a.learned[id], e.Revision)
		}
	case *consume.Recorded:
		a.learned[e.Partition] = max(a.learned[e.Partition], e.Revision)
	case *consume.Viewed:
		k.viewed(a, now, e.View)
	case *consume.LeaseLost:
		a.lost, a.said = true, false
	case *consume.Opened:
		a.lost = false
	case *consume.Settled:
		k.spoke(a, e.Run, e.Offset, done)
	case *consume.Returned:
		k.spoke(a, e.Run, e.Offset, given)
	case *consume.Failed:
		if k.retries(a, e) {
			k.spoke(a, e.Run, e.Offset, storing)
		} else {
			k.spoke(a, e.Run, e.Offset, given)
		}
	}
}

func (k *checker) retries(a *actor, e *consume.Failed) bool {
	p, _ := k.withConsumer(a, e.Run, e.Offset)
	if p == nil {
		return false
	}
	for _, t := range k.groups[a.group].cfg.Topics {
		if t.Name == k.groups[a.group].origin[p.id.Topic] {
			return t.Retry != ""
		}
	}
	return false
}

func (k *checker) viewed(a *actor, now time.Duration, v *consume.View) {
	if a.view != nil && v.Revision < a.view.Revision {
		return
	}
	a.view = v
	for _, c := range []lane.Name{strictLane, strictNone} {
		if _, known := v.Lanes[c]; known {
			delete(a.unknown, c)
		} else if _, since := a.unknown[c]; !since {
			a.unknown[c] = now
		}
	}
}

// withConsumer finds a message that a run of an actor has handed out.
func (k *checker) withConsumer(a *actor, run uint64, offset int64) (*checkPart, *handed) {
	p := a.runs[run]
	if p == nil {
		return nil, nil
	}
	if f := p.find(offset); f != nil {
		for i := range f.hands {
			if h := &f.hands[i]; h.by == a && h.run == run && h.state != given && h.state != done {
				return p, h
			}
		}
	}
	return nil, nil
}

// spoke is told what became of a message that was with a consumer.
func (k *checker) spoke(a *actor, run uint64, offset int64, to handState) {
	p, h := k.withConsumer(a, run, offset)
	if p == nil {
		return
	}
	f := p.find(offset)
	live := h.state == inFlight || h.state == storing
	if to == done {
		f.settled = true
	}
	if h.state == cut {
		return // nobody listens any more
	}
	if to == given && live && !h.zombie {
		f.permit, f.back = true, true
	}
	h.state = to
}

// withdrawn is told that a run was given up. What outlasted the hand-over time-out may be
// dispatched again.
func (k *checker) withdrawn(a *actor, now time.Duration, run uint64) {
	p := a.runs[run]
	if p == nil {
		return
	}
	if at := (cursorAt{p.id, a.cursors[run]}); a.running[at] == run {
		delete(a.running, at)
	}
	for _, f := range p.messages {
		for i := range f.hands {
			h := &f.hands[i]
			if h.by != a || h.run != run || h.state != inFlight && h.state != storing {
				continue
			}
			if !h.zombie && now-h.at >= p.g.cfg.HandoverTimeout {
				f.permit = true
			}
			h.state = cut
		}
	}
}
