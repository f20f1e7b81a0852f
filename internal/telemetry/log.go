// Package telemetry says how a process tells of itself: the set-up of its log,
// the keys of log attributes and the names of metrics, each in one place.
//
// It decides nothing and keeps no state; every role may import it.
package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"reflect"
)

// LogFormat is how log lines are written.
type LogFormat string

// Formats of log lines.
const (
	LogAuto LogFormat = "auto" // text for a person at a terminal, else JSON
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Set reads a format; it satisfies flag values.
func (f *LogFormat) Set(s string) error {
	switch v := LogFormat(s); v {
	case LogAuto, LogText, LogJSON:
		*f = v
		return nil
	}
	return fmt.Errorf("log format %q: want auto, text or json", s)
}

// String returns the format's word.
func (f *LogFormat) String() string { return string(*f) }

// Type names the kind of value in a command's help.
func (f *LogFormat) Type() string { return "format" }

// NewLog returns a logger that writes to w from level on. terminal says whether a
// person reads w, which decides LogAuto and the empty format.
func NewLog(w io.Writer, format LogFormat, level slog.Leveler, terminal bool) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if format == LogText || format != LogJSON && terminal {
		opts.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr { return shortTime(groups, readable(groups, a)) }
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}

// readable has durations as Go writes them, in JSON too, and leaves out what is empty:
// the lane of what is in none.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindDuration:
		return slog.String(a.Key, a.Value.Duration().String())
	case slog.KindString:
		if a.Value.String() == "" && a.Key != slog.MessageKey {
			return slog.Attr{}
		}
	case slog.KindAny:
		if v := reflect.ValueOf(a.Value.Any()); v.Kind() == reflect.String && v.Len() == 0 { // such as a lane's name
			return slog.Attr{}
		}
	default:
	}
	return a
}

// shortTime leaves the time of day: a person at a terminal knows the date.
func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.String(slog.TimeKey, a.Value.Time().Format("15:04:05.000"))
	}
	return a
}
