package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// foreignView is a consumer that reads a topic past Laneway.
type foreignView struct {
	Topic     string    `json:"topic"`
	Partition *int32    `json:"partition,omitempty"` // left out: all, or not known
	Group     string    `json:"group"`               // as the engine has it
	Of        string    `json:"of,omitempty"`        // the group of Laneway's that it is in
	Name      string    `json:"name"`
	Kind      string    `json:"kind,omitempty"`
	Client    string    `json:"client,omitempty"`
	Since     time.Time `json:"since,omitzero"`
	Active    time.Time `json:"active,omitzero"`    // when it last took or settled a message
	Position  *int64    `json:"position,omitempty"` // all below is settled
}

// foreign are the consumers that read a topic past Laneway.
type foreign struct {
	// Foreign is left out where the engine cannot tell, or could not be asked.
	Foreign []foreignView `json:"foreign,omitzero"`
	More    int           `json:"foreign_more,omitzero"` // that are there, too, and not named
}

// foundForeign is what was found of one topic.
type foundForeign struct {
	foreign
	err error
}

// findForeign asks an engine who reads a topic past Laneway. One that cannot tell gives
// nothing.
func findForeign(ctx context.Context, e engine, topic string) (out foreign, err error) {
	found, more, err := consume.FindForeign(ctx, e, topic)
	if errors.Is(err, consume.ErrUnsupported) {
		return foreign{}, nil
	}
	if err != nil {
		return foreign{}, fmt.Errorf("who reads %s past Laneway is not known: %w", topic, err)
	}
	out = foreign{Foreign: []foreignView{}, More: more}
	for _, c := range found {
		v := foreignView{Topic: topic, Group: c.Group, Name: c.Name, Kind: c.Kind, Client: c.Client, Since: c.Since, Active: c.Active}
		if c.Partition.Index >= 0 {
			v.Partition = &c.Partition.Index
		}
		if c.Position >= 0 {
			v.Position = &c.Position
		}
		out.Foreign = append(out.Foreign, v)
	}
	return out, nil
}

// in reports whether the consumer is in a group of Laneway's.
func (v *foreignView) in(group string) bool {
	return (&consume.ForeignConsumer{Group: v.Group}).In(group)
}

// groupForeign are those that are in a group, on its topics and those of its retries. Each
// topic is asked for once, however many groups read it.
func (f *groupFacts) groupForeign(ctx context.Context, g *laneclient.Group, e engine) (all foreign) {
	for _, name := range g.Topics {
		for _, topic := range []string{name, consume.RetryTopic(name, g.Name)} {
			at := g.Engine + "/" + topic
			known, asked := f.foreign[at]
			if !asked {
				known.foreign, known.err = findForeign(ctx, e, topic)
				f.foreign[at] = known
				if known.err != nil && !errors.Is(known.err, consume.ErrNoTopic) {
					f.faults = append(f.faults, known.err)
				}
			}
			if known.Foreign != nil && all.Foreign == nil {
				all.Foreign = []foreignView{}
			}
			for _, v := range known.Foreign {
				if v.in(g.Name) {
					v.Of = g.Name
					all.Foreign = append(all.Foreign, v)
				}
			}
			all.More += known.More
		}
	}
	return all
}

// markOf notes which groups of Laneway's they are in.
func (f *foreign) markOf(groups []string) {
	for i := range f.Foreign {
		for _, g := range groups {
			if f.Foreign[i].in(g) {
				f.Foreign[i].Of = g
			}
		}
	}
}

// writeForeign writes who reads past Laneway, and what can be done about it.
func (a *app) writeForeign(w io.Writer, f *foreign) error {
	if len(f.Foreign) == 0 && f.More == 0 {
		return nil
	}
	now, inGroup := time.Now(), false
	g := a.newGrid("FOREIGN CONSUMER", "OF GROUP", "TOPIC", "PARTITION", "WHAT IT IS", "SINCE", "LAST ACTIVE", "SETTLED BELOW")
	for _, v := range f.Foreign {
		partition, settled := "", ""
		if v.Partition != nil {
			partition = fmt.Sprint(*v.Partition)
		}
		if v.Position != nil {
			settled = fmt.Sprint(*v.Position)
		}
		what := v.Kind
		if v.Client != "" {
			what += ", " + v.Client
		}
		inGroup = inGroup || v.Of != ""
		g.add(foreignText(cmp.Or(v.Name, v.Group)), a.painter().bad(v.Of), v.Topic, partition, foreignText(what), ago(v.Since, now), ago(v.Active, now), settled)
	}
	if f.More > 0 {
		g.add(fmt.Sprintf("and %d more", f.More))
	}
	if err := writeBelow(w, g); err != nil || !inGroup {
		return err
	}
	_, err := io.WriteString(w, `
Those of a group get messages that the group's consumers are handed, too, whatever their color. Let
them consume through Laneway, or under a name that is no group's, or delete them on the engine.
`)
	return err
}

func foreignText(s string) string { return shorten(printable([]byte(s)), shownKey) }

// tellFaults says what could not be found out.
func (a *app) tellFaults(faults []error) {
	for _, fault := range faults {
		fmt.Fprintf(a.stderr, "laneway: %s\n", sentence(fault))
	}
}
