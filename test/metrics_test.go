package test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// metrics are the series that a server shows, by name and labels.
func (s *server) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	status, body, err := get(t, s.addresses["control"], "localhost", "/metrics")
	if err != nil || status != 200 {
		t.Fatalf("GET /metrics: %d %v", status, err)
	}
	out := map[string]float64{}
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		at := strings.LastIndex(line, " ")
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at:]), 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out[line[:at]] = v
	}
	return out
}

// wantMetrics polls until series have their values; what is said of engines is some seconds old.
func (s *server) wantMetrics(t *testing.T, want map[string]float64) (got map[string]float64) {
	t.Helper()
	poll(t, 60*time.Second, func() error {
		got = s.metrics(t)
		var differ []string
		for name, v := range want {
			if is, there := got[name]; !there || is != v {
				differ = append(differ, fmt.Sprintf("%s is %v (%v), want %v", name, is, there, v))
			}
		}
		if len(differ) > 0 {
			slices.Sort(differ)
			return fmt.Errorf("%s", strings.Join(differ, "; "))
		}
		return nil
	})
	return got
}

// TestConsumptionMetrics: a server tells of moves, notes, members, cursors, its engine, and of
// what waits: a group that stands still shows by messages that get old.
func TestConsumptionMetrics(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := startServer(t)
	s.must(t, "topic", "create", "orders", "--partitions", "2")
	s.must(t, "lane", "create", "green")
	e := s.openEngine(t, "")
	c := &tally{n: map[string]int{}, bad: true}
	stopBase, stopGreen := s.consumeIn(t, "", "billing", c), s.consumeIn(t, "green", "billing", c)
	appendText(t, e, "orders", "", "a", "b", "bad")
	appendText(t, e, "orders", "green", "c")
	// Main of both partitions and of the retry topic, and green of each.
	got := s.wantMetrics(t, map[string]float64{
		`laneway_group_members{group="billing"}`:                                                2,
		`laneway_group_cursors{group="billing",state="held"}`:                                   6,
		`laneway_group_cursors{group="billing",state="free"}`:                                   0,
		`laneway_group_moves_total{group="billing",kind="create"}`:                              3,
		`laneway_group_moves_total{group="billing",kind="split"}`:                               3,
		`laneway_engine_info{durability="bounded",embedded="true",engine="main",scheme="nats"}`: 1,
		`laneway_engine_up{engine="main"}`:                                                      1,
		`laneway_engine_topics{engine="main"}`:                                                  3,
		`laneway_engine_messages{engine="main"}`:                                                5,
		`laneway_groups_not_counted{engine="main"}`:                                             0,
		`laneway_group_waiting_messages{group="billing",in="topic"}`:                            0,
		`laneway_group_oldest_seconds{group="billing",in="topic"}`:                              0,
		`laneway_group_waiting_messages{group="billing",in="retry"}`:                            0,
		`laneway_group_waiting_messages{group="billing",in="dead"}`:                             1,
		`laneway_objects{kind="engines"}`:                                                       1,
		`laneway_objects{kind="groups"}`:                                                        1,
	})
	for name, least := range map[string]float64{
		`laneway_cursor_moves_total{kind="create",outcome="done",reason="new-group"}`: 2,
		`laneway_group_moves_total{group="billing",kind="take"}`:                      6,
		`laneway_group_notes_total{group="billing"}`:                                  6,
		`laneway_cursor_writes_total{outcome="done"}`:                                 6,
		`laneway_cursor_write_seconds_count`:                                          6,
		`laneway_engine_disk_bytes{engine="main"}`:                                    100,
		`laneway_engine_connections{engine="main"}`:                                   2, // its own, and the test's
		`laneway_engine_sample_timestamp_seconds`:                                     float64(time.Now().Add(-time.Minute).Unix()),
	} {
		if got[name] < least {
			t.Errorf("%s is %v, want %v or more", name, got[name], least)
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "laneway_cursor_moves_total") && strings.Contains(name, `="other"`) {
			t.Errorf("%s: a move has a word that metrics do not know", name)
		}
	}

	// Nobody consumes: what waits gets old.
	stopGreen()
	stopBase()
	appendText(t, e, "orders", "", "d", "e")
	appendText(t, e, "orders", "green", "f")
	before := s.wantMetrics(t, map[string]float64{
		`laneway_group_members{group="billing"}`:                     0,
		`laneway_group_waiting_messages{group="billing",in="topic"}`: 3,
	})
	free := before[`laneway_group_cursors{group="billing",state="free"}`]
	if held := before[`laneway_group_cursors{group="billing",state="held"}`]; held != 0 || free < 3 {
		t.Errorf("%v cursors are held and %v free, want none to be held", held, free)
	}
	const oldest = `laneway_group_oldest_seconds{group="billing",in="topic"}`
	poll(t, 60*time.Second, func() error {
		now := s.metrics(t)
		if at, took := now[`laneway_engine_sync_timestamp_seconds{engine="main"}`], now[`laneway_engine_sync_seconds{engine="main"}`]; at < float64(began.Unix()) || took <= 0 {
			return fmt.Errorf("the engine's disk last synced at %v, which took %v s", at, took)
		}
		return nil
	})
	poll(t, 60*time.Second, func() error {
		if now := s.metrics(t)[oldest]; now <= before[oldest] || now < 3 {
			return fmt.Errorf("the oldest is %v s old after %v", now, before[oldest])
		}
		return nil
	})
	s.must(t, "group", "delete", "billing")
	poll(t, 30*time.Second, func() error {
		for name := range maps.Keys(s.metrics(t)) {
			if strings.Contains(name, `group="billing"`) {
				return fmt.Errorf("there is %s after the group was deleted", name)
			}
		}
		return nil
	})
}

// TestRetriesThatStandStill: what waits in a group's retry topic when its time has come, and
// nobody takes it, shows there.
func TestRetriesThatStandStill(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders")
	e := s.openEngine(t, "")
	appendText(t, e, "orders", "", "a", "bad", "b")
	lc, err := laneclient.Dial(t.Context(), laneclient.Config{Control: []string{s.url()}, Service: "reader", NoListen: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lc.Close() }()
	got := &tally{n: map[string]int{}, bad: true}
	c, err := consume.Run(t.Context(), e, lc, "orders", "billing", got.handle, consume.WithRetries(15*time.Second, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	poll(t, 30*time.Second, func() error {
		if st := c.Stats(); st.Settled != 2 || st.Retried != 1 || st.Failed != 1 {
			return fmt.Errorf("settled %d, retried %d, failed %d; want 2, 1, 1", st.Settled, st.Retried, st.Failed)
		}
		return nil
	})
	var text bytes.Buffer
	if err := consume.WriteMetrics(&text, c.Stats()); err != nil || !strings.Contains(text.String(), `laneway_consumer_messages_total{group="billing",event="retried"} 1`) {
		t.Errorf("%v, %s", err, text.String())
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantMetrics(t, map[string]float64{
		`laneway_group_waiting_messages{group="billing",in="retry"}`: 1,
		`laneway_group_waiting_messages{group="billing",in="topic"}`: 0,
		`laneway_group_waiting_messages{group="billing",in="dead"}`:  0,
		`laneway_group_oldest_seconds{group="billing",in="topic"}`:   0,
	})
	poll(t, 30*time.Second, func() error {
		if age := s.metrics(t)[`laneway_group_oldest_seconds{group="billing",in="retry"}`]; age <= 0 {
			return fmt.Errorf("the retry is %v s old", age)
		}
		return nil
	})
}
