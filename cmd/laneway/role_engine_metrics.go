package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// engineFresh is how old what metrics say of engines may be before it is asked for anew.
	// Nobody asks where nobody scrapes.
	engineFresh = 5 * time.Second
	// engineScrape is how long a scrape waits for that; it then has what there was before.
	engineScrape = 3 * time.Second
	// engineCount bounds how long it may take.
	engineCount = 30 * time.Second
	// maxCounted is how many partitions are looked at: of an engine's topics, and again of the
	// groups that read them. What is beyond that is left out, and not counted in part.
	maxCounted = 2000
	// oldestRead is how many messages are looked at for the oldest that is main's.
	oldestRead = 256
	oldestWait = 500 * time.Millisecond
)

// Kinds of topics that a group's messages wait in.
const (
	inTopic = "topic"
	inRetry = "retry"
	inDead  = "dead"
)

// engineMetrics tells of the engines of this process, and of what waits on them.
type engineMetrics struct {
	node *node
	api  *api
	log  *slog.Logger
	want chan chan struct{} // asks for a new sample, and is told when it is there
	over chan struct{}      // closed when nobody takes samples any more

	info, up, topics, messages, disk, connections, synced, took, sampled, waiting, oldest, left *prometheus.Desc

	mu      sync.Mutex
	samples []engineSample
	at      time.Time
}

// engineSample is how an engine was. What is not known is left out.
type engineSample struct {
	name, scheme, durability string
	embedded, up             bool
	topics, messages, disk   *int64
	server                   *jetstream.ServerStats // of an embedded one
	groups                   []waitingIn
	left                     *int64 // groups that were not counted
}

// waitingIn is what waits for a group in one kind of topics.
type waitingIn struct {
	group, in string
	messages  int64
	oldest    time.Time // zero: nothing waits
}

func newEngineMetrics(n *node) *engineMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &engineMetrics{
		node: n, want: make(chan chan struct{}), over: make(chan struct{}), log: n.log.With(telemetry.KeyRole, roleEngine),
		api:         &api{laneclient.NewAPI(laneclient.Config{Control: n.cfg.Control, Transport: n.transport, TokenFile: n.tokenFile})},
		info:        desc(telemetry.MetricEngineInfo, "Always 1; what an engine of this process is.", "engine", "scheme", "embedded", "durability"),
		up:          desc(telemetry.MetricEngineUp, "1: the engine answers.", "engine"),
		topics:      desc(telemetry.MetricEngineTopics, "Topics of an engine.", "engine"),
		messages:    desc(telemetry.MetricEngineMessages, "Messages that an engine has, without those that are delayed.", "engine"),
		disk:        desc(telemetry.MetricEngineDisk, "Bytes of the files of an embedded engine.", "engine"),
		connections: desc(telemetry.MetricEngineConnections, "Programs that are connected to an embedded engine, this one among them.", "engine"),
		synced:      desc(telemetry.MetricEngineSynced, "When the disk of an embedded engine last synced, in Unix seconds, where its durability is bounded or sync.", "engine"),
		took:        desc(telemetry.MetricEngineSync, "How long that sync took.", "engine"),
		sampled:     desc(telemetry.MetricEngineSampled, "When all that is said of engines, and of what waits on them, was so, in Unix seconds."),
		waiting:     desc(telemetry.MetricGroupWaiting, "Messages that wait for a group, by where: topic, retry, dead.", "group", "in"),
		oldest:      desc(telemetry.MetricGroupOldest, "Age of the oldest message that waits for a group, by where; 0: none does.", "group", "in"),
		left:        desc(telemetry.MetricGroupsLeft, "Groups of an engine whose waiting messages were not counted.", "engine"),
	}
}

func (m *engineMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.info, m.up, m.topics, m.messages, m.disk, m.connections, m.synced, m.took, m.sampled, m.waiting, m.oldest, m.left} {
		ch <- d
	}
}

