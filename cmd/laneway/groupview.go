package main

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// groupView is what `group show` prints. What a consumer has in its hands just now is known
// to its process alone, and is a part of what lags.
type groupView struct {
	laneclient.Group
	State   string              `json:"state"` // consuming, paused, resetting or idle
	Members []laneclient.Member `json:"members"`
	Cursors []cursorView        `json:"cursors"`
	Lag     *int64              `json:"lag,omitempty"` // of all cursors; left out: the engine was not asked, or not reached
	foreign                     // those that are in the group
}

// cursorView is one cursor: of a partition's plain messages and what is not split off, or of
// one color.
type cursorView struct {
	Topic     string    `json:"topic"`
	Partition int       `json:"partition"`
	Color     string    `json:"color"`            // empty: main
	Lane      string    `json:"lane"`             // for whose members it is run; empty: the baseline
	Member    string    `json:"member,omitempty"` // of the session that runs it
	Session   string    `json:"session,omitempty"`
	Since     time.Time `json:"since,omitzero"` // when that member came
	Reason    string    `json:"reason"`         // why its messages go there
	Moving    string    `json:"moving,omitempty"`
	Position  int64     `json:"position"`          // all below is settled, but for what is left
	Left      int       `json:"left"`              // messages below it that are not settled
	Lag       *int64    `json:"lag,omitempty"`     // messages that are there and not settled
	Unknown   string    `json:"unknown,omitempty"` // why the record cannot be read
}

// groupFacts is what the registry has of groups, read once for all of them.
type groupFacts struct {
	api     *api
	lanes   []laneclient.Lane
	members []laneclient.Member
	live    map[string]bool         // sessions
	foreign map[string]foundForeign // by engine/topic
	faults  []error                 // of what is left out
}

func readGroupFacts(ctx context.Context, c *api) (*groupFacts, error) {
	f := &groupFacts{api: c, live: map[string]bool{}, foreign: map[string]foundForeign{}}
	var err error
	if f.lanes, err = list[laneclient.Lane](ctx, c, laneclient.ListOptions{}); err != nil {
		return nil, err
	}
	if f.members, err = list[laneclient.Member](ctx, c, laneclient.ListOptions{}); err != nil {
		return nil, err
	}
	sessions, err := list[laneclient.Session](ctx, c, laneclient.ListOptions{})
	for _, s := range sessions {
		f.live[s.Name] = true
	}
	return f, err
}

// view is the registry as consumers of a group see it.
func (f *groupFacts) view(group string) *consume.View {
	v := &consume.View{Lanes: map[lane.Name]consume.Lane{}, Sessions: f.live}
	for _, l := range f.lanes {
		v.Lanes[lane.Name(l.Name)] = laneclient.LaneOf(&l)
	}
	for _, m := range f.of(group) {
		v.Members = append(v.Members, laneclient.MemberOf(&m))
	}
	return v
}

// of are the members of a group, by lane and name.
func (f *groupFacts) of(group string) []laneclient.Member {
	out := []laneclient.Member{}
	for _, m := range f.members {
		if m.Group == group {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b laneclient.Member) int {
		return cmp.Or(strings.Compare(a.Lane, b.Lane), strings.Compare(a.Name, b.Name))
	})
	return out
}

// groupView reads all that is known of a group. Without an engine nothing is counted.
func (f *groupFacts) groupView(ctx context.Context, g laneclient.Group, e engine) (*groupView, error) {
	v := &groupView{Group: g, Members: f.of(g.Name), Cursors: []cursorView{}}
	cursors, err := readCursors(ctx, f.api, g.Name)
	if err != nil {
		return nil, err
	}
	registry := f.view(g.Name)
	resetting := false
	for _, c := range cursors {
		rows, done, err := f.cursorRows(ctx, v, &c, registry, e)
		if err != nil {
			return nil, err
		}
		v.Cursors = append(v.Cursors, rows...)
		if g.Reset != nil && !done {
			_, asked := g.Reset.Offsets[partitionOf(&c).String()]
			resetting = resetting || asked
		}
	}
	if e != nil {
		v.foreign = f.groupForeign(ctx, &g, e)
		v.Lag = new(int64)
		for _, c := range v.Cursors {
			if c.Lag != nil {
				*v.Lag += *c.Lag
			}
		}
	}
	switch {
	case g.Paused:
		v.State = "paused"
	case resetting:
		v.State = "resetting"
	case !slices.ContainsFunc(v.Members, func(m laneclient.Member) bool { return m.Session != "" }):
		v.State = "idle"
	default:
		v.State = "consuming"
	}
	return v, nil
}

// readCursors lists the records of a group, with notes of each: those of one moment each.
func readCursors(ctx context.Context, c *api, group string) ([]laneclient.Cursor, error) {
	listed, err := list[laneclient.Cursor](ctx, c, laneclient.ListOptions{Group: group})
	if err != nil {
		return nil, err
	}
	var out []laneclient.Cursor
	for _, named := range listed {
		one, err := laneclient.Get[laneclient.Cursor](ctx, c, laneclient.FullName(&named))
		if laneclient.IsNotFound(err) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		out = append(out, *one)
	}
	sortCursors(out)
	return out, nil
}

