package consume_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/laneway-dev/laneway/lane/consume"
)

// BenchmarkRunner gives what a message costs a process that reads it from an engine in memory
// and hands it to a handler that does nothing. What it takes to start is in it, too.
func BenchmarkRunner(b *testing.B) {
	for _, concurrency := range []int{1, 16} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) { benchmarkRunner(b, concurrency) })
	}
}

func benchmarkRunner(b *testing.B, concurrency int) {
	b.Helper()
	engine := consume.NewMemory(consume.MemoryConfig{})
	defer engine.Close()
	if err := engine.Ensure(b.Context(), consume.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		b.Fatal(err)
	}
	for range b.N {
		m := &consume.Message{Partition: consume.Partition{Topic: "orders"}, Value: make([]byte, 100)}
		if err := engine.Append(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
	access := consume.NewMemoryRegistry(consume.MemoryRegistryConfig{}).Connect()
	defer access.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var left atomic.Int64
	left.Store(int64(b.N))
	r, err := consume.NewRunner(consume.Options{
		Config: consume.Config{Group: "billing", Topics: []consume.Topic{{Name: "orders"}}}, Source: engine, Registry: access,
		Members: []consume.Member{{ID: "e1", Topics: []string{"orders"}}}, Concurrency: concurrency,
		Handle: func(context.Context, *consume.Delivery) error {
			if left.Add(-1) == 0 {
				cancel()
			}
			return nil
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := r.Run(ctx); err != nil {
		b.Fatal(err)
	}
}