// Collect tells what the last sample has, and has a new one taken first if that is old.
func (m *engineMetrics) Collect(ch chan<- prometheus.Metric) {
	m.refresh()
	m.mu.Lock()
	samples, at := m.samples, m.at
	m.mu.Unlock()
	if at.IsZero() {
		return
	}
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	known := func(d *prometheus.Desc, v *int64, engine string) {
		if v != nil {
			send(d, float64(*v), engine)
		}
	}
	send(m.sampled, float64(at.UnixMilli())/1000)
	for i := range samples {
		s := &samples[i]
		up := 0.0
		if s.up {
			up = 1
		}
		send(m.info, 1, s.name, s.scheme, strconv.FormatBool(s.embedded), s.durability)
		send(m.up, up, s.name)
		known(m.topics, s.topics, s.name)
		known(m.messages, s.messages, s.name)
		known(m.disk, s.disk, s.name)
		known(m.left, s.left, s.name)
		if s.server != nil {
			send(m.connections, float64(s.server.Connections), s.name)
			if at := s.server.Synced; !at.IsZero() {
				send(m.synced, float64(at.UnixMilli())/1000, s.name)
				send(m.took, s.server.Took.Seconds(), s.name)
			}
		}
		for _, g := range s.groups {
			age := 0.0
			if !g.oldest.IsZero() {
				age = max(at.Sub(g.oldest).Seconds(), 0)
			}
			send(m.waiting, float64(g.messages), g.group, g.in)
			send(m.oldest, age, g.group, g.in)
		}
	}
}

// refresh waits for a new sample where the last one is old, and not for long.
func (m *engineMetrics) refresh() {
	if m.fresh() {
		return
	}
	late := time.NewTimer(engineScrape)
	defer late.Stop()
	done := make(chan struct{})
	select {
	case m.want <- done:
	case <-m.over:
		return
	case <-late.C:
		return
	}
	select {
	case <-done:
	case <-late.C:
	}
}

// fresh reports whether the last sample is new enough.
func (m *engineMetrics) fresh() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.at) < engineFresh
}

// run takes samples when they are asked for, until ctx ends.
func (m *engineMetrics) run(ctx context.Context) {
	defer func() {
		close(m.over)
		_ = m.api.Close() // every call has been answered
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case done := <-m.want:
			if !m.fresh() { // another one that asked has had it taken
				m.sample(ctx)
			}
			close(done)
		}
	}
}

