package lanegrpc

import (
	"context"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/lane"
)

// TestHeadersWithoutCopy fails where grpc keeps metadata in another way than headers
// expects: calls are then colored all the same, at more cost.
func TestHeadersWithoutCopy(t *testing.T) {
	t.Parallel()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(lane.Header, "green"))
	c := newServerConfig(nil)
	if got, ok := c.headers(ctx).(carrier); !ok || len(got.Values(lane.Header)) != 1 {
		t.Errorf("got %T %v, want grpc's own metadata", c.headers(ctx), got)
	}
}

// TestColorHoweverKept reads a color where grpc does not keep metadata as expected, and
// where there is none.
func TestColorHoweverKept(t *testing.T) {
	t.Parallel()
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs(lane.Header, "green"))
	type another struct{}
	for _, key := range []any{nil, another{}, incomingKey()} {
		c := &serverConfig{key: key}
		if got, _ := c.incoming(ctx); lane.From(got) != "green" {
			t.Errorf("with key %T the color is %q", key, lane.From(got))
		}
		if got, trail := c.incoming(context.WithValue(t.Context(), another{}, "of another type")); lane.From(got) != lane.Baseline || trail != nil {
			t.Errorf("without metadata the color is %q, the trail %v", lane.From(got), trail)
		}
	}
}
