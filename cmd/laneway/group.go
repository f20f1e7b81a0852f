package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newGroupCommand(a *app) *cobra.Command {
	return groupCommand("group", "Show groups of consumers, pause, resume and reset them, and replay messages",
		"  laneway group list\n  laneway group show billing",
		a.groupList(), a.groupShow(), a.groupPause(true), a.groupPause(false), a.groupReset(),
		a.deleteCommand(laneclient.KindGroups, "group", "  laneway group delete billing"), a.groupDead(), a.groupReplay())
}

func (a *app) groupList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List groups with who consumes and what waits",
		Example: "  laneway group list\n  laneway group list -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			views, err := a.groupViews(cmd.Context())
			if err != nil {
				return err
			}
			return a.print(views, func(w io.Writer) error {
				g := a.newGrid("NAME", "ENGINE", "TOPICS", "CONSUMERS", "IN LANES", "WAITING", "STATE")
				for _, v := range views {
					live, lanes := 0, []string{}
					for _, m := range v.Members {
						if m.Session == "" {
							continue
						}
						live++
						if m.Lane != "" && !slices.Contains(lanes, m.Lane) {
							lanes = append(lanes, m.Lane)
						}
					}
					g.add(v.Name, v.Engine, strings.Join(v.Topics, ", "), fmt.Sprint(live), strings.Join(lanes, ", "), count(v.Lag), a.stateText(v)+a.foreignMark(v))
				}
				return g.write(w)
			})
		},
	}
	a.addOutput(c)
	return c
}

// count writes a number that may not be known.
func count(n *int64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatInt(*n, 10)
}

func (a *app) stateText(v *groupView) string {
	switch v.State {
	case "paused", "idle":
		return a.painter().bad(v.State)
	}
	return v.State
}

// foreignMark says beside a group's state that somebody consumes past Laneway.
func (a *app) foreignMark(v *groupView) string {
	if len(v.Foreign) == 0 {
		return ""
	}
	return ", " + a.painter().bad(plural(len(v.Foreign), "foreign consumer"))
}

// groupViews are all groups, each with its engine asked where that can be reached.
func (a *app) groupViews(ctx context.Context) ([]*groupView, error) {
	api := a.api()
	groups, err := list[laneclient.Group](ctx, api, laneclient.ListOptions{})
	if err != nil {
		return nil, err
	}
	facts, err := readGroupFacts(ctx, api)
	if err != nil {
		return nil, err
	}
	engines := engineCache{app: a, api: api}
	defer engines.close()
	views := []*groupView{}
	for _, g := range groups {
		v, err := facts.groupView(ctx, g, engines.look(ctx, g.Engine))
		if err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	a.tellFaults(facts.faults)
	return views, nil
}

func (a *app) groupShow() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show who consumes what of a group, how far it is, and why",
		Long: `Shows a group's consumers and its cursors: each partition has one for plain messages and
for all colors that are not apart, and one for each color that is. It says who runs a cursor,
for which lane and why, up to where all is settled, and how many messages wait. What a
consumer has in its hands just now is known to its process alone; it counts as waiting.
Below that are foreign consumers: those in the group that read from the engine itself and
not through Laneway, where the engine can tell.`,
		Example: "  laneway group show billing\n  laneway group show billing -o json",
		Args:    exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindGroups),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, api := cmd.Context(), a.api()
			g, err := laneclient.Get[laneclient.Group](ctx, api, args[0])
			if err != nil {
				return ofKind(err, "group", args[0])
			}
			facts, err := readGroupFacts(ctx, api)
			if err != nil {
				return err
			}
			engines := engineCache{app: a, api: api}
			defer engines.close()
			v, err := facts.groupView(ctx, *g, engines.look(ctx, g.Engine))
			if err != nil {
				return err
			}
			a.tellFaults(facts.faults)
			return a.print(v, func(w io.Writer) error { return a.writeGroup(w, v) })
		},
	}
	a.addOutput(c)
	return c
}

func (a *app) writeGroup(w io.Writer, v *groupView) error {
	now := time.Now()
	g := a.newGrid("GROUP", v.Name)
	g.add("engine", v.Engine)
	g.add("topics", strings.Join(v.Topics, ", "))
	g.add("state", a.stateText(v))
	if v.Reset != nil {
		g.add("last reset", v.Reset.ID)
	}
	g.add("began at", v.Start)
	g.add("ordered", map[bool]string{true: "yes", false: "no"}[v.Ordered])
	g.add("retries", retryText(v.Retry))
	g.add("waiting", count(v.Lag))
	if err := g.write(w); err != nil {
		return err
	}
	if len(v.Members) > 0 {
		g = a.newGrid("CONSUMER", "LANE", "TOPICS", "ROOM", "SINCE")
		for _, m := range v.Members {
			since := ago(m.Since, now)
			if m.Session == "" {
				since = "left; counts " + ago(m.Until, now) + " more"
			}
			g.add(m.Name, cmp.Or(m.Lane, "baseline"), strings.Join(m.Topics, ", "), m.Room, since)
		}
		if err := writeBelow(w, g); err != nil {
			return err
		}
	}
	if len(v.Cursors) > 0 {
		if err := a.writeCursors(w, v, now); err != nil {
			return err
		}
	}
	return a.writeForeign(w, &v.foreign)
}

