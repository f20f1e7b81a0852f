package control_test

import (
	"net/http"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestBodiesThatAreNoObject: only one JSON object creates or changes anything, at
// every path that takes one.
func TestBodiesThatAreNoObject(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"blue"}`)
	s := r.session(`{}`)
	var list laneclient.List
	r.must(http.StatusOK, &list, "GET", "/v1/services", nil)
	for _, at := range [][2]string{
		{"PUT", "/v1/lanes/green"},
		{"POST", "/v1/lanes"},
		{"POST", "/v1/lanes/blue/extend"},
		{"POST", "/v1/lanes/blue/hold"},
		{"PUT", "/v1/services/order"},
		{"PUT", "/v1/instances/order/a"},
		{"PUT", "/v1/routes/api"},
		{"PUT", "/v1/rules/testers"},
		{"POST", "/v1/sessions"},
		{"POST", "/v1/sessions/" + s.Name + "/renew"},
		{"POST", "/v1/explain/http"},
	} {
		for _, body := range []string{
			"null", " null\n", "[]", `[{"name":"green"}]`, "[null]", `""`, `"green"`, "7", "true", "", " ", "\n",
			"{} {}", "{}{", "{}]", "{},", "{}null", "{} x", "null{}", "[]{}",
		} {
			if p := r.refuse(http.StatusUnprocessableEntity, at[0], at[1], body); p.Detail == "" {
				t.Errorf("%s %s with %q: no detail", at[0], at[1], body)
			}
		}
		for _, body := range []string{"{", `{"a"`, "}", "x", "nul", `{"a":}`, "\x00"} {
			r.refuse(http.StatusBadRequest, at[0], at[1], body)
		}
	}
	// Elements that are null are no elements.
	for _, c := range [][2]string{
		{"/v1/services/order", `{"endpoints":[null]}`},
		{"/v1/instances/order/a", `{"endpoints":[{"protocol":"http","address":"127.0.0.1:1"},null]}`},
		{"/v1/rules/testers", `{"match":{"path":"/x","method":[null]},"lanes":[{"lane":"blue","percent":100}]}`},
		{"/v1/rules/testers", `{"match":{"path":"/x"},"lanes":[null]}`},
		{"/v1/instances/order/a", `{"labels":{"a":null}}`},
	} {
		r.refuse(http.StatusUnprocessableEntity, "PUT", c[0], c[1])
	}
	for kind, want := range map[string]int{"lanes": 1, "services": 0, "instances": 0, "routes": 0, "rules": 0, "sessions": 1} {
		r.must(http.StatusOK, &list, "GET", "/v1/"+kind, nil)
		if len(list.Items) != want {
			t.Errorf("%d %s are there, want %d", len(list.Items), kind, want)
		}
	}
	// A field that is null is one that is left out.
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/order", `{"owner":null,"endpoints":null}`)
}
