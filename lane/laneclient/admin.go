package laneclient

import (
	"encoding/json"
	"net/http"

	"github.com/laneway-dev/laneway/lane"
)

// Explain says who would get a call by this view, and why. node is who says so. It
// is pure.
func (v *View) Explain(service, color, protocol, node string) *Explanation {
	if protocol == "" {
		protocol = lane.HTTP
	}
	e := &Explanation{Service: service, Protocol: protocol, Color: color, Node: node, Revision: v.Revision, Instances: []Instance{}}
	name := lane.Name(color)
	if !name.Valid() {
		name = lane.Baseline // a value that is no lane name is no color
	}
	choice := lane.Pick(v.Snapshot, service, name, protocol)
	e.Lane, e.Reason = string(choice.Lane), string(choice.Reason)
	for _, t := range choice.Targets {
		if i := v.Instances[t.Service+"/"+t.Name]; i != nil {
			e.Instances = append(e.Instances, *i)
		}
	}
	if err := choice.Err(); err != nil {
		e.Error = err.Error()
	}
	return e
}

// AdminHandler serves GET /v1/explain?service=&color=&protocol= and GET /healthz on
// this process's own view, for the address in Config.Admin. /healthz is well as
// long as the process routes, also by a stale view, and says that it is one.
func (c *Client) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		service := q.Get("service")
		if err := lane.CheckService(service); err != nil {
			writeAnswer(w, http.StatusUnprocessableEntity, &Problem{
				Title: http.StatusText(http.StatusUnprocessableEntity), Status: http.StatusUnprocessableEntity,
				Detail: "the query has mistakes: correct the fields under errors",
				Errors: []FieldError{{Field: "service", Detail: err.Error()}},
			})
			return
		}
		if err := c.Need(r.Context(), service); err != nil {
			writeAnswer(w, http.StatusServiceUnavailable, &Problem{
				Title: http.StatusText(http.StatusServiceUnavailable), Status: http.StatusServiceUnavailable,
				Type: ProblemUnavailable, Detail: "this process does not know the service yet: " + err.Error(),
			})
			return
		}
		writeAnswer(w, http.StatusOK, c.View().Explain(service, q.Get("color"), q.Get("protocol"), c.node()))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		role := RoleStatus{Role: c.cfg.Role, Ready: true}
		if v := c.View(); v.Stale {
			role.Reason = "the view is stale: the control plane cannot be reached, or lags"
		}
		writeAnswer(w, http.StatusOK, Health{OK: true, Roles: []RoleStatus{role}})
	})
	return mux
}

// node is how this process calls itself in explanations.
func (c *Client) node() string {
	if c.cfg.Instance != "" {
		return c.cfg.Instance
	}
	return c.cfg.Role + "@" + hostName()
}

func writeAnswer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	if _, bad := v.(*Problem); bad {
		w.Header().Set("Content-Type", problemMedia)
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the peer may be gone; there is nobody else to tell
}
