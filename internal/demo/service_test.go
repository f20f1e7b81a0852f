package demo

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/laneway-dev/laneway/lane"
)

// fakeNext is a next service that answers at once, and notes its hop as the SDK does.
type fakeNext struct {
	reply Reply
	hop   *lane.Hop // nil: none is noted
	err   error
}

func (f fakeNext) call(ctx context.Context) (Reply, error) {
	if f.hop != nil {
		further := lane.Hop{Service: "c", Instance: "C9", Reason: lane.ReasonParent}
		lane.TrailFrom(ctx).Add(*f.hop, []string{further.String()})
	}
	return f.reply, f.err
}

func (f fakeNext) close() error { return nil }

func TestVisit(t *testing.T) {
	t.Parallel()
	a := Visit{Service: "a", Instance: "A1", Protocol: lane.HTTP}
	b := Visit{Service: "b", Instance: "B2", Lane: Green, Protocol: lane.GRPC, Color: Green}
	hop := lane.Hop{Service: "b", Instance: "B2", Lane: Green, Reason: lane.ReasonLane}
	coloredA, explainedB := a, b
	coloredA.Color, explainedB.Reason = Green, lane.ReasonLane
	for _, tt := range []struct {
		name   string
		next   caller
		visits []Visit
		fault  string // in the reply's error; empty: none
	}{
		{"the end of the chain", nil, []Visit{coloredA}, ""},
		{"one further", fakeNext{reply: Reply{Visits: []Visit{b}}, hop: &hop}, []Visit{coloredA, explainedB}, ""},
		{
			"an error further down",
			fakeNext{reply: Reply{Visits: []Visit{b}, Error: "B2 is sad"}, hop: &hop},
			[]Visit{coloredA, explainedB},
			"B2 is sad",
		},
		{"no answer", fakeNext{err: errors.New("refused")}, []Visit{coloredA}, "A1 could not call on: refused"},
		{"nobody visited", fakeNext{hop: &hop}, []Visit{coloredA}, "without a visit"},
		{"no explanation", fakeNext{reply: Reply{Visits: []Visit{b}}}, []Visit{coloredA}, "was not told"},
		{
			"another one answers than was picked",
			fakeNext{reply: Reply{Visits: []Visit{b}}, hop: &lane.Hop{Service: "b", Instance: "B1", Reason: lane.ReasonLane}},
			[]Visit{coloredA, explainedB},
			`told that "B1" gets its call, but "B2" answered`,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &service{self: a, next: tt.next, tracer: noop.NewTracerProvider().Tracer("")}
			got := s.visit(lane.With(t.Context(), Green))
			if !reflect.DeepEqual(got.Visits, tt.visits) {
				t.Errorf("got %v, want %v", got.Visits, tt.visits)
			}
			if tt.fault == "" && got.Error != "" || !strings.Contains(got.Error, tt.fault) {
				t.Errorf("got error %q, want %q", got.Error, tt.fault)
			}
		})
	}
}

// TestVisitKeepsTrail: a caller that asks for the route gets it.
func TestVisitKeepsTrail(t *testing.T) {
	t.Parallel()
	hop := lane.Hop{Service: "b", Instance: "B1", Reason: lane.ReasonPlain}
	s := &service{tracer: noop.NewTracerProvider().Tracer(""), next: fakeNext{reply: Reply{Visits: []Visit{{Instance: "B1"}}}, hop: &hop}}
	ctx, trail := lane.WithTrail(t.Context())
	if reply := s.visit(ctx); reply.Error != "" || reply.Visits[1].Reason != lane.ReasonPlain {
		t.Errorf("got %+v", reply)
	}
	if lines := trail.Lines(); len(lines) != 2 || lines[0] != hop.String() {
		t.Errorf("trail: got %q, want two lines, the first %q", lines, hop)
	}
}

func TestRunRefusesWhatIsNoDemo(t *testing.T) {
	t.Parallel()
	if err := Run(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "LANEWAY_SERVICE") {
		t.Errorf("no service: got %v", err)
	}
}
