package consume_test

import (
	"context"
	"expvar"
	"fmt"
	"log"
	"net/http"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// A consumer in a lane gets the messages of its lane, and one in the baseline gets the rest.
func Example() {
	ctx := context.Background()
	// In a program: an engine of integrations/…, and laneclient.Dial(ctx, laneclient.FromEnv()).
	src := consume.NewMemory(consume.MemoryConfig{})
	registry := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{})
	_ = registry.CreateLane("green", lane.Baseline)
	baseline := registry.ConnectAs(consume.MemoryIdentity{Instance: "billing-1"})
	green := registry.ConnectAs(consume.MemoryIdentity{Lane: "green", Instance: "billing-2"})

	got := make(chan string)
	handle := func(who string) consume.Handler {
		return func(ctx context.Context, d *consume.Delivery) error {
			got <- fmt.Sprintf("%s has %s, color %q", who, d.Value, lane.From(ctx))
			return nil
		}
	}
	c1, err := consume.Run(ctx, src, baseline, "orders", "billing", handle("billing-1"), consume.WithPartitions(1))
	if err != nil {
		log.Fatal(err)
	}
	c2, err := consume.Run(ctx, src, green, "orders", "billing", handle("billing-2"))
	if err != nil {
		log.Fatal(err)
	}
	// billing-1 learns of billing-2 within moments; until then it takes for its own what no
	// lane has a member for.
	watching, stop := context.WithCancel(ctx)
	defer stop()
	for u := range baseline.Views(watching, "billing") {
		if slices.ContainsFunc(u.Records, func(r consume.Stored) bool {
			return r.Partition.Topic == "orders" && !r.Record.Colors["green"].Holder.None()
		}) {
			break
		}
	}

	p := consume.NewProducer(src, baseline)
	for _, ctx := range []context.Context{ctx, lane.With(ctx, "green")} {
		if err := p.Send(ctx, consume.Outgoing{Topic: "orders", Value: []byte("an order")}); err != nil {
			log.Fatal(err)
		}
		fmt.Println(<-got)
	}
	for _, c := range []*consume.Consumer{c2, c1} {
		if err := c.Close(ctx); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// billing-1 has an order, color ""
	// billing-2 has an order, color "green"
}

// A handler that gets many messages of one color at once.
func ExampleWithBatches() {
	ctx := context.Background()
	src := consume.NewMemory(consume.MemoryConfig{})
	lc := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{}).Connect()
	_ = src.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1})
	p := consume.NewProducer(src, lc)
	if err := p.Send(ctx, consume.Outgoing{Topic: "orders"}, consume.Outgoing{Topic: "orders"}, consume.Outgoing{Topic: "orders"}); err != nil {
		log.Fatal(err)
	}

	sum := make(chan int)
	c, err := consume.Run(ctx, src, lc, "orders", "billing", nil, consume.WithConcurrency(1),
		consume.WithBatches(100, func(_ context.Context, ds []*consume.Delivery) error {
			sum <- len(ds)
			return nil
		}))
	if err != nil {
		log.Fatal(err)
	}
	total := 0
	for total < 3 {
		total += <-sum
	}
	fmt.Println(total, "messages")
	_ = c.Close(ctx)
	// Output: 3 messages
}

// Settings that the whole group shares: the first consumer creates it with them, and one that
// demands others is told so.
func ExampleWithOrdered() {
	ctx := context.Background()
	src := consume.NewMemory(consume.MemoryConfig{})
	registry := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{})
	handle := func(context.Context, *consume.Delivery) error { return nil }
	c, err := consume.Run(ctx, src, registry.Connect(), "orders", "billing", handle, consume.WithPartitions(1),
		consume.WithOrdered(true), consume.WithRetries(time.Second, time.Minute))
	if err != nil {
		log.Fatal(err)
	}
	_, err = consume.Run(ctx, src, registry.Connect(), "orders", "billing", handle, consume.WithOrdered(false))
	fmt.Println(err)
	_ = c.Close(ctx)
	// Output: consume: group billing: ordered is true, and the program wants false: change one of them: the group has other settings than the program demands
}

// What a consumer has done and how far it is, for /debug/vars and for Prometheus.
func ExampleConsumer_Stats() {
	ctx := context.Background()
	src := consume.NewMemory(consume.MemoryConfig{})
	lc := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{}).Connect()
	handled := make(chan struct{})
	c, err := consume.Run(ctx, src, lc, "orders", "billing", func(context.Context, *consume.Delivery) error {
		close(handled)
		return nil
	}, consume.WithPartitions(1))
	if err != nil {
		log.Fatal(err)
	}
	expvar.Publish("consumer", expvar.Func(func() any { return c.Stats() }))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		_ = consume.WriteMetrics(w, c.Stats()) // who asks has left
	})

	if err := consume.NewProducer(src, lc).Send(ctx, consume.Outgoing{Topic: "orders"}); err != nil {
		log.Fatal(err)
	}
	<-handled
	if err := c.Close(ctx); err != nil {
		log.Fatal(err)
	}
	s := c.Stats()
	fmt.Println("settled:", s.Settled, "lost:", s.Lost, "alarms of retention:", s.Alarms[consume.AlarmRetention])
	// Output: settled: 1 lost: 0 alarms of retention: 0
}
