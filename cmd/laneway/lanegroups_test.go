package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// asked is an engine that notes what it is asked to count: 5 messages, whatever it is.
type asked struct {
	engine
	name string
	by   *[]string
}

func (e asked) Count(_ context.Context, p consume.Partition, _ int64, _ consume.Filter) (int64, error) {
	if at := e.name + " " + p.String(); !slices.Contains(*e.by, at) {
		*e.by = append(*e.by, at)
	}
	return 5, nil
}

// TestLaneAsksForItsGroupsAlone: a lane's groups are those with its consumers or its color
// apart; what waits is asked of their engines, for the lane's partitions, and of no other.
func TestLaneAsksForItsGroupsAlone(t *testing.T) {
	t.Parallel()
	control := lanetest.NewControl(t)
	ctx, c := t.Context(), &api{control.API()}
	for _, name := range []string{"green", "blue", "mint"} {
		control.AddLane(name)
	}
	s, err := laneclient.OpenSession(ctx, c, &laneclient.Session{TTL: laneclient.Duration(laneclient.MaxTTL)})
	if err != nil {
		t.Fatal(err)
	}
	in := laneclient.InSession(s.Name)
	held := func(of string) string { return `{"session":"` + s.Name + `","lane":"` + of + `"}` }
	const base = `{"v":1,"main":{"holder":{"session":"x"}}`
	for _, g := range []struct {
		name    string
		members []string // by lane
		records []string // by partition
	}{
		{"apart", nil, []string{base + `}`, base + `,"colors":{"green":{"from":3,"holder":null},"blue":{"from":1,"holder":null}}}`}},
		{"both", []string{"green", "", "green"}, []string{base + `,"colors":{"green":{"from":3,"holder":` + held("green") + `}}}`, base + `}`}},
		{"caretaker", nil, []string{`{"v":1,"main":{"holder":` + held("green") + `}}`}},
		{"child", nil, []string{base + `,"colors":{"mint":{"from":3,"holder":` + held("green") + `}}}`}},
		{"members", []string{"green"}, []string{base + `}`}},
		{"nothing", []string{"", "blue"}, []string{base + `,"colors":{"blue":{"from":3,"holder":` + held("blue") + `}}}`}},
		{"unknown", nil, []string{base + `}`}},
	} {
		if _, err := laneclient.Put(ctx, c, &laneclient.Group{Meta: laneclient.Meta{Name: g.name}, Engine: "on-" + g.name, Topics: []string{"orders"}}); err != nil {
			t.Fatal(err)
		}
		for n, of := range g.members {
			m := &laneclient.Member{Meta: laneclient.Meta{Name: fmt.Sprintf("m%d", n)}, Group: g.name, Lane: of, Topics: []string{"orders"}}
			if _, err := laneclient.Put(ctx, c, m, in); err != nil {
				t.Fatal(err)
			}
		}
		for n, record := range g.records {
			path := laneclient.PathOf(laneclient.KindCursors, laneclient.CursorName("on-"+g.name, g.name, "orders", n))
			w := laneclient.CursorWrite{Record: json.RawMessage(record), Notes: []laneclient.NoteWrite{{Note: json.RawMessage(`{"v":1,"pos":3}`)}}}
			if err := c.Do(ctx, "PUT", path, w, nil, in, laneclient.IfNoneMatch()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var by, looked []string
	groups, err := laneGroups(ctx, c, "green", func(_ context.Context, name string) engine {
		looked = append(looked, name)
		if name == "on-child" {
			return nil // it cannot be reached
		}
		return asked{name: name, by: &by}
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range groups {
		got = append(got, fmt.Sprintf("%s %d %d %s", g.Group, len(g.Members), len(g.Cursors), count(g.Lag)))
	}
	if want := []string{"apart 0 1 5", "both 2 1 5", "caretaker 0 1 5", "child 0 1 ?", "members 1 0 ?"}; !slices.Equal(got, want) {
		t.Errorf("the lane has %q, want %q", got, want)
	}
	if want := []string{"on-apart", "on-both", "on-caretaker", "on-child"}; !slices.Equal(looked, want) {
		t.Errorf("engines that are looked for are %q, want %q", looked, want)
	}
	if want := []string{"on-apart orders/1", "on-both orders/0", "on-caretaker orders/0"}; !slices.Equal(by, want) {
		t.Errorf("asked for is %q, want %q", by, want)
	}
}
