package control

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// putMember lets a member join its group, or changes it. It is its session's, with which it
// ends; one of the same name is replaced. Tombstones of its lane go as far as they stand for
// topics of the new member.
func (c *Control) putMember(w http.ResponseWriter, r *http.Request, p params) error {
	at, cond, obj, err := readPut(w, r, c.cache.kinds[laneclient.KindMembers], p)
	if err != nil {
		return err
	}
	body, _ := obj.(*laneclient.Member)
	session := r.Header.Get(laneclient.SessionHeader)
	f := &faults{}
	if session == "" {
		f.add(laneclient.SessionHeader, "is missing: a member is of the session that this header names, and ends with it")
	} else if body.Session != "" && body.Session != session {
		f.add("session", "is not the one that the header %s names: leave it out", laneclient.SessionHeader)
	}
	if body.Group != "" && body.Group != p["group"] {
		f.add("group", "is %q, but the path says %q: make them equal, or leave it out", clip(body.Group), p["group"])
	}
	if err := f.err("the object"); err != nil {
		return err
	}
	body.Group, body.Session, body.Until = p["group"], session, time.Time{}
	it, created, err := c.change(r.Context(), at, cond, func(ctx context.Context, w *write) error {
		m, _ := copyObject(body).(*laneclient.Member)
		w.obj = m
		m.Since = c.now()
		if w.old != nil {
			if old := memberOfItem(w.old); old.Session == session {
				m.Since = old.Since
			}
		}
		if !isPlainName(session) {
			return sessionGone(http.StatusConflict, clip(session))
		}
		if err := c.readAhead(ctx, w, sessionRef(session).key(), groupRef(m.Group).key(), laneRef(m.Lane).key(),
			membershipPrefix+m.Group, tombstonesPrefix+m.Group); err != nil {
			return err
		}
		if err := c.bindSession(ctx, w, session); err != nil {
			return err
		}
		if err := c.enterGroup(ctx, w, m); err != nil {
			return err
		}
		if m.Generation, err = c.enterLane(ctx, w, m.Lane); err != nil {
			return err
		}
		return c.overgrow(ctx, w, m)
	})
	return c.answerWrite(w, it, created, err)
}

// enterGroup makes the write depend on the group, and tells whoever is about to delete it, or
// to leave a tombstone, that there is a member more.
func (c *Control) enterGroup(ctx context.Context, w *write, m *laneclient.Member) error {
	it, err := c.object(ctx, w, groupRef(m.Group))
	if err != nil {
		return err
	}
	g := groupOfItem(it)
	if g == nil {
		return groupGone(m.Group)
	}
	if m.Engine != "" && m.Engine != g.Engine {
		f := &faults{}
		f.add("engine", "is %q, but group %q is of %q: leave it out", clip(m.Engine), g.Name, g.Engine)
		return f.err("the object")
	}
	m.Engine = g.Engine
	key := membershipPrefix + m.Group
	_, open, _, err := c.key(ctx, w, key)
	if err != nil {
		return err
	}
	if !open {
		return groupGoes(m.Group)
	}
	w.txn.If = append(w.txn.If, store.Compare{Key: key, Revision: store.Exists})
	w.txn.Ops = append(w.txn.Ops, store.Op{Key: key, Value: c.stamp()})
	return nil
}

// overgrow takes from the tombstones of a member's lane what it has come for. Every tombstone
// that is left touches the key compared here, so that none is overlooked.
func (c *Control) overgrow(ctx context.Context, w *write, m *laneclient.Member) error {
	key := tombstonesPrefix + m.Group
	kv, _, rev, err := c.key(ctx, w, key)
	if err != nil {
		return err
	}
	if err := c.cacheAt(ctx, rev); err != nil {
		return err
	}
	w.txn.If = append(w.txn.If, store.Compare{Key: key, Revision: kv.ModRevision})
	for _, it := range c.ofLane(m, func(t *laneclient.Member) bool { return t.Session == "" }) {
		t, _ := copyObject(it.obj).(*laneclient.Member)
		t.Topics = slices.DeleteFunc(slices.Clone(t.Topics), func(topic string) bool { return slices.Contains(m.Topics, topic) })
		if len(t.Topics) == len(memberOfItem(it).Topics) {
			continue
		}
		op := store.Op{Key: it.key(), Delete: len(t.Topics) == 0}
		if !op.Delete {
			if op.Value, err = c.cache.kinds[it.kind].encode(t, it.raw); err != nil {
				return err
			}
		}
		w.requires(it.ref, it.rev)
		w.txn.Ops = append(w.txn.Ops, op)
	}
	return nil
}

// ofLane lists the other members of a member's group and lane for which keep holds, as the
// cache has them.
func (c *Control) ofLane(m *laneclient.Member, keep func(*laneclient.Member) bool) []*item {
	items, _, _ := c.cache.listUnder(laneclient.KindMembers, []selector{{laneclient.KindMembers, "group", m.Group}}, "", 0, func(it *item) bool {
		o := memberOfItem(it)
		return o.Group == m.Group && o.Lane == m.Lane && o.Name != m.Name && keep(o)
	})
	return items
}

