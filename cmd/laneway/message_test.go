package main

import (
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

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
