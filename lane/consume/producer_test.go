package consume

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/laneway-dev/laneway/lane"
)

// deaf loses the answers of appends that took effect, and keeps where those went.
type deaf struct {
	Source
	silent bool
	places []int32
}

func (d *deaf) Append(ctx context.Context, ms ...*Message) error {
	err := d.Source.Append(ctx, ms...)
	for _, m := range ms {
		d.places = append(d.places, m.Partition.Index)
	}
	if d.silent {
		return errors.New("no answer")
	}
	return err
}

// someone is a process without a registry.
type someone struct{ Identity }

func (someone) Process() lane.Name { return lane.Baseline }
func (someone) Used(lane.Name)     {}

// TestProducerAimsAgain: what may have arrived is sent again to where it went, though the
// topic has grown, until it has arrived; and a producer remembers only so many.
func TestProducerAimsAgain(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	m := NewMemory(MemoryConfig{})
	defer m.Close()
	if err := m.Ensure(ctx, TopicSpec{Name: "orders", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	d := &deaf{Source: m, silent: true}
	p := NewProducer(d, someone{})
	var ms []Outgoing
	for i := range 20 {
		ms = append(ms, Outgoing{Topic: "orders", Key: fmt.Append(nil, i), ID: fmt.Sprint(i)})
	}
	if p.Send(ctx, ms...) == nil {
		t.Fatal("an answer came")
	}
	if err := m.Grow(ctx, "orders", 7); err != nil {
		t.Fatal(err)
	}
	d.silent = false
	for range 2 {
		if err := p.Send(ctx, ms...); err != nil {
			t.Fatal(err)
		}
	}
	elsewhere := 0
	for i := range ms {
		if d.places[i] != d.places[20+i] {
			t.Errorf("message %d went to partition %d, and again to %d", i, d.places[i], d.places[20+i])
		}
		if d.places[i] != d.places[40+i] {
			elsewhere++
		}
	}
	if elsewhere == 0 || len(p.doubtful) > 0 {
		t.Errorf("%d of those that had arrived go by the new number of partitions, and %d places are remembered", elsewhere, len(p.doubtful))
	}
	d.silent = true
	for i := range maxDoubtful + 50 {
		_ = p.Send(ctx, Outgoing{Topic: "orders", ID: fmt.Sprint("more", i)})
	}
	if len(p.doubtful) != maxDoubtful {
		t.Errorf("%d places are remembered, want %d", len(p.doubtful), maxDoubtful)
	}
}
