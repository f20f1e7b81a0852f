package lane

import "testing"

func TestStepsOfCircles(t *testing.T) {
	s := NewSnapshot(Input{Lanes: []Lane{
		{Name: "one", Parent: "two"},
		{Name: "two", Parent: "three"},
		{Name: "three", Parent: "one"},
		{Name: "tail", Parent: "one"},
		{Name: "end", Parent: "tail"},
		{Name: "self", Parent: "self"},
		{Name: "top"},
		{Name: "low", Parent: "top"},
		{Name: "strict-a", Parent: "top"},
		{Name: "cut", Parent: "strict-a"},
	}})
	for name, want := range map[Name]int{"one": 3, "two": 3, "three": 3, "tail": 4, "end": 5, "self": 1, "top": 1, "low": 2, "cut": 1} {
		if got := s.lanes.find(name).steps; got != want {
			t.Errorf("%s has %d steps, want %d", name, got, want)
		}
	}
}
