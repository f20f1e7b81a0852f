package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// healthTimeout bounds what a question after health waits for the store.
	healthTimeout = time.Second
	// healthFresh is how long an answer of the store holds: probes by many
	// supervisors must not become load.
	healthFresh = time.Second
	// cacheWait is how long a read waits for the cache.
	cacheWait = 3 * time.Second
	// skewLimit is how far clocks may be apart before status says so: expiry and
	// signatures are decided by them.
	skewLimit = 2 * time.Second
	// lagLimit is how far behind a view may be before status lists it.
	lagLimit = 5 * time.Second
	// syncLimit is how long the store's watch, which speaks each second, may be
	// silent.
	syncLimit = 5 * time.Second
	// nearRatio of a limit is near it.
	nearRatio = 0.8
	// maxStaleViews is how many stale views status lists.
	maxStaleViews = 100
	// maxTold is how many objects of a kind that are not well status tells of.
	maxTold = 10

	controlRole = "control"
)

// role is one that others have added to readiness.
type role struct {
	name  string
	check func(context.Context) error
}

// AddReadiness adds a role of this process to /readyz and /v1/status, behind those that
// are there; name is shown as it is, and "control" is this replica's own. check returns
// nil, or an error that says why the role is not ready and what to do, as a sentence.
// It is called for every such request, from several goroutines at once, with a context
// that ends after a second, and each request waits for it. It may be called at any
// time; a role cannot be taken back.
func (c *Control) AddReadiness(name string, check func(context.Context) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roles = append(c.roles, role{name, check})
}

// storeHealth remembers the store's last answer for a moment. mu is held while the
// store is asked, so that one question answers all who ask at once.
type storeHealth struct {
	mu   sync.Mutex
	at   time.Time
	err  error
	rev  uint64
	last bool // one was asked for
}

// registry says how the store is.
func (c *Control) registry(ctx context.Context) laneclient.RegistryStatus {
	h := &c.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.last || time.Since(h.at) > healthFresh {
		ctx, cancel := context.WithTimeout(ctx, healthTimeout)
		defer cancel()
		err := c.cfg.Store.Health(ctx)
		rev, revErr := c.cfg.Store.Revision(ctx)
		h.err, h.rev, h.at, h.last = cmpErr(err, revErr), rev, time.Now(), true
	}
	var out *store.OutError
	s := laneclient.RegistryStatus{OK: h.err == nil, Revision: h.rev, Cached: c.cache.revision()}
	switch {
	case h.err == nil:
	case errors.Is(h.err, store.ErrFull):
		s.Detail = "the registry's storage is full: reads go on, writes are refused; delete what is not needed or give it more room"
	case errors.As(h.err, &out):
		s.Detail = out.Error() + ": traffic goes on by the last known state"
	default:
		s.Detail = "the registry does not answer: traffic goes on by the last known state; check that its members run and reach each other"
	}
	return s
}

func cmpErr(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// controlReady says why this replica's own role is not ready. A full registry is no
// reason: reads go on.
func (c *Control) controlReady(reg laneclient.RegistryStatus, full bool) string {
	switch {
	case !c.cache.ready() && (reg.OK || full):
		return "the registry has not been read yet: wait, or check that it can be reached"
	case !reg.OK && !full:
		return reg.Detail
	}
	return ""
}

// roleStatus asks all roles, this one first.
func (c *Control) roleStatus(ctx context.Context, reg laneclient.RegistryStatus) []laneclient.RoleStatus {
	c.health.mu.Lock()
	full := errors.Is(c.health.err, store.ErrFull)
	c.health.mu.Unlock()
	reason := c.controlReady(reg, full)
	list := []laneclient.RoleStatus{{Role: controlRole, Ready: reason == "", Reason: reason}}
	if reason == "" && full {
		list[0].Reason = reg.Detail
	}
	c.mu.Lock()
	roles := slices.Clone(c.roles)
	c.mu.Unlock()
	for _, r := range roles {
		s := laneclient.RoleStatus{Role: r.name, Ready: true}
		if err := checkRole(ctx, r); err != nil {
			s.Ready, s.Reason = false, err.Error()
		}
		list = append(list, s)
	}
	return list
}

func checkRole(ctx context.Context, r role) error {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	return r.check(ctx)
}

// getHealthz answers GET /healthz: the process runs. It is 200 also where the
// registry is not well, which a restart of this process would not mend.
func (c *Control) getHealthz(w http.ResponseWriter, r *http.Request, _ params) error {
	reg := c.registry(r.Context())
	return writeJSON(w, http.StatusOK, laneclient.Health{
		OK:    reg.OK,
		Roles: []laneclient.RoleStatus{{Role: "registry", Ready: reg.OK, Reason: reg.Detail}},
	})
}

// getReadyz answers GET /readyz: every role of this process can do its work.
func (c *Control) getReadyz(w http.ResponseWriter, r *http.Request, _ params) error {
	h := laneclient.Health{OK: true, Roles: c.roleStatus(r.Context(), c.registry(r.Context()))}
	status := http.StatusOK
	for _, role := range h.Roles {
		if !role.Ready {
			h.OK, status = false, http.StatusServiceUnavailable
		}
	}
	return writeJSON(w, status, h)
}

// getStatus answers GET /v1/status.
func (c *Control) getStatus(w http.ResponseWriter, r *http.Request, _ params) error {
	t := c.cache.tally()
	reg := c.registry(r.Context())
	s := laneclient.Status{
		Node: c.node, Version: c.cfg.Version, Cluster: c.cfg.Cluster, Domain: c.cfg.Domain, Time: c.now(),
		Registry: reg, Replicas: c.replicaStatus(), Roles: c.roleStatus(r.Context(), reg),
		Objects: maps.Clone(t.objects), Sessions: t.sessions, Stale: c.staleViews(), Limits: c.limits(t),
	}
	s.Objects[laneclient.KindLanes] -= t.lanes[lane.Ended] // kept for their history alone
	ailing := c.cache.ailing()
	s.NotOK = ailing.count
	s.Problems = append(c.problems(&s, t), ailing.told...)
	s.OK = len(s.Problems) == 0
	return writeJSON(w, http.StatusOK, s)
}

func (c *Control) problems(s *laneclient.Status, t tally) []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if !s.Registry.OK {
		add("%s", s.Registry.Detail)
	}
	if silent := time.Since(time.Unix(0, c.synced.Load())); s.Registry.OK && silent > syncLimit {
		add("this replica has heard nothing of the registry's changes for %s: check its connection, or restart it", silent.Round(time.Second))
	}
	for _, r := range s.Roles {
		if !r.Ready && r.Role != controlRole {
			add("role %s is not ready: %s", r.Role, r.Reason)
		}
	}
	leads := false
	for _, r := range s.Replicas {
		leads = leads || r.Leader
		if skew := time.Duration(r.Skew).Abs(); skew > skewLimit && !r.Self {
			add("the clock of replica %s is %s away from this one's: synchronize them, since lanes expire by the clock", r.Name, skew.Round(time.Millisecond))
		}
	}
	if !leads {
		add("no replica leads, so lanes neither expire nor drain: wait for an election, and check that a replica reaches the registry")
	}
	if step := c.clockStep(); step.Abs() > skewLimit {
		add("the clock of this machine was set by %s since the start: check its time service, since lanes expire by the clock", step.Round(time.Millisecond))
	}
	if n := len(s.Stale); n > 0 {
		add("%d sessions route by a view that is more than %s old: see stale; check what is between them and the control plane", n, lagLimit)
	}
	for _, l := range s.Limits {
		if l.Near {
			add("%s: %d of %d are used: delete what is not needed", l.Name, l.Used, l.Limit)
		}
	}
	for _, b := range t.broken {
		add("a stored object cannot be read and is left out (%s): write it again", b)
	}
	return list
}

