package control_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/internal/store"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestPreconditions(t *testing.T) {
	t.Parallel()
	r := start(t)
	const path = "/v1/services/order"
	first := r.must(http.StatusCreated, nil, "PUT", path, `{"owner":"ann"}`, "If-None-Match", "*")
	tag := first.header.Get("ETag")
	if loc := first.header.Get("Location"); loc != path || tag == "" {
		t.Errorf("Location %q, ETag %q", loc, tag)
	}
	p := r.refuse(http.StatusPreconditionFailed, "PUT", path, `{"owner":"bob"}`, "If-None-Match", "*")
	var current laneclient.Service
	if err := json.Unmarshal(p.Current, &current); err != nil || current.Owner != "ann" || etagOf(current.Revision) != tag {
		t.Errorf("current is %s (%v)", p.Current, err)
	}
	if p.Type != laneclient.ProblemChanged {
		t.Errorf("type %q", p.Type)
	}
	second := r.must(http.StatusOK, nil, "PUT", path, `{"owner":"bob"}`, "If-Match", tag)
	if second.header.Get("ETag") == tag {
		t.Error("a change kept the revision")
	}
	r.refuse(http.StatusPreconditionFailed, "PUT", path, `{"owner":"cy"}`, "If-Match", tag)
	r.refuse(http.StatusPreconditionFailed, "DELETE", path, nil, "If-Match", tag)
	r.refuse(http.StatusPreconditionFailed, "PUT", "/v1/services/nobody", `{}`, "If-Match", "*")
	r.refuse(http.StatusBadRequest, "PUT", path, `{}`, "If-Match", "yesterday")
	r.must(http.StatusNoContent, nil, "DELETE", path, nil, "If-Match", second.header.Get("ETag"))
	r.refuse(http.StatusNotFound, "GET", path, nil)
	r.refuse(http.StatusNotFound, "DELETE", path, nil)
}

func etagOf(rev uint64) string { return fmt.Sprintf("%q", fmt.Sprint(rev)) }

// TestSameObject: applying the same again changes nothing, so no watcher is woken.
func TestSameObject(t *testing.T) {
	t.Parallel()
	r := start(t)
	bodies := map[string]string{
		"/v1/services/order":   `{"owner":"ann","check":{"protocol":"http","path":"/up"},"endpoints":[{"protocol":"grpc"}]}`,
		"/v1/routes/api":       `{"host":"API.example.com","service":"order","timeouts":{"request":"3s"}}`,
		"/v1/rules/testers":    `{"priority":3,"match":{"header":{"name":"x-user","value":"ann"}},"lanes":[{"lane":"green","percent":50}]}`,
		"/v1/lanes/green":      `{"owner":"ann","ttl":"2h"}`,
		"/v1/instances/pay/s1": `{"lane":"green","labels":{"a":"b"},"endpoints":[{"protocol":"http","address":"127.0.0.1:9"}]}`,
	}
	paths := []string{"/v1/lanes/green", "/v1/services/order", "/v1/routes/api", "/v1/rules/testers", "/v1/instances/pay/s1"}
	for _, path := range paths {
		r.must(http.StatusCreated, nil, "PUT", path, bodies[path])
	}
	r.until("the lane to be ready", func() bool { return r.lane("green").State == "ready" })
	for _, path := range paths {
		before := r.must(http.StatusOK, nil, "GET", path, nil)
		again := r.must(http.StatusOK, nil, "PUT", path, bodies[path])
		if string(again.body) != string(before.body) || again.header.Get("ETag") != before.header.Get("ETag") {
			t.Errorf("%s: applied again it is\n%s, and was\n%s", path, again.body, before.body)
		}
		// What was read can be written back.
		back := r.must(http.StatusOK, nil, "PUT", path, string(before.body))
		if string(back.body) != string(before.body) {
			t.Errorf("%s: written back it is\n%s, and was\n%s", path, back.body, before.body)
		}
	}
}

