package lanegrpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop/grpc_testing"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
)

type duplex = grpc.BidiStreamingClient[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]

func open(t *testing.T, ctx context.Context, client grpc_testing.TestServiceClient) duplex { //nolint:revive // t comes first here
	t.Helper()
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// talk sends and reads one message.
func talk(t *testing.T, stream duplex, want string) {
	t.Helper()
	if err := stream.Send(&grpc_testing.StreamingOutputCallRequest{}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(answer.GetPayload().GetBody()); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestStreamKeepsItsInstance through joins, a leave and a drain, and not longer.
func TestStreamKeepsItsInstance(t *testing.T) {
	t.Parallel()
	const drain = 300 * time.Millisecond
	d := newDirectory()
	base, green := start(t, "o1", ""), start(t, "o2", "green")
	d.set(base, green)
	client := dial(t, d, lanegrpc.WithDrain(drain))
	ctx := lane.With(t.Context(), "green")
	stream := open(t, ctx, client)
	talk(t, stream, "o2 green")
	d.set(base, green, start(t, "o3", "green"))
	talk(t, stream, "o2 green")

	left := time.Now()
	d.set(base)
	talk(t, stream, "o2 green")
	wantAnswer(t, ctx, client, "o1 green")
	_, err := stream.Recv()
	if took := time.Since(left); took < drain {
		t.Errorf("ended after %v, before its drain of %v", took, drain)
	}
	wantStatus(t, err, codes.Unavailable, "instance o2 of order in lane green has left")
	err = stream.Send(&grpc_testing.StreamingOutputCallRequest{})
	wantStatus(t, err, codes.Unavailable, "instance o2 of order in lane green has left")
	talk(t, open(t, ctx, client), "o1 green")
}

func TestStreamEndsWithinItsDrain(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base, green := start(t, "o1", ""), start(t, "o2", "green")
	d.set(base, green)
	client := dial(t, d)
	stream := open(t, lane.With(t.Context(), "green"), client)
	talk(t, stream, "o2 green")
	d.set(base)
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the stream's own end", err)
	}
}

func TestNoDrain(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base := start(t, "o1", "")
	d.set(base)
	client := dial(t, d, lanegrpc.WithDrain(0))
	stream := open(t, t.Context(), client)
	talk(t, stream, "o1 ")
	d.set()
	_, err := stream.Recv()
	wantStatus(t, err, codes.Unavailable, "instance o1 of order in the baseline has left")
}

// TestInstanceComesBack: the same name and address again is a new connection, and the
// old one's drain does not touch it.
func TestInstanceComesBack(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	base := start(t, "o1", "")
	d.set(base)
	client := dial(t, d, lanegrpc.WithDrain(50*time.Millisecond))
	old := open(t, t.Context(), client)
	talk(t, old, "o1 ")
	d.set()
	d.set(base)
	fresh := open(t, t.Context(), client)
	talk(t, fresh, "o1 ")
	_, err := old.Recv()
	wantStatus(t, err, codes.Unavailable, "has left")
	talk(t, fresh, "o1 ")
}

// TestStreamCanceled is the user's own end of it.
func TestStreamCanceled(t *testing.T) {
	t.Parallel()
	d := newDirectory()
	d.set(start(t, "o1", ""))
	client := dial(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	stream := open(t, ctx, client)
	talk(t, stream, "o1 ")
	cancel()
	_, err := stream.Recv()
	wantStatus(t, err, codes.Canceled, "")
}
