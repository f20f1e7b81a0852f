package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// maxLaneDepth is how many lanes a chain of parents may have.
const maxLaneDepth = 16

// postLane creates a lane; one that lives already is a conflict.
func (c *Control) postLane(w http.ResponseWriter, r *http.Request, _ params) error {
	obj, err := readObject(w, r, c.cache.kinds[laneclient.KindLanes], "")
	if err != nil {
		return err
	}
	body, _ := obj.(*laneclient.Lane)
	at := laneRef(body.Name)
	if err := checkPathName(c.cache.kinds[at.kind], at); err != nil {
		return err
	}
	it, created, err := c.change(r.Context(), at, precondition{}, func(ctx context.Context, w *write) error {
		if old := laneOfItem(w.old); old != nil && isAlive(old) {
			bad := typed(problem(http.StatusConflict, "lane %q exists already: use it, or choose another name", old.Name), laneclient.ProblemExists)
			bad.Current = w.old.body
			return bad
		}
		return c.editLane(ctx, w, body)
	})
	return c.answerWrite(w, it, created, err)
}

// putLane creates a lane, or changes what can be changed of one.
func (c *Control) putLane(w http.ResponseWriter, r *http.Request, p params) error {
	at, cond, obj, err := readPut(w, r, c.cache.kinds[laneclient.KindLanes], p)
	if err != nil {
		return err
	}
	body, _ := obj.(*laneclient.Lane)
	it, created, err := c.change(r.Context(), at, cond, func(ctx context.Context, w *write) error { return c.editLane(ctx, w, body) })
	return c.answerWrite(w, it, created, err)
}

func laneOfItem(it *item) *laneclient.Lane {
	if it == nil {
		return nil
	}
	l, _ := it.obj.(*laneclient.Lane)
	return l
}

// storedLane is the lane without what is derived, ready to be changed.
func storedLane(it *item) (*laneclient.Lane, error) {
	l := &laneclient.Lane{}
	if err := json.Unmarshal(it.raw, l); err != nil {
		return nil, fmt.Errorf("stored lane %s: %w", it.name, err)
	}
	return l, nil
}

func (c *Control) editLane(ctx context.Context, w *write, body *laneclient.Lane) error {
	old := laneOfItem(w.old)
	switch {
	case old == nil || lane.State(old.State) == lane.Ended:
		return c.newLane(ctx, w, body)
	case !isAlive(old):
		return laneDrains(old)
	case old.Parent != body.Parent:
		f := &faults{}
		f.add("parent", "is fixed at creation and is %q: send that, or delete the lane and create it again", old.Parent)
		return f.err("the object")
	}
	l, err := storedLane(w.old)
	if err != nil {
		return err
	}
	if l.TTL != body.TTL || l.Held != body.Held {
		l.TTL, l.Held = body.TTL, body.Held
		c.renewLane(l)
	}
	l.Owner = body.Owner
	w.obj = l
	return nil
}

// renewLane lets a lane expire a full TTL from now.
func (c *Control) renewLane(l *laneclient.Lane) {
	l.Expires = c.now().Add(time.Duration(l.TTL))
	l.WarnedAt = time.Time{}
}

// laneDrains refuses what a lane cannot do on its way out.
func laneDrains(l *laneclient.Lane) error {
	if lane.State(l.State) == lane.Ended {
		return typed(problem(http.StatusConflict, "lane %q has ended: create it again first, as a new generation", l.Name), laneclient.ProblemLane)
	}
	return typed(problem(http.StatusConflict, "lane %q drains until %s: create it again after that",
		l.Name, l.DrainingAt.Add(drainTime).Format(time.RFC3339)), laneclient.ProblemLane)
}

// newLane makes a lane of a name that has none, or whose last one has ended: a new
// generation, above every one that the name has had.
func (c *Control) newLane(ctx context.Context, w *write, body *laneclient.Lane) error {
	l := &laneclient.Lane{
		Meta: laneclient.Meta{Name: body.Name}, Parent: body.Parent, Owner: body.Owner, TTL: body.TTL,
		Held: body.Held, State: string(lane.Creating), Created: c.now(), Generation: 1,
	}
	c.renewLane(l)
	if err := c.requireParent(ctx, w, l.Parent); err != nil {
		return err
	}
	if old := laneOfItem(w.old); old != nil {
		l.Generation = old.Generation + 1
	} else {
		last, err := c.lastGeneration(ctx, w, l.Name)
		if err != nil {
			return err
		}
		l.Generation = last + 1
	}
	w.txn.Ops = append(w.txn.Ops, store.Op{Key: usesPrefix + l.Name, Delete: true})
	w.obj, w.fresh = l, w.old != nil
	return nil
}

