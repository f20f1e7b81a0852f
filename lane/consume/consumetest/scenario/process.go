package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// process is one process of a scenario: a Core and what is on its way to and from it.
type process struct {
	w       *stage
	name    string
	starts  int // sessions so far
	core    *consume.Core
	alive   bool
	cut     bool // the registry is out of reach
	lost    bool // and it knows that its lease may have run out
	session string
	members []consume.Member

	held    map[string]bool // writes, answers, views, records, reads, bounds
	writes  []*consume.Write
	answers []consume.Answered
	late    []*consume.Write // under way though nobody waits for the answer any more
	viewed  uint64           // the revision of the last view
	told    map[consume.Partition]uint64
	counted map[string]int32
	reads   []*read
	runs    map[uint64]consume.Partition
	resolve []consume.Resolve
	out     []*handed // with consumers
	timers  map[consume.Timer]bool
}

type read struct {
	consume.Fetch
	last consume.Bounds // as the run saw them last
}

// handed is a message that a consumer has.
type handed struct {
	consume.Dispatch
}

// start starts a process with members: "start p1 baseline green topics=orders".
func (w *stage) start(name string, args []string) error {
	p := w.proc(name)
	if p == nil {
		p = &process{w: w, name: name}
		w.procs = append(w.procs, p)
	}
	if p.alive {
		return fmt.Errorf("%s runs", name)
	}
	core, err := consume.NewCore(w.cfg)
	if err != nil {
		return err
	}
	*p = process{
		w: w, name: name, starts: p.starts, core: core, alive: true, late: append(p.late, p.writes...),
		held: map[string]bool{}, told: map[consume.Partition]uint64{}, counted: map[string]int32{},
		timers: map[consume.Timer]bool{}, runs: map[uint64]consume.Partition{},
	}
	topics := w.topics()
	for i, a := range args {
		if t, ok := strings.CutPrefix(a, "topics="); ok {
			topics = strings.Split(t, ",")
			args = slices.Delete(slices.Clone(args), i, i+1)
			break
		}
	}
	p.open()
	for _, in := range args {
		if err := p.join(colorNamed(in), topics); err != nil {
			return err
		}
	}
	p.step(&consume.Opened{Session: p.session})
	for _, m := range p.members {
		p.step(&consume.Joined{Member: m})
	}
	return nil
}

func (w *stage) topics() []string {
	var all []string
	for _, t := range w.cfg.Topics {
		all = append(all, t.Name)
	}
	return all
}

// open opens a session: the first one of p1 is called p1, the second one p1'2.
func (p *process) open() {
	p.starts++
	p.session = p.w.registry.Open()
	p.w.sessions[p.session] = p.name
	if p.starts > 1 {
		p.w.sessions[p.session] = p.name + "'" + strconv.Itoa(p.starts)
	}
}

func (p *process) join(in lane.Name, topics []string) error {
	name := string(in)
	if in == lane.Baseline {
		name = "baseline"
	}
	m := consume.Member{ID: p.name + "@" + name, Session: p.session, Lane: in, Topics: topics}
	if err := p.w.registry.Join(p.w.cfg.Group, m); err != nil {
		return err
	}
	p.members = append(p.members, m)
	return nil
}

// do does one command of a process.
func (p *process) do(verb string, args []string) error {
	arg := strings.Join(args, " ")
	if !p.alive && verb != "land" && verb != "expire" {
		return fmt.Errorf("%s does not run", p.name)
	}
	switch verb {
	case "join":
		if err := p.join(colorNamed(args[0]), p.w.topics()); err != nil {
			return err
		}
		p.step(&consume.Joined{Member: p.members[len(p.members)-1]})
	case "leave": // p1 leave green, p1 leave green grace
		grace := time.Duration(0)
		if len(args) > 1 {
			grace = 10 * time.Second
		}
		id := p.name + "@" + args[0]
		p.w.registry.Leave(p.w.cfg.Group, id, grace)
		p.members = slices.DeleteFunc(p.members, func(m consume.Member) bool { return m.ID == id })
		p.step(&consume.Left{Member: id})
	case "stop":
		for _, m := range p.members {
			p.w.registry.Leave(p.w.cfg.Group, m.ID, 0)
			p.step(&consume.Left{Member: m.ID})
		}
		p.step(&consume.Stop{})
	case "rerun":
		return p.rerun()
	case "pause": // as by SIGSTOP
		return p.hold("all", true)
	case "crash":
		p.alive = false
		p.w.check.lost(p)
	case "expire":
		p.w.registry.End(p.session)
		p.w.check.lost(p)
	case "cut":
		p.cut = true
	case "lease": // p1 lease lost
		p.lost = true
		p.w.check.lost(p)
		p.step(&consume.LeaseLost{})
	case "mend":
		return p.mend()
	case "hold", "free":
		return p.hold(arg, verb == "hold")
	case "deliver", "lose", "doubt", "land":
		return p.network(verb, arg)
	case "timer":
		return p.timer(args)
	case "settle", "return", "fail":
		return p.consumer(verb, args)
	default:
		return errCommand
	}
	return nil
}

