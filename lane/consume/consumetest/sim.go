package consumetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// Config is what a simulation is made of. The seed decides all but what the other fields
// leave out.
type Config struct {
	Seed uint64
	// Trace keeps a line for all that happens.
	Trace bool
	// NoFaults lets nothing go wrong.
	NoFaults bool
	// Sequential lets nothing take time and nothing overtake anything: a scheduler that never
	// interleaves. It is there to show that such a simulation is seen to cover nothing.
	Sequential bool

	edit  func(*plan)  // leaves out parts of the plan
	spoil func(*world) // breaks something, to see what comes of it
}

// Violation is how a history breaks what is promised.
type Violation struct {
	Rule string // I1 to I5, STRUCT, or what else a Core owes
	What string
	At   time.Duration // of virtual time
	Step int
}

func (v *Violation) String() string {
	return fmt.Sprintf("%s at %v, step %d: %s", v.Rule, v.At, v.Step, v.What)
}

// Result is what came of a simulation.
type Result struct {
	Seed      uint64
	Violation *Violation // nil: none
	Coverage  Coverage
	Trace     []string
}

// Simulate runs one history: processes with members in the baseline and in lanes, that come
// and go while messages arrive and things go wrong, and then a quiet time by whose end all
// must be well. The same Config gives the same Result. It starts no goroutine and looks at
// no clock.
func Simulate(cfg Config) Result {
	p := makePlan(cfg.Seed, !cfg.NoFaults)
	if cfg.edit != nil {
		cfg.edit(p)
	}
	w := newWorld(cfg, p)
	if cfg.spoil != nil {
		cfg.spoil(w)
	}
	w.run()
	w.result.Violation = w.check.violation
	w.result.Coverage.finish(w.check)
	return w.result
}

// world is one simulation.
type world struct {
	cfg     Config
	plan    *plan
	sched   scheduler
	reg     *registry
	engine  *engine
	check   *checker
	procs   []*process
	random  stream
	result  Result
	mirrors map[consume.Partition]int64 // nobody reads them
	buried  map[string]bool             // sessions that ended: their IDs are never used again

	quiet     bool // the tail: nothing goes wrong any more
	unstuck   bool
	keepStuck bool // for ever
	probing   bool // consumers take as long as a probe's do
	downTill  time.Duration
	slowTill  time.Duration
	held      []*request // that arrive late, perhaps right after something else
	resets    int
	calledOff bool           // one of them was taken back, or will be
	relents   *consume.Reset // that will be, as soon as may be
	moves     int            // that took place
}

func newWorld(cfg Config, p *plan) *world {
	w := &world{
		cfg: cfg, plan: p, reg: newRegistry(p.groups), random: stream{state: mixed(p.seed, 2)},
		mirrors: map[consume.Partition]int64{}, buried: map[string]bool{},
	}
	w.result = Result{Seed: p.seed, Coverage: newCoverage()}
	w.sched = scheduler{random: stream{state: mixed(p.seed, 3)}, sequential: cfg.Sequential}
	w.check = newChecker(p.groups)
	w.check.clock = func() (time.Duration, int) { return w.sched.now, w.result.Coverage.Steps }
	w.engine = &engine{
		w: w, topics: map[string][]*journal{}, known: map[string]bool{}, counts: map[string]map[lane.Name]int{}, epochs: map[reader]string{},
		random: stream{state: mixed(p.seed, 4)},
	}
	for g := range p.groups {
		for _, t := range w.topicsOf(g) {
			w.engine.ensure(t, p.parts[t])
		}
		for _, t := range p.groups[g].Topics {
			if t.Dead != "" {
				w.engine.ensure(t.Dead, 1)
			}
		}
	}
	for i := range p.lanes {
		if p.up[i] {
			w.laneUp(i)
		}
	}
	for i := range p.procs {
		w.procs = append(w.procs, &process{
			w: w, id: i, net: stream{state: mixed(p.seed, 5, uint64(i))}, work: stream{state: mixed(p.seed, 6, uint64(i))},
		})
	}
	w.reg.persists = p.persists
	w.reg.changed = func() {
		for _, p := range w.procs {
			for _, cl := range p.clients {
				cl.watch()
			}
		}
	}
	return w
}

// topicsOf are the topics that a group reads: its own and their retry topics.
func (w *world) topicsOf(group int) []string {
	var all []string
	for _, t := range w.plan.groups[group].Topics {
		all = append(all, t.Name)
		if t.Retry != "" {
			all = append(all, t.Retry)
		}
	}
	return all
}

func (w *world) failed() bool { return w.check.violation != nil }

func (w *world) rates() *rates {
	if w.quiet {
		return &rates{}
	}
	if w.sched.sequential { // nothing is under way while anything happens
		r := w.plan.rates
		r.lostRequest, r.lostReply, r.late, r.copies = 0, 0, 0, 0
		return &r
	}
	return &w.plan.rates
}

func (w *world) fault(f Fault) { w.result.Coverage.Faults[f]++ }

func (w *world) tracing() bool { return w.cfg.Trace }

