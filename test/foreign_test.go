package test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
)

// shownForeign is what a test looks at of foreign consumers in `-o json`.
type shownForeign struct {
	Foreign []struct {
		Topic, Group, Of, Name, Kind string
		Partition, Position          *int
		Since, Active                time.Time
	}
}

func (s *server) foreign(t *testing.T, kind, name string) shownForeign {
	t.Helper()
	var out shownForeign
	if err := json.Unmarshal([]byte(s.must(t, kind, "show", name, "-o", "json")), &out); err != nil {
		t.Fatal(err)
	}
	if out.Foreign == nil {
		t.Errorf("%s show %s does not say whether there are foreign consumers", kind, name)
	}
	return out
}

// textLog is a log that a test looks into.
type textLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *textLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *textLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// TestForeignConsumer: a durable consumer that a program made with the client of NATS, and
// named like a group, is shown with that group, in lists and with the topic, and the log of
// the group's consumer tells of it; a group that has none of that shows nothing.
func TestForeignConsumer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders", "--partitions", "2")
	engine := s.openEngine(t, "")
	appendText(t, engine, "orders", "", "a", "b", "c", "d", "e", "f")

	nc, err := nats.Connect("nats://" + s.addresses["nats"])
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream := ""
	for info := range js.ListStreams(t.Context()).Info() {
		if info.Config.Metadata["laneway_topic"] == "orders" && info.Config.Metadata["laneway_partition"] == "1" {
			stream = info.Config.Name
		}
	}
	take := func(name string, n int) {
		t.Helper()
		c, err := js.CreateConsumer(t.Context(), stream, natsjs.ConsumerConfig{Durable: name, AckPolicy: natsjs.AckExplicitPolicy})
		if err != nil {
			t.Fatal(err)
		}
		for range n {
			m, err := c.Next()
			if err == nil {
				err = m.DoubleAck(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	before := time.Now().Add(-time.Minute)
	take("billing", 1)
	take("backup", 0)

	var log textLog
	got := &tally{n: map[string]int{}}
	for _, group := range []string{"billing", "audit"} {
		s.consumeIn(t, lane.Baseline, group, got, consume.WithLog(slog.New(slog.NewTextHandler(&log, nil))))
	}

	shown := s.foreign(t, "group", "billing")
	if len(shown.Foreign) != 1 {
		t.Fatalf("group show billing: %+v, want one foreign consumer", shown)
	}
	f := shown.Foreign[0]
	if f.Topic != "orders" || f.Group != "billing" || f.Of != "billing" || f.Name != "billing" || f.Kind != "durable pull consumer" ||
		f.Partition == nil || *f.Partition != 1 || f.Position == nil || *f.Position != 2 || f.Since.Before(before) || f.Active.Before(before) {
		t.Errorf("group show billing: %+v", f)
	}
	if out := s.must(t, "group", "show", "billing"); !strings.Contains(out, "FOREIGN CONSUMER") || !strings.Contains(out, "durable pull consumer") || !strings.Contains(out, "consume through Laneway") {
		t.Errorf("group show billing: %s", out)
	}
	if shown := s.foreign(t, "group", "audit"); len(shown.Foreign) != 0 {
		t.Errorf("group show audit: %+v, want no foreign consumer", shown)
	}
	if out := s.must(t, "group", "show", "audit"); strings.Contains(out, "FOREIGN") {
		t.Errorf("group show audit: %s", out)
	}
	for line := range strings.Lines(s.must(t, "group", "list")) {
		if marked := strings.Contains(line, "1 foreign consumer"); marked != strings.HasPrefix(line, "billing ") {
			t.Errorf("group list: %s", line)
		}
	}
	of := map[string]string{}
	for _, f := range s.foreign(t, "topic", "orders").Foreign {
		of[f.Name] = f.Of
	}
	if fmt.Sprint(of) != "map[backup: billing:billing]" {
		t.Errorf("topic show orders: foreign consumers and their groups are %v", of)
	}
	if out := s.must(t, "topic", "show", "orders"); !strings.Contains(out, "backup") {
		t.Errorf("topic show orders: %s", out)
	}
	poll(t, 3*time.Minute, func() error { // it looks every minute
		if n := strings.Count(log.String(), "reason=foreign-consumer"); n != 1 || !strings.Contains(log.String(), "group=billing reason=foreign-consumer topic=orders partition=1 count=1") {
			return fmt.Errorf("%d alarms in the log: %s", n, log.String())
		}
		return nil
	})

	if err := js.DeleteConsumer(t.Context(), stream, "billing"); err != nil {
		t.Fatal(err)
	}
	if shown := s.foreign(t, "group", "billing"); len(shown.Foreign) != 0 {
		t.Errorf("group show billing: %+v, after the consumer was deleted", shown)
	}
}
