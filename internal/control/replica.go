package control

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/telemetry"
)

const (
	replicaTTL   = 10 * time.Second
	replicaRenew = replicaTTL / 4
	// heartbeatEvery is how often a replica tells its clock to the others.
	heartbeatEvery = time.Minute
	retryLeast     = 100 * time.Millisecond
	retryMost      = 5 * time.Second
	stopTimeout    = 2 * time.Second // for what a replica takes back when it stops
)

// replica is what is stored at replicasPrefix + node, under the replica's lease.
type replica struct {
	Version string    `json:"version,omitempty"`
	Host    string    `json:"host,omitempty"`    // its machine
	Address string    `json:"address,omitempty"` // where it listens there
	Since   time.Time `json:"since"`
	At      time.Time `json:"at"` // its clock when it wrote this

	skew time.Duration // At minus our clock when we saw it; 0: not known
}

func (c *cache) takeReplica(node string, e store.Event) {
	if e.Deleted {
		delete(c.replicas, node)
		return
	}
	var r replica
	if json.Unmarshal(e.Value, &r) != nil {
		return // of a newer version, with other types: status goes without it
	}
	if !c.loading {
		r.skew = r.At.Sub(c.now())
	}
	c.replicas[node] = r
}

// leadership is the leader key's revision if this replica leads; every step of a
// leader's work compares it, so that one who was replaced writes nothing.
func (c *Control) leadership() (rev uint64, leads bool) {
	c.cache.mu.RLock()
	defer c.cache.mu.RUnlock()
	l := c.cache.leader
	// By its lease, not by its name: two replicas may have been given the same.
	return l.rev, l.rev > 0 && int64(c.cache.lease) == c.term.Load()
}

// runReplica keeps this replica known to the others, and lets it lead when nobody
// does, under one lease that is renewed until ctx ends.
func (c *Control) runReplica(ctx context.Context) {
	retry := backoff.New(retryLeast, retryMost)
	for ctx.Err() == nil {
		start := time.Now()
		err := c.serveTerm(ctx)
		if ctx.Err() != nil {
			return
		}
		c.log.WarnContext(ctx, "replica lost its lease", telemetry.KeyError, err)
		if time.Since(start) > replicaTTL {
			retry.Reset()
		}
		backoff.Wait(ctx, retry.Next())
	}
}

// serveTerm is one lease of the replica, from grant to loss.
func (c *Control) serveTerm(ctx context.Context) error {
	lease, err := c.cfg.Store.Grant(ctx, replicaTTL)
	if err != nil {
		return err
	}
	c.term.Store(int64(lease))
	defer func() {
		c.term.Store(0)
		// The others need not wait for the lease to run out.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if err := c.cfg.Store.Revoke(ctx, lease); err != nil {
			c.log.DebugContext(ctx, "replica's lease stays until it expires", telemetry.KeyError, err)
		}
	}()
	if err := c.heartbeat(ctx, lease); err != nil {
		return err
	}
	renew, beat := time.NewTicker(replicaRenew), time.NewTicker(heartbeatEvery)
	defer renew.Stop()
	defer beat.Stop()
	for {
		advanced := c.cache.next()
		if err := c.tryLead(ctx, lease); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-advanced:
		case <-beat.C:
			// Where there is no room for a new time, the old one stands.
			if err = c.heartbeat(ctx, lease); errors.Is(err, store.ErrFull) {
				err = nil
			}
		case <-renew.C:
			_, err = c.cfg.Store.Renew(ctx, lease)
			c.reached.keep(func(id string) bool { return c.cache.get(sessionRef(id)) != nil })
		}
		if err != nil {
			return err
		}
	}
}

func (c *Control) heartbeat(ctx context.Context, lease store.LeaseID) error {
	value, err := json.Marshal(replica{Version: c.cfg.Version, Host: hostName(), Address: c.cfg.Address, Since: c.since, At: c.now()})
	if err != nil {
		return err
	}
	_, err = c.cfg.Store.Do(ctx, store.Txn{Ops: []store.Op{{Key: replicasPrefix + c.node, Value: value, Lease: lease}}})
	return err
}

// tryLead takes the lead if nobody has it, as far as the cache knows.
func (c *Control) tryLead(ctx context.Context, lease store.LeaseID) error {
	c.cache.mu.RLock()
	vacant := c.cache.loaded && c.cache.leader.rev == 0
	c.cache.mu.RUnlock()
	if !vacant {
		return nil
	}
	res, err := c.cfg.Store.Do(ctx, store.Txn{
		If:  []store.Compare{{Key: leaderKey, Revision: 0}},
		Ops: []store.Op{{Key: leaderKey, Value: []byte(c.node), Lease: lease}},
	})
	if err != nil {
		return err
	}
	if res.Done {
		c.log.InfoContext(ctx, "replica leads", telemetry.KeyRevision, res.Revision)
	}
	// Until the cache has seen who leads, asking again would only fail.
	if err := c.cacheAt(ctx, res.Revision); err != nil && ctx.Err() == nil {
		c.log.DebugContext(ctx, "cache is behind", telemetry.KeyError, err)
	}
	return ctx.Err()
}

// runSync keeps the cache in step with the store: a list, then watches from there,
// until one cannot go on.
func (c *Control) runSync(ctx context.Context) {
	retry := backoff.New(retryLeast, retryMost)
	for ctx.Err() == nil {
		kvs, rev, err := c.cfg.Store.List(ctx, root, "", 0)
		if err != nil {
			c.syncFailed(ctx, retry, err)
			continue
		}
		if rev < c.cache.revision() {
			c.samples.restart()
		}
		c.cache.load(kvs, rev)
		window := uint64(backfillRevisions)
		for ctx.Err() == nil {
			err = c.follower(ctx, retry, window)
			if errors.Is(err, store.ErrCompacted) && c.cache.filling() {
				window /= backfillShrink // the store has not kept so much
				continue
			}
			c.syncFailed(ctx, retry, err)
			if errors.Is(err, store.ErrCompacted) {
				break
			}
		}
	}
}

func (c *Control) syncFailed(ctx context.Context, retry *backoff.Backoff, err error) {
	if ctx.Err() != nil {
		return
	}
	c.log.WarnContext(ctx, "replica lost the registry's changes and tries again", telemetry.KeyError, err)
	backoff.Wait(ctx, retry.Next())
}

// follower applies what one watch of the store delivers and returns why it ended.
// The first after a list begins up to window revisions before it.
func (c *Control) follower(ctx context.Context, retry *backoff.Backoff, window uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for b := range c.cfg.Store.Watch(ctx, root, c.cache.beginBackfill(window)) {
		if b.Err != nil {
			return b.Err
		}
		c.cache.apply(b)
		c.samples.add(b.Revision, c.now())
		c.synced.Store(time.Now().UnixNano())
		retry.Reset()
	}
	return store.ErrClosed
}
