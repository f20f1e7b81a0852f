package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newTopicCommand(a *app) *cobra.Command {
	return groupCommand("topic", "Create, list, show and delete topics of message engines",
		"  laneway topic create orders --partitions 4 --retention 7d\n  laneway topic list",
		a.topicCreate(), a.topicList(), a.topicShow(), a.topicGrow(), a.topicDelete())
}

func (a *app) topicCreate() *cobra.Command {
	var in laneclient.Topic
	var retention time.Duration
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a topic",
		Long: `Creates a topic on a message engine, with so many partitions: each is an ordered log
of its own, and what one consumer can have to itself. Their number can grow, and
never shrinks. What is older than the retention may be deleted by the engine.`,
		Example: `  laneway topic create orders
  laneway topic create orders --partitions 8 --retention 72h
  laneway topic create audit --engine archive`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name, in.Retention = args[0], laneclient.Duration(retention)
			if err := checkPartitions(in.Partitions); err != nil {
				return err
			}
			if retention < 0 {
				return usageError(fmt.Errorf("--retention %s: want a positive time such as 72h", retention))
			}
			t, err := a.createTopic(cmd.Context(), in)
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "topic %s created on engine %s, %s, %s\n", t.Name, t.Engine, plural(t.Partitions, "partition"), keeps(t.Retention))
				return err
			})
		},
	}
	c.Flags().StringVar(&in.Engine, "engine", "", "`NAME` of the engine (default the installation's)")
	c.Flags().IntVar(&in.Partitions, "partitions", 1, fmt.Sprintf("`NUMBER` of ordered logs, up to %d", laneclient.MaxPartitions))
	c.Flags().Var((*ttlValue)(&retention), "retention", "`TIME` that messages are kept at least, as 12h or 7d (default for ever)")
	_ = c.RegisterFlagCompletionFunc("engine", a.complete(laneclient.KindEngines))
	a.addOutput(c)
	return c
}

func checkPartitions(n int) error {
	if n < 1 || n > laneclient.MaxPartitions {
		return usageError(fmt.Errorf("--partitions %d: want 1 to %d", n, laneclient.MaxPartitions))
	}
	return nil
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func keeps(d laneclient.Duration) string {
	if d == 0 {
		return "keeps messages for ever"
	}
	return "keeps messages for " + span(time.Duration(d))
}

// createTopic creates a topic on its engine, then in the registry: whoever finds it there
// finds it on the engine too.
func (a *app) createTopic(ctx context.Context, in laneclient.Topic) (*laneclient.Topic, error) {
	api := a.api()
	if now, err := laneclient.Get[laneclient.Topic](ctx, api, in.Name); err == nil {
		return nil, fmt.Errorf("there is a topic %s already, on engine %s: `laneway topic show %s` tells of it, `laneway topic grow` gives it more partitions", now.Name, now.Engine, now.Name)
	} else if !laneclient.IsNotFound(err) {
		return nil, err
	}
	e, name, err := a.openNamed(ctx, api, in.Engine)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	in.Engine = name
	spec, err := ensureTopic(ctx, e, &in)
	if err != nil {
		return nil, err
	}
	in.Partitions, in.Retention = int(spec.Partitions), laneclient.Duration(spec.Retention)
	return laneclient.Put(ctx, api, &in, laneclient.IfNoneMatch())
}

// ensureTopic creates a topic on its engine, and gives it as it is there: one that a consumer
// made before stays as it was.
func ensureTopic(ctx context.Context, e engine, t *laneclient.Topic) (consume.TopicSpec, error) {
	spec := consume.TopicSpec{Name: t.Name, Partitions: int32(t.Partitions), Retention: time.Duration(t.Retention)}
	err := e.Ensure(ctx, spec)
	if err == nil {
		spec, err = e.Describe(ctx, t.Name)
	}
	if err != nil {
		return spec, fmt.Errorf("create topic %s on engine %s: %w", t.Name, t.Engine, err)
	}
	return spec, nil
}

func (a *app) topicList() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List topics",
		Long: `Lists the topics of the registry, and those that engines have beside them, such as
the retry and dead-letter topics of groups.`,
		Example: "  laneway topic list\n  laneway topic list -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			topics, faults, err := a.topics(cmd.Context())
			if err != nil {
				return err
			}
			for _, fault := range faults {
				fmt.Fprintf(a.stderr, "laneway: %s\n", sentence(fault))
			}
			groups, err := list[laneclient.Group](cmd.Context(), a.api(), laneclient.ListOptions{})
			if err != nil {
				return err
			}
			return a.print(topics, func(w io.Writer) error {
				g := a.newGrid("NAME", "ENGINE", "PARTITIONS", "KEPT FOR", "GROUPS")
				for _, t := range topics {
					kept := "ever"
					if t.Retention > 0 {
						kept = span(time.Duration(t.Retention))
					}
					g.add(t.Name, t.Engine, fmt.Sprint(t.Partitions), kept, strings.Join(readers(groups, t), ", "))
				}
				return g.write(w)
			})
		},
	}
	a.addOutput(c)
	return c
}

