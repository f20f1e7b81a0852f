package consume

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// TestExplore goes through everything that can happen to small worlds of two processes, two
// lanes and three messages, in every order: breadth first, with the states that were seen
// kept by their hash. Each world has one partition, a log of three messages, and a budget of
// what may go wrong.
func TestExplore(t *testing.T) {
	const a = lane.Name("a")
	for _, c := range []struct {
		name  string
		world exploreWorld
		least int // states that a whole exploration has; a broken explorer has fewer
	}{
		{"from nothing", exploreWorld{
			log: []lane.Name{a, "", a}, serves: [2][]lane.Name{{lane.Baseline}, {a}}, cold: true,
		}, 140},
		{"a lane goes and a process dies", exploreWorld{
			log: []lane.Name{a, "", a}, serves: [2][]lane.Name{{lane.Baseline}, {a}}, leaves: 1, crashes: 1,
		}, 5000},
		{"a process dies after notes", exploreWorld{
			log: []lane.Name{a, "", a}, serves: [2][]lane.Name{{lane.Baseline}, {a}}, crashes: 1, notes: 1,
		}, 4000},
		{"both serve both and one dies", exploreWorld{
			log: []lane.Name{a, "", a}, serves: [2][]lane.Name{{lane.Baseline, a}, {lane.Baseline, a}}, crashes: 1, notes: 1,
		}, 5500},
		{"a lane comes and goes", exploreWorld{
			log: []lane.Name{a, a, a}, serves: [2][]lane.Name{{lane.Baseline}, {}}, joins: 1, leaves: 1,
		}, 70000},
		{"a lane comes and an answer is lost", exploreWorld{
			log: []lane.Name{a, a, a}, serves: [2][]lane.Name{{lane.Baseline}, {}}, joins: 1, doubts: 1,
		}, 3700},
		{"a lane comes and a process dies", exploreWorld{
			log: []lane.Name{a, "", a}, serves: [2][]lane.Name{{lane.Baseline}, {lane.Baseline}}, joins: 1, crashes: 1,
		}, 10000},
		{"a message is given back and a lane goes", exploreWorld{
			log: []lane.Name{a, "", a}, serves: [2][]lane.Name{{lane.Baseline}, {a}}, leaves: 1, returns: 1,
		}, 5000},
		{"messages come one by one while a lane goes", exploreWorld{
			log: []lane.Name{a, "", a}, serves: [2][]lane.Name{{lane.Baseline}, {a}}, leaves: 1, appends: true,
		}, 20000},
	} {
		if c.least > exploreMost || testing.Short() && c.least > 4000 {
			continue // too dear with the race detector, or for every commit
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := newExplorer()
			if what := e.run(c.world.begin(t)); what != "" {
				t.Fatal(what)
			}
			t.Logf("%d states, %d steps, %d ends, at most %d deep", len(e.seen), e.edges, e.ends, e.depth)
			if len(e.seen) < c.least || e.ends == 0 {
				t.Errorf("%d states and %d ends: want at least %d states", len(e.seen), e.ends, c.least)
			}
		})
	}
}

// TestExploreSees: where the registry compares nothing, the search comes to a broken promise.
func TestExploreSees(t *testing.T) {
	w := exploreWorld{
		log: []lane.Name{"a"}, serves: [2][]lane.Name{{lane.Baseline}, {"a"}}, leaves: 1, doubts: 1, careless: true,
	}
	what := newExplorer().run(w.begin(t))
	if !strings.Contains(what, ":") || !strings.Contains(what, "p1 leaves lane a") {
		t.Errorf("it found %q", what)
	}
	t.Log(what)
}

// explorer is a search through a world's states, breadth first.
type explorer struct {
	seen  map[uint64]came
	edges int
	ends  int
	depth int
}

// came is how a state was reached first.
type came struct {
	from  uint64
	event string
	depth int
}

func newExplorer() *explorer { return &explorer{seen: map[uint64]came{}} }

