package laneotel

import (
	"context"

	"github.com/laneway-dev/laneway/lane"
	"go.opentelemetry.io/otel/baggage"
)

// Past these limits OpenTelemetry's readers drop members, or the whole of a baggage: adding
// ours to one that is full would cost others theirs.
const (
	maxMembers = 64
	maxBytes   = 8192
)

// FromBaggage returns a context with the color that the baggage of ctx has, for code behind
// OpenTelemetry's own instrumentation. A context that has a color already, or is plain on
// purpose, keeps what it has; a member that is no lane name is no color.
func FromBaggage(ctx context.Context) context.Context {
	if decided(ctx) {
		return ctx
	}
	return lane.With(ctx, lane.Name(baggage.FromContext(ctx).Member(lane.BaggageMember).Value()))
}

// decided reports whether ctx itself says what its color is. Where it does, the lane of the
// process makes no difference.
func decided(ctx context.Context) bool {
	const any = "process"
	return lane.Outgoing(ctx, any) != any || lane.From(ctx) == any
}

// ToBaggage returns a context whose baggage has the color that a call made with ctx carries
// (lane.Outgoing; process is the lane of this process), for OpenTelemetry to pass on. All
// other members stay. Plain traffic has the member removed. Baggage that is full, by the
// limits of OpenTelemetry (64 members, 8192 bytes), is left without the member.
func ToBaggage(ctx context.Context, process lane.Name) context.Context {
	color := lane.Outgoing(ctx, process)
	b := baggage.FromContext(ctx)
	if b.Member(lane.BaggageMember).Value() == string(color) {
		return ctx // also where there is none, and none is wanted
	}
	b = b.DeleteMember(lane.BaggageMember)
	if color != lane.Baseline && hasRoom(b, color) {
		// A lane name is a valid value, so that neither call fails.
		if m, err := baggage.NewMemberRaw(lane.BaggageMember, string(color)); err == nil {
			if with, err := b.SetMember(m); err == nil {
				b = with
			}
		}
	}
	return baggage.ContextWithBaggage(ctx, b)
}

func hasRoom(b baggage.Baggage, color lane.Name) bool {
	ours := len(",") + len(lane.BaggageMember) + len("=") + len(color)
	return b.Len() < maxMembers && len(b.String())+ours <= maxBytes
}
