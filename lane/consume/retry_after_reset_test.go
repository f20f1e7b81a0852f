package consume_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestRetryAfterReset: what comes again by a reset and fails is retried again.
func TestRetryAfterReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		tries := 0
		handle := func(_ context.Context, d *consume.Delivery) error {
			tries++
			if d.Attempt == 0 {
				return errors.New("this one fails")
			}
			return nil
		}
		base := s.connect("", "e1")
		c := s.consume(base, handle, consume.WithRetries(time.Second))
		out := consume.NewProducer(s.engine, base)
		if err := out.Send(t.Context(), consume.Outgoing{Topic: "orders", Key: []byte("k"), Value: []byte("1")}); err != nil {
			t.Fatal(err)
		}
		pass(30 * time.Second)
		s.registry.SetGroup("billing", consume.Group{Reset: &consume.Reset{ID: "again", Offsets: map[consume.Partition]int64{{Topic: "orders"}: 0}}})
		pass(30 * time.Second)
		s.close(c)
		if tries != 4 {
			t.Errorf("it was tried %d times, want 4", tries)
		}
	})
}