func (w *world) tracef(who, format string, args ...any) {
	if w.cfg.Trace {
		line := fmt.Sprintf("%10.4f %-8s ", w.sched.now.Seconds(), who) + fmt.Sprintf(format, args...)
		w.result.Trace = append(w.result.Trace, line)
	}
}

// run makes the history: first what the plan has, then the quiet tail.
func (w *world) run() {
	for _, p := range w.procs {
		w.sched.after(w.sched.delay(&p.net, 100), p.start)
	}
	for i := range w.plan.ops {
		o := &w.plan.ops[i]
		w.sched.push(task{at: o.at, key: uint64(i), do: func() { w.op(o) }})
	}
	w.sched.runUntil(w.plan.until, w.failed)
	w.tail()
	if v := w.check.violation; v != nil {
		w.tracef("checker", "VIOLATION %s", v)
	}
}

// stuckNow reports whether the consumers of a lane settle nothing at present.
func (w *world) stuckNow(l lane.Name) bool {
	return w.plan.stuck != nil && *w.plan.stuck == l && !w.unstuck
}

// hold lets a request, or a copy of one, arrive late: after a while, or right after another
// write of its partition.
func (w *world) hold(rq *request, d time.Duration) {
	w.held = append(w.held, rq)
	w.sched.after(d, func() {
		if i := slices.Index(w.held, rq); i >= 0 {
			w.held = slices.Delete(w.held, i, i+1)
			rq.arrive()
		}
	})
}

// countLate counts a write that arrives when nobody waits for it any more.
func (w *world) countLate(rq *request) {
	c := &w.result.Coverage
	switch {
	case rq.answered:
		c.Faults[FaultLateCopy]++
	case rq.p.inc != rq.inc:
		c.Faults[FaultDeadWriter]++
	case rq.over && len(rq.write.Moves) > 0:
		c.Faults[FaultLateWrite]++
	case rq.over:
		c.Faults[FaultLateNote]++
	}
}

// landed is told of every write that came to the registry.
func (w *world) landed(cl *client, wr *consume.Write, a *consume.Answer, sent time.Duration) {
	if w.tracing() {
		w.tracef("registry", "%s: %s of %s: %s", a.Outcome, describeWrite(wr), cl.by.name, describeAnswer(a))
	}
	if w.reg.refused != nil {
		w.check.fail("FORM", "%s: %s cannot be read again: %v", cl.by.name, describeWrite(wr), w.reg.refused)
		return
	}
	if a.Outcome == consume.Done {
		s := cl.reg().stored[wr.Partition]
		notes := map[lane.Name]*consume.Note{}
		for c, n := range s.notes {
			notes[c] = n.note
		}
		w.check.landed(landing{
			group: cl.group, by: cl.by, at: w.sched.now, sent: sent, write: wr,
			record: s.record, revision: s.revision, notes: notes,
			alive: func(session string) bool { return w.reg.sessions[session] != nil },
		})
		w.result.Coverage.count(wr)
		w.moves += len(wr.Moves)
	}
	for i := 0; i < len(w.held); i++ { // a late one may come right behind
		rq := w.held[i]
		if rq.write != nil && rq.write.Partition == wr.Partition && rq.p.net.n(3) == 0 {
			w.held = slices.Delete(w.held, i, i+1)
			w.sched.after(0, rq.arrive)
			break
		}
	}
}

// watchSession ends a session that was not renewed.
func (w *world) watchSession(id string) {
	s := w.reg.sessions[id]
	if s == nil {
		return
	}
	w.sched.after(s.expires-w.sched.now, func() {
		switch {
		case w.reg.sessions[id] != s:
		case w.downTill > w.sched.now: // nobody could renew: it begins anew
			s.expires = w.downTill + s.ttl
			w.watchSession(id)
		case s.expires > w.sched.now:
			w.watchSession(id)
		default:
			w.endSession(id)
		}
	})
}

// endSession takes a session and its members from the registry.
func (w *world) endSession(id string) {
	w.buried[id] = true
	if w.reg.sessions[id] == nil {
		return
	}
	w.tracef("registry", "session %s ends", id)
	w.reg.end(id)
}

func (w *world) restartLater(p *process) {
	w.sched.after(p.net.between(0, 12*time.Second), func() {
		if !p.up && !w.quiet {
			p.start()
		}
	})
}

func (w *world) laneUp(i int) {
	name := w.plan.lanes[i]
	l := w.reg.lanes[name]
	if l.Generation > 0 && !l.Ended {
		return
	}
	l.Generation++
	l.Ended = false
	if up := w.plan.parents[i]; up >= 0 {
		l.Parent = w.plan.lanes[up]
	}
	w.tracef("registry", "lane %s is there, generation %d, parent %q", name, l.Generation, l.Parent)
	w.reg.lanes[name] = l
	w.check.laneUp(name, l.Parent)
	w.reg.touch()
}

func (w *world) laneDown(i int) {
	name := w.plan.lanes[i]
	l := w.reg.lanes[name]
	if l.Generation == 0 || l.Ended {
		return
	}
	l.Ended = true
	w.tracef("registry", "lane %s is over", name)
	w.reg.lanes[name] = l
	w.reg.touch()
}
