package lanetest

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	for _, kind := range []laneclient.Kind{
		laneclient.KindLanes, laneclient.KindServices, laneclient.KindInstances,
		laneclient.KindRoutes, laneclient.KindRules, laneclient.KindSessions,
	} {
		path := "/v1/" + string(kind)
		one := path + "/{name}"
		if kind == laneclient.KindInstances {
			one = path + "/{service}/{name}"
		}
		handle("GET "+path, r.list(kind))
		handle("GET "+one, r.get(kind))
		handle("DELETE "+one, r.delete(kind))
		if kind != laneclient.KindSessions {
			handle("PUT "+one, r.put(kind))
		}
	}
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
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		return problem(http.StatusRequestEntityTooLarge, "", "the body has more than %d bytes", maxBodyBytes)
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

func newObject(kind laneclient.Kind) any {
	switch kind {
	case laneclient.KindLanes:
		return &laneclient.Lane{}
	case laneclient.KindServices:
		return &laneclient.Service{}
	case laneclient.KindInstances:
		return &laneclient.Instance{}
	case laneclient.KindRoutes:
		return &laneclient.Route{}
	case laneclient.KindRules:
		return &laneclient.Rule{}
	default:
		return &laneclient.Session{}
	}
}

// refOf is the object that a path names.
func refOf(kind laneclient.Kind, r *http.Request) ref {
	if kind == laneclient.KindInstances {
		return ref{kind, r.PathValue("service") + "/" + r.PathValue("name")}
	}
	return ref{kind, r.PathValue("name")}
}

func checkName(at ref) error {
	var err error
	switch at.kind {
	case laneclient.KindLanes:
		_, err = lane.ParseName(at.name)
	case laneclient.KindServices:
		err = lane.CheckService(at.name)
	case laneclient.KindInstances:
		service, name, _ := strings.Cut(at.name, "/")
		err = errors.Join(lane.CheckService(service), lane.CheckInstance(name))
	default:
		err = lane.CheckInstance(at.name)
	}
	if err != nil {
		return invalid("name", "%v", err)
	}
	return nil
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

func (r *Replica) get(kind laneclient.Kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		at := refOf(kind, req)
		r.reg.mu.Lock()
		o := r.reg.objects[at]
		r.reg.mu.Unlock()
		if o == nil {
			return notFound(at)
		}
		return writeObject(w, http.StatusOK, o)
	}
}

