package laneotel_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/integrations/laneotel"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanehttp"
	"github.com/laneway-dev/laneway/lane/lanetest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }

// bag is a context with the baggage of a header.
func bag(ctx context.Context, t *testing.T, header string) context.Context {
	t.Helper()
	b, err := baggage.Parse(header)
	if err != nil {
		t.Fatal(err)
	}
	return baggage.ContextWithBaggage(ctx, b)
}

func TestFromBaggage(t *testing.T) {
	ctx := t.Context()
	for name, tc := range map[string]struct {
		ctx  context.Context
		want lane.Name
	}{
		"nothing":             {ctx, ""},
		"member":              {bag(ctx, t, "a=1,v-traffic-lane=green;p=1"), "green"},
		"percent-encoded":     {bag(ctx, t, "v-traffic-lane=%67reen"), "green"},
		"no lane name":        {bag(ctx, t, "v-traffic-lane=GREEN"), ""},
		"other members":       {bag(ctx, t, "a=1"), ""},
		"the context's first": {lane.With(bag(ctx, t, "v-traffic-lane=green"), "blue"), "blue"},
		"plain on purpose":    {lane.Plain(bag(ctx, t, "v-traffic-lane=green")), ""},
		"lane named process":  {lane.With(bag(ctx, t, "v-traffic-lane=green"), "process"), "process"},
	} {
		got := laneotel.FromBaggage(tc.ctx)
		if lane.From(got) != tc.want {
			t.Errorf("%s: color %q, want %q", name, lane.From(got), tc.want)
		}
	}
	if got := lane.Outgoing(laneotel.FromBaggage(lane.Plain(bag(ctx, t, "v-traffic-lane=green"))), "green"); got != "" {
		t.Errorf("plain on purpose became %q", got)
	}
}

func TestToBaggage(t *testing.T) {
	ctx := t.Context()
	for name, tc := range map[string]struct {
		ctx     context.Context
		process lane.Name
		want    []string // members, sorted
	}{
		"nothing":               {ctx, "", nil},
		"color":                 {lane.With(ctx, "green"), "", []string{"v-traffic-lane=green"}},
		"of the process":        {ctx, "blue", []string{"v-traffic-lane=blue"}},
		"plain in a lane":       {lane.Plain(ctx), "blue", nil},
		"others stay":           {lane.With(bag(ctx, t, "a=1;p=x,b=%20"), "green"), "", []string{"a=1;p=x", "b=%20", "v-traffic-lane=green"}},
		"old color replaced":    {lane.With(bag(ctx, t, "a=1,v-traffic-lane=red"), "green"), "", []string{"a=1", "v-traffic-lane=green"}},
		"plain removes":         {lane.Plain(bag(ctx, t, "a=1,v-traffic-lane=red")), "", []string{"a=1"}},
		"no color, but baggage": {bag(ctx, t, "a=1,v-traffic-lane=red"), "", []string{"a=1"}},
		"same again":            {lane.With(bag(ctx, t, "v-traffic-lane=green;p=1"), "green"), "", []string{"v-traffic-lane=green;p=1"}},
	} {
		var got []string
		for _, m := range baggage.FromContext(laneotel.ToBaggage(tc.ctx, tc.process)).Members() {
			got = append(got, m.String())
		}
		slices.Sort(got)
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: members %q, want %q", name, got, tc.want)
		}
	}
}

// TestToBaggageFull: a color that finds no room takes nobody else's, and an old one does
// not stay behind.
func TestToBaggageFull(t *testing.T) {
	ours := len(",v-traffic-lane=green")
	for name, tc := range map[string]struct {
		members []string
		want    string
	}{
		"63 members":    {numbered(63), "green"},
		"64 members":    {numbered(64), ""},
		"just fits":     {[]string{"a=" + strings.Repeat("x", 4000), "b=" + strings.Repeat("x", 8192-4002-3-ours)}, "green"},
		"one too long":  {[]string{"a=" + strings.Repeat("x", 4000), "b=" + strings.Repeat("x", 8192-4002-3-ours+1)}, ""},
		"old one there": {append(numbered(63), "v-traffic-lane=red"), "green"},
	} {
		ctx := lane.With(bag(t.Context(), t, strings.Join(tc.members, ",")), "green")
		h := propagation.MapCarrier{}
		propagation.Baggage{}.Inject(laneotel.ToBaggage(ctx, ""), h)
		got, err := baggage.Parse(h["baggage"]) // as a reader does
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if color := got.Member(lane.BaggageMember).Value(); color != tc.want {
			t.Errorf("%s: color %q, want %q", name, color, tc.want)
		}
		for _, m := range tc.members {
			if key, value, _ := strings.Cut(m, "="); key != lane.BaggageMember && got.Member(key).Value() != value {
				t.Errorf("%s: member %s is lost", name, key)
			}
		}
	}
}

func numbered(n int) (members []string) {
	for i := range n {
		members = append(members, fmt.Sprintf("k%d=v", i))
	}
	return members
}

