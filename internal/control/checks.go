package control

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// maxProbes is how many active checks run at once.
	maxProbes = 64
	// maxProbeBytes of an answer are read: nothing but its status matters.
	maxProbeBytes = 4 << 10
	// probeLook is how often the list of what is to be checked is made anew where
	// nothing else causes it.
	probeLook = 5 * time.Second
)

// healthValue is what is stored at healthPrefix + service/instance: apart from the
// instance, so that its spec stays as it was applied.
type healthValue struct {
	Result string    `json:"result"`
	Since  time.Time `json:"since"`
}

func readHealth(s side) string {
	var v healthValue
	if s.rev == 0 || json.Unmarshal(s.value, &v) != nil {
		return ""
	}
	return v.Result
}

// probe is one static instance under active check. It belongs to runChecks'
// goroutine; a check that is under way has a copy.
type probe struct {
	name     string // service/instance
	rev      uint64 // of the instance
	service  uint64 // revision of the service, whose check may change
	check    laneclient.Check
	address  string
	due      time.Time // by the monotonic clock
	failures int       // in a row
	underWay bool
}

type probeResult struct {
	*probe

	ok bool
}

// checker runs active checks while its replica leads.
type checker struct {
	c       *Control
	client  *http.Client
	probes  map[string]*probe
	results chan probeResult
	slots   chan struct{}
	running sync.WaitGroup
}

func newChecker(c *Control) *checker {
	return &checker{
		c: c, probes: map[string]*probe{}, results: make(chan probeResult), slots: make(chan struct{}, maxProbes),
		client: &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true, Proxy: nil},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// runChecks probes static instances of services with a check, and stores what
// changes, until ctx ends.
func (c *Control) runChecks(ctx context.Context) {
	k := newChecker(c)
	defer k.running.Wait()
	for ctx.Err() == nil {
		advanced := c.cache.next()
		wait := probeLook
		leader, leads := c.leadership()
		if leads {
			k.look(ctx, leader)
			wait = min(wait, k.start(ctx))
		} else {
			clear(k.probes)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-advanced:
			k.settle(ctx, leader, lifePause)
		case r := <-k.results:
			k.take(ctx, leader, r)
		}
		t.Stop()
	}
}

// settle takes results for a while, so that a burst of changes costs one look.
func (k *checker) settle(ctx context.Context, leader uint64, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			return
		case r := <-k.results:
			k.take(ctx, leader, r)
		}
	}
}

// look brings the list of probes in step with the registry, and takes back results
// of instances that are no longer checked.
func (k *checker) look(ctx context.Context, leader uint64) {
	wanted := map[string]*probe{}
	services, _, _ := k.c.cache.list(laneclient.KindServices, 0, nil)
	checks := map[string]*item{}
	for _, it := range services {
		if s, _ := it.obj.(*laneclient.Service); s.Check != nil {
			checks[s.Name] = it
		}
	}
	if len(checks) == 0 && !k.c.cache.anyHealth() {
		clear(k.probes)
		return
	}
	instances, _, _ := k.c.cache.list(laneclient.KindInstances, 0, nil)
	for _, it := range instances {
		i, _ := it.obj.(*laneclient.Instance)
		if !i.Static {
			continue
		}
		if s := checks[i.Service]; s != nil {
			if p := newProbe(it, s); p != nil {
				wanted[p.name] = p
				continue
			}
		}
		if i.Health != "" {
			k.store(ctx, leader, &probe{name: it.name, rev: it.rev}, "")
		}
	}
	for name, p := range wanted {
		if old := k.probes[name]; old != nil && old.rev == p.rev && old.service == p.service {
			wanted[name] = old
		}
	}
	k.probes = wanted
}

