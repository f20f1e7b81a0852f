package control

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// deleteAtOnce is how many keys of a group that is deleted go in one transaction.
const deleteAtOnce = 100

func groupGone(name string) *laneclient.Problem {
	return typed(problem(http.StatusConflict, "there is no group %q: create it first, with PUT /v1/groups/%s", clip(name), clip(name)),
		laneclient.ProblemGroup)
}

func groupGoes(name string) *laneclient.Problem {
	return typed(problem(http.StatusConflict, "group %q is being deleted: wait until it is gone, or delete it again where that was cut short", clip(name)),
		laneclient.ProblemGroup)
}

// putTopic creates a topic, or changes what can be changed of one.
func (c *Control) putTopic(w http.ResponseWriter, r *http.Request, p params) error {
	at, cond, obj, err := readPut(w, r, c.cache.kinds[laneclient.KindTopics], p)
	if err != nil {
		return err
	}
	body, _ := obj.(*laneclient.Topic)
	it, created, err := c.change(r.Context(), at, cond, func(_ context.Context, w *write) error {
		if w.old != nil {
			old, _ := w.old.obj.(*laneclient.Topic)
			f := &faults{}
			if old.Engine != body.Engine {
				f.add("engine", "is fixed at creation and is %q: send that, or choose another name", old.Engine)
			}
			if body.Partitions < old.Partitions {
				f.add("partitions", "is %d, but there are %d, which are never taken away: send that, or more", body.Partitions, old.Partitions)
			}
			if err := f.err("the object"); err != nil {
				return err
			}
		}
		w.obj = copyObject(body)
		return nil
	})
	return c.answerWrite(w, it, created, err)
}

// deleteTopic refuses while a group names the topic.
func (c *Control) deleteTopic(w http.ResponseWriter, r *http.Request, p params) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	name := p["name"]
	err = c.removeUnused(r.Context(), topicRef(name), cond, topicUsesPrefix+name, selector{laneclient.KindGroups, "topic", name},
		func(group string) error {
			return problem(http.StatusConflict, "topic %q is named by groups, %s among them: delete those, or take it out of their topics first", name, group)
		})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// putEngine says where an engine is found. One that is written in a session is embedded
// in that session's process and ends with it: nobody else writes it meanwhile.
func (c *Control) putEngine(w http.ResponseWriter, r *http.Request, p params) error {
	at, cond, obj, err := readPut(w, r, c.cache.kinds[laneclient.KindEngines], p)
	if err != nil {
		return err
	}
	body, _ := obj.(*laneclient.Engine)
	session := r.Header.Get(laneclient.SessionHeader)
	if body.Session != "" && body.Session != session {
		f := &faults{}
		f.add("session", "is not the one that the header %s names: leave it out", laneclient.SessionHeader)
		return f.err("the object")
	}
	it, created, err := c.change(r.Context(), at, cond, func(ctx context.Context, w *write) error {
		e, _ := copyObject(body).(*laneclient.Engine)
		e.Session, e.Since = session, c.now()
		w.obj = e
		if w.old != nil {
			old, _ := w.old.obj.(*laneclient.Engine)
			if err := engineTaken(w.old, old, session); err != nil {
				return err
			}
			e.Since = old.Since
		}
		return c.bindSession(ctx, w, session)
	})
	return c.answerWrite(w, it, created, err)
}

// engineTaken refuses an engine whose name somebody else has.
func engineTaken(it *item, old *laneclient.Engine, session string) error {
	var bad *laneclient.Problem
	switch {
	case old.Session == session:
		return nil
	case old.Session == "":
		bad = problem(http.StatusConflict, "engine %q is an external one, at %s: delete it first, or embed one of another name", old.Name, clip(old.Address))
	case session == "":
		bad = problem(http.StatusConflict, "engine %q is embedded in the server of session %q, at %s: stop that server first, or choose another name",
			old.Name, old.Session, clip(old.Address))
	default:
		bad = problem(http.StatusConflict, "engine %q is embedded in another server already, at %s: choose another name, or wait until that server has ended",
			old.Name, clip(old.Address))
	}
	bad.Current = it.body
	return typed(bad, laneclient.ProblemExists)
}

// deleteEngine takes an engine out. A request that names a session takes out that session's
// alone: a server that was replaced must not take its successor with it.
func (c *Control) deleteEngine(w http.ResponseWriter, r *http.Request, p params) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	name, session := p["name"], r.Header.Get(laneclient.SessionHeader)
	err = c.remove(r.Context(), ref{laneclient.KindEngines, name}, cond, func(_ context.Context, it *item, _ *store.Txn) error {
		if e, _ := it.obj.(*laneclient.Engine); session != "" && e.Session != session {
			return problem(http.StatusConflict, "engine %q is not of session %q: leave it, or delete it without the header %s", name, clip(session), laneclient.SessionHeader)
		}
		return nil
	})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// bindSession lets a write's object end with a session, which lives. The empty one binds
// nothing.
func (c *Control) bindSession(ctx context.Context, w *write, session string) error {
	if session == "" {
		return nil
	}
	if !isPlainName(session) {
		return sessionGone(http.StatusConflict, clip(session))
	}
	s, err := c.object(ctx, w, sessionRef(session))
	if err != nil {
		return err
	}
	if s == nil {
		return sessionGone(http.StatusConflict, session)
	}
	w.lease = s.lease
	w.requires(s.ref, s.rev)
	return nil
}

