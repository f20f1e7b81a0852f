package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// replayTells is how often a long replay says how far it is, to a terminal.
const replayTells = time.Second

// replayOptions are the flags of `group replay`.
type replayOptions struct {
	lane         string
	from, to     int64
	since, until string
	partition    int
	color        string
	most         int
	name         string
	fallback     bool
	dryRun       bool
	hops         string
}

func (a *app) groupReplay() *cobra.Command {
	o := replayOptions{}
	c := &cobra.Command{
		Use:   "replay GROUP TOPIC --lane LANE",
		Short: "Hand messages to a lane's consumers again",
		Long: `Hands messages of a topic to the consumers that a group has in a lane, whoever has read
them before and whatever their color: copies of the lane's color go into the group's retry
topic. Other groups, the baseline and other lanes see nothing of it, and no cursor is moved.
A handler can tell a copy (Delivery.Replayed) and where the original is (Delivery.Origin);
what fails is retried and dead in the end like every message.

A copy is for that lane alone: what its consumers leave unread when they go is dropped, not
handed to the baseline, which has had the original. With --fallback it goes to whoever the
lane's color belongs to then. Messages of strict lanes are left out, unless --color names
theirs: what load tests write is kept apart by their color.

Each call is a replay of its own, so the same range can be had again as often as it takes.
One that was interrupted goes on where it is called again with its name, as --name: what it
has copied before is not copied again.`,
		Example: `  laneway group replay billing orders --lane green --from 100 --to 200
  laneway group replay billing orders --lane green --since 2h --until 1h --color -
  laneway group replay billing orders --lane green --partition 3 --from 4711 --dry-run`,
		Args: exactArgs("GROUP", "TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := cmd.Flags().Changed
			if !set("from") && !set("since") {
				return usageError(errors.New("which messages? Say where they begin with --from OFFSET or --since TIME"))
			}
			return a.replay(cmd.Context(), args[0], args[1], o)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			kind := laneclient.KindGroups
			if len(args) > 0 {
				kind = laneclient.KindTopics
			}
			return a.complete(kind)(cmd, args, prefix)
		},
	}
	f := c.Flags()
	f.StringVar(&o.lane, "lane", "", "`LANE` whose consumers are handed them")
	f.Int64Var(&o.from, "from", 0, "the first `OFFSET`; 0: the first that there is")
	f.Int64Var(&o.to, "to", -1, "the last `OFFSET` (default: the last that there is)")
	f.StringVar(&o.since, "since", "", "begin at this `TIME`, as 2026-11-30T08:00:00Z or 2h (ago)")
	f.StringVar(&o.until, "until", "", "end before this `TIME`")
	f.IntVar(&o.partition, "partition", -1, "only this `NUMBER`ed partition (default all; offsets are those of one)")
	f.StringVar(&o.color, "color", "", "only messages of this `COLOR`; - is plain (default all)")
	f.IntVar(&o.most, "max", defaultReplay, fmt.Sprintf("refuse to hand out more than this `NUMBER` of messages, up to %d", maxMessages))
	f.StringVar(&o.name, "name", "", "`NAME` of the replay (default: a new one)")
	f.BoolVar(&o.fallback, "fallback", false, "whoever the lane's color belongs to may have them, also now")
	f.BoolVar(&o.dryRun, "dry-run", false, "show what there is to hand out, and hand out nothing")
	addHops(c, &o.hops)
	_ = c.RegisterFlagCompletionFunc("lane", a.complete(laneclient.KindLanes))
	_ = c.RegisterFlagCompletionFunc("color", a.complete(laneclient.KindLanes))
	a.addOutput(c)
	return c
}