// readers are the groups that read a topic.
func readers(groups []laneclient.Group, t laneclient.Topic) []string {
	var out []string
	for _, g := range groups {
		if g.Engine == t.Engine && slices.Contains(g.Topics, t.Name) {
			out = append(out, g.Name)
		}
	}
	return out
}

// topics are those of the registry and of all engines that can be reached, by name. faults
// are why others cannot.
func (a *app) topics(ctx context.Context) (topics []laneclient.Topic, faults []error, err error) {
	api := a.api()
	if topics, err = list[laneclient.Topic](ctx, api, laneclient.ListOptions{}); err != nil {
		return nil, nil, err
	}
	engines, err := list[laneclient.Engine](ctx, api, laneclient.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	for _, found := range engines {
		specs, err := listTopics(ctx, found)
		if err != nil {
			faults = append(faults, fmt.Errorf("the topics of engine %s alone are not listed: %w", found.Name, err))
			continue
		}
		for _, s := range specs {
			if !slices.ContainsFunc(topics, func(t laneclient.Topic) bool { return t.Engine == found.Name && t.Name == s.Name }) {
				topics = append(topics, topicOf(found.Name, s))
			}
		}
	}
	slices.SortStableFunc(topics, func(x, y laneclient.Topic) int { return strings.Compare(x.Name+" "+x.Engine, y.Name+" "+y.Engine) })
	return topics, faults, nil
}

func topicOf(engine string, s consume.TopicSpec) laneclient.Topic {
	return laneclient.Topic{Meta: laneclient.Meta{Name: s.Name}, Engine: engine, Partitions: int(s.Partitions), Retention: laneclient.Duration(s.Retention)}
}

// listTopics asks an engine what it has.
func listTopics(ctx context.Context, found laneclient.Engine) ([]consume.TopicSpec, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	e, err := openFound(ctx, &found)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	return e.List(ctx)
}

// topicView is what `topic show` prints.
type topicView struct {
	laneclient.Topic
	Groups []string        `json:"groups"`
	Log    []partitionView `json:"log"` // by partition
	foreign
}

// partitionView is one partition's log.
type partitionView struct {
	Partition int   `json:"partition"`
	First     int64 `json:"first"` // offset of the first message that is kept
	End       int64 `json:"end"`   // offset of the next one to come
	Messages  int64 `json:"messages"`
	// Room is where reading it costs least; left out: in none, or the engine cannot tell.
	Room string `json:"room,omitempty"`
}

func (a *app) topicShow() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show a topic with its partitions and who reads it",
		Long: `Shows a topic's partitions, the groups that read it, and foreign consumers: those that
read from the engine itself and not through Laneway, where the engine can tell.`,
		Example: "  laneway topic show orders\n  laneway topic show orders -o json",
		Args:    exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindTopics),
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.topicView(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) error { return a.writeTopic(w, v) })
		},
	}
	a.addOutput(c)
	return c
}

// openEngineOf finds a topic in the registry and opens its engine. One that is not there is
// nil, and would be on the default engine. called is the engine's name.
func (a *app) openEngineOf(ctx context.Context, api *api, topic string) (t *laneclient.Topic, e engine, called string, err error) {
	t, err = laneclient.Get[laneclient.Topic](ctx, api, topic)
	if err != nil && !laneclient.IsNotFound(err) {
		return nil, nil, "", err
	}
	on := ""
	if t != nil {
		on = t.Engine
	}
	e, called, err = a.openNamed(ctx, api, on)
	return t, e, called, err
}

// openTopic finds a topic and opens its engine. One that is not in the registry is looked for
// on the default engine.
func (a *app) openTopic(ctx context.Context, api *api, name string) (*laneclient.Topic, engine, error) {
	t, e, called, err := a.openEngineOf(ctx, api, name)
	if err != nil {
		return nil, nil, err
	}
	spec, err := e.Describe(ctx, name)
	switch {
	case err == nil:
	case errors.Is(err, consume.ErrNoTopic) && t == nil:
		err = noTopic(name)
	case errors.Is(err, consume.ErrNoTopic):
		err = fmt.Errorf("topic %s is in the registry, but engine %s does not have it: was its data lost? Delete the topic and create it again", name, called)
	}
	if err != nil {
		return nil, nil, errors.Join(err, e.Close())
	}
	now := topicOf(called, spec)
	if t != nil {
		now.Meta, now.Durability = t.Meta, t.Durability
	}
	return &now, e, nil
}

func noTopic(name string) error {
	return fmt.Errorf("there is no topic %s: `laneway topic list` shows what there is", name)
}

