package lane_test

import (
	"context"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

func TestContext(t *testing.T) {
	ctx := t.Context()
	green := lane.With(ctx, "green")
	for name, tc := range map[string]struct {
		ctx      context.Context
		from     lane.Name
		outgoing lane.Name // of a process in lane blue
		rule     lane.Rule
	}{
		"nothing":             {ctx, "", "blue", lane.RuleProcess},
		"color":               {green, "green", "green", lane.RuleTrusted},
		"plain":               {lane.Plain(ctx), "", "", ""},
		"plain over color":    {lane.Plain(green), "", "", ""},
		"color over plain":    {lane.With(lane.Plain(ctx), "red"), "red", "red", lane.RuleTrusted},
		"malformed":           {lane.With(ctx, "Not A Lane"), "", "blue", lane.RuleProcess},
		"malformed over one":  {lane.With(green, "Not A Lane"), "green", "green", lane.RuleTrusted},
		"baseline is no name": {lane.With(green, lane.Baseline), "green", "green", lane.RuleTrusted},
		"detached":            {lane.Detach(green), "green", "green", lane.RuleTrusted},
		"detached plain":      {lane.Detach(lane.Plain(ctx)), "", "", ""},
	} {
		if got := lane.From(tc.ctx); got != tc.from {
			t.Errorf("%s: from %q, want %q", name, got, tc.from)
		}
		if got := lane.Outgoing(tc.ctx, "blue"); got != tc.outgoing {
			t.Errorf("%s: outgoing %q, want %q", name, got, tc.outgoing)
		}
		if got := lane.OutgoingRule(tc.ctx, "blue"); got != tc.rule {
			t.Errorf("%s: rule %q, want %q", name, got, tc.rule)
		}
	}
	if got := lane.OutgoingRule(ctx, lane.Baseline); got != "" {
		t.Errorf("rule of plain traffic is %q", got)
	}
}

func TestGoKeepsColorNotCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(lane.With(t.Context(), "green"))
	begin := make(chan struct{})
	var color lane.Name
	var err error
	done := lane.Go(ctx, func(ctx context.Context) {
		<-begin
		color, err = lane.From(ctx), ctx.Err()
	})
	cancel()
	select {
	case <-done:
		t.Fatal("done before the function has returned")
	default:
	}
	close(begin)
	<-done
	if color != "green" || err != nil {
		t.Errorf("color %q, error %v; want green and none", color, err)
	}
}
