package lanethrift

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/lane"
)

// An info header has one value; lines of a route are joined by this.
const lineSeparator = "\n"

func joinLines(lines []string) string { return strings.Join(lines, lineSeparator) }

func splitLines(value string) []string {
	if value == "" {
		return nil
	}
	lines := strings.SplitN(value, lineSeparator, lane.MaxTrailHops+1)
	return lines[:min(len(lines), lane.MaxTrailHops)]
}

// readCarrier is the headers of a call that came in.
type readCarrier struct{ ctx context.Context } //nolint:containedctx // thrift keeps headers in contexts

func (c readCarrier) Values(key string) []string {
	if value, ok := thrift.GetHeader(c.ctx, key); ok && slices.Contains(thrift.GetReadHeaderList(c.ctx), key) {
		return []string{value}
	}
	return nil
}

func (readCarrier) Set(string, string) {}
func (readCarrier) Del(string)         {}

// writeCarrier is the headers of a call that goes out: those that the caller's context
// names, changed by a color.
type writeCarrier map[string]string

func writeHeaders(ctx context.Context) writeCarrier {
	c := writeCarrier{}
	for _, key := range thrift.GetWriteHeaderList(ctx) {
		if value, ok := thrift.GetHeader(ctx, key); ok {
			c[key] = value
		}
	}
	return c
}

func (c writeCarrier) Values(key string) []string {
	if value, ok := c[key]; ok {
		return []string{value}
	}
	return nil
}

func (c writeCarrier) Set(key, value string) { c[key] = value }
func (c writeCarrier) Del(key string)        { delete(c, key) }

// context returns ctx with these headers to write, and no others.
func (c writeCarrier) context(ctx context.Context) context.Context {
	keys := make([]string, 0, len(c))
	for key, value := range c {
		keys = append(keys, key)
		ctx = thrift.SetHeader(ctx, key, value)
	}
	return thrift.SetWriteHeaderList(ctx, keys)
}
