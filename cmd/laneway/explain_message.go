package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// messageExplanation says who gets the next message of a color.
type messageExplanation struct {
	Topic   string       `json:"topic"`
	Group   string       `json:"group"`
	Color   string       `json:"color"`
	Lane    string       `json:"lane"` // whose consumers get it; empty: the baseline
	Reason  string       `json:"reason"`
	Dead    bool         `json:"dead,omitempty"` // it goes to the dead letters
	Paused  bool         `json:"paused,omitempty"`
	Members []string     `json:"members"` // consumers that may get it
	Cursors []cursorView `json:"cursors"` // with which it is, by partition
}

func (a *app) explainMessage() *cobra.Command {
	var topic, group, color string
	c := &cobra.Command{
		Use: "message --topic TOPIC --group GROUP", Short: "Say which consumers of a group would get a message",
		Long: `Says to which lane's consumers the next message of a color goes, and why, as the registry
has it; and of each partition who runs the cursor that such messages are with just now.
There is no --at NODE here: processes answer for calls and requests, by their own view,
and the control plane for messages. A consumer whose view is older cannot act against
the answer, since the registry refuses what does not fit.
The exit status is 0 also where nobody would get it: that is what was asked for.`,
		Example: "  laneway explain message --topic orders --group billing --color green",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case topic == "":
				return usageError(errors.New("which topic is it in? Say so with --topic TOPIC"))
			case group == "":
				return usageError(errors.New("which group reads it? Say so with --group GROUP"))
			}
			of := lane.Baseline
			if color != "" {
				var err error
				if of, err = parseColor(color); err != nil {
					return err
				}
			}
			e, err := a.whoGets(cmd.Context(), topic, group, of)
			if err != nil {
				return err
			}
			return a.print(e, func(w io.Writer) error { return a.writeMessageExplanation(w, e) })
		},
	}
	c.Flags().StringVar(&topic, "topic", "", "`TOPIC` that the message is in")
	c.Flags().StringVar(&group, "group", "", "`GROUP` that reads it")
	c.Flags().StringVar(&color, "color", "", "`LANE` that is the color of the message (default plain)")
	_ = c.RegisterFlagCompletionFunc("topic", a.complete(laneclient.KindTopics))
	_ = c.RegisterFlagCompletionFunc("group", a.complete(laneclient.KindGroups))
	_ = c.RegisterFlagCompletionFunc("color", a.complete(laneclient.KindLanes))
	a.addOutput(c)
	return c
}

func (a *app) whoGets(ctx context.Context, topic, group string, color lane.Name) (*messageExplanation, error) {
	api := a.api()
	g, err := laneclient.Get[laneclient.Group](ctx, api, group)
	if err != nil {
		return nil, ofKind(err, "group", group)
	}
	of := originOf(g, topic)
	if err := checkReads(g, of); err != nil {
		return nil, err
	}
	facts, err := readGroupFacts(ctx, api)
	if err != nil {
		return nil, err
	}
	view, err := facts.groupView(ctx, *g, nil)
	if err != nil {
		return nil, err
	}
	owner := ownerOf(facts.view(group), g, topic, color)
	e := &messageExplanation{
		Topic: topic, Group: group, Color: string(color), Lane: string(owner.Lane), Reason: string(owner.Reason),
		Dead: owner.Dead, Paused: g.Paused, Members: []string{}, Cursors: []cursorView{},
	}
	for _, m := range view.Members {
		if m.Session != "" && m.Lane == e.Lane && slices.Contains(m.Topics, of) {
			e.Members = append(e.Members, m.Name)
		}
	}
	// Until a color is apart its messages are with main.
	for _, c := range view.Cursors {
		apart := slices.ContainsFunc(view.Cursors, func(o cursorView) bool {
			return o.Topic == topic && o.Partition == c.Partition && o.Color == e.Color
		})
		if c.Topic == topic && (c.Color == e.Color || c.Color == "" && !apart) {
			e.Cursors = append(e.Cursors, c)
		}
	}
	return e, nil
}

func (a *app) writeMessageExplanation(w io.Writer, e *messageExplanation) error {
	to := "the consumers of " + laneOrBaseline(e.Lane)
	if e.Lane == "" {
		to = "the consumers of the baseline"
	}
	switch {
	case e.Dead:
		to = "the dead letters of the group"
	case len(e.Members) == 0:
		to = a.painter().bad("nobody now: it waits for " + to)
	}
	g := a.newGrid("TOPIC", e.Topic)
	g.add("group", e.Group)
	g.add("color", colorText(lane.Name(e.Color)))
	g.add("goes to", to)
	g.add("why", messageReason(e.Reason))
	g.add("they are", strings.Join(e.Members, ", "))
	if e.Paused {
		g.add("but", a.painter().bad("the group is paused: nothing is handed out until `laneway group resume "+e.Group+"`"))
	}
	if err := g.write(w); err != nil || len(e.Cursors) == 0 {
		return err
	}
	g = a.newGrid("PARTITION", "READ BY", "OF", "NOW")
	for _, c := range e.Cursors {
		now := c.Moving
		if now == "" && c.Color != e.Color {
			now = "with the plain ones, until the first of its color comes"
			if c.Lane == e.Lane {
				now = "with the plain ones"
			}
		}
		g.add(fmt.Sprint(c.Partition), c.Member, laneOrBaseline(c.Lane), now)
	}
	return writeBelow(w, g)
}

// messageReason says what a reason means where messages are handed out.
func messageReason(reason string) string {
	text := map[lane.Reason]string{
		lane.ReasonPlain:    "no color: the baseline consumes it",
		lane.ReasonLane:     "the lane has a consumer of its own",
		lane.ReasonParent:   "the lane has no consumer, a lane above it has",
		lane.ReasonBaseline: "neither the lane nor one above it has a consumer: the baseline consumes it",
		lane.ReasonUnknown:  "no such lane: consumed as plain, the color is passed on",
		lane.ReasonEnded:    "the lane is over",
		lane.ReasonStrict:   "the strict lane has a consumer",
		lane.ReasonStrictNo: "the strict lane has no consumer, and it never falls back: the message waits",
	}[lane.Reason(reason)]
	if text == "" {
		return reason // of a newer version
	}
	return reason + " (" + text + ")"
}
