package control

import (
	"context"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// params are the parts of a path that its pattern leaves open.
type params map[string]string

// handler answers a request, or returns why not; a handler that has begun to
// answer returns nil.
type handler func(w http.ResponseWriter, r *http.Request, p params) error

// endpoint is one operation of the API. The document at /v1/openapi.json is made of
// the same table.
type endpoint struct {
	method  string
	pattern string // "/v1/lanes/{name}"
	handle  handler
	operation
}

// maxSegments is the longest path that there is, with one to spare.
const maxSegments = 8

type router struct {
	endpoints []endpoint
	patterns  [][]string // segments of endpoints[n].pattern
}

func newRouter(endpoints []endpoint) *router {
	rt := &router{endpoints: endpoints}
	for _, e := range endpoints {
		rt.patterns = append(rt.patterns, strings.Split(e.pattern, "/")[1:])
	}
	return rt
}

// segmentsOf takes a path apart: repeated slashes and one at the end say nothing;
// "." and "..", and what hides a slash or a control character, are refused, so that
// one object has one path.
func segmentsOf(u *url.URL) ([]string, *laneclient.Problem) {
	var list []string
	for raw := range strings.SplitSeq(u.EscapedPath(), "/") {
		if raw == "" {
			continue
		}
		s, err := url.PathUnescape(raw)
		if err != nil || s == "." || s == ".." || strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r < ' ' || r == 0x7f }) {
			return nil, problem(http.StatusBadRequest, "the path has a segment %q, which names nothing: send the path as GET /v1/openapi.json gives it", clip(raw))
		}
		if list = append(list, s); len(list) > maxSegments {
			break
		}
	}
	return list, nil
}

func match(pattern, segments []string) (params, bool) {
	if len(pattern) != len(segments) {
		return nil, false
	}
	var p params
	for n, want := range pattern {
		if strings.HasPrefix(want, "{") {
			if p == nil {
				p = params{}
			}
			p[strings.Trim(want, "{}")] = segments[n]
		} else if want != segments[n] {
			return nil, false
		}
	}
	return p, true
}

// find returns the endpoint of a request. A literal segment wins over an open one.
func (rt *router) find(method string, segments []string) (*endpoint, params, *laneclient.Problem, string) {
	var found *endpoint
	var foundParams params
	var allow []string
	for n := range rt.endpoints {
		p, ok := match(rt.patterns[n], segments)
		if !ok {
			continue
		}
		e := &rt.endpoints[n]
		allow = append(allow, e.method)
		if e.method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
		same := e.method == method || method == http.MethodHead && e.method == http.MethodGet
		if same && (found == nil || len(p) < len(foundParams)) {
			found, foundParams = e, p
		}
	}
	if found != nil {
		return found, foundParams, nil, ""
	}
	if allow == nil {
		return nil, nil, problem(http.StatusNotFound, "there is nothing at this path: GET /v1/openapi.json lists what there is"), ""
	}
	slices.Sort(allow)
	words := strings.Join(slices.Compact(allow), ", ")
	return nil, nil, problem(http.StatusMethodNotAllowed, "%s is not possible here: use %s", clip(method), words), words
}

// recorder remembers what was answered. It passes all else through.
type recorder struct {
	http.ResponseWriter

	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach what is below.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// ServeHTTP finds the endpoint, runs it, and turns its error into a problem.
func (c *Control) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rec := &recorder{ResponseWriter: w}
	kind := "none"
	defer func() {
		if v := recover(); v != nil {
			c.recovered(rec, r, v)
		}
		c.metrics.observe(kind, knownMethod(r.Method), max(rec.status, http.StatusOK), time.Since(start))
	}()
	e, p, bad, allow := c.route(r)
	if bad != nil {
		if allow != "" {
			w.Header().Set("Allow", allow)
		}
		writeProblem(rec, bad)
		return
	}
	kind = kindLabel(e.pattern)
	if err := e.handle(rec, r, p); err != nil && rec.status == 0 {
		c.answerError(rec, r, err)
	}
}

func (c *Control) route(r *http.Request) (e *endpoint, p params, bad *laneclient.Problem, allow string) {
	if bad := c.hosts.check(r); bad != nil {
		return nil, nil, bad, ""
	}
	if len(r.URL.RawQuery) > maxQueryBytes {
		return nil, nil, problem(http.StatusRequestURITooLong, "the query has more than %d bytes: ask for less at once", maxQueryBytes), ""
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return nil, nil, problem(http.StatusBadRequest, "the query cannot be read: escape it"), ""
	}
	segments, bad := segmentsOf(r.URL)
	if bad != nil {
		return nil, nil, bad, ""
	}
	if e, p, bad, allow = c.router.find(r.Method, segments); bad != nil {
		return nil, nil, bad, allow
	}
	// A page of another origin must not write through a person's browser.
	if err := c.origins.Check(r); err != nil {
		return nil, nil, problem(http.StatusForbidden, "the request comes from a page of another origin: send it from a program, or from the console"), ""
	}
	return e, p, nil, ""
}

func (c *Control) answerError(w http.ResponseWriter, r *http.Request, err error) {
	p := toProblem(err)
	if r.Context().Err() != nil {
		return // nobody waits for the answer
	}
	if p.Status == http.StatusInternalServerError {
		c.log.ErrorContext(r.Context(), "request failed", telemetry.KeyPath, r.URL.Path, telemetry.KeyError, err)
	}
	writeProblem(w, p)
}

// recovered answers for a handler that panicked: one request fails, and the process
// goes on.
func (c *Control) recovered(w *recorder, r *http.Request, v any) {
	if v == http.ErrAbortHandler { //nolint:errorlint // the server compares it so, too
		panic(v)
	}
	c.metrics.panics.Inc()
	c.log.ErrorContext(context.WithoutCancel(r.Context()), "request panicked",
		telemetry.KeyPath, r.URL.Path, telemetry.KeyPanic, v, telemetry.KeyStack, string(debug.Stack()))
	if w.status == 0 {
		writeProblem(w, toProblem(errPanicked))
	}
}

// knownMethod bounds the label: a method is the peer's text.
func knownMethod(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodDelete, http.MethodPatch, http.MethodOptions:
		return m
	}
	return "other"
}
