package control

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// maxAttempts is how often a write is tried again when others change what it
	// rests on.
	maxAttempts = 8

	defaultListLimit = 1000
	maxListLimit     = 10_000
	maxPerKind       = 100_000 // objects of one kind

	answerTimeout = 30 * time.Second // for an answer to be taken
	flushBytes    = 64 << 10         // answers beyond are sent before their deadline is lifted
)

// etag is the ETag of a revision: RFC 9110, section 8.8.3.
func etag(rev uint64) string { return `"` + strconv.FormatUint(rev, 10) + `"` }

// precondition is If-Match and If-None-Match of a write. The zero value is none.
type precondition struct {
	match, noneMatch []string
}

func parsePrecondition(h http.Header) (precondition, error) {
	var p precondition
	f := &faults{}
	read := func(name string) (tags []string) {
		for _, value := range h.Values(name) {
			for tag := range strings.SplitSeq(value, ",") {
				tag = strings.Trim(strings.TrimPrefix(strings.TrimSpace(tag), "W/"), `"`)
				if _, err := strconv.ParseUint(tag, 10, 64); err != nil && tag != "*" {
					f.add(name, "is no revision: want the ETag of an answer, or *")
				}
				tags = append(tags, tag)
			}
		}
		return tags
	}
	p.match, p.noneMatch = read("If-Match"), read("If-None-Match")
	if len(f.list) > 0 {
		bad := problem(http.StatusBadRequest, "the request's headers have mistakes: correct them and send it again")
		bad.Errors = f.list
		return p, bad
	}
	return p, nil
}

func covers(tags []string, old *item) bool {
	return old != nil && (slices.Contains(tags, "*") || slices.Contains(tags, strconv.FormatUint(old.rev, 10)))
}

// check returns a 412 with the present object if the condition does not hold.
func (p precondition) check(r ref, old *item) error {
	switch {
	case p.match != nil && !covers(p.match, old):
	case p.noneMatch != nil && covers(p.noneMatch, old):
	default:
		return nil
	}
	if old == nil {
		return typed(problem(http.StatusPreconditionFailed, "%s %q does not exist: leave If-Match out to create it", r.kind, r.name),
			laneclient.ProblemChanged)
	}
	bad := typed(problem(http.StatusPreconditionFailed,
		"%s %q is at revision %d: look at current, decide again, and send If-Match with that revision", r.kind, r.name, old.rev),
		laneclient.ProblemChanged)
	bad.Current = old.body
	return bad
}

// write is one attempt to change an object.
type write struct {
	old   *item // as it is; nil: it does not exist
	obj   any   // as it shall be; nil: as it is
	lease store.LeaseID
	txn   store.Txn // more that must hold, and that changes with it
	fresh bool      // obj is another object than old: nothing of old is kept

	ahead map[string]store.KV // what was read ahead; a key that is not there has no revision
	rev   uint64              // the store's at that time
}

func (w *write) requires(r ref, rev uint64) {
	w.txn.If = append(w.txn.If, store.Compare{Key: r.key(), Revision: rev})
}

// readAhead reads what a write will rest on at once, so that it costs one way to the store
// and not one for each key.
func (c *Control) readAhead(ctx context.Context, w *write, keys ...string) error {
	res, err := c.cfg.Store.Do(ctx, store.Txn{Read: keys})
	if err != nil {
		return err
	}
	w.ahead, w.rev = make(map[string]store.KV, len(keys)), res.Revision
	for _, key := range keys {
		w.ahead[key] = store.KV{}
	}
	for _, kv := range res.Read {
		w.ahead[kv.Key] = kv
	}
	return nil
}

// key is a key as the store has it, and the store's revision then.
func (c *Control) key(ctx context.Context, w *write, key string) (kv store.KV, found bool, rev uint64, err error) {
	if kv, ok := w.ahead[key]; ok {
		return kv, kv.ModRevision > 0, w.rev, nil
	}
	return c.cfg.Store.Get(ctx, key)
}

// object is an object as the store has it; nil: there is none.
func (c *Control) object(ctx context.Context, w *write, r ref) (*item, error) {
	kv, found, _, err := c.key(ctx, w, r.key())
	if err != nil || !found {
		return nil, err
	}
	return c.cache.show(r, kv)
}

