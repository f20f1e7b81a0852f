package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestGridAlignsPaintedCells(t *testing.T) {
	g := &grid{paint: true, rows: [][]string{{"NAME", "STATE", "SINCE"}}}
	g.add("größer", g.paint.bad("failing"), "now")
	g.add("b", "", "now")
	var b bytes.Buffer
	if err := g.write(&b); err != nil {
		t.Fatal(err)
	}
	plain := strings.NewReplacer("\x1b[2m", "", "\x1b[31m", "", "\x1b[0m", "").Replace(b.String())
	const want = "NAME    STATE    SINCE\ngrößer  failing  now\nb       -        now\n"
	if plain != want {
		t.Errorf("got\n%s\nwant\n%s", plain, want)
	}
	if !strings.Contains(b.String(), "\x1b[31mfailing\x1b[0m") {
		t.Errorf("%q is not painted", b.String())
	}
}

func TestPainterOnTerminalsOnly(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, a := range []*app{{stdout: &bytes.Buffer{}}, {stdout: file}} {
		a.getenv = func(string) string { return "" }
		if a.painter() {
			t.Errorf("colors for %T", a.stdout)
		}
	}
	if got := painter(false).bad("x"); got != "x" {
		t.Errorf("got %q, want no colors", got)
	}
}

func TestSpan(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := map[time.Duration]string{
		0: "0s ago", 59 * time.Second: "59s ago", 61 * time.Second: "1m1s ago", 3 * time.Hour: "3h0m ago", 50 * time.Hour: "2d2h ago",
		-90 * time.Minute: "in 1h30m",
	}
	for d, want := range tests {
		if got := ago(now.Add(-d), now); got != want {
			t.Errorf("ago(%s) = %q, want %q", d, got, want)
		}
	}
	if got := ago(time.Time{}, now); got != "" {
		t.Errorf("ago of never = %q", got)
	}
}

func TestSentence(t *testing.T) {
	fields := &laneclient.Problem{Detail: "correct it", Errors: []laneclient.FieldError{{Field: "host", Detail: "is none"}, {Field: "path", Detail: "begins with /"}}}
	tests := []struct {
		err  error
		want string
	}{
		{errors.New("a\nb"), "a; b"},
		{&laneclient.Problem{Title: "Conflict", Detail: "use another"}, "use another"},
		{fields, "host: is none; path: begins with /"},
		{fmt.Errorf("routes/x: %w", fields), "routes/x: host: is none; path: begins with /"},
	}
	for _, tt := range tests {
		if got := sentence(tt.err); got != tt.want {
			t.Errorf("sentence(%v) = %q, want %q", tt.err, got, tt.want)
		}
	}
}

// What is written of a lane's last use is as old as a hundredth of its TTL while it is used.
func TestLastUse(t *testing.T) {
	now := time.Now()
	lane := laneclient.Lane{TTL: laneclient.Duration(72 * time.Hour)}
	for used, want := range map[time.Time]string{
		{}:                         "",
		now.Add(-time.Second):      "within 43m17s",
		now.Add(-22 * time.Minute): "within 43m17s",
		now.Add(-43 * time.Minute): "within 43m17s",
		now.Add(-50 * time.Minute): "50m0s ago",
		now.Add(-26 * time.Hour):   "1d2h ago",
	} {
		lane.LastUse = used
		if got := lastUse(lane, now); got != want {
			t.Errorf("used %s ago: %q, want %q", now.Sub(used), got, want)
		}
	}
}
