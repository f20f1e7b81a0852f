package control

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// metrics are this replica's counters. What can be read from the cache is read when
// it is scraped.
type metrics struct {
	registry       *prometheus.Registry
	requests       *prometheus.CounterVec
	seconds        *prometheus.HistogramVec
	watchEvents    prometheus.Counter
	watchOverflows prometheus.Counter
	renewals       *prometheus.CounterVec
	laneSteps      *prometheus.CounterVec
	panics         prometheus.Counter
	cursors        *cursorMetrics
}

func newMetrics(registry *prometheus.Registry) *metrics {
	if registry == nil {
		registry = prometheus.NewRegistry()
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	events := counter(telemetry.MetricWatchEvents, "Puts and deletes sent to watches.")
	overflows := counter(telemetry.MetricWatchOverflows, "Watches ended because their client was too slow.")
	panics := counter(telemetry.MetricPanics, "Requests whose handler panicked.")
	m := &metrics{
		registry: registry,
		requests: counter(telemetry.MetricAPIRequests, "API requests by kind, method and class of the status.", "kind", "method", "code"),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: telemetry.MetricAPISeconds, Help: "Time of API requests, without watches, by kind.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"kind"}),
		renewals:  counter(telemetry.MetricRenewals, "Renewals of sessions by result.", "result"),
		laneSteps: counter(telemetry.MetricLaneSteps, "Steps in the life of lanes that this replica took, by step.", "step"),
	}
	m.watchEvents, m.watchOverflows, m.panics = events.WithLabelValues(), overflows.WithLabelValues(), panics.WithLabelValues()
	registry.MustRegister(m.requests, m.seconds, m.renewals, m.laneSteps, events, overflows, panics)
	m.cursors = newCursorMetrics(registry)
	return m
}

// observe counts one request that was answered.
func (m *metrics) observe(kind, method string, status int, took time.Duration) {
	m.requests.WithLabelValues(kind, method, strconv.Itoa(status/100)+"xx").Inc()
	if kind != "watch" {
		m.seconds.WithLabelValues(kind).Observe(took.Seconds())
	}
}

// gauges reads the cache when it is scraped.
type gauges struct {
	c                                                 *Control
	objects, lanes, revision, watches, leads, session *prometheus.Desc
}

func newGauges(c *Control) *gauges {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &gauges{
		c:        c,
		objects:  desc(telemetry.MetricObjects, "Objects in the registry by kind.", "kind"),
		lanes:    desc(telemetry.MetricLanes, "Lanes by state.", "state"),
		revision: desc(telemetry.MetricRevision, "Revision of the registry that this replica has seen."),
		watches:  desc(telemetry.MetricWatches, "Open watches."),
		leads:    desc(telemetry.MetricLeader, "1 on the replica that runs the life of lanes."),
		session:  desc(telemetry.MetricSessions, "Live sessions by role.", "role"),
	}
}

func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.objects, g.lanes, g.revision, g.watches, g.leads, g.session} {
		ch <- d
	}
}

func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	t := g.c.cache.tally()
	for kind, n := range t.objects {
		send(g.objects, float64(n), string(kind))
	}
	for state, n := range t.lanes {
		send(g.lanes, float64(n), string(state))
	}
	for role, n := range t.sessions {
		send(g.session, float64(n), role)
	}
	send(g.revision, float64(t.revision))
	send(g.watches, float64(t.watches))
	leads := 0.0
	if _, l := g.c.leadership(); l {
		leads = 1
	}
	send(g.leads, leads)
}

// tally counts what there is.
type tally struct {
	objects  map[laneclient.Kind]int
	lanes    map[lane.State]int
	sessions map[string]int // by role; roles beyond knownRoles are one
	revision uint64
	watches  int
	selects  int
	broken   []string
}

// otherRole stands for roles that clients made up, so that labels stay few.
const otherRole = "other"

func knownRole(role string) string {
	switch role {
	case "":
		return laneclient.RoleInstance
	case laneclient.RoleInstance, laneclient.RoleGateway, laneclient.RoleRun, laneclient.RoleClient, laneclient.RoleEngine, "amqp", "xds", "console", "control":
		return role
	}
	return otherRole
}

func (c *cache) tally() tally {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := tally{
		objects: map[laneclient.Kind]int{}, sessions: map[string]int{}, revision: c.rev,
		lanes: map[lane.State]int{lane.Creating: 0, lane.Ready: 0, lane.Draining: 0, lane.Ended: 0},
	}
	t.watches, t.selects = c.hub.count()
	for kind, s := range c.shelves {
		t.objects[kind] = len(s.names)
	}
	for _, it := range c.shelves[laneclient.KindLanes].byName {
		t.lanes[lane.State(laneOfItem(it).State)]++
	}
	for _, it := range c.shelves[laneclient.KindSessions].byName {
		s, _ := it.obj.(*laneclient.Session)
		t.sessions[knownRole(s.Role)]++
	}
	for r, err := range c.broken {
		t.broken = append(t.broken, string(r.kind)+"/"+r.name+": "+err.Error())
	}
	return t
}

// serveMetrics answers GET /metrics.
func (c *Control) serveMetrics(w http.ResponseWriter, r *http.Request, _ params) error {
	promhttp.HandlerFor(c.metrics.registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// kindLabel is the kind that a path is about, of a closed list.
func kindLabel(pattern string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(pattern, "/v1/"), "/"), "/")
	return first
}
