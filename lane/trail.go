package lane

import (
	"context"
	"slices"
	"sync"
)

// MaxTrailHops bounds how many hops a [Trail] keeps, and so how many [RouteHeader]
// lines an answer gets. Later ones are left out.
const MaxTrailHops = 64

// Trail collects the hops of the calls that a handler makes, for requests that ask for
// them with [ExplainHeader]: server middleware starts one, client transports add to it,
// and the middleware writes it out before its answer's headers go. Methods may be called
// at once, and on a nil Trail, which collects nothing.
type Trail struct {
	mu   sync.Mutex
	hops []string // guarded by mu
}

type trailKey struct{}

// WithTrail returns a context whose calls are collected in the returned trail.
func WithTrail(ctx context.Context) (context.Context, *Trail) {
	t := new(Trail)
	return context.WithValue(ctx, trailKey{}, t), t
}

// TrailFrom returns the trail of ctx, or nil.
func TrailFrom(ctx context.Context) *Trail {
	t, _ := ctx.Value(trailKey{}).(*Trail)
	return t
}

// Add notes a call: its own hop, and then what its answer told of hops further on. Of
// these, lines that are no hops (see [ParseHop]) are left out: a peer must not choose what
// else stands in our answer.
func (t *Trail) Add(own Hop, further []string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hops = AppendHops(t.hops, own, further)
}

// AppendHops appends to lines a hop and what an answer told of hops further on, as
// [Trail.Add] does, up to [MaxTrailHops] lines. It is the only way by which lines of a peer
// are passed on: parsed, written anew and bounded.
func AppendHops(lines []string, own Hop, further []string) []string {
	if len(lines) >= MaxTrailHops {
		return lines
	}
	lines = append(lines, own.String())
	for _, line := range further {
		if len(lines) >= MaxTrailHops {
			break
		}
		if hop, err := ParseHop(line); err == nil {
			lines = append(lines, hop.String())
		}
	}
	return lines
}

// Lines returns what was collected, in the order of the calls, each followed by what is
// further on: nearest first.
func (t *Trail) Lines() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.hops)
}

// OutgoingRule says what gives a call made with ctx its color (see [Outgoing]).
func OutgoingRule(ctx context.Context, process Name) Rule {
	switch {
	case From(ctx) != Baseline:
		return RuleTrusted
	case Outgoing(ctx, process) != Baseline:
		return RuleProcess
	default:
		return ""
	}
}
