package lanegrpc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
)

func TestRoutesByLane(t *testing.T) {
	t.Parallel()
	base, green, strict := start(t, "o1", ""), start(t, "o2", "green"), start(t, "o3", "strict-load")
	d := newDirectory()
	d.set(base, green, strict)
	client := dial(t, d)
	for color, want := range map[lane.Name]string{
		"":            "o1 ",
		"green":       "o2 green",
		"shade":       "o2 shade", // the parent's
		"lane-7":      "o1 lane-7",
		"never-heard": "o1 never-heard",
		"gone":        "o1 gone",
		"strict-load": "o3 strict-load",
	} {
		wantAnswer(t, lane.With(t.Context(), color), client, want)
	}
	d.set(base)
	wantAnswer(t, lane.With(t.Context(), "green"), client, "o1 green")
	wantAnswer(t, lane.With(t.Context(), "shade"), client, "o1 shade")
	for _, color := range []lane.Name{"strict-load", "strict-never"} {
		_, err := ask(lane.With(t.Context(), color), client, "")
		wantStatus(t, err, codes.Unavailable, "no instance of order in strict lane "+string(color))
	}
	d.set(green)
	_, err := ask(t.Context(), client, "")
	wantStatus(t, err, codes.Unavailable, "no instance of order in the baseline")
	wantAnswer(t, lane.With(t.Context(), "green"), client, "o2 green")
	for _, color := range []lane.Name{"green", "strict-never"} {
		if d.Uses(color) == 0 {
			t.Errorf("%s was used, and nobody noted it", color)
		}
	}
}

func TestProcessColor(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	d.SetProcess("green")
	d.set(start(t, "o1", ""), start(t, "o2", "green"))
	client := dial(t, d)
	wantAnswer(t, t.Context(), client, "o2 green")
	wantAnswer(t, lane.Plain(t.Context()), client, "o1 ")
	wantAnswer(t, lane.With(t.Context(), "lane-1"), client, "o1 lane-1")
}

func TestMetadata(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	d.set(start(t, "o1", ""))
	client := dial(t, d)
	for _, test := range []struct {
		color          lane.Name
		baggage, want  string
		wantColor, key string
	}{
		{color: "green", baggage: "user=%41;p=1, v-traffic-lane=old", want: "user=%41;p=1,v-traffic-lane=green", wantColor: "green"},
		{color: "", baggage: "user=7, v-traffic-lane=old", want: "user=7"},
		{color: "", baggage: "user=7", want: "user=7"},
		{color: "", key: lane.Header},
	} {
		ctx := lane.With(t.Context(), test.color)
		if test.baggage != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, lane.BaggageHeader, test.baggage)
		}
		if test.key != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, test.key, "old")
		}
		answer, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if answer.GetOauthScope() != test.want || answer.GetUsername() != test.wantColor {
			t.Errorf("%+v: baggage %q, color %q", test, answer.GetOauthScope(), answer.GetUsername())
		}
	}
}

func TestServerOptions(t *testing.T) {
	t.Parallel()
	trusting := start(t, "o1", "", lanegrpc.WithAliases("x-color"))
	wary := start(t, "o2", "", lanegrpc.WithTrust(func(ctx context.Context) bool {
		return len(metadata.ValueFromIncomingContext(ctx, "x-secret")) > 0
	}))
	for _, test := range []struct {
		server *server
		keys   []string
		want   string
	}{
		{trusting, []string{"x-color", "green"}, "green"},
		{trusting, []string{"x-color", "No Lane"}, ""},
		{trusting, []string{"x-color", "green", lane.Header, "shade"}, "shade"},
		{trusting, []string{"baggage", "v-traffic-lane=green"}, "green"},
		{wary, []string{lane.Header, "green"}, ""},
		{wary, []string{lane.Header, "green", "x-secret", "1"}, "green"},
	} {
		conn, err := grpc.NewClient(test.server.Endpoints[0].Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		ctx := metadata.AppendToOutgoingContext(t.Context(), test.keys...)
		got, err := ask(ctx, grpc_testing.NewTestServiceClient(conn), "")
		if err != nil || got != test.server.Name+" "+test.want {
			t.Errorf("%s with %v: %q %v, want color %q", test.server.Name, test.keys, got, err, test.want)
		}
	}
}

// TestExplain has order call order: the lines of a call and of those that it causes.
func TestExplain(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	front, back := start(t, "o1", ""), start(t, "o2", "green")
	d.set(front, back)
	client := dial(t, d)
	front.next = func(ctx context.Context) error {
		_, err := client.UnaryCall(lane.With(ctx, "green"), &grpc_testing.SimpleRequest{})
		return err
	}
	want := []string{
		"service=order lane=- instance=o1 rule=trusted reason=baseline-fallback",
		"service=order lane=green instance=o2 rule=trusted reason=lane-instance",
	}
	asking := metadata.AppendToOutgoingContext(lane.With(t.Context(), "lane-3"), lane.ExplainHeader, "1")

	var trailer metadata.MD
	if _, err := client.UnaryCall(asking, &grpc_testing.SimpleRequest{}, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if got := trailer[lane.RouteHeader]; !slices.Equal(got, want) {
		t.Errorf("unary:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	stream, err := client.FullDuplexCall(asking)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("got %v, want the end", err)
	}
	if got := stream.Trailer()[lane.RouteHeader]; !slices.Equal(got, want) {
		t.Errorf("stream:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	traced, trail := lane.WithTrail(lane.With(t.Context(), "lane-3"))
	if _, err := client.UnaryCall(traced, &grpc_testing.SimpleRequest{}); err != nil {
		t.Fatal(err)
	}
	if got := trail.Lines(); !slices.Equal(got, want) {
		t.Errorf("trail:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	trailer = nil
	if _, err := client.UnaryCall(t.Context(), &grpc_testing.SimpleRequest{}, grpc.Trailer(&trailer)); err != nil {
		t.Fatal(err)
	}
	if got := trailer[lane.RouteHeader]; got != nil {
		t.Errorf("a call that did not ask got %v", got)
	}
}

func TestOwnRoomFirst(t *testing.T) {
	t.Parallel()
	near, far := start(t, "o2", ""), start(t, "o1", "")
	far.Room = "east"
	d := newDirectory()
	d.set(near, far)
	client := dial(t, d)
	for range 20 {
		wantAnswer(t, t.Context(), client, "o2 ")
	}
	if n := far.listener.accepted.Load(); n != 0 {
		t.Errorf("%d connections to the other room, want none", n)
	}
	near.grpc.Stop()
	until(t, "the other room serves", func() bool {
		got, err := ask(t.Context(), client, "")
		return err == nil && got == "o1 "
	})
}

// TestNeed holds back what the directory knows: calls wait for it.
func TestNeed(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	d.needed = make(chan struct{})
	s := start(t, "o1", "")
	client := dial(t, d)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := client.UnaryCall(short, &grpc_testing.SimpleRequest{})
	wantStatus(t, err, codes.DeadlineExceeded, "")
	answered := make(chan error, 1)
	go func() {
		_, err := ask(context.Background(), client, "")
		answered <- err
	}()
	d.set(s)
	close(d.needed)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestTargets(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"lane:///Order", "lane:///", "lane:///a/b", "lane:///a--b"} {
		conn, err := grpc.NewClient(target, append(lanegrpc.DialOptions(newDirectory()), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = ask(t.Context(), grpc_testing.NewTestServiceClient(conn), "")
		wantStatus(t, err, codes.Unavailable, "want lane:///SERVICE")
		conn.Close()
	}
}