func (a *app) writeCursors(w io.Writer, v *groupView, now time.Time) error {
	g := a.newGrid("TOPIC", "PARTITION", "MESSAGES", "READ BY", "OF", "SINCE", "WHY", "SETTLED BELOW", "WAITING")
	for _, c := range v.Cursors {
		if c.Unknown != "" {
			g.add(c.Topic, fmt.Sprint(c.Partition), a.painter().bad(c.Unknown))
			continue
		}
		messages, why := "plain, and colors not apart", c.Reason
		if c.Color != "" {
			messages = "color " + c.Color
		}
		if c.Moving != "" {
			why = a.painter().bad(c.Moving)
		}
		settled := fmt.Sprint(c.Position)
		if c.Left > 0 {
			settled += fmt.Sprintf(", but for %d", c.Left)
		}
		of := laneOrBaseline(c.Lane)
		if c.Session == "" {
			of = ""
		}
		g.add(c.Topic, fmt.Sprint(c.Partition), messages, cmp.Or(c.Member, sessionText(c.Session)), of, ago(c.Since, now), why, settled, count(c.Lag))
	}
	return writeBelow(w, g)
}

func writeBelow(w io.Writer, g *grid) error {
	if _, err := io.WriteString(w, "\n"); err != nil {
		return err
	}
	return g.write(w)
}

func sessionText(id string) string {
	if id == "" {
		return ""
	}
	return "session " + id
}

func retryText(delays []laneclient.Duration) string {
	if len(delays) == 0 {
		return "none: what fails is dead"
	}
	out := make([]string, len(delays))
	for i, d := range delays {
		out[i] = time.Duration(d).String()
	}
	return "after " + strings.Join(out, ", ")
}

func (a *app) groupPause(pause bool) *cobra.Command {
	use, short, done := "pause", "Hand nothing out to a group's consumers", "is paused: what they have in their hands is finished, cursors stay where they are"
	if !pause {
		use, short, done = "resume", "Hand messages out to a group's consumers again", "goes on"
	}
	return &cobra.Command{
		Use: use + " NAME…", Short: short, Example: "  laneway group " + use + " billing",
		Args: someArgs(), ValidArgsFunction: a.complete(laneclient.KindGroups),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := a.changeGroup(cmd.Context(), name, func(g *laneclient.Group) { g.Paused = pause }); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(a.stdout, "group %s %s\n", name, done); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// changeTries is how often a change is made anew where somebody else was faster.
const changeTries = 5

// changeGroup changes a group as it is now.
func (a *app) changeGroup(ctx context.Context, name string, change func(*laneclient.Group)) error {
	api := a.api()
	for n := 1; ; n++ {
		g, err := laneclient.Get[laneclient.Group](ctx, api, name)
		if err != nil {
			return ofKind(err, "group", name)
		}
		change(g)
		_, err = laneclient.Put(ctx, api, g, laneclient.IfMatch(g.Revision))
		if p, refused := errors.AsType[*laneclient.Problem](err); refused && p.Status == http.StatusPreconditionFailed && n < changeTries {
			continue
		}
		return err
	}
}

// resetOptions say where a group begins again.
type resetOptions struct {
	to        string
	topics    []string
	partition int
	dryRun    bool
}

func (a *app) groupReset() *cobra.Command {
	o := resetOptions{}
	c := &cobra.Command{
		Use:   "reset NAME --to WHERE",
		Short: "Let a group begin again somewhere else",
		Long: `Lets a group read its topics from somewhere else on: the earliest message that there is,
the latest, a time, or an offset. What it has not read before that is passed over; what
it has read after that comes again. Colors that are apart follow. Consumers go on
running; each partition begins again as soon as its consumer has finished what it has.
Retry and dead-letter topics stay as they are.`,
		Example: `  laneway group reset billing --to earliest
  laneway group reset billing --to latest --topic orders
  laneway group reset billing --to 2026-11-30T08:00:00Z
  laneway group reset billing --to 2h                       # two hours ago
  laneway group reset billing --topic orders --partition 3 --to offset:4711`,
		Args: exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindGroups),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.to == "" {
				return usageError(fmt.Errorf("where should group %s begin again? Say so with --to earliest, latest, a time or offset:NUMBER", args[0]))
			}
			start, err := parseReset(o.to, time.Now())
			if err != nil {
				return usageError(err)
			}
			return a.resetGroup(cmd.Context(), args[0], start, o)
		},
	}
	c.Flags().StringVar(&o.to, "to", "", "`WHERE`: earliest, latest, a time as 2026-11-30T08:00:00Z or 2h (ago), or offset:NUMBER")
	c.Flags().StringArrayVar(&o.topics, "topic", nil, "only this `TOPIC`; repeatable (default all of the group)")
	c.Flags().IntVar(&o.partition, "partition", -1, "only this `NUMBER`ed partition (default all)")
	c.Flags().BoolVar(&o.dryRun, "dry-run", false, "show where it would begin, and change nothing")
	_ = c.RegisterFlagCompletionFunc("topic", a.complete(laneclient.KindTopics))
	a.addOutput(c)
	return c
}

