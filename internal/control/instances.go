package control

import (
	"context"
	"net/http"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// putInstance registers an instance, or changes one. With a session it ends with
// it; without one it is static.
func (c *Control) putInstance(w http.ResponseWriter, r *http.Request, p params) error {
	at, cond, obj, err := readPut(w, r, c.cache.kinds[laneclient.KindInstances], p)
	if err != nil {
		return err
	}
	body, _ := obj.(*laneclient.Instance)
	if body.Service != "" && body.Service != p["service"] {
		f := &faults{}
		f.add("service", "is %q, but the path says %q: make them equal, or leave it out", clip(body.Service), p["service"])
		return f.err("the object")
	}
	body.Service = p["service"]
	session := r.Header.Get(laneclient.SessionHeader)
	it, created, err := c.change(r.Context(), at, cond, func(ctx context.Context, w *write) error {
		i, _ := copyObject(body).(*laneclient.Instance)
		w.obj = i
		if err := c.bindInstance(ctx, w, i, session); err != nil {
			return err
		}
		if i.Generation, err = c.enterLane(ctx, w, i.Lane); err != nil {
			return err
		}
		return c.requireService(ctx, w, i.Service)
	})
	return c.answerWrite(w, it, created, err)
}

// bindInstance decides whose the instance is: of a session that lives, which the
// transaction checks, or static.
func (c *Control) bindInstance(ctx context.Context, w *write, i *laneclient.Instance, session string) error {
	var old *laneclient.Instance
	if w.old != nil {
		old, _ = w.old.obj.(*laneclient.Instance)
	}
	f := &faults{}
	switch {
	case session != "" && i.Session != "" && i.Session != session:
		f.add("session", "is not the one that the header %s names: leave it out", laneclient.SessionHeader)
	case session != "" && i.Static:
		f.add("static", "a static instance has no session: leave static out, or the header %s", laneclient.SessionHeader)
	case session == "" && old != nil && old.Session != "" && i.Session == old.Session:
		session = old.Session // somebody else changes the spec; it stays whose it is
	case session == "" && old != nil && old.Session != "":
		return problem(http.StatusConflict, "instance %q belongs to session %q: name it in the header %s, or delete the instance first",
			w.old.name, old.Session, laneclient.SessionHeader)
	case session == "" && i.Session != "":
		f.add("session", "cannot be set here: name it in the header %s", laneclient.SessionHeader)
	}
	if err := f.err("the object"); err != nil {
		return err
	}
	i.Session, i.Static, i.Health = session, session == "", ""
	i.Since = c.now()
	if old != nil && old.Session == i.Session {
		i.Since = old.Since
	}
	return c.bindSession(ctx, w, session)
}

// enterLane makes a write depend on a lane, which takes new ones, and gives its generation;
// the baseline has none.
func (c *Control) enterLane(ctx context.Context, w *write, name string) (generation uint64, err error) {
	if name == "" {
		return 0, nil
	}
	it, err := c.object(ctx, w, laneRef(name))
	if err != nil {
		return 0, err
	}
	l := laneOfItem(it)
	switch {
	case l == nil:
		f := &faults{}
		f.add("lane", "lane %q does not exist: create it first, for example with `laneway lane create %s`", name, name)
		return 0, typed(invalid("the object", f.list), laneclient.ProblemLane)
	case !isAlive(l):
		return 0, laneDrains(l)
	}
	w.requires(it.ref, it.rev)
	return l.Generation, nil
}

// requireService lets a service come to be with its first instance, and tells whoever
// is about to delete it that it has a new one.
func (c *Control) requireService(ctx context.Context, w *write, name string) error {
	at := serviceRef(name)
	if w.old == nil {
		w.txn.Ops = append(w.txn.Ops, store.Op{Key: newcomersPrefix + name, Value: c.stamp()})
	}
	_, found, _, err := c.cfg.Store.Get(ctx, at.key())
	if err != nil {
		return err
	}
	if found {
		w.requires(at, store.Exists)
		return nil
	}
	k := c.cache.kinds[at.kind]
	value, err := k.encode(&laneclient.Service{Meta: laneclient.Meta{Name: name}}, nil)
	if err != nil {
		return err
	}
	w.requires(at, 0)
	w.txn.Ops = append(w.txn.Ops, store.Op{Key: at.key(), Value: value})
	return nil
}

// deleteInstance takes an instance out and ends every session that belongs to it.
// A request that names a session takes out only what is that session's: a process
// that was replaced under its own name must not take its successor with it.
func (c *Control) deleteInstance(w http.ResponseWriter, r *http.Request, p params) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	at := instanceRef(p["service"], p["name"])
	session := r.Header.Get(laneclient.SessionHeader)
	var bound string
	err = c.remove(r.Context(), at, cond, func(_ context.Context, it *item, txn *store.Txn) error {
		i, _ := it.obj.(*laneclient.Instance)
		if session != "" && i.Session != session {
			return problem(http.StatusConflict, "instance %q is not of session %q any more: leave it, or delete it without the header %s",
				at.name, clip(session), laneclient.SessionHeader)
		}
		bound = i.Session
		txn.Ops = append(txn.Ops, store.Op{Key: healthPrefix + at.name, Delete: true})
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.endSessionsOf(r.Context(), at.name, bound); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// endSessionsOf revokes the leases of all sessions of an instance, at once for
// everybody who watches.
func (c *Control) endSessionsOf(ctx context.Context, instance, bound string) error {
	if err := c.catchUpNow(ctx); err != nil {
		return err
	}
	sessions, _, _ := c.cache.list(laneclient.KindSessions, 0, func(it *item) bool {
		return it.name == bound || selects(it, selector{laneclient.KindSessions, "instance", instance})
	})
	for _, it := range sessions {
		if err := c.cfg.Store.Revoke(ctx, it.lease); err != nil {
			return err
		}
		c.reached.forget(it.name)
	}
	return nil
}
