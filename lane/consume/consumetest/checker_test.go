package consumetest

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// history is a history made by hand: one group, one partition, the lanes red and, below it,
// blue, and processes p and q with members everywhere.
type history struct {
	k        *checker
	p, q     *actor
	now      time.Duration
	revision uint64
	messages []*consume.Message
	alive    map[string]bool
	runs     uint64
}

var thePart = consume.Partition{Topic: "orders"}

func newHistory(change func(*consume.Config)) *history {
	cfg := consume.Config{
		Group: "g", Topics: []consume.Topic{{Name: "orders", Retry: "retry", Dead: "dead", Partitions: 1}},
		HandoverTimeout: time.Second, Window: 10, Fetch: 10, UnknownStrict: time.Minute,
	}
	if change != nil {
		change(&cfg)
	}
	h := &history{k: newChecker([]consume.Config{cfg}), revision: 1, alive: map[string]bool{}}
	h.k.clock = func() (time.Duration, int) { return h.now, 0 }
	h.k.laneUp("red", lane.Baseline)
	h.k.laneUp("blue", "red")
	h.k.laneUp(strictLane, lane.Baseline)
	h.p, h.q = h.process("p"), h.process("q")
	h.k.resolved(0, thePart, 0)
	h.land(h.p, record(h.p), map[lane.Name]*consume.Note{consume.Main: noteOf(0)})
	return h
}

// process makes a process whose picture is that the lanes have no members but for those that
// the test adds.
func (h *history) process(name string) *actor {
	a := h.k.actor(0, name)
	h.k.session(a, name)
	h.alive[name] = true
	for _, l := range []lane.Name{lane.Baseline, "red", "blue", strictLane} {
		a.members = append(a.members, consume.Member{ID: name, Lane: l, Generation: 1, Topics: []string{"orders"}})
	}
	h.see(a)
	return a
}

// see gives a process a picture in which lanes have members.
func (h *history) see(a *actor, lanes ...lane.Name) {
	v := &consume.View{
		Revision: h.revision, Sessions: maps.Clone(h.alive),
		Lanes: map[lane.Name]consume.Lane{"red": {Generation: 1}, "blue": {Generation: 1, Parent: "red"}, strictLane: {Generation: 1}},
	}
	for _, l := range lanes {
		v.Members = append(v.Members, consume.Member{ID: string(l), Session: a.name, Lane: l, Generation: 1, Topics: []string{"orders"}})
	}
	h.k.told(a, h.now, &consume.Viewed{View: v})
}

func noteOf(pos int64, left ...int64) *consume.Note { return &consume.Note{Pos: pos, Left: left} }

// record is one where a process holds main.
func record(main *actor) *consume.Record {
	return &consume.Record{Main: holder(main, lane.Baseline), Colors: map[lane.Name]consume.Entry{}}
}

func holder(a *actor, l lane.Name) consume.Holder {
	if a == nil {
		return consume.Holder{}
	}
	return consume.Holder{Session: a.sessions[len(a.sessions)-1], Lane: l}
}

// split is the record with a color split off.
func split(r *consume.Record, color lane.Name, from int64, a *actor, l lane.Name) *consume.Record {
	c := r.Clone()
	if c.Colors == nil {
		c.Colors = map[lane.Name]consume.Entry{}
	}
	c.Colors[color] = consume.Entry{From: from, Holder: holder(a, l)}
	return c
}

func (h *history) append(colors ...lane.Name) {
	for _, c := range colors {
		m := &consume.Message{Partition: thePart, Offset: int64(len(h.messages)), Color: c}
		h.messages = append(h.messages, m)
		h.k.appended(m)
	}
}

// land lets a write take place after which the record is r and the notes are as they were
// but for those given; nil deletes one.
func (h *history) land(a *actor, r *consume.Record, notes map[lane.Name]*consume.Note) {
	h.revision++
	p := h.k.groups[0].part(thePart)
	all := maps.Clone(p.notes)
	w := &consume.Write{Partition: thePart, Session: a.sessions[len(a.sessions)-1]}
	for _, c := range slices.Sorted(maps.Keys(notes)) {
		w.Notes = append(w.Notes, consume.NoteWrite{Cursor: c, Note: notes[c]})
		if all[c] = notes[c]; notes[c] == nil {
			delete(all, c)
		}
	}
	if r == nil {
		r = p.record
	}
	h.k.landed(landing{
		by: a, at: h.now, sent: h.now, write: w, record: r, revision: h.revision, notes: all,
		alive: func(s string) bool { return h.alive[s] },
	})
}