// parseReset reads where to begin again.
func parseReset(to string, now time.Time) (consume.Start, error) {
	switch to {
	case laneclient.StartEarliest:
		return consume.Start{Kind: consume.StartEarliest}, nil
	case laneclient.StartLatest:
		return consume.Start{Kind: consume.StartLatest}, nil
	}
	if text, ok := strings.CutPrefix(to, "offset:"); ok {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 {
			return consume.Start{}, fmt.Errorf("--to %q: want offset:NUMBER", to)
		}
		return consume.Start{Kind: consume.StartOffset, Offset: n}, nil
	}
	if d, err := time.ParseDuration(to); err == nil && d >= 0 {
		return consume.Start{Kind: consume.StartTime, Time: now.Add(-d)}, nil
	}
	t, err := time.Parse(time.RFC3339, to)
	if err != nil {
		return consume.Start{}, fmt.Errorf("--to %q: want earliest, latest, offset:NUMBER, a time as 2026-11-30T08:00:00Z, or 2h for two hours ago", to)
	}
	return consume.Start{Kind: consume.StartTime, Time: t}, nil
}

// openGroup reads a group and opens its engine.
func (a *app) openGroup(ctx context.Context, name string) (*laneclient.Group, engine, error) {
	api := a.api()
	g, err := laneclient.Get[laneclient.Group](ctx, api, name)
	if err != nil {
		return nil, nil, ofKind(err, "group", name)
	}
	e, _, err := a.openNamed(ctx, api, g.Engine)
	return g, e, err
}

// checkReads is the error where a group does not read a topic.
func checkReads(g *laneclient.Group, topic string) error {
	if slices.Contains(g.Topics, topic) {
		return nil
	}
	return fmt.Errorf("group %s does not read topic %s; it reads %s", g.Name, topic, strings.Join(g.Topics, ", "))
}

func (a *app) resetGroup(ctx context.Context, name string, start consume.Start, o resetOptions) error {
	g, e, err := a.openGroup(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	reset := laneclient.GroupReset{ID: "reset-" + strings.ToLower(rand.Text()[:8]), Offsets: map[string]int64{}}
	topics := g.Topics
	if len(o.topics) > 0 {
		topics = o.topics
	}
	for _, topic := range topics {
		if err := checkReads(g, topic); err != nil {
			return err
		}
		if err := resetOffsets(ctx, e, topic, o.partition, start, reset.Offsets); err != nil {
			return err
		}
	}
	if len(reset.Offsets) == 0 {
		return fmt.Errorf("there is no partition %d in %s", o.partition, strings.Join(topics, ", "))
	}
	if !o.dryRun {
		if err := a.changeGroup(ctx, name, func(g *laneclient.Group) { g.Reset = &reset }); err != nil {
			return err
		}
	}
	return a.print(reset, func(w io.Writer) error {
		t := a.newGrid("TOPIC/PARTITION", "BEGINS AGAIN AT OFFSET")
		for _, p := range slices.Sorted(maps.Keys(reset.Offsets)) {
			t.add(p, fmt.Sprint(reset.Offsets[p]))
		}
		if err := t.write(w); err != nil || o.dryRun {
			return err
		}
		_, err := fmt.Fprintf(w, "\nasked for as %s; `laneway group show %s` says when all partitions have begun\n", reset.ID, name)
		return err
	})
}

// resetOffsets adds the offsets of a topic's partitions, or of one of them.
func resetOffsets(ctx context.Context, e engine, topic string, only int, start consume.Start, out map[string]int64) error {
	n, err := e.Partitions(ctx, topic)
	if err != nil {
		return err
	}
	for i := range n {
		if only >= 0 && int(i) != only {
			continue
		}
		p := consume.Partition{Topic: topic, Index: i}
		b, err := e.Bounds(ctx, p)
		if err != nil {
			return err
		}
		at := b.First
		switch start.Kind {
		case consume.StartLatest:
			at = b.End
		case consume.StartOffset:
			at = min(max(start.Offset, b.First), b.End)
		case consume.StartTime:
			if at, err = e.At(ctx, p, start.Time); err != nil {
				return err
			}
		case consume.StartEarliest:
		}
		out[p.String()] = at
	}
	return nil
}
