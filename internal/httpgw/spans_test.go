package httpgw_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
)

// traced is a world whose spans are at hand.
type traced struct {
	*world
	ended *tracetest.SpanRecorder
}

func newTraced(t *testing.T, options ...sdktrace.TracerProviderOption) *traced {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(append(options, sdktrace.WithSpanProcessor(recorder))...)
	w := newWorld(t, func(c *httpgw.Config) { c.Tracer = provider })
	w.lane("green")
	return &traced{w, recorder}
}

// spans ends the gateway and gives all spans: one may end after its answer has been read.
func (w *traced) spans() []sdktrace.ReadOnlySpan {
	w.t.Helper()
	if err := w.stop(); err != nil {
		w.t.Error(err)
	}
	return w.ended.Ended()
}

// about is what a span says of lanes, and its status.
func about(s sdktrace.ReadOnlySpan) string {
	out := s.Name()
	for _, kv := range s.Attributes() {
		switch key := string(kv.Key); key {
		case "laneway.color", "laneway.lane", "laneway.reason", "http.response.status_code", "error.type", "http.request.resend_count":
			out += fmt.Sprintf(" %s=%s", key[strings.LastIndexByte(key, '.')+1:], kv.Value.String())
		}
	}
	return out
}

// The span of a request says which lane served and why.
func TestSpansTellOfLanes(t *testing.T) {
	t.Parallel()
	w := newTraced(t)
	w.serve("api", "A1", "", echo("A1"))
	w.serve("api", "A2", "green", echo("A2"))
	w.serve("pay", "P1", "", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	w.serveRaw("bad", "B1", func(_ net.Conn, in *bufio.Reader) { _, _ = http.ReadRequest(in) })
	w.serveRaw("half", "H1", func(conn net.Conn, in *bufio.Reader) {
		_, _ = http.ReadRequest(in)
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
	})
	w.instance("gone", "G1", "", lane.HTTP, "127.0.0.1:1")
	w.instance("gone", "G2", "", lane.HTTP, "127.0.0.1:1")
	cases := []struct{ method, host, want string }{
		{"GET", "api.lane.localhost", "GET api lane= reason=plain status_code=200"},
		{"POST", "green--api.lane.localhost", "POST api color=green lane=green reason=lane-instance status_code=200"},
		{"GET", "green--pay.lane.localhost", "GET pay color=green lane= reason=baseline-fallback status_code=418"},
		{"GET", "nobody--api.lane.localhost", "GET api color=nobody lane= reason=unknown-color status_code=200"},
		{"GET", "strict-load--api.lane.localhost", "GET api color=strict-load reason=strict-none status_code=503 type=503"},
		{"BREW", "api.lane.localhost", "HTTP api lane= reason=plain status_code=200"},
		{"POST", "bad.lane.localhost", "POST bad lane= reason=plain status_code=502 type=502"},
		{"GET", "gone.lane.localhost", "GET gone lane= reason=plain resend_count=1 status_code=502 type=502"},
		{"GET", "half.lane.localhost", "GET half lane= reason=plain status_code=200 type=broken_off"},
		{"GET", "unknown.lane.localhost", ""}, // routed nowhere
	}
	var want []string
	for _, c := range cases {
		req := request(t, c.method, "http://"+w.edge+"/x?secret=1", c.host, nil)
		resp, err := w.client().Do(req)
		switch {
		case err == nil:
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		case !strings.HasPrefix(c.host, "half"): // whose end is the client's error
			t.Fatal(c.host, err)
		}
		if c.want != "" {
			want = append(want, c.want)
		}
	}
	var got []string
	for _, s := range w.spans() {
		got = append(got, about(s))
		if failed := strings.Contains(about(s), " type="); failed != (s.Status().Code == codes.Error) || failed && s.Status().Description == "" {
			t.Errorf("%s: status %v", about(s), s.Status())
		}
		if s.SpanKind() != trace.SpanKindServer || s.Parent().IsValid() {
			t.Errorf("%s: kind %v, parent %v", about(s), s.SpanKind(), s.Parent())
		}
		if strings.Contains(fmt.Sprint(s.Attributes()), "secret") {
			t.Errorf("%s tells of the query: %v", about(s), s.Attributes())
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

const (
	callerTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan  = "00f067aa0ba902b7"
	parent      = "00-" + callerTrace + "-" + callerSpan + "-01"
)

// The instance is told of the gateway's span, which is below the caller's.
func TestSpansAreJoined(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		headers []string
		joins   bool
		sampled bool
		state   string
	}{
		"none":             {nil, false, true, ""},
		"sampled":          {[]string{"traceparent: " + parent, "tracestate: a=1", "tracestate: b=2"}, true, true, "a=1,b=2"},
		"not sampled":      {[]string{"traceparent: " + strings.TrimSuffix(parent, "1") + "0", "tracestate: a=1"}, true, false, "a=1"},
		"malformed":        {[]string{"traceparent: 00-zz", "tracestate: a=1"}, false, true, ""},
		"two":              {[]string{"traceparent: " + parent, "traceparent: " + parent, "tracestate: a=1"}, false, true, ""},
		"state alone":      {[]string{"tracestate: a=1"}, false, true, ""},
		"other baggage":    {[]string{"traceparent: " + parent, "baggage: x=1"}, true, true, ""},
		"in upper case":    {[]string{"TRACEPARENT: " + parent}, true, true, ""},
		"malformed state":  {[]string{"traceparent: " + parent, "tracestate: ,=,"}, true, true, ""},
		"a future version": {[]string{"traceparent: 01-" + callerTrace + "-" + callerSpan + "-01-more"}, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTraced(t, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
			w.serve("api", "A1", "", http.HandlerFunc(headersOf))
			_, body := w.get(w.inside, "api", "/", c.headers...)
			got := headers(t, body)
			spans := w.spans()
			if len(spans) == 1 != c.sampled {
				t.Fatalf("%d spans", len(spans))
			}
			fields := strings.Split(got.Get("Traceparent"), "-")
			if len(fields) != 4 || len(got["Traceparent"]) != 1 || fields[2] == callerSpan || (fields[1] == callerTrace) != c.joins || (fields[3] == "01") != c.sampled {
				t.Fatalf("the instance got %q", got["Traceparent"])
			}
			if strings.Join(got["Tracestate"], ",") != c.state || strings.Contains(name, "baggage") && got.Get("Baggage") != "x=1" {
				t.Errorf("the instance got %v", got)
			}
			if !c.sampled {
				return
			}
			own := spans[0].SpanContext()
			if own.TraceID().String() != fields[1] || own.SpanID().String() != fields[2] || (spans[0].Parent().SpanID().String() == callerSpan) != c.joins {
				t.Errorf("the instance got %q; the span is %v below %v", got["Traceparent"], own, spans[0].Parent())
			}
		})
	}
}

// gRPC and tunnels have spans too; what is nobody's here has none, and its trace context is
// left alone.
func TestSpansOfOtherProtocols(t *testing.T) {
	t.Parallel()
	w := newTraced(t)
	w.serveGRPC("O2", "green")
	ctx := metadata.AppendToOutgoingContext(callContext(t), "v-traffic-lane", "green", "traceparent", parent)
	var head metadata.MD
	if _, err := w.grpcClient(w.inside, "order").UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&head)); err != nil {
		t.Fatal(err)
	}
	third := httptest.NewServer(http.HandlerFunc(headersOf))
	t.Cleanup(third.Close)
	req := withHeaders(request(t, http.MethodGet, third.URL, "", nil), "traceparent", parent)
	if _, body := w.doWith(w.proxied(), req); headers(t, body).Get("Traceparent") != parent {
		t.Errorf("a third party got %s", body)
	}
	w.serve("api", "A1", "", echo("A1"))
	conn := w.dial(w.inside)
	conn.send("CONNECT api:80 HTTP/1.1\r\nHost: api:80\r\n\r\n")
	if got := conn.line(); got != "HTTP/1.1 200 Connection established" {
		t.Fatal(got)
	}
	_ = conn.Close()
	spans := w.spans()
	var got []string
	for _, s := range spans {
		got = append(got, about(s))
	}
	slices.Sort(got)
	if want := []string{
		"CONNECT api lane= reason=plain status_code=200",
		"POST order color=green lane=green reason=lane-instance status_code=200",
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Without a tracer trace context passes byte for byte, whatever it is.
func TestTraceContextPasses(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("api", "A1", "", http.HandlerFunc(headersOf))
	_, body := w.get(w.edge, "api.lane.localhost", "/", "traceparent: "+parent, "tracestate: a=1", "tracestate: b=2")
	got := headers(t, body)
	if !slices.Equal(got["Traceparent"], []string{parent}) || !slices.Equal(got["Tracestate"], []string{"a=1", "b=2"}) {
		t.Errorf("got %v", got)
	}
}
