package control_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestActiveChecks: a static instance is in or out of routing by what a check finds,
// while its spec, revision and ETag stay as they were applied.
func TestActiveChecks(t *testing.T) {
	t.Parallel()
	r := start(t)
	var down atomic.Bool
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path != "/up" || down.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer srv.Close()
	address := strings.TrimPrefix(srv.URL, "http://")
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/order", `{"check":{"protocol":"http","path":"/up","interval":"500ms","failures":2}}`)
	const path = "/v1/instances/order/a"
	spec := instanceBody("", address)
	created := r.must(http.StatusCreated, nil, "PUT", path, spec)
	w := r.watch("select=instances:service=order")
	health := func(want string) {
		t.Helper()
		for {
			e := w.want("put instances order/a")
			var i laneclient.Instance
			if err := json.Unmarshal(e.Object, &i); err != nil {
				t.Fatal(err)
			}
			if i.Health == want {
				return
			}
			if i.Health != "" {
				t.Fatalf("health is %q, want %q", i.Health, want)
			}
			for e.Type != laneclient.EventSynced {
				e, _ = w.next()
				if e.Type == laneclient.EventPut {
					if err := json.Unmarshal(e.Object, &i); err != nil || i.Health != want {
						t.Fatalf("%+v %v", i, err)
					}
					return
				}
			}
		}
	}
	reason := func() string {
		var e laneclient.Explanation
		r.must(http.StatusOK, &e, "GET", "/v1/explain?service=order", nil)
		return e.Reason
	}
	health("passing")
	down.Store(true)
	r.until("the instance to be out", func() bool { return reason() == "none" })
	again := r.must(http.StatusOK, nil, "PUT", path, spec)
	if again.header.Get("ETag") != created.header.Get("ETag") {
		t.Errorf("applied again, its ETag is %s, was %s", again.header.Get("ETag"), created.header.Get("ETag"))
	}
	var i laneclient.Instance
	if again.into(t, &i); i.Health != laneclient.HealthFailing || i.State != "ready" {
		t.Errorf("%+v", i)
	}
	down.Store(false)
	r.until("the instance to be in", func() bool { return reason() == "plain" })
	// Without a check there is no result either.
	down.Store(true)
	r.until("the instance to be out", func() bool { return reason() == "none" })
	r.must(http.StatusOK, nil, "PUT", "/v1/services/order", `{}`)
	r.until("the instance to count again", func() bool { return reason() == "plain" })
}

func TestTCPChecks(t *testing.T) {
	t.Parallel()
	r := start(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	defer ln.Close()
	r.must(http.StatusCreated, nil, "PUT", "/v1/services/order", `{"check":{"interval":"500ms"}}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/up", instanceBody("", ln.Addr().String()))
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/down", instanceBody("", closed.Addr().String()))
	s := r.session(`{}`)
	r.must(http.StatusCreated, nil, "PUT", "/v1/instances/order/own", instanceBody("", closed.Addr().String()), laneclient.SessionHeader, s.Name)
	get := func(name string) (i laneclient.Instance) {
		r.must(http.StatusOK, &i, "GET", "/v1/instances/order/"+name, nil)
		return i
	}
	r.until("results", func() bool {
		return get("up").Health == laneclient.HealthPassing && get("down").Health == laneclient.HealthFailing
	})
	if h := get("own").Health; h != "" {
		t.Errorf("an instance with a session is checked: %q", h)
	}
	// The key of a result goes with its instance.
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/instances/order/down", nil)
	kvs, _, err := r.store.List(t.Context(), "laneway/health/", "", 0)
	if err != nil || len(kvs) != 1 {
		t.Errorf("results: %v %v", fmt.Sprint(kvs), err)
	}
}
