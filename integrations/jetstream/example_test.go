package jetstream_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane/consume"
)

// An engine in the process; consume.NewRunner takes it as its Source and Topics.
func Example() {
	dir, err := os.MkdirTemp("", "laneway")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	e, err := jetstream.Open(ctx, jetstream.Config{Dir: dir, Durability: jetstream.Bounded})
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = e.Close() }()
	if err := e.Ensure(ctx, consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		log.Print(err)
		return
	}
	p := consume.Partition{Topic: "orders"}
	err = e.Append(ctx,
		&consume.Message{Partition: p, Value: []byte("plain")},
		&consume.Message{Partition: p, Value: []byte("colored"), Color: "green"})
	if err != nil {
		log.Print(err)
		return
	}
	b, err := e.Read(ctx, p, 0, consume.Filter{Color: "green"}, 10)
	if err != nil {
		log.Print(err)
		return
	}
	for _, m := range b.Messages {
		fmt.Printf("offset %d: %s\n", m.Offset, m.Value)
	}
	fmt.Println("next:", b.Next)
	// Output:
	// offset 2: colored
	// next: 3
}
