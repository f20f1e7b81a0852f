package consume

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// What an alarm is not of is not in the log either; partition 0 is one.
func TestAlarmInLog(t *testing.T) {
	for _, c := range []struct {
		alarm Alarm
		want  string
	}{
		{Alarm{Kind: AlarmRegistry}, "group=billing reason=registry-lost"},
		{
			Alarm{Kind: AlarmNoNote, Partition: Partition{Topic: "orders"}},
			"group=billing reason=note-missing topic=orders partition=0",
		},
		{
			Alarm{Kind: AlarmHandover, Partition: Partition{Topic: "orders", Index: 3}, Cursor: "green", Count: 2},
			"group=billing reason=handover-cut topic=orders partition=3 lane=green count=2",
		},
	} {
		var log bytes.Buffer
		r := &Runner{
			o:   Options{Config: Config{Group: "billing"}},
			log: slog.New(slog.NewTextHandler(&log, nil)), life: t.Context(), counts: newStats("billing"),
		}
		r.act(&c.alarm)
		if got := strings.TrimSpace(log.String()); !strings.HasSuffix(got, ` msg="alarm of a group" `+c.want) || !strings.Contains(got, "level=WARN") {
			t.Errorf("the log says %s, want %s", got, c.want)
		}
	}
}