// putGroup creates a group, or changes one. A group that there is has a membership key; one
// that has none is being deleted.
func (c *Control) putGroup(w http.ResponseWriter, r *http.Request, p params) error {
	at, cond, obj, err := readPut(w, r, c.cache.kinds[laneclient.KindGroups], p)
	if err != nil {
		return err
	}
	body, _ := obj.(*laneclient.Group)
	it, created, err := c.change(r.Context(), at, cond, func(ctx context.Context, w *write) error {
		w.obj = copyObject(body)
		key := membershipPrefix + body.Name
		_, open, rev, err := c.cfg.Store.Get(ctx, key)
		if err != nil {
			return err
		}
		var known []string
		if w.old == nil {
			w.txn.If = append(w.txn.If, store.Compare{Key: key})
			w.txn.Ops = append(w.txn.Ops, store.Op{Key: key, Value: c.stamp()})
		} else {
			old := groupOfItem(w.old)
			known = old.Topics
			switch {
			case old.Engine != body.Engine:
				f := &faults{}
				f.add("engine", "is fixed at creation and is %q: send that, or choose another name", old.Engine)
				return f.err("the object")
			case !open:
				return groupGoes(body.Name)
			}
			w.txn.If = append(w.txn.If, store.Compare{Key: key, Revision: store.Exists})
		}
		if err := c.cacheAt(ctx, rev); err != nil {
			return err
		}
		return c.requireTopics(w, body, known)
	})
	return c.answerWrite(w, it, created, err)
}

// requireTopics checks those of a group's topics that objects describe, and tells whoever is
// about to delete one that there is a group more.
func (c *Control) requireTopics(w *write, g *laneclient.Group, known []string) error {
	f := &faults{}
	for n, name := range g.Topics {
		it := c.cache.get(topicRef(name))
		if it == nil {
			w.requires(topicRef(name), 0)
			continue
		}
		if t, _ := it.obj.(*laneclient.Topic); t.Engine != g.Engine {
			f.add(fmt.Sprintf("topics[%d]", n), "topic %q is of engine %q, not of %q: a group is of one engine", name, t.Engine, g.Engine)
		}
		w.requires(it.ref, it.rev) // one of another engine may come to have the name
		if !slices.Contains(known, name) {
			w.txn.Ops = append(w.txn.Ops, store.Op{Key: topicUsesPrefix + name, Value: c.stamp()})
		}
	}
	return f.err("the object")
}

// deleteGroup deletes a group with its tombstones, cursors and notes, unless it has members
// that live. First the group is closed, so that nobody joins and no cursor is written any
// more; then the rest goes, the group itself last. A delete that is cut short is finished
// by the next one.
func (c *Control) deleteGroup(w http.ResponseWriter, r *http.Request, p params) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	at := groupRef(p["name"])
	it, err := c.closeGroup(r.Context(), at, cond)
	if err != nil {
		return err
	}
	g := groupOfItem(it)
	cursors := g.Engine + "/" + g.Name + "/"
	for _, prefix := range []string{notesPrefix + cursors, root + string(laneclient.KindCursors) + "/" + cursors, memberRef(g.Name, "").key()} {
		if err := c.clear(r.Context(), it, prefix); err != nil {
			return err
		}
	}
	// Another delete may have been quicker, and another group may have the name by now.
	res, err := c.cfg.Store.Do(r.Context(), store.Txn{
		If: []store.Compare{{Key: it.key(), Revision: it.rev}}, Ops: []store.Op{{Key: it.key(), Delete: true}},
	})
	switch {
	case err != nil:
		return err
	case !res.Done:
		return notFound(at)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// closeGroup lets nobody join a group any more.
func (c *Control) closeGroup(ctx context.Context, at ref, cond precondition) (*item, error) {
	key := membershipPrefix + at.name
	for range maxAttempts {
		old, err := c.read(ctx, at)
		if err != nil {
			return nil, err
		}
		if err := cond.check(at, old); err != nil {
			return nil, err
		}
		if old == nil {
			return nil, notFound(at)
		}
		kv, open, rev, err := c.cfg.Store.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		if !open {
			return old, nil
		}
		if err := c.cacheAt(ctx, rev); err != nil {
			return nil, err
		}
		live, _, _ := c.cache.listUnder(laneclient.KindMembers, []selector{{laneclient.KindMembers, "group", at.name}}, "", 1, func(it *item) bool {
			m := memberOfItem(it)
			return m.Group == at.name && m.Session != ""
		})
		if len(live) > 0 {
			return nil, problem(http.StatusConflict, "group %q has members, %s among them: stop them first", at.name, live[0].name)
		}
		res, err := c.cfg.Store.Do(ctx, store.Txn{
			If:  []store.Compare{{Key: at.key(), Revision: old.rev}, {Key: key, Revision: kv.ModRevision}},
			Ops: []store.Op{{Key: key, Delete: true}, {Key: tombstonesPrefix + at.name, Delete: true}},
		})
		if err != nil {
			return nil, err
		}
		if res.Done {
			return old, nil
		}
	}
	return nil, busy(at)
}

// clear deletes all keys that begin with prefix, of a group that is closed.
func (c *Control) clear(ctx context.Context, group *item, prefix string) error {
	for {
		kvs, _, err := c.cfg.Store.List(ctx, prefix, "", deleteAtOnce)
		if err != nil || len(kvs) == 0 {
			return err
		}
		txn := store.Txn{If: []store.Compare{{Key: group.key(), Revision: group.rev}}}
		for _, kv := range kvs {
			txn.Ops = append(txn.Ops, store.Op{Key: kv.Key, Delete: true})
		}
		res, err := c.cfg.Store.Do(ctx, txn)
		switch {
		case err != nil:
			return err
		case !res.Done:
			return notFound(group.ref)
		}
	}
}
