package jetstream

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

func benchMessage() *consume.Message {
	return &consume.Message{Partition: orders, Key: []byte("key"), Value: make([]byte, 1024), Headers: []consume.Header{{Name: "traceparent", Value: make([]byte, 55)}}}
}

// BenchmarkAppend is of messages of 1 KiB: one by one, by 64 callers at once, and by 100 in
// one call.
func BenchmarkAppend(b *testing.B) {
	for _, d := range []Durability{Fast, Bounded, Sync} {
		for _, c := range []struct {
			name         string
			callers, run int
		}{{"one", 1, 1}, {"callers64", 64, 1}, {"batch100", 1, 100}, {"callers8batch100", 8, 100}} {
			b.Run(fmt.Sprintf("%s/%s", d, c.name), func(b *testing.B) {
				e := open(b, Config{Dir: b.TempDir(), Durability: d})
				ensure(b, e, consume.TopicSpec{Name: "orders", Partitions: 1})
				ms := make([]*consume.Message, c.run)
				for i := range ms {
					ms[i] = benchMessage()
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var wg sync.WaitGroup
				for range c.callers {
					wg.Go(func() {
						for left.Add(-int64(c.run)) > -int64(c.run) {
							if err := e.Append(b.Context(), ms...); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

// BenchmarkRead is of batches of 256 messages of 1 KiB: all of them, and one color of which
// there is one in a hundred.
func BenchmarkRead(b *testing.B) {
	e := open(b, Config{Dir: b.TempDir(), Durability: Fast})
	ensure(b, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	const n = 50_000
	for i := 0; i < n; i += 100 {
		var ms []*consume.Message
		for range 100 {
			ms = append(ms, benchMessage())
		}
		ms[50].Color = "green"
		if err := e.Append(b.Context(), ms...); err != nil {
			b.Fatal(err)
		}
	}
	for name, f := range map[string]consume.Filter{"all": {All: true}, "color": {Color: "green"}} {
		b.Run(name, func(b *testing.B) {
			for got, at := 0, int64(1); got < b.N; {
				batch, err := e.Read(b.Context(), orders, at, f, 256)
				if err != nil {
					b.Fatal(err)
				}
				got += len(batch.Messages)
				if at = batch.Next; at > n {
					at = 1
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkHand is from the begin of an append to its message at a reader that waits.
func BenchmarkHand(b *testing.B) {
	e := open(b, Config{Dir: b.TempDir()})
	ensure(b, e, consume.TopicSpec{Name: "orders", Partitions: 1})
	at := int64(1)
	for b.Loop() {
		got := make(chan error, 1)
		go func() {
			for {
				batch, err := e.Read(b.Context(), orders, at, consume.Filter{Color: "green"}, 10)
				if err != nil || len(batch.Messages) > 0 {
					at = batch.Next
					got <- err
					return
				}
			}
		}()
		if err := e.Append(b.Context(), &consume.Message{Partition: orders, Color: "green"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTopics makes topics of one partition.
func BenchmarkTopics(b *testing.B) {
	e := open(b, Config{Dir: b.TempDir()})
	began := time.Now()
	for i := range b.N {
		ensure(b, e, consume.TopicSpec{Name: fmt.Sprint("topic", i), Partitions: 1})
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "topics/s")
}