// rerun begins anew under the same session: what ran before was closed before it had given
// everything up.
func (p *process) rerun() error {
	core, err := consume.NewCore(p.w.cfg)
	if err != nil {
		return err
	}
	p.w.check.ended(p)
	p.core = core
	p.late, p.writes, p.answers, p.reads, p.out = append(p.late, p.writes...), nil, nil, nil, nil
	p.told, p.counted, p.viewed = map[consume.Partition]uint64{}, map[string]int32{}, 0
	p.timers, p.resolve = map[consume.Timer]bool{}, nil
	members := p.members
	p.members = nil
	for _, m := range members {
		p.w.registry.Leave(p.w.cfg.Group, m.ID, 0)
		if err := p.join(m.Lane, m.Topics); err != nil {
			return err
		}
	}
	p.step(&consume.Opened{Session: p.session})
	for _, m := range p.members {
		p.step(&consume.Joined{Member: m})
	}
	return nil
}

// kinds of what can be held back.
var holdable = []string{"writes", "answers", "views", "records", "reads", "bounds"}

func (p *process) hold(what string, on bool) error {
	if what == "all" {
		for _, k := range holdable {
			p.held[k] = on
		}
		return nil
	}
	if !slices.Contains(holdable, what) {
		return errCommand
	}
	p.held[what] = on
	return nil
}

// mend brings the registry in reach again. A process whose lease may have run out reads all
// records first, deletes its old session and goes on under a new one.
func (p *process) mend() error {
	p.cut = false
	if !p.lost {
		return nil
	}
	p.lost = false
	p.w.registry.End(p.session)
	for _, s := range p.w.registry.Records(p.w.cfg.Group) {
		p.told[s.Partition] = s.Revision
		p.step(&consume.Recorded{Stored: s, Fresh: true})
	}
	p.open()
	p.step(&consume.Opened{Session: p.session})
	members := p.members
	p.members = nil
	for _, m := range members {
		if err := p.join(m.Lane, m.Topics); err != nil {
			return err
		}
		p.step(&consume.Joined{Member: p.members[len(p.members)-1]})
	}
	return nil
}

// network lets one thing happen that is held back.
func (p *process) network(verb, what string) error {
	switch verb + " " + what {
	case "deliver write":
		if len(p.writes) > 0 {
			p.send()
			return nil
		}
	case "deliver answer":
		if len(p.answers) > 0 {
			p.answer()
			return nil
		}
	case "deliver view":
		p.view()
		return nil
	case "deliver records":
		p.records()
		return nil
	case "deliver read":
		if p.read() {
			return nil
		}
	case "deliver last": // read: the one that was asked for last comes first
		slices.Reverse(p.reads)
		if p.read() {
			return nil
		}
	case "lose write": // it never arrives
		if len(p.writes) > 0 {
			w := p.writes[0]
			p.writes = p.writes[1:]
			p.step(&consume.Answered{Write: w.ID, Answer: consume.Answer{Outcome: consume.Doubt}})
			return nil
		}
	case "lose answer": // it has arrived
		if len(p.answers) > 0 {
			id := p.answers[0].Write
			p.answers = p.answers[1:]
			p.step(&consume.Answered{Write: id, Answer: consume.Answer{Outcome: consume.Doubt}})
			return nil
		}
	case "doubt write": // no answer came yet; it may arrive later
		if len(p.writes) > 0 {
			w := p.writes[0]
			p.writes = p.writes[1:]
			p.late = append(p.late, w)
			p.step(&consume.Answered{Write: w.ID, Answer: consume.Answer{Outcome: consume.Doubt}})
			return nil
		}
	case "land write": // one that nobody waits for any more arrives
		if !p.alive {
			p.late = append(p.late, p.writes...)
			p.writes = nil
		}
		if len(p.late) > 0 {
			w := p.late[0]
			p.late = p.late[1:]
			a := p.w.apply(w)
			p.w.say("a late write of %s arrives (%s): %s", p.w.sessions[w.Session], p.w.writeWords(w), a.Outcome)
			return nil
		}
	default:
		return errCommand
	}
	return errors.New("there is none")
}

func (w *stage) apply(write *consume.Write) consume.Answer {
	a := w.registry.Apply(write)
	w.check.wrote(write, &a)
	return a
}

func (p *process) send() {
	w := p.writes[0]
	p.writes = p.writes[1:]
	p.answers = append(p.answers, consume.Answered{Write: w.ID, Answer: p.w.apply(w)})
	if !p.cut && !p.held["answers"] {
		p.answer()
	}
}

func (p *process) answer() {
	a := p.answers[0]
	p.answers = p.answers[1:]
	p.step(&a)
}

func (p *process) view() {
	v := p.w.registry.View(p.w.cfg.Group)
	p.viewed = v.Revision
	p.step(&consume.Viewed{View: v})
}

func (p *process) records() {
	for _, s := range p.w.registry.Records(p.w.cfg.Group) {
		if p.told[s.Partition] < s.Revision {
			p.told[s.Partition] = s.Revision
			p.step(&consume.Recorded{Stored: s})
		}
	}
}