// ailing are the objects that do not do what they should, which nothing else shows.
type ailing struct {
	count map[laneclient.Kind]int
	told  []string // at most maxTold of each kind, a sentence each
}

func (c *cache) ailing() ailing {
	c.mu.RLock()
	defer c.mu.RUnlock()
	a := ailing{count: map[laneclient.Kind]int{}}
	for _, kind := range []laneclient.Kind{laneclient.KindRules, laneclient.KindInstances} {
		shelf := c.shelves[kind]
		for _, name := range shelf.names {
			text := ""
			switch o := shelf.byName[name].obj.(type) {
			case *laneclient.Rule:
				if o.Status != coloring.StatusOK {
					text = fmt.Sprintf("rule %s does not do what it says: %s", name, o.Status)
				}
			case *laneclient.Instance:
				if o.Health == laneclient.HealthFailing {
					text = fmt.Sprintf("instance %s fails its check and is given nothing: start it again, or delete it", name)
				}
			}
			if text == "" {
				continue
			}
			a.count[kind]++
			if a.count[kind] <= maxTold {
				a.told = append(a.told, text)
			}
		}
		if more := a.count[kind] - maxTold; more > 0 {
			a.told = append(a.told, fmt.Sprintf("%d more %s are like that: list them with GET /v1/%s", more, kind, kind))
		}
	}
	return a
}

// clockStep is how far the wall clock was set since the start, against the
// monotonic one.
func (c *Control) clockStep() time.Duration {
	now := time.Now()
	return now.Round(0).Sub(c.started.Round(0)) - now.Sub(c.started)
}

func (c *Control) replicaStatus() []laneclient.ReplicaStatus {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	list := []laneclient.ReplicaStatus{}
	for name, r := range c.cache.replicas {
		s := laneclient.ReplicaStatus{
			Name: name, Version: r.Version, Host: r.Host, Address: r.Address, Since: r.Since, Skew: laneclient.Duration(r.skew),
			Self: name == c.node, Leader: name == string(c.cache.leader.value),
		}
		if s.Self {
			s.Skew = 0
		}
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b laneclient.ReplicaStatus) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// staleViews lists sessions that are renewed here and whose view lags.
func (c *Control) staleViews() []laneclient.StaleView {
	list := []laneclient.StaleView{}
	sessions, _, _ := c.cache.list(laneclient.KindSessions, 0, nil)
	for _, it := range sessions {
		seen, _ := c.reached.get(it.name)
		if seen.behind < lagLimit {
			continue
		}
		s, _ := it.obj.(*laneclient.Session)
		list = append(list, laneclient.StaleView{
			Session: s.Name, Instance: s.Instance, Role: s.Role, Host: s.Host, Reached: seen.reached, Behind: laneclient.Duration(seen.behind),
		})
		if len(list) == maxStaleViews {
			break
		}
	}
	return list
}

func (c *Control) limits(t tally) []laneclient.LimitStatus {
	limit := func(name string, used, most int) laneclient.LimitStatus {
		return laneclient.LimitStatus{Name: name, Used: int64(used), Limit: int64(most), Near: float64(used) > nearRatio*float64(most)}
	}
	list := []laneclient.LimitStatus{limit("watches of this replica", t.watches, maxWatches), limit("selects of this replica's watches", t.selects, maxAllSelects)}
	for _, k := range kinds() {
		list = append(list, limit(string(k.name), t.objects[k.name], maxPerKind))
	}
	return list
}
