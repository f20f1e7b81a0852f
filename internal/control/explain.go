package control

import (
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// picture is what explanations rest on: the whole registry as of one revision, in
// the form that routes. It is immutable.
type picture struct {
	view  *laneclient.View
	table *coloring.Table
}

// pictures keeps the last one: explanations of one revision share it.
type pictures struct{ last atomic.Pointer[picture] }

// picture builds the present picture. Its cost is linear in the registry, and it is
// paid when somebody asks, not when something changes.
func (c *Control) picture() *picture {
	if p := c.pictures.last.Load(); p != nil && p.view.Revision == c.cache.revision() {
		return p
	}
	p := c.cache.picture()
	services := slices.Collect(maps.Keys(p.services))
	built := &picture{view: &laneclient.View{Revision: p.input.Revision, Snapshot: lane.NewSnapshot(p.input), Instances: laneclient.NewObjects(p.instances)}}
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
	service, color, protocol, faults := laneclient.ParseCall(r.URL.Query())
	if len(faults) > 0 {
		return invalid("the query", faults)
	}
	if err := c.upToDate(r); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, c.picture().view.Explain(service, color, protocol, c.node))
}

// postExplainHTTP answers POST /v1/explain/http: what the edge, or the inside
// listener, would do with a request. A gateway is asked, since it alone has the
// aliases and keys that decide there.
func (c *Control) postExplainHTTP(w http.ResponseWriter, r *http.Request, _ params) error {
	var body laneclient.HTTPRequest
	if err := readInto(w, r, &body); err != nil {
		return err
	}
	req, faults := coloring.RequestOf(&body)
	if len(faults) > 0 {
		return invalid("the request to explain", faults)
	}
	if err := c.upToDate(r); err != nil {
		return err
	}
	e, note := c.askGateway(r, &body)
	if e == nil {
		req.Now = c.now()
		p := c.picture()
		e = p.table.Explain(p.view, req, c.node)
		e.Note = note
	}
	return writeJSON(w, http.StatusOK, e)
}
