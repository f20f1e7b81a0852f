package lanegrpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// patience is how long a test waits for what must happen.
const patience = 10 * time.Second

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }

// until polls a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// directory is a lane.Directory whose picture a test sets.
type directory struct {
	*lanetest.Directory

	needed chan struct{} // Need waits for it to be closed; nil: not at all
}

func newDirectory() *directory { return &directory{Directory: &lanetest.Directory{}} }

func (d *directory) Need(ctx context.Context, service string) error {
	if d.needed != nil {
		select {
		case <-d.needed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return d.Directory.Need(ctx, service)
}

// knownLanes are those of every snapshot that set makes.
func knownLanes() []lane.Lane {
	lanes := []lane.Lane{
		{Name: "green", Generation: 1, State: lane.Ready},
		{Name: "shade", Parent: "green", Generation: 1, State: lane.Ready},
		{Name: "gone", Generation: 1, State: lane.Ended},
		{Name: "strict-load", Generation: 1, State: lane.Ready},
	}
	for i := range 200 {
		lanes = append(lanes, lane.Lane{Name: numbered(i), Generation: 1, State: lane.Ready})
	}
	return lanes
}

func numbered(i int) lane.Name { return lane.Name(fmt.Sprintf("lane-%d", i)) }

func (d *directory) set(servers ...*server) {
	in := lane.Input{Room: "west", Lanes: knownLanes(), Services: []string{"order"}}
	for _, s := range servers {
		in.Instances = append(in.Instances, s.Instance)
	}
	d.SetInput(in)
}

// server is an instance of service order. It answers with its own name and the color
// that it saw.
type server struct {
	grpc_testing.UnimplementedTestServiceServer
	*lane.Instance
	grpc     *grpc.Server
	listener *countingListener
	next     func(ctx context.Context) error // a handler's own call; may be nil
	hold     chan struct{}                   // a call with body "hold" waits for it
	holding  chan struct{}                   // gets a value when such a call has begun
}

// countingListener counts the connections that were made to it.
type countingListener struct {
	net.Listener
	accepted atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted.Add(1)
	}
	return c, err
}

// start runs an instance until the test ends.
func start(t testing.TB, name string, in lane.Name, options ...lanegrpc.ServerOption) *server {
	t.Helper()
	s := &server{hold: make(chan struct{}), holding: make(chan struct{}, 100), Instance: &lane.Instance{
		Service: "order", Name: name, Lane: in, Room: "west", State: lane.Ready,
	}}
	if in != lane.Baseline {
		s.Generation = 1
	}
	s.listen(t, "127.0.0.1:0", options...)
	t.Cleanup(func() { s.grpc.Stop() })
	return s
}

func (s *server) listen(t testing.TB, address string, options ...lanegrpc.ServerOption) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	s.listener = &countingListener{Listener: listener}
	s.Endpoints = []lane.Endpoint{{Protocol: lane.GRPC, Address: listener.Addr().String()}}
	s.grpc = grpc.NewServer(lanegrpc.ServerOptions(options...)...)
	grpc_testing.RegisterTestServiceServer(s.grpc, s)
	serving := s.grpc
	go func() { _ = serving.Serve(s.listener) }()
}

func (s *server) UnaryCall(ctx context.Context, in *grpc_testing.SimpleRequest) (*grpc_testing.SimpleResponse, error) {
	switch string(in.GetPayload().GetBody()) {
	case "hold":
		s.holding <- struct{}{}
		select {
		case <-s.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	case "unavailable":
		return nil, status.Error(codes.Unavailable, "asked to")
	case "internal":
		return nil, status.Error(codes.Internal, "asked to")
	}
	if s.next != nil {
		if err := s.next(ctx); err != nil {
			return nil, err
		}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	return &grpc_testing.SimpleResponse{
		ServerId: s.Name, Username: string(lane.From(ctx)), OauthScope: strings.Join(md[lane.BaggageHeader], "|"),
	}, nil
}

// FullDuplexCall echoes, each answer with the name of the instance.
func (s *server) FullDuplexCall(stream grpc.BidiStreamingServer[grpc_testing.StreamingOutputCallRequest, grpc_testing.StreamingOutputCallResponse]) error {
	if s.next != nil {
		if err := s.next(stream.Context()); err != nil {
			return err
		}
	}
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		body := s.Name + " " + string(lane.From(stream.Context()))
		if err := stream.Send(&grpc_testing.StreamingOutputCallResponse{Payload: &grpc_testing.Payload{Body: []byte(body)}}); err != nil {
			return err
		}
	}
}

// dial connects to service order as d describes it.
func dial(t testing.TB, d *directory, options ...lanegrpc.Option) grpc_testing.TestServiceClient {
	t.Helper()
	conn := connect(t, d, options...)
	t.Cleanup(func() { conn.Close() })
	return grpc_testing.NewTestServiceClient(conn)
}

func connect(t testing.TB, d *directory, options ...lanegrpc.Option) *grpc.ClientConn {
	t.Helper()
	all := append(lanegrpc.DialOptions(d, options...), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("lane:///order", all...)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// ask makes a call and returns "instance color", or the error.
func ask(ctx context.Context, client grpc_testing.TestServiceClient, body string, options ...grpc.CallOption) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := client.UnaryCall(ctx, &grpc_testing.SimpleRequest{Payload: &grpc_testing.Payload{Body: []byte(body)}}, options...)
	if err != nil {
		return "", err
	}
	return answer.GetServerId() + " " + answer.GetUsername(), nil
}

func wantAnswer(t *testing.T, ctx context.Context, client grpc_testing.TestServiceClient, want string) { //nolint:revive // t comes first here
	t.Helper()
	if got, err := ask(ctx, client, ""); err != nil || got != want {
		t.Errorf("color %q: got %q, %v; want %q", lane.From(ctx), got, err, want)
	}
}

func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("got %v, want %v with %q", err, code, text)
	}
}