func TestPropagator(t *testing.T) {
	p := laneotel.Propagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}), "blue")
	for name, tc := range map[string]struct {
		ctx    context.Context
		header string
		bag    string
	}{
		"of the process": {t.Context(), "blue", "v-traffic-lane=blue"},
		"color":          {lane.With(t.Context(), "green"), "green", "v-traffic-lane=green"},
		"plain":          {lane.Plain(t.Context()), "", ""},
	} {
		h := http.Header{}
		p.Inject(tc.ctx, propagation.HeaderCarrier(h))
		if h.Get(lane.Header) != tc.header || h.Get(lane.BaggageHeader) != tc.bag {
			t.Errorf("%s: injected %v", name, h)
		}
		got := p.Extract(t.Context(), propagation.HeaderCarrier(h))
		if lane.From(got) != lane.Name(tc.header) {
			t.Errorf("%s: extracted %q from %v", name, lane.From(got), h)
		}
	}
	for name, tc := range map[string]struct {
		c    propagation.MapCarrier
		want lane.Name
	}{
		"baggage alone":     {propagation.MapCarrier{"baggage": "a=1,v-traffic-lane=red"}, "red"},
		"header first":      {propagation.MapCarrier{"v-traffic-lane": "green", "baggage": "v-traffic-lane=red"}, "green"},
		"header malformed":  {propagation.MapCarrier{"v-traffic-lane": "NO", "baggage": "v-traffic-lane=red"}, "red"},
		"baggage malformed": {propagation.MapCarrier{"baggage": "v-traffic-lane=RED"}, ""},
		"nothing":           {propagation.MapCarrier{}, ""},
	} {
		if got := lane.From(p.Extract(t.Context(), tc.c)); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := p.Fields(); !slices.Contains(got, lane.Header) || !slices.Contains(got, "traceparent") || !slices.Contains(got, "baggage") {
		t.Errorf("fields %q", got)
	}
}

// traced runs f with a recorded span and returns the span's attributes of lanes.
func traced(t *testing.T, f func(ctx context.Context)) map[string]string {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	ctx, span := provider.Tracer("test").Start(t.Context(), "span")
	f(ctx)
	span.End()
	if err := provider.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, kv := range recorder.Ended()[0].Attributes() {
		if kv.Value.Type() != attribute.STRING {
			t.Errorf("%s is no string", kv.Key)
		}
		got[string(kv.Key)] = kv.Value.AsString()
	}
	return got
}

func TestObserve(t *testing.T) {
	target := []*lane.Target{{}}
	for name, tc := range map[string]struct {
		c    lane.Choice
		want string
	}{
		"lane":     {lane.Choice{Color: "green", Lane: "green", Targets: target, Reason: lane.ReasonLane}, "map[laneway.color:green laneway.lane:green laneway.reason:lane-instance]"},
		"fallback": {lane.Choice{Color: "green", Targets: target, Reason: lane.ReasonBaseline}, "map[laneway.color:green laneway.lane: laneway.reason:baseline-fallback]"},
		"plain":    {lane.Choice{Targets: target, Reason: lane.ReasonPlain}, "map[laneway.lane: laneway.reason:plain]"},
		"nobody":   {lane.Choice{Color: "strict-x", Reason: lane.ReasonStrictNo}, "map[laneway.color:strict-x laneway.reason:strict-none]"},
	} {
		got := traced(t, func(ctx context.Context) { laneotel.Observe(ctx, tc.c, nil) })
		if fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %v, want %s", name, got, tc.want)
		}
	}
	laneotel.Observe(t.Context(), lane.Choice{}, nil) // without a span: nothing happens
}

func TestMiddleware(t *testing.T) {
	for name, tc := range map[string]struct {
		ctx  func(context.Context) context.Context
		want string
		from lane.Name
	}{
		"from baggage": {func(ctx context.Context) context.Context { return bag(ctx, t, "v-traffic-lane=green") }, "map[laneway.color:green laneway.lane:blue]", "green"},
		"has a color": {func(ctx context.Context) context.Context {
			return lane.With(bag(ctx, t, "v-traffic-lane=green"), "red")
		}, "map[laneway.color:red laneway.lane:blue]", "red"},
		"plain": {func(ctx context.Context) context.Context { return ctx }, "map[laneway.lane:blue]", ""},
	} {
		var from lane.Name
		h := laneotel.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { from = lane.From(r.Context()) }), "blue")
		got := traced(t, func(ctx context.Context) {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(tc.ctx(ctx), http.MethodGet, "/", http.NoBody))
		})
		if fmt.Sprint(got) != tc.want || from != tc.from {
			t.Errorf("%s: %v with color %q, want %s with %q", name, got, from, tc.want, tc.from)
		}
	}
}

// TestWithTransport: the span of a call says which lane served it, after a whole exchange.
func TestWithTransport(t *testing.T) {
	service := lanetest.NewService(t, "order", "O2", "green")
	dir := lanetest.NewDirectory([]lane.Lane{{Name: "green"}, {Name: "child", Parent: "green"}}, service.Routing())
	client := &http.Client{Transport: lanehttp.Transport(nil, dir, lanehttp.WithObserver(laneotel.Observe))}
	defer client.CloseIdleConnections()
	got := traced(t, func(ctx context.Context) {
		r, err := http.NewRequestWithContext(lane.With(ctx, "child"), http.MethodGet, "http://order/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	})
	if want := "map[laneway.color:child laneway.lane:green laneway.reason:parent]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
