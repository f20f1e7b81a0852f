package consumetest

import (
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// buryEnded has p bury the first message, of a strict lane that is over, but for a change.
func (h *history) buryEnded(change func(*consume.Bury)) {
	h.append(strictLane)
	h.p.view.Lanes[strictLane] = consume.Lane{Generation: 1, Ended: true}
	h.fetch(h.p)
	b := h.dead()
	change(b)
	h.k.buried(h.p, 0, b)
}

// propose has p propose a write of main's holder with a move.
func (h *history) propose(m consume.Move, notes ...consume.NoteWrite) *consume.Write {
	w := &consume.Write{
		ID: 9, Partition: thePart, Session: "p", IfRevision: h.revision, Record: h.k.groups[0].part(thePart).record, Notes: notes,
		Moves: []consume.Move{m},
	}
	h.k.proposed(h.p, w)
	return w
}

// TestCheckerHears gives the checker histories in which a Core says what is not so, of what it does or of what
// was deleted, or sends away what is not as it was.
func TestCheckerHears(t *testing.T) {
	const base = lane.Baseline
	for _, tt := range []sighting{
		{name: "an alarm of what is gone", run: func(h *history) {
			h.append("", "")
			h.fetch(h.p)
			h.k.deleted(thePart, 0, 2, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, Count: 1})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, From: 1, Count: 1})
		}},
		{name: "an alarm of what is gone, twice", rule: "ALARM", what: "has said so of some", run: func(h *history) {
			h.append("", "")
			h.fetch(h.p)
			h.k.deleted(thePart, 0, 2, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, Count: 2})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, From: 1, Count: 1})
		}},
		{name: "an alarm of a cursor that it does not run", rule: "ALARM", what: "does not run it", run: func(h *history) {
			h.append("")
			h.k.deleted(thePart, 0, 1, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, Count: 1})
		}},
		{name: "an alarm of what is another cursor's", rule: "ALARM", what: "and it is another one's", run: func(h *history) {
			h.append("red", "")
			h.land(h.p, split(record(h.p), "red", 0, nil, base), map[lane.Name]*consume.Note{"red": noteOf(0)})
			h.settle(h.p, h.hand(h.p, base, base, 1, false), 1)
			h.land(h.p, nil, map[lane.Name]*consume.Note{base: noteOf(2)})
			h.k.deleted(thePart, 0, 2, true)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRetention, Partition: thePart, Count: 1})
		}},
		{name: "an alarm of another log, twice", rule: "ALARM", what: "or that was said", run: func(h *history) {
			h.k.broke(thePart)
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmTruncated, Partition: thePart})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmTruncated, Partition: thePart})
		}},
		{name: "consumers that are waited for no longer, and it is not said", rule: "ALARM", what: "does not say so", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.now += 2 * time.Second
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: run, In: 1, Why: consume.WhyBalance})
		}},
		{name: "what was taken is given up without an alarm", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: run, In: 1, Why: consume.WhyBalance})
		}},
		{name: "given up since another one has it, and it is named", rule: "WHY", what: "holder-is-gone", run: func(h *history) {
			h.fetch(h.p)
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: 7, Why: consume.WhyGone})
		}},
		{name: "given up since another one has it", run: func(h *history) {
			h.fetch(h.p)
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: 7, Why: consume.WhyGone})
		}},
		{name: "given up for a stop that nobody asked for", rule: "WHY", what: "stopping", run: func(h *history) {
			h.fetch(h.p)
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: 7, Why: consume.WhyStopping})
		}},
		{name: "given up as it was released", run: func(h *history) {
			h.fetch(h.p)
			h.propose(consume.Move{Kind: consume.Release, Why: consume.WhyBalance})
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: 7, Why: consume.WhyBalance})
		}},
		{name: "given up for another reason than it was released", rule: "WHY", what: "no-member-here", run: func(h *history) {
			h.fetch(h.p)
			h.propose(consume.Move{Kind: consume.Release, Why: consume.WhyBalance})
			h.k.withdrawn(h.p, h.now, &consume.Withdraw{Run: 7, Why: consume.WhyNoMember})
		}},
		{name: "waited for no longer for another reason than it is released", rule: "WHY", what: "balance, and proposes", run: func(h *history) {
			h.append("")
			h.cutOff(h.p, h.hand(h.p, base, base, 0, false))
			h.propose(consume.Move{Kind: consume.Release, Why: consume.WhyNoMember})
		}},
		{name: "the dead letter of a strict lane", run: func(h *history) { h.buryEnded(func(*consume.Bury) {}) }},
		{name: "a dead letter without its content", rule: "RETRY", what: "with another content", run: func(h *history) {
			h.buryEnded(func(b *consume.Bury) { b.Value = []byte{'b'} })
		}},
		{name: "a dead letter without its headers", rule: "RETRY", what: "with another content", run: func(h *history) {
			h.buryEnded(func(b *consume.Bury) { b.Headers = []consume.Header{{Name: "n"}} })
		}},
		{name: "a dead letter from elsewhere", rule: "RETRY", what: "with another content", run: func(h *history) {
			h.buryEnded(func(b *consume.Bury) { b.Origin.Offset = 1 })
		}},
		{name: "a dead letter by the ID of another one", rule: "RETRY", what: "with another content", run: func(h *history) {
			h.k.ids["first"] = "another one"
			h.buryEnded(func(*consume.Bury) {})
		}},
		{name: "a dead letter that waits", rule: "RETRY", what: "in 1s", run: func(h *history) {
			h.buryEnded(func(b *consume.Bury) { b.Delay = time.Second })
		}},
		{name: "a reset to elsewhere", rule: "NOTE", what: "the engine said [0]", run: func(h *history) {
			r := record(h.p)
			r.Reset = "r1"
			h.land(h.p, r, map[lane.Name]*consume.Note{base: noteOf(1)})
		}},
		{name: "more notes than a write takes", rule: "MOVE", what: "with 42 notes", run: func(h *history) {
			h.propose(consume.Move{Kind: consume.Rewind, Why: consume.WhyReset}, make([]consume.NoteWrite, 42)...)
		}},
		{name: "a take of what nobody holds from one that is gone", rule: "WHY", what: "holder-is-gone", run: func(h *history) {
			h.land(h.p, record(nil), map[lane.Name]*consume.Note{base: noteOf(0)})
			h.propose(consume.Move{Kind: consume.Take, Why: consume.WhyGone})
		}},
		{name: "a take from one that is gone of what nobody holds", rule: "WHY", what: "nobody-holds-it", run: func(h *history) {
			h.propose(consume.Move{Kind: consume.Take, Why: consume.WhyFree})
		}},
		{name: "a take under a new session of what another one had", rule: "WHY", what: "new-session", run: func(h *history) {
			h.lose(h.p)
			h.land(h.q, record(h.q), nil)
			h.propose(consume.Move{Kind: consume.Take, Why: consume.WhyNewSession})
		}},
		{name: "a caretaker though the baseline has a member", rule: "WHY", what: "caretaker", run: func(h *history) {
			h.see(h.p, base)
			h.propose(consume.Move{Kind: consume.Take, Why: consume.WhyCaretaker})
		}},
		{name: "a strict lane that is not over", rule: "WHY", what: "strict-lane-is-over", run: func(h *history) {
			h.propose(consume.Move{Kind: consume.Take, Cursor: strictLane, Why: consume.WhyStrictEnded})
		}},
		{name: "a release for a stop that nobody asked for", rule: "WHY", what: "stopping", run: func(h *history) {
			h.propose(consume.Move{Kind: consume.Release, Why: consume.WhyStopping})
		}},
		{name: "a split for a member that is not there", rule: "WHY", what: "lane-has-a-member", run: func(h *history) {
			h.propose(consume.Move{Kind: consume.Split, Cursor: "red", Why: consume.WhyLaneMember})
		}},
		{name: "a split for a message that is not there", rule: "WHY", what: "message-of-it", run: func(h *history) {
			h.append("blue")
			h.propose(consume.Move{Kind: consume.Split, Cursor: "red", Why: consume.WhyMessage})
		}},
		{name: "a split by a reason of a merge", rule: "WHY", what: "positions-met", run: func(h *history) {
			h.propose(consume.Move{Kind: consume.Split, Cursor: "red", Why: consume.WhyMet})
		}},
		{name: "a move that did not take place, and is said to", rule: "MOVED", what: "and it did not", run: func(h *history) {
			h.k.movedTold(h.p, h.propose(consume.Move{Kind: consume.Take, Why: consume.WhyNotRun}))
		}},
		{name: "a move that took place, and is not said to", rule: "MOVED", what: "does not say that its write 9", run: func(h *history) {
			w := h.propose(consume.Move{Kind: consume.Take, Why: consume.WhyNotRun})
			h.p.landed[w.ID] = true
			h.k.told(h.p, 0, &consume.Answered{Write: w.ID})
			h.k.movesTold(h.p)
		}},
		{name: "a wrong reason among the baseline's", rule: "REASON", what: "baseline-fallback", run: func(h *history) {
			h.append("green")
			h.k.dispatched(h.p, 0, &consume.Dispatch{Run: 1, Message: h.messages[0], Reason: lane.ReasonBaseline})
		}},
	} {
		tt.try(t)
	}
}