// graceOf reads the one parameter that the request to leave has.
func graceOf(query url.Values) (time.Duration, error) {
	f := &faults{}
	var grace laneclient.Duration
	for key, values := range query {
		if key != laneclient.GraceParam {
			f.add(clip(key), "is no parameter of this request: want %s", laneclient.GraceParam)
			continue
		}
		if err := grace.UnmarshalText([]byte(values[len(values)-1])); err != nil {
			f.add(key, "%s", err.Error())
		}
	}
	if d := time.Duration(grace); d < 0 || d > laneclient.MaxGrace {
		f.add(laneclient.GraceParam, "is %s: want 0s to %s", d, laneclient.MaxGrace)
	}
	sortedFields(f.list)
	return time.Duration(grace), f.err("the query")
}

// deleteMember lets a member leave. With grace it leaves a tombstone for those of its topics
// that no other member of its lane has. A request that names a session lets only that
// session's leave. A tombstone has left already.
func (c *Control) deleteMember(w http.ResponseWriter, r *http.Request, p params) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	grace, err := graceOf(r.URL.Query())
	if err != nil {
		return err
	}
	at, session := memberRef(p["group"], p["name"]), r.Header.Get(laneclient.SessionHeader)
	for range maxAttempts {
		old, err := c.read(r.Context(), at)
		if err != nil {
			return err
		}
		if err := cond.check(at, old); err != nil {
			return err
		}
		if old == nil || memberOfItem(old).Session == "" {
			return notFound(at)
		}
		m, _ := copyObject(old.obj).(*laneclient.Member)
		if session != "" && m.Session != session {
			return problem(http.StatusConflict, "member %q is not of session %q any more: leave it, or delete it without the header %s",
				at.name, clip(session), laneclient.SessionHeader)
		}
		txn := store.Txn{If: []store.Compare{{Key: at.key(), Revision: old.rev}}}
		op := store.Op{Key: at.key(), Delete: true}
		if grace > 0 {
			if op, err = c.bury(r.Context(), &txn, old, m, grace); err != nil {
				return err
			}
		}
		txn.Ops = append(txn.Ops, op)
		res, err := c.cfg.Store.Do(r.Context(), txn)
		if err != nil {
			return err
		}
		if res.Done {
			w.WriteHeader(http.StatusNoContent)
			return nil
		}
	}
	return busy(at)
}

// bury says what becomes of a member that leaves with grace. The transaction depends on the
// members that have its topics too, and on that no other joins meanwhile.
func (c *Control) bury(ctx context.Context, txn *store.Txn, at *item, m *laneclient.Member, grace time.Duration) (store.Op, error) {
	op := store.Op{Key: at.key(), Delete: true}
	key := membershipPrefix + m.Group
	kv, _, rev, err := c.cfg.Store.Get(ctx, key)
	if err != nil {
		return op, err
	}
	if err := c.cacheAt(ctx, rev); err != nil {
		return op, err
	}
	live := c.ofLane(m, func(o *laneclient.Member) bool { return o.Session != "" })
	// Each relies on the next by name, so that of many that leave at once half can.
	after, _ := slices.BinarySearchFunc(live, at.name, func(it *item, name string) int { return strings.Compare(it.name, name) })
	live = slices.Concat(live[after:], live[:after])
	var left []string
	relied := map[ref]bool{}
	for _, topic := range m.Topics {
		n := slices.IndexFunc(live, func(it *item) bool { return slices.Contains(memberOfItem(it).Topics, topic) })
		if n < 0 {
			left = append(left, topic)
			continue
		}
		if it := live[n]; !relied[it.ref] {
			relied[it.ref] = true
			txn.If = append(txn.If, store.Compare{Key: it.key(), Revision: it.rev})
		}
	}
	if len(left) == 0 {
		return op, nil
	}
	txn.If = append(txn.If, store.Compare{Key: key, Revision: kv.ModRevision})
	txn.Ops = append(txn.Ops, store.Op{Key: tombstonesPrefix + m.Group, Value: c.stamp()})
	m.Topics, m.Session, m.Until = left, "", c.now().Add(grace)
	op.Delete = false
	op.Value, err = c.cache.kinds[at.kind].encode(m, at.raw)
	return op, err
}

// noteTombstone keeps the tombstones that there are. it is how r looks now, nil: it is gone;
// c.mu is held.
func (c *cache) noteTombstone(r ref, it *item) {
	if r.kind != laneclient.KindMembers {
		return // others may have the same name
	}
	if it != nil && memberOfItem(it).Session == "" {
		c.tombstones[r.name] = memberOfItem(it).Until
		return
	}
	delete(c.tombstones, r.name)
}

// over lists the tombstones whose time is over, as they are, and how long it is until the next
// one's is.
func (c *cache) over(now time.Time) (list []*item, next time.Duration) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	next = lifeWait
	for name, until := range c.tombstones {
		if left := until.Sub(now); left > 0 {
			next = min(next, left)
		} else {
			list = append(list, c.shelves[laneclient.KindMembers].byName[name])
		}
	}
	return list, next
}

// removeTombstones removes those whose time is over, as the leader, and returns how long it
// is until the next one's is.
func (c *Control) removeTombstones(ctx context.Context, leader uint64) time.Duration {
	list, next := c.cache.over(c.now())
	for _, it := range list {
		_, err := c.cfg.Store.Do(ctx, store.Txn{
			If:  []store.Compare{{Key: it.key(), Revision: it.rev}, {Key: leaderKey, Revision: leader}},
			Ops: []store.Op{{Key: it.key(), Delete: true}},
		})
		if err != nil {
			if ctx.Err() == nil {
				c.log.WarnContext(ctx, "tombstone of a member stays and is removed later", telemetry.KeyMember, it.name, telemetry.KeyError, err)
			}
			return next
		}
	}
	return next
}