// read gets an object from the store, linearizably; nil if it does not exist.
func (c *Control) read(ctx context.Context, r ref) (*item, error) {
	kv, found, _, err := c.cfg.Store.Get(ctx, r.key())
	if err != nil || !found {
		return nil, err
	}
	return c.cache.show(r, kv)
}

// show presents a stored object with what the cache has beside it.
func (c *cache) show(r ref, kv store.KV) (*item, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.present(r, kv)
}

// change brings an object from what it is to what edit makes of it, in one
// transaction on its revision and on whatever else edit requires. Where somebody
// else was quicker, edit is asked again. An object that stays the same is not
// written, so its revision stays too.
func (c *Control) change(ctx context.Context, r ref, cond precondition, edit func(context.Context, *write) error) (it *item, created bool, err error) {
	k := c.cache.kinds[r.kind]
	for range maxAttempts {
		w := &write{}
		if w.old, err = c.read(ctx, r); err != nil {
			return nil, false, err
		}
		if err := cond.check(r, w.old); err != nil {
			return nil, false, err
		}
		if err := edit(ctx, w); err != nil {
			return nil, false, err
		}
		if w.obj == nil {
			return w.old, false, nil
		}
		kv, same, err := c.commit(ctx, k, r, w)
		switch {
		case err != nil:
			return nil, false, err
		case same:
			return w.old, false, nil
		case kv.ModRevision > 0:
			if r.kind == laneclient.KindRules {
				// A rule's status rests on the lanes that there are: the cache must have
				// seen what was written before the rule. Where it cannot in time, the
				// status that is told may be behind; the rule is written.
				_ = c.cacheAt(ctx, kv.ModRevision)
			}
			it, err := c.cache.show(r, kv)
			return it, w.old == nil || w.fresh, err
		}
	}
	return nil, false, busy(r)
}

func busy(r ref) error {
	return typed(problem(http.StatusServiceUnavailable, "%s %q is changed by others all the time: wait as Retry-After says and try again", r.kind, r.name),
		laneclient.ProblemUnavailable)
}

// commit runs the transaction of a write. A kv without revision: its comparisons
// did not hold.
func (c *Control) commit(ctx context.Context, k *kind, r ref, w *write) (kv store.KV, same bool, err error) {
	var stored []byte
	var rev uint64
	if w.old != nil {
		rev = w.old.rev
		if !w.fresh {
			stored = w.old.raw
		}
	} else if c.cache.count(r.kind) >= maxPerKind {
		return kv, false, problem(http.StatusConflict, "there are %d %s, which is the limit: delete some first", maxPerKind, r.kind)
	}
	value, err := k.encode(w.obj, stored)
	if err != nil {
		return kv, false, err
	}
	if w.old != nil && !w.fresh && w.lease == w.old.lease && bytes.Equal(value, w.old.raw) {
		return kv, true, nil
	}
	w.requires(r, rev)
	w.txn.Ops = append(w.txn.Ops, store.Op{Key: r.key(), Value: value, Lease: w.lease})
	res, err := c.cfg.Store.Do(ctx, w.txn)
	if err != nil || !res.Done {
		return kv, false, err
	}
	return store.KV{Key: r.key(), Value: value, ModRevision: res.Revision, Lease: w.lease}, false, nil
}

// remove deletes an object if the condition holds and allowed, which may be nil, has
// nothing against it. allowed may add to the transaction what else must hold, and what
// is deleted with it.
func (c *Control) remove(ctx context.Context, r ref, cond precondition, allowed func(context.Context, *item, *store.Txn) error) error {
	for range maxAttempts {
		old, err := c.read(ctx, r)
		if err != nil {
			return err
		}
		if err := cond.check(r, old); err != nil {
			return err
		}
		if old == nil {
			return notFound(r)
		}
		txn := store.Txn{
			If:  []store.Compare{{Key: r.key(), Revision: old.rev}},
			Ops: []store.Op{{Key: r.key(), Delete: true}},
		}
		if allowed != nil {
			if err := allowed(ctx, old, &txn); err != nil {
				return err
			}
		}
		res, err := c.cfg.Store.Do(ctx, txn)
		if err != nil || res.Done {
			return err
		}
	}
	return busy(r)
}