// lastGeneration reads what a removed lane of the name left behind.
func (c *Control) lastGeneration(ctx context.Context, w *write, name string) (uint64, error) {
	key := generationsPrefix + name
	kv, found, _, err := c.cfg.Store.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	w.txn.If = append(w.txn.If, store.Compare{Key: key, Revision: kv.ModRevision})
	if !found {
		return 0, nil
	}
	last, err := strconv.ParseUint(string(kv.Value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("stored generation of lane %s: %w", name, err)
	}
	return last, nil
}

// requireParent makes the write depend on a parent that lives and is ordinary, and
// tells whoever is about to drain the parent that it has a child.
func (c *Control) requireParent(ctx context.Context, w *write, name string) error {
	if name == "" {
		return nil
	}
	fault := func(detail string, args ...any) error {
		f := &faults{}
		f.add("parent", detail, args...)
		return typed(invalid("the object", f.list), laneclient.ProblemLane)
	}
	parent, err := c.read(ctx, laneRef(name))
	if err != nil {
		return err
	}
	switch l := laneOfItem(parent); {
	case l == nil:
		return fault("lane %q does not exist: create it first, or leave parent out for the baseline", name)
	case !isAlive(l):
		return fault("lane %q is %s: choose a lane that lives, or leave parent out for the baseline", name, l.State)
	}
	if c.laneDepth(name) >= maxLaneDepth {
		return fault("lane %q stands on %d lanes already, which is the limit: choose one nearer to the baseline", name, maxLaneDepth-1)
	}
	w.requires(laneRef(name), parent.rev)
	w.txn.Ops = append(w.txn.Ops, store.Op{Key: childrenPrefix + name, Value: c.stamp()})
	return nil
}

// laneDepth is how many lanes there are from name to the baseline.
func (c *Control) laneDepth(name string) int {
	depth := 0
	for l := laneOfItem(c.cache.get(laneRef(name))); l != nil && depth < maxLaneDepth; depth++ {
		l = laneOfItem(c.cache.get(laneRef(l.Parent)))
	}
	return depth
}

// livingChild names a child of the lane that still lives; empty: it has none.
func (c *Control) livingChild(name string) string {
	items, _, _ := c.cache.list(laneclient.KindLanes, 1, func(it *item) bool {
		l := laneOfItem(it)
		return l.Parent == name && isAlive(l)
	})
	if len(items) == 0 {
		return ""
	}
	return items[0].name
}

// requireNoChild makes the write depend on there being no living child, also none
// that is created meanwhile: every creation of a child touches the key compared
// here. The child's name is returned where there is one.
func (c *Control) requireNoChild(ctx context.Context, txn *store.Txn, name string) (string, error) {
	key := childrenPrefix + name
	kv, _, rev, err := c.cfg.Store.Get(ctx, key)
	if err != nil {
		return "", err
	}
	if err := c.cacheAt(ctx, rev); err != nil {
		return "", err
	}
	txn.If = append(txn.If, store.Compare{Key: key, Revision: kv.ModRevision})
	return c.livingChild(name), nil
}

// deleteLane lets a lane drain. One that drains or has ended stays as it is.
func (c *Control) deleteLane(w http.ResponseWriter, r *http.Request, p params) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	at := laneRef(p["name"])
	it, _, err := c.change(r.Context(), at, cond, func(ctx context.Context, w *write) error {
		old := laneOfItem(w.old)
		if old == nil {
			return notFound(at)
		}
		if !isAlive(old) {
			return nil
		}
		child, err := c.requireNoChild(ctx, &w.txn, at.name)
		if err != nil {
			return err
		}
		if child != "" {
			return problem(http.StatusConflict, "lane %q is the parent of %q: delete that first", at.name, child)
		}
		l, err := storedLane(w.old)
		if err != nil {
			return err
		}
		drainLane(l, c.now())
		w.obj = l
		return nil
	})
	return c.answerWrite(w, it, false, err)
}

func drainLane(l *laneclient.Lane, now time.Time) {
	l.State, l.DrainingAt = string(lane.Draining), now
}

// postExtend answers POST /v1/lanes/{name}/extend.
func (c *Control) postExtend(w http.ResponseWriter, r *http.Request, p params) error {
	var body laneclient.Extension
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	f := &faults{}
	if between("ttl", body.TTL, minLaneTTL, maxLaneTTL, f); len(f.list) > 0 {
		return f.err("the request")
	}
	return c.editLiving(w, r, p, func(l *laneclient.Lane) {
		if body.TTL != 0 {
			l.TTL = body.TTL
		}
		c.renewLane(l)
	})
}

// postHold answers POST /v1/lanes/{name}/hold.
func (c *Control) postHold(w http.ResponseWriter, r *http.Request, p params) error {
	var body laneclient.Hold
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	return c.editLiving(w, r, p, func(l *laneclient.Lane) {
		if l.Held != body.Held {
			l.Held = body.Held
			c.renewLane(l)
		}
	})
}

// editLiving changes a lane that neither drains nor has ended.
func (c *Control) editLiving(w http.ResponseWriter, r *http.Request, p params, edit func(*laneclient.Lane)) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	at := laneRef(p["name"])
	it, _, err := c.change(r.Context(), at, cond, func(_ context.Context, w *write) error {
		old := laneOfItem(w.old)
		switch {
		case old == nil:
			return notFound(at)
		case !isAlive(old):
			return laneDrains(old)
		}
		l, err := storedLane(w.old)
		if err != nil {
			return err
		}
		edit(l)
		w.obj = l
		return nil
	})
	return c.answerWrite(w, it, false, err)
}

// readInto decodes a request's body.
func readInto(w http.ResponseWriter, r *http.Request, out any) error {
	return readUpTo(w, r, maxBodyBytes, out)
}

func readUpTo(w http.ResponseWriter, r *http.Request, limit int64, out any) error {
	body, err := readBody(w, r, limit)
	if err != nil {
		return err
	}
	return decode(body, out)
}
