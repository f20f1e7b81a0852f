package control_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// askedGateway is the admin address of a gateway that answers with its name.
func askedGateway(t *testing.T, name string) (address string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		var in laneclient.HTTPRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/explain/http" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		_ = json.NewEncoder(w).Encode(laneclient.Explanation{Service: in.Host, Color: in.Query, Node: name, Reason: "plain"})
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), asked
}

func (r *replica) gateway(role, host, admin string) {
	r.t.Helper()
	r.session(laneclient.Session{Role: role, Host: host, Admin: admin})
}

func (r *replica) explainHTTP() laneclient.Explanation {
	r.t.Helper()
	var e laneclient.Explanation
	r.must(http.StatusOK, &e, "POST", "/v1/explain/http", `{"host":"order.lane.localhost","query":"blue"}`)
	return e
}

// What a gateway does is asked of a gateway: it alone has its keys and aliases.
func TestExplainHTTPAsksAGateway(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t)
	e := r.explainHTTP()
	self := e.Node
	if self != r.c.Node() || !strings.Contains(e.Note, "no gateway") {
		t.Errorf("without a gateway: %+v", e)
	}
	other, asked := askedGateway(t, "not one")
	r.gateway("instance", host, other)
	r.gateway("gateway", host+"-other", other) // its loopback is not ours
	r.gateway("gateway", host, "192.0.2.1:80") // nobody sends us about the network
	if e := r.explainHTTP(); e.Node != self || e.Note == "" || asked.Load() != 0 {
		t.Errorf("with others only: %+v, asked %d times", e, asked.Load())
	}
	address, asked := askedGateway(t, "gw")
	r.gateway("gateway", host, address)
	if e := r.explainHTTP(); e.Node != "gw" || e.Note != "" || e.Service != "order.lane.localhost" || e.Color != "blue" || asked.Load() != 1 {
		t.Errorf("with a gateway: %+v, asked %d times", e, asked.Load())
	}
	// What is no request to explain bothers no gateway.
	r.refuse(http.StatusUnprocessableEntity, "POST", "/v1/explain/http", `{"host":"a","source":"nowhere"}`)
	if asked.Load() != 1 {
		t.Error("a mistake was forwarded")
	}
}

func TestExplainHTTPOutlivesItsGateways(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t)
	stuck := make(chan struct{})
	answers := map[string]http.HandlerFunc{
		"stuck":   func(http.ResponseWriter, *http.Request) { <-stuck },
		"no view": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"no JSON": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"moved":   func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, "/", http.StatusTemporaryRedirect) },
	}
	for _, handler := range answers {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		r.gateway("gateway", host, s.Listener.Addr().String())
	}
	t.Cleanup(func() { close(stuck) }) // before the servers close
	r.gateway("gateway", host, "127.0.0.1:1")
	began := time.Now()
	if e := r.explainHTTP(); !strings.Contains(e.Note, "could not be asked") || e.Node == "" {
		t.Errorf("answer: %+v", e)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("took %v, want about 2 s at most", took)
	}
}

// A session can name the control plane itself: the question then ends there.
func TestExplainHTTPAsksNobodyTwice(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r := start(t)
	calls := atomic.Int64{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		calls.Add(1)
		r.c.Handler().ServeHTTP(w, q)
	}))
	t.Cleanup(s.Close)
	r.gateway("gateway", host, s.Listener.Addr().String())
	if e := r.explainHTTP(); e.Reason == "" || calls.Load() != 1 {
		t.Errorf("%+v after %d calls", e, calls.Load())
	}
}