// read answers one fetch that has something to show.
func (p *process) read() bool {
	for i, r := range p.reads {
		b, err := p.w.engine.Peek(r.Partition, r.From, r.Filter, r.Max)
		if err != nil || b.Next <= r.From && (b.Bounds == r.last || b.Bounds.End >= r.From && b.Bounds.Epoch == r.last.Epoch) {
			continue
		}
		p.reads = slices.Delete(p.reads, i, i+1)
		p.step(&consume.Fetched{Run: r.Run, Batch: b})
		return true
	}
	return false
}

// move lets one thing happen that is not held back.
func (p *process) move() bool {
	if !p.alive {
		return false
	}
	for _, topic := range p.w.topicsRead() {
		if n := p.w.counts[topic]; n > p.counted[topic] {
			p.counted[topic] = n
			p.step(&consume.Partitioned{Topic: topic, Count: n})
			return true
		}
	}
	if len(p.resolve) > 0 && !p.held["bounds"] {
		return p.resolved()
	}
	reach := func(kind string) bool { return !p.cut && !p.held[kind] }
	switch {
	case len(p.answers) > 0 && reach("answers"):
		p.answer()
	case len(p.writes) > 0 && reach("writes"):
		p.send()
	case reach("records") && p.newRecord():
		p.records()
	case reach("views") && p.w.registry.View(p.w.cfg.Group).Revision > p.viewed:
		p.view()
	case !p.held["reads"] && p.read():
	default:
		return false
	}
	return true
}

func (p *process) newRecord() bool {
	return slices.ContainsFunc(p.w.registry.Records(p.w.cfg.Group), func(s consume.Stored) bool {
		return p.told[s.Partition] < s.Revision
	})
}

// topicsRead are the group's topics with their retry topics.
func (w *stage) topicsRead() []string {
	var all []string
	for _, t := range w.cfg.Topics {
		all = append(all, t.Name)
		if t.Retry != "" {
			all = append(all, t.Retry)
		}
	}
	return all
}

func (p *process) resolved() bool {
	r := p.resolve[0]
	p.resolve = p.resolve[1:]
	b, err := p.w.engine.Bounds(context.Background(), r.Partition)
	if err != nil {
		p.w.check.fault("%s asks for the start of %s: %v", p.name, r.Partition, err)
		return true
	}
	at := b.First
	switch r.Start.Kind {
	case consume.StartLatest:
		at = b.End
	case consume.StartOffset:
		at = min(max(r.Start.Offset, b.First), b.End)
	case consume.StartEarliest, consume.StartTime:
	}
	p.step(&consume.Resolved{Partition: r.Partition, Offset: at, Epoch: b.Epoch})
	return true
}

// timer lets a timer run out: "p1 timer handover orders/0 green".
func (p *process) timer(args []string) error {
	var found []consume.Timer
	for t := range p.timers {
		if t.Kind.String() == args[0] && (len(args) < 2 || t.Partition.String() == args[1]) &&
			(len(args) < 3 || t.Cursor == colorNamed(args[2])) {
			found = append(found, t)
		}
	}
	if len(found) != 1 {
		return fmt.Errorf("%d such timers are armed", len(found))
	}
	delete(p.timers, found[0])
	if found[0].Kind == consume.TimerHandover {
		if h := p.handing(found[0]); h != nil {
			p.w.check.cut(h.Run, p)
		}
	}
	p.step(&consume.Fired{Timer: found[0]})
	return nil
}

// consumer lets consumers say something: "p1 settle 4", "p1 return orders/1@4", "p1 fail all".
func (p *process) consumer(verb string, args []string) error {
	var chosen []*handed
	for _, a := range args {
		n := len(chosen)
		for _, h := range p.out {
			if a == "all" || a == strconv.FormatInt(h.Offset, 10) || a == fmt.Sprintf("%s@%d", h.Partition, h.Offset) {
				chosen = append(chosen, h)
				if a != "all" {
					break
				}
			}
		}
		if len(chosen) == n && a != "all" {
			return fmt.Errorf("%s has no message %s in flight", p.name, a)
		}
	}
	for _, h := range chosen {
		switch verb {
		case "settle":
			p.settle(h)
		case "return":
			p.gone(h)
			p.w.check.returned(h)
			p.step(&consume.Returned{Run: h.Run, Offset: h.Offset})
		case "fail":
			p.gone(h)
			p.w.check.returned(h) // it is settled, or comes again
			p.step(&consume.Failed{Run: h.Run, Offset: h.Offset, Error: "no"})
		}
	}
	return nil
}

// handing is a message that a release with this timer waits for.
func (p *process) handing(t consume.Timer) *handed {
	for _, h := range p.out {
		if h.Partition == t.Partition && h.Cursor == t.Cursor {
			return h
		}
	}
	return nil
}

func (p *process) gone(h *handed) {
	p.out = slices.DeleteFunc(p.out, func(o *handed) bool { return o == h })
}

func (p *process) settle(h *handed) {
	p.gone(h)
	p.w.check.settled(h.Message)
	p.step(&consume.Settled{Run: h.Run, Offset: h.Offset})
}