func TestMistakesHaveFieldPaths(t *testing.T) {
	t.Parallel()
	r := start(t)
	cases := []struct {
		path, body string
		fields     []string
	}{
		{"/v1/services/order", `{"ownr":"ann"}`, []string{"ownr"}},
		{"/v1/services/order", `{"Owner":"ann"}`, []string{"Owner"}},
		{"/v1/services/order", `{"owner":"a","owner":"b"}`, []string{"owner"}},
		{"/v1/services/order", `{"owner":7,"check":{"interval":5,"failures":"x","colour":1}}`, []string{"owner", "check.interval", "check.failures", "check.colour"}},
		{"/v1/services/order", `{"check":{"interval":"soon"}}`, []string{"check.interval"}},
		{"/v1/services/order", `{"check":{"failures":1.5}}`, []string{"check.failures"}},
		{"/v1/services/order", `{"check":[]}`, []string{"check"}},
		{"/v1/services/order", `{"endpoints":{"a":1}}`, []string{"endpoints"}},
		{"/v1/services/order", `{"name":"other"}`, []string{"name"}},
		{"/v1/services/order", `{"endpoints":[{"protocol":"http","address":"h:1"}]}`, []string{"endpoints[0].address"}},
		{"/v1/services/order", `{"check":{"protocol":"udp"}}`, []string{"check.protocol"}},
		{"/v1/services/or--der", `{}`, []string{"name"}},
		{"/v1/lanes/ab", `{}`, []string{"name"}},
		{"/v1/lanes/green", `{"kind":"strict"}`, []string{"kind"}},
		{"/v1/lanes/green", `{"parent":"nobody"}`, []string{"parent"}},
		{"/v1/lanes/green", `{"parent":"strict-a"}`, []string{"parent"}},
		{"/v1/lanes/strict-a", `{"parent":"green"}`, []string{"parent"}},
		{"/v1/lanes/green", `{"ttl":"1ms"}`, []string{"ttl"}},
		{"/v1/instances/order/a", `{"lane":"nobody"}`, []string{"lane"}},
		{
			"/v1/instances/order/a", `{"endpoints":[{"protocol":"http","address":"here"},{"protocol":"HT TP","transport":"framed","address":"h:99999"}],"weight":2000,"state":"up"}`,
			[]string{"endpoints[0].address", "endpoints[1].address", "endpoints[1].protocol", "endpoints[1].transport", "state", "weight"},
		},
		{"/v1/instances/order/a", `{"session":"x"}`, []string{"session"}},
		{"/v1/instances/order/a", `{"service":"other"}`, []string{"service"}},
		{"/v1/routes/api", `{"host":"a:80","path":"x","service":"-"}`, []string{"host", "path", "service"}},
		{"/v1/routes/api", `{"service":"order","rewrite":{"host":"a.example.com:80"}}`, []string{"rewrite.host"}},
		{"/v1/routes/api", `{"service":"order","timeouts":{"idle":"-3s"}}`, []string{"timeouts.idle"}},
	}
	for _, c := range cases {
		p := r.refuse(http.StatusUnprocessableEntity, "PUT", c.path, c.body)
		var got []string
		for _, e := range p.Errors {
			got = append(got, e.Field)
			if e.Detail == "" {
				t.Errorf("%s: %s has no detail", c.body, e.Field)
			}
		}
		slices.Sort(got)
		want := slices.Clone(c.fields)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("PUT %s %s: fields %q, want %q", c.path, c.body, got, want)
		}
	}
	r.must(http.StatusOK, nil, "GET", "/v1/services", nil)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	r := start(t)
	deep := strings.Repeat(`{"check":`, 40) + "1" + strings.Repeat("}", 40)
	cases := []struct {
		method, path, body string
		status             int
		headers            []string
	}{
		{"PUT", "/v1/services/order", ``, 422, nil},
		{"PUT", "/v1/services/order", `{`, 400, nil},
		{"PUT", "/v1/services/order", `{} {}`, 422, nil},
		{"PUT", "/v1/services/order", deep, 400, nil},
		{"PUT", "/v1/services/order", `[]`, 422, nil},
		{"PUT", "/v1/services/order", `"x"`, 422, nil},
		{"PUT", "/v1/services/order", `{"owner":"` + strings.Repeat("a", 300<<10) + `"}`, 413, nil},
		{"PUT", "/v1/services/order", `{}`, 415, []string{"Content-Type", "text/plain"}},
		{"PUT", "/v1/services/order", `{}`, 403, []string{"Sec-Fetch-Site", "cross-site"}},
		{"PUT", "/v1/services", `{}`, 405, nil},
		{"PATCH", "/v1/services/order", `{}`, 405, nil},
		{"BREW", "/v1/lanes", ``, 405, nil},
		{"PUT", "/v1/sessions/x", `{}`, 405, nil},
		{"GET", "/v1/tigers", ``, 404, nil},
		{"GET", "/", ``, 404, nil},
		{"GET", "/v1/lanes/green/extend/more", ``, 404, nil},
		{"GET", "/v1/services/%2e%2e", ``, 400, nil},
		{"GET", "/v1/services/a%2fb", ``, 400, nil},
		{"GET", "/v1/services/a%00b", ``, 400, nil},
		{"GET", "/v1/services?colour=red", ``, 422, nil},
		{"GET", "/v1/services?lane=red", ``, 422, nil},
		{"GET", "/v1/services?limit=0", ``, 422, nil},
		{"GET", "/v1/services?limit=%zz", ``, 400, nil},
		{"GET", "/v1/services?after=" + strings.Repeat("a", 20<<10), ``, 414, nil},
		{"GET", "/v1/watch", ``, 422, nil},
		{"GET", "/v1/watch?select=tigers", ``, 422, nil},
		{"GET", "/v1/watch?select=lanes:state=ready", ``, 422, nil},
		{"GET", "/v1/watch?select=lanes&from=-1", ``, 422, nil},
		{"GET", "/v1/explain?service=UP", ``, 422, nil},
		{"GET", "/v1/explain?service=order&color=ab", ``, 422, nil},
		{"POST", "/v1/explain/http", `{}`, 422, nil},
	}
	for _, c := range cases {
		var body any
		if c.body != "" {
			body = c.body
		}
		a := r.do(c.method, c.path, body, c.headers...)
		if a.status != c.status {
			t.Errorf("%s %s %.40s: %d, want %d: %s", c.method, c.path, c.body, a.status, c.status, a.body)
			continue
		}
		a.problem(t)
		if (c.status == 405) != (a.header.Get("Allow") != "") {
			t.Errorf("%s %s: Allow is %q", c.method, c.path, a.header.Get("Allow"))
		}
	}
}

