package lanetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// suiteWait is how long the suite waits for what should come at once.
const suiteWait = 10 * time.Second

// RunAPI checks a control plane against the control API: objects and their
// conditions, the life of lanes, instances and sessions, groups with their members
// and cursors, the watch, and explanations. start gives the URL and transport (nil: TCP) of an empty one; it is
// called once for each part, which are subtests and run one after the other in no
// certain order, and cleans up with its t. It fails t for what is not so, waits up to
// 10 s for what should come at once, and gives a part a minute. Real time passes, a
// few seconds.
func RunAPI(t *testing.T, start func(t *testing.T) (url string, transport http.RoundTripper)) {
	parts := map[string]func(*suite){
		"Lanes": (*suite).lanes, "LaneParents": (*suite).laneParents, "LaneEnd": (*suite).laneEnd,
		"Services": (*suite).services, "StaticInstances": (*suite).staticInstances,
		"InstanceSessions": (*suite).instanceSessions, "InstanceLanes": (*suite).instanceLanes,
		"RoutesAndRules": (*suite).routesAndRules, "Conditions": (*suite).conditions,
		"Mistakes": (*suite).mistakes, "Lists": (*suite).lists, "Sessions": (*suite).sessions,
		"WatchState": (*suite).watchState, "WatchChanges": (*suite).watchChanges, "WatchCallable": (*suite).watchCallable, "WatchResume": (*suite).watchResume,
		"WatchProgress": (*suite).watchProgress, "WatchRefused": (*suite).watchRefused,
		"Explain": (*suite).explain, "Health": (*suite).health, "Client": (*suite).client,
	}
	maps.Copy(parts, consumeParts())
	for name, part := range parts {
		t.Run(name, func(t *testing.T) {
			url, transport := start(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			t.Cleanup(cancel)
			cfg := laneclient.Config{Control: []string{url}, Transport: transport}
			s := &suite{t: t, ctx: ctx, cfg: cfg, api: laneclient.NewAPI(cfg)}
			t.Cleanup(func() { _ = s.api.Close() })
			s.eventually("the control plane is ready", func() bool {
				return s.api.Do(s.ctx, http.MethodGet, "/readyz", nil, nil) == nil
			})
			part(s)
		})
	}
}

// suite is one part under way.
type suite struct {
	t   *testing.T
	ctx context.Context //nolint:containedctx // it is the test's
	cfg laneclient.Config
	api *laneclient.API
}

// must fails the part unless err is nil.
func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// refused fails the part unless err is a problem of the status and, if it is not
// empty, the type.
func (s *suite) refused(err error, status int, typ string) {
	s.t.Helper()
	_ = s.problem(err, status, typ)
}

// problem is refused, for those that look closer.
func (s *suite) problem(err error, status int, typ string) *laneclient.Problem {
	s.t.Helper()
	var p *laneclient.Problem
	if !errors.As(err, &p) || p.Status != status || typ != "" && p.Type != typ {
		s.t.Fatalf("got %#v (%v), want a problem of status %d and type %q", err, err, status, typ)
	}
	if p.Detail == "" || p.Title == "" {
		s.t.Errorf("problem of status %d has title %q and detail %q: want both", p.Status, p.Title, p.Detail)
	}
	return p
}

func named(name string) laneclient.Meta { return laneclient.Meta{Name: name} }

func (s *suite) newLane(name, parent string) *laneclient.Lane {
	s.t.Helper()
	l, err := laneclient.CreateLane(s.ctx, s.api, &laneclient.Lane{Meta: named(name), Parent: parent})
	s.must(err)
	return l
}

func (s *suite) newSession(instance string) *laneclient.Session {
	s.t.Helper()
	session, err := laneclient.OpenSession(s.ctx, s.api, &laneclient.Session{Instance: instance, Role: "instance"})
	s.must(err)
	return session
}

func httpInstance(service, name, in string) *laneclient.Instance {
	return &laneclient.Instance{
		Meta: named(name), Service: service, Lane: in,
		Endpoints: []laneclient.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
	}
}

func (s *suite) register(i *laneclient.Instance, opts ...laneclient.CallOption) *laneclient.Instance {
	s.t.Helper()
	stored, err := laneclient.Put(s.ctx, s.api, i, opts...)
	s.must(err)
	return stored
}

// gone waits until an object does not exist.
func gone[T laneclient.Object](s *suite, name string) {
	s.t.Helper()
	for deadline := time.Now().Add(suiteWait); ; {
		_, err := laneclient.Get[T](s.ctx, s.api, name)
		if laneclient.IsNotFound(err) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s %s is still there: %v", laneclient.KindOf[T](), name, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *suite) lanes() {
	green := s.newLane("green", "")
	if green.Revision == 0 || green.Generation != 1 || green.Kind != "ordinary" || green.State != "creating" && green.State != "ready" ||
		time.Duration(green.TTL) != 72*time.Hour || green.Expires.Sub(green.Created) != 72*time.Hour {
		s.t.Errorf("new lane is %+v: want generation 1, ordinary, creating or ready, for 72h", green)
	}
	_, err := laneclient.CreateLane(s.ctx, s.api, &laneclient.Lane{Meta: named("green")})
	p := s.problem(err, http.StatusConflict, laneclient.ProblemExists)
	var current laneclient.Lane
	if json.Unmarshal(p.Current, &current) != nil || current.Name != "green" {
		s.t.Errorf("current of the conflict is %s: want the lane", p.Current)
	}
	strict := s.newLane("strict-load", "")
	if strict.Kind != "strict" {
		s.t.Errorf("strict-load is %s: its name makes it strict", strict.Kind)
	}
	put, err := laneclient.Put(s.ctx, s.api, &laneclient.Lane{Meta: named("green"), Owner: "ann", TTL: laneclient.Duration(time.Hour)})
	s.must(err)
	if put.Owner != "ann" || time.Duration(put.TTL) != time.Hour || put.Generation != 1 || put.Revision <= green.Revision {
		s.t.Errorf("changed lane is %+v: want owner ann, a TTL of 1h, the same generation, a later revision", put)
	}
	extended, err := laneclient.ExtendLane(s.ctx, s.api, "green", laneclient.Duration(5*time.Hour))
	s.must(err)
	if left := time.Until(extended.Expires); time.Duration(extended.TTL) != 5*time.Hour || left < 4*time.Hour {
		s.t.Errorf("extended lane expires in %v with a TTL of %v: want 5h", left, time.Duration(extended.TTL))
	}
	held, err := laneclient.HoldLane(s.ctx, s.api, "green", true)
	s.must(err)
	if !held.Held {
		s.t.Error("held lane is not held")
	}
	got, err := laneclient.Get[laneclient.Lane](s.ctx, s.api, "green")
	s.must(err)
	if !reflect.DeepEqual(got, held) {
		s.t.Errorf("got %+v, want what the last write answered, %+v", got, held)
	}
	_, err = laneclient.Get[laneclient.Lane](s.ctx, s.api, "blue")
	s.refused(err, http.StatusNotFound, "")
	_, err = laneclient.HoldLane(s.ctx, s.api, "blue", true)
	s.refused(err, http.StatusNotFound, "")
	for _, bad := range []string{"ab", "Green", "xn-a", "a--b", "-a", strings.Repeat("a", 41)} {
		_, err := laneclient.CreateLane(s.ctx, s.api, &laneclient.Lane{Meta: named(bad)})
		s.refused(err, http.StatusUnprocessableEntity, "")
	}
}

func (s *suite) laneParents() {
	s.newLane("base", "")
	top := s.newLane("top", "base")
	if top.Parent != "base" {
		s.t.Errorf("parent is %q, want base", top.Parent)
	}
	s.refused(laneclient.Delete[laneclient.Lane](s.ctx, s.api, "base"), http.StatusConflict, "")
	_, err := laneclient.Put(s.ctx, s.api, &laneclient.Lane{Meta: named("top")})
	s.refused(err, http.StatusUnprocessableEntity, "")
	_, err = laneclient.CreateLane(s.ctx, s.api, &laneclient.Lane{Meta: named("lost"), Parent: "nobody"})
	s.refused(err, http.StatusUnprocessableEntity, "")
	s.newLane("strict-a", "")
	_, err = laneclient.CreateLane(s.ctx, s.api, &laneclient.Lane{Meta: named("child"), Parent: "strict-a"})
	s.refused(err, http.StatusUnprocessableEntity, "")
	_, err = laneclient.CreateLane(s.ctx, s.api, &laneclient.Lane{Meta: named("strict-b"), Parent: "base"})
	s.refused(err, http.StatusUnprocessableEntity, "")
	s.must(laneclient.Delete[laneclient.Lane](s.ctx, s.api, "top"))
	s.must(laneclient.Delete[laneclient.Lane](s.ctx, s.api, "base"))
}

func (s *suite) laneEnd() {
	s.newLane("green", "")
	s.must(laneclient.Delete[laneclient.Lane](s.ctx, s.api, "green"))
	l, err := laneclient.Get[laneclient.Lane](s.ctx, s.api, "green")
	s.must(err)
	if l.State != string(lane.Draining) || l.DrainingAt.IsZero() {
		s.t.Errorf("deleted lane is %s since %v: want it to drain", l.State, l.DrainingAt)
	}
	s.must(laneclient.Delete[laneclient.Lane](s.ctx, s.api, "green")) // again: it stays as it is
	_, err = laneclient.CreateLane(s.ctx, s.api, &laneclient.Lane{Meta: named("green")})
	s.refused(err, http.StatusConflict, laneclient.ProblemLane)
	_, err = laneclient.ExtendLane(s.ctx, s.api, "green", 0)
	s.refused(err, http.StatusConflict, laneclient.ProblemLane)
	_, err = laneclient.Put(s.ctx, s.api, httpInstance("order", "o1", "green"))
	s.refused(err, http.StatusConflict, laneclient.ProblemLane)
	s.refused(laneclient.Delete[laneclient.Lane](s.ctx, s.api, "nobody"), http.StatusNotFound, "")
}

func (s *suite) services() {
	written, err := laneclient.Put(s.ctx, s.api, &laneclient.Service{Meta: named("pay"), Owner: "ann", Endpoints: []laneclient.Endpoint{{Protocol: "grpc"}}})
	s.must(err)
	got, err := laneclient.Get[laneclient.Service](s.ctx, s.api, "pay")
	s.must(err)
	if !reflect.DeepEqual(got, written) || got.Owner != "ann" {
		s.t.Errorf("got %+v, want %+v", got, written)
	}
	s.register(httpInstance("order", "o1", ""))
	if _, err := laneclient.Get[laneclient.Service](s.ctx, s.api, "order"); err != nil {
		s.t.Errorf("service order should exist from its first instance: %v", err)
	}
	s.refused(laneclient.Delete[laneclient.Service](s.ctx, s.api, "order"), http.StatusConflict, "")
	s.must(laneclient.Delete[laneclient.Instance](s.ctx, s.api, "order/o1"))
	if _, err := laneclient.Get[laneclient.Service](s.ctx, s.api, "order"); err != nil {
		s.t.Errorf("service order should outlive its last instance: %v", err)
	}
	s.must(laneclient.Delete[laneclient.Service](s.ctx, s.api, "order"))
	gone[laneclient.Service](s, "order")
	_, err = laneclient.Put(s.ctx, s.api, &laneclient.Service{Meta: named("UPPER")})
	s.refused(err, http.StatusUnprocessableEntity, "")
}

func (s *suite) staticInstances() {
	i := s.register(httpInstance("order", "o1", ""))
	if !i.Static || i.Session != "" || i.State != string(lane.Ready) || i.Weight != 1 || i.Generation != 0 || i.Since.IsZero() || i.Revision == 0 {
		s.t.Errorf("static instance is %+v: want static, ready, weight 1, of generation 0", i)
	}
	i.State = string(lane.Draining)
	drained := s.register(i)
	if drained.State != string(lane.Draining) || !drained.Since.Equal(i.Since) || drained.Revision <= i.Revision {
		s.t.Errorf("changed instance is %+v: want it draining, since %v", drained, i.Since)
	}
	bad := httpInstance("order", "o2", "")
	bad.Endpoints[0].Address = "nowhere"
	_, err := laneclient.Put(s.ctx, s.api, bad)
	p := s.problem(err, http.StatusUnprocessableEntity, "")
	if len(p.Errors) != 1 || p.Errors[0].Field != "endpoints[0].address" {
		s.t.Errorf("errors are %+v: want one at endpoints[0].address", p.Errors)
	}
	s.must(laneclient.Delete[laneclient.Instance](s.ctx, s.api, "order/o1"))
	s.refused(laneclient.Delete[laneclient.Instance](s.ctx, s.api, "order/o1"), http.StatusNotFound, "")
}

func (s *suite) instanceSessions() {
	first := s.newSession("order/o1")
	i := s.register(httpInstance("order", "o1", ""), laneclient.InSession(first.Name))
	if i.Session != first.Name || i.Static {
		s.t.Errorf("instance is %+v: want it bound to session %s", i, first.Name)
	}
	_, err := laneclient.Put(s.ctx, s.api, httpInstance("order", "o1", ""))
	s.refused(err, http.StatusConflict, "") // nobody makes another's instance static
	_, err = laneclient.Put(s.ctx, s.api, httpInstance("order", "o2", ""), laneclient.InSession("nobody"))
	s.refused(err, http.StatusConflict, laneclient.ProblemSessionGone)

	// A process that is started again under its name takes the instance over.
	second := s.newSession("")
	i = s.register(httpInstance("order", "o1", ""), laneclient.InSession(second.Name))
	if i.Session != second.Name {
		s.t.Errorf("instance is of session %s, want the second", i.Session)
	}
	s.refused(laneclient.Delete[laneclient.Instance](s.ctx, s.api, "order/o1", laneclient.InSession(first.Name)), http.StatusConflict, "")
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, first.Name))
	if _, err := laneclient.Get[laneclient.Instance](s.ctx, s.api, "order/o1"); err != nil {
		s.t.Errorf("the instance should outlive a session that it is no longer bound to: %v", err)
	}
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, second.Name))
	gone[laneclient.Instance](s, "order/o1")

	// Deleting an instance ends the sessions that belong to it.
	run, sdk := s.newSession("order/o3"), s.newSession("order/o3")
	other := s.newSession("order/o4")
	s.register(httpInstance("order", "o3", ""), laneclient.InSession(run.Name))
	s.must(laneclient.Delete[laneclient.Instance](s.ctx, s.api, "order/o3"))
	for _, id := range []string{run.Name, sdk.Name} {
		_, err := laneclient.RenewSession(s.ctx, s.api, id, &laneclient.Renewal{})
		s.refused(err, http.StatusNotFound, laneclient.ProblemSessionGone)
	}
	_, err = laneclient.RenewSession(s.ctx, s.api, other.Name, &laneclient.Renewal{})
	s.must(err)
}

