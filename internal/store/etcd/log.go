package etcd

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger is a logger for etcd that writes to log. What etcd calls information, or
// warns of, is for debugging here: who embeds it did not ask to hear of its raft, of a
// slow disk, or of its own defaults.
func zapLogger(log *slog.Logger, options ...zap.Option) *zap.Logger {
	options = append(options, zap.ErrorOutput(zapcore.AddSync(discard{})))
	return zap.New(&core{log: log.With("component", "etcd")}, options...)
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// core is a zapcore.Core over slog.
type core struct{ log *slog.Logger }

var _ zapcore.Core = (*core)(nil)

// Enabled implements [zapcore.Core].
func (c *core) Enabled(l zapcore.Level) bool {
	return c.log.Enabled(context.Background(), level(l))
}

// With implements [zapcore.Core].
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{log: c.log.With(attributes(fields)...)}
}

// Check implements [zapcore.Core].
func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements [zapcore.Core].
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	l := level(e.Level)
	if slices.ContainsFunc(fields, closed) {
		l = slog.LevelDebug // so it was asked to
	}
	c.log.Log(context.Background(), l, e.Message, attributes(fields)...) //nolint:sloglint // etcd's message
	return nil
}

// closed says whether a field tells of a listener that was closed.
func closed(f zapcore.Field) bool {
	err, ok := f.Interface.(error)
	return ok && f.Type == zapcore.ErrorType && errors.Is(err, net.ErrClosed)
}

// Sync implements [zapcore.Core].
func (c *core) Sync() error { return nil }

func level(l zapcore.Level) slog.Level {
	if l >= zapcore.ErrorLevel {
		return slog.LevelError
	}
	return slog.LevelDebug
}

func attributes(fields []zapcore.Field) []any {
	encoder := zapcore.NewMapObjectEncoder()
	for _, f := range fields {
		f.AddTo(encoder)
	}
	attrs := make([]any, 0, len(encoder.Fields))
	for _, key := range slices.Sorted(maps.Keys(encoder.Fields)) {
		attrs = append(attrs, slog.Any(strings.ReplaceAll(key, "-", "_"), encoder.Fields[key]))
	}
	return attrs
}
