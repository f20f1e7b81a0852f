// Command http is two services that speak HTTP: "hello" greets, "front" asks hello
// and passes on what it says. Run each by `laneway run`; see README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

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
	cfg := laneclient.FromEnv()
	cfg.AdminListen = "127.0.0.1:0" // so that `laneway explain call --at` can ask this process
	lc, err := laneclient.Dial(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lc.Close()) }()

	var handler http.Handler
	switch {
	case len(args) == 1 && args[0] == "hello":
		handler = http.HandlerFunc(hello)
	case len(args) == 1 && args[0] == "front":
		// Calls through this client go where the color of their context says.
		handler = front{client: &http.Client{Transport: lanehttp.Transport(nil, lc), Timeout: 5 * time.Second}}
	default:
		return errors.New("usage: http hello|front")
	}

	server := &http.Server{
		Addr:              "127.0.0.1:" + os.Getenv("PORT"),
		Handler:           lanehttp.Middleware(handler), // takes the color of requests into their contexts
		ReadHeaderTimeout: 5 * time.Second,
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		<-ctx.Done()
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(stopping)
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-finished // requests in flight are answered
	return nil
}

func hello(w http.ResponseWriter, r *http.Request) {
	fmt.Fprintf(w, "hello from %s, request of color %q\n", os.Getenv("LANEWAY_INSTANCE"), lane.From(r.Context()))
}

type front struct{ client *http.Client }

func (f front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The request's context carries its color: use it, and nothing else is to be done.
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://hello/", nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	resp, err := f.client.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	fmt.Fprintf(w, "front %s says: ", os.Getenv("LANEWAY_INSTANCE"))
	_, _ = io.Copy(w, resp.Body)
}
