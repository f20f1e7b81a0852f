package consumetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// opKind is a kind of thing that the world does to its processes.
type opKind uint8

const (
	opAppend opKind = iota
	opJoin
	opLeave
	opLaneUp
	opLaneDown
	opCrash
	opStop
	opPause
	opCut
	opDown
	opExpire
	opSlow
	opLag
	opGrow
	opRetain
	opTruncate
	opRecreate
	opDuplicate
	opGroupPause
	opReset
	opKinds
)

func (k opKind) String() string {
	return [...]string{
		"append", "join", "leave", "lane up", "lane down", "crash", "stop", "pause", "cut off", "registry down",
		"expire session", "slow registry", "lag", "grow", "retention", "truncate", "re-create log", "duplicate member",
		"pause group", "reset",
	}[k]
}

// op is one thing that happens, at a time, to something that salt names.
type op struct {
	at   time.Duration
	kind opKind
	salt uint64
}

// memberPlan is a member that a process has from the start.
type memberPlan struct {
	group  int
	lane   lane.Name
	topics []int // of the group's
}

// plan is all that a seed decides beforehand. A shrunk history is the same plan with parts
// left out.
type plan struct {
	seed      uint64
	groups    []consume.Config
	parts     map[string]int32 // partitions of each topic at the start
	lanes     []lane.Name      // that there may be
	parents   []int            // of lanes: an index below its own, or -1
	up        []bool           // lanes that are there from the start
	colors    []lane.Name      // of messages
	procs     [][]memberPlan
	ttl       time.Duration
	rates     rates
	ops       []op
	until     time.Duration // when the quiet tail begins
	stuck     *lane.Name    // its consumers settle nothing until the tail's second half
	filters   bool          // the engine filters by color
	gaps      int           // in a thousand: an offset is passed over
	rooms     bool          // partitions and processes have rooms
	dedups    bool          // the engine knows a copy of an appended message
	bareEnd   bool          // nobody sees to it that the baseline has a member in the end
	persists  bool          // the registry keeps records and notes in their persisted form
	bursts    bool          // many messages are appended at once
	bytes     bool          // a group's window is of few bytes
	alone     bool          // news of the registry are told one by one
	graceless bool          // no member leaves with grace
	bounds    bool          // the engine leaves no bounds out
	eager     bool          // consumers begin at once with all that they get
	apart     bool          // nothing is made to meet
	downInEnd bool          // processes that are down stay so, as long as one is up
}

var ordinary = []lane.Name{"red", "green", "blue"}

const (
	strictLane = lane.Name("strict-pay")
	strictNone = lane.Name("strict-lost") // a strict color that has no lane
	noLane     = lane.Name("nobody")      // a color that has no lane
	noName     = lane.Name("No Name")     // colors that no lane can have
	noStrict   = lane.Name("strict-No Name")
)

// makePlan draws a plan. A seed has a random part of all faults at random rates, so that rare
// ones meet.
func makePlan(seed uint64, faults bool) *plan {
	r := &stream{state: mixed(seed, 1)}
	p := &plan{seed: seed, parts: map[string]int32{}, ttl: r.between(5*time.Second, 10*time.Second)}
	p.drawLanes(r)
	p.drawGroups(r)
	p.drawProcs(r)
	p.filters, p.dedups = r.n(2) == 0, r.n(2) == 0
	if r.n(3) == 0 {
		p.gaps = 150
	}
	p.bareEnd, p.downInEnd, p.rooms = r.n(6) == 0, r.n(3) == 0, r.n(4) == 0
	if r.n(3) == 0 {
		stuck := lane.Baseline
		if r.n(3) > 0 {
			stuck = p.lanes[r.n(len(p.lanes))]
		}
		p.stuck = &stuck
	}
	p.drawRates(r, faults)
	p.drawOps(r, faults)
	return p
}

