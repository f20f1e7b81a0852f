// Command grpc is two services: "hello" greets over gRPC, "front" speaks HTTP, calls
// hello and passes on what it says. Run each by `laneway run`; see README.md.
package main

//go:generate protoc -I hellopb hello.proto --go_out=hellopb --go_opt=paths=source_relative --go-grpc_out=hellopb --go-grpc_opt=paths=source_relative

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/laneway-dev/laneway/examples/grpc/hellopb"
	"github.com/laneway-dev/laneway/integrations/lanegrpc"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) (err error) {
	// Who this is and where the control plane is, `laneway run` has put into the
	// environment.
	lc, err := laneclient.Dial(ctx, laneclient.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lc.Close()) }()

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "hello":
		return serveHello(ctx, listener)
	case len(args) == 1 && args[0] == "front":
		return serveFront(ctx, listener, lc)
	default:
		return errors.New("usage: grpc hello|front")
	}
}

type hello struct {
	hellopb.UnimplementedHelloServer
}

func (hello) Greet(ctx context.Context, in *hellopb.GreetRequest) (*hellopb.GreetReply, error) {
	return &hellopb.GreetReply{Text: fmt.Sprintf("hello %s from %s, call of color %q",
		in.GetName(), os.Getenv("LANEWAY_INSTANCE"), lane.From(ctx))}, nil
}

func serveHello(ctx context.Context, listener net.Listener) error {
	// The options take the color of calls into their contexts.
	//nolint:contextcheck // calls have contexts of their own
	server := grpc.NewServer(lanegrpc.ServerOptions()...)
	hellopb.RegisterHelloServer(server, hello{})
	go func() {
		<-ctx.Done()
		server.GracefulStop()
	}()
	return server.Serve(listener)
}

func serveFront(ctx context.Context, listener net.Listener, lc *laneclient.Client) (err error) {
	// Calls through this connection go where the color of their context says.
	options := append(lanegrpc.DialOptions(lc), grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient("lane:///hello", options...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	client := hellopb.NewHelloClient(conn)

	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := client.Greet(r.Context(), &hellopb.GreetRequest{Name: "front"})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, "front %s says: %s\n", os.Getenv("LANEWAY_INSTANCE"), out.GetText())
	})
	server := &http.Server{Handler: lanehttp.Middleware(handler), ReadHeaderTimeout: 5 * time.Second}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(stopping)
	}()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-finished // requests in flight are answered
	return nil
}