// removeUnused deletes an object that none of users uses; inUse is the refusal that names one
// of them. Every new user touches the key that is compared here, so that none is overlooked.
func (c *Control) removeUnused(ctx context.Context, r ref, cond precondition, touched string, users selector, inUse func(by string) error) error {
	return c.remove(ctx, r, cond, func(ctx context.Context, _ *item, txn *store.Txn) error {
		kv, _, rev, err := c.cfg.Store.Get(ctx, touched)
		if err != nil {
			return err
		}
		if err := c.cacheAt(ctx, rev); err != nil {
			return err
		}
		using, _, _ := c.cache.listUnder(users.kind, []selector{users}, "", 1, func(it *item) bool { return selects(it, users) })
		if len(using) > 0 {
			return inUse(using[0].name)
		}
		txn.If = append(txn.If, store.Compare{Key: touched, Revision: kv.ModRevision})
		txn.Ops = append(txn.Ops, store.Op{Key: touched, Delete: true})
		return nil
	})
}

// stamp is what keys hold that are only touched.
func (c *Control) stamp() []byte { return []byte(c.now().Format(time.RFC3339)) }

// fresh is the store's present revision, read linearizably.
func (c *Control) fresh(ctx context.Context) (uint64, error) {
	rev, err := c.cfg.Store.Revision(ctx)
	if err == nil {
		c.samples.add(rev, c.now())
	}
	return rev, err
}

// cacheAt waits, within bounds, until the cache has everything up to rev.
func (c *Control) cacheAt(ctx context.Context, rev uint64) error {
	waitCtx, cancel := context.WithTimeout(ctx, cacheWait)
	defer cancel()
	err := c.cache.wait(waitCtx, rev)
	if err != nil && ctx.Err() == nil {
		return typed(problem(http.StatusServiceUnavailable,
			"this replica is behind the registry: wait as Retry-After says and try again, or go to another replica"),
			laneclient.ProblemUnavailable)
	}
	return err
}

// catchUpNow makes the cache linearizable: it has every write that was answered
// before the call.
func (c *Control) catchUpNow(ctx context.Context) error {
	rev, err := c.fresh(ctx)
	if err != nil {
		return err
	}
	return c.cacheAt(ctx, rev)
}

// refOf is the object that a request's path names.
func refOf(k *kind, p params) ref {
	segments := make([]string, len(k.path))
	for n, name := range k.path {
		segments[n] = p[name]
	}
	return ref{k.name, strings.Join(segments, "/")}
}

func (c *Control) getObject(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, p params) error {
		at := refOf(k, p)
		if err := c.catchUpNow(r.Context()); err != nil {
			return err
		}
		it := c.cache.get(at)
		if it == nil {
			return notFound(at)
		}
		c.writeItem(w, http.StatusOK, it)
		return nil
	}
}

func (c *Control) writeItem(w http.ResponseWriter, status int, it *item) {
	w.Header().Set("Etag", etag(it.rev))
	body := it.body
	if it.kind == laneclient.KindSessions {
		body = c.withReached(it)
	}
	writeBytes(w, status, body)
}

func writeBytes(w http.ResponseWriter, status int, body []byte) {
	// A client that does not read must not keep what it asked for in memory. The
	// deadline is the connection's, which others use after this.
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Now().Add(answerTimeout))
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }()
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body)
	_, _ = w.Write([]byte{'\n'})
	if len(body) > flushBytes {
		_ = rc.Flush()
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	writeBytes(w, status, body)
	return nil
}

// listFields are those by which a list can choose among a kind.
func (k *kind) listFields() []string {
	var fields []string
	for _, field := range []string{"lane", "service", "group", "topic", "engine"} {
		if slices.Contains(k.fields, field) {
			fields = append(fields, field)
		}
	}
	return fields
}

// listQuery is what a list is asked for.
type listQuery struct {
	limit int
	after string
	sels  []selector
}

func parseList(k *kind, query url.Values) (listQuery, error) {
	f := &faults{}
	q := listQuery{limit: defaultListLimit}
	for key, values := range query {
		value := values[len(values)-1]
		switch key {
		case "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > maxListLimit {
				f.add("limit", "is %q: want 1 to %d", clip(value), maxListLimit)
			}
			q.limit = n
		case "after":
			q.after = value
		default:
			if fields := k.listFields(); !slices.Contains(fields, key) {
				f.add(clip(key), "is no parameter of a list of %s: want %s", k.name, strings.Join(append(fields, "limit", "after"), ", "))
				continue
			}
			if value == "" {
				continue
			}
			if key == "lane" {
				value = string(laneOf(value))
			}
			q.sels = append(q.sels, selector{k.name, key, value})
		}
	}
	sortedFields(f.list)
	return q, f.err("the query")
}

