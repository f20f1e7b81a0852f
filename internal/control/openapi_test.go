package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// spec is the served OpenAPI document, and the little of JSON Schema that it uses.
type spec struct {
	OpenAPI string `json:"openapi"`
	Paths   map[string]map[string]struct {
		Parameters []struct {
			Name, In string
			Required bool
		}
		RequestBody *struct {
			Content map[string]struct{ Schema map[string]any }
		}
		Responses map[string]struct {
			Content map[string]struct{ Schema map[string]any }
		}
	}
	Components struct{ Schemas map[string]map[string]any }
}

// check returns what of v does not fit the schema.
func (s *spec) check(schema map[string]any, v any, at string) []string {
	if ref, ok := schema["$ref"].(string); ok {
		target, ok := s.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")]
		if !ok {
			return []string{at + ": dangling " + ref}
		}
		return s.check(target, v, at)
	}
	var bad []string
	fail := func(format string, args ...any) { bad = append(bad, at+": "+fmt.Sprintf(format, args...)) }
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		fail("%v is none of %v", v, enum)
	}
	switch schema["type"] {
	case "object":
		o, ok := v.(map[string]any)
		if !ok {
			fail("%v is no object", v)
			break
		}
		props, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := o[name.(string)]; !ok {
				fail("no %v", name)
			}
		}
		for key, value := range o {
			sub, ok := props[key].(map[string]any)
			if !ok {
				if sub, ok = schema["additionalProperties"].(map[string]any); !ok {
					fail("%s is not described", key)
					continue
				}
			}
			bad = append(bad, s.check(sub, value, at+"."+key)...)
		}
	case "array":
		list, ok := v.([]any)
		if !ok {
			fail("%v is no list", v)
		}
		items, _ := schema["items"].(map[string]any)
		for n, value := range list {
			bad = append(bad, s.check(items, value, fmt.Sprintf("%s[%d]", at, n))...)
		}
	case "string":
		text, ok := v.(string)
		if !ok {
			fail("%v is no string", v)
			break
		}
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(text) {
			fail("%q does not match %s", text, pattern)
		}
		if schema["format"] == "date-time" {
			if _, err := time.Parse(time.RFC3339, text); err != nil {
				fail("%v", err)
			}
		}
	case "integer", "number":
		n, ok := v.(float64)
		if !ok {
			fail("%v is no number", v)
		}
		if least, ok := schema["minimum"].(float64); ok && n < least {
			fail("%v is below %v", n, least)
		}
	case "boolean":
		if _, ok := v.(bool); !ok {
			fail("%v is no bool", v)
		}
	}
	return bad
}

