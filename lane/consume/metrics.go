package consume

import (
	"bufio"
	"cmp"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WriteMetrics writes what consumers of a process tell of themselves in Prometheus's text
// format, as docs/reference/metrics.md lists it: for a handler of /metrics, or behind what
// another one has written there. Those of one group are added up. Labels are groups, topics and
// partitions of the process, colors of cursors that it holds, and closed lists of words; the
// color of a main cursor is "-". The error is the writer's.
func WriteMetrics(w io.Writer, consumers ...Stats) error {
	now := time.Now()
	var m metricSet
	for i := range consumers {
		m.take(&consumers[i], now)
	}
	return m.write(w)
}

// metricSet is some families in the order of their first series.
type metricSet struct{ families []*family }

// family is all series of one name.
type family struct {
	name, help string
	gauge      bool
	series     map[string]float64 // by labels, as they are written
}

func (m *metricSet) family(name, help string, gauge bool) *family {
	for _, f := range m.families {
		if f.name == name {
			return f
		}
	}
	f := &family{name, help, gauge, map[string]float64{}}
	m.families = append(m.families, f)
	return f
}

// take adds a consumer's part.
func (m *metricSet) take(s *Stats, now time.Time) {
	counter := func(name, help string) *family { return m.family("laneway_consumer_"+name, help, false) }
	messages := counter("messages_total", "Messages by what happened to them; each as often as it did.")
	for _, e := range []struct {
		event string
		n     int64
	}{
		{"dispatched", s.Dispatched},
		{"redelivered", s.Redelivered},
		{"settled", s.Settled},
		{"failed", s.Failed},
		{"returned", s.Returned},
		{"late", s.Late},
		{"dropped", s.Dropped},
		{"retried", s.Retried},
	} {
		messages.add(float64(e.n), "group", s.Group, "event", e.event)
	}
	addAll(counter("dead_total", "Messages that were stored in a dead-letter topic, by why."), s.Dead, s.Group, "reason")
	counter("lost_offsets_total", "Offsets that retention deleted before they were read.").add(float64(s.Lost), "group", s.Group)
	moves := counter("moves_total", "Moves of cursors that took place, by kind and why.")
	for kind, whys := range s.Moves {
		for why, n := range whys {
			moves.add(float64(n), "group", s.Group, "kind", string(kind), "reason", string(why))
		}
	}
	addAll(counter("alarms_total", "Alarms by what is wrong."), s.Alarms, s.Group, "reason")
	addAll(counter("writes_total", "Writes to the registry by how they were answered."), s.Writes, s.Group, "outcome")
	counter("failed_reads_total", "Reads that the engine did not answer.").add(float64(s.FailedReads), "group", s.Group)
	m.takeNow(s, now)
}

// takeNow adds how a consumer is just now.
func (m *metricSet) takeNow(s *Stats, now time.Time) {
	gauge := func(name, help string) *family { return m.family("laneway_consumer_"+name, help, true) }
	gauge("in_flight_messages", "Messages with handlers, or on their way to a retry or dead-letter topic.").add(float64(s.InFlight), "group", s.Group)
	gauge("cursors", "Cursors that the process holds.").add(float64(len(s.Cursors)), "group", s.Group)
	lost := 0.0
	if !s.LostSince.IsZero() {
		lost = 1
	}
	gauge("registry_lost", "1 while the registry is out of reach, so that moves stand still.").most(lost, "group", s.Group)
	for i := range s.Cursors {
		c := &s.Cursors[i]
		labels := []string{"group", s.Group, "topic", c.Topic, "partition", strconv.Itoa(int(c.Partition)), "color", cmp.Or(string(c.Color), "-")}
		if c.Behind >= 0 {
			gauge("behind_offsets", "Offsets from a cursor's position to the end of the log at the last read.").most(float64(c.Behind), labels...)
		}
		oldest, stopped := 0.0, 0.0
		if !c.Oldest.IsZero() {
			oldest = max(now.Sub(c.Oldest).Seconds(), 0)
		}
		if c.Stopped {
			stopped = 1
		}
		gauge("oldest_seconds", "Age of the oldest message that has come to a cursor and is not settled; 0: there is none.").most(oldest, labels...)
		gauge("stopped", "1: the log is not the one that the cursor is of; reset the group there.").most(stopped, labels...)
	}
}

// addAll adds counts by a word.
func addAll[K ~string](f *family, counts map[K]int64, group, label string) {
	for word, n := range counts {
		f.add(float64(n), "group", group, label, string(word))
	}
}

func (f *family) add(v float64, labels ...string) { f.series[labelText(labels)] += v }

func (f *family) most(v float64, labels ...string) {
	at := labelText(labels)
	f.series[at] = max(f.series[at], v)
}

// labelText is names and values as they are written.
func labelText(labels []string) string {
	escape := strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
	var b strings.Builder
	for i := 0; i < len(labels); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(labels[i] + `="` + escape.Replace(labels[i+1]) + `"`)
	}
	return b.String()
}

func (m *metricSet) write(w io.Writer) error {
	b := bufio.NewWriter(w)
	say := func(words ...string) {
		for _, word := range words {
			_, _ = b.WriteString(word) // Flush has the error
		}
	}
	for _, f := range m.families {
		if len(f.series) == 0 {
			continue
		}
		kind := "counter"
		if f.gauge {
			kind = "gauge"
		}
		say("# HELP ", f.name, " ", f.help, "\n# TYPE ", f.name, " ", kind, "\n")
		for _, labels := range slices.Sorted(maps.Keys(f.series)) {
			say(f.name, "{", labels, "} ", strconv.FormatFloat(f.series[labels], 'g', -1, 64), "\n")
		}
	}
	return b.Flush()
}
