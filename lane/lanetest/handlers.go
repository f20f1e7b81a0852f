package lanetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	maxBodyBytes     = 256 << 10
	defaultListLimit = 1000
)

// handler answers a request, or returns why not.
type handler func(w http.ResponseWriter, r *http.Request) error

func (r *Replica) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, req *http.Request) {
			if err := h(w, req); err != nil {
				writeProblem(w, err)
			}
		})
	}
	for _, k := range kinds() {
		one := k.pattern()
		handle("GET /v1/"+string(k.name), r.list(k))
		switch k.name {
		case laneclient.KindCursors:
			handle("GET "+one, r.getCursor)
			handle("PUT "+one, r.putCursor)
			continue
		case laneclient.KindSessions:
		default:
			handle("PUT "+one, r.put(k))
		}
		handle("GET "+one, r.get(k))
		handle("DELETE "+one, r.delete(k))
	}
	handle("POST /v1/cursors:batch", r.postCursors(true))
	handle("POST /v1/notes", r.postCursors(false))
	handle("POST /v1/lanes", r.createLane)
	handle("POST /v1/lanes/{name}/extend", r.extendLane)
	handle("POST /v1/lanes/{name}/hold", r.holdLane)
	handle("POST /v1/sessions", r.openSession)
	handle("POST /v1/sessions/{name}/renew", r.renewSession)
	handle("GET /v1/watch", r.watch)
	handle("GET /v1/explain", r.explain)
	for _, path := range []string{"/healthz", "/readyz"} {
		handle("GET "+path, func(w http.ResponseWriter, _ *http.Request) error {
			return writeJSON(w, http.StatusOK, laneclient.Health{OK: true, Roles: []laneclient.RoleStatus{{Role: "control", Ready: true}}})
		})
	}
	handle("/", func(http.ResponseWriter, *http.Request) error {
		return problem(http.StatusNotFound, "", "there is nothing at this path")
	})
	return mux
}

func problem(status int, typ, detail string, args ...any) *laneclient.Problem {
	p := laneclient.NewProblem(status, detail, args...)
	p.Type = typ
	return p
}

func invalid(field, detail string, args ...any) *laneclient.Problem {
	return laneclient.MistakesProblem("the object", []laneclient.FieldError{{Field: field, Detail: fmt.Sprintf(detail, args...)}})
}

func sessionGone(status int, id string) *laneclient.Problem {
	return problem(status, laneclient.ProblemSessionGone, "session %q has ended: open a new one", id)
}

func writeProblem(w http.ResponseWriter, err error) {
	var p *laneclient.Problem
	if !errors.As(err, &p) {
		p = problem(http.StatusInternalServerError, "", "%v", err)
	}
	laneclient.WriteProblem(w, p)
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client may be gone
	return nil
}

func writeObject(w http.ResponseWriter, status int, o *object) error {
	w.Header().Set("Etag", etag(o.rev))
	return writeJSON(w, status, o.body())
}

func etag(rev uint64) string { return `"` + strconv.FormatUint(rev, 10) + `"` }

// decode reads a body whose fields are all known.
func decode(w http.ResponseWriter, r *http.Request, out any) error {
	return decodeUpTo(w, r, maxBodyBytes, out)
}

func decodeUpTo(w http.ResponseWriter, r *http.Request, most int64, out any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		return problem(http.StatusRequestEntityTooLarge, "", "the body has more than %d bytes", most)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) && json.Valid(body) {
		return invalid("", "want an object")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	err = dec.Decode(out)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return problem(http.StatusBadRequest, "", "the body is no JSON: %v", err)
	}
	if _, field, ok := strings.Cut(err.Error(), "unknown field "); ok {
		return invalid(strings.Trim(field, `"`), "is not known")
	}
	return invalid("", "%v", err)
}

func notFound(at ref) error {
	return problem(http.StatusNotFound, "", "there is no %s named %q", at.kind, at.name)
}

// condition checks If-Match and If-None-Match.
func condition(r *http.Request, at ref, old *object) error {
	holds := func(header string) (set, matches bool) {
		values := r.Header.Values(header)
		for _, v := range values {
			matches = matches || old != nil && (v == "*" || v == etag(old.rev))
		}
		return len(values) > 0, matches
	}
	match, matches := holds("If-Match")
	none, exists := holds("If-None-Match")
	if (!match || matches) && (!none || !exists) {
		return nil
	}
	p := problem(http.StatusPreconditionFailed, laneclient.ProblemChanged, "%s %q is not as the request says", at.kind, at.name)
	if old != nil {
		p.Current = old.body()
	}
	return p
}

func (r *Replica) get(k kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		at := k.refOf(req)
		r.reg.mu.Lock()
		o := r.reg.objects[at]
		r.reg.mu.Unlock()
		if o == nil {
			return notFound(at)
		}
		return writeObject(w, http.StatusOK, o)
	}
}

