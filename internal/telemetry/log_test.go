package telemetry_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/telemetry"
)

func TestNewLog(t *testing.T) {
	text := regexp.MustCompile(`^time=\d\d:\d\d:\d\d\.\d{3} level=INFO msg=hello lane=green\n$`)
	tests := []struct {
		format   telemetry.LogFormat
		terminal bool
		wantText bool
	}{
		{telemetry.LogAuto, true, true},
		{telemetry.LogAuto, false, false},
		{"", true, true},
		{"", false, false},
		{telemetry.LogText, false, true},
		{telemetry.LogJSON, true, false},
	}
	for _, tt := range tests {
		var b bytes.Buffer
		log := telemetry.NewLog(&b, tt.format, slog.LevelInfo, tt.terminal)
		log.Debug("left out")
		log.Info("hello", telemetry.KeyLane, "green")
		if tt.wantText {
			if !text.MatchString(b.String()) {
				t.Errorf("%q, terminal %v: got %q, want text", tt.format, tt.terminal, b.String())
			}
			continue
		}
		var line struct{ Msg, Lane string }
		if err := json.Unmarshal(b.Bytes(), &line); err != nil || line.Msg != "hello" || line.Lane != "green" {
			t.Errorf("%q, terminal %v: got %q, want one line of JSON", tt.format, tt.terminal, b.String())
		}
	}
}

// What stands for a duration is read by people, and what is empty says nothing.
func TestLogIsReadable(t *testing.T) {
	type name string
	for _, format := range []telemetry.LogFormat{telemetry.LogText, telemetry.LogJSON} {
		var b bytes.Buffer
		telemetry.NewLog(&b, format, slog.LevelInfo, false).Info("hello",
			telemetry.KeyDrain, 10*time.Second, telemetry.KeyLane, "", telemetry.KeyColor, name(""), telemetry.KeyParent, name("green"), telemetry.KeyCount, 0)
		got := strings.NewReplacer(`"`, "", ":", "=", ",", " ").Replace(b.String())
		for _, want := range []string{"drain=10s", "parent=green", "count=0"} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %s in %s", format, want, b.String())
			}
		}
		if strings.Contains(got, "lane=") || strings.Contains(got, "color=") {
			t.Errorf("%s: what is empty is written: %s", format, b.String())
		}
	}
}

func TestLogFormatSet(t *testing.T) {
	var f telemetry.LogFormat
	for _, good := range []string{"auto", "text", "json"} {
		if err := f.Set(good); err != nil || f.String() != good {
			t.Errorf("Set(%q) = %v, %q", good, err, f)
		}
	}
	if err := f.Set("xml"); err == nil || f != telemetry.LogJSON {
		t.Errorf("Set(xml) = %v and %q, want an error and the old value", err, f)
	}
}
