package consumetest

import (
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// recall has p ask for what nobody has begun with of main.
func (h *history) recall(run uint64, why consume.Why) {
	h.k.recalled(h.p, &consume.Recall{Run: run, Why: why})
}

// pause lets a process see that its group is paused.
func (h *history) pause(a *actor) {
	v := *a.view
	v.Group.Paused = true
	h.k.told(a, h.now, &consume.Viewed{View: &v})
}

// TestCheckerSeesRecalls gives the checker histories in which a Core asks for what nobody has
// begun with, or does not though it should.
func TestCheckerSeesRecalls(t *testing.T) {
	const base = lane.Baseline
	handover := consume.Timer{Kind: consume.TimerHandover, Partition: thePart}
	for _, tt := range []sighting{
		{name: "a process that stops", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.Stop{})
			h.recall(run, consume.WhyStopping)
			h.k.waits(h.p, handover)
			h.k.stepped(h.p)
		}},
		{name: "one that waits and has not asked", rule: "RECALL", what: "waits for what is in flight", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.Stop{})
			h.k.waits(h.p, handover)
		}},
		{name: "one that has asked, and handed out more since", rule: "RECALL", what: "waits for what is in flight", run: func(h *history) {
			h.append("", "")
			run := h.hand(h.p, base, base, 0, false)
			h.recall(run, consume.WhyBalance)
			h.k.dispatched(h.p, h.now, &consume.Dispatch{Run: run, Message: h.messages[1], Reason: lane.ReasonPlain})
			h.k.waits(h.p, handover)
		}},
		{name: "a run that there is not", rule: "RECALL", what: "does not run", run: func(h *history) {
			h.recall(9, consume.WhyBalance)
		}},
		{name: "where there is nothing", rule: "RECALL", what: "there is nothing", run: func(h *history) {
			h.fetch(h.p)
			h.recall(7, consume.WhyBalance)
		}},
		{name: "a stop that nobody asked for", rule: "RECALL", what: "stopping", run: func(h *history) {
			h.append("")
			h.recall(h.hand(h.p, base, base, 0, false), consume.WhyStopping)
		}},
		{name: "by a reason of a split", rule: "RECALL", what: "message-of-it", run: func(h *history) {
			h.append("")
			h.recall(h.hand(h.p, base, base, 0, false), consume.WhyMessage)
		}},
		{name: "a pause", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.pause(h.p)
			h.recall(run, consume.WhyPaused)
			h.k.stepped(h.p)
		}},
		{name: "a pause that is over by the next picture", run: func(h *history) {
			h.append("", "")
			run := h.hand(h.p, base, base, 0, false)
			h.pause(h.p)
			h.see(h.p)
			h.recall(run, consume.WhyPaused)
			h.k.dispatched(h.p, h.now, &consume.Dispatch{Run: run, Message: h.messages[1], Reason: lane.ReasonPlain})
			h.k.stepped(h.p)
		}},
		{name: "a pause, and nothing is asked for", rule: "RECALL", what: "hands out nothing", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.pause(h.p)
			h.k.stepped(h.p)
		}},
		{name: "a group that holds still", ordered: true, run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistry})
			h.recall(run, consume.WhyHold)
			h.k.stepped(h.p)
		}},
		{name: "a group that holds still, and nothing is asked for", rule: "RECALL", what: "hands out nothing", ordered: true, run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistry})
			h.k.stepped(h.p)
		}},
		{name: "a new session", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistry})
			h.k.told(h.p, 0, &consume.Opened{Session: "next"})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistryBack})
			h.recall(run, consume.WhyNewSession)
			h.k.stepped(h.p)
		}},
		{name: "a new session, and nothing is asked for", rule: "RECALL", what: "hands out nothing", run: func(h *history) {
			h.append("")
			h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistry})
			h.k.told(h.p, 0, &consume.Opened{Session: "next"})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistryBack})
			h.k.stepped(h.p)
		}},
		{name: "by a session that is not new", rule: "RECALL", what: "new-session", run: func(h *history) {
			h.append("")
			h.recall(h.hand(h.p, base, base, 0, false), consume.WhyNewSession)
		}},
		{name: "a group that goes on", rule: "RECALL", what: "registry-lost", run: func(h *history) {
			h.append("")
			run := h.hand(h.p, base, base, 0, false)
			h.k.told(h.p, 0, &consume.LeaseLost{})
			h.k.alarmed(h.p, &consume.Alarm{Kind: consume.AlarmRegistry})
			h.recall(run, consume.WhyHold)
		}},
	} {
		tt.try(t)
	}
}
