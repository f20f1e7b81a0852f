package consume

import (
	"testing"
	"time"
)

// TestLocated: what the engine says of a partition's room, at which second, and what the Core
// is told by then.
func TestLocated(t *testing.T) {
	type said struct {
		room string // o is own
		at   int    // seconds
		is   string
	}
	for _, tt := range []struct {
		name string
		said []said
	}{
		{"the first is believed", []said{{"a", 0, "a"}, {"a", 15, "a"}}},
		{"one that is this process's own is believed at once", []said{{"a", 0, "a"}, {"o", 15, "o"}, {"o", 30, "o"}}},
		{"another one late", []said{{"o", 0, "o"}, {"a", 15, "o"}, {"a", 30, "o"}, {"a", 45, "a"}}},
		{"and not sooner where it is asked for more often", []said{{"o", 0, "o"}, {"a", 5, "o"}, {"a", 10, "o"}, {"a", 34, "o"}, {"a", 35, "a"}}},
		{"nor if it was another one meanwhile", []said{{"o", 0, "o"}, {"a", 10, "o"}, {"b", 30, "o"}, {"a", 40, "o"}, {"a", 69, "o"}, {"a", 70, "a"}}},
		{"or the old one again", []said{{"o", 0, "o"}, {"a", 10, "o"}, {"o", 30, "o"}, {"a", 40, "o"}, {"a", 69, "o"}, {"a", 70, "a"}}},
		{"that it is in none is late, too", []said{{"a", 0, "a"}, {"", 5, "a"}, {"", 35, ""}, {"o", 36, "o"}}},
		{"one that is in none at first", []said{{"", 0, ""}, {"a", 5, ""}, {"o", 6, "o"}}},
	} {
		var p located
		began := time.Now()
		for _, s := range tt.said {
			before := p.room
			moved := p.hear(s.room, s.room == "o", began.Add(time.Duration(s.at)*time.Second))
			if p.room != s.is || moved != (before != p.room) {
				t.Errorf("%s: at %d s %q was said: got %q (moved: %v), want %q", tt.name, s.at, s.room, p.room, moved, s.is)
			}
		}
	}
}
