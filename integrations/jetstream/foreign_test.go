package jetstream

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/lane/consume"
)

// TestForeignConsumers: what is told of each kind of consumer; those by which engines follow
// a log are not told of.
func TestForeignConsumers(t *testing.T) {
	e := open(t, Config{Dir: t.TempDir()})
	ensure(t, e, consume.TopicSpec{Name: "orders", Partitions: 2})
	for range 300 {
		if err := e.Append(t.Context(), &consume.Message{Partition: orders, Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	l, err := e.log(t.Context(), orders)
	if err != nil {
		t.Fatal(err)
	}
	names := func() (all []string) {
		stream, err := e.js.Stream(t.Context(), l.stream)
		if err != nil {
			t.Fatal(err)
		}
		for name := range stream.ConsumerNames(t.Context()).Name() {
			all = append(all, name)
		}
		return all
	}
	r := &reading{t: t, e: e, filter: consume.Filter{All: true}, got: map[string]int{}}
	for range 3 {
		r.read()
	}
	if len(names()) == 0 {
		t.Fatal("nothing follows the log: the test shows nothing")
	}
	if found, more, err := e.ForeignConsumers(t.Context(), "orders"); err != nil || len(found)+more != 0 {
		t.Errorf("foreign consumers: %+v and %d more, %v; want none, though the stream has %v", found, more, err, names())
	}

	began := time.Now().Add(-time.Minute)
	durable, err := e.js.CreateConsumer(t.Context(), l.stream, natsjs.ConsumerConfig{Durable: "billing", AckPolicy: natsjs.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	got, err := durable.Fetch(5)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for m := range got.Messages() {
		if n++; n <= 3 {
			if err := m.DoubleAck(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := e.js.CreateConsumer(t.Context(), l.stream, natsjs.ConsumerConfig{Name: "tap", Metadata: map[string]string{MetaGroup: "a.b"}, InactiveThreshold: time.Minute}); err != nil {
		t.Fatal(err)
	}
	push, err := e.nc.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := push.SubscribeSync("", nats.BindStream(l.stream), nats.Durable("watch")); err != nil {
		t.Fatal(err)
	}
	found, more, err := e.ForeignConsumers(t.Context(), "orders")
	if err != nil || more != 0 || len(found) != 3 {
		t.Fatalf("foreign consumers: %+v and %d more, %v; want three", found, more, err)
	}
	for i, want := range []consume.ForeignConsumer{
		{Group: "a.b", Name: "tap", Partition: orders, Kind: "pull consumer", Position: 1},
		{Group: "billing", Name: "billing", Partition: orders, Kind: "durable pull consumer", Position: 4},
		{Group: "watch", Name: "watch", Partition: orders, Kind: "durable push consumer, connected", Position: 1},
	} {
		f := found[i]
		if f.Since.Before(began) || want.Name == "billing" && f.Active.Before(began) {
			t.Errorf("%s came at %s and was active at %s", f.Name, f.Since, f.Active)
		}
		f.Since, f.Active = time.Time{}, time.Time{}
		if f != want {
			t.Errorf("got %+v, want %+v", f, want)
		}
	}
	if ours("laneway-follow-me") || !ours(newFollowName()) {
		t.Error("a consumer's name alone says whose it is, and does not")
	}
}
