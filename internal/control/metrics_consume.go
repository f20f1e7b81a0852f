package control

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// maxGroupSeries is how many groups have series of their own. The rest is counted
	// together as otherGroups.
	maxGroupSeries = 1000
	otherGroups    = "*" // no group can have that name
	otherWord      = "other"
)

// outcome is how a write of cursors was answered. The list is closed.
type outcome string

const (
	wroteDone     outcome = "done"
	wroteConflict outcome = "conflict" // what it compares was different
	wroteRefused  outcome = "refused"  // for good: no such session or group, a mistake, a limit
	wroteUnknown  outcome = "unknown"  // the registry did not answer: it may have taken place
)

// moveKinds are the moves that have a word of their own in metrics; what else clients name is
// counted as otherWord, so that they cannot make up labels.
func moveKinds() []consume.MoveKind {
	return []consume.MoveKind{consume.Take, consume.Release, consume.Split, consume.Merge, consume.Create, consume.Rewind}
}

// moveReasons are the same for why they are made.
func moveReasons() []consume.Why {
	return []consume.Why{
		consume.WhyFree, consume.WhyGone, consume.WhyNotRun, consume.WhyNewSession, consume.WhyCaretaker, consume.WhyOwner,
		consume.WhyNoMember, consume.WhyBalance, consume.WhyBaseline, consume.WhyStopping, consume.WhyMainMoves, consume.WhyReset,
		consume.WhyLaneMember, consume.WhyMessage, consume.WhyStalled, consume.WhyMet, consume.WhyNewGroup, consume.WhyNewPart,
		consume.WhyStrictEnded,
	}
}

// oneOf gives a word if it is of a closed list.
func oneOf[T ~string](words []T, word string) string {
	if slices.Contains(words, T(word)) {
		return word
	}
	return otherWord
}

// cursorMetrics count what becomes of writes of cursors that this replica was sent.
type cursorMetrics struct {
	kinds   []consume.MoveKind
	reasons []consume.Why
	writes  *prometheus.CounterVec // outcome
	moves   *prometheus.CounterVec // kind, reason, outcome
	seconds prometheus.Histogram
	byGroup *prometheus.CounterVec // group, kind; of moves that took place
	notes   *prometheus.CounterVec // group

	mu     sync.Mutex
	groups map[string]bool // that have series of their own
}

func newCursorMetrics(registry *prometheus.Registry) *cursorMetrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &cursorMetrics{
		kinds: moveKinds(), reasons: moveReasons(), groups: map[string]bool{},
		writes: counter(telemetry.MetricCursorWrites, "Writes of cursors by outcome; a batch has several.", "outcome"),
		moves:  counter(telemetry.MetricCursorMoves, "Moves of cursors by kind, reason and outcome of the write that had them.", "kind", "reason", "outcome"),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: telemetry.MetricCursorSeconds, Help: "Time of the transaction of a write of cursors.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}),
		byGroup: counter(telemetry.MetricGroupMoves, "Moves of cursors that took place, by group and kind. A group's series go when the group does.", "group", "kind"),
		notes:   counter(telemetry.MetricGroupNotes, "Notes of cursors that were written, by group.", "group"),
	}
	for _, o := range []outcome{wroteDone, wroteConflict, wroteRefused, wroteUnknown} {
		m.writes.WithLabelValues(string(o))
	}
	registry.MustRegister(m.writes, m.moves, m.seconds, m.byGroup, m.notes)
	return m
}

// outcomeOf says how a write was answered; err is that of writeCursors.
func outcomeOf(a *cursorAnswer, err error) outcome {
	p := a.err
	if p == nil {
		if err == nil {
			return wroteDone
		}
		p = toProblem(err)
	}
	switch {
	case p.Type == laneclient.ProblemChanged:
		return wroteConflict
	case p.Status >= 500 && p.Type != laneclient.ProblemFull:
		return wroteUnknown
	}
	return wroteRefused
}

// wrote counts a write that was answered.
func (m *cursorMetrics) wrote(w *cursorWrite, a *cursorAnswer, err error, took time.Duration) {
	o := outcomeOf(a, err)
	m.writes.WithLabelValues(string(o)).Inc()
	m.seconds.Observe(took.Seconds())
	group := otherGroups
	if o == wroteDone {
		group = m.label(w.group)
		m.notes.WithLabelValues(group).Add(float64(len(w.notes)))
	}
	for i := range w.moves {
		kind := oneOf(m.kinds, w.moves[i].Kind)
		m.moves.WithLabelValues(kind, oneOf(m.reasons, w.moves[i].Why), string(o)).Inc()
		if o == wroteDone {
			m.byGroup.WithLabelValues(group, kind).Inc()
		}
	}
}

