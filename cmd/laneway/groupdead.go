package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// deadView is one message that nobody could work on.
type deadView struct {
	ID       string    `json:"id"` // topic/partition@offset
	Color    string    `json:"color"`
	Lane     string    `json:"lane"` // whose member had it last; empty: the baseline
	Origin   string    `json:"origin,omitempty"`
	Replay   string    `json:"replay,omitempty"` // that it is a copy of
	Attempts int       `json:"attempts"`
	Error    string    `json:"error,omitempty"`
	Key      string    `json:"key,omitempty"`
	Time     time.Time `json:"time,omitzero"`
	Bytes    int64     `json:"bytes"`

	message *consume.Message
	topic   string // that the group reads
}

func (a *app) groupDead() *cobra.Command {
	return groupCommand("dead", "List, retry and drop messages that a group could not work on",
		"  laneway group dead list billing\n  laneway group dead retry billing --all",
		a.deadList(), a.deadRetry(), a.deadDrop())
}

// deadLetters are the dead letters of a group, with the engine that has them.
type deadLetters struct {
	group  *laneclient.Group
	engine engine
	ends   map[consume.Partition]int64 // see peek
	hops   *consume.Hops               // of what is done with them; nil: none are left
}

func (a *app) openDead(ctx context.Context, name string) (*deadLetters, error) {
	g, e, err := a.openGroup(ctx, name)
	if err != nil {
		return nil, err
	}
	return &deadLetters{group: g, engine: e, ends: map[consume.Partition]int64{}}, nil
}

func (d *deadLetters) close() { _ = d.engine.Close() }

// list reads up to limit dead letters, those of the first topic first.
func (d *deadLetters) list(ctx context.Context, limit int) ([]deadView, error) {
	out := []deadView{}
	for _, topic := range d.group.Topics {
		err := eachMessage(ctx, d.engine, peek{topic: consume.DeadTopic(topic, d.group.Name), partition: -1, filter: consume.Filter{All: true}, limit: limit - len(out), ends: d.ends},
			func(m *consume.Message) { out = append(out, viewDead(m, topic)) })
		if err != nil && !errors.Is(err, consume.ErrNoTopic) {
			return nil, err
		}
		if len(out) >= limit {
			break
		}
	}
	return out, nil
}

func viewDead(m *consume.Message, topic string) deadView {
	v := deadView{
		ID: idOf(m), Color: string(m.Color), Attempts: m.Attempt, Error: m.Error, Key: printable(m.Key), Time: m.Time, Bytes: m.Bytes(),
		Replay: m.Replayed(), message: m, topic: topic,
	}
	if m.Origin != nil {
		v.Lane = string(m.Origin.Lane)
		v.Origin = placeID(m.Origin.Partition, m.Origin.Offset)
	}
	return v
}

