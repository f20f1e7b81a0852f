package httpgw

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/laneway-dev/laneway/internal/coloring"
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
	service, color, protocol, faults := laneclient.ParseCall(r.URL.Query())
	if len(faults) > 0 {
		mistakes(w, "the query", faults)
		return
	}
	view := g.cfg.Views()
	if view == nil {
		problem(w, http.StatusServiceUnavailable, "the gateway has no picture of the registry yet")
		return
	}
	laneclient.WriteAnswer(w, http.StatusOK, view.Explain(service, color, protocol, g.cfg.Node))
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
	req, faults := coloring.RequestOf(&in)
	if len(faults) > 0 {
		mistakes(w, "the request to explain", faults)
		return
	}
	view := g.cfg.Views()
	if view == nil {
		problem(w, http.StatusServiceUnavailable, "the gateway has no picture of the registry yet")
		return
	}
	req.Now = g.now()
	req.Trusted = req.Trusted || req.Source.IsValid() && g.trusts(req.Source)
	if !req.Trusted {
		dropClaims(req.Header, g.cfg.Aliases)
	}
	laneclient.WriteAnswer(w, http.StatusOK, g.table(view).Explain(view, req, g.cfg.Node))
}

func (g *Gateway) rulesStatus(w http.ResponseWriter, _ *http.Request) {
	view := g.cfg.Views()
	if view == nil {
		problem(w, http.StatusServiceUnavailable, "the gateway has no picture of the registry yet")
		return
	}
	laneclient.WriteAnswer(w, http.StatusOK, g.table(view).Statuses(view.Snapshot))
}

// mistakes answers a request whose fields are wrong, as the control plane does.
func mistakes(w http.ResponseWriter, what string, faults []laneclient.FieldError) {
	laneclient.WriteProblem(w, laneclient.MistakesProblem(what, faults))
}

func problem(w http.ResponseWriter, status int, detail string) {
	laneclient.WriteProblem(w, laneclient.NewProblem(status, "%s", detail))
}