// hand dispatches a message with a cursor for a lane, and gives the run.
func (h *history) hand(a *actor, cursor, l lane.Name, offset int64, again bool) uint64 {
	h.runs++
	reason := lane.ReasonPlain
	switch m := h.messages[offset]; {
	case m.Color == lane.Baseline:
	case l == lane.Baseline:
		reason = a.baselines(m.Color, "orders")
	case l.Strict():
		reason = lane.ReasonStrict
	case l == m.Color:
		reason = lane.ReasonLane
	default:
		reason = lane.ReasonParent
	}
	h.k.dispatched(a, h.now, &consume.Dispatch{
		Run: h.runs, Cursor: cursor, Lane: l, Message: h.messages[offset], Redelivered: again, Reason: reason,
	})
	return h.runs
}

func (h *history) settle(a *actor, run uint64, offset int64) {
	h.k.told(a, h.now, &consume.Settled{Run: run, Offset: offset})
}

// burySplitOff has p, whose session ended before its time, bury a message of a strict lane
// that it knows to be over; since then q has taken main and split the color off.
func (h *history) burySplitOff() {
	h.append(strictLane)
	h.p.view.Lanes[strictLane] = consume.Lane{Generation: 1, Ended: true}
	h.k.fetches(h.p, &consume.Fetch{Run: 7, Partition: thePart, Max: 1})
	h.k.revoked(h.p.sessions[0])
	h.lose(h.p)
	h.land(h.q, record(h.q), nil)
	h.land(h.q, split(record(h.q), strictLane, 0, nil, lane.Baseline), map[lane.Name]*consume.Note{strictLane: noteOf(0)})
	h.bury()
}

// bury has p bury the first message, of a strict lane.
func (h *history) bury() { h.k.buried(h.p, 0, h.dead()) }

func (h *history) dead() *consume.Bury {
	return &consume.Bury{
		Run: 7, Why: consume.BuryStrictEnded,
		Message: &consume.Message{
			Partition: consume.Partition{Topic: "dead"}, Color: strictLane, ID: "first",
			Origin: &consume.Origin{Partition: thePart, Group: "g"},
		},
	}
}

// fetch lets a process run main.
func (h *history) fetch(a *actor) {
	h.k.fetches(a, &consume.Fetch{Run: 7, Partition: thePart, Max: 1})
}

// cutOff lets a process wait no longer for what a run of main's has with consumers.
func (h *history) cutOff(a *actor, run uint64) {
	h.k.alarmed(a, &consume.Alarm{Kind: consume.AlarmHandover, Partition: thePart, Count: 1})
	h.k.withdrawn(a, h.now, &consume.Withdraw{Run: run, In: 1, Why: consume.WhyBalance})
}

// settledAndReset lets p settle and note the first of two messages, and begin again at 0; nobody
// has told it yet that the reset took place.
func (h *history) settledAndReset() {
	h.append("", "")
	h.settle(h.p, h.hand(h.p, lane.Baseline, lane.Baseline, 0, false), 0)
	h.land(h.p, nil, map[lane.Name]*consume.Note{consume.Main: noteOf(1)})
	r := record(h.p)
	r.Reset = "r1"
	h.p.wrote[1] = thePart
	h.land(h.p, r, map[lane.Name]*consume.Note{consume.Main: noteOf(0)})
	h.k.groups[0].part(thePart).reset.write = 1
}

// cutOffByReset lets q take main from p, which has a message in flight, and reset it. It gives
// the run, which is the next one's, too.
func (h *history) cutOffByReset() uint64 {
	h.append("")
	run := h.hand(h.p, lane.Baseline, lane.Baseline, 0, false)
	h.k.told(h.p, 0, &consume.LeaseLost{})
	h.lose(h.p)
	h.land(h.q, record(h.q), nil)
	r := record(h.q)
	r.Reset = "r1"
	h.land(h.q, r, map[lane.Name]*consume.Note{consume.Main: noteOf(0)})
	h.runs--
	return run
}

// lose ends a session.
func (h *history) lose(a *actor) {
	h.alive[a.sessions[len(a.sessions)-1]] = false
}