// TestOpenAPI holds the document against the handlers: each operation in it is
// served and answers as its schema says, with success and with refusal; and no
// method that it does not have is served.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	r := start(t)
	var s spec
	r.must(http.StatusOK, &s, "GET", "/v1/openapi.json", nil)
	if s.OpenAPI != "3.1.0" {
		t.Errorf("version %q", s.OpenAPI)
	}
	sess := r.session(`{"instance":"order/a","ttl":"5m"}`)
	doomed := r.session(`{"ttl":"5m"}`)
	record := `{"v":1,"main":{"holder":{"session":"` + sess.Name + `"}}}`
	const cursors = "/v1/cursors/main/billing/orders/3"
	// A request for every operation that has to succeed, in this order.
	type call struct{ op, path, body, session string }
	calls := []call{
		{"post /v1/lanes", "/v1/lanes", `{"name":"green"}`, ""},
		{"put /v1/lanes/{name}", "/v1/lanes/blue", `{"parent":"green","owner":"ann"}`, ""},
		{"get /v1/lanes", "/v1/lanes?limit=1", "", ""},
		{"get /v1/lanes/{name}", "/v1/lanes/green", "", ""},
		{"post /v1/lanes/{name}/extend", "/v1/lanes/green/extend", `{"ttl":"5h"}`, ""},
		{"post /v1/lanes/{name}/hold", "/v1/lanes/green/hold", `{"held":true}`, ""},
		{"put /v1/services/{name}", "/v1/services/order", `{"owner":"ann","check":{"protocol":"tcp"},"endpoints":[{"protocol":"http"}]}`, ""},
		{"get /v1/services", "/v1/services", "", ""},
		{"get /v1/services/{name}", "/v1/services/order", "", ""},
		{"put /v1/instances/{service}/{name}", "/v1/instances/order/a", `{"lane":"green","room":"x","labels":{"a":"b"},"endpoints":[{"protocol":"http","address":"127.0.0.1:1"}]}`, sess.Name},
		{"get /v1/instances", "/v1/instances?lane=green", "", ""},
		{"get /v1/instances/{service}/{name}", "/v1/instances/order/a", "", ""},
		{"put /v1/routes/{name}", "/v1/routes/api", `{"host":"api.example.com","service":"order","rewrite":{"prefix":"/x"},"timeouts":{"request":"3s"}}`, ""},
		{"get /v1/routes", "/v1/routes", "", ""},
		{"get /v1/routes/{name}", "/v1/routes/api", "", ""},
		{"put /v1/rules/{name}", "/v1/rules/all", `{"match":{"cookie":{"name":"u"},"method":["GET"]},"lanes":[{"lane":"green","percent":5.5}]}`, ""},
		{"get /v1/rules", "/v1/rules", "", ""},
		{"get /v1/rules/{name}", "/v1/rules/all", "", ""},
		{"post /v1/sessions", "/v1/sessions", `{"role":"gateway","ttl":"30s"}`, ""},
		{"post /v1/sessions/{name}/renew", "/v1/sessions/" + sess.Name + "/renew", `{"reached":1,"lanes":["green"]}`, ""},
		{"get /v1/sessions", "/v1/sessions", "", ""},
		{"get /v1/sessions/{name}", "/v1/sessions/" + sess.Name, "", ""},
		{"put /v1/engines/{name}", "/v1/engines/main", `{"scheme":"nats","address":"nats://127.0.0.1:7742"}`, sess.Name},
		{"get /v1/engines", "/v1/engines", "", ""},
		{"get /v1/engines/{name}", "/v1/engines/main", "", ""},
		{"put /v1/topics/{name}", "/v1/topics/orders", `{"engine":"main","partitions":4,"retention":"24h","durability":"sync"}`, ""},
		{"get /v1/topics", "/v1/topics?engine=main", "", ""},
		{"get /v1/topics/{name}", "/v1/topics/orders", "", ""},
		{"put /v1/groups/{name}", "/v1/groups/billing", `{"engine":"main","topics":["orders"],"start":"offset:7","retry":["1s"],"partitions":{"orders":4},"reset":{"id":"r1","offsets":{"orders/3":9}}}`, ""},
		{"get /v1/groups", "/v1/groups", "", ""},
		{"get /v1/groups/{name}", "/v1/groups/billing", "", ""},
		{"put /v1/members/{group}/{name}", "/v1/members/billing/a", `{"topics":["orders"],"lane":"green","room":"x","client":{"name":"c","address":"127.0.0.1:9","version":"1"}}`, sess.Name},
		{"get /v1/members", "/v1/members?group=billing&lane=green", "", ""},
		{"get /v1/members/{group}/{name}", "/v1/members/billing/a", "", ""},
		{"put /v1/cursors/{engine}/{group}/{topic}/{partition}", cursors, `{"record":` + record + `,"notes":[{"cursor":"","note":{"v":1,"pos":5,"left":[3]},"compare":true}],"gone":["nobody"],"read":["green"],"moves":[{"kind":"create","why":"new-group"}]}`, sess.Name},
		{"get /v1/cursors", "/v1/cursors?group=billing", "", ""},
		{"get /v1/cursors/{engine}/{group}/{topic}/{partition}", cursors, "", ""},
		{"post /v1/cursors:batch", "/v1/cursors:batch", `{"writes":[{"name":"main/billing/orders/2","record":` + record + `},{"name":"main/billing/orders/3","record":` + record + `},{"name":"x"}]}`, sess.Name},
		{"post /v1/notes", "/v1/notes", `{"writes":[{"name":"main/billing/orders/3","if_revision":1,"notes":[{"cursor":"","note":null}]}]}`, sess.Name},
		{"delete /v1/members/{group}/{name}", "/v1/members/billing/a", "", sess.Name},
		{"delete /v1/groups/{name}", "/v1/groups/billing", "", ""},
		{"delete /v1/topics/{name}", "/v1/topics/orders", "", ""},
		{"delete /v1/engines/{name}", "/v1/engines/main", "", ""},
		{"get /v1/watch", "", "", ""}, // below
		{"get /v1/explain", "/v1/explain?service=order&color=green&protocol=http", "", ""},
		{"post /v1/explain/http", "/v1/explain/http", `{"host":"api.example.com","headers":{"a":["b"]}}`, ""},
		{"get /v1/status", "/v1/status", "", ""},
		{"get /v1/openapi.json", "/v1/openapi.json", "", ""},
		{"get /healthz", "/healthz", "", ""},
		{"get /readyz", "/readyz", "", ""},
		{"get /metrics", "", "", ""}, // is no JSON; TestMetrics reads it
		{"delete /v1/rules/{name}", "/v1/rules/all", "", ""},
		{"delete /v1/routes/{name}", "/v1/routes/api", "", ""},
		{"delete /v1/instances/{service}/{name}", "/v1/instances/order/a", "", ""},
		{"delete /v1/services/{name}", "/v1/services/order", "", ""},
		{"delete /v1/sessions/{name}", "/v1/sessions/" + doomed.Name, "", ""},
		{"delete /v1/lanes/{name}", "/v1/lanes/blue", "", ""},
	}
	var described []string
	for path, item := range s.Paths {
		for method := range item {
			described = append(described, method+" "+path)
		}
		for _, method := range []string{"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE"} {
			if _, ok := item[strings.ToLower(method)]; ok {
				continue
			}
			concrete := strings.NewReplacer("{service}", "s", "{name}", "n", "{group}", "g", "{engine}", "e", "{topic}", "t", "{partition}", "1").Replace(path)
			a := r.do(method, concrete, nil)
			if a.status != http.StatusMethodNotAllowed || a.header.Get("Allow") == "" {
				t.Errorf("%s %s: %d, Allow %q; want 405", method, concrete, a.status, a.header.Get("Allow"))
			}
		}
	}
	called := make([]string, len(calls))
	for n, c := range calls {
		called[n] = c.op
		method, pattern, _ := strings.Cut(c.op, " ")
		op, ok := s.Paths[pattern][method]
		if !ok {
			t.Errorf("%s is served and not described", c.op)
			continue
		}
		if c.path == "" {
			continue
		}
		var body any
		if c.body != "" {
			body = c.body
			var v any
			_ = json.Unmarshal([]byte(c.body), &v)
			for _, bad := range s.check(op.RequestBody.Content["application/json"].Schema, v, "request") {
				t.Errorf("%s: %s", c.op, bad)
			}
		}
		headers := []string{}
		if c.session != "" {
			headers = append(headers, laneclient.SessionHeader, c.session)
		}
		if c.path == cursors && method == "put" {
			headers = append(headers, "If-None-Match", "*")
		}
		a := r.do(strings.ToUpper(method), c.path, body, headers...)
		if a.status >= 300 {
			t.Errorf("%s: %d %s", c.op, a.status, a.body)
		}
		s.answer(t, c.op, a)
		// A refusal is described, too.
		if method == "put" || method == "post" {
			s.answer(t, c.op, r.do(strings.ToUpper(method), c.path, `{"no such field":1}`, headers...))
			s.answer(t, c.op, r.do(strings.ToUpper(method), c.path, strings.Repeat("[", 300<<10), headers...))
			s.answer(t, c.op, r.do(strings.ToUpper(method), c.path, `{`, headers...))
		}
		if method == "delete" {
			s.answer(t, c.op, r.do("DELETE", c.path+"x", nil))
		}
	}
	slices.Sort(described)
	slices.Sort(called)
	if !slices.Equal(described, called) {
		t.Errorf("described are\n%s\nand called\n%s", strings.Join(described, "\n"), strings.Join(called, "\n"))
	}
	s.checkWatch(t, r)
}