// replayName is what a replay may be called.
var replayName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// parse reads what the flags say.
func (o *replayOptions) parse(now time.Time) (to lane.Name, in messageRange, f consume.Filter, err error) {
	fail := func(err error) (lane.Name, messageRange, consume.Filter, error) { return "", in, f, err }
	switch {
	case o.lane == "":
		return fail(usageError(errors.New("whose consumers are to be handed them? Say so with --lane LANE")))
	case o.most < 1 || o.most > maxMessages:
		return fail(usageError(fmt.Errorf("--max %d: want 1 to %d", o.most, maxMessages)))
	case o.from < 0:
		return fail(usageError(fmt.Errorf("--from %d: want an offset, from 0", o.from)))
	case o.to >= 0 && o.to < o.from:
		return fail(usageError(fmt.Errorf("--to %d comes before --from %d", o.to, o.from)))
	case o.name != "" && !replayName.MatchString(o.name):
		return fail(usageError(fmt.Errorf("--name %q: want 1 to 64 of A-Z, a-z, 0-9, dot, - and _", o.name)))
	}
	if to, err = lane.ParseName(o.lane); err != nil {
		return fail(usageError(fmt.Errorf("--lane: %w", err)))
	}
	f.All = o.color == ""
	if !f.All {
		if f.Color, err = parseColor(o.color); err != nil {
			return fail(err)
		}
	}
	in.from, in.to = o.from, o.to
	if in.since, err = parseTime("--since", o.since, now); err != nil {
		return fail(err)
	}
	if in.until, err = parseTime("--until", o.until, now); err != nil {
		return fail(err)
	}
	if !in.since.IsZero() && !in.until.IsZero() && !in.since.Before(in.until) {
		return fail(usageError(fmt.Errorf("--until %s is not after --since %s", o.until, o.since)))
	}
	return to, in, f, nil
}

func (a *app) replay(ctx context.Context, group, topic string, o replayOptions) error {
	now := time.Now()
	to, in, filter, err := o.parse(now)
	if err != nil {
		return err
	}
	api := a.api()
	g, err := laneclient.Get[laneclient.Group](ctx, api, group)
	if err != nil {
		return ofKind(err, "group", group)
	}
	if err := checkReads(g, topic); err != nil {
		return err
	}
	r := &replay{group: g, topic: topic, lane: to, only: to, filter: filter, name: o.name, told: func() {}}
	if o.fallback {
		r.only = lane.Baseline
	}
	if r.name == "" {
		r.name = "replay-" + strings.ToLower(rand.Text()[:8])
	}
	r.view = &replayView{Name: r.name, Group: group, Topic: topic, Lane: string(to), Paused: g.Paused, DryRun: o.dryRun, Partitions: []replayPart{}}
	if r.view.Reason, err = a.replayReader(ctx, api, g, topic, to, o.fallback); err != nil {
		return err
	}
	if r.engine, _, err = a.openNamed(ctx, api, g.Engine); err != nil {
		return err
	}
	defer func() { _ = r.engine.Close() }()
	if err := a.runReplay(ctx, r, in, o, now); err != nil {
		return err
	}
	return a.print(r.view, func(w io.Writer) error { return a.writeReplay(w, r.view) })
}

// replayReader is the error where a lane has no consumer that could be handed copies. reason
// is why those who are do get them.
func (a *app) replayReader(ctx context.Context, api *api, g *laneclient.Group, topic string, to lane.Name, fallback bool) (reason string, err error) {
	l, err := laneclient.Get[laneclient.Lane](ctx, api, string(to))
	if laneclient.IsNotFound(err) {
		return "", fmt.Errorf("there is no lane %s: create it with `laneway lane create %s`, and start a consumer of group %s in it with `laneway run --lane %s …`", to, to, g.Name, to)
	}
	if err != nil {
		return "", err
	}
	if state := lane.State(l.State); state == lane.Ended || state == lane.Draining {
		return "", fmt.Errorf("lane %s is %s: it has to be created anew, with `laneway lane create %s` once it has ended, and a consumer of group %s started in it", to, state, to, g.Name)
	}
	facts, err := readGroupFacts(ctx, api)
	if err != nil {
		return "", err
	}
	v := facts.view(g.Name)
	owner := ownerOf(v, g, topic, to)
	here := slices.ContainsFunc(v.Members, func(m consume.Member) bool {
		return m.Lane == to && m.Generation == l.Generation && m.Session != "" && v.Sessions[m.Session] && slices.Contains(m.Topics, topic)
	})
	if here || fallback {
		return string(owner.Reason), nil
	}
	start := fmt.Sprintf("start one with `laneway run --lane %s …`", to)
	if to.Strict() || owner.Lane == to { // it waits for one, or one has left that counts a while longer
		return "", fmt.Errorf("group %s has no consumer of %s in lane %s: %s", g.Name, topic, to, start)
	}
	others := laneOrBaseline(string(owner.Lane))
	return "", fmt.Errorf("group %s has no consumer of %s in lane %s, whose messages go to those of the %s: %s, or say --fallback to have them do it", g.Name, topic, to, others, start)
}