// sighting is a history and what the checker has to see in it: a rule that is broken, or nothing.
type sighting struct {
	name, rule, what string
	ordered          bool
	run              func(h *history)
}

func (s *sighting) try(t *testing.T) {
	t.Run(s.name, func(t *testing.T) {
		t.Parallel()
		h := newHistory(func(c *consume.Config) { c.Ordered = s.ordered })
		s.run(h)
		v := h.k.violation
		switch {
		case s.rule == "" && v != nil:
			t.Errorf("got %s, want none", v)
		case s.rule != "" && (v == nil || v.Rule != s.rule || !strings.Contains(v.What, s.what)):
			t.Errorf("got %v, want %s with %q", v, s.rule, s.what)
		}
	})
}

// TestCheckerSees gives the checker one history for each thing that must not be, and for
// most the same history without it.
func TestCheckerSees(t *testing.T) {
	const base = lane.Baseline
	for _, tt := range []sighting{
		{name: "nothing wrong", run: func(h *history) {
			h.append("", "red")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.settle(h.p, h.hand(h.p, base, base, 1, false), 1)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(2)})
		}},
		{name: "a note that settles what is not", rule: "I1", what: "is not settled", run: func(h *history) {
			h.append("", "")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.hand(h.p, base, base, 1, false)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(2)})
		}},
		{name: "a note beyond the end", rule: "I1", what: "is new", run: func(h *history) {
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(2)})
			h.append("")
		}},
		{name: "a note that takes back", rule: "NOTE", what: "no longer", run: func(h *history) {
			h.append("")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(1)})
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(0)})
		}},
		{name: "a note of somebody else", rule: "NOTE", what: "which p@- holds", run: func(h *history) {
			h.land(h.q, nil, map[lane.Name]*consume.Note{base: noteOf(0)})
		}},
		{name: "a message twice", rule: "I3", what: "again", run: func(h *history) {
			h.append("")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "a message that came back", run: func(h *history) {
			h.append("")
			h.k.told(h.p, 0, &consume.Returned{Run: h.hand(h.p, base, base, 0, false), Offset: 0})
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "a message again that does not say so", rule: "I3", what: "does not say so", run: func(h *history) {
			h.append("")
			h.k.told(h.p, 0, &consume.Returned{Run: h.hand(h.p, base, base, 0, false), Offset: 0})
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "a flag without reason", rule: "I3", what: "it was not in the log", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "two holders", rule: "I2", what: "the record names", run: func(h *history) {
			h.append("")
			h.hand(h.q, base, base, 0, false)
		}},
		{name: "again after a loss", run: func(h *history) {
			h.append("", "")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
			h.hand(h.q, base, base, 1, true)
		}},
		{name: "again after a loss, though noted", rule: "I3", what: "again", run: func(h *history) {
			h.append("", "")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(1)})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "a take from one that lives", rule: "MOVE", what: "whose session lives", run: func(h *history) {
			h.land(h.q, record(h.q), nil)
		}},
		{name: "cut off and going on", run: func(h *history) {
			h.append("", "")
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.p, base, base, 0, false)
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "cut off and going on with what main had in another run", run: func(h *history) {
			h.append("green")
			h.cutOff(h.p, h.hand(h.p, base, base, 0, false))
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "cut off, and in another run what its consumer has still", rule: "I3", what: "a second time", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "cut off, and in another run what it has settled", rule: "I3", what: "a second time", run: func(h *history) {
			h.append("")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "given back to one that was cut off, and twice by the next one", rule: "I3", what: "again", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
			h.k.told(h.p, h.now, &consume.Returned{Run: run, Offset: 0})
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "withdrawn late by one that was cut off, and twice by the next one", rule: "I3", what: "again", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
			h.now += 2 * time.Second
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: run, In: 1, Why: consume.WhyBalance})
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "given back under another session of the same process", run: func(h *history) {
			h.append("", "")
			run := h.hand(h.p, base, base, 0, false)
			h.lose(h.p)
			h.k.session(h.p, "p2")
			h.alive["p2"] = true
			h.land(h.p, record(h.p), nil)
			h.hand(h.p, base, base, 1, false)
			h.k.told(h.p, h.now, &consume.Returned{Run: run, Offset: 0})
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "given back before a reset, and out of order after it", rule: "I4", what: "after 1", run: func(h *history) {
			h.append("", "")
			h.k.told(h.p, h.now, &consume.Returned{Run: h.hand(h.p, base, base, 0, false), Offset: 0})
			r := record(h.p)
			r.Reset = "r1"
			h.land(h.p, r, map[lane.Name]*consume.Note{base: noteOf(0)})
			h.hand(h.p, base, base, 1, false)
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "cut off and going on with a color that nobody knows", rule: "I2", what: "may be a new one", run: func(h *history) {
			h.append("green")
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "cut off and going on, and the next one does not say so", rule: "I3", what: "when a holder was lost, and does not say so (p run", run: func(h *history) {
			h.append("", "")
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.p, base, base, 0, false)
			h.hand(h.q, base, base, 0, false)
		}},
		{name: "a flag beyond the end that the next one saw", rule: "I3", what: "it was not in the log", run: func(h *history) {
			h.append("")
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.k.fetches(h.q, &consume.Fetch{Run: 7, Partition: thePart, Max: 1})
			h.k.told(h.q, 0, &consume.Fetched{Run: 7, Batch: consume.Batch{Bounds: consume.Bounds{End: 1}}})
			h.append("")
			h.hand(h.q, base, base, 0, true)
			h.hand(h.q, base, base, 1, true)
		}},
		{name: "there when a holder was lost, and the next one does not say so", rule: "I3", what: "in the log when a holder was lost", run: func(h *history) {
			h.append("")
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.k.fetches(h.q, &consume.Fetch{Run: 7, Partition: thePart, Max: 1})
			h.k.told(h.q, 0, &consume.Fetched{Run: 7, Batch: consume.Batch{Bounds: consume.Bounds{End: 1}}})
			h.hand(h.q, base, base, 0, false)
		}},
		{name: "a note of what a consumer has still", rule: "NOTE", what: "a consumer has 0 still", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.propose(consume.Move{Kind: consume.Release, Why: consume.WhyBalance}, consume.NoteWrite{Note: noteOf(1)})
		}},
		{name: "a note that leaves what a consumer has still", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.propose(consume.Move{Kind: consume.Release, Why: consume.WhyBalance}, consume.NoteWrite{Note: noteOf(1, 0)})
		}},
		{name: "a late word of one that has it no longer, and it counts", rule: "NOTE", what: "a consumer has 0 still", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.now += 2 * time.Second
			h.cutOff(h.p, run)
			h.hand(h.p, base, base, 0, true)
			h.settle(h.p, run, 0)
			h.propose(consume.Move{Kind: consume.Release, Why: consume.WhyBalance}, consume.NoteWrite{Note: noteOf(1)})
		}},
		{name: "a reset of what is in flight", rule: "I3", what: "resets while 0 is in flight", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			r := record(h.p)
			r.Reset = "r1"
			h.land(h.p, r, map[lane.Name]*consume.Note{base: noteOf(0)})
		}},
		{name: "a take without a member", rule: "MOVE", what: "it has no member of it", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.q.members = h.q.members[:1]
			h.k.proposed(h.q, &consume.Write{Partition: thePart, Session: "q", IfRevision: h.revision, Record: split(r, "red", 0, h.q, "red")})
		}},
		{name: "a take by one that stops", rule: "MOVE", what: "or stops", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.k.told(h.q, 0, &consume.Stop{})
			h.k.proposed(h.q, &consume.Write{Partition: thePart, Session: "q", IfRevision: h.revision, Record: split(r, "red", 0, h.q, "red")})
		}},
		{name: "no note of a cursor that moved", rule: "NOTE", what: "has written no note of it", run: func(h *history) {
			h.append("", "")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.now += noteBound(&h.k.groups[0].cfg) + time.Second
			h.hand(h.p, base, base, 1, false)
			h.k.told(h.p, h.now, &consume.Reached{})
		}},
		{name: "a note that was under way when the cursor moved says all", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, h.now, &consume.Returned{Run: run, Offset: 0})
			h.hand(h.p, base, base, 0, true)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: {Pos: 1, Left: []int64{0}}})
			h.now += noteBound(&h.k.groups[0].cfg) + time.Second
			h.k.told(h.p, h.now, &consume.Reached{})
		}},
		{name: "a lost registry, and not said", rule: "ALARM", what: "does not say registry-lost", run: func(h *history) {
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.k.stepped(h.p)
		}},
		{name: "a registry that is not back", rule: "ALARM", what: "says registry-back", run: func(h *history) {
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistryBack})
		}},
		{name: "an alarm of more than what is gone", rule: "ALARM", what: "and 1 is there", run: func(h *history) {
			h.append("", "")
			h.fetch(h.p)
			h.k.deleted(thePart, 0, 1, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, Count: 2})
		}},
		{name: "an alarm of what was settled", rule: "ALARM", what: "it was settled before", run: func(h *history) {
			h.append("", "", "")
			for o := range int64(3) {
				run := h.hand(h.p, base, base, o, false)
				if o == 1 {
					h.settle(h.p, run, o)
				}
			}
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(3, 0, 2)})
			h.k.deleted(thePart, 0, 3, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, Count: 2})
		}},
		{name: "what was cut off is miscounted", rule: "WITHDRAW", what: "with 2 in flight, and there are 1", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmHandover, Partition: thePart, Count: 1})
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: run, In: 2, Why: consume.WhyBalance})
		}},
		{name: "cut off, and the same twice", rule: "I3", what: "a second time", run: func(h *history) {
			h.append("", "")
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.p, base, base, 0, false)
			h.runs--
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "cut off by a reset, and given back", run: func(h *history) {
			h.k.told(h.p, 0, &consume.Returned{Run: h.cutOffByReset(), Offset: 0})
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "cut off by a reset, and the same twice", rule: "I3", what: "a second time", run: func(h *history) {
			h.cutOffByReset()
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "cut off by a reset, given back, and the same twice", rule: "I3", what: "a second time", run: func(h *history) {
			h.k.told(h.p, 0, &consume.Returned{Run: h.cutOffByReset(), Offset: 0})
			h.hand(h.p, base, base, 0, true)
			h.runs--
			h.hand(h.p, base, base, 0, true)
		}},
		{name: "cut off, and told", rule: "I3", what: "it knows", run: func(h *history) {
			h.append("", "")
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.k.told(h.p, 0, &consume.Recorded{Stored: consume.Stored{Partition: thePart, Revision: h.revision}})
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "cut off in a group that holds", rule: "I3", what: "holds", ordered: true, run: func(h *history) {
			h.append("")
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "order", rule: "I4", what: "for the first time, after", run: func(h *history) {
			h.append("red", "red")
			h.hand(h.p, base, base, 1, false)
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "order within one holder's time", rule: "I4", what: "after 1", run: func(h *history) {
			h.append("", "")
			h.hand(h.p, base, base, 0, false)
			h.hand(h.p, base, base, 1, false)
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 1, true)
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "a release that does not wait", rule: "I4", what: "while 0 is in flight", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.land(h.p, record(nil), map[lane.Name]*consume.Note{base: noteOf(1, 0)})
		}},
		{name: "a release that waited long enough", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.now += 2 * time.Second
			h.cutOff(h.p, run)
			h.land(h.p, record(nil), map[lane.Name]*consume.Note{base: noteOf(1, 0)})
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "a release that gives up too early", rule: "I3", what: "again", run: func(h *history) {
			h.append("")
			h.cutOff(h.p, h.hand(h.p, base, base, 0, false))
			h.land(h.p, record(nil), map[lane.Name]*consume.Note{base: noteOf(1, 0)})
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "a release without a note", rule: "I3", what: "again", run: func(h *history) {
			h.append("")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.land(h.p, record(nil), nil)
			h.land(h.q, record(h.q), nil)
			h.hand(h.q, base, base, 0, true)
		}},
		{name: "main is given up before its colors", rule: "STRUCT", what: "gives up main", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.p, split(record(h.p), "red", 0, h.p, base), nil)
			h.land(h.p, split(record(nil), "red", 0, h.p, base), map[lane.Name]*consume.Note{base: noteOf(0)})
		}},
		{name: "a split", run: func(h *history) {
			h.append("red", "red")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			r := split(record(h.p), "red", 1, nil, "red")
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(1)})
			h.land(h.q, split(r, "red", 1, h.q, "red"), nil)
			h.see(h.q, "red")
			h.hand(h.q, "red", "red", 1, false)
		}},
		{name: "a split below main's position", rule: "STRUCT", what: "main has dispatched 0", run: func(h *history) {
			h.append("red")
			h.settle(h.p, h.hand(h.p, base, base, 0, false), 0)
			h.land(h.p, split(record(h.p), "red", 0, nil, base), map[lane.Name]*consume.Note{"red": noteOf(0)})
		}},
		{name: "a split above main's position", rule: "STRUCT", what: "main has not come to 0", run: func(h *history) {
			h.append("red", "red")
			h.land(h.p, split(record(h.p), "red", 1, nil, base), map[lane.Name]*consume.Note{"red": noteOf(1)})
		}},
		{name: "a split that finds an old note", rule: "NOTE", what: "splits red", run: func(h *history) {
			h.land(h.p, split(record(h.p), "red", 0, nil, base), map[lane.Name]*consume.Note{"red": noteOf(2)})
		}},
		{name: "a color that is split off and goes to main", rule: "STRUCT", what: "belongs to", run: func(h *history) {
			h.append("red")
			h.land(h.p, split(record(h.p), "red", 0, nil, base), map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "a merge of what is in flight", rule: "STRUCT", what: "went from cursor", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.append("red")
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.p, split(r, "red", 0, h.p, base), nil)
			h.hand(h.p, "red", base, 0, false)
			h.land(h.p, record(h.p), map[lane.Name]*consume.Note{"red": nil, base: noteOf(1, 0)})
		}},
		{name: "a merge without main's note", rule: "STRUCT", what: "went from cursor", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.append("red")
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.p, split(r, "red", 0, h.p, base), nil)
			h.settle(h.p, h.hand(h.p, "red", base, 0, false), 0)
			h.land(h.p, record(h.p), map[lane.Name]*consume.Note{"red": nil})
		}},
		{name: "a merge that leaves the note", rule: "NOTE", what: "still there", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.p, split(r, "red", 0, h.p, base), nil)
			h.land(h.p, record(h.p), map[lane.Name]*consume.Note{base: noteOf(0)})
		}},
		{name: "a merge of what another one holds", rule: "NOTE", what: "which q@red holds", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.q, split(r, "red", 0, h.q, "red"), nil)
			h.land(h.p, record(h.p), map[lane.Name]*consume.Note{"red": nil, base: noteOf(0)})
		}},
		{name: "a color for the baseline without main", rule: "MOVE", what: "and main is held by p@-", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.q, split(r, "red", 0, h.q, base), nil)
		}},
		{name: "a color for a lane that never owned it", rule: "I2", what: "never could own it", run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.q, split(r, "red", 0, h.q, "blue"), nil)
		}},
		{name: "a color for its parent", run: func(h *history) {
			r := split(record(h.p), "blue", 0, nil, base)
			h.see(h.q, "red")
			h.append("blue")
			h.land(h.p, r, map[lane.Name]*consume.Note{"blue": noteOf(0)})
			h.land(h.q, split(r, "blue", 0, h.q, "red"), nil)
			h.hand(h.q, "blue", "red", 0, false)
		}},
		{name: "the baseline gets what is a lane's", rule: "I2", what: `it is "red"'s`, run: func(h *history) {
			h.append("red")
			h.see(h.p, "red")
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "a lane gets what is the baseline's", rule: "I2", what: `it is ""'s`, run: func(h *history) {
			r := split(record(h.p), "red", 0, nil, base)
			h.append("red")
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.land(h.q, split(r, "red", 0, h.q, "red"), nil)
			h.see(h.q)
			h.hand(h.q, "red", "red", 0, false)
		}},
		{name: "a strict color for the baseline", rule: "I2", what: "of a strict lane", run: func(h *history) {
			h.append(strictLane)
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "a strict color to the dead letters too early", rule: "I1", what: "not over", run: func(h *history) {
			h.append(strictLane)
			h.k.fetches(h.p, &consume.Fetch{Run: 7, Partition: thePart, Max: 1})
			h.k.buried(h.p, 0, &consume.Bury{
				Run: 7, Why: consume.BuryStrictEnded,
				Message: &consume.Message{Partition: consume.Partition{Topic: "dead"}, Color: strictLane, Origin: &consume.Origin{}},
			})
		}},
		{name: "cut off, and a strict color to the dead letters that was split off since", run: func(h *history) {
			h.burySplitOff()
		}},
		{name: "the same, and twice", rule: "I3", what: "buries orders/0@0 (strict-pay) a second time", run: func(h *history) {
			h.burySplitOff()
			h.bury()
		}},
		{name: "the same, and it knows", rule: "I2", what: "the record names", run: func(h *history) {
			h.k.told(h.p, 0, &consume.Recorded{Stored: consume.Stored{Partition: thePart, Revision: 1 << 20}})
			h.burySplitOff()
		}},
		{name: "no member", rule: "I2", what: "no member", run: func(h *history) {
			h.append("")
			h.p.members = nil
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "a paused group", rule: "I2", what: "paused", run: func(h *history) {
			h.append("")
			h.p.view.Group.Paused = true
			h.hand(h.p, base, base, 0, false)
		}},
		{name: "an ordered group with two lanes at once", rule: "I4+", what: "the baseline has not settled 0", ordered: true, run: func(h *history) {
			r := split(record(h.p), "red", 1, nil, base)
			h.append("red", "red")
			h.hand(h.p, base, base, 0, false)
			h.see(h.q, "red")
			h.land(h.p, r, map[lane.Name]*consume.Note{"red": noteOf(1)})
			h.land(h.q, split(r, "red", 1, h.q, "red"), nil)
			h.hand(h.q, "red", "red", 1, false)
		}},
		{name: "more in flight than the window", rule: "I5", what: "the window is 10", run: func(h *history) {
			for i := range int64(11) {
				h.append("")
				h.runs = 0
				h.hand(h.p, base, base, i, false)
			}
		}},
		{name: "a wrong reason", rule: "REASON", what: "plain", run: func(h *history) {
			h.append("red")
			h.k.dispatched(h.p, 0, &consume.Dispatch{Run: 1, Message: h.messages[0], Reason: lane.ReasonPlain})
		}},
		{name: "a message of another log", rule: "LOG", what: "no such message", run: func(h *history) {
			h.append("")
			h.k.dispatched(h.p, 0, &consume.Dispatch{Run: 1, Message: &consume.Message{Partition: thePart}, Reason: lane.ReasonPlain})
		}},
		{name: "a false alarm", rule: "ALARM", what: "it was not", run: func(h *history) {
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmTruncated, Partition: thePart})
		}},
		{name: "a mirror that shows too much", rule: "MIRROR", what: "0 is not settled", run: func(h *history) {
			h.append("")
			h.k.mirrored(h.p, &consume.Mirror{Partition: thePart, Offset: 1})
		}},
		{name: "a mirror of before a reset", run: func(h *history) {
			h.settledAndReset()
			h.k.mirrored(h.p, &consume.Mirror{Partition: thePart, Offset: 1})
		}},
		{name: "a mirror of before a reset that shows too much", rule: "MIRROR", what: "has noted 1", run: func(h *history) {
			h.settledAndReset()
			h.k.mirrored(h.p, &consume.Mirror{Partition: thePart, Offset: 2})
		}},
		{name: "a mirror of before a reset by one that knows of it", rule: "MIRROR", what: "0 is not settled", run: func(h *history) {
			h.settledAndReset()
			h.k.told(h.p, 0, &consume.Recorded{Stored: consume.Stored{Partition: thePart, Revision: h.revision}})
			h.k.told(h.p, 0, &consume.Answered{Write: 1})
			h.k.mirrored(h.p, &consume.Mirror{Partition: thePart, Offset: 1})
		}},
		{name: "a mirror of before a reset of its own that is not answered", run: func(h *history) {
			h.settledAndReset()
			h.k.told(h.p, 0, &consume.Recorded{Stored: consume.Stored{Partition: thePart, Revision: h.revision}})
			h.k.mirrored(h.p, &consume.Mirror{Partition: thePart, Offset: 1})
		}},
		{name: "an alarm of what was not settled before a reset", run: func(h *history) {
			h.settledAndReset()
			h.k.deleted(thePart, 0, 2, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, From: 1, Count: 1})
		}},
		{name: "an alarm of what was settled before a reset", rule: "ALARM", what: "it was settled before", run: func(h *history) {
			h.settledAndReset()
			h.k.deleted(thePart, 0, 2, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, Count: 2})
		}},
		{name: "a start of one's own", rule: "I1", what: "the engine said", run: func(h *history) {
			p := h.k.groups[0].part(thePart)
			p.record, p.notes = nil, map[lane.Name]*consume.Note{}
			h.land(h.p, record(h.p), map[lane.Name]*consume.Note{base: noteOf(5)})
		}},
	} {
		tt.try(t)
	}
}