func TestOnePathPerObject(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/order/", `{}`)
	for _, path := range []string{"/v1/services/order", "//v1///services/order/", "/v1/services/%6frder"} {
		r.must(http.StatusOK, nil, "GET", path, nil)
	}
	if a := r.must(http.StatusOK, nil, "HEAD", "/v1/services/order", nil); len(a.body) != 0 || a.header.Get("ETag") == "" {
		t.Errorf("HEAD: %q, %v", a.body, a.header)
	}
}

// TestNewerFieldsSurvive: what a newer version stored is shown, and stays when this
// version changes the object.
func TestNewerFieldsSurvive(t *testing.T) {
	t.Parallel()
	r := start(t)
	raw := `{"name":"order","owner":"ann","mood":"good","endpoints":[{"protocol":"http","tls":true},{"protocol":"grpc"}],"check":{"path":"/","protocol":"http","jitter":"1s"}}`
	put := func(key, value string) {
		t.Helper()
		if res, err := r.store.Do(t.Context(), store.Txn{Ops: []store.Op{{Key: key, Value: []byte(value)}}}); err != nil || !res.Done {
			t.Fatal(res, err)
		}
	}
	put("laneway/services/order", raw)
	var shown map[string]any
	r.must(http.StatusOK, &shown, "GET", "/v1/services/order", nil)
	if shown["mood"] != "good" || shown["revision"] == nil {
		t.Errorf("shown: %v", shown)
	}
	r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/services/order", `{"mood":"bad"}`)
	r.must(http.StatusOK, &shown, "PUT", "/v1/services/order",
		`{"owner":"bob","endpoints":[{"protocol":"grpc"},{"protocol":"http"}],"check":{"path":"/up","protocol":"http"}}`)
	kv, _, _, err := r.store.Get(t.Context(), "laneway/services/order")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	_ = json.Unmarshal(kv.Value, &got)
	_ = json.Unmarshal([]byte(`{"name":"order","owner":"bob","mood":"good","endpoints":[{"protocol":"grpc"},{"protocol":"http","tls":true}],"check":{"path":"/up","protocol":"http","jitter":"1s"}}`), &want)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("stored:\n%v, want\n%v", got, want)
	}
	// The life of a lane keeps them, too.
	put("laneway/lanes/blue", `{"name":"blue","generation":4,"state":"ready","ttl":"72h","expires":"2099-01-01T00:00:00Z","mood":"good"}`)
	r.must(http.StatusOK, &shown, "POST", "/v1/lanes/blue/hold", `{"held":true}`)
	if shown["mood"] != "good" || shown["held"] != true || shown["generation"] != 4.0 {
		t.Errorf("held: %v", shown)
	}
	// What cannot be read is left out, and said.
	put("laneway/routes/odd", `{"name":7}`)
	r.refuse(http.StatusNotFound, "GET", "/v1/routes/odd", nil)
	var st laneclient.Status
	r.must(http.StatusOK, &st, "GET", "/v1/status", nil)
	if st.OK || !strings.Contains(strings.Join(st.Problems, " "), "routes/odd") {
		t.Errorf("status: %v", st.Problems)
	}
}

