// Command messages is two services with a queue between them: "shop" takes orders over HTTP
// and puts them into a topic, "worker" works on them. Run each by `laneway run`; see
// README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

// topic is made by the first worker, and group is all workers together.
const topic, group = "example.orders", "example-workers"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) != 1 || args[0] != "shop" && args[0] != "worker" {
		return errors.New("usage: messages shop|worker")
	}
	lc, err := laneclient.Dial(ctx, laneclient.FromEnv())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lc.Close()) }()
	// The control plane knows where the default message engine is.
	at, err := lc.Engine(ctx, "")
	if err != nil {
		return err
	}
	engine, err := jetstream.Open(ctx, jetstream.Config{URL: at, Access: jetstream.AccessFromEnv("")})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	// `laneway message show` tells then which worker had a message, and what became of it.
	hops, err := consume.NewHops(engine, lc, consume.HopsConfig{Share: 1, Log: slog.Default()})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, hops.Close(closing)) // writes what waits
	}()
	if args[0] == "shop" {
		return sell(ctx, consume.NewProducer(engine, lc, consume.RecordHops(hops)))
	}
	return work(ctx, engine, lc, hops)
}

// work handles each order that is of this worker's lane, until ctx ends.
func work(ctx context.Context, engine *jetstream.Engine, lc *laneclient.Client, hops *consume.Hops) error {
	handle := func(ctx context.Context, d *consume.Delivery) error {
		// What is called or sent with ctx goes on in the message's color.
		fmt.Printf("%s works on %s of color %q\n", lc.Instance(), d.Value, lane.From(ctx))
		return nil // an error would have it retried, by whoever its color belongs to then
	}
	c, err := consume.Run(ctx, engine, lc, topic, group, handle, consume.WithPartitions(4), consume.WithHops(hops), consume.WithLog(slog.Default()))
	if err != nil {
		return err
	}
	<-c.Done()
	return c.Err()
}

// sell puts an order into the topic for each request.
func sell(ctx context.Context, producer *consume.Producer) error {
	var last atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := strconv.FormatInt(last.Add(1), 10)
		// The message gets the color of the request.
		err := producer.Send(r.Context(), consume.Outgoing{Topic: topic, Key: []byte(n), Value: []byte("order " + n)})
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintf(w, "order %s is on its way\n", n)
	})
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