// newProbe is nil if the instance has no address that can be checked.
func newProbe(it, service *item) *probe {
	i, _ := it.obj.(*laneclient.Instance)
	s, _ := service.obj.(*laneclient.Service)
	p := &probe{name: it.name, rev: it.rev, service: service.rev, check: *s.Check}
	if p.check.Protocol == "" {
		p.check.Protocol = lane.TCP
	}
	orDefault(&p.check.Interval, defaultCheckInterval)
	orDefault(&p.check.Timeout, defaultCheckTimeout)
	if p.check.Failures == 0 {
		p.check.Failures = defaultCheckFailures
	}
	if p.check.Path == "" {
		p.check.Path = "/"
	}
	at := slices.IndexFunc(i.Endpoints, func(e laneclient.Endpoint) bool {
		return e.Protocol == p.check.Protocol
	})
	switch {
	case len(i.Endpoints) == 0:
		return nil
	case at < 0:
		at = 0
	}
	p.address = i.Endpoints[at].Address
	if i.Health == "" {
		p.failures = p.check.Failures - 1 // with no result yet, the first one decides
	}
	return p
}

func orDefault(d *laneclient.Duration, value time.Duration) {
	if *d == 0 {
		*d = laneclient.Duration(value)
	}
}

// start starts what is due and returns how long until the next is.
func (k *checker) start(ctx context.Context) time.Duration {
	now, wait := time.Now(), probeLook
	for _, p := range k.probes {
		if p.underWay {
			continue
		}
		if p.due.After(now) {
			wait = min(wait, p.due.Sub(now))
			continue
		}
		select {
		case k.slots <- struct{}{}:
		default:
			return wait // a result frees one
		}
		p.underWay = true
		job := *p
		k.running.Go(func() {
			ok := k.probe(ctx, &job)
			<-k.slots
			select {
			case k.results <- probeResult{p, ok}:
			case <-ctx.Done():
			}
		})
	}
	return wait
}

func (k *checker) probe(ctx context.Context, p *probe) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.check.Timeout))
	defer cancel()
	if p.check.Protocol == lane.TCP {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.address)
		if err != nil {
			return false
		}
		_ = conn.Close()
		return true
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.address+p.check.Path, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxProbeBytes)
	return resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusBadRequest
}

// take counts a result and stores what it changes.
func (k *checker) take(ctx context.Context, leader uint64, r probeResult) {
	p := r.probe
	p.underWay = false
	p.due = time.Now().Add(time.Duration(p.check.Interval))
	if k.probes[p.name] != p {
		return // the instance or its check changed meanwhile
	}
	switch {
	case r.ok:
		p.failures = 0
		k.store(ctx, leader, p, laneclient.HealthPassing)
	case p.failures+1 >= p.check.Failures:
		k.store(ctx, leader, p, laneclient.HealthFailing)
	default:
		p.failures++
	}
}

// store writes a result if it is another than before; none takes it back.
func (k *checker) store(ctx context.Context, leader uint64, p *probe, result string) {
	old := k.c.cache.healthOf(p.name)
	if readHealth(old) == result {
		return
	}
	key := healthPrefix + p.name
	op := store.Op{Key: key, Delete: true}
	if result != "" {
		value, err := json.Marshal(healthValue{Result: result, Since: k.c.now()})
		if err != nil {
			return
		}
		op = store.Op{Key: key, Value: value}
	}
	res, err := k.c.cfg.Store.Do(ctx, store.Txn{
		If: []store.Compare{
			{Key: root + string(laneclient.KindInstances) + "/" + p.name, Revision: p.rev},
			{Key: key, Revision: old.rev},
			{Key: leaderKey, Revision: leader},
		},
		Ops: []store.Op{op},
	})
	switch {
	case err != nil && ctx.Err() == nil:
		k.c.log.WarnContext(ctx, "result of an active check was not stored", telemetry.KeyInstance, p.name, telemetry.KeyError, err)
	case err == nil && res.Done:
		k.c.log.InfoContext(ctx, "active check changed", telemetry.KeyInstance, p.name, telemetry.KeyStatus, result)
	}
}

func (c *cache) anyHealth() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.health) > 0
}

func (c *cache) healthOf(instance string) side {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.health[instance]
}