// run goes through all states that can follow from one, and says what is wrong with the first
// that is, and how it came about; empty: nothing.
func (e *explorer) run(start *exploreWorld) string {
	type node struct {
		w *exploreWorld
		h uint64
	}
	h := start.hash()
	e.seen[h] = came{}
	queue := []node{{start, h}}
	for len(queue) > 0 {
		n := queue[0]
		queue[0] = node{}
		queue = queue[1:]
		moved := false
		for _, ev := range n.w.events() {
			next := n.w.clone()
			ev.do(next)
			e.edges++
			if next.broken != "" {
				return fmt.Sprintf("%s\n%s", next.broken, e.path(n.h, ev.name))
			}
			h := next.hash()
			moved = moved || h != n.h
			if _, there := e.seen[h]; there {
				continue
			}
			d := e.seen[n.h].depth + 1
			e.depth = max(e.depth, d)
			e.seen[h] = came{from: n.h, event: ev.name, depth: d}
			if len(e.seen) > exploreMost {
				return fmt.Sprintf("more than %d states", exploreMost)
			}
			queue = append(queue, node{next, h})
		}
		if !moved {
			e.ends++
			if what := n.w.unfinished(); what != "" {
				return fmt.Sprintf("nothing can happen any more, and %s\n%s", what, e.path(n.h, ""))
			}
		}
	}
	return ""
}

// path tells how a state was reached.
func (e *explorer) path(h uint64, last string) string {
	steps := []string{last}
	for e.seen[h].event != "" {
		steps = append(steps, e.seen[h].event)
		h = e.seen[h].from
	}
	slices.Reverse(steps)
	return strings.Join(steps, "\n")
}

// exploreWorld is two Cores, a registry, a log, and what is on its way between them.
type exploreWorld struct {
	// What the world is made of.
	log      []lane.Name // the colors of the messages
	serves   [2][]lane.Name
	appends  bool // messages come one by one
	careless bool // the registry compares nothing
	cold     bool // nothing is there at the beginning; else all is where it should be
	// What may still happen.
	joins, leaves int // of the second process, to and from lane a
	crashes       int
	doubts        int
	returns       int
	notes         int // rounds of notes

	procs    [2]*exploreProc
	messages []*Message // the log, and what follows
	end      int        // so many are in the log
	fates    [3]exploreFate
	firsts   map[lane.Name]int64
	terms    map[exploreTerm]int64

	revision uint64
	lively   uint64 // the revision at which sessions and members changed last
	record   *Record
	recorded uint64
	stored   map[lane.Name]StoredNote
	late     []*Write // under way, and nobody waits for the answer

	broken string
}

type exploreFate struct {
	Seen, Settled, Out, Returned, Freed bool
	By                                  int
	Lane                                lane.Name
}

type exploreTerm struct {
	By    int
	Lane  lane.Name
	Color lane.Name
}

type exploreProc struct {
	id      int
	session string
	core    *Core
	alive   bool
	ended   bool // its session is
	members []lane.Name
	viewed  uint64
	write   *Write  // to be sent
	answer  *Answer // to that write
	reads   map[uint64]Fetch
	out     []exploreOut
	timers  map[Timer]bool
}

type exploreOut struct {
	Run    uint64
	Offset int64
}

var explorePart = Partition{Topic: "orders"}

