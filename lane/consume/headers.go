package consume

import (
	"context"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
)

// Headers are those of a message as a [lane.Carrier], for propagators of traces too:
// (*Headers)(&m.Headers). Names are compared without regard to case. Those of a message that
// was handed out must not be changed.
type Headers []Header

var _ lane.Carrier = (*Headers)(nil)

// Values are all values of a name, or nil.
func (h *Headers) Values(name string) []string {
	var out []string
	for _, f := range *h {
		if strings.EqualFold(f.Name, name) {
			out = append(out, string(f.Value))
		}
	}
	return out
}

// Set replaces all values of a name by one.
func (h *Headers) Set(name, value string) {
	h.Del(name)
	*h = append(*h, Header{Name: name, Value: []byte(value)})
}

// Del removes all values of a name.
func (h *Headers) Del(name string) {
	*h = slices.DeleteFunc(*h, func(f Header) bool { return strings.EqualFold(f.Name, name) })
}

func (h *Headers) has(name string) bool {
	return slices.ContainsFunc(*h, func(f Header) bool { return strings.EqualFold(f.Name, name) })
}

// traceHeaders are those of W3C Trace Context and Baggage, which a program that knows
// nothing of traces passes on as they are.
func traceHeaders() []string { return []string{"traceparent", "tracestate", lane.BaggageHeader} }

// traceKey is the context key of the headers of the message that is being handled.
type traceKey struct{}

func withTrace(ctx context.Context, headers []Header) context.Context {
	var kept Headers
	for _, name := range traceHeaders() {
		for _, f := range headers {
			if strings.EqualFold(f.Name, name) {
				kept = append(kept, f)
			}
		}
	}
	if kept == nil {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, kept)
}

// passTrace adds to h what the message carried that is being handled, unless h says
// something of its trace itself.
func passTrace(ctx context.Context, h *Headers) {
	kept, _ := ctx.Value(traceKey{}).(Headers)
	if h.has("traceparent") {
		return
	}
	own := *h // without what is added
	for _, f := range kept {
		if !own.has(f.Name) {
			*h = append(*h, f)
		}
	}
}