func (m *engineMetrics) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, engineCount)
	defer cancel()
	var samples []engineSample
	var fault error
	groups, err := list[laneclient.Group](ctx, m.api, laneclient.ListOptions{})
	for _, s := range m.node.engines {
		one := s.sample(ctx)
		if e := s.get(); one.up && err == nil {
			var left int64
			one.groups, left, fault = m.countGroups(ctx, e, s.Name, groups)
			one.left = &left
		}
		samples = append(samples, one)
	}
	if err := cmp.Or(err, fault); err != nil {
		m.log.DebugContext(ctx, "what waits for groups is not known", telemetry.KeyError, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples, m.at = samples, time.Now()
}

// sample asks an engine how it is.
func (s *servedEngine) sample(ctx context.Context) engineSample {
	out := engineSample{name: s.Name, scheme: s.scheme(), embedded: s.embedded()}
	e := s.get()
	if d, ok := e.(interface{ Durability() jetstream.Durability }); ok && s.embedded() {
		out.durability = string(d.Durability())
	}
	if s.embedded() {
		if n, err := bytesUnder(s.dir); err == nil {
			out.disk = &n
		}
	}
	if e == nil {
		return out
	}
	if server, ok := e.(interface {
		ServerStats() (jetstream.ServerStats, bool)
	}); ok {
		if stats, embedded := server.ServerStats(); embedded {
			out.server = &stats
		}
	}
	check, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if out.up = e.Check(check) == nil; !out.up {
		return out
	}
	topics, err := e.List(ctx)
	if err != nil {
		return out
	}
	count, partitions, messages := int64(len(topics)), 0, int64(0)
	out.topics = &count
	for _, t := range topics {
		if partitions += int(t.Partitions); partitions > maxCounted {
			return out
		}
		n, err := countTopic(ctx, e, t.Name, t.Partitions)
		if err != nil {
			return out
		}
		messages += n
	}
	out.messages = &messages
	return out
}

// countTopic is how many messages a topic has; one that is gone has none.
func countTopic(ctx context.Context, e engine, topic string, partitions int32) (sum int64, err error) {
	for i := range partitions {
		n, err := e.Count(ctx, consume.Partition{Topic: topic, Index: i}, 0, consume.Filter{All: true})
		if err != nil && !errors.Is(err, consume.ErrNoTopic) {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// bytesUnder is how much the files of a folder have, as far as they are there.
func bytesUnder(dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return ignoreGone(err)
		}
		info, err := d.Info()
		if err == nil {
			sum += info.Size()
		}
		return ignoreGone(err)
	})
	return sum, err
}

// ignoreGone passes over what was deleted meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// countGroups counts what waits on an engine for its groups, as far as there are not too many
// partitions; left is how many groups were not counted.
func (m *engineMetrics) countGroups(ctx context.Context, e engine, name string, groups []laneclient.Group) (out []waitingIn, left int64, err error) {
	var errs []error
	partitions := 0
	for i := range groups {
		g := &groups[i]
		if g.Engine != name {
			continue
		}
		if partitions > maxCounted || ctx.Err() != nil {
			left++
			continue
		}
		counted, n, err := m.countGroup(ctx, e, g)
		if err != nil {
			errs = append(errs, fmt.Errorf("group %s: %w", g.Name, err))
			left++
			continue
		}
		partitions += n
		out = append(out, counted...)
	}
	return out, left, errors.Join(errs...)
}

// countGroup counts what waits for one group; partitions is how many were looked at.
func (m *engineMetrics) countGroup(ctx context.Context, e engine, g *laneclient.Group) (out []waitingIn, partitions int, err error) {
	cursors, err := readCursors(ctx, m.api, g.Name)
	if err != nil {
		return nil, 0, err
	}
	topic, retry := waitingIn{group: g.Name, in: inTopic}, waitingIn{group: g.Name, in: inRetry}
	for i := range cursors {
		to := &topic
		if originOf(g, cursors[i].Topic) != cursors[i].Topic {
			to = &retry
		}
		if err := countPartition(ctx, e, &cursors[i], to); err != nil {
			return nil, 0, err
		}
	}
	dead := waitingIn{group: g.Name, in: inDead}
	for _, t := range g.Topics {
		p := consume.Partition{Topic: consume.DeadTopic(t, g.Name)}
		n, err := e.Count(ctx, p, 0, consume.Filter{All: true})
		if errors.Is(err, consume.ErrNoTopic) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		dead.messages += n
		if n > 0 {
			dead.older(firstTime(ctx, e, p, 0, consume.Filter{All: true}, nil))
		}
	}
	return []waitingIn{topic, retry, dead}, len(cursors) + len(g.Topics), nil
}

// countPartition adds what waits in one partition.
func countPartition(ctx context.Context, e engine, c *laneclient.Cursor, to *waitingIn) error {
	record, notes, err := readRecord(c)
	if err != nil {
		return err
	}
	rows := []cursorView{{}}
	for color := range record.Colors {
		rows = append(rows, cursorView{Color: string(color)})
	}
	if err := countLag(ctx, e, c, &record, notes, rows); err != nil {
		if errors.Is(err, consume.ErrNoTopic) {
			return nil // deleted, or not made yet
		}
		return err
	}
	for i := range rows {
		if rows[i].Lag == nil || *rows[i].Lag <= 0 {
			continue
		}
		to.messages += *rows[i].Lag
		color := lane.Name(rows[i].Color)
		from, filter := max(notes[color].Pos, record.Colors[color].From), consume.Filter{All: color == consume.Main, Color: color}
		if left := notes[color].Left; len(left) > 0 {
			from = left[0]
		}
		to.older(firstTime(ctx, e, partitionOf(c), from, filter, &record))
	}
	return nil
}

func (w *waitingIn) older(at time.Time) {
	if w.oldest.IsZero() || !at.IsZero() && at.Before(w.oldest) {
		w.oldest = at
	}
}

// firstTime is when the first message from an offset on was made, of main one that is main's
// by the record. Zero: there is none now.
func firstTime(ctx context.Context, e engine, p consume.Partition, from int64, f consume.Filter, r *consume.Record) (at time.Time) {
	ctx, cancel := context.WithTimeout(ctx, oldestWait)
	defer cancel()
	most := 1
	if f.All && r != nil && len(r.Colors) > 0 {
		most = oldestRead
	}
	b, err := e.Read(ctx, p, from, f, most)
	if err != nil {
		return at
	}
	for _, m := range b.Messages {
		at = m.Time
		if r == nil || !f.All || !r.Owns(m.Color, m.Offset) {
			break
		}
	}
	return at
}