func (p *plan) drawLanes(r *stream) {
	n := 1 + r.n(len(ordinary))
	p.lanes = slices.Clone(ordinary[:n])
	p.colors = append(p.colors, p.lanes...)
	if r.n(3) == 0 {
		p.lanes = append(p.lanes, strictLane)
		p.colors = append(p.colors, strictLane)
		if r.n(3) == 0 {
			p.colors = append(p.colors, strictNone)
		}
	}
	if r.n(4) == 0 {
		p.colors = append(p.colors, noLane)
	}
	if p.persists = r.n(8) == 0; p.persists && r.n(2) == 0 {
		p.colors = append(p.colors, noName, noStrict)
	}
	for i, l := range p.lanes {
		parent := -1
		if i > 0 && !l.Strict() && r.n(2) == 0 {
			parent = r.n(i)
		}
		p.parents = append(p.parents, parent)
		p.up = append(p.up, r.n(4) > 0)
	}
}

func (p *plan) drawGroups(r *stream) {
	topics := []string{"orders"}
	if r.n(4) == 0 {
		topics = append(topics, "mails")
	}
	for _, t := range topics {
		p.parts[t] = 1
		if r.n(3) == 0 {
			p.parts[t] = 1 + int32(r.n(3))
		}
	}
	groups := 1
	if r.n(5) == 0 {
		groups = 2
	}
	for i := range groups {
		cfg := consume.Config{
			Group: fmt.Sprintf("g%d", i), Ordered: r.n(4) == 0,
			Window: 1 + r.n(8), Fetch: 1 + r.n(12),
			HandoverTimeout: r.between(time.Second, 4*time.Second),
			SplitPatience:   r.between(300*time.Millisecond, 2*time.Second),
			UnknownStrict:   r.between(5*time.Second, 20*time.Second),
			NoteMin:         r.between(50*time.Millisecond, time.Second),
			OnLoss:          consume.LossPolicy(r.n(3)),
		}
		switch r.n(12) {
		case 1:
			cfg.WindowBytes, p.bytes = 1+int64(r.n(4)), true
		case 2:
			cfg.Window, p.bursts = 1+r.n(60), true
		}
		if r.n(6) == 0 {
			cfg.MaxMoves = 1 + r.n(3)
		}
		if r.n(4) == 0 {
			cfg.Start = consume.Start{Kind: consume.StartKind(1 + r.n(3)), Offset: int64(r.n(3))}
		}
		for _, name := range topics {
			t := consume.Topic{Name: name, Partitions: p.parts[name]}
			if r.n(3) > 0 || slices.Contains(p.lanes, strictLane) {
				t.Retry, t.Dead = fmt.Sprintf("%s-%s-retry", name, cfg.Group), fmt.Sprintf("%s-%s-dead", name, cfg.Group)
				p.parts[t.Retry] = 1
				p.parts[t.Dead] = 1
			}
			cfg.Topics = append(cfg.Topics, t)
		}
		for range r.n(3) {
			cfg.RetryDelays = append(cfg.RetryDelays, r.between(0, 2*time.Second))
		}
		if r.n(5) == 0 {
			cfg.Filter = wanted
		}
		p.groups = append(p.groups, cfg)
	}
}

// wanted is the filter of groups that have one.
func wanted(m *consume.Message) bool { return len(m.Value) == 0 || m.Value[0] != '-' }

func (p *plan) drawProcs(r *stream) {
	procs := 1 + r.n(4)
	for range procs {
		var ms []memberPlan
		for g := range p.groups {
			if r.n(4) > 0 {
				ms = append(ms, p.drawMember(r, g, lane.Baseline))
			}
			for range r.n(3) {
				ms = append(ms, p.drawMember(r, g, p.lanes[r.n(len(p.lanes))]))
			}
		}
		p.procs = append(p.procs, ms)
	}
}