// begin is the world at its start, when both processes hold what they should.
func (w exploreWorld) begin(t *testing.T) *exploreWorld {
	t.Helper()
	w.firsts, w.terms, w.stored = map[lane.Name]int64{}, map[exploreTerm]int64{}, map[lane.Name]StoredNote{}
	for i, c := range w.log {
		w.messages = append(w.messages, &Message{Partition: explorePart, Offset: int64(i), Color: c})
	}
	if !w.appends && w.cold {
		w.end = len(w.log)
	}
	w.revision = 1
	for i := range w.procs {
		core, err := NewCore(Config{
			Group: "billing", Topics: []Topic{{Name: explorePart.Topic, Partitions: 1}}, HandoverTimeout: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		w.procs[i] = &exploreProc{
			id: i, session: fmt.Sprintf("s%d", i), core: core, alive: true, reads: map[uint64]Fetch{}, timers: map[Timer]bool{},
		}
	}
	for i, p := range w.procs {
		w.step(p, &Opened{p.session})
		for _, in := range w.serves[i] {
			w.join(p, in)
		}
		w.step(p, &Partitioned{Topic: explorePart.Topic, Count: 1})
	}
	if !w.cold {
		w.quiet()
	}
	if !w.appends {
		w.end = len(w.log)
		w.fetch()
	}
	return &w
}

// quiet lets everything happen that is on its way, one way or other.
func (w *exploreWorld) quiet() {
	on := func(p *exploreProc) func(string, func(*exploreWorld, *exploreProc)) {
		return func(what string, do func(*exploreWorld, *exploreProc)) {
			switch what {
			case "'s write arrives", "is answered", "sees the registry", "hears that there are no more messages":
				do(w, p)
			}
		}
	}
	for range 100 {
		for _, p := range w.procs {
			w.processEvents(p, on(p))
		}
	}
}

func (w *exploreWorld) touch() {
	w.revision++
	w.lively = w.revision
}

func (w *exploreWorld) member(p *exploreProc, in lane.Name) Member {
	return Member{
		ID: fmt.Sprintf("%s@%s", p.session, in), Session: p.session, Lane: in, Topics: []string{explorePart.Topic},
	}
}

func (w *exploreWorld) join(p *exploreProc, in lane.Name) {
	w.touch()
	p.members = append(slices.Clone(p.members), in)
	w.step(p, &Joined{w.member(p, in)})
}

func (w *exploreWorld) leave(p *exploreProc, in lane.Name) {
	w.touch()
	p.members = slices.DeleteFunc(slices.Clone(p.members), func(l lane.Name) bool { return l == in })
	w.step(p, &Left{w.member(p, in).ID})
}

func (w *exploreWorld) view() *View {
	v := &View{Revision: w.revision, Lanes: map[lane.Name]Lane{"a": {}}, Sessions: map[string]bool{}}
	for _, p := range w.procs {
		if p.ended {
			continue
		}
		v.Sessions[p.session] = true
		for _, in := range p.members {
			v.Members = append(v.Members, w.member(p, in))
		}
	}
	return v
}

// exploreEvent is one thing that can happen.
type exploreEvent struct {
	name string
	do   func(*exploreWorld)
}

// events are all things that can happen next. Each acts on the world that it is given.
func (w *exploreWorld) events() []exploreEvent {
	var all []exploreEvent
	can := func(name string, do func(*exploreWorld)) { all = append(all, exploreEvent{name, do}) }
	for i := range w.late {
		can("a late write arrives", func(w *exploreWorld) {
			write := w.late[i]
			w.late = slices.Delete(slices.Clone(w.late), i, i+1)
			w.apply(write)
		})
	}
	if w.end < len(w.messages) {
		can("a message comes", func(w *exploreWorld) {
			w.end++
			w.fetch()
		})
	}
	for i, p := range w.procs {
		on := func(what string, do func(*exploreWorld, *exploreProc)) {
			can(fmt.Sprintf("p%d %s", i, what), func(w *exploreWorld) { do(w, w.procs[i]) })
		}
		if !p.alive {
			if !p.ended {
				on("expires", func(w *exploreWorld, p *exploreProc) {
					p.ended = true
					w.touch()
				})
			}
			continue
		}
		w.processEvents(p, on)
	}
	if p := w.procs[1]; p.alive && w.joins > 0 && !slices.Contains(p.members, "a") {
		can("p1 joins lane a", func(w *exploreWorld) {
			w.joins--
			w.join(w.procs[1], "a")
		})
	}
	if p := w.procs[1]; p.alive && w.leaves > 0 && slices.Contains(p.members, "a") {
		can("p1 leaves lane a", func(w *exploreWorld) {
			w.leaves--
			w.leave(w.procs[1], "a")
		})
	}
	return all
}

func (w *exploreWorld) processEvents(p *exploreProc, on func(string, func(*exploreWorld, *exploreProc))) {
	if p.write != nil && p.answer == nil {
		on("'s write arrives", func(w *exploreWorld, p *exploreProc) {
			a := w.apply(p.write)
			p.answer = &a
		})
		if w.doubts > 0 {
			on("waits no longer for a write that is under way", func(w *exploreWorld, p *exploreProc) {
				w.doubts--
				w.late = append(slices.Clone(w.late), p.write)
				w.answer(p, Answer{Outcome: Doubt})
			})
		}
	}
	if p.answer != nil {
		on("is answered", func(w *exploreWorld, p *exploreProc) { w.answer(p, *p.answer) })
		if w.doubts > 0 {
			on("loses an answer", func(w *exploreWorld, p *exploreProc) {
				w.doubts--
				w.answer(p, Answer{Outcome: Doubt})
			})
		}
	}
	if p.viewed < w.lively || p.viewed < w.recorded {
		on("sees the registry", func(w *exploreWorld, p *exploreProc) {
			before := p.viewed
			p.viewed = w.revision
			w.step(p, &Viewed{w.view()})
			if before < w.recorded {
				w.step(p, &Recorded{Stored: Stored{Partition: explorePart, Record: w.record, Revision: w.recorded}})
			}
		})
	}
	if len(p.reads) > 0 {
		on("hears that there are no more messages", func(w *exploreWorld, p *exploreProc) {
			var ids []uint64
			for id := range p.reads {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			for _, id := range ids {
				f := p.reads[id]
				delete(p.reads, id)
				w.step(p, &Fetched{Run: id, Batch: Batch{Next: f.From, Bounds: Bounds{End: int64(w.end), Epoch: "e"}}})
			}
		})
	}
	for _, o := range p.out {
		on(fmt.Sprintf("settles %d", o.Offset), func(w *exploreWorld, p *exploreProc) {
			p.gone(o)
			w.fates[o.Offset].Settled, w.fates[o.Offset].Out = true, false
			w.step(p, &Settled{o.Run, o.Offset})
		})
		if w.returns > 0 {
			on(fmt.Sprintf("gives back %d", o.Offset), func(w *exploreWorld, p *exploreProc) {
				w.returns--
				p.gone(o)
				w.fates[o.Offset].Returned, w.fates[o.Offset].Out = true, false
				w.step(p, &Returned{o.Run, o.Offset})
			})
		}
	}
	if note := (Timer{Kind: TimerNote}); p.timers[note] && w.notes > 0 {
		on("takes note", func(w *exploreWorld, p *exploreProc) {
			w.notes--
			delete(p.timers, note)
			w.step(p, &Fired{note})
		})
	}
	if w.crashes > 0 {
		on("dies", func(w *exploreWorld, p *exploreProc) {
			w.crashes--
			if p.write != nil && p.answer == nil {
				w.late = append(slices.Clone(w.late), p.write)
			}
			p.alive, p.core, p.write, p.answer, p.reads, p.out, p.timers = false, nil, nil, nil, nil, nil, nil
			for i := range w.fates {
				if f := &w.fates[i]; f.By == p.id {
					f.Freed, f.Out = true, false
				}
			}
		})
	}
}

func (p *exploreProc) gone(o exploreOut) {
	p.out = slices.DeleteFunc(slices.Clone(p.out), func(other exploreOut) bool { return other == o })
}

// answer tells a process of what became of its write.
func (w *exploreWorld) answer(p *exploreProc, a Answer) {
	id := p.write.ID
	p.write, p.answer = nil, nil
	w.step(p, &Answered{Write: id, Answer: a})
}

// apply does a write, whole or not at all.
func (w *exploreWorld) apply(write *Write) Answer {
	names := slices.Clone(write.Read)
	ok := write.IfRevision == w.recorded
	for _, n := range write.Notes {
		ok = ok && (!n.Compare || w.stored[n.Cursor].Revision == n.IfRevision)
		if !slices.Contains(names, n.Cursor) {
			names = append(names, n.Cursor)
		}
	}
	for _, p := range w.procs {
		ok = ok && (p.ended || !slices.Contains(write.Gone, p.session))
	}
	ok = ok || w.careless
	a := Answer{Outcome: Conflict, Record: w.record}
	if ok {
		w.revision++
		a = Answer{Outcome: Done}
		if write.Record != nil {
			w.record, w.recorded = write.Record, w.revision
		}
		for _, n := range write.Notes {
			delete(w.stored, n.Cursor)
			if n.Note != nil {
				w.stored[n.Cursor] = StoredNote{Cursor: n.Cursor, Note: n.Note, Revision: w.revision}
			}
		}
		w.checkNotes()
	}
	a.Revision = w.recorded
	for _, c := range names {
		n := w.stored[c]
		n.Cursor = c
		a.Notes = append(a.Notes, n)
	}
	return a
}

// step steps a Core, and does what follows.
func (w *exploreWorld) step(p *exploreProc, e Event) {
	for _, a := range p.core.Step(e) {
		switch a := a.(type) {
		case *Propose:
			if p.write != nil {
				w.fault("p%d has two writes under way", p.id)
			}
			p.write = a.Write
		case *Fetch:
			p.reads[a.Run] = *a
		case *Dispatch:
			p.out = append(slices.Clone(p.out), exploreOut{a.Run, a.Offset})
			w.dispatched(p, a)
		case *Withdraw:
			delete(p.reads, a.Run)
			p.out = slices.DeleteFunc(slices.Clone(p.out), func(o exploreOut) bool { return o.Run == a.Run })
		case *Resolve:
			defer func() { w.step(p, &Resolved{Partition: a.Partition, Epoch: "e"}) }()
		case *Arm:
			p.timers[a.Timer] = true
		case *Disarm:
			delete(p.timers, a.Timer)
		case *Alarm:
			w.fault("p%d raises an alarm: %s", p.id, a.Kind)
		}
	}
	w.fetch()
}

// fetch answers all reads that there is something for.
func (w *exploreWorld) fetch() {
	for _, p := range w.procs {
		if p == nil {
			continue
		}
		for len(p.reads) > 0 {
			run := uint64(0)
			for id, f := range p.reads {
				if f.From < int64(w.end) && (run == 0 || id < run) {
					run = id
				}
			}
			if run == 0 {
				break
			}
			f := p.reads[run]
			delete(p.reads, run)
			b := Batch{Next: int64(w.end), Bounds: Bounds{End: int64(w.end), Epoch: "e"}}
			for _, m := range w.messages[f.From:w.end] {
				if len(b.Messages) == f.Max {
					b.Next = b.Messages[f.Max-1].Offset + 1
					break
				}
				if f.Filter.All || m.Color == f.Filter.Color {
					b.Messages = append(b.Messages, m)
				}
			}
			w.step(p, &Fetched{Run: run, Batch: b})
		}
	}
}

func (w *exploreWorld) fault(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// dispatched checks I2, I3 and I4 for a message that is handed out.
func (w *exploreWorld) dispatched(p *exploreProc, d *Dispatch) {
	f := &w.fates[d.Offset]
	if h, _ := w.record.Holder(d.Cursor); h != (Holder{Session: p.session, Lane: d.Lane}) {
		w.fault("I2: p%d dispatches %d for %q by cursor %q, which %s holds", p.id, d.Offset, d.Lane, d.Cursor, h)
	}
	if !slices.Contains(p.members, d.Lane) {
		w.fault("I2: p%d dispatches %d for %q, where it has no member", p.id, d.Offset, d.Lane)
	}
	if w.record.Owns(d.Color, d.Offset) != (d.Cursor != Main) {
		w.fault("STRUCT: p%d dispatches %d by cursor %q, whose it is not", p.id, d.Offset, d.Cursor)
	}
	switch {
	case f.Seen && !f.Returned && !f.Freed:
		w.fault("I3: p%d dispatches %d, which p%d dispatched for %q", p.id, d.Offset, f.By, f.Lane)
	case f.Seen && !d.Redelivered:
		w.fault("I3: p%d dispatches %d again, and does not say so", p.id, d.Offset)
	case !f.Seen && d.Offset < w.firsts[d.Color]:
		w.fault("I4: p%d dispatches %d first, after %d", p.id, d.Offset, w.firsts[d.Color])
	}
	t := exploreTerm{p.id, d.Lane, d.Color}
	if last, ok := w.terms[t]; ok && d.Offset <= last && !f.Returned && !f.Freed {
		w.fault("I4: p%d dispatches %d after %d", p.id, d.Offset, last)
	}
	w.firsts[d.Color] = max(w.firsts[d.Color], d.Offset)
	w.terms[t] = max(w.terms[t], d.Offset)
	*f = exploreFate{Seen: true, Settled: f.Settled, Out: true, By: p.id, Lane: d.Lane}
}

// checkNotes checks I1: were all to die now, nothing would be lost.
func (w *exploreWorld) checkNotes() {
	if w.record == nil {
		return
	}
	for o := range w.messages {
		m := w.messages[o]
		cursor := Main
		if w.record.Owns(m.Color, m.Offset) {
			cursor = m.Color
		}
		if n := w.stored[cursor].Note; n != nil && n.Settled(m.Offset) && !w.fates[o].Settled {
			w.fault("I1: %d is not settled, and the note of cursor %q says so", o, cursor)
		}
	}
}

// unfinished says what should be and is not, where nothing happens any more.
func (w *exploreWorld) unfinished() string {
	serves := func(l lane.Name) bool {
		return slices.ContainsFunc(w.procs[:], func(p *exploreProc) bool { return p.alive && slices.Contains(p.members, l) })
	}
	if w.record == nil {
		if slices.ContainsFunc(w.procs[:], func(p *exploreProc) bool { return p.alive && len(p.members) > 0 }) {
			return "there is no record"
		}
		return ""
	}
	for o := range w.messages {
		m, f := w.messages[o], w.fates[o]
		main := !w.record.Owns(m.Color, m.Offset)
		owner := m.Color
		if main && f.Seen || !serves(owner) {
			owner = lane.Baseline
		}
		if !f.Settled && serves(owner) {
			return fmt.Sprintf("%d (%q) is not settled", o, m.Color)
		}
	}
	_, split := w.record.Colors["a"]
	if serves(lane.Baseline) && split != serves("a") {
		return fmt.Sprintf("color a is split off: %t", split)
	}
	return ""
}