// answer checks an answer against what the document says of its status.
func (s *spec) answer(t *testing.T, op string, a answer) {
	t.Helper()
	method, pattern, _ := strings.Cut(op, " ")
	described, ok := s.Paths[pattern][method].Responses[fmt.Sprint(a.status)]
	if !ok {
		t.Errorf("%s: %d is not described: %s", op, a.status, a.body)
		return
	}
	if len(described.Content) == 0 {
		if len(a.body) > 0 {
			t.Errorf("%s: %d has a body: %s", op, a.status, a.body)
		}
		return
	}
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	content, ok := described.Content[media]
	if !ok {
		t.Errorf("%s: %d is %q, which is not described", op, a.status, media)
		return
	}
	var v any
	if err := json.Unmarshal(a.body, &v); err != nil {
		t.Errorf("%s: %v: %s", op, err, a.body)
	}
	if op == "get /v1/openapi.json" {
		return
	}
	for _, bad := range s.check(content.Schema, v, "answer") {
		t.Errorf("%s: %d: %s", op, a.status, bad)
	}
}

// checkWatch checks the lines of a watch, objects by the schema of their kind.
func (s *spec) checkWatch(t *testing.T, r *replica) {
	t.Helper()
	content := s.Paths["/v1/watch"]["get"].Responses["200"].Content["application/x-ndjson"]
	w := r.watch("select=lanes&select=sessions")
	schemas := map[laneclient.Kind]string{laneclient.KindLanes: "Lane", laneclient.KindSessions: "Session"}
	for n := 0; ; n++ {
		e, _ := w.next()
		raw, _ := json.Marshal(e)
		var v any
		_ = json.Unmarshal(raw, &v)
		bad := s.check(content.Schema, v, "event")
		if e.Type == laneclient.EventPut {
			var obj any
			_ = json.Unmarshal(e.Object, &obj)
			bad = append(bad, s.check(s.Components.Schemas[schemas[e.Kind]], obj, "object")...)
		}
		if len(bad) > 0 {
			t.Errorf("watch: %s: %v", raw, bad)
		}
		if e.Type == laneclient.EventSynced {
			if n < 3 {
				t.Errorf("only %d events", n)
			}
			return
		}
	}
}
