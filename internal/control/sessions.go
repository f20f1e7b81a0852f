package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// maxRenewalLanes is how many lanes one renewal may say were used.
const maxRenewalLanes = 4096

// postSession opens a session: a lease, and the object that ends with it.
func (c *Control) postSession(w http.ResponseWriter, r *http.Request, _ params) error {
	k := c.cache.kinds[laneclient.KindSessions]
	obj, err := readObject(w, r, k, "")
	if err != nil {
		return err
	}
	s, _ := obj.(*laneclient.Session)
	if n := c.cache.count(k.name); n >= maxPerKind {
		return problem(http.StatusServiceUnavailable, "there are %d sessions, which is the limit: end some first", n)
	}
	// Ids are never used twice, also not after a restart: they are random.
	s.Name = strings.ToLower(rand.Text())
	s.Since, s.Reached = c.now(), 0
	lease, err := c.cfg.Store.Grant(r.Context(), time.Duration(s.TTL))
	if err != nil {
		return err
	}
	at := sessionRef(s.Name)
	value, err := k.encode(s, nil)
	if err != nil {
		return err
	}
	res, err := c.cfg.Store.Do(r.Context(), store.Txn{
		If:  []store.Compare{{Key: at.key(), Revision: 0}},
		Ops: []store.Op{{Key: at.key(), Value: value, Lease: lease}},
	})
	if err != nil {
		c.dropLease(r.Context(), lease)
		return err
	}
	it, err := c.cache.show(at, store.KV{Key: at.key(), Value: value, ModRevision: res.Revision, Lease: lease})
	return c.answerWrite(w, it, true, err)
}

// dropLease ends a lease that nobody got to know of; it would expire anyway.
func (c *Control) dropLease(ctx context.Context, lease store.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := c.cfg.Store.Revoke(ctx, lease); err != nil {
		c.log.WarnContext(ctx, "lease of a session that was not opened stays until it expires", telemetry.KeyError, err)
	}
}

// leaseOf finds the lease of a session: in the cache, or in the store where the
// cache has not seen it yet. Both results are zero if there is none.
func (c *Control) leaseOf(ctx context.Context, id string) (*item, error) {
	if it := c.cache.get(sessionRef(id)); it != nil {
		return it, nil
	}
	if isPlainName(id) {
		return c.read(ctx, sessionRef(id))
	}
	return nil, nil
}

// deleteSession ends a session and all that is bound to it. Whether there is one
// is asked of the store: its Revoke takes a lease that is gone for no error, so a
// cache that lags would answer a second delete as it did the first.
func (c *Control) deleteSession(w http.ResponseWriter, r *http.Request, p params) error {
	id := p["name"]
	if !isPlainName(id) {
		return sessionGone(http.StatusNotFound, clip(id))
	}
	it, err := c.read(r.Context(), sessionRef(id))
	if err != nil {
		return err
	}
	if it == nil {
		return sessionGone(http.StatusNotFound, clip(id))
	}
	if err := c.cfg.Store.Revoke(r.Context(), it.lease); err != nil {
		return err
	}
	c.reached.forget(id)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// postRenew prolongs a session, unless its view has lagged for more than a TTL: one
// that routes on a picture so old had better be replaced, or go to a replica that
// is not cut off.
func (c *Control) postRenew(w http.ResponseWriter, r *http.Request, p params) error {
	var body laneclient.Renewal
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	if len(body.Lanes) > maxRenewalLanes {
		f := &faults{}
		f.add("lanes", "has %d entries: at most %d are allowed in one renewal; name the rest in the next", len(body.Lanes), maxRenewalLanes)
		return f.err("the renewal")
	}
	id := p["name"]
	it, err := c.leaseOf(r.Context(), id)
	if err != nil {
		return err
	}
	if it == nil {
		return c.renewalGone(id)
	}
	s, _ := it.obj.(*laneclient.Session)
	if err := c.checkView(r.Context(), s, body.Reached); err != nil {
		return err
	}
	ttl, err := c.cfg.Store.Renew(r.Context(), it.lease)
	if errors.Is(err, store.ErrLeaseNotFound) {
		return c.renewalGone(id)
	}
	if err != nil {
		return err
	}
	rev, err := c.fresh(r.Context())
	if err != nil {
		return err
	}
	c.cache.hub.progress(id, rev)
	for _, name := range body.Lanes {
		c.noteUse(name)
	}
	c.metrics.renewals.WithLabelValues("renewed").Inc()
	return writeJSON(w, http.StatusOK, laneclient.Renewed{Revision: rev, TTL: laneclient.Duration(ttl)})
}

func (c *Control) renewalGone(id string) error {
	c.reached.forget(id)
	c.metrics.renewals.WithLabelValues("gone").Inc()
	return sessionGone(http.StatusNotFound, clip(id))
}

// checkView refuses a view that lags by more than the session's TTL, or that is
// ahead of the registry, which then is another one, such as a restored backup.
// Zero reached: the session has no view.
func (c *Control) checkView(ctx context.Context, s *laneclient.Session, reached uint64) error {
	if reached == 0 {
		return nil
	}
	now := c.now()
	behind := c.samples.behind(reached, now)
	c.reached.note(s.Name, seenView{reached, behind})
	refuse := func(detail string, args ...any) error {
		c.metrics.renewals.WithLabelValues("stale").Inc()
		return typed(problem(http.StatusConflict, detail, args...), laneclient.ProblemStaleView)
	}
	if ttl := time.Duration(s.TTL); behind > ttl && now.Sub(s.Since) > ttl {
		return refuse("the view of session %q has lagged for %s at revision %d, more than its TTL of %s: go to another replica, list again, and open a new session",
			s.Name, behind.Round(time.Millisecond), reached, ttl)
	}
	if reached <= c.cache.revision() {
		return nil
	}
	rev, err := c.fresh(ctx)
	if err != nil {
		return err
	}
	if reached > rev {
		return refuse("the view of session %q is at revision %d, but the registry only at %d: it is another one, so drop the view, list again, and open a new session",
			s.Name, reached, rev)
	}
	return nil
}

// withReached is a session's body with what this replica knows of its view.
func (c *Control) withReached(it *item) []byte {
	seen, ok := c.reached.get(it.name)
	if !ok {
		return it.body
	}
	s, _ := it.obj.(*laneclient.Session)
	shown := *s
	shown.Reached = seen.reached
	body, err := json.Marshal(shown)
	if err != nil {
		return it.body
	}
	return keepUnknown(body, it.body, c.cache.kinds[it.kind].typ)
}

// views remembers how far the views of sessions have got that are renewed at this
// replica: in memory alone, since it changes with every renewal.
type views struct {
	mu sync.Mutex
	at map[string]seenView
}

// seenView is what the last renewal of a session told.
type seenView struct {
	reached uint64
	behind  time.Duration // at that time
}

func (v *views) note(session string, seen seenView) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at[session] = seen
}