// messages draws what is appended at once to one log: of one color for the most part, and some that
// a group may not want. burst: they may be many.
func (p *plan) messages(r *stream) (ms []*consume.Message, burst bool) {
	favorite := p.colors[r.n(len(p.colors))]
	most := 4
	if burst = p.bursts && r.n(3) == 0; burst {
		most = 40
	}
	for range 1 + r.n(most) {
		m := &consume.Message{Color: favorite, Value: []byte{'a'}}
		switch r.n(6) {
		case 0, 1:
			m.Color = lane.Baseline
		case 2:
			m.Color = p.colors[r.n(len(p.colors))]
		}
		if r.n(6) == 0 {
			m.Value = []byte{'-'}
		}
		ms = append(ms, m)
	}
	return ms, burst
}

// room is that of a process or a partition, by its number. Every third has none.
func (p *plan) room(i int) string {
	if !p.rooms {
		return ""
	}
	return [...]string{"east", "west", ""}[i%3]
}

func (p *plan) drawMember(r *stream, group int, l lane.Name) memberPlan {
	m := memberPlan{group: group, lane: l}
	for i := range p.groups[group].Topics {
		if len(p.groups[group].Topics) == 1 || r.n(4) > 0 {
			m.topics = append(m.topics, i)
		}
	}
	if len(m.topics) == 0 {
		m.topics = []int{0}
	}
	return m
}

func (p *plan) drawRates(r *stream, faults bool) {
	some := func(most int) int {
		if !faults || r.n(5) < 2 {
			return 0
		}
		return 1 + r.n(most)
	}
	p.rates = rates{
		lostRequest: some(150), lostReply: some(250), late: some(150), copies: some(200), slow: some(150),
		stale: some(300), fetch: some(60), mirror: some(1000), slowConsumer: some(60),
	}
	if r.n(2) == 0 {
		p.rates.giveBack = r.n(150)
	}
	if r.n(2) == 0 {
		p.rates.fail = r.n(150)
	}
}

// weights are how often each kind of op comes, as a rule; of the rare ones at most one.
var weights = [opKinds]int{
	opAppend: 60, opJoin: 14, opLeave: 12, opLaneUp: 5, opLaneDown: 3, opCrash: 4, opStop: 4, opPause: 4, opCut: 4,
	opDown: 2, opExpire: 3, opSlow: 2, opLag: 3, opGrow: 2, opRetain: 2, opDuplicate: 2, opGroupPause: 2,
}

func (p *plan) drawOps(r *stream, faults bool) {
	w := weights
	for k := range w {
		switch kind := opKind(k); {
		case kind == opAppend:
		case kind == opJoin || kind == opLeave || kind == opLaneUp || kind == opLaneDown || kind == opStop || kind == opGroupPause:
			w[k] = w[k] * r.n(4) / 2
		case !faults || r.n(2) == 0:
			w[k] = 0
		default:
			w[k] = w[k] * (1 + r.n(4)) / 2
		}
	}
	total := 0
	for _, n := range w {
		total += n
	}
	ops := 25 + r.n(60)
	pace := r.between(20*time.Millisecond, 800*time.Millisecond)
	at := r.between(0, 2*time.Second)
	for range ops {
		pick := r.n(total)
		kind := opAppend
		for k, n := range w {
			if pick < n {
				kind = opKind(k)
				break
			}
			pick -= n
		}
		p.ops = append(p.ops, op{at: at, kind: kind, salt: r.next()})
		if r.n(4) > 0 { // else at once
			at += r.between(0, 2*pace)
		}
	}
	for _, rare := range []struct {
		kind opKind
		one  int
		yes  bool
	}{{opTruncate, 5, faults}, {opRecreate, 10, faults}, {opReset, 6, true}, {opReset, 8, true}, {opGrow, 8, faults}} {
		if rare.yes && r.n(rare.one) == 0 {
			i := r.n(len(p.ops))
			p.ops = slices.Insert(p.ops, i, op{at: p.ops[i].at, kind: rare.kind, salt: r.next()})
		}
	}
	p.until = at + r.between(0, 3*time.Second)
}
