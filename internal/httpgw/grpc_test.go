package httpgw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/laneway-dev/laneway/internal/httpgw"
	"github.com/laneway-dev/laneway/lane"
)

// grpcService tells which instance it is and what color it got.
type grpcService struct {
	testpb.UnimplementedTestServiceServer
	name string
}

func payload(s string) *testpb.Payload { return &testpb.Payload{Body: []byte(s)} }

func (s *grpcService) UnaryCall(ctx context.Context, in *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", "h"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "t", "x-bin-bin", "\x00\x01"))
	if md.Get("x-laneway-explain") != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("x-laneway-route", "service=next lane=- instance=N1 rule=- reason=plain"))
	}
	if in.GetResponseStatus().GetCode() != 0 {
		return nil, status.Error(codes.Code(in.GetResponseStatus().GetCode()), in.GetResponseStatus().GetMessage())
	}
	if len(in.GetPayload().GetBody()) > 1000 {
		return &testpb.SimpleResponse{Payload: in.GetPayload()}, nil
	}
	return &testpb.SimpleResponse{Payload: payload(s.name + " " + strings.Join(md.Get(lane.Header), ","))}, nil
}

func (s *grpcService) StreamingOutputCall(in *testpb.StreamingOutputCallRequest, out testpb.TestService_StreamingOutputCallServer) error {
	for n := range in.GetResponseParameters() {
		if err := out.Send(&testpb.StreamingOutputCallResponse{Payload: payload(fmt.Sprint(s.name, n))}); err != nil {
			return err
		}
	}
	return status.Error(codes.Aborted, "50 % done\nän")
}

func (s *grpcService) FullDuplexCall(stream testpb.TestService_FullDuplexCallServer) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testpb.StreamingOutputCallResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

// serveGRPC starts an instance of service order.
func (w *world) serveGRPC(name string, in lane.Name) *grpc.Server {
	w.t.Helper()
	l := listen(w.t)
	s := grpc.NewServer()
	testpb.RegisterTestServiceServer(s, &grpcService{name: name})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	w.t.Cleanup(func() {
		s.Stop()
		<-done
	})
	w.instance("order", name, in, lane.GRPC, l.Addr().String())
	return s
}

// grpcClient calls a host through a listener.
func (w *world) grpcClient(listener, host string) testpb.TestServiceClient {
	w.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+host, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", listener)
		}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = conn.Close() })
	return testpb.NewTestServiceClient(conn)
}