func (a *app) topicView(ctx context.Context, name string) (*topicView, error) {
	api := a.api()
	t, e, err := a.openTopic(ctx, api, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	groups, err := list[laneclient.Group](ctx, api, laneclient.ListOptions{})
	if err != nil {
		return nil, err
	}
	v := &topicView{Topic: *t, Groups: append([]string{}, readers(groups, *t)...), Log: []partitionView{}}
	for i := range int32(t.Partitions) {
		p := consume.Partition{Topic: name, Index: i}
		b, err := e.Bounds(ctx, p)
		if err != nil {
			return nil, err
		}
		n, err := e.Count(ctx, p, b.First, consume.Filter{All: true})
		if err != nil {
			return nil, err
		}
		room, err := consume.FindRoom(ctx, e, p)
		if err != nil && !errors.Is(err, consume.ErrUnsupported) {
			return nil, err
		}
		v.Log = append(v.Log, partitionView{Partition: int(i), First: b.First, End: b.End, Messages: n, Room: room})
	}
	if v.foreign, err = findForeign(ctx, e, name); err != nil {
		a.tellFaults([]error{err})
	}
	v.markOf(v.Groups)
	return v, nil
}

func (a *app) writeTopic(w io.Writer, v *topicView) error {
	g := a.newGrid("TOPIC", v.Name)
	g.add("engine", v.Engine)
	g.add("partitions", fmt.Sprint(v.Partitions))
	g.add("messages", keeps(v.Retention))
	g.add("groups", strings.Join(v.Groups, ", "))
	if err := g.write(w); err != nil {
		return err
	}
	head := []string{"PARTITION", "MESSAGES", "FIRST OFFSET", "NEXT OFFSET"}
	rooms := slices.ContainsFunc(v.Log, func(p partitionView) bool { return p.Room != "" })
	if rooms {
		head = append(head, "ROOM")
	}
	g = a.newGrid(head...)
	for _, p := range v.Log {
		row := []string{fmt.Sprint(p.Partition), fmt.Sprint(p.Messages), fmt.Sprint(p.First), fmt.Sprint(p.End)}
		if rooms {
			row = append(row, p.Room)
		}
		g.add(row...)
	}
	if err := writeBelow(w, g); err != nil {
		return err
	}
	return a.writeForeign(w, &v.foreign)
}

func (a *app) topicGrow() *cobra.Command {
	var partitions int
	c := &cobra.Command{
		Use: "grow NAME --partitions NUMBER", Short: "Give a topic more partitions",
		Long: `Gives a topic more partitions. They are never taken away, and messages of one key
that come later may be in another partition than those before.`,
		Example: "  laneway topic grow orders --partitions 8",
		Args:    exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindTopics),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkPartitions(partitions); err != nil {
				return err
			}
			t, err := a.growTopic(cmd.Context(), args[0], partitions)
			if err != nil {
				return err
			}
			return a.print(t, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "topic %s has %s\n", t.Name, plural(t.Partitions, "partition"))
				return err
			})
		},
	}
	c.Flags().IntVar(&partitions, "partitions", 0, fmt.Sprintf("`NUMBER` that it is to have, up to %d", laneclient.MaxPartitions))
	a.addOutput(c)
	return c
}

func (a *app) growTopic(ctx context.Context, name string, partitions int) (*laneclient.Topic, error) {
	api := a.api()
	t, e, err := a.openTopic(ctx, api, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = e.Close() }()
	if partitions < t.Partitions {
		return nil, fmt.Errorf("topic %s has %s, and they are never taken away: name more than that", name, plural(t.Partitions, "partition"))
	}
	if err := e.Grow(ctx, name, int32(partitions)); err != nil {
		return nil, err
	}
	t.Partitions = partitions
	if t.Revision == 0 { // of the engine alone
		return t, nil
	}
	return laneclient.Put(ctx, api, t, laneclient.IfMatch(t.Revision))
}

func (a *app) topicDelete() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "delete NAME…", Short: "Delete topics with all their messages",
		Example: "  laneway topic delete orders\n  laneway topic delete orders --force   # also where groups read it",
		Args:    someArgs(), ValidArgsFunction: a.complete(laneclient.KindTopics),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range args {
				if err := a.deleteTopic(cmd.Context(), name, force); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(a.stdout, "topic %s deleted\n", name); err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&force, "force", false, "delete it also where groups read it: what they have not read is lost")
	return c
}

func (a *app) deleteTopic(ctx context.Context, name string, force bool) error {
	api := a.api()
	t, e, called, err := a.openEngineOf(ctx, api, name)
	if err != nil {
		return err
	}
	defer func() { _ = e.Close() }()
	groups, err := list[laneclient.Group](ctx, api, laneclient.ListOptions{})
	if err != nil {
		return err
	}
	if by := readers(groups, laneclient.Topic{Meta: laneclient.Meta{Name: name}, Engine: called}); len(by) > 0 && !force {
		return fmt.Errorf("topic %s is read by %s: what is unread would be lost; say --force to delete it all the same", name, strings.Join(by, ", "))
	}
	switch err := e.Delete(ctx, name); {
	case errors.Is(err, consume.ErrNoTopic) && t == nil:
		return noTopic(name)
	case err != nil && !errors.Is(err, consume.ErrNoTopic):
		return fmt.Errorf("delete topic %s on engine %s: %w", name, called, err)
	}
	if t == nil {
		return nil
	}
	err = laneclient.Delete[laneclient.Topic](ctx, api, name)
	if laneclient.IsNotFound(err) {
		return nil
	}
	return err
}
