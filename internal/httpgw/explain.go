package httpgw

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// maxExplainBytes bounds the body of a request to explain.
const maxExplainBytes = 1 << 20

// Admin is the handler of what a gateway says of itself, for its admin address:
//
//	GET  /v1/explain?service=&color=&protocol=  who would get a call
//	POST /v1/explain/http                       who would get an HTTP request
//	GET  /v1/rules/status                       the status of each coloring rule, here
//
// The answers come from the view and by the code that route requests. Serve it on
// loopback, or behind authentication: it tells of every service and instance.
func (g *Gateway) Admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/explain", g.explainCall)
	mux.HandleFunc("POST /v1/explain/http", g.explainHTTP)
	mux.HandleFunc("GET /v1/rules/status", g.rulesStatus)
	return mux
}

func (g *Gateway) explainCall(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	service, color, protocol := q.Get("service"), lane.Name(q.Get("color")), q.Get("protocol")
	if protocol == "" {
		protocol = lane.HTTP
	}
	if err := lane.CheckService(service); err != nil {
		problem(w, http.StatusBadRequest, "service: "+err.Error())
		return
	}
	if color != lane.Baseline && !color.Valid() {
		_, err := lane.ParseName(string(color))
		problem(w, http.StatusBadRequest, "color: "+err.Error())
		return
	}
	view := g.cfg.Views()
	if view == nil {
		problem(w, http.StatusServiceUnavailable, "the gateway has no picture of the registry yet")
		return
	}
	respond(w, http.StatusOK, "application/json", g.explain(view, service, color, protocol))
}

// explain gives the choice of a call on a view.
func (g *Gateway) explain(view *laneclient.View, service string, color lane.Name, protocol string) *laneclient.Explanation {
	choice := lane.Pick(view.Snapshot, service, color, protocol)
	e := &laneclient.Explanation{
		Service: service, Protocol: protocol, Color: string(color), Lane: string(choice.Lane),
		Reason: string(choice.Reason), Instances: []laneclient.Instance{}, Node: g.cfg.Node, Revision: view.Revision,
	}
	if err := choice.Err(); err != nil {
		e.Error = err.Error()
	}
	for _, t := range choice.Targets {
		i := laneclient.Instance{
			Service: t.Service, Lane: string(t.Lane), Generation: t.Generation, Room: t.Room, State: string(t.State), Weight: t.Weight,
			Endpoints: []laneclient.Endpoint{laneclient.Endpoint(t.Endpoint)},
		}
		i.Name = t.Name
		e.Instances = append(e.Instances, i)
	}
	return e
}

func (g *Gateway) explainHTTP(w http.ResponseWriter, r *http.Request) {
	var in laneclient.HTTPRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxExplainBytes))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		problem(w, http.StatusBadRequest, "the body is no request to explain: "+err.Error())
		return
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		problem(w, http.StatusBadRequest, "the body has more than one value")
		return
	}
	req, err := explained(&in)
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	view := g.cfg.Views()
	if view == nil {
		problem(w, http.StatusServiceUnavailable, "the gateway has no picture of the registry yet")
		return
	}
	req.Now = g.now()
	req.Trusted = req.Trusted || in.Inside || req.Source.IsValid() && g.trusts(req.Source)
	d := g.table(view).Decide(view.Snapshot, req)
	if d.Service == "" {
		problem(w, http.StatusNotFound, fmt.Sprintf("no route and no service for host %q and path %q", clip(in.Host), clip(req.Path)))
		return
	}
	protocol := lane.HTTP
	if isGRPC(&http.Request{Method: req.Method, ProtoMajor: 2, Header: req.Header}) {
		protocol = lane.GRPC
	}
	e := g.explain(view, d.Service, d.Color, protocol)
	e.Rule, e.RuleName = string(d.Rule), d.RuleName
	respond(w, http.StatusOK, "application/json", e)
}

// explained turns what is asked into what a listener would have seen.
func explained(in *laneclient.HTTPRequest) (*coloring.Request, error) {
	req := &coloring.Request{
		Host: in.Host, Method: in.Method, Path: in.Path, Query: in.Query, Header: http.Header{},
		Trusted: in.Trusted, Inside: in.Inside,
	}
	if req.Host == "" {
		return nil, errors.New("host: is empty")
	}
	if req.Method == "" {
		req.Method = http.MethodGet
	}
	if req.Path == "" {
		req.Path = "/"
	}
	for key, values := range in.Headers {
		key = http.CanonicalHeaderKey(key)
		req.Header[key] = append(req.Header[key], values...)
	}
	if in.Source != "" {
		addr, err := netip.ParseAddr(in.Source)
		if err != nil {
			return nil, fmt.Errorf("source: %w", err)
		}
		req.Source = addr.Unmap().WithZone("")
	}
	return req, nil
}

func (g *Gateway) rulesStatus(w http.ResponseWriter, _ *http.Request) {
	view := g.cfg.Views()
	if view == nil {
		problem(w, http.StatusServiceUnavailable, "the gateway has no picture of the registry yet")
		return
	}
	respond(w, http.StatusOK, "application/json", g.table(view).Statuses(view.Snapshot))
}

func problem(w http.ResponseWriter, status int, detail string) {
	respond(w, status, "application/problem+json", &laneclient.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail,
	})
}

func respond(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte("{}")
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}
