package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

func TestEachMessage(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	e := consume.NewMemory(consume.MemoryConfig{FetchWait: time.Millisecond})
	t.Cleanup(func() { _ = e.Close() })
	if err := e.Ensure(t.Context(), consume.TopicSpec{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	add := func(partition int32, n int) {
		t.Helper()
		m := &consume.Message{
			Partition: consume.Partition{Topic: "t", Index: partition}, Key: fmt.Append(nil, n%3), Time: began.Add(time.Duration(n) * time.Minute),
		}
		if n%2 == 1 {
			m.Color = "green"
		}
		if err := e.Append(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 6 {
		add(0, n)
		add(1, n)
	}
	all := consume.Filter{All: true}
	key2 := func(m *consume.Message) bool { return string(m.Key) == "2" }
	first, err := e.Bounds(t.Context(), consume.Partition{Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		peek peek
		want string // partition/how many came before in it
	}{
		{"all", peek{partition: -1, filter: all, limit: 99}, "0/0 0/1 0/2 0/3 0/4 0/5 1/0 1/1 1/2 1/3 1/4 1/5"},
		{"so many", peek{partition: -1, filter: all, limit: 7}, "0/0 0/1 0/2 0/3 0/4 0/5 1/0"},
		{"a partition", peek{partition: 1, filter: all, limit: 2}, "1/0 1/1"},
		{"a color", peek{partition: -1, filter: consume.Filter{Color: "green"}, limit: 4}, "0/1 0/3 0/5 1/1"},
		{"a color that none has", peek{partition: -1, filter: consume.Filter{Color: "blue"}, limit: 4}, ""},
		{"a key, whose are far from the first", peek{partition: -1, filter: all, keep: key2, limit: 3}, "0/2 0/5 1/2"},
		{"a time", peek{partition: 0, filter: all, since: began.Add(4 * time.Minute), limit: 99}, "0/4 0/5"},
		{"an offset", peek{partition: 0, filter: all, from: first.First + 4, limit: 99}, "0/4 0/5"},
		{"an offset after a time", peek{partition: 0, filter: all, from: first.First + 5, since: began.Add(time.Minute), limit: 99}, "0/5"},
		{"a time after an offset", peek{partition: 0, filter: all, from: first.First + 1, since: began.Add(5 * time.Minute), limit: 99}, "0/5"},
	} {
		tt.peek.topic = "t"
		var got []string
		err := eachMessage(t.Context(), e, tt.peek, func(m *consume.Message) {
			got = append(got, fmt.Sprintf("%d/%d", m.Partition.Index, m.Offset-first.First))
		})
		if text := strings.Join(got, " "); err != nil || text != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.name, text, err, tt.want)
		}
	}
	// A second look sees nothing that came after the first.
	twice := peek{topic: "t", partition: -1, filter: all, limit: 99, ends: map[consume.Partition]int64{}}
	for range 2 {
		n := 0
		if err := eachMessage(t.Context(), e, twice, func(*consume.Message) { n++ }); err != nil || n != 12 {
			t.Errorf("got %d messages, %v; want 12", n, err)
		}
		add(0, 6)
	}
	if err := eachMessage(t.Context(), e, peek{topic: "t", partition: 2, limit: 1}, nil); err == nil || !strings.Contains(err.Error(), "2 partitions") {
		t.Errorf("a partition that is not there: %v", err)
	}
}

func TestParseReset(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]consume.Start{
		"earliest":             {Kind: consume.StartEarliest},
		"latest":               {Kind: consume.StartLatest},
		"offset:17":            {Kind: consume.StartOffset, Offset: 17},
		"2h":                   {Kind: consume.StartTime, Time: now.Add(-2 * time.Hour)},
		"2026-11-30T08:00:00Z": {Kind: consume.StartTime, Time: now.Add(-4 * time.Hour)},
	} {
		if got, err := parseReset(text, now); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "first", "offset:", "offset:-1", "offset:x", "-2h", "2026-11-30"} {
		if got, err := parseReset(text, now); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestParseID(t *testing.T) {
	m := &consume.Message{Partition: consume.Partition{Topic: "a/b@c", Index: 3}, Offset: 17}
	for _, id := range []string{"orders/0@1", "orders.billing.dead/12@9000000000"} {
		p, offset, err := parseID(id)
		if err != nil {
			t.Errorf("%q: %v", id, err)
		}
		if back := idOf(&consume.Message{Partition: p, Offset: offset}); back != id {
			t.Errorf("%q: read and written it is %q", id, back)
		}
	}
	for _, id := range []string{"", "orders", "orders/0", "orders@1", "/0@1", "orders/x@1", "orders/0@x", "orders/-1@1", "orders/0@-1", idOf(m)} {
		if p, offset, err := parseID(id); err == nil {
			t.Errorf("%q: got %s@%d, want an error", id, p, offset)
		}
	}
}

// TestPrintable: nothing that comes in a message reaches a terminal as more than text.
func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"order 1": "order 1", "ä→b": "ä→b", "a\nb": `"a\nb"`, "\x1b[31m": `"\x1b[31m"`, "\xff": `"\xff"`, "": "",
	} {
		if got := printable([]byte(in)); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	if got := shorten("äöüß", 3); got != "äö…" {
		t.Errorf("shortened: %q", got)
	}
}