// runReplay checks what there is to copy, and copies it.
func (a *app) runReplay(ctx context.Context, r *replay, in messageRange, o replayOptions, now time.Time) (err error) {
	retry := consume.RetryTopic(r.topic, r.group.Name)
	r.retries, err = r.engine.Partitions(ctx, retry)
	if errors.Is(err, consume.ErrNoTopic) {
		return fmt.Errorf("group %s has no retry topic %s, from which its consumers would be handed the copies: they have been set up without one", r.group.Name, retry)
	}
	if err != nil {
		return err
	}
	if err := r.find(ctx, o.partition, in, now); err != nil {
		return err
	}
	if r.view.Found > int64(o.most) {
		return fmt.Errorf("the range has %d messages, more than %d: choose fewer, or say --max %d", r.view.Found, o.most, r.view.Found)
	}
	if o.name != "" {
		if err := r.look(ctx); err != nil {
			return err
		}
	}
	if o.dryRun {
		return nil
	}
	if r.hops, err = openHops(ctx, r.engine, o.hops, int(r.view.Found)); err != nil {
		return err
	}
	defer a.closeHops(ctx, r.hops)
	if isTerminal(a.stderr) {
		last := time.Now()
		r.told = func() {
			if time.Since(last) >= replayTells {
				last = time.Now()
				fmt.Fprintf(a.stderr, "%d of %d messages\n", r.view.Copied, r.view.Found)
			}
		}
	}
	if err := r.run(ctx); err != nil {
		return fmt.Errorf("%s has come to %d of %d messages: say the same again with --name %s, and it copies the rest: %w", r.name, r.view.Copied+r.view.Already, r.view.Found, r.name, err)
	}
	return nil
}

func (a *app) writeReplay(w io.Writer, v *replayView) error {
	g := a.newGrid("TOPIC/PARTITION", "OFFSETS", "MESSAGES", "COPIED", "COPIED BEFORE", "LEFT OUT")
	some := func(n int64) string {
		if n == 0 {
			return ""
		}
		return fmt.Sprint(n)
	}
	for _, p := range v.Partitions {
		g.add(fmt.Sprintf("%s/%d", v.Topic, p.Partition), fmt.Sprintf("%d to %d", p.From, p.To), fmt.Sprint(p.Found), some(p.Copied), some(p.Already), some(p.LeftOut))
	}
	if err := g.write(w); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteByte('\n')
	if v.DryRun {
		fmt.Fprintf(&b, "%s to hand out; nothing is done yet\n", plural(int(v.Found), "message"))
	} else {
		fmt.Fprintf(&b, "%s: %s handed to group %s for lane %s (%s)\n", v.Name, plural(int(v.Copied), "message"), v.Group, v.Lane, v.Reason)
	}
	if v.LeftOut > 0 {
		fmt.Fprintf(&b, "left out is what strict lanes have sent: --color hands out that of one of them\n")
	}
	if v.Paused {
		fmt.Fprintf(&b, "the group is paused: they wait until `laneway group resume %s`\n", v.Group)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