// listQuery is what a list is asked for.
type listQuery struct {
	limit  int
	after  string
	values map[string]string // by field
}

func parseList(k kind, q url.Values) (listQuery, error) {
	out := listQuery{limit: defaultListLimit, after: q.Get("after"), values: map[string]string{}}
	fields := fieldsOf(k.empty())
	for key := range q {
		value := q.Get(key)
		switch key {
		case "after":
		case "limit":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return out, invalid("limit", "is %q: want a number from 1", value)
			}
			out.limit = n
		case "lane", "service", "group", "topic", "engine":
			if _, known := fields[key]; known {
				out.values[key] = value
				continue
			}
			fallthrough
		default:
			return out, invalid(key, "is no parameter of a list of %s", k.name)
		}
	}
	return out, nil
}

func (q *listQuery) keep(o *object) bool {
	if o.name <= q.after {
		return false
	}
	for field, value := range q.values {
		if !chosen(o, field, value) {
			return false
		}
	}
	return true
}

func (r *Replica) list(k kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		q, err := parseList(k, req.URL.Query())
		if err != nil {
			return err
		}
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		items := r.reg.list(k.name, q.keep)
		answer := laneclient.List{Revision: r.reg.rev, Items: []json.RawMessage{}}
		for _, o := range items {
			if len(answer.Items) == q.limit {
				answer.Next = items[q.limit-1].name
				break
			}
			answer.Items = append(answer.Items, o.body())
		}
		return writeJSON(w, http.StatusOK, answer)
	}
}

// chosen reports whether a list's parameter keeps the object; empty keeps all.
func chosen(o *object, field, value string) bool {
	if value == "" {
		return true
	}
	if field == "lane" && value == laneclient.BaselineWord {
		value = ""
	}
	return slices.Contains(fieldsOf(o.obj)[field], value)
}

func (r *Replica) put(k kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		at, err := k.named(req)
		if err != nil {
			return err
		}
		obj := k.empty()
		if err := decode(w, req, obj); err != nil {
			return err
		}
		name := req.PathValue("name")
		if m := laneclient.MetaOf(obj); m.Name != "" && m.Name != name {
			return invalid("name", "is %q, but the path says %q", m.Name, name)
		}
		laneclient.MetaOf(obj).Name = name
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		old := r.reg.objects[at]
		if err := condition(req, at, old); err != nil {
			return err
		}
		created := old == nil
		if l, ok := obj.(*laneclient.Lane); ok {
			created, err = r.reg.putLane(l)
		} else {
			err = r.reg.write(at, obj, req.Header.Get(laneclient.SessionHeader))
		}
		if err != nil {
			return err
		}
		return writeObject(w, statusOf(created), r.reg.objects[at])
	}
}

// write writes an object that is no lane, on behalf of a session or of nobody.
func (r *registry) write(at ref, obj any, session string) error {
	switch o := obj.(type) {
	case *laneclient.Instance:
		return r.putInstance(o, at, session)
	case *laneclient.Rule:
		o.Status = "ok"
	case *laneclient.Route:
		if err := lane.CheckService(o.Service); err != nil {
			return invalid("service", "%v", err)
		}
	case *laneclient.Engine:
		return r.putEngine(o, at, session)
	case *laneclient.Topic:
		return r.putTopic(o, at)
	case *laneclient.Group:
		return r.putGroup(o, at)
	case *laneclient.Member:
		return r.putMember(o, at, session)
	}
	r.commit(mutation{at, obj})
	return nil
}

func statusOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// putInstance registers an instance on behalf of a session, or a static one.
func (r *registry) putInstance(i *laneclient.Instance, at ref, session string) error {
	i.Service, _, _ = strings.Cut(at.name, "/")
	for n, e := range i.Endpoints {
		if _, port, err := net.SplitHostPort(e.Address); err != nil || port == "" {
			return invalid(fmt.Sprintf("endpoints[%d].address", n), "%q is no address", e.Address)
		}
	}
	var old *laneclient.Instance
	if o := r.objects[at]; o != nil {
		old, _ = o.obj.(*laneclient.Instance)
	}
	if session == "" && old != nil && old.Session != "" && i.Session != old.Session {
		return problem(http.StatusConflict, "", "instance %q belongs to session %q: name it in the header %s", at.name, old.Session, laneclient.SessionHeader)
	}
	if session == "" && old != nil && i.Session == old.Session {
		session = old.Session
	}
	if session != "" && r.leases[session] == nil {
		return sessionGone(http.StatusConflict, session)
	}
	i.Session, i.Static, i.Generation, i.Since = session, session == "", 0, time.Now()
	if old != nil && old.Session == session {
		i.Since = old.Since
	}
	if i.State == "" {
		i.State = string(lane.Ready)
	}
	if i.State != string(lane.Ready) && i.State != string(lane.Draining) {
		return invalid("state", "is %q: want ready or draining", i.State)
	}
	i.Weight = max(i.Weight, 1)
	generation, writes, err := r.enterLane(i.Lane, i.State == string(lane.Ready))
	if err != nil {
		return err
	}
	i.Generation = generation
	if s := (ref{laneclient.KindServices, i.Service}); r.objects[s] == nil {
		writes = append(writes, mutation{s, &laneclient.Service{Meta: laneclient.Meta{Name: i.Service}}})
	}
	r.commit(append(writes, mutation{at, i})...)
	return nil
}

