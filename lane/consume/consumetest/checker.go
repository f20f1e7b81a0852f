package consumetest

import (
	"cmp"
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
	forced    map[string]bool // sessions that ended before their time
	counts    checkCounts
	judged    map[lane.Name]int // messages that the last look has judged, by color
	skipped   map[lane.Name]int // and those that it had nothing to say of
	ids       map[string]string // of what each copy is one, by its ID
}

// checkCounts are figures for coverage.
type checkCounts struct {
	takesWithLeft, mergesWithLeft, lossyTakes, zombies, redelivered, dispatches, foreign int
}

type checkGroup struct {
	cfg    consume.Config
	dead   map[string]bool
	origin map[string]string // of the topics that it reads
	parts  map[consume.Partition]*checkPart
	order  []*checkPart
	topics []string
}

// actor is one process's part in one group, as the checker sees it.
type actor struct {
	name     string
	group    int
	policy   consume.LossPolicy
	sessions []string // that it had, the present one last
	lost     bool
	owes     consume.AlarmKind            // what it has to say before it is told of anything else
	wrote    map[uint64]consume.Partition // its writes, by number
	view     *consume.View
	members  []consume.Member
	learned  map[consume.Partition]uint64 // the newest revision of a record that it was told of
	unknown  map[lane.Name]time.Duration  // strict colors: since when its pictures have no such lane
	halted   map[consume.Partition]bool
	runs     map[uint64]*checkRun
	running  map[cursorAt]uint64 // the runs that were not given up
	stopping bool
	// Of the notes: since when cursors have moved that no note was proposed of, the oldest of
	// those at most, and how many writes of a partition are not answered.
	unnoted  map[cursorAt]time.Duration
	oldest   time.Duration
	underWay map[consume.Partition]int
	lowest   map[cursorAt]int64         // unsettled, by its last note that took place
	cutOff   *cursorAt                  // whose consumers it said that it waits for no longer, and did not yet
	cutFor   map[cursorAt]consume.Why   // why it waits for them no longer, until it gives the cursor up
	ends     map[cursorAt]*ending       // the last move that it proposed by which it does so
	rewinds  map[consume.Partition]bool // that its pictures have set back at some time
	// Of its writes with moves: those that took place, and those that it was told so of and did not say.
	landed, owesMoved map[uint64]bool
	opening           bool     // it goes on under a new session just now
	owesRecall        []uint64 // runs of which it has to ask for what is left
	paused            bool     // by a picture that it was just told of, though by a newer one the group goes on
}

// checkRun is a run of an actor's: one cursor that it reads and hands out.
type checkRun struct {
	p        *checkPart
	cursor   lane.Name
	fetching bool
	from     int64      // where its last fetch begins
	gone     [][2]int64 // what it said that retention deleted
	recalled bool       // nobody begins with what was handed out
	asked    *term      // the cursor's when that was asked for
}

// run is told that an actor uses a run.
func (a *actor) run(id uint64, p *checkPart, cursor lane.Name) *checkRun {
	r := a.runs[id]
	if r == nil {
		r = &checkRun{p: p, cursor: cursor}
		a.runs[id] = r
	}
	a.running[cursorAt{p.id, cursor}] = id
	return r
}

// cursorAt is one cursor of a partition.
type cursorAt struct {
	p      consume.Partition
	cursor lane.Name
}

func (c cursorAt) compare(o cursorAt) int {
	return cmp.Or(comparePartitions(c.p, o.p), cmp.Compare(c.cursor, o.cursor))
}

func comparePartitions(a, b consume.Partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Index, b.Index))
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
	losses   int
	start    int64
	low      int64      // all below it was deleted by retention
	room     string     // whose members are to be preferred
	reset    checkReset // the last one
	// Of cursors whose holder was lost: where the log ended when the next one looked first, and
	// whether it has not looked yet. A first dispatch at or above the end is not flagged.
	doubtEnd map[lane.Name]int64
	open     map[lane.Name]bool
	overs    map[lane.Name]bool // strict colors that were buried with good reason
}

