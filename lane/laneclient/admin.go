package laneclient

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

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
	if color == BaselineWord {
		e.Color, name = "", lane.Baseline
	}
	if !name.Valid() {
		name = lane.Baseline // a value that is no lane name is no color
	}
	choice := lane.Pick(v.Snapshot, service, name, protocol)
	e.Lane, e.Reason = string(choice.Lane), string(choice.Reason)
	for _, t := range choice.Targets {
		e.Instances = append(e.Instances, v.instanceOf(t))
	}
	if err := choice.Err(); err != nil {
		e.Error = err.Error()
		if !v.Snapshot.HasService(service) {
			e.Error = "there is no service " + service + ": it exists from its first instance"
		} else if has := v.protocols(service); len(has) > 0 && !slices.Contains(has, protocol) {
			e.Error = service + " has no " + protocol + " endpoint; it has " + strings.Join(has, ", ")
		}
	}
	return e
}

// protocols lists what the instances of a service have, in whatever lane and state.
func (v *View) protocols(service string) []string {
	var out []string
	for _, i := range v.Instances.All() {
		if i.Service != service {
			continue
		}
		for _, e := range i.Endpoints {
			if !slices.Contains(out, e.Protocol) {
				out = append(out, e.Protocol)
			}
		}
	}
	slices.Sort(out)
	return out
}

// instanceOf is the instance of a target: as registered, or what routing knows.
func (v *View) instanceOf(t *lane.Target) Instance {
	if i := v.Instances.Get(t.Service + "/" + t.Name); i != nil {
		return *i
	}
	return Instance{
		Meta: Meta{Name: t.Name}, Service: t.Service, Lane: string(t.Lane), Generation: t.Generation, Room: t.Room,
		State: string(t.State), Weight: t.Weight, Endpoints: []Endpoint{Endpoint(t.Endpoint)},
	}
}

// BaselineWord stands for the baseline where a lane or color is asked for.
const BaselineWord = "-"

// ParseCall reads the query of GET /v1/explain; faults are its mistakes. All that
// answer that request read it so. color is empty for a plain call.
func ParseCall(query url.Values) (service, color, protocol string, faults []FieldError) {
	bad := func(field, format string, args ...any) {
		faults = append(faults, FieldError{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	service, color, protocol = query.Get("service"), query.Get("color"), cmp.Or(query.Get("protocol"), lane.HTTP)
	if color == BaselineWord {
		color = ""
	}
	if color != "" && !lane.Name(color).Valid() {
		bad("color", "%q is no lane name, and so no color: it would be dropped", shortened(color))
	}
	if len(protocol) > maxProtocolBytes || strings.ContainsFunc(protocol, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '+' && r != '.'
	}) {
		bad("protocol", "is %q: want http, grpc, thrift or tcp", shortened(protocol))
	}
	if err := lane.CheckService(service); err != nil {
		bad("service", "%s", err.Error())
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if key != "service" && key != "color" && key != "protocol" {
			bad(shortened(key), "is no parameter of this request: want service, color and protocol")
		}
	}
	return service, color, protocol, faults
}

const maxProtocolBytes = 32

// shortened bounds what of a peer's text an answer repeats.
func shortened(s string) string { return s[:min(len(s), 80)] }

// AdminHandler serves GET /v1/explain?service=&color=&protocol= and GET /healthz on
// this process's own view, for the address in Config.Admin; Config.AdminListen serves
// it without more. The answers are an [Explanation] and [Client.Health].
func (c *Client) AdminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/explain", func(w http.ResponseWriter, r *http.Request) {
		service, color, protocol, faults := ParseCall(r.URL.Query())
		if len(faults) > 0 {
			WriteProblem(w, MistakesProblem("the query", faults))
			return
		}
		if err := c.Need(r.Context(), service); err != nil {
			p := NewProblem(http.StatusServiceUnavailable, "this process does not know the service yet: %v", err)
			p.Type = ProblemUnavailable
			WriteProblem(w, p)
			return
		}
		WriteAnswer(w, http.StatusOK, c.View().Explain(service, color, protocol, c.node()))
	})
	mux.HandleFunc("/v1/explain/http", func(w http.ResponseWriter, _ *http.Request) {
		WriteProblem(w, NewProblem(http.StatusNotFound, "%s is no gateway and cannot say what becomes of an HTTP request there: ask a gateway, or who would get a call", c.node()))
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		WriteAnswer(w, http.StatusOK, c.Health())
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

// WriteAnswer answers as the control plane does: v in JSON as it stands, without the escapes
// that HTML would want, which nobody who reads an answer in a terminal does. A [*Problem] is
// sent as one; others as the Content-Type that w has already, or as application/json. All
// that answer in Laneway's name share it.
func WriteAnswer(w http.ResponseWriter, status int, v any) {
	h := w.Header()
	if _, bad := v.(*Problem); bad {
		h.Set("Content-Type", ProblemMediaType)
	} else if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the peer may be gone; there is nobody else to tell
}