// mistaken counts a write that could not be read.
func (m *cursorMetrics) mistaken() { m.writes.WithLabelValues(string(wroteRefused)).Inc() }

// label is the group's own, while there are not too many.
func (m *cursorMetrics) label(group string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.groups[group] {
		if len(m.groups) >= maxGroupSeries {
			return otherGroups
		}
		m.groups[group] = true
	}
	return group
}

// prune drops the series of groups that are gone.
func (m *cursorMetrics) prune(there func(group string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for group := range m.groups {
		if !there(group) {
			delete(m.groups, group)
			m.byGroup.DeletePartialMatch(prometheus.Labels{"group": group})
			m.notes.DeleteLabelValues(group)
		}
	}
}

// groupGauges reads from the cache, when it is scraped, who consumes.
type groupGauges struct {
	c                *Control
	members, cursors *prometheus.Desc

	mu      sync.Mutex
	holders map[string]holders // by the name of the cursors
}

// holders are the sessions that a record names, one for each cursor; they are read out of it
// once for each of its revisions.
type holders struct {
	rev      uint64
	sessions []string
}

func newGroupGauges(c *Control) *groupGauges {
	return &groupGauges{
		c:       c,
		members: prometheus.NewDesc(telemetry.MetricGroupMembers, "Live members by group.", []string{"group"}, nil),
		cursors: prometheus.NewDesc(telemetry.MetricGroupCursors,
			"Cursors by group and whether a live session holds them: held, or free.", []string{"group", "state"}, nil),
		holders: map[string]holders{},
	}
}

func (g *groupGauges) Describe(ch chan<- *prometheus.Desc) { ch <- g.members; ch <- g.cursors }

func (g *groupGauges) Collect(ch chan<- prometheus.Metric) {
	p := g.c.cache.consumption()
	g.c.metrics.cursors.prune(func(group string) bool {
		_, there := slices.BinarySearch(p.groups, group)
		return there
	})
	own := make(map[string]string, len(p.groups))
	members, held, free := map[string]int{}, map[string]int{}, map[string]int{}
	for _, group := range p.groups {
		own[group] = g.c.metrics.cursors.label(group)
		members[own[group]] += p.members[group]
		held[own[group]], free[own[group]] = 0, 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	there := make(map[string]holders, len(p.cursors))
	for _, it := range p.cursors {
		h, known := g.holders[it.name]
		if !known || h.rev != it.rev {
			h = holdersOf(it)
		}
		there[it.name] = h
		_, group, _, _, _ := laneclient.ParseCursorName(it.name)
		label, open := own[group]
		if !open {
			continue // its group is being deleted
		}
		for _, session := range h.sessions {
			if p.sessions[session] {
				held[label]++
			} else {
				free[label]++
			}
		}
	}
	g.holders = there
	for label, n := range members {
		ch <- prometheus.MustNewConstMetric(g.members, prometheus.GaugeValue, float64(n), label)
		ch <- prometheus.MustNewConstMetric(g.cursors, prometheus.GaugeValue, float64(held[label]), label, "held")
		ch <- prometheus.MustNewConstMetric(g.cursors, prometheus.GaugeValue, float64(free[label]), label, "free")
	}
}

// holdersOf reads a record. One of a later version has none that are known.
func holdersOf(it *item) holders {
	h := holders{rev: it.rev}
	c, _ := it.obj.(*laneclient.Cursor)
	var r consume.Record
	if err := r.UnmarshalJSON(c.Record); err != nil {
		return h
	}
	h.sessions = append(h.sessions, strings.Clone(r.Main.Session))
	for _, e := range r.Colors {
		h.sessions = append(h.sessions, strings.Clone(e.Holder.Session))
	}
	return h
}

// consumption is who consumes, as the cache has it.
type consumption struct {
	groups   []string       // sorted
	members  map[string]int // live ones, by group
	cursors  []*item
	sessions map[string]bool // those that live
}

func (c *cache) consumption() consumption {
	c.mu.RLock()
	defer c.mu.RUnlock()
	out := consumption{members: map[string]int{}, sessions: map[string]bool{}}
	out.groups = slices.Clone(c.shelves[laneclient.KindGroups].names)
	for _, it := range c.shelves[laneclient.KindMembers].byName {
		if m := memberOfItem(it); m.Session != "" {
			out.members[m.Group]++
		}
	}
	for _, it := range c.shelves[laneclient.KindCursors].byName {
		out.cursors = append(out.cursors, it)
	}
	if len(out.cursors) > 0 {
		for name := range c.shelves[laneclient.KindSessions].byName {
			out.sessions[name] = true
		}
	}
	return out
}