// checkReset is a reset of a partition that took place.
type checkReset struct {
	revision uint64
	before   *consume.Record
	write    uint64 // by which one
	by       *actor // who made it and was not told of that yet
}

// term is the time that one session holds one cursor. A reset begins another one.
type term struct {
	cursor  lane.Name
	session string
	lane    lane.Name
	from    int64
	last    map[lane.Name]int64 // the highest offset dispatched, by color
	record  *consume.Record     // the last record that names it, once it is over
	taken   uint64              // the revision of the take that ended it
}

// fate is what became of one message in one group.
type fate struct {
	msg     *consume.Message
	n       int  // how often a holder dispatched it
	earlier bool // it was settled, and noted, before the last reset
	permit  bool // it may be dispatched by a holder
	loose   bool // freed by a loss and not dispatched since
	settled bool
	gone    bool // deleted, or before the group's start
	unread  bool // it was deleted by retention
	told    bool // and the holder of its cursor said so
	foreign bool // the group's filter does not want it
	doubt   bool // it was there when a holder was lost that had not noted it
	hands   []handed
}

// handed is a message with a consumer.
type handed struct {
	by     *actor
	run    uint64
	lane   lane.Name
	term   *term // in which it was handed out, or the one that its process went on in
	at     time.Duration
	stored bool // its copy is on its way
	state  handState
}

// live reports whether a consumer has the message, or it is on its way to another topic.
func (h *handed) live() bool { return h.state == inFlight || h.state == storing }

// holds reports whether a message was handed out by who holds its cursor, and holds it still. What
// one that was cut off has says nothing of the cursor.
func (p *checkPart) holds(h *handed) bool { return h.term != nil && p.terms[h.term.cursor] == h.term }

// keeps reports whether an actor has a message still, or has settled it in a term: so that it may not
// hand it out again in a run, even where it is no holder any more.
func (f *fate) keeps(a *actor, run uint64, t *term) bool {
	return slices.ContainsFunc(f.hands, func(h handed) bool {
		return h.by == a && h.state != given && (h.run == run || h.live() || h.state == done && h.term == t)
	})
}

// handedIn reports whether a message was handed out in a term.
func (f *fate) handedIn(t *term) bool {
	return slices.ContainsFunc(f.hands, func(h handed) bool { return h.term == t })
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

func newChecker(groups []consume.Config) *checker {
	k := &checker{
		ancestors: map[lane.Name]map[lane.Name]bool{}, ids: map[string]string{}, forced: map[string]bool{},
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
			past: map[lane.Name][]*term{}, first: map[lane.Name]int64{}, overs: map[lane.Name]bool{},
			open: map[lane.Name]bool{}, doubtEnd: map[lane.Name]int64{},
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
	return &actor{
		name: name, group: group, policy: policy, learned: map[consume.Partition]uint64{},
		unknown: map[lane.Name]time.Duration{}, halted: map[consume.Partition]bool{}, runs: map[uint64]*checkRun{},
		running: map[cursorAt]uint64{}, unnoted: map[cursorAt]time.Duration{}, underWay: map[consume.Partition]int{},
		cutFor: map[cursorAt]consume.Why{}, ends: map[cursorAt]*ending{}, rewinds: map[consume.Partition]bool{},
		lowest: map[cursorAt]int64{}, wrote: map[uint64]consume.Partition{}, landed: map[uint64]bool{}, owesMoved: map[uint64]bool{},
	}
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
		if f.foreign {
			k.counts.foreign++
		}
		if p.noted(f) && !f.exempt() {
			k.fail("I1", "%s: message %d is new, and the note of its cursor says that it is settled", p.name(), m.Offset)
		}
	}
}

func (p *checkPart) name() string { return p.g.cfg.Group + " " + p.id.String() }

// exempt reports whether nobody has to settle a message.
func (f *fate) exempt() bool { return f.settled || f.gone || f.foreign }

// strict reports whether a color is a strict lane's: what is no name is none.
func strict(color lane.Name) bool { return color.Strict() && color.Valid() }

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
				f.unread = f.unread || retention && !f.exempt()
				f.gone = true
			}
		}
		if retention {
			p.low = max(p.low, to)
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
	if k.ancestors[name] == nil {
		k.ancestors[name] = map[lane.Name]bool{}
	}
	if parent != lane.Baseline {
		k.ancestors[name][parent] = true
	}
}

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

