package httpgw

import (
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// metrics counts what the gateway does. Labels are closed lists of words, but for
// lanes, whose series go when the lane does.
type metrics struct {
	requests *prometheus.CounterVec   // listener, reason, class
	seconds  *prometheus.HistogramVec // listener
	inFlight *prometheus.GaugeVec     // listener
	byLane   *prometheus.CounterVec   // lane
	refused  *prometheus.CounterVec   // why
	rules    *prometheus.CounterVec   // rule
	retries  prometheus.Counter

	sides map[bool]*sideMetrics // by whether it is the inside

	mu    sync.RWMutex
	lanes map[lane.Name]prometheus.Counter
}

// sideMetrics are the series of one listener, found once.
type sideMetrics struct {
	seconds  prometheus.Observer
	inFlight prometheus.Gauge
	requests sync.Map // [2]string{reason, class} to prometheus.Counter
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricGatewayRequests,
			Help: "Requests by listener, reason of the choice (empty: none was made) and class of the status.",
		}, []string{"listener", "reason", "class"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    telemetry.MetricGatewaySeconds,
			Help:    "Time from a request's headers to the end of its answer, by listener.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 10), // 0.5 ms to 131 s
		}, []string{"listener"}),
		inFlight: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: telemetry.MetricGatewayInFlight, Help: "Requests under way, by listener.",
		}, []string{"listener"}),
		byLane: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricGatewayLaneRequests,
			Help: "Requests by the lane that served; - is the baseline. A lane's series goes when the lane does.",
		}, []string{"lane"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricColorsRefused,
			Help: "Colors that came with a request and were dropped, by why: untrusted, malformed.",
		}, []string{"why"}),
		rules: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: telemetry.MetricColoring, Help: "Colored requests, by what gave the color.",
		}, []string{"rule"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: telemetry.MetricGatewayRetries, Help: "Requests that were sent again to another instance.",
		}),
		lanes: map[lane.Name]prometheus.Counter{},
	}
	m.sides = map[bool]*sideMetrics{}
	for inside, name := range map[bool]string{false: "edge", true: "inside"} {
		m.sides[inside] = &sideMetrics{seconds: m.seconds.WithLabelValues(name), inFlight: m.inFlight.WithLabelValues(name)}
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.inFlight, m.byLane, m.refused, m.rules, m.retries} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("gateway: register metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) began(s *side) { m.sides[s.inside].inFlight.Inc() }

// ended counts a request that is over.
func (m *metrics) ended(c *call, took time.Duration) {
	s := m.sides[c.s.inside]
	s.inFlight.Dec()
	s.seconds.Observe(took.Seconds())
	key := [2]string{string(c.choice.Reason), classOf(c.status)}
	counter, ok := s.requests.Load(key)
	if !ok {
		counter, _ = s.requests.LoadOrStore(key, m.requests.WithLabelValues(c.s.name, key[0], key[1]))
	}
	counter.(prometheus.Counter).Inc() //nolint:forcetypeassert // nothing else is stored
	if c.target != nil {
		m.servedBy(c.choice.Lane)
	}
}

func (m *metrics) servedBy(name lane.Name) {
	m.mu.RLock()
	counter := m.lanes[name]
	m.mu.RUnlock()
	if counter == nil {
		m.mu.Lock()
		counter = m.lanes[name]
		if counter == nil {
			counter = m.byLane.WithLabelValues(laneLabel(name))
			m.lanes[name] = counter
		}
		m.mu.Unlock()
	}
	counter.Inc()
}

func laneLabel(name lane.Name) string {
	if name == lane.Baseline {
		return "-"
	}
	return string(name)
}

// colored counts what became of a request's color.
func (m *metrics) colored(d *coloring.Decision) {
	if d.Malformed > 0 {
		m.refused.WithLabelValues("malformed").Add(float64(d.Malformed))
	}
	if d.Dropped {
		m.refused.WithLabelValues("untrusted").Inc()
	}
	if d.Rule != "" {
		m.rules.WithLabelValues(string(d.Rule)).Inc()
	}
}

// prune drops the series of lanes that are gone.
func (m *metrics) prune(view *laneclient.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.lanes {
		if l, ok := view.Snapshot.Lane(name); name != lane.Baseline && (!ok || l.State == lane.Ended) {
			delete(m.lanes, name)
			m.byLane.DeleteLabelValues(laneLabel(name))
		}
	}
}

func classOf(status int) string {
	switch {
	case status == statusClientGone:
		return "gone"
	case status >= 100 && status < 600:
		return [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}[status/100-1]
	}
	return ""
}