func (v *views) get(session string) (seenView, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen, ok := v.at[session]
	return seen, ok
}

func (v *views) forget(session string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.at, session)
}

// keep forgets all sessions but those that live.
func (v *views) keep(lives func(session string) bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for id := range v.at {
		if !lives(id) {
			delete(v.at, id)
		}
	}
}

// maxSampleAge is how far back samples go: past the longest TTL of a session.
const (
	maxSampleAge  = 2 * laneclient.MaxTTL
	sampleSpacing = 100 * time.Millisecond
)

// samples remembers when the registry's revision was first seen to be what, so that
// a lag of revisions can be told as a lag of time.
type samples struct {
	mu   sync.Mutex
	list []sample // both fields rise
}

type sample struct {
	rev uint64
	at  time.Time
}

func (s *samples) add(rev uint64, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list)
	if n > 0 && rev <= s.list[n-1].rev {
		return
	}
	if n > 0 && now.Sub(s.list[n-1].at) < sampleSpacing {
		s.list[n-1].rev = rev // keeps the earlier time: a lag is never told too short
		return
	}
	s.list = append(s.list, sample{rev, now})
	drop := 0
	for drop < len(s.list)-1 && now.Sub(s.list[drop].at) > maxSampleAge {
		drop++
	}
	s.list = s.list[drop:]
}

// restart is for a registry whose revisions were lowered by a restore.
func (s *samples) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = nil
}

// behind is how long ago the first revision after reached was seen; 0 if none was.
func (s *samples) behind(reached uint64, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.list {
		if p.rev > reached {
			return max(0, now.Sub(p.at))
		}
	}
	return 0
}

// noteUse remembers that a lane is in use, to be written soon, unless it was
// written less than 1 % of its TTL ago, here or by another replica.
func (c *Control) noteUse(name string) {
	if !lane.Name(name).Valid() {
		return
	}
	l := laneOfItem(c.cache.get(laneRef(name)))
	if l == nil || !isAlive(l) || c.now().Sub(l.LastUse) < time.Duration(l.TTL)/100 {
		return
	}
	c.uses.add(name)
}

// uses are lanes whose use is to be written. Bounded by the lanes that live.
type uses struct {
	mu      sync.Mutex
	pending map[string]struct{}
	wake    chan struct{}
}

func (u *uses) add(name string) {
	u.mu.Lock()
	u.pending[name] = struct{}{}
	u.mu.Unlock()
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

func (u *uses) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	names := make([]string, 0, len(u.pending))
	for name := range u.pending {
		names = append(names, name)
	}
	clear(u.pending)
	return names
}

// useValue is what is stored at usesPrefix + lane.
type useValue struct {
	At time.Time `json:"at"`
}

func readUse(s side) time.Time {
	var v useValue
	if s.rev == 0 || json.Unmarshal(s.value, &v) != nil {
		return time.Time{}
	}
	return v.At
}

// runUses writes uses apart from the renewals that brought them, so that no
// renewal waits for it. What cannot be written is named again by a later renewal.
func (c *Control) runUses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.uses.wake:
		}
		for _, name := range c.uses.take() {
			if err := c.writeUse(ctx, name); err != nil {
				if ctx.Err() == nil {
					c.log.WarnContext(ctx, "use of a lane was not written", telemetry.KeyLane, name, telemetry.KeyError, err)
				}
				break
			}
		}
	}
}

func (c *Control) writeUse(ctx context.Context, name string) error {
	it := c.cache.get(laneRef(name))
	l := laneOfItem(it)
	now := c.now()
	if l == nil || !isAlive(l) || now.Sub(l.LastUse) < time.Duration(l.TTL)/100 {
		return nil
	}
	value, err := json.Marshal(useValue{At: now})
	if err != nil {
		return err
	}
	key := usesPrefix + name
	// Not done: another replica was quicker, or the lane changed. Either is as good.
	_, err = c.cfg.Store.Do(ctx, store.Txn{
		If:  []store.Compare{{Key: it.key(), Revision: it.rev}, {Key: key, Revision: c.cache.useRevision(name)}},
		Ops: []store.Op{{Key: key, Value: value}},
	})
	return err
}

func (c *cache) useRevision(name string) uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.uses[name].rev
}