// openStream opens a stream of service order through the inside, on which one message has
// come back.
func (w *world) openStream() testpb.TestService_FullDuplexCallClient {
	w.t.Helper()
	s, err := w.grpcClient(w.inside, "order").FullDuplexCall(callContext(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	_ = s.Send(&testpb.StreamingOutputCallRequest{Payload: payload("x")})
	if _, err := s.Recv(); err != nil {
		w.t.Fatal(err)
	}
	return s
}

func callContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.lane("green")
	w.serveGRPC("O1", "")
	w.serveGRPC("O2", "green")
	c := w.grpcClient(w.inside, "order")
	ctx := callContext(t)
	colored := metadata.AppendToOutgoingContext(ctx, lane.Header, "green")

	t.Run("unary", func(t *testing.T) {
		for want, ctx := range map[string]context.Context{"O1 ": ctx, "O2 green": colored} {
			var head, tail metadata.MD
			out, err := c.UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&head), grpc.Trailer(&tail))
			if err != nil || string(out.GetPayload().GetBody()) != want {
				t.Fatalf("got %v, %v, want %s", out, err, want)
			}
			if fmt.Sprint(head["x-head"], tail["x-tail"], tail["x-bin-bin"]) != "[h] [t] [\x00\x01]" {
				t.Errorf("head %v, tail %v", head, tail)
			}
			if len(head["x-laneway-route"])+len(tail["x-laneway-route"]) > 0 {
				t.Error("a route that nobody asked for")
			}
		}
	})
	t.Run("large", func(t *testing.T) {
		in := strings.Repeat("x", 3_000_000)
		out, err := c.UnaryCall(ctx, &testpb.SimpleRequest{Payload: payload(in)})
		if err != nil || string(out.GetPayload().GetBody()) != in {
			t.Fatalf("%d bytes came back, %v", len(out.GetPayload().GetBody()), err)
		}
	})
	t.Run("status", func(t *testing.T) {
		_, err := c.UnaryCall(ctx, &testpb.SimpleRequest{ResponseStatus: &testpb.EchoStatus{Code: 9, Message: "no: 100 % ä"}})
		if s := status.Convert(err); s.Code() != codes.FailedPrecondition || s.Message() != "no: 100 % ä" {
			t.Errorf("got %v", err)
		}
		_, err = c.EmptyCall(ctx, &testpb.Empty{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("got %v", err)
		}
	})
	t.Run("server stream", func(t *testing.T) {
		s, err := c.StreamingOutputCall(colored, &testpb.StreamingOutputCallRequest{ResponseParameters: make([]*testpb.ResponseParameters, 3)})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			if m, err := s.Recv(); err != nil || string(m.GetPayload().GetBody()) != fmt.Sprint("O2", n) {
				t.Fatalf("got %v, %v", m, err)
			}
		}
		if _, err := s.Recv(); status.Code(err) != codes.Aborted || status.Convert(err).Message() != "50 % done\nän" {
			t.Errorf("got %v", err)
		}
	})
	t.Run("bidi", func(t *testing.T) {
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for n := range 20 {
			want := fmt.Sprint("message ", n)
			if err := s.Send(&testpb.StreamingOutputCallRequest{Payload: payload(want)}); err != nil {
				t.Fatal(err)
			}
			if m, err := s.Recv(); err != nil || string(m.GetPayload().GetBody()) != want {
				t.Fatalf("got %v, %v", m, err)
			}
		}
		_ = s.CloseSend()
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("cancel", func(t *testing.T) {
		ctx, cancel := context.WithCancel(ctx)
		s, err := c.FullDuplexCall(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = s.Send(&testpb.StreamingOutputCallRequest{Payload: payload("x")})
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := s.Recv(); status.Code(err) != codes.Canceled {
			t.Errorf("got %v", err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		s, err := c.FullDuplexCall(ctx)
		if err == nil {
			_, err = s.Recv()
		}
		if status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
	})
}

func TestGRPCErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serveGRPC("O1", "")
	w.serve("web", "W1", "", echo("W1"))
	w.instance("dead", "D1", "", lane.GRPC, "127.0.0.1:1")
	ctx := callContext(t)
	for _, c := range []struct {
		host string
		ctx  context.Context
		code codes.Code
		text string
	}{
		{"order", metadata.AppendToOutgoingContext(ctx, lane.Header, "strict-load"), codes.Unavailable, "no instance of order in strict lane strict-load"},
		{"web", ctx, codes.Unavailable, "no instance of web in the baseline"},
		{"nobody", ctx, codes.Unimplemented, `no route and no service for host "nobody"`},
		{"dead", ctx, codes.Unavailable, "instance D1 of dead in the baseline cannot be reached"},
	} {
		_, err := w.grpcClient(w.inside, c.host).UnaryCall(c.ctx, &testpb.SimpleRequest{})
		if status.Code(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v", c.host, err)
		}
	}
}

func TestGRPCExplain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *httpgw.Config) { c.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")} })
	w.lane("green")
	w.serveGRPC("O1", "")
	ctx := metadata.AppendToOutgoingContext(callContext(t), lane.Header, "green", lane.ExplainHeader, "1")
	own := "service=order lane=- instance=O1 rule=trusted reason=baseline-fallback"
	for name, listener := range map[string]string{"order": w.inside, "order.lane.localhost": w.edge} {
		var head, tail metadata.MD
		if _, err := w.grpcClient(listener, name).UnaryCall(ctx, &testpb.SimpleRequest{}, grpc.Header(&head), grpc.Trailer(&tail)); err != nil {
			t.Fatal(err)
		}
		got := append(head["x-laneway-route"], tail["x-laneway-route"]...)
		if want := own + "|service=next lane=- instance=N1 rule=- reason=plain"; strings.Join(got, "|") != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	// An answer that is trailers only.
	var head, tail metadata.MD
	_, err := w.grpcClient(w.inside, "order").EmptyCall(ctx, &testpb.Empty{}, grpc.Header(&head), grpc.Trailer(&tail))
	if got := append(head["x-laneway-route"], tail["x-laneway-route"]...); status.Code(err) != codes.Unimplemented || strings.Join(got, "|") != own {
		t.Errorf("got %q, %v", got, err)
	}
	// One of the gateway itself.
	head, tail = nil, nil
	ctx = metadata.AppendToOutgoingContext(callContext(t), lane.Header, "strict-x", lane.ExplainHeader, "1")
	_, err = w.grpcClient(w.inside, "order").EmptyCall(ctx, &testpb.Empty{}, grpc.Header(&head), grpc.Trailer(&tail))
	want := "service=order lane=- instance=- rule=trusted reason=strict-none"
	if got := append(head["x-laneway-route"], tail["x-laneway-route"]...); status.Code(err) != codes.Unavailable || strings.Join(got, "|") != want {
		t.Errorf("got %q, %v", got, err)
	}
}

// A server that dies in the middle of a stream gives a status, not a reset.
func TestGRPCUpstreamDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	server := w.serveGRPC("O1", "")
	s := w.openStream()
	go server.Stop()
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "O1 of order broke off") {
		t.Errorf("got %v", err)
	}
}

// gRPC over HTTP/1.1 cannot be, and grpc-web is for http endpoints.
func TestNotQuiteGRPC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.serve("web", "W1", "", echo("W1"))
	for _, kind := range []string{"application/grpc-web+proto", "application/grpcx"} {
		req := request(t, http.MethodPost, "http://"+w.inside+"/x", "web", strings.NewReader("x"))
		req.Header.Set("Content-Type", kind)
		if resp, body := w.doWith(w.h2c(), req); resp.StatusCode != http.StatusOK || body != "W1 " {
			t.Errorf("%s: got %d %q", kind, resp.StatusCode, body)
		}
	}
}