func (r *Replica) delete(k kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		at := k.refOf(req)
		grace, err := graceOf(k, req.URL.Query())
		if err != nil {
			return err
		}
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		old := r.reg.objects[at]
		if err := condition(req, at, old); err != nil {
			return err
		}
		if old == nil {
			if k.name == laneclient.KindSessions {
				return sessionGone(http.StatusNotFound, at.name)
			}
			return notFound(at)
		}
		session := req.Header.Get(laneclient.SessionHeader)
		switch o := old.obj.(type) {
		case *laneclient.Lane:
			if err := r.reg.drainLane(o); err != nil {
				return err
			}
			return writeObject(w, http.StatusOK, r.reg.objects[at])
		case *laneclient.Member:
			err = r.reg.leave(o, at, session, grace)
		default:
			err = r.reg.remove(old, session)
		}
		if err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// remove deletes an object that neither drains nor leaves.
func (r *registry) remove(old *object, session string) error {
	gone := []mutation{{old.ref, nil}}
	switch o := old.obj.(type) {
	case *laneclient.Session:
		r.end(old.name)
		return nil
	case *laneclient.Instance:
		if err := notOf(old.ref, o.Session, session); err != nil {
			return err
		}
		r.commit(gone...)
		r.endOf(old.name, o.Session)
		return nil
	case *laneclient.Service:
		if err := r.unused(old.ref, laneclient.KindInstances, "service"); err != nil {
			return err
		}
	case *laneclient.Engine:
		if err := notOf(old.ref, o.Session, session); err != nil {
			return err
		}
	case *laneclient.Topic:
		if err := r.unused(old.ref, laneclient.KindGroups, "topic"); err != nil {
			return err
		}
	case *laneclient.Group:
		more, err := r.clearGroup(o)
		if err != nil {
			return err
		}
		gone = append(more, gone...)
	}
	r.commit(gone...)
	return nil
}

// notOf refuses what is asked for on behalf of a session that it is not of.
func notOf(at ref, of, session string) error {
	if session == "" || session == of {
		return nil
	}
	return problem(http.StatusConflict, "", "%s %q is not of session %q", at.kind, at.name, session)
}

// unused refuses to delete what objects of a kind name in a field.
func (r *registry) unused(at ref, users laneclient.Kind, field string) error {
	by := r.list(users, func(o *object) bool { return chosen(o, field, at.name) })
	if len(by) == 0 {
		return nil
	}
	return problem(http.StatusConflict, "", "%s %q is named by %s %q", at.kind, at.name, users, by[0].name)
}

func (r *Replica) openSession(w http.ResponseWriter, req *http.Request) error {
	s := &laneclient.Session{}
	if err := decode(w, req, s); err != nil {
		return err
	}
	ttl := time.Duration(s.TTL)
	if ttl == 0 {
		ttl = laneclient.DefaultTTL
	}
	if ttl < laneclient.MinTTL || ttl > laneclient.MaxTTL {
		return invalid("ttl", "is %s: want %s to %s", ttl, laneclient.MinTTL, laneclient.MaxTTL)
	}
	if s.Instance != "" {
		if err := checkInstance(s.Instance); err != nil {
			return invalid("instance", "%v", err)
		}
	}
	s.TTL, s.Since, s.Reached = laneclient.Duration(ttl), time.Now(), 0
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	s.Name = r.reg.grant(ttl)
	at := ref{laneclient.KindSessions, s.Name}
	r.reg.commit(mutation{at, s})
	return writeObject(w, http.StatusCreated, r.reg.objects[at])
}

func (r *Replica) renewSession(w http.ResponseWriter, req *http.Request) error {
	body := &laneclient.Renewal{}
	if err := decode(w, req, body); err != nil {
		return err
	}
	id := req.PathValue("name")
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	l := r.reg.leases[id]
	if l == nil {
		return sessionGone(http.StatusNotFound, id)
	}
	if body.Reached > r.reg.rev {
		return problem(http.StatusConflict, laneclient.ProblemStaleView, "the view is at revision %d, the registry at %d: it is another one", body.Reached, r.reg.rev)
	}
	l.timer.Reset(l.ttl)
	for _, name := range body.Lanes {
		r.reg.use(name)
	}
	r.reg.asked[id]++
	r.reg.wake() // its watches report progress
	return writeJSON(w, http.StatusOK, laneclient.Renewed{Revision: r.reg.rev, TTL: laneclient.Duration(l.ttl)})
}
