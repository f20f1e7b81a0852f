package coloring

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// maxExplainedHeaders is how many headers a request to explain may have.
const maxExplainedHeaders = 256

// RequestOf turns a request to explain into what a listener would have seen; faults
// are its mistakes. What comes inside is trusted. Now is left to the caller.
func RequestOf(in *laneclient.HTTPRequest) (req *Request, faults []laneclient.FieldError) {
	bad := func(field, format string, args ...any) {
		faults = append(faults, laneclient.FieldError{Field: field, Detail: fmt.Sprintf(format, args...)})
	}
	req = &Request{
		Host: in.Host, Method: in.Method, Path: in.Path, Query: strings.TrimPrefix(in.Query, "?"), Header: http.Header{},
		Trusted: in.Trusted || in.Inside, Inside: in.Inside,
	}
	switch {
	case req.Host == "":
		bad("host", "is missing: say which host is asked for")
	case !ValidHost(req.Host):
		bad("host", "is %q: want a name or an address, and a port or none", brief(req.Host))
	}
	if req.Method == "" {
		req.Method = http.MethodGet
	}
	switch {
	case req.Path == "":
		req.Path = "/"
	case req.Path[0] != '/':
		bad("path", "is %q: begin it with '/'", brief(req.Path))
	}
	if in.Source != "" {
		source, err := netip.ParseAddr(in.Source)
		if err != nil {
			bad("source", "%q is no address: want one such as 192.0.2.7", brief(in.Source))
		}
		req.Source = source.Unmap().WithZone("")
	}
	if len(in.Headers) > maxExplainedHeaders {
		bad("headers", "has %d entries: at most %d are allowed", len(in.Headers), maxExplainedHeaders)
		return req, faults
	}
	for key, values := range in.Headers {
		key = http.CanonicalHeaderKey(key)
		req.Header[key] = append(req.Header[key], values...)
	}
	return req, faults
}

// Protocol is the protocol that a request asks for: that of [IsGRPC], else HTTP.
func (r *Request) Protocol() string {
	if IsGRPC(r.Method, r.Header) {
		return lane.GRPC
	}
	return lane.HTTP
}

// IsGRPC reports whether a request over HTTP/2 is a gRPC call: by its method and content
// type, as the specification of gRPC has them.
func IsGRPC(method string, h http.Header) bool {
	contentType := h["Content-Type"]
	if method != http.MethodPost || len(contentType) == 0 {
		return false
	}
	rest, grpc := strings.CutPrefix(contentType[0], "application/grpc")
	return grpc && (rest == "" || rest[0] == '+' || rest[0] == ';')
}

// Explain says who would get a request by the table and view, and why. node is who
// says so.
func (t *Table) Explain(view *laneclient.View, req *Request, node string) *laneclient.Explanation {
	d := t.Decide(view.Snapshot, req)
	var e *laneclient.Explanation
	if d.Service != "" {
		e = view.Explain(d.Service, string(d.Color), req.Protocol(), node)
	} else {
		e = &laneclient.Explanation{
			Protocol: req.Protocol(), Color: string(d.Color), Reason: string(lane.ReasonNone), Instances: []laneclient.Instance{},
			Node: node, Revision: view.Revision, Error: fmt.Sprintf("no route and no service has the host %q and the path %q: answered with 404; `laneway service list` and `laneway route list` show what there is",
				brief(req.Host), brief(req.Path)),
		}
	}
	e.Rule, e.RuleName = string(d.Rule), d.RuleName
	e.Dropped = d.whyDropped()
	e.PassedOver, e.MorePassedOver = t.rules.passedOver(view.Snapshot, req, &d)
	return e
}

// whyDropped says why a color that came with a request is not believed; "": it is, or none
// came.
func (d *Decision) whyDropped() string {
	switch {
	case !d.Dropped:
		return ""
	case d.Malformed > 0:
		return "what came as a color is no lane name"
	}
	return "a color came with the request, from a peer that is not among gateway.edge.trusted and without a good signature"
}

// brief bounds what of a peer's text an answer repeats.
func brief(s string) string { return s[:min(len(s), 80)] }
