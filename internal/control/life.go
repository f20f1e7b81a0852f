package control

import (
	"context"
	"strconv"
	"time"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// drainTime is how long a lane finishes what it has.
	drainTime = 30 * time.Second
	// endedTime is how long an ended lane is kept, so that its color is explained.
	endedTime = 7 * 24 * time.Hour
	// warnPart of the TTL is left when warned_at is set.
	warnPart = 10
	// lifeWait is the longest sleep of the leader: a clock that is set forward is
	// noticed after it.
	lifeWait = 5 * time.Second
	// lifePause is the shortest: under many writes the lanes are looked at no more
	// often.
	lifePause = 100 * time.Millisecond
)

// step is what a lane's life demands next.
type step string

const (
	stepNone   step = ""
	stepReady  step = "ready"  // creating -> ready: in use, or with an instance or a member
	stepWarn   step = "warn"   // sets warned_at
	stepDrain  step = "drain"  // ready -> draining: expired
	stepEnd    step = "end"    // draining -> ended
	stepRemove step = "remove" // ended -> gone, but for its generation
)

// warnTime is when a lane's expiry is announced.
func warnTime(l *laneclient.Lane) time.Time {
	return l.Expires.Add(-time.Duration(l.TTL) / warnPart)
}

// nextStep says what to do with a lane now, or when to look again. inUse: it has an
// instance of its present generation. child: one that lives depends on it, so it
// does not expire. It is pure.
func nextStep(l *laneclient.Lane, inUse, child bool, now time.Time) (step, time.Time) {
	at := func(s step, due time.Time) (step, time.Time) {
		if now.Before(due) {
			return stepNone, due
		}
		return s, now
	}
	switch lane.State(l.State) {
	case lane.Draining:
		return at(stepEnd, l.DrainingAt.Add(drainTime))
	case lane.Ended:
		return at(stepRemove, l.EndedAt.Add(endedTime))
	case lane.Creating:
		if inUse || !l.LastUse.IsZero() {
			return stepReady, now
		}
	default:
	}
	if l.Held {
		return stepNone, time.Time{}
	}
	if !now.Before(l.Expires) && !child {
		return stepDrain, now
	}
	if l.WarnedAt.IsZero() {
		return at(stepWarn, warnTime(l))
	}
	if child {
		return stepNone, time.Time{} // looked at again when the child ends
	}
	return stepNone, l.Expires
}

// runLife runs the life of lanes while this replica leads.
func (c *Control) runLife(ctx context.Context) {
	for ctx.Err() == nil {
		advanced := c.cache.next()
		wait := lifeWait
		if rev, leads := c.leadership(); leads {
			wait = min(wait, c.stepLanes(ctx, rev), c.removeTombstones(ctx, rev))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-advanced:
		}
		t.Stop()
		backoff.Wait(ctx, lifePause)
	}
}

// stepLanes takes every step that is due and returns how long until the next.
func (c *Control) stepLanes(ctx context.Context, leader uint64) time.Duration {
	now := c.now()
	lanes, _, _ := c.cache.list(laneclient.KindLanes, 0, nil)
	inUse, parents := c.laneFacts(lanes)
	wait := lifeWait
	for _, it := range lanes {
		l := laneOfItem(it)
		s, due := nextStep(l, inUse[l.Name] == l.Generation, parents[l.Name], now)
		if s == stepNone {
			if !due.IsZero() {
				wait = min(wait, max(0, due.Sub(now)))
			}
			continue
		}
		done, err := c.takeStep(ctx, it, s, leader, now)
		switch {
		case ctx.Err() != nil:
			return wait
		case err != nil:
			c.log.WarnContext(ctx, "step of a lane failed and is tried again", telemetry.KeyLane, it.name, telemetry.KeyReason, s, telemetry.KeyError, err)
			return wait
		case done:
			c.metrics.laneSteps.WithLabelValues(string(s)).Inc()
			c.log.InfoContext(ctx, "lane moved on", telemetry.KeyLane, it.name, telemetry.KeyReason, s)
		}
	}
	return wait
}

// laneFacts gives the highest generation of a ready instance, or of a member, by lane, and
// the lanes that have a living child. As with instances, that there is a member is no use
// of the lane, by which it would live on: what is consumed in it is, and the consumer's
// renewals tell of that.
func (c *Control) laneFacts(lanes []*item) (inUse map[string]uint64, parents map[string]bool) {
	inUse, parents = map[string]uint64{}, map[string]bool{}
	creating := false
	for _, it := range lanes {
		l := laneOfItem(it)
		creating = creating || lane.State(l.State) == lane.Creating
		if l.Parent != "" && isAlive(l) {
			parents[l.Parent] = true
		}
	}
	if !creating {
		return inUse, parents // instances and members matter to new lanes alone
	}
	instances, _, _ := c.cache.list(laneclient.KindInstances, 0, nil)
	for _, it := range instances {
		i, _ := it.obj.(*laneclient.Instance)
		if i.Lane != "" && i.Routing().State == lane.Ready {
			inUse[i.Lane] = max(inUse[i.Lane], i.Generation)
		}
	}
	members, _, _ := c.cache.list(laneclient.KindMembers, 0, nil)
	for _, it := range members {
		if m := memberOfItem(it); m.Lane != "" && m.Session != "" {
			inUse[m.Lane] = max(inUse[m.Lane], m.Generation)
		}
	}
	return inUse, parents
}

// takeStep takes one step as a compare-and-swap on the lane, on this replica's
// lead, and on whatever the decision rested on. done is false if any of it changed.
func (c *Control) takeStep(ctx context.Context, it *item, s step, leader uint64, now time.Time) (done bool, err error) {
	txn := store.Txn{If: []store.Compare{{Key: it.key(), Revision: it.rev}, {Key: leaderKey, Revision: leader}}}
	if s == stepRemove {
		txn.Ops = removeLane(laneOfItem(it))
	} else {
		l, err := storedLane(it)
		if err != nil {
			return false, err
		}
		switch s {
		case stepReady:
			l.State = string(lane.Ready)
		case stepWarn:
			l.WarnedAt = now
		case stepDrain:
			// A use that comes in now, or a child, is not lost.
			txn.If = append(txn.If, store.Compare{Key: usesPrefix + it.name, Revision: it.useRev})
			child, err := c.requireNoChild(ctx, &txn, it.name)
			if err != nil || child != "" {
				return false, err
			}
			drainLane(l, now)
		case stepEnd:
			l.State, l.EndedAt = string(lane.Ended), now
		case stepNone, stepRemove:
		}
		value, err := c.cache.kinds[it.kind].encode(l, it.raw)
		if err != nil {
			return false, err
		}
		txn.Ops = []store.Op{{Key: it.key(), Value: value}}
	}
	res, err := c.cfg.Store.Do(ctx, txn)
	return res.Done, err
}

// removeLane forgets a lane, but for its generation, above which a lane that is
// created again under the name has to begin.
func removeLane(l *laneclient.Lane) []store.Op {
	return []store.Op{
		{Key: laneRef(l.Name).key(), Delete: true},
		{Key: usesPrefix + l.Name, Delete: true},
		{Key: childrenPrefix + l.Name, Delete: true},
		{Key: generationsPrefix + l.Name, Value: strconv.AppendUint(nil, l.Generation, 10)},
	}
}
