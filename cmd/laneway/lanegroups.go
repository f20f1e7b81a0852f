package main

import (
	"context"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// laneGroup is what a group of consumers has of a lane.
type laneGroup struct {
	Group   string       `json:"group"`
	Members []string     `json:"members"` // in the lane, that have not left
	Cursors []cursorView `json:"cursors"` // of its color, or run by its consumers
	Lag     *int64       `json:"lag,omitempty"`
}

// groupsOf are the groups that have to do with a lane, each with its engine asked where that
// can be reached.
func (a *app) groupsOf(ctx context.Context, name string) ([]laneGroup, error) {
	engines := engineCache{app: a, api: a.api()}
	defer engines.close()
	return laneGroups(ctx, engines.api, name, engines.look)
}

// laneGroups finds the groups that have to do with a lane by what the registry has. An engine
// is looked for, and asked, only where one of them has something to count: an installation has
// many groups of which a lane knows nothing.
func laneGroups(ctx context.Context, c *api, name string, look func(context.Context, string) engine) ([]laneGroup, error) {
	groups, err := list[laneclient.Group](ctx, c, laneclient.ListOptions{})
	if err != nil {
		return nil, err
	}
	facts, err := readGroupFacts(ctx, c)
	if err != nil {
		return nil, err
	}
	records, err := list[laneclient.Cursor](ctx, c, laneclient.ListOptions{})
	if err != nil {
		return nil, err
	}
	sortCursors(records)
	apart := map[string][]string{} // by group: the partitions in which the lane has a cursor
	for i := range records {
		if hasOfLane(&records[i], name) {
			apart[records[i].Group] = append(apart[records[i].Group], laneclient.FullName(&records[i]))
		}
	}
	out := []laneGroup{}
	for _, g := range groups {
		one := laneGroup{Group: g.Name, Members: []string{}, Cursors: []cursorView{}}
		for _, m := range facts.of(g.Name) {
			if m.Lane == name && m.Session != "" {
				one.Members = append(one.Members, m.Name)
			}
		}
		if len(apart[g.Name]) > 0 {
			if err := facts.countOfLane(ctx, &one, g, name, apart[g.Name], look(ctx, g.Engine)); err != nil {
				return nil, err
			}
		}
		if len(one.Members)+len(one.Cursors) > 0 {
			out = append(out, one)
		}
	}
	return out, nil
}

// hasOfLane reports whether a record has the lane's color apart, or a cursor that the lane's
// consumers run. One that cannot be read has neither that is known.
func hasOfLane(c *laneclient.Cursor, name string) bool {
	r, _, err := readRecord(c)
	if err != nil {
		return false
	}
	if string(r.Main.Lane) == name && !r.Main.None() {
		return true
	}
	for color, e := range r.Colors {
		if string(color) == name || string(e.Holder.Lane) == name {
			return true
		}
	}
	return false
}

// countOfLane reads the cursors that a lane has in partitions of a group. Without an engine
// nothing is counted.
func (f *groupFacts) countOfLane(ctx context.Context, to *laneGroup, g laneclient.Group, name string, cursors []string, e engine) error {
	v, registry := &groupView{Group: g, Members: f.of(g.Name)}, f.view(g.Name)
	for _, cursor := range cursors {
		c, err := laneclient.Get[laneclient.Cursor](ctx, f.api, cursor)
		if laneclient.IsNotFound(err) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		if !hasOfLane(c, name) {
			continue // merged meanwhile
		}
		rows, _, err := f.cursorRows(ctx, v, c, registry, e)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if row.Unknown != "" || row.Color != name && row.Lane != name {
				continue
			}
			to.Cursors = append(to.Cursors, row)
			if row.Lag == nil {
				continue
			}
			if to.Lag == nil {
				to.Lag = new(int64)
			}
			*to.Lag += *row.Lag
		}
	}
	return nil
}
