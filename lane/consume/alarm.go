package consume

import "log/slog"

// attributes are what logs say of an alarm: nothing of a partition, a lane or a number where
// it is of none.
func (a *Alarm) attributes(group string) []slog.Attr {
	out := []slog.Attr{slog.String("group", group), slog.String("reason", string(a.Kind))}
	if a.Partition.Topic != "" {
		out = append(out, slog.String("topic", a.Partition.Topic), slog.Int("partition", int(a.Partition.Index)))
	}
	if a.Cursor != "" {
		out = append(out, slog.String("lane", string(a.Cursor)))
	}
	if a.Count > 0 {
		out = append(out, slog.Int64("count", a.Count))
	}
	return out
}