// get reads those of some ids.
func (d *deadLetters) get(ctx context.Context, ids []string) ([]deadView, error) {
	var out []deadView
	for _, id := range ids {
		v, err := d.one(ctx, id)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (d *deadLetters) one(ctx context.Context, id string) (v deadView, err error) {
	p, offset, err := parseID(id)
	if err != nil {
		return v, usageError(err)
	}
	for _, topic := range d.group.Topics {
		if consume.DeadTopic(topic, d.group.Name) != p.Topic {
			continue
		}
		m, err := readMessage(ctx, d.engine, p, offset)
		if err != nil {
			return v, err
		}
		if m != nil {
			return viewDead(m, topic), nil
		}
	}
	return v, fmt.Errorf("group %s has no dead message %s: `laneway group dead list %s` shows what there is", d.group.Name, id, d.group.Name)
}

func idOf(m *consume.Message) string { return placeID(m.Partition, m.Offset) }

// placeID names a message by where it lies: what parseID reads.
func placeID(p consume.Partition, offset int64) string { return fmt.Sprintf("%s@%d", p, offset) }

// parseID reads topic/partition@offset.
func parseID(id string) (p consume.Partition, offset int64, err error) {
	place, text, found := strings.Cut(id, "@")
	slash := strings.LastIndexByte(place, '/')
	if !found || slash <= 0 {
		return p, 0, fmt.Errorf("%q is no message: want TOPIC/PARTITION@OFFSET, as lists show it", id)
	}
	n, err := strconv.ParseUint(place[slash+1:], 10, 31)
	if err == nil {
		offset, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil || offset < 0 {
		return p, 0, fmt.Errorf("%q is no message: want TOPIC/PARTITION@OFFSET, as lists show it", id)
	}
	return consume.Partition{Topic: place[:slash], Index: int32(n)}, offset, nil
}

func (a *app) deadList() *cobra.Command {
	limit := defaultMessages
	c := &cobra.Command{
		Use: "list NAME", Short: "List messages that a group could not work on",
		Example: "  laneway group dead list billing\n  laneway group dead list billing --limit 1000 -o json",
		Args:    exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindGroups),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimit(limit); err != nil {
				return err
			}
			d, err := a.openDead(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			defer d.close()
			dead, err := d.list(cmd.Context(), limit)
			if err != nil {
				return err
			}
			return a.print(dead, func(w io.Writer) error {
				now := time.Now()
				g := a.newGrid("MESSAGE", "COLOR", "HAD BY", "FROM", "ATTEMPTS", "SENT", "WHY")
				for _, v := range dead {
					from := v.Origin
					if v.Replay != "" {
						from += ", " + v.Replay
					}
					g.add(v.ID, colorText(lane.Name(v.Color)), laneOrBaseline(v.Lane), printable([]byte(from)), fmt.Sprint(v.Attempts), ago(v.Time, now), shorten(printable([]byte(v.Error)), shownValue))
				}
				return g.write(w)
			})
		},
	}
	c.Flags().IntVar(&limit, "limit", limit, "`NUMBER` of messages at most")
	a.addOutput(c)
	return c
}

// deadAction is what retry and drop share: which messages, and one after the other.
func (a *app) deadAction(use, short, long, done string, act func(context.Context, *deadLetters, deadView) error) *cobra.Command {
	var all bool
	var hops string
	c := &cobra.Command{
		Use: use + " NAME MESSAGE…", Short: short, Long: long,
		Example: "  laneway group dead " + use + " billing orders.billing.dead/0@17\n  laneway group dead " + use + " billing --all",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageError(fmt.Errorf("%q wants the name of a group", shortPath(cmd)))
			case len(args) == 1 && !all:
				return usageError(fmt.Errorf("%q wants at least one MESSAGE, as `laneway group dead list %s` shows them, or --all", shortPath(cmd), args[0]))
			case len(args) > 1 && all:
				return usageError(errors.New("name messages or say --all, not both"))
			}
			return nil
		},
		ValidArgsFunction: a.complete(laneclient.KindGroups),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			d, err := a.openDead(ctx, args[0])
			if err != nil {
				return err
			}
			defer d.close()
			if d.hops, err = openHops(ctx, d.engine, hops, maxMessages); err != nil {
				return err
			}
			defer a.closeHops(ctx, d.hops)
			n := 0
			for { // what dies again meanwhile is left for the next time
				dead, err := d.get(ctx, args[1:])
				if all {
					dead, err = d.list(ctx, defaultMessages)
				}
				if err != nil {
					return err
				}
				for _, v := range dead {
					if err := act(ctx, d, v); err != nil {
						return fmt.Errorf("message %s, after %d were %s: %w", v.ID, n, done, err)
					}
					n++
				}
				if !all || len(dead) == 0 {
					break
				}
			}
			_, err = fmt.Fprintf(a.stdout, "%s %s\n", plural(n, "message"), done)
			return err
		},
	}
	c.Flags().BoolVar(&all, "all", false, "all that the group has")
	addHops(c, &hops)
	return c
}

func (a *app) deadRetry() *cobra.Command {
	return a.deadAction("retry", "Have a group try dead messages once more",
		`Puts dead messages into the group's retry topic, from which they go to whoever their color
belongs to now, with all their attempts before them. One that is interrupted here may be
there twice, and is never lost.`, "retried",
		func(ctx context.Context, d *deadLetters, v deadView) error {
			began, m := time.Now(), again(v.message, v.topic, d.group.Name)
			if err := d.engine.Append(ctx, m); err != nil {
				return err
			}
			if err := d.engine.Remove(ctx, v.message.Partition, v.message.Offset); err != nil {
				return err
			}
			d.record(&v, began, consume.HopRetried, m.Partition.Topic)
			return nil
		})
}

func (a *app) deadDrop() *cobra.Command {
	return a.deadAction("drop", "Delete dead messages for good", "", "dropped",
		func(ctx context.Context, d *deadLetters, v deadView) error {
			began := time.Now()
			if err := d.engine.Remove(ctx, v.message.Partition, v.message.Offset); err != nil {
				return err
			}
			d.record(&v, began, consume.HopDropped, "")
			return nil
		})
}

// record leaves a hop of what was done with one of them.
func (d *deadLetters) record(v *deadView, at time.Time, kind consume.HopKind, to string) {
	d.hops.Record(v.message, consume.Hop{
		Time: at, Kind: kind, Group: d.group.Name, Attempt: v.Attempts, Reason: consume.ReasonByHand, Place: v.ID, To: to,
	})
}

// colorText is a color for people.
func colorText(c lane.Name) string {
	if c == lane.Baseline {
		return "plain"
	}
	return string(c)
}