func (q listQuery) keep(it *item) bool {
	for _, s := range q.sels {
		if !selects(it, s) {
			return false
		}
	}
	return true
}

func (c *Control) listObjects(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, _ params) error {
		q, err := parseList(k, r.URL.Query())
		if err != nil {
			return err
		}
		if err := c.catchUpNow(r.Context()); err != nil {
			return err
		}
		items, more, rev := c.cache.listUnder(k.name, q.sels, q.after, q.limit, q.keep)
		list := laneclient.List{Items: make([]json.RawMessage, len(items)), Revision: rev}
		for n, it := range items {
			list.Items[n] = it.body
			if k.name == laneclient.KindSessions {
				list.Items[n] = c.withReached(it)
			}
		}
		if more {
			list.Next = items[len(items)-1].name
		}
		return writeJSON(w, http.StatusOK, list)
	}
}

// readObject decodes and checks the object in a request's body. name is that of the
// path, which the body may repeat.
func readObject(w http.ResponseWriter, r *http.Request, k *kind, name string) (any, error) {
	body, err := readBody(w, r, maxBodyBytes)
	if err != nil {
		return nil, err
	}
	obj := k.newObject()
	if err := decode(body, obj); err != nil {
		return nil, err
	}
	f := &faults{}
	m := laneclient.MetaOf(obj)
	if name != "" {
		if m.Name != "" && m.Name != name {
			f.add("name", "is %q, but the path says %q: make them equal, or leave it out", clip(m.Name), name)
		}
		m.Name = name
	}
	if k.check(obj, f); len(f.list) > 0 {
		sortedFields(f.list)
		return nil, f.err("the object")
	}
	return obj, nil
}

// copyObject is a copy that edit may set fields of; what fields point to is shared.
func copyObject(obj any) any {
	c := reflect.New(reflect.TypeOf(obj).Elem())
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	return c.Interface()
}

// putObject answers PUT for kinds whose objects are what the client says.
func (c *Control) putObject(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, p params) error {
		at, cond, obj, err := readPut(w, r, k, p)
		if err != nil {
			return err
		}
		it, created, err := c.change(r.Context(), at, cond, func(_ context.Context, w *write) error {
			w.obj = copyObject(obj)
			return nil
		})
		return c.answerWrite(w, it, created, err)
	}
}

// readPut reads a request to write the object that the path names, and checks it by
// itself.
func readPut(w http.ResponseWriter, r *http.Request, k *kind, p params) (at ref, cond precondition, obj any, err error) {
	at = refOf(k, p)
	if err = checkPathName(k, at); err != nil {
		return at, cond, nil, err
	}
	if cond, err = parsePrecondition(r.Header); err != nil {
		return at, cond, nil, err
	}
	obj, err = readObject(w, r, k, p["name"])
	return at, cond, obj, err
}

func checkPathName(k *kind, at ref) error {
	if err := k.checkName(at.name); err != nil {
		f := &faults{}
		f.add("name", "%s", err.Error())
		return f.err("the path")
	}
	return nil
}

func (c *Control) answerWrite(w http.ResponseWriter, it *item, created bool, err error) error {
	switch {
	case err != nil:
		return err
	case created:
		w.Header().Set("Location", "/v1/"+string(it.kind)+"/"+it.name)
		c.writeItem(w, http.StatusCreated, it)
	default:
		c.writeItem(w, http.StatusOK, it)
	}
	return nil
}

// deleteObject answers DELETE for kinds whose objects just go.
func (c *Control) deleteObject(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, p params) error {
		cond, err := parsePrecondition(r.Header)
		if err != nil {
			return err
		}
		if err := c.remove(r.Context(), refOf(k, p), cond, nil); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// deleteService refuses while the service has instances: it exists as long as one of
// them does.
func (c *Control) deleteService(w http.ResponseWriter, r *http.Request, p params) error {
	cond, err := parsePrecondition(r.Header)
	if err != nil {
		return err
	}
	name := p["name"]
	err = c.removeUnused(r.Context(), serviceRef(name), cond, newcomersPrefix+name, selector{laneclient.KindInstances, "service", name},
		func(instance string) error {
			return problem(http.StatusConflict, "service %q has instances, %s among them: stop or delete them first", name, instance)
		})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// isAlive reports whether a lane takes new instances and traffic.
func isAlive(l *laneclient.Lane) bool {
	return lane.State(l.State).TakesNew()
}