// sortCursors orders the cursors of a group as people count partitions.
func sortCursors(list []laneclient.Cursor) {
	slices.SortFunc(list, func(a, b laneclient.Cursor) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
}

// readRecord takes apart what a cursor object has.
func readRecord(c *laneclient.Cursor) (r consume.Record, notes map[lane.Name]consume.Note, err error) {
	notes = map[lane.Name]consume.Note{}
	if len(c.Record) == 0 || string(c.Record) == "null" {
		return r, notes, nil
	}
	if err := json.Unmarshal(c.Record, &r); err != nil {
		return r, nil, err
	}
	for _, n := range c.Notes {
		if len(n.Note) == 0 || string(n.Note) == "null" {
			continue
		}
		var note consume.Note
		if err := json.Unmarshal(n.Note, &note); err != nil {
			return r, nil, err
		}
		notes[lane.Name(n.Cursor)] = note
	}
	return r, notes, nil
}

func partitionOf(c *laneclient.Cursor) consume.Partition {
	return consume.Partition{Topic: c.Topic, Index: int32(c.Partition)}
}

// ownerOf says to whom a color's messages of a topic of a group, or of the retry topic of one,
// should go.
func ownerOf(v *consume.View, g *laneclient.Group, topic string, color lane.Name) consume.Owner {
	of := originOf(g, topic)
	return v.Owner(consume.Topic{Name: of, Dead: consume.DeadTopic(of, g.Name)}, color)
}

// cursorRows are the cursors of one partition, main first. done: the group's reset is.
func (f *groupFacts) cursorRows(ctx context.Context, g *groupView, c *laneclient.Cursor, v *consume.View, e engine) (rows []cursorView, done bool, err error) {
	record, notes, err := readRecord(c)
	if err != nil { // of a later version
		return []cursorView{{Topic: c.Topic, Partition: c.Partition, Unknown: sentence(err)}}, false, nil
	}
	colors := make([]lane.Name, 0, 1+len(record.Colors))
	for color := range record.Colors {
		colors = append(colors, color)
	}
	slices.Sort(colors)
	colors = slices.Insert(colors, 0, consume.Main)
	for _, color := range colors {
		holder, _ := record.Holder(color)
		owner := ownerOf(v, &g.Group, c.Topic, color)
		row := cursorView{
			Topic: c.Topic, Partition: c.Partition, Color: string(color), Lane: string(holder.Lane), Session: holder.Session,
			Reason: string(owner.Reason), Position: notes[color].Pos, Left: len(notes[color].Left),
		}
		f.tellHolder(&row, g.Members, owner)
		rows = append(rows, row)
	}
	if e != nil {
		if err := countLag(ctx, e, c, &record, notes, rows); err != nil {
			return nil, false, err
		}
	}
	return rows, g.Reset != nil && record.Reset == g.Reset.ID, nil
}

// tellHolder says who of the group's members runs a cursor, and whether it is about to be
// somebody else.
func (f *groupFacts) tellHolder(row *cursorView, members []laneclient.Member, owner consume.Owner) {
	for _, m := range members {
		if m.Session != "" && m.Session == row.Session && m.Lane == row.Lane {
			row.Member, row.Since = m.Name, m.Since
		}
	}
	to := laneOrBaseline(string(owner.Lane))
	switch {
	case row.Session == "" && row.Color == "" && !slices.ContainsFunc(members, func(m laneclient.Member) bool { return m.Lane == "" }):
		row.Moving = "nobody runs it: the baseline has no consumer"
	case row.Session == "":
		row.Moving = "nobody runs it yet: it is for " + to
	case !f.live[row.Session]:
		row.Moving = "its process is gone: it goes to " + to
	case row.Color != "" && row.Lane != string(owner.Lane):
		row.Moving = "on its way to " + to
	}
}

// countLag says how many messages each cursor has before it. Main has what no other has.
func countLag(ctx context.Context, e engine, c *laneclient.Cursor, record *consume.Record, notes map[lane.Name]consume.Note, rows []cursorView) error {
	p := partitionOf(c)
	var others int64
	for i := range rows {
		color := lane.Name(rows[i].Color)
		if color == consume.Main {
			continue
		}
		entry := record.Colors[color]
		n, err := e.Count(ctx, p, max(notes[color].Pos, entry.From), consume.Filter{Color: color})
		if err != nil {
			return err
		}
		n += int64(len(notes[color].Left))
		rows[i].Lag = &n
		beyond, err := e.Count(ctx, p, max(notes[consume.Main].Pos, entry.From), consume.Filter{Color: color})
		if err != nil {
			return err
		}
		others += beyond
	}
	main, err := e.Count(ctx, p, notes[consume.Main].Pos, consume.Filter{All: true})
	if err != nil {
		return err
	}
	main += int64(len(notes[consume.Main].Left)) - others
	rows[0].Lag = &main
	return nil
}

// originOf is the topic whose members count for a topic of a group: itself, or that of a
// retry topic.
func originOf(g *laneclient.Group, topic string) string {
	for _, t := range g.Topics {
		if consume.RetryTopic(t, g.Name) == topic {
			return t
		}
	}
	return topic
}
