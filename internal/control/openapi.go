package control

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// operation describes an endpoint for the OpenAPI document.
type operation struct {
	summary  string
	query    []parameter
	headers  []string     // that it reads
	request  reflect.Type // of the body; nil: none
	optional bool         // the body may be left out
	response reflect.Type // of the answer; nil: no body
	statuses []int        // of success
	failures []int        // beside those that every request may have
	media    string       // of the answer; default application/json
}

// parameter is one of a query.
type parameter struct {
	name, description string
	repeats, number   bool
	required          bool
}

const (
	ifMatch     = "If-Match"
	ifNoneMatch = "If-None-Match"
)

// endpoints is the whole API.
func (c *Control) endpoints() []endpoint {
	var list []endpoint
	for _, k := range kinds() {
		list = append(list, c.kindEndpoints(k)...)
	}
	list = append(list, c.laneEndpoints()...)
	list = append(list, c.sessionEndpoints()...)
	list = append(list, c.cursorEndpoints()...)
	return append(list, c.otherEndpoints()...)
}

// kindEndpoints are those that all kinds have, as far as they differ in the handler
// alone.
func (c *Control) kindEndpoints(k *kind) []endpoint {
	path := "/v1/" + string(k.name)
	one := path + "/{" + strings.Join(k.path, "}/{") + "}"
	query := []parameter{
		{name: "limit", description: "how many at most; default 1000, at most 10000", number: true},
		{name: "after", description: "goes on after this name: next of the page before"},
	}
	for _, field := range k.listFields() {
		about := "only those of this " + field
		if field == "lane" {
			about += "; - is the baseline"
		}
		query = append(query, parameter{name: field, description: about})
	}
	list := []endpoint{
		{http.MethodGet, path, c.listObjects(k), operation{
			summary: "List " + string(k.name), query: query, response: reflect.TypeFor[laneclient.List](), failures: []int{422},
		}},
		{http.MethodGet, one, c.getObject(k), operation{
			summary: "Get one of " + string(k.name), response: k.typ, failures: []int{404},
		}},
	}
	put, del, get := c.putObject(k), c.deleteObject(k), &list[1]
	headers := []string{ifMatch, ifNoneMatch}
	deleted := operation{summary: "Delete one of " + string(k.name), headers: headers, statuses: []int{204}, failures: []int{404, 409, 412}}
	switch k.name {
	case laneclient.KindSessions:
		return list
	case laneclient.KindCursors:
		get.handle, get.summary = c.getCursor, "Get the record of a partition's cursors, and their notes"
		return list
	case laneclient.KindTopics:
		put, del = c.putTopic, c.deleteTopic
	case laneclient.KindGroups:
		put, del = c.putGroup, c.deleteGroup
		deleted.summary = "Delete a group without members, its cursors and its notes"
	case laneclient.KindEngines:
		put, del = c.putEngine, c.deleteEngine
		headers = append(headers, laneclient.SessionHeader)
		deleted.headers = headers
	case laneclient.KindMembers:
		put, del = c.putMember, c.deleteMember
		headers = append(headers, laneclient.SessionHeader)
		deleted.summary, deleted.headers, deleted.failures = "Let a member leave its group", headers, append(deleted.failures, 422)
		deleted.query = []parameter{{name: laneclient.GraceParam, description: "how long it counts after it has left, or until another comes; default 0s, at most " + laneclient.MaxGrace.String()}}
	case laneclient.KindLanes:
		put, del = c.putLane, c.deleteLane
		deleted = operation{summary: "Let a lane drain, and end", headers: headers, response: k.typ, failures: []int{404, 409, 412}}
	case laneclient.KindInstances:
		put, del = c.putInstance, c.deleteInstance
		headers = append(headers, laneclient.SessionHeader)
		deleted.summary, deleted.headers = "Take an instance out and end its sessions", headers
	case laneclient.KindServices:
		del = c.deleteService
	default:
	}
	return append(list,
		endpoint{http.MethodPut, one, put, operation{
			summary: "Create or replace one of " + string(k.name), headers: headers, request: k.typ, response: k.typ,
			statuses: []int{200, 201}, failures: []int{409, 412, 413, 415, 422, 507},
		}},
		endpoint{http.MethodDelete, one, del, deleted})
}