// crashed is told that an actor is no more.
func (k *checker) crashed(a *actor) {
	for _, p := range k.groups[a.group].order {
		for _, f := range p.messages {
			for i := range f.hands {
				if h := &f.hands[i]; h.by == a && h.live() {
					h.state = abandoned
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
		k.saidMissing(a, al)
	case consume.AlarmTruncated:
		p := k.groups[a.group].part(al.Partition)
		if !p.broken || a.halted[al.Partition] {
			k.fail("ALARM", "%s says that the log of %s was truncated, and it was not, or that was said", a.name, al.Partition)
		}
		p.alarmed = true
		a.halted[al.Partition] = true
	case consume.AlarmRegistry, consume.AlarmRegistryBack:
		if a.owes != al.Kind {
			k.fail("ALARM", "%s says %s, and it is not so", a.name, al.Kind)
		}
		a.owes = ""
	case consume.AlarmHandover:
		p := k.groups[a.group].part(al.Partition)
		if n, more := p.with(a, a.running[cursorAt{p.id, al.Cursor}]); al.Count < int64(max(n, 1)) || al.Count > int64(n+more) {
			k.fail("ALARM", "%s says that %d messages of cursor %q of %s were cut off, and there are %d", a.name, al.Count, al.Cursor, p.name(), n)
		}
		a.cutOff = &cursorAt{p.id, al.Cursor}
	case consume.AlarmForeign:
		k.fail("ALARM", "%s says that somebody consumes past Laneway, of which the Core knows nothing", a.name)
	}
}

// saidMissing checks an alarm of what retention deleted: every offset of it is gone, and none of
// the cursor's own was settled already.
func (k *checker) saidMissing(a *actor, al *consume.Alarm) {
	p := k.groups[a.group].part(al.Partition)
	to := al.From + al.Count
	if p.broken {
		return
	}
	r := a.runs[a.running[cursorAt{p.id, al.Cursor}]]
	if r == nil {
		k.fail("ALARM", "%s says that messages of cursor %q of %s were deleted, and does not run it", a.name, al.Cursor, p.name())
		return
	}
	for _, s := range r.gone {
		if al.From < s[1] && s[0] < to {
			k.fail("ALARM", "%s says that %d messages of %s were deleted from %d on, and has said so of some", a.name, al.Count, p.name(), al.From)
			return
		}
	}
	r.gone = append(r.gone, [2]int64{al.From, to})
	if al.From < 0 || al.Count < 1 || to > p.low {
		k.fail("ALARM", "%s says that %d messages of %s were deleted from %d on, and %d is there", a.name, al.Count, p.name(), al.From, p.low)
		return
	}
	record, done := p.record, func(f *fate) bool { return f.settled && p.noted(f) }
	if p.unaware(a) { // it does not know of the reset yet, and speaks of what was before
		record, done = p.reset.before, func(f *fate) bool { return f.earlier }
	}
	if h, _ := holderOf(record, al.Cursor); !slices.Contains(a.sessions, h.Session) {
		p.told(al.From, to) // it was cut off, and knows an older note
		return
	}
	for _, f := range p.messages {
		if o := f.msg.Offset; o < al.From || o >= to {
			continue
		}
		if owning(record, f.msg) != al.Cursor {
			f.told = f.told || al.Cursor == consume.Main // ahead of its position, of a color that is merged by then
			if n := p.notes[al.Cursor]; n != nil && f.msg.Offset < n.Pos && !p.unaware(a) {
				k.fail("ALARM", "%s says that %s was deleted unread of cursor %q, and it is another one's", a.name, describe(f.msg), al.Cursor)
				return
			}
			continue
		}
		if f.told = true; done(f) {
			k.fail("ALARM", "%s says that %s was deleted unread, and it was settled before", a.name, describe(f.msg))
			return
		}
	}
}

// told notes that somebody said of offsets that they are gone.
func (p *checkPart) told(from, to int64) {
	for _, f := range p.messages {
		f.told = f.told || f.msg.Offset >= from && f.msg.Offset < to
	}
}

// unaware reports whether an actor may not act yet on the last reset of a partition: it was not
// told of it, or not of the answer to its own write that made it.
func (p *checkPart) unaware(a *actor) bool {
	return a.learned[p.id] < p.reset.revision || p.reset.by == a
}

// with counts what a run of an actor's has with consumers or on its way to another topic, and
// what more it may believe to have: a reset by somebody else cut it off.
func (p *checkPart) with(a *actor, run uint64) (n, more int) {
	for _, f := range p.messages {
		for i := range f.hands {
			h := &f.hands[i]
			switch {
			case h.by != a || h.run != run:
			case h.live():
				n++
			case h.state == cut:
				more++
			}
		}
	}
	return n, more
}

// stepped is told that a Core has done all that follows from an event.
func (k *checker) stepped(a *actor) {
	if a.owes != "" {
		k.fail("ALARM", "%s does not say %s", a.name, a.owes)
	}
	k.recallsDone(a)
	a.paused, a.opening = false, false
}

// mirrored is told what the engine is shown as a group's offset.
func (k *checker) mirrored(a *actor, m *consume.Mirror) {
	p := k.groups[a.group].part(m.Partition)
	if p.unaware(a) { // since then there was a reset, which it does not know of: it shows what it noted
		if most := a.lowest[cursorAt{p.id, m.Cursor}]; m.Offset > most {
			k.fail("MIRROR", "%s shows %d as the lowest unsettled offset of cursor %q of %s, and has noted %d", a.name, m.Offset, m.Cursor, m.Partition, most)
		}
		return
	}
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

// resolving and resolved are told of a start that is turned into an offset: one of a group, or
// of a reset that it reports.
func (k *checker) resolving(a *actor, r consume.Resolve) (reset bool) {
	g := k.groups[a.group]
	if a.view != nil && a.view.Group.Reset != nil && g.part(r.Partition).record != nil {
		at, named := a.view.Group.Reset.Offsets[r.Partition]
		if named && r.Start == (consume.Start{Kind: consume.StartOffset, Offset: at}) {
			return true
		}
	}
	want := g.cfg.Start
	for _, t := range g.cfg.Topics {
		if r.Partition.Topic == t.Retry || r.Partition.Topic == t.Name && r.Partition.Index >= t.Partitions {
			want = consume.Start{}
		}
	}
	if r.Start != want {
		k.fail("I1", "%s lets %s begin at %+v, not at %+v", a.name, r.Partition, r.Start, want)
	}
	return false
}

func (k *checker) resolved(group int, id consume.Partition, offset int64) {
	p := k.groups[group].part(id)
	p.resolved = append(p.resolved, offset)
}

// told is told of every event before its Core is.
func (k *checker) told(a *actor, now time.Duration, e consume.Event) {
	k.keepsNotes(a, now)
	switch e := e.(type) {
	case *consume.Fetched:
		if r := a.runs[e.Run]; r != nil {
			k.fetched(a, r, e)
		}
	case *consume.Answered:
		if id, sent := a.wrote[e.Write]; sent && e.Outcome != consume.Doubt {
			a.learned[id] = max(a.learned[id], e.Revision)
			a.underWay[id]--
			a.refused(e)
			if e.Outcome == consume.Done && a.landed[e.Write] {
				a.owesMoved[e.Write] = true
			}
			if r := &k.groups[a.group].part(id).reset; r.by == a && r.write == e.Write {
				r.by = nil
			}
			a.again(&id, now)
		}
	case *consume.Several:
		for _, one := range e.Events {
			k.told(a, now, one)
		}
	case *consume.Recorded:
		a.learned[e.Partition] = max(a.learned[e.Partition], e.Revision)
	case *consume.Viewed:
		k.viewed(a, now, e.View)
	case *consume.LeaseLost:
		if !a.lost && len(a.sessions) > 0 {
			a.owes = consume.AlarmRegistry
			if a.policy == consume.LossHold {
				k.owesRecalls(a)
			}
		}
		a.lost = true
		clear(a.cutFor) // it may go on with what it was to give up
	case *consume.Opened:
		if a.lost {
			a.owes = consume.AlarmRegistryBack
			k.owesRecalls(a)
			a.opening = true
		}
		a.lost = false
		clear(a.cutFor)
		a.again(nil, now)
	case *consume.Partitioned:
		for i, room := range e.Rooms {
			k.groups[a.group].part(consume.Partition{Topic: e.Topic, Index: int32(i)}).room = room
		}
	case *consume.Stop:
		a.stopping = true
	case *consume.Settled:
		k.spoke(a, now, e.Run, e.Offset, done)
	case *consume.Returned:
		k.spoke(a, now, e.Run, e.Offset, given)
	case *consume.Failed:
		if k.retries(a, e) {
			k.spoke(a, now, e.Run, e.Offset, storing)
		} else {
			k.spoke(a, now, e.Run, e.Offset, given)
		}
	}
}

func (k *checker) retries(a *actor, e *consume.Failed) bool {
	p, _, _ := k.withConsumer(a, e.Run, e.Offset)
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
	a.paused = a.paused || v.Group.Paused
	if v.Group.Paused && a.view != nil && !a.view.Group.Paused {
		k.owesRecalls(a)
	}
	a.view = v
	if v.Group.Reset != nil {
		for id := range v.Group.Reset.Offsets {
			a.rewinds[id] = true
		}
	}
	for _, c := range []lane.Name{strictLane, strictNone} {
		if _, known := v.Lanes[c]; known {
			delete(a.unknown, c)
		} else if _, since := a.unknown[c]; !since {
			a.unknown[c] = now
		}
	}
}

// withConsumer finds a message that a run of an actor has handed out.
func (k *checker) withConsumer(a *actor, run uint64, offset int64) (*checkPart, *fate, *handed) {
	r := a.runs[run]
	if r == nil {
		return nil, nil, nil
	}
	if f := r.p.find(offset); f != nil {
		for i := range f.hands {
			if h := &f.hands[i]; h.by == a && h.run == run && h.state != given && h.state != done {
				return r.p, f, h
			}
		}
	}
	return nil, nil, nil
}

// spoke is told what became of a message that was with a consumer.
func (k *checker) spoke(a *actor, now time.Duration, run uint64, offset int64, to handState) {
	p, f, h := k.withConsumer(a, run, offset)
	if p == nil {
		return
	}
	if to == done {
		f.settled = true
	}
	if h.state == cut {
		return // nobody listens any more
	}
	if h.live() && p.holds(h) {
		switch {
		case to == done && !p.noted(f):
			a.moved(p, h.term.cursor, now)
		case to == given:
			f.permit = true
		}
	}
	h.state = to
}

// withdrawn is told that a run was given up. What outlasted the hand-over time-out may be
// dispatched again.
func (k *checker) withdrawn(a *actor, now time.Duration, w *consume.Withdraw) {
	run, in := w.Run, w.In
	r := a.runs[run]
	if r == nil {
		return
	}
	p := r.p
	k.gaveUp(a, r, w)
	if h, there := holderOf(p.record, r.cursor); in > 0 && there && slices.Contains(a.sessions, h.Session) &&
		(a.cutOff == nil || *a.cutOff != cursorAt{p.id, r.cursor}) {
		k.fail("ALARM", "%s gives up what consumers have of cursor %q of %s, and does not say so", a.name, r.cursor, p.name())
	}
	a.cutOff = nil
	if n, more := p.with(a, run); in < n || in > n+more {
		k.fail("WITHDRAW", "%s gives up run %d of %s with %d in flight, and there are %d", a.name, run, p.name(), in, n)
	}
	if at := (cursorAt{p.id, r.cursor}); a.running[at] == run {
		delete(a.running, at)
		delete(a.unnoted, at)
	}
	for _, f := range p.messages {
		for i := range f.hands {
			h := &f.hands[i]
			if h.by != a || h.run != run || !h.live() {
				continue
			}
			if p.holds(h) && now-h.at >= p.g.cfg.HandoverTimeout {
				f.permit = true
			}
			h.state = cut
		}
	}
}
