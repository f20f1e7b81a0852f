package lanethrift

import (
	"context"
	"maps"
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
	given := thrift.GetWriteHeaderList(ctx)
	trail := lane.TrailFrom(ctx)
	if len(given) == 0 && color == lane.Baseline && trail == nil {
		return ctx, false // as most are
	}
	headers := make(writeCarrier, len(given)+3)
	for _, key := range given {
		if value, ok := thrift.GetHeader(ctx, key); ok {
			headers[key] = value
		}
	}
	lane.Inject(headers, color)
	explained = headers[lane.ExplainHeader] == "1" || trail != nil
	if explained {
		headers[lane.ExplainHeader] = "1"
	}
	keys := make([]string, 0, len(headers))
	for key, value := range headers {
		keys = append(keys, key)
		ctx = thrift.SetHeader(ctx, key, value) //nolint:fatcontext // thrift has a value for each header
	}
	return thrift.SetWriteHeaderList(ctx, keys), explained
}

// explain adds a call to the trail of the request that caused it and, where the caller
// asked for it, its route to its headers. ctx is the caller's.
func explain(ctx context.Context, meta thrift.ResponseMeta, own lane.Hop) thrift.ResponseMeta {
	further := splitLines(meta.Headers[lane.RouteHeader])
	lane.TrailFrom(ctx).Add(own, further)
	value, _ := thrift.GetHeader(ctx, lane.ExplainHeader)
	if value != "1" || !slices.Contains(thrift.GetWriteHeaderList(ctx), lane.ExplainHeader) {
		return meta
	}
	headers := maps.Clone(meta.Headers) // thrift's own until the next call
	if headers == nil {
		headers = thrift.THeaderMap{}
	}
	headers[lane.RouteHeader] = joinLines(lane.AppendHops(nil, own, further))
	meta.Headers = headers
	return meta
}
