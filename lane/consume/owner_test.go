package consume

import (
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// TestOwner is the row owner(color, topic) of the protocol's table of words.
func TestOwner(t *testing.T) {
	view := &View{Lanes: map[lane.Name]Lane{
		"red": {}, "pink": {Parent: "red"}, "rose": {Parent: "pink"}, "old": {Parent: "red", Ended: true},
		"strict-load": {}, "strict-done": {Ended: true}, "ring-a": {Parent: "ring-b"}, "ring-b": {Parent: "ring-a"},
	}}
	members := map[lane.Name]int{"red": 1, "rose": 1, "strict-load": 1, "old": 1}
	for _, c := range []struct {
		color   lane.Name
		tooLong bool
		want    Owner
	}{
		{Main, false, Owner{Reason: lane.ReasonPlain}},
		{"red", false, Owner{Lane: "red", Reason: lane.ReasonLane}},
		{"pink", false, Owner{Lane: "red", Reason: lane.ReasonParent}},
		{"rose", false, Owner{Lane: "rose", Reason: lane.ReasonLane}},
		{"old", false, Owner{Lane: "red", Reason: lane.ReasonParent}},
		{"nobody", false, Owner{Reason: lane.ReasonUnknown}},
		{"ring-a", false, Owner{Reason: lane.ReasonBaseline}},
		{"strict-load", false, Owner{Lane: "strict-load", Reason: lane.ReasonStrict}},
		{"strict-done", false, Owner{Reason: lane.ReasonEnded, Dead: true}},
		{"strict-new", false, Owner{Lane: "strict-new", Reason: lane.ReasonStrictNo}},
		{"strict-new", true, Owner{Reason: lane.ReasonUnknown, Dead: true}},
	} {
		if got := owner(view, members, c.color, c.tooLong); got != c.want {
			t.Errorf("owner of %q is %+v, want %+v", c.color, got, c.want)
		}
	}
	if got := owner(view, nil, "pink", false); got != (Owner{Reason: lane.ReasonBaseline}) {
		t.Errorf("without members: %+v", got)
	}
	if got := owner(view, nil, "old", false); got != (Owner{Reason: lane.ReasonEnded}) {
		t.Errorf("ended, without members: %+v", got)
	}
}