func (c *Control) laneEndpoints() []endpoint {
	laneType := reflect.TypeFor[laneclient.Lane]()
	headers := []string{ifMatch, ifNoneMatch}
	failures := []int{404, 409, 412, 413, 415, 422, 507}
	return []endpoint{
		{http.MethodPost, "/v1/lanes", c.postLane, operation{
			summary: "Create a lane; one that lives already is a conflict", request: laneType, response: laneType,
			statuses: []int{201}, failures: []int{409, 413, 415, 422, 507},
		}},
		{http.MethodPost, "/v1/lanes/{name}/extend", c.postExtend, operation{
			summary: "Let a lane expire a full TTL from now", headers: headers,
			request: reflect.TypeFor[laneclient.Extension](), response: laneType, failures: failures,
		}},
		{http.MethodPost, "/v1/lanes/{name}/hold", c.postHold, operation{
			summary: "Keep a lane from expiring, or let it expire again", headers: headers,
			request: reflect.TypeFor[laneclient.Hold](), response: laneType, failures: failures,
		}},
	}
}

func (c *Control) cursorEndpoints() []endpoint {
	batch, answers := reflect.TypeFor[laneclient.CursorBatch](), reflect.TypeFor[laneclient.CursorAnswers]()
	headers := []string{laneclient.SessionHeader}
	failures := []int{413, 415, 422}
	return []endpoint{
		{http.MethodPut, "/v1/cursors/{engine}/{group}/{topic}/{partition}", c.putCursor, operation{
			summary: "Write the record of a partition's cursors, and notes, in one transaction",
			headers: []string{ifMatch, ifNoneMatch, laneclient.SessionHeader},
			request: reflect.TypeFor[laneclient.CursorWrite](), response: reflect.TypeFor[laneclient.CursorDone](),
			failures: []int{409, 412, 413, 415, 422, 428, 507},
		}},
		{http.MethodPost, "/v1/cursors:batch", c.postCursors(true), operation{
			summary: "Write cursors of several partitions, each answered by itself", headers: headers, request: batch, response: answers, failures: failures,
		}},
		{http.MethodPost, "/v1/notes", c.postCursors(false), operation{
			summary: "Write notes of several partitions, each answered by itself", headers: headers, request: batch, response: answers, failures: failures,
		}},
	}
}

func (c *Control) sessionEndpoints() []endpoint {
	session := reflect.TypeFor[laneclient.Session]()
	return []endpoint{
		{http.MethodPost, "/v1/sessions", c.postSession, operation{
			summary: "Open a session; its name is its id", request: session, response: session,
			statuses: []int{201}, failures: []int{413, 415, 422, 507},
		}},
		{http.MethodPost, "/v1/sessions/{name}/renew", c.postRenew, operation{
			summary: "Renew a session", request: reflect.TypeFor[laneclient.Renewal](), response: reflect.TypeFor[laneclient.Renewed](),
			failures: []int{404, 409, 413, 415, 422},
		}},
		{http.MethodDelete, "/v1/sessions/{name}", c.deleteSession, operation{
			summary: "End a session and all that is bound to it", statuses: []int{204}, failures: []int{404},
		}},
	}
}

func (c *Control) otherEndpoints() []endpoint {
	explanation := reflect.TypeFor[laneclient.Explanation]()
	health := reflect.TypeFor[laneclient.Health]()
	return []endpoint{
		{http.MethodGet, "/v1/watch", c.serveWatch, operation{
			summary: "Stream changes as lines of JSON, in one revision order", headers: []string{laneclient.SessionHeader},
			query: []parameter{
				{name: "from", description: "the revision that the client has reached; left out: all there is, as puts, then synced", number: true},
				{name: "select", description: "KIND, or KIND:field=value; may stand several times", repeats: true, required: true},
			},
			response: reflect.TypeFor[laneclient.Event](), failures: []int{422, 429}, media: watchType,
		}},
		{http.MethodGet, "/v1/explain", c.getExplain, operation{
			summary: "Who would get a call, and why", response: explanation, failures: []int{422},
			query: []parameter{
				{name: "service", description: "the service called", required: true},
				{name: "color", description: "the call's color; left out, or -: plain"},
				{name: "protocol", description: "http (default), grpc, thrift, tcp"},
			},
		}},
		{http.MethodPost, "/v1/explain/http", c.postExplainHTTP, operation{
			summary: "Who would get an HTTP request, and why", request: reflect.TypeFor[laneclient.HTTPRequest](),
			response: explanation, failures: []int{413, 415, 422},
		}},
		{http.MethodGet, "/v1/status", c.getStatus, operation{
			summary: "What is well and what is not", response: reflect.TypeFor[laneclient.Status](),
		}},
		{http.MethodGet, "/v1/openapi.json", c.getOpenAPI, operation{
			summary: "This document", response: reflect.TypeFor[map[string]any](),
		}},
		{http.MethodGet, "/healthz", c.getHealthz, operation{summary: "The process runs", response: health}},
		{http.MethodGet, "/readyz", c.getReadyz, operation{
			summary: "Every role of the process can do its work", response: health, statuses: []int{200, 503},
		}},
		{http.MethodGet, "/metrics", c.serveMetrics, operation{
			summary: "Metrics in Prometheus text", response: reflect.TypeFor[string](), media: "text/plain",
		}},
	}
}