func TestLists(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	for n := range 7 {
		lane := ""
		if n%2 == 0 {
			lane = "green"
		}
		for _, service := range []string{"order", "pay"} {
			r.must(http.StatusCreated, nil, "PUT", fmt.Sprintf("/v1/instances/%s/i%d", service, n), instanceBody(lane, "127.0.0.1:1"))
		}
	}
	names := func(query string) (list []string, next string) {
		t.Helper()
		var page laneclient.List
		r.must(http.StatusOK, &page, "GET", "/v1/instances?"+query, nil)
		for _, raw := range page.Items {
			var i laneclient.Instance
			if err := json.Unmarshal(raw, &i); err != nil {
				t.Fatal(err)
			}
			list = append(list, i.Service+"/"+i.Name)
		}
		if page.Items == nil || page.Revision == 0 {
			t.Errorf("page: %+v", page)
		}
		return list, page.Next
	}
	if got, _ := names(""); len(got) != 14 || !slices.IsSorted(got) {
		t.Errorf("all: %v", got)
	}
	if got, _ := names("lane=green&service=pay"); fmt.Sprint(got) != "[pay/i0 pay/i2 pay/i4 pay/i6]" {
		t.Errorf("filtered: %v", got)
	}
	if got, _ := names("lane=-&service=pay"); fmt.Sprint(got) != "[pay/i1 pay/i3 pay/i5]" {
		t.Errorf("baseline: %v", got)
	}
	if got, _ := names("service=nobody"); len(got) != 0 {
		t.Errorf("nobody: %v", got)
	}
	var all []string
	for after, pages := "", 0; ; pages++ {
		got, next := names("limit=4&lane=green&after=" + after)
		all = append(all, got...)
		if next == "" {
			if pages != 1 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
		after = next
	}
	if len(all) != 8 || !slices.IsSorted(all) {
		t.Errorf("paged: %v", all)
	}
}

func TestServiceWithInstancesStays(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/a", instanceBody("", "127.0.0.1:1"))
	r.must(http.StatusOK, nil, "GET", "/v1/services/order", nil)
	r.refuse(http.StatusConflict, "DELETE", "/v1/services/order", nil)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/instances/order/a", nil)
	r.must(http.StatusOK, nil, "GET", "/v1/services/order", nil)
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/services/order", nil)
}

func TestRuleStatusFollowsLanes(t *testing.T) {
	t.Parallel()
	r := start(t)
	var rule laneclient.Rule
	r.must(http.StatusCreated, &rule, "PUT", "/v1/rules/testers", `{"match":{"header":{"name":"x-user"}},"lanes":[{"lane":"green"}]}`)
	if rule.Status == "" || rule.Status == "ok" {
		t.Errorf("status of a rule for a lane that is not: %q", rule.Status)
	}
	w := r.watch("select=rules")
	w.want("put rules testers")
	w.want("synced")
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	e := w.want("put rules testers")
	if err := json.Unmarshal(e.Object, &rule); err != nil || rule.Status != "ok" {
		t.Errorf("status with the lane: %q (%v)", rule.Status, err)
	}
}

// What can never become right is refused with its field, and does not take the place of
// what is there.
func TestRuleThatCanNeverBeRight(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	const good = `{"match":{"path":"/"},"lanes":[{"lane":"green","percent":20}],"key":"header:x-user"}`
	r.must(http.StatusCreated, nil, "PUT", "/v1/rules/testers", good)
	for body, fields := range map[string][]string{
		`{"match":{"path":"/"},"lanes":[{"lane":"green","percent":200}]}`:  {"lanes[0].percent"},
		`{"match":{"path":"/"},"lanes":[{"lane":"green"}],"key":"x-user"}`: {"key"},
		`{"match":{"path":"/"},"lanes":[{"lane":"green","percent":0}]}`:    {"lanes[0].percent"},
		`{"match":{"path":"/"}}`:                                                                    {"lanes"},
		`{"lanes":[{"lane":"green"}]}`:                                                              {"match"},
		`{"match":{},"lanes":[{"lane":"green"}]}`:                                                   {"match"},
		`{"match":{"method":[]},"lanes":[{"lane":"green"}]}`:                                        {"match"},
		`{"match":{"source":"nowhere"},"lanes":[{"lane":"green"}]}`:                                 {"match.source"},
		`{"match":{"user":{"from":"x-user"}},"lanes":[{"lane":"Green"},{"lane":"a","percent":-1}]}`: {"lanes[0].lane", "lanes[1].percent", "match.user.from"},
	} {
		var p laneclient.Problem
		r.must(http.StatusUnprocessableEntity, &p, "PUT", "/v1/rules/testers", body)
		var got []string
		for _, f := range p.Errors {
			got = append(got, f.Field)
		}
		if !slices.Equal(got, fields) {
			t.Errorf("%s: mistakes in %q, want %q", body, got, fields)
		}
	}
	p := r.refuse(http.StatusUnprocessableEntity, "PUT", "/v1/rules/testers", `{"match":{"header":"x-try=blue"},"lanes":["blue"]}`)
	if text := p.Error(); !strings.Contains(text, "such as {name: x-try, value: blue}") || !strings.Contains(text, "such as {lane: blue}") {
		t.Errorf("what is no object is answered with %s", text)
	}
	var rule laneclient.Rule
	r.must(http.StatusOK, &rule, "GET", "/v1/rules/testers", nil)
	if rule.Status != "ok" || rule.Key != "header:x-user" {
		t.Errorf("the rule is %+v, want the good one", rule)
	}
}

func TestExplainHTTP(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/a", instanceBody("", "127.0.0.1:1"))
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/g", instanceBody("green", "127.0.0.1:2"))
	r.must(http.StatusCreated, nil, "PUT", "/v1/rules/testers", `{"match":{"header":{"name":"x-user","value":"ann"}},"lanes":[{"lane":"green"}]}`)
	cases := []struct {
		body                        string
		service, lane, rule, reason string
		instances                   int
	}{
		{`{"host":"order.lane.localhost"}`, "order", "", "", "plain", 1},
		{`{"host":"green--order.lane.localhost:7780","path":"/x"}`, "order", "green", "host", "lane-instance", 1},
		{`{"host":"order.lane.localhost","headers":{"X-User":["ann"]}}`, "order", "green", "header", "lane-instance", 1},
		{`{"host":"order.lane.localhost","headers":{"v-traffic-lane":["green"]}}`, "order", "", "", "plain", 1},
		{`{"host":"order.lane.localhost","headers":{"v-traffic-lane":["green"]},"trusted":true}`, "order", "green", "trusted", "lane-instance", 1},
		{`{"host":"order.lane.localhost","method":"POST","headers":{"content-type":["application/grpc"]}}`, "order", "", "", "none", 0},
		{`{"host":"nobody.example.com"}`, "", "", "", "none", 0},
	}
	for _, c := range cases {
		var e laneclient.Explanation
		r.must(http.StatusOK, &e, "POST", "/v1/explain/http", c.body)
		if e.Service != c.service || e.Lane != c.lane || e.Rule != c.rule || e.Reason != c.reason || len(e.Instances) != c.instances {
			t.Errorf("%s: %+v", c.body, e)
		}
		if (e.Reason == "none") != (e.Error != "") {
			t.Errorf("%s: error %q", c.body, e.Error)
		}
	}
}
