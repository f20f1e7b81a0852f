// Command thrift is two services: "hello" greets over Thrift, "front" speaks HTTP, calls
// hello and passes on what it says. Run each by `laneway run`; see README.md.
package main

//go:generate thrift --gen go:skip_remote -out . hello.thrift

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

	"github.com/laneway-dev/laneway/examples/thrift/hello"
	"github.com/laneway-dev/laneway/integrations/lanethrift"
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
		return errors.New("usage: thrift hello|front")
	}
}

type greeter struct{}

// Greet implements hello.Hello.
func (greeter) Greet(ctx context.Context, name string) (string, error) {
	return fmt.Sprintf("hello %s from %s, call of color %q", name, os.Getenv("LANEWAY_INSTANCE"), lane.From(ctx)), nil
}

func serveHello(ctx context.Context, listener net.Listener) error {
	// The server takes the color of calls into their contexts.
	server := lanethrift.NewServer(listener, hello.NewHelloProcessor(greeter{}))
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(stopping)
	}()
	//nolint:contextcheck // calls have contexts of their own
	if err := server.Serve(); !errors.Is(err, lanethrift.ErrServerClosed) {
		return err
	}
	<-finished // calls in flight are answered
	return nil
}

func serveFront(ctx context.Context, listener net.Listener, lc *laneclient.Client) (err error) {
	// Calls through this client go where the color of their context says.
	calls := lanethrift.NewClient(lc, "hello")
	defer func() { err = errors.Join(err, calls.Close()) }()

	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A generated client is not for concurrent calls; what it is made of is.
		out, err := hello.NewHelloClient(calls).Greet(r.Context(), "front")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		fmt.Fprintf(w, "front %s says: %s\n", os.Getenv("LANEWAY_INSTANCE"), out)
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