func (s *suite) instanceLanes() {
	_, err := laneclient.Put(s.ctx, s.api, httpInstance("order", "o1", "nobody"))
	s.refused(err, http.StatusUnprocessableEntity, laneclient.ProblemLane)
	s.newLane("green", "")
	i := s.register(httpInstance("order", "o1", "green"))
	if i.Generation != 1 {
		s.t.Errorf("generation is %d, want that of the lane, 1", i.Generation)
	}
	for deadline := time.Now().Add(suiteWait); ; {
		l, err := laneclient.Get[laneclient.Lane](s.ctx, s.api, "green")
		s.must(err)
		if l.State == string(lane.Ready) {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("lane is %s: want it ready once it has an instance", l.State)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (s *suite) routesAndRules() {
	route := &laneclient.Route{Meta: named("api"), Host: "api.example.com", Path: "/v2", Service: "order", Rewrite: &laneclient.Rewrite{Prefix: "/"}}
	stored, err := laneclient.Put(s.ctx, s.api, route)
	s.must(err)
	route.Revision = stored.Revision
	if !reflect.DeepEqual(stored, route) {
		s.t.Errorf("stored route is %+v, want %+v", stored, route)
	}
	_, err = laneclient.Put(s.ctx, s.api, &laneclient.Route{Meta: named("bad"), Service: "NO"})
	s.refused(err, http.StatusUnprocessableEntity, "")
	s.newLane("green", "")
	rule, err := laneclient.Put(s.ctx, s.api, &laneclient.Rule{
		Meta: named("testers"), Priority: 3, Match: laneclient.Match{Header: &laneclient.ValueMatch{Name: "x-user", Value: "ann"}},
		Lanes: []laneclient.LaneShare{{Lane: "green", Percent: 50}},
	})
	s.must(err)
	if rule.Status != "ok" || rule.Priority != 3 || rule.Match.Header == nil || len(rule.Lanes) != 1 || rule.Lanes[0].Percent != 50 {
		s.t.Errorf("stored rule is %+v", rule)
	}
	s.must(laneclient.Delete[laneclient.Rule](s.ctx, s.api, "testers"))
	s.must(laneclient.Delete[laneclient.Route](s.ctx, s.api, "api"))
	gone[laneclient.Rule](s, "testers")
	gone[laneclient.Route](s, "api")
}

func (s *suite) conditions() {
	service := func(owner string) *laneclient.Service {
		return &laneclient.Service{Meta: named("order"), Owner: owner}
	}
	_, err := laneclient.Put(s.ctx, s.api, service("ann"), laneclient.IfMatch(1))
	s.refused(err, http.StatusPreconditionFailed, laneclient.ProblemChanged)
	first, err := laneclient.Put(s.ctx, s.api, service("ann"), laneclient.IfNoneMatch())
	s.must(err)
	_, err = laneclient.Put(s.ctx, s.api, service("bob"), laneclient.IfNoneMatch())
	s.refused(err, http.StatusPreconditionFailed, laneclient.ProblemChanged)
	second, err := laneclient.Put(s.ctx, s.api, service("bob"), laneclient.IfMatch(first.Revision))
	s.must(err)
	_, err = laneclient.Put(s.ctx, s.api, service("cy"), laneclient.IfMatch(first.Revision))
	p := s.problem(err, http.StatusPreconditionFailed, laneclient.ProblemChanged)
	var current laneclient.Service
	if json.Unmarshal(p.Current, &current) != nil || !reflect.DeepEqual(&current, second) {
		s.t.Errorf("current of the 412 is %s, want %+v", p.Current, second)
	}
	s.refused(laneclient.Delete[laneclient.Service](s.ctx, s.api, "order", laneclient.IfMatch(first.Revision)), http.StatusPreconditionFailed, "")
	s.must(laneclient.Delete[laneclient.Service](s.ctx, s.api, "order", laneclient.IfMatch(second.Revision)))
}

func (s *suite) mistakes() {
	for _, c := range []struct {
		method, path string
		body         any
		status       int
	}{
		{http.MethodPut, "/v1/services/order", map[string]any{"ownr": "ann"}, http.StatusUnprocessableEntity},
		{http.MethodPut, "/v1/services/order", map[string]any{"owner": 7}, http.StatusUnprocessableEntity},
		{http.MethodPut, "/v1/services/order", map[string]any{"name": "pay"}, http.StatusUnprocessableEntity},
		{http.MethodPut, "/v1/lanes/green", map[string]any{"ttl": "soon"}, http.StatusUnprocessableEntity},
		{http.MethodPut, "/v1/services/order", map[string]any{"owner": strings.Repeat("a", 300<<10)}, http.StatusRequestEntityTooLarge},
		{http.MethodPost, "/v1/sessions", map[string]any{"ttl": "1s"}, http.StatusUnprocessableEntity},
		{http.MethodPut, "/v1/services/order", json.RawMessage("null"), http.StatusUnprocessableEntity},
		{http.MethodPut, "/v1/lanes/green", json.RawMessage("null"), http.StatusUnprocessableEntity},
		{http.MethodPut, "/v1/instances/order/o1", json.RawMessage("[]"), http.StatusUnprocessableEntity},
		{http.MethodPost, "/v1/sessions", json.RawMessage(`"x"`), http.StatusUnprocessableEntity},
		{http.MethodGet, "/v1/nothing", nil, http.StatusNotFound},
		{http.MethodGet, "/v1/lanes?limit=0", nil, http.StatusUnprocessableEntity},
	} {
		err := s.api.Do(s.ctx, c.method, c.path, c.body, nil)
		s.refused(err, c.status, "")
	}
	err := s.api.Do(s.ctx, http.MethodPut, "/v1/services/order", map[string]any{"ownr": "ann"}, nil)
	p := s.problem(err, http.StatusUnprocessableEntity, "")
	if len(p.Errors) != 1 || p.Errors[0].Field != "ownr" {
		s.t.Errorf("errors are %+v: want one at ownr", p.Errors)
	}
}

func (s *suite) lists() {
	s.newLane("green", "")
	for n := range 7 {
		in := ""
		if n%2 == 1 {
			in = "green"
		}
		s.register(httpInstance("order", fmt.Sprintf("o%d", n), in))
	}
	s.register(httpInstance("pay", "p0", ""))
	list := func(o laneclient.ListOptions) (names []string) {
		s.t.Helper()
		all, rev, err := laneclient.ListAll[laneclient.Instance](s.ctx, s.api, o)
		s.must(err)
		if rev == 0 {
			s.t.Error("list has no revision")
		}
		for _, i := range all {
			names = append(names, i.Service+"/"+i.Name)
		}
		return names
	}
	for _, c := range []struct {
		opts laneclient.ListOptions
		want []string
	}{
		{laneclient.ListOptions{PageSize: 3}, []string{"order/o0", "order/o1", "order/o2", "order/o3", "order/o4", "order/o5", "order/o6", "pay/p0"}},
		{laneclient.ListOptions{Service: "order", Lane: "green", PageSize: 1}, []string{"order/o1", "order/o3", "order/o5"}},
		{laneclient.ListOptions{Service: "pay"}, []string{"pay/p0"}},
		{laneclient.ListOptions{Lane: "-", PageSize: 2}, []string{"order/o0", "order/o2", "order/o4", "order/o6", "pay/p0"}},
		{laneclient.ListOptions{Service: "nobody"}, nil},
	} {
		if got := list(c.opts); !slices.Equal(got, c.want) {
			s.t.Errorf("list of %+v is %v, want %v", c.opts, got, c.want)
		}
	}
}

func (s *suite) sessions() {
	opened, err := laneclient.OpenSession(s.ctx, s.api, &laneclient.Session{Host: "h1", Role: "gateway", Admin: "127.0.0.1:9"})
	s.must(err)
	if opened.Name == "" || time.Duration(opened.TTL) != laneclient.DefaultTTL || opened.Since.IsZero() || opened.Revision == 0 || opened.Host != "h1" {
		s.t.Errorf("opened session is %+v", opened)
	}
	got, err := laneclient.Get[laneclient.Session](s.ctx, s.api, opened.Name)
	s.must(err)
	if got.Name != opened.Name || got.Admin != "127.0.0.1:9" {
		s.t.Errorf("got %+v, want %+v", got, opened)
	}
	s.newLane("green", "")
	i := s.register(httpInstance("order", "o1", ""))
	renewed, err := laneclient.RenewSession(s.ctx, s.api, opened.Name, &laneclient.Renewal{Reached: opened.Revision, Lanes: []string{"green", "nobody"}})
	s.must(err)
	if renewed.Revision < i.Revision || time.Duration(renewed.TTL) != laneclient.DefaultTTL {
		s.t.Errorf("renewal is answered with %+v: want revision %d or later, and the TTL", renewed, i.Revision)
	}
	for deadline := time.Now().Add(suiteWait); ; {
		l, err := laneclient.Get[laneclient.Lane](s.ctx, s.api, "green")
		s.must(err)
		if !l.LastUse.IsZero() {
			break
		}
		if time.Now().After(deadline) {
			s.t.Fatal("the lane's use is not noted")
		}
		time.Sleep(10 * time.Millisecond)
	}
	_, err = laneclient.RenewSession(s.ctx, s.api, opened.Name, &laneclient.Renewal{Reached: renewed.Revision + 1000})
	s.refused(err, http.StatusConflict, laneclient.ProblemStaleView)
	s.must(laneclient.Delete[laneclient.Session](s.ctx, s.api, opened.Name))
	_, err = laneclient.RenewSession(s.ctx, s.api, opened.Name, &laneclient.Renewal{})
	s.refused(err, http.StatusNotFound, laneclient.ProblemSessionGone)
	s.refused(laneclient.Delete[laneclient.Session](s.ctx, s.api, opened.Name), http.StatusNotFound, laneclient.ProblemSessionGone)
}

// watchOf opens a watch that ends with the part.
func (s *suite) watchOf(from uint64, selects []string, opts ...laneclient.CallOption) *laneclient.Stream {
	s.t.Helper()
	w, err := s.api.Watch(s.ctx, from, selects, opts...)
	s.must(err)
	s.t.Cleanup(func() { _ = w.Close() })
	return w
}

// nextEvent returns the next event that is not progress.
func (s *suite) nextEvent(w *laneclient.Stream) laneclient.Event {
	s.t.Helper()
	for {
		e, err := w.Next()
		s.must(err)
		if e.Type != laneclient.EventProgress {
			return e
		}
	}
}

// expect fails the part unless the events come next, written "put lanes green".
func (s *suite) expect(w *laneclient.Stream, want ...string) (last laneclient.Event) {
	s.t.Helper()
	for _, text := range want {
		last = s.nextEvent(w)
		got := strings.TrimSpace(fmt.Sprintf("%s %s %s", last.Type, last.Kind, last.Name))
		if got != text {
			s.t.Fatalf("next event is %q at revision %d, want %q", got, last.Revision, text)
		}
		if last.Type == laneclient.EventPut && !json.Valid(last.Object) {
			s.t.Fatalf("object of %q is %s", got, last.Object)
		}
	}
	return last
}

func (s *suite) watchState() {
	s.newLane("green", "")
	s.register(httpInstance("order", "o1", "green"))
	i := s.register(httpInstance("order", "o2", ""))
	s.register(httpInstance("pay", "p1", ""))
	w := s.watchOf(0, []string{"instances:service=order"})
	s.expect(w, "put instances order/o1")
	e := s.expect(w, "put instances order/o2")
	var sent laneclient.Instance
	if json.Unmarshal(e.Object, &sent) != nil || !reflect.DeepEqual(&sent, i) {
		s.t.Errorf("object is %s, want %+v", e.Object, i)
	}
	if synced := s.expect(w, "synced"); synced.Revision < i.Revision {
		s.t.Errorf("synced is at %d, before the last write at %d", synced.Revision, i.Revision)
	}
	all := s.watchOf(0, []string{"lanes", "services", "instances", "routes", "rules"})
	seen := map[string]bool{}
	for e := s.nextEvent(all); e.Type != laneclient.EventSynced; e = s.nextEvent(all) {
		seen[string(e.Kind)+" "+e.Name] = true
	}
	for _, want := range []string{"lanes green", "services order", "services pay", "instances order/o1", "instances pay/p1"} {
		if !seen[want] {
			s.t.Errorf("%s is not in the present state: %v", want, seen)
		}
	}
}

func (s *suite) watchChanges() {
	w := s.watchOf(0, []string{"instances:lane=green", "routes"})
	last := s.expect(w, "synced")
	s.newLane("green", "")
	s.newLane("blue", "")
	i := s.register(httpInstance("order", "o1", "green"))
	_, err := laneclient.Put(s.ctx, s.api, &laneclient.Route{Meta: named("api"), Service: "order"})
	s.must(err)
	s.register(httpInstance("order", "o2", "blue"))
	i.Lane = "blue"
	s.register(i) // leaves what is selected
	s.must(laneclient.Delete[laneclient.Route](s.ctx, s.api, "api"))
	for _, want := range []string{"put instances order/o1", "put routes api", "delete instances order/o1", "delete routes api"} {
		e := s.expect(w, want)
		if e.Revision <= last.Revision {
			s.t.Errorf("%s is at revision %d, after %d", want, e.Revision, last.Revision)
		}
		last = e
	}
}

// watchCallable: one who calls a service hears of the instances that can be called.
func (s *suite) watchCallable() {
	w := s.watchOf(0, []string{"instances:callable=order"})
	s.expect(w, "synced")
	i := httpInstance("order", "o1", "")
	endpoints := i.Endpoints
	i.Endpoints = nil
	s.register(i)
	s.register(httpInstance("pay", "p1", ""))
	i.Endpoints = endpoints
	s.register(i)
	s.register(httpInstance("order", "o2", ""))
	i.Endpoints = nil
	s.register(i)
	s.expect(w, "put instances order/o1", "put instances order/o2", "delete instances order/o1")
	again := s.watchOf(0, []string{"instances:callable=order"})
	s.expect(again, "put instances order/o2", "synced")
}

func (s *suite) watchResume() {
	w := s.watchOf(0, []string{"services"})
	from := s.expect(w, "synced").Revision
	for n := range 5 {
		_, err := laneclient.Put(s.ctx, s.api, &laneclient.Service{Meta: named(fmt.Sprintf("s%d", n))})
		s.must(err)
	}
	s.must(laneclient.Delete[laneclient.Service](s.ctx, s.api, "s1"))
	var revisions []uint64
	for range 6 {
		revisions = append(revisions, s.nextEvent(w).Revision)
	}
	again := s.watchOf(from, []string{"services"})
	s.expect(again, "put services s0", "put services s1", "put services s2", "put services s3", "put services s4", "delete services s1", "synced")
	later := s.watchOf(revisions[3], []string{"services"})
	s.expect(later, "put services s4", "delete services s1", "synced")
	_, err := laneclient.Put(s.ctx, s.api, &laneclient.Service{Meta: named("s9")})
	s.must(err)
	s.expect(later, "put services s9")
}

func (s *suite) watchProgress() {
	session := s.newSession("")
	w := s.watchOf(0, []string{"routes"}, laneclient.InSession(session.Name))
	s.expect(w, "synced")
	_, err := laneclient.Put(s.ctx, s.api, &laneclient.Service{Meta: named("order")}) // is not selected
	s.must(err)
	renewed, err := laneclient.RenewSession(s.ctx, s.api, session.Name, &laneclient.Renewal{})
	s.must(err)
	sent := time.Now()
	for {
		e, err := w.Next()
		s.must(err)
		if e.Type == laneclient.EventProgress && e.Revision >= renewed.Revision {
			break
		}
	}
	if took := time.Since(sent); took > 800*time.Millisecond {
		s.t.Errorf("progress came %v after the renewal: want it at once", took)
	}
	for range 2 { // and then by itself
		e, err := w.Next()
		s.must(err)
		if e.Type != laneclient.EventProgress {
			s.t.Fatalf("event %+v, want progress", e)
		}
	}
	if took := time.Since(sent); took > 4*time.Second {
		s.t.Errorf("two more came within %v: want one a second", took)
	}
}

func (s *suite) watchRefused() {
	w := s.watchOf(1_000_000_000, []string{"lanes"})
	s.expect(w, "compacted") // a future that this registry does not have
	for _, selects := range [][]string{nil, {"nothing"}, {"instances:color=green"}, {"lanes:name"}} {
		_, err := s.api.Watch(s.ctx, 0, selects)
		s.refused(err, http.StatusUnprocessableEntity, "")
	}
}

func (s *suite) explain() {
	s.newLane("green", "")
	s.newLane("strict-load", "")
	s.register(httpInstance("order", "o1", ""))
	s.register(httpInstance("order", "o2", "green"))
	s.register(httpInstance("pay", "p1", ""))
	for _, c := range []struct{ service, color, lane, reason, instance string }{
		{"order", "", "", "plain", "o1"},
		{"order", "green", "green", "lane-instance", "o2"},
		{"pay", "green", "", "baseline-fallback", "p1"},
		{"pay", "nobody", "", "unknown-color", "p1"},
		{"order", "strict-load", "", "strict-none", ""},
		{"nobody", "green", "", "none", ""},
	} {
		e, err := laneclient.ExplainCall(s.ctx, s.api, c.service, c.color, lane.HTTP)
		s.must(err)
		if e.Lane != c.lane || e.Reason != c.reason || e.Revision == 0 || (e.Error == "") != (c.instance != "") {
			s.t.Errorf("%s in %q: %+v, want lane %q by %s", c.service, c.color, e, c.lane, c.reason)
		}
		if c.instance != "" && (len(e.Instances) != 1 || e.Instances[0].Name != c.instance) {
			s.t.Errorf("%s in %q goes to %+v, want %s", c.service, c.color, e.Instances, c.instance)
		}
	}
	e, err := laneclient.ExplainCall(s.ctx, s.api, "order", laneclient.BaselineWord, "")
	s.must(err)
	if e.Color != "" || e.Reason != "plain" || e.Protocol != lane.HTTP {
		s.t.Errorf("a plain call: %+v", e)
	}
	for _, q := range [][3]string{{"NO", "", lane.HTTP}, {"order", "Bad Color", lane.HTTP}, {"order", "", "NO SUCH"}} {
		_, err := laneclient.ExplainCall(s.ctx, s.api, q[0], q[1], q[2])
		s.refused(err, http.StatusUnprocessableEntity, "")
	}
}

func (s *suite) health() {
	var h laneclient.Health
	s.must(s.api.Do(s.ctx, http.MethodGet, "/healthz", nil, &h))
	s.must(s.api.Do(s.ctx, http.MethodGet, "/readyz", nil, &h))
	if !h.OK {
		s.t.Errorf("readyz says %+v", h)
	}
}

// client takes a whole client through its life.
func (s *suite) client() {
	s.newLane("green", "")
	cfg := s.cfg
	cfg.All = true
	gateway, err := laneclient.Dial(s.ctx, cfg)
	s.must(err)
	defer func() { _ = gateway.Close() }()
	cfg = s.cfg
	cfg.Service, cfg.Lane, cfg.Instance = "order", "green", "o1"
	cfg.Endpoints = []laneclient.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}}
	order, err := laneclient.Dial(s.ctx, cfg)
	s.must(err)
	cfg = s.cfg
	caller, err := laneclient.Dial(s.ctx, cfg)
	s.must(err)
	defer func() { _ = caller.Close() }()
	s.must(caller.Need(s.ctx, "order"))
	serves := func(d lane.Directory, reason lane.Reason) func() bool {
		return func() bool { return lane.Pick(d.Snapshot(), "order", "green", lane.HTTP).Reason == reason }
	}
	s.eventually("the caller sees the instance", serves(caller, lane.ReasonLane))
	s.eventually("the gateway sees the instance", serves(gateway, lane.ReasonLane))
	s.must(order.SetState(s.ctx, lane.Draining))
	s.eventually("the gateway sees it drain", serves(gateway, lane.ReasonNone))
	s.must(order.Close())
	s.eventually("the gateway sees it gone", func() bool { return gateway.View().Instances.Get("order/o1") == nil })
	if !gateway.Snapshot().HasService("order") {
		s.t.Error("the gateway does not know the service any more")
	}
}

func (s *suite) eventually(what string, holds func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(suiteWait); !holds(); {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %v: %s", suiteWait, what)
		}
		time.Sleep(time.Millisecond)
	}
}