func (c *Control) getOpenAPI(w http.ResponseWriter, _ *http.Request, _ params) error {
	writeBytes(w, http.StatusOK, c.openapi)
	return nil
}

type object = map[string]any

// document builds the OpenAPI document of the endpoints.
func document(endpoints []endpoint, version string) ([]byte, error) {
	s := &schemas{components: object{}}
	s.of(reflect.TypeFor[laneclient.Problem](), false)
	paths := object{}
	for _, e := range endpoints {
		item, _ := paths[e.pattern].(object)
		if item == nil {
			item = object{}
			paths[e.pattern] = item
		}
		item[strings.ToLower(e.method)] = s.operation(e)
	}
	if version == "" {
		version = "0"
	}
	return json.Marshal(object{
		"openapi": "3.1.0",
		"info": object{
			"title":       "Laneway control API",
			"version":     version,
			"description": "Lanes, services, instances, routes, rules and sessions; engines, topics, groups, members and cursors. Errors are RFC 9457 problems whose detail says what to do next.",
		},
		"paths":      paths,
		"components": object{"schemas": s.components},
	})
}

func (s *schemas) operation(e endpoint) object {
	op := object{"summary": e.summary, "operationId": operationID(e), "responses": s.responses(e)}
	var ps []any
	for segment := range strings.SplitSeq(e.pattern, "/") {
		if strings.HasPrefix(segment, "{") {
			ps = append(ps, object{"name": strings.Trim(segment, "{}"), "in": "path", "required": true, "schema": object{"type": "string"}})
		}
	}
	for _, p := range e.query {
		schema := object{"type": "string"}
		if p.number {
			schema = object{"type": "integer", "minimum": 0}
		}
		if p.repeats {
			schema = object{"type": "array", "items": schema}
		}
		ps = append(ps, object{"name": p.name, "in": "query", "description": p.description, "required": p.required, "schema": schema})
	}
	for _, name := range e.headers {
		ps = append(ps, object{"name": name, "in": "header", "schema": object{"type": "string"}})
	}
	if ps != nil {
		op["parameters"] = ps
	}
	if e.request != nil {
		op["requestBody"] = object{
			"required": !e.optional,
			"content":  object{"application/json": object{"schema": s.of(e.request, true)}},
		}
	}
	return op
}

// operationID is unique and stable: generators name functions by it.
func operationID(e endpoint) string {
	var words []string
	for segment := range strings.SplitSeq(e.pattern, "/") {
		switch {
		case segment == "" || segment == "v1":
		case strings.HasPrefix(segment, "{"):
			words = append(words, "by", strings.Trim(segment, "{}"))
		default:
			words = append(words, strings.ReplaceAll(segment, ".", "_"))
		}
	}
	return strings.ToLower(e.method) + "_" + strings.Join(words, "_")
}

func (s *schemas) responses(e endpoint) object {
	answers := object{}
	media := e.media
	if media == "" {
		media = "application/json"
	}
	statuses := e.statuses
	if statuses == nil {
		statuses = []int{http.StatusOK}
	}
	for _, status := range statuses {
		answer := object{"description": http.StatusText(status)}
		if e.response != nil {
			answer["content"] = object{media: object{"schema": s.of(e.response, false)}}
		}
		answers[statusKey(status)] = answer
	}
	common := []int{http.StatusBadRequest, http.StatusMisdirectedRequest, http.StatusServiceUnavailable}
	for _, status := range slices.Concat(common, e.failures) {
		if answers[statusKey(status)] == nil {
			answers[statusKey(status)] = object{
				"description": http.StatusText(status),
				"content":     object{laneclient.ProblemMediaType: object{"schema": object{"$ref": "#/components/schemas/Problem"}}},
			}
		}
	}
	return answers
}

