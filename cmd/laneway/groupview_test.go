package main

import (
	"context"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestTellHolder(t *testing.T) {
	t.Parallel()
	f := &groupFacts{live: map[string]bool{"s1": true, "s2": true}}
	base, green := laneclient.Member{Meta: laneclient.Meta{Name: "b-1"}, Session: "s1"}, laneclient.Member{Meta: laneclient.Meta{Name: "g-1"}, Lane: "green", Session: "s2"}
	left := laneclient.Member{Meta: laneclient.Meta{Name: "b-0"}} // it counts for a while
	for name, tt := range map[string]struct {
		row            cursorView
		members        []laneclient.Member
		owner          lane.Name
		member, moving string
	}{
		"main, run":                   {cursorView{Session: "s1"}, []laneclient.Member{base, green}, "", "b-1", ""},
		"a color, run by its lane":    {cursorView{Color: "green", Lane: "green", Session: "s2"}, []laneclient.Member{base, green}, "green", "g-1", ""},
		"main without a baseline":     {cursorView{}, []laneclient.Member{green}, "", "", "nobody runs it: the baseline has no consumer"},
		"main, of one that has left":  {cursorView{}, []laneclient.Member{left}, "", "", "nobody runs it yet: it is for baseline"},
		"a color that nobody has yet": {cursorView{Color: "green"}, []laneclient.Member{base, green}, "green", "", "nobody runs it yet: it is for lane green"},
		"a color whose lane has gone": {cursorView{Color: "green", Lane: "green", Session: "s3"}, []laneclient.Member{base}, "", "", "its process is gone: it goes to baseline"},
		"a color whose lane has come": {cursorView{Color: "green", Session: "s1"}, []laneclient.Member{base, green}, "green", "b-1", "on its way to lane green"},
		"main is never on its way":    {cursorView{Session: "s1"}, []laneclient.Member{base}, "green", "b-1", ""},
	} {
		row := tt.row
		f.tellHolder(&row, tt.members, consume.Owner{Lane: tt.owner})
		if row.Member != tt.member || row.Moving != tt.moving {
			t.Errorf("%s: got member %q and %q, want %q and %q", name, row.Member, row.Moving, tt.member, tt.moving)
		}
	}
}

// counted is an engine that has a log of one partition, from offset 0 on.
type counted struct {
	engine
	log []lane.Name // colors
}

func (e counted) Count(_ context.Context, _ consume.Partition, from int64, f consume.Filter) (n int64, _ error) {
	for _, color := range e.log[from:] {
		if f.All || f.Color == color {
			n++
		}
	}
	return n, nil
}

// TestLag: what a color that is apart has to come is not main's, and what a note left is
// somebody's.
func TestLag(t *testing.T) {
	t.Parallel()
	c := laneclient.Cursor{Topic: "orders"}
	e := counted{log: []lane.Name{"", "green", "green", "", "blue", "green", ""}}
	record := consume.Record{Colors: map[lane.Name]consume.Entry{"green": {From: 2}}}
	for name, tt := range map[string]struct {
		notes       map[lane.Name]consume.Note
		main, green int64
	}{
		"nothing was read":    {nil, 5, 2},
		"main is ahead":       {map[lane.Name]consume.Note{consume.Main: {Pos: 6}}, 1, 2},
		"the color is ahead":  {map[lane.Name]consume.Note{consume.Main: {Pos: 3}, "green": {Pos: 6}}, 3, 0},
		"some are left":       {map[lane.Name]consume.Note{consume.Main: {Pos: 7, Left: []int64{1, 4}}, "green": {Pos: 7, Left: []int64{2}}}, 2, 1},
		"everything was read": {map[lane.Name]consume.Note{consume.Main: {Pos: 7}, "green": {Pos: 7}}, 0, 0},
	} {
		rows := []cursorView{{}, {Color: "green"}}
		if err := countLag(t.Context(), e, &c, &record, tt.notes, rows); err != nil {
			t.Fatal(err)
		}
		if *rows[0].Lag != tt.main || *rows[1].Lag != tt.green {
			t.Errorf("%s: %d wait for main and %d for green, want %d and %d", name, *rows[0].Lag, *rows[1].Lag, tt.main, tt.green)
		}
	}
}
