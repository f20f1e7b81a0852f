package lanethrift

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/apache/thrift/lib/go/thrift"

	"github.com/laneway-dev/laneway/lane"
)

// lineSeparator is between the lines of a route: an info header has one value.
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

func (c writeCarrier) Values(key string) []string {
	if value, ok := c[key]; ok {
		return []string{value}
	}
	return nil
}

func (c writeCarrier) Set(key, value string) { c[key] = value }
func (c writeCarrier) Del(key string)        { delete(c, key) }

// outgoing returns ctx with the headers of a call of that color. explained reports
// whether somebody wants its route.
func outgoing(ctx context.Context, color lane.Name) (_ context.Context, explained bool) {
	named := thrift.GetWriteHeaderList(ctx)
	trail := lane.TrailFrom(ctx)
	if len(named) == 0 && color == lane.Baseline && trail == nil {
		return ctx, false // as most are
	}
	headers := make(writeCarrier, len(named)+3)
	for _, key := range named {
		if value, ok := thrift.GetHeader(ctx, key); ok {
			headers[key] = value
		}
	}
	lane.Inject(headers, color)
	explained = lane.WantsRoute(headers) || trail != nil
	if explained {
		headers.Set(lane.ExplainHeader, "1")
	}
	keys := make([]string, 0, len(headers))
	for key, value := range headers {
		keys = append(keys, key)
		ctx = thrift.SetHeader(ctx, key, value) //nolint:fatcontext // thrift has a value for each header
	}
	return thrift.SetWriteHeaderList(ctx, keys), explained
}

// routed returns an answer's headers as the caller gets them: with the lines, where it
// asked for them, and without what the instance sent. ctx is the caller's.
func routed(ctx context.Context, headers thrift.THeaderMap, lines []string) thrift.THeaderMap {
	_, sent := headers[lane.RouteHeader]
	wanted := len(lines) > 0 && lane.WantsRoute(given{ctx})
	if !sent && !wanted {
		return headers
	}
	out := maps.Clone(headers) // thrift's own, until the next call on the connection
	if out == nil {
		out = thrift.THeaderMap{}
	}
	delete(out, lane.RouteHeader)
	if wanted {
		out[lane.RouteHeader] = joinLines(lines)
	}
	return out
}

// given is the headers that a caller's context names for a call, to be read only.
type given struct {
	ctx context.Context //nolint:containedctx // thrift keeps headers in contexts
}

func (g given) Values(key string) []string {
	if value, ok := thrift.GetHeader(g.ctx, key); ok && slices.Contains(thrift.GetWriteHeaderList(g.ctx), key) {
		return []string{value}
	}
	return nil
}
func (given) Set(string, string) {}
func (given) Del(string)         {}
