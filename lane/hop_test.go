package lane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

func TestHop(t *testing.T) {
	for _, tc := range []struct {
		hop  lane.Hop
		line string
	}{
		{lane.Hop{Service: "order", Lane: "green", Instance: "order-7f", Rule: lane.RuleHost, Reason: lane.ReasonLane}, "service=order lane=green instance=order-7f rule=host reason=lane-instance"},
		{lane.Hop{Service: "order", Instance: "A1", Reason: lane.ReasonPlain}, "service=order lane=- instance=A1 rule=- reason=plain"},
	} {
		if got := tc.hop.String(); got != tc.line {
			t.Errorf("wrote %q, want %q", got, tc.line)
		}
		got, err := lane.ParseHop(tc.line)
		if err != nil || got != tc.hop {
			t.Errorf("ParseHop(%q) = %+v, %v", tc.line, got, err)
		}
	}
}

func TestParseHop(t *testing.T) {
	got, err := lane.ParseHop("  service=order\tnode=n1 lane=green   took=3ms  ")
	if want := (lane.Hop{Service: "order", Lane: "green"}); err != nil || got != want {
		t.Errorf("unknown fields: %+v, %v", got, err)
	}
	for _, line := range []string{"", "service=", "service=-", "lane=green", "service order", "service=a lane", "=", "service=" + strings.Repeat("a", 10_000)} {
		if got, err := lane.ParseHop(line); !errors.Is(err, lane.ErrHop) {
			t.Errorf("ParseHop(%.40q) = %.80v, %v; want ErrHop", line, got, err)
		}
	}
}

// TestHopIsOneLine: whatever stands in a name, a hop stays one line of five fields.
func TestHopIsOneLine(t *testing.T) {
	h := lane.Hop{Service: "a b\r\nset-cookie: x=1", Instance: "i reason=plain", Lane: "\x00é", Rule: "host", Reason: "none"}
	line := h.String()
	if strings.ContainsAny(line, "\r\n\x00") || len(strings.Fields(line)) != 5 {
		t.Errorf("wrote %q", line)
	}
	got, err := lane.ParseHop(line)
	if err != nil || got.Reason != "none" || got.Rule != "host" {
		t.Errorf("read back %+v, %v", got, err)
	}
}

func TestHopIsShort(t *testing.T) {
	long := strings.Repeat("x", 1000)
	line := lane.Hop{Service: long, Instance: long, Lane: lane.Name(long), Rule: lane.Rule(long), Reason: lane.Reason(long)}.String()
	if _, err := lane.ParseHop(line); err != nil {
		t.Errorf("a line of %d bytes: %v", len(line), err)
	}
}

func TestTrail(t *testing.T) {
	ctx, trail := lane.WithTrail(t.Context())
	if lane.TrailFrom(ctx) != trail || lane.TrailFrom(t.Context()) != nil {
		t.Fatal("the trail of a context is not the one given")
	}
	b, c := lane.Hop{Service: "b", Instance: "B1"}, lane.Hop{Service: "c", Instance: "C1"}
	d := lane.Hop{Service: "d", Instance: "D1"}
	trail.Add(b, []string{c.String()})
	trail.Add(d, nil)
	if got, want := fmt.Sprint(trail.Lines()), fmt.Sprint([]string{b.String(), c.String(), d.String()}); got != want {
		t.Errorf("lines %v, want %v", got, want)
	}
	var none *lane.Trail
	none.Add(b, nil)
	if none.Lines() != nil {
		t.Error("a nil trail has lines")
	}
}

// TestTrailLimits: what a peer answers goes on in our own answer, so it is bounded and
// must be hops.
func TestTrailLimits(t *testing.T) {
	_, trail := lane.WithTrail(context.Background())
	good := lane.Hop{Service: "c", Instance: "C1"}.String()
	trail.Add(lane.Hop{Service: "b"}, []string{"set-cookie: a=b", strings.Repeat("x=y ", 1000) + good, good, "service=a\nb"})
	if got := trail.Lines(); len(got) != 2 || got[1] != good {
		t.Errorf("kept %d lines, %.300q, want our own and the one good line", len(got), got)
	}
	for range 100 {
		trail.Add(lane.Hop{Service: "b"}, []string{good})
	}
	if got := len(trail.Lines()); got != lane.MaxTrailHops {
		t.Errorf("kept %d lines, want %d", got, lane.MaxTrailHops)
	}
}

func TestTrailAtOnce(t *testing.T) {
	_, trail := lane.WithTrail(context.Background())
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			trail.Add(lane.Hop{Service: "b"}, nil)
			trail.Lines()
		})
	}
	wg.Wait()
	if got := len(trail.Lines()); got != 10 {
		t.Errorf("%d lines of 10 calls", got)
	}
}

func TestChoiceHop(t *testing.T) {
	target := &lane.Target{Instance: &lane.Instance{Service: "order", Name: "order-7f", Lane: "green"}}
	c := lane.Choice{Service: "order", Color: "child", Lane: "green", Reason: lane.ReasonParent, Targets: []*lane.Target{target}}
	want := lane.Hop{Service: "order", Lane: "green", Instance: "order-7f", Rule: lane.RuleHost, Reason: lane.ReasonParent}
	if got := c.Hop(target, lane.RuleHost); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	nobody := lane.Choice{Service: "order", Color: "strict-load", Reason: lane.ReasonStrictNo}
	if got, want := nobody.Hop(nil, ""), (lane.Hop{Service: "order", Reason: lane.ReasonStrictNo}); got != want {
		t.Errorf("nobody: got %+v, want %+v", got, want)
	}
}
