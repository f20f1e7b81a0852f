package laneotel

import (
	"context"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"go.opentelemetry.io/otel/propagation"
)

// Propagator wraps next so that it carries colors, too. It writes the color of a context
// (lane.Outgoing; process is the lane of this process) as header lane.Header and, where
// next passes baggage on, as a member of it. It reads the header first, then the member.
//
// Colors that come in are believed: a program that is called from outside stands behind the
// gateway's edge, or leaves Propagator out.
func Propagator(next propagation.TextMapPropagator, process lane.Name) propagation.TextMapPropagator {
	return &propagator{next: next, process: process}
}

type propagator struct {
	next    propagation.TextMapPropagator
	process lane.Name
}

// Inject implements propagation.TextMapPropagator.
func (p *propagator) Inject(ctx context.Context, c propagation.TextMapCarrier) {
	p.next.Inject(ToBaggage(ctx, p.process), c)
	if color := lane.Outgoing(ctx, p.process); color.Valid() {
		c.Set(lane.Header, string(color))
	}
}

// Extract implements propagation.TextMapPropagator.
func (p *propagator) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	ctx = p.next.Extract(ctx, c)
	if color, _ := lane.Extract(header{c}); color != lane.Baseline {
		return lane.With(ctx, color)
	}
	return FromBaggage(ctx)
}

// Fields implements propagation.TextMapPropagator.
func (p *propagator) Fields() []string {
	return append(slices.Clone(p.next.Fields()), lane.Header)
}

// header is the color's header of a carrier: baggage is next's matter.
type header struct{ c propagation.TextMapCarrier }

// Values implements lane.Carrier.
func (h header) Values(key string) []string {
	if key != lane.Header {
		return nil
	}
	if v := h.c.Get(key); strings.TrimSpace(v) != "" {
		return []string{v}
	}
	return nil
}

// Set implements lane.Carrier.
func (h header) Set(key, value string) { h.c.Set(key, value) }

// Del implements lane.Carrier. OpenTelemetry's carriers cannot forget a key.
func (header) Del(string) {}