func (r *Replica) list(kind laneclient.Kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		q := req.URL.Query()
		limit := defaultListLimit
		if s := q.Get("limit"); s != "" {
			n, err := strconv.Atoi(s)
			if err != nil || n < 1 {
				return invalid("limit", "is %q: want a number from 1", s)
			}
			limit = n
		}
		after := q.Get("after")
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		items := r.reg.list(kind, func(o *object) bool {
			return o.name > after && chosen(o, "service", q.Get("service")) && chosen(o, "lane", q.Get("lane"))
		})
		answer := laneclient.List{Revision: r.reg.rev, Items: []json.RawMessage{}}
		for _, o := range items {
			if len(answer.Items) == limit {
				answer.Next = items[limit-1].name
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
	if field == "lane" && value == "-" {
		value = ""
	}
	return slices.Contains(fieldsOf(o.obj, field), value)
}

// fieldsOf are the values of the field by which an object is selected.
func fieldsOf(obj any, field string) []string {
	switch o := obj.(type) {
	case *laneclient.Lane:
		return map[string][]string{"name": {o.Name}, "lane": {o.Name}, "parent": {o.Parent}}[field]
	case *laneclient.Service:
		return map[string][]string{"name": {o.Name}, "service": {o.Name}}[field]
	case *laneclient.Instance:
		return map[string][]string{"service": {o.Service}, "lane": {o.Lane}, "session": {o.Session}}[field]
	case *laneclient.Route:
		return map[string][]string{"name": {o.Name}, "service": {o.Service}}[field]
	case *laneclient.Rule:
		lanes := []string{}
		for _, share := range o.Lanes {
			lanes = append(lanes, share.Lane)
		}
		return map[string][]string{"name": {o.Name}, "lane": lanes}[field]
	case *laneclient.Session:
		service, _, _ := strings.Cut(o.Instance, "/")
		return map[string][]string{"name": {o.Name}, "instance": {o.Instance}, "service": {service}}[field]
	}
	return nil
}

func (r *Replica) put(kind laneclient.Kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		at := refOf(kind, req)
		if err := checkName(at); err != nil {
			return err
		}
		obj := newObject(kind)
		if err := decode(w, req, obj); err != nil {
			return err
		}
		if m := metaOf(obj); m.Name != "" && m.Name != req.PathValue("name") {
			return invalid("name", "is %q, but the path says %q", m.Name, req.PathValue("name"))
		}
		metaOf(obj).Name = req.PathValue("name")
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		old := r.reg.objects[at]
		if err := condition(req, at, old); err != nil {
			return err
		}
		var err error
		created := old == nil
		switch o := obj.(type) {
		case *laneclient.Lane:
			created, err = r.reg.putLane(o)
		case *laneclient.Instance:
			err = r.reg.putInstance(o, req.PathValue("service"), req.Header.Get(laneclient.SessionHeader))
		case *laneclient.Rule:
			o.Status = "ok"
			r.reg.commit(mutation{at, obj})
		case *laneclient.Route:
			if err = lane.CheckService(o.Service); err == nil {
				r.reg.commit(mutation{at, obj})
			} else {
				err = invalid("service", "%v", err)
			}
		default:
			r.reg.commit(mutation{at, obj})
		}
		if err != nil {
			return err
		}
		return writeObject(w, statusOf(created), r.reg.objects[at])
	}
}

func statusOf(created bool) int {
	if created {
		return http.StatusCreated
	}
	return http.StatusOK
}

// putInstance registers an instance on behalf of a session, or a static one.
func (r *registry) putInstance(i *laneclient.Instance, service, session string) error {
	at := ref{laneclient.KindInstances, service + "/" + i.Name}
	i.Service = service
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
	var writes []mutation
	if i.Lane != "" {
		l := r.lane(i.Lane)
		switch {
		case l == nil:
			p := invalid("lane", "lane %q does not exist: create it first", i.Lane)
			p.Type = laneclient.ProblemLane
			return p
		case !alive(l):
			return problem(http.StatusConflict, laneclient.ProblemLane, "lane %q is %s", i.Lane, l.State)
		}
		i.Generation = l.Generation
		if l.State == string(lane.Creating) && i.State == string(lane.Ready) {
			c := *l
			c.State = string(lane.Ready)
			writes = append(writes, mutation{ref{laneclient.KindLanes, l.Name}, &c})
		}
	}
	if s := (ref{laneclient.KindServices, service}); r.objects[s] == nil {
		writes = append(writes, mutation{s, &laneclient.Service{Meta: laneclient.Meta{Name: service}}})
	}
	r.commit(append(writes, mutation{at, i})...)
	return nil
}

func (r *Replica) delete(kind laneclient.Kind) handler {
	return func(w http.ResponseWriter, req *http.Request) error {
		at := refOf(kind, req)
		r.reg.mu.Lock()
		defer r.reg.mu.Unlock()
		old := r.reg.objects[at]
		if err := condition(req, at, old); err != nil {
			return err
		}
		if old == nil {
			if kind == laneclient.KindSessions {
				return sessionGone(http.StatusNotFound, at.name)
			}
			return notFound(at)
		}
		switch o := old.obj.(type) {
		case *laneclient.Lane:
			if err := r.reg.drainLane(o); err != nil {
				return err
			}
			return writeObject(w, http.StatusOK, r.reg.objects[at])
		case *laneclient.Session:
			r.reg.end(at.name)
		case *laneclient.Instance:
			if s := req.Header.Get(laneclient.SessionHeader); s != "" && s != o.Session {
				return problem(http.StatusConflict, "", "instance %q is not of session %q", at.name, s)
			}
			r.reg.commit(mutation{at, nil})
			r.reg.endOf(at.name, o.Session)
		case *laneclient.Service:
			if has := r.reg.list(laneclient.KindInstances, func(i *object) bool { return chosen(i, "service", o.Name) }); len(has) > 0 {
				return problem(http.StatusConflict, "", "service %q has instances", o.Name)
			}
			r.reg.commit(mutation{at, nil})
		default:
			r.reg.commit(mutation{at, nil})
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
}

// newID is an id that is never used twice. It is not rand.Text, whose letters are
// upper case.
func newID() string { return strings.ToLower(rand.Text()) }

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
		if err := checkName(ref{laneclient.KindInstances, s.Instance}); err != nil {
			return invalid("instance", "%v", err)
		}
	}
	s.Name, s.TTL, s.Since, s.Reached = newID(), laneclient.Duration(ttl), time.Now(), 0
	r.reg.mu.Lock()
	defer r.reg.mu.Unlock()
	at := ref{laneclient.KindSessions, s.Name}
	r.reg.grant(s.Name, ttl)
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
