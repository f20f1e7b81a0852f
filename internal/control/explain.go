package control

import (
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const maxExplainHeaders = 256

// picture is what explanations rest on: the whole registry as of one revision, in
// the form that routes. It is immutable.
type picture struct {
	rev       uint64
	snapshot  *lane.Snapshot
	instances map[string]*laneclient.Instance // by service/name
	table     *coloring.Table
}

// pictures keeps the last one: explanations of one revision share it.
type pictures struct{ last atomic.Pointer[picture] }

// picture builds the present picture. Its cost is linear in the registry, and it is
// paid when somebody asks, not when something changes.
func (c *Control) picture() *picture {
	if p := c.pictures.last.Load(); p != nil && p.rev == c.cache.revision() {
		return p
	}
	p := c.cache.picture()
	services := slices.Collect(maps.Keys(p.services))
	built := &picture{rev: p.input.Revision, snapshot: lane.NewSnapshot(p.input), instances: p.instances}
	built.table = coloring.Compile(p.routes, p.rules, coloring.Options{Domain: c.cfg.Domain, Cluster: c.cfg.Cluster, Services: services})
	c.pictures.last.Store(built)
	return built
}

type parts struct {
	input     lane.Input
	services  map[string]struct{}
	instances map[string]*laneclient.Instance
	routes    []laneclient.Route
	rules     []laneclient.Rule
}

func (c *cache) picture() parts {
	c.mu.RLock()
	defer c.mu.RUnlock()
	p := parts{
		input:    lane.Input{Revision: c.rev},
		services: map[string]struct{}{}, instances: map[string]*laneclient.Instance{},
	}
	for _, s := range c.shelves {
		for _, name := range s.names {
			switch o := s.byName[name].obj.(type) {
			case *laneclient.Lane:
				p.input.Lanes = append(p.input.Lanes, o.Routing())
			case *laneclient.Service:
				p.input.Services = append(p.input.Services, o.Name)
				p.services[o.Name] = struct{}{}
			case *laneclient.Instance:
				p.input.Instances = append(p.input.Instances, o.Routing())
				p.instances[name] = o
				p.services[o.Service] = struct{}{}
			case *laneclient.Route:
				p.routes = append(p.routes, *o)
			case *laneclient.Rule:
				p.rules = append(p.rules, *o)
			}
		}
	}
	return p
}

// upToDate brings the picture to the registry's present where the registry answers,
// and is content with the last one known where it does not: that is what routes.
func (c *Control) upToDate(r *http.Request) error {
	if err := c.catchUpNow(r.Context()); err != nil && (r.Context().Err() != nil || !c.cache.ready()) {
		return err
	}
	return nil
}

func (c *cache) ready() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.loaded
}

// getExplain answers GET /v1/explain: who gets a call.
func (c *Control) getExplain(w http.ResponseWriter, r *http.Request, _ params) error {
	q, err := parseCall(r.URL.Query())
	if err != nil {
		return err
	}
	if err := c.upToDate(r); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c.explain(c.picture(), q))
}

// call is a call to be explained.
type call struct {
	service, protocol string
	color             lane.Name
	rule              lane.Rule
	ruleName          string
}

func parseCall(query url.Values) (call, error) {
	f := &faults{}
	q := call{protocol: lane.HTTP}
	for key, values := range query {
		value := values[len(values)-1]
		switch key {
		case "service":
			q.service = value
		case "color":
			q.color = laneOf(value)
			if q.color != lane.Baseline && !q.color.Valid() {
				f.add("color", "%q is no lane name, and so no color: it would be dropped", clip(value))
			}
		case "protocol":
			if value != "" {
				q.protocol = value
			}
			if !isToken(q.protocol) {
				f.add("protocol", "is %q: want http, grpc, thrift or tcp", clip(value))
			}
		default:
			f.add(clip(key), "is no parameter of this request: want service, color and protocol")
		}
	}
	if err := lane.CheckService(q.service); err != nil {
		f.add("service", "%s", err.Error())
	}
	sortedFields(f.list)
	return q, f.err("the query")
}

func (c *Control) explain(p *picture, q call) laneclient.Explanation {
	choice := lane.Pick(p.snapshot, q.service, q.color, q.protocol)
	e := laneclient.Explanation{
		Service: q.service, Protocol: q.protocol, Color: string(q.color), Rule: string(q.rule), RuleName: q.ruleName,
		Lane: string(choice.Lane), Reason: string(choice.Reason), Instances: []laneclient.Instance{},
		Node: c.node, Revision: p.rev,
	}
	for _, t := range choice.Targets {
		if i := p.instances[t.Service+"/"+t.Name]; i != nil {
			e.Instances = append(e.Instances, *i)
		}
	}
	if err := choice.Err(); err != nil {
		e.Error = err.Error()
		if !p.snapshot.HasService(q.service) {
			e.Error = "there is no service " + q.service + ": it exists from its first instance"
		}
	}
	return e
}

// postExplainHTTP answers POST /v1/explain/http: what the edge, or the inside
// listener, would do with a request.
func (c *Control) postExplainHTTP(w http.ResponseWriter, r *http.Request, _ params) error {
	var body laneclient.HTTPRequest
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	req, err := c.edgeRequest(&body)
	if err != nil {
		return err
	}
	if err := c.upToDate(r); err != nil {
		return err
	}
	p := c.picture()
	d := p.table.Decide(p.snapshot, req)
	if d.Service == "" {
		return writeJSON(w, http.StatusOK, laneclient.Explanation{
			Protocol: lane.HTTP, Color: string(d.Color), Rule: string(d.Rule), RuleName: d.RuleName,
			Reason: string(lane.ReasonNone), Instances: []laneclient.Instance{}, Node: c.node, Revision: p.rev,
			Error: "no route and no service has the host " + clip(body.Host) + ": answered with 404; list them with `laneway route list`",
		})
	}
	return writeJSON(w, http.StatusOK, c.explain(p, call{
		service: d.Service, protocol: lane.HTTP, color: d.Color, rule: d.Rule, ruleName: d.RuleName,
	}))
}

// edgeRequest is the body in the form that coloring decides on.
func (c *Control) edgeRequest(body *laneclient.HTTPRequest) (*coloring.Request, error) {
	f := &faults{}
	req := &coloring.Request{
		Host: body.Host, Method: body.Method, Path: body.Path, Query: strings.TrimPrefix(body.Query, "?"),
		Header: http.Header{}, Trusted: body.Trusted || body.Inside, Inside: body.Inside, Now: c.now(),
	}
	if body.Host == "" {
		f.add("host", "is missing: say which host is asked for")
	}
	if req.Method == "" {
		req.Method = http.MethodGet
	}
	switch {
	case req.Path == "":
		req.Path = "/"
	case req.Path[0] != '/':
		f.add("path", "is %q: begin it with '/'", clip(req.Path))
	}
	if body.Source != "" {
		source, err := netip.ParseAddr(body.Source)
		if err != nil {
			f.add("source", "%q is no address: want one such as 192.0.2.7", clip(body.Source))
		}
		req.Source = source
	}
	if len(body.Headers) > maxExplainHeaders {
		f.add("headers", "has %d entries: at most %d are allowed", len(body.Headers), maxExplainHeaders)
	}
	for key, values := range body.Headers {
		canonical := textproto.CanonicalMIMEHeaderKey(key)
		req.Header[canonical] = append(req.Header[canonical], values...)
	}
	return req, f.err("the request to explain")
}
