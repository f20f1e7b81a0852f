package lanegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
)

// tagging is a stats handler that marks the context of each attempt, as tracing does with
// its span.
type tagging struct{}

type tagKey struct{}

func (tagging) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, tagKey{}, info.FullMethodName)
}
func (tagging) HandleRPC(context.Context, stats.RPCStats) {}
func (tagging) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return ctx
}
func (tagging) HandleConn(context.Context, stats.ConnStats) {}

// TestObserver is told of who got each call, in the context that a tracer has marked, and
// not of calls that nobody gets or of an instance that cannot be reached.
func TestObserver(t *testing.T) {
	t.Parallel()
	dead := start(t, "o9", "green")
	dead.grpc.Stop()
	d := newDirectory()
	d.set(start(t, "o1", ""), start(t, "o2", "green"), dead)

	type callerKey struct{}
	var mu sync.Mutex
	var seen []string // guarded by mu
	observe := func(ctx context.Context, c lane.Choice, target *lane.Target) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprint(ctx.Value(callerKey{}), " ", ctx.Value(tagKey{}), " ", c.Color, " ", c.Lane, " ", c.Reason, " ", target.Name))
	}
	take := func() []string {
		mu.Lock()
		defer mu.Unlock()
		defer func() { seen = nil }()
		return seen
	}
	conn, err := grpc.NewClient("lane:///order", append(lanegrpc.DialOptions(d, lanegrpc.WithObserver(observe)),
		grpc.WithStatsHandler(tagging{}), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	client := grpc_testing.NewTestServiceClient(conn)
	mine := context.WithValue(t.Context(), callerKey{}, "mine")

	wantAnswer(t, mine, client, "o1 ")
	if got, want := take(), []string{"mine /grpc.testing.TestService/UnaryCall   plain o1"}; !slices.Equal(got, want) {
		t.Errorf("plain: seen %q, want %q", got, want)
	}
	for range 4 { // some of them are given to the dead one first
		wantAnswer(t, lane.With(mine, "shade"), client, "o2 shade")
	}
	want := slices.Repeat([]string{"mine /grpc.testing.TestService/UnaryCall shade green parent o2"}, 4)
	if got := take(); !slices.Equal(got, want) {
		t.Errorf("colored: seen %q, want %q", got, want)
	}
	stream, err := client.FullDuplexCall(lane.With(mine, "green"))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want the end", err)
	}
	if got, want := take(), []string{"mine /grpc.testing.TestService/FullDuplexCall green green lane-instance o2"}; !slices.Equal(got, want) {
		t.Errorf("stream: seen %q, want %q", got, want)
	}
	if _, err := ask(lane.With(mine, "strict-load"), client, ""); err == nil {
		t.Error("a call was answered that nobody may serve")
	}
	if got := take(); got != nil {
		t.Errorf("nobody: seen %q", got)
	}
}

// forger is a server that sends route lines of its own, asked or not.
type forger struct {
	grpc_testing.UnimplementedTestServiceServer
	lines []string
}

func (f *forger) UnaryCall(ctx context.Context, _ *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	return &grpc_testing.SimpleResponse{}, grpc.SetTrailer(ctx, metadata.MD{lane.RouteHeader: f.lines, "kept": {"yes"}})
}

func (f *forger) FullDuplexCall(stream grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	stream.SetTrailer(metadata.MD{lane.RouteHeader: f.lines, "kept": {"yes"}})
	return nil
}

// TestLinesOfAPeer has an instance send route lines of its own: nothing but hops comes
// through, a bounded number of them, and only to who asked.
func TestLinesOfAPeer(t *testing.T) {
	t.Parallel()
	const hop = "service=cart lane=- instance=c1 rule=- reason=plain"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peer := grpc.NewServer()
	grpc_testing.RegisterTestServiceServer(peer, &forger{lines: append([]string{"not a hop", hop + " extra=1"}, slices.Repeat([]string{hop}, 100)...)})
	go func() { _ = peer.Serve(listener) }()
	t.Cleanup(peer.Stop)
	d := newDirectory()
	d.SetInput(lane.Input{Instances: []*lane.Instance{{
		Service: "order", Name: "o1", State: lane.Ready,
		Endpoints: []lane.Endpoint{{Protocol: lane.GRPC, Address: listener.Addr().String()}},
	}}})
	client := dial(t, d)

	calls := map[string]func(ctx context.Context) (metadata.MD, error){
		"unary": func(ctx context.Context) (trailer metadata.MD, err error) {
			_, err = client.UnaryCall(ctx, &grpc_testing.SimpleRequest{}, grpc.Trailer(&trailer))
			return trailer, err
		},
		"stream": func(ctx context.Context) (metadata.MD, error) {
			stream, err := client.FullDuplexCall(ctx)
			if err != nil {
				return nil, err
			}
			if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
				return nil, err
			}
			return stream.Trailer(), nil
		},
	}
	for name, call := range calls {
		ask := func(ctx context.Context) []string {
			trailer, err := call(ctx)
			if err != nil || !slices.Equal(trailer["kept"], []string{"yes"}) {
				t.Fatalf("%s: %v with %v", name, err, trailer)
			}
			return trailer[lane.RouteHeader]
		}
		got := ask(metadata.AppendToOutgoingContext(t.Context(), lane.ExplainHeader, "1"))
		if len(got) != lane.MaxTrailHops || got[1] != hop {
			t.Errorf("%s: %d lines, the second %q", name, len(got), got[min(1, len(got)):min(2, len(got))])
		}
		if got := ask(t.Context()); got != nil {
			t.Errorf("%s: nobody asked, and got %d lines", name, len(got))
		}
		ctx, trail := lane.WithTrail(t.Context())
		if got := ask(ctx); got != nil || len(trail.Lines()) != lane.MaxTrailHops || trail.Lines()[1] != hop {
			t.Errorf("%s: %d lines beside %d of the trail", name, len(got), len(trail.Lines()))
		}
	}
}
