package consume

import (
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

func TestViewOwner(t *testing.T) {
	v := &View{
		Lanes:    map[lane.Name]Lane{"green": {Generation: 2}, "child": {Parent: "green", Generation: 1}, "strict-x": {Generation: 1}},
		Sessions: map[string]bool{"s": true},
		Members: []Member{
			{ID: "a", Session: "s", Topics: []string{"orders"}},
			{ID: "b", Session: "s", Topics: []string{"orders"}, Lane: "green", Generation: 2},
			{ID: "c", Session: "gone", Topics: []string{"orders"}, Lane: "strict-x", Generation: 1},
		},
	}
	topic := Topic{Name: "orders", Retry: "r", Dead: "d"}
	for color, want := range map[lane.Name]Owner{
		Main:       {Reason: lane.ReasonPlain},
		"green":    {Lane: "green", Reason: lane.ReasonLane},
		"child":    {Lane: "green", Reason: lane.ReasonParent},
		"unknown":  {Reason: lane.ReasonUnknown},
		"strict-x": {Lane: "strict-x", Reason: lane.ReasonStrictNo},
	} {
		if got := v.Owner(topic, color); got != want {
			t.Errorf("%q: got %+v, want %+v", color, got, want)
		}
	}
	if got := v.Owner(Topic{Name: "others"}, "green"); got != (Owner{Reason: lane.ReasonBaseline}) {
		t.Errorf("a topic that nobody reads: got %+v", got)
	}
}