func statusKey(status int) string {
	b, _ := json.Marshal(status)
	return string(b)
}

// schemas builds JSON schemas from Go types. Those for writing refuse unknown
// fields and require none, as the handlers do; those for reading allow what a newer
// version adds.
type schemas struct{ components object }

func (s *schemas) of(t reflect.Type, write bool) object {
	switch {
	case t == reflect.TypeFor[laneclient.Duration]():
		return object{"type": "string", "pattern": `^-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`, "examples": []string{"30s", "72h0m0s"}}
	case isText(t):
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem(), write)
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem(), write)}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem(), write)}
	case reflect.Struct:
		return s.ref(t, write)
	default:
		return object{}
	}
}

func (s *schemas) ref(t reflect.Type, write bool) object {
	name := t.Name()
	if write {
		name += "Write"
	}
	if s.components[name] == nil {
		schema := object{"type": "object"}
		s.components[name] = schema
		properties, required := s.properties(t, write)
		schema["properties"] = properties
		switch {
		case write:
			schema["additionalProperties"] = false
		case len(required) > 0:
			schema["required"] = required
		}
	}
	return object{"$ref": "#/components/schemas/" + name}
}

func (s *schemas) properties(t reflect.Type, write bool) (properties object, required []string) {
	properties = object{}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			inner, need := s.properties(f.Type, write)
			maps.Copy(properties, inner)
			required = append(required, need...)
		case name != "" && name != "-":
			schema := s.of(f.Type, write)
			maps.Copy(schema, fieldNote(t.Name()+"."+name))
			properties[name] = schema
			if options == "" {
				required = append(required, name)
			}
		}
	}
	return properties, required
}

// fieldNote is what a schema says of a field beyond its type.
func fieldNote(field string) object {
	enum := func(words ...string) object { return object{"enum": words} }
	switch field {
	case "Meta.revision":
		return object{"readOnly": true, "description": "of the object's last change; on a write it is ignored: use If-Match"}
	case "Lane.kind":
		return object{"enum": []string{laneOrdinary, laneStrict}, "readOnly": true, "description": "follows from the name"}
	case "Lane.state":
		return object{"enum": []string{"creating", "ready", "draining", "ended"}, "readOnly": true}
	case "Lane.generation", "Lane.created", "Lane.expires", "Lane.warned_at", "Lane.draining_at", "Lane.ended_at", "Lane.last_use",
		"Instance.generation", "Instance.since", "Session.since", "Session.reached", "Engine.since",
		"Member.generation", "Member.since", "Member.until":
		return object{"readOnly": true}
	case "Lane.ttl":
		return object{"default": laneclient.DefaultLaneTTL.String()}
	case "Session.ttl":
		return object{"default": laneclient.DefaultTTL.String(), "description": "5s to 5m"}
	case "Instance.state":
		return enum("ready", "draining")
	case "Instance.weight":
		return object{"minimum": 0, "maximum": maxWeight, "default": 1}
	case "Instance.health":
		return object{"enum": []string{laneclient.HealthPassing, laneclient.HealthFailing}, "readOnly": true}
	case "Check.protocol":
		return enum("tcp", "http")
	case "Endpoint.transport":
		return enum("header", "framed", "buffered")
	case "Topic.partitions":
		return object{"minimum": 0, "maximum": laneclient.MaxPartitions, "default": 1}
	case "Topic.durability":
		return enum(laneclient.DurabilityFast, laneclient.DurabilityBounded, laneclient.DurabilitySync)
	case "Group.start":
		return object{"default": laneclient.DefaultStart, "description": "earliest, latest, offset:N, or a time as RFC 3339 has it"}
	case "Group.handover_timeout":
		return object{"default": laneclient.DefaultHandover.String()}
	case "Group.on_registry_loss":
		return enum(laneclient.OnLossContinue, laneclient.OnLossHold)
	case "Rule.status":
		return object{"readOnly": true, "description": "ok, or what is wrong; such a rule is skipped"}
	case "Event.type":
		return enum(string(laneclient.EventPut), string(laneclient.EventDelete), string(laneclient.EventSynced),
			string(laneclient.EventProgress), string(laneclient.EventCompacted))
	}
	return nil
}
