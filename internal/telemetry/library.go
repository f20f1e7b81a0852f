package telemetry

import (
	"context"
	"log"
	"log/slog"
	"strings"
)

// LibraryLog returns a logger of the standard library that passes on to l what others'
// code, net/http above all, has to say: under one constant message, at Debug, since it is
// about peers. A panic of a handler is our mistake, and at Error.
func LibraryLog(l *slog.Logger) *log.Logger {
	return slog.NewLogLogger(libraryLog{l.Handler()}, slog.LevelDebug)
}

type libraryLog struct{ slog.Handler }

// Handle makes the text an attribute.
func (q libraryLog) Handle(ctx context.Context, r slog.Record) error {
	level := slog.LevelDebug
	if strings.Contains(r.Message, "panic serving") {
		level = slog.LevelError
	}
	if !q.Handler.Enabled(ctx, level) {
		return nil
	}
	out := slog.NewRecord(r.Time, level, "library", r.PC)
	out.AddAttrs(slog.String(KeyError, r.Message))
	return q.Handler.Handle(ctx, out)
}

// Enabled lets Handle decide: a panic is told at a higher level than the rest.
func (q libraryLog) Enabled(context.Context, slog.Level) bool { return true }
