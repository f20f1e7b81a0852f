package laneclient_test

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/lanetest"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestAdminListen(t *testing.T) {
	c := lanetest.NewControl(t)
	c.AddInstance("pay", "p1", "", "127.0.0.1:2")
	cfg := order(c, "")
	cfg.AdminListen = "127.0.0.1:0"
	lc := dial(t, cfg)
	api := laneclient.NewAPI(c.Config())
	defer api.Close()
	session, err := laneclient.Get[laneclient.Session](t.Context(), api, lc.Status().Session)
	if err != nil || session.Admin != lc.Admin() || strings.HasSuffix(session.Admin, ":0") {
		t.Fatalf("session is %+v (%v), want it to tell of %s", session, err, lc.Admin())
	}
	node := laneclient.NewAPI(laneclient.Config{Control: []string{"http://" + session.Admin}})
	defer node.Close()
	// It has not called pay yet: it learns of it to answer.
	e, err := laneclient.ExplainCall(t.Context(), node, "pay", "", "")
	if err != nil || e.Node != "o1" || len(e.Instances) != 1 || e.Instances[0].Name != "p1" {
		t.Errorf("explanation is %+v (%v), want p1 by the view of o1", e, err)
	}

	var p *laneclient.Problem
	if err := node.Do(t.Context(), http.MethodPost, "/v1/explain/http", laneclient.HTTPRequest{Host: "x"}, nil); !errors.As(err, &p) || !strings.Contains(p.Detail, "is no gateway") {
		t.Errorf("explain http: %v, want that it is no gateway", err)
	}
	var health laneclient.NodeHealth
	err = node.Do(t.Context(), http.MethodGet, "/healthz", nil, &health)
	if err != nil || !health.OK || health.Node != "o1" || health.Revision != lc.View().Revision || !health.StaleSince.IsZero() || time.Since(health.Time).Abs() > time.Minute {
		t.Errorf("health is %+v (%v)", health, err)
	}

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+session.Admin+"/v1/explain?service=pay", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "page.example.com"
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("got %s under a stranger's name, want it refused", resp.Status)
	}

	if err := lc.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := net.DialTimeout("tcp", session.Admin, 5*time.Second); err == nil {
		_ = conn.Close()
		t.Error("it listens after Close")
	}
}

// TestAdminListenIsBounded opens more connections than it takes: they wait, and have
// their turn.
func TestAdminListenIsBounded(t *testing.T) {
	c := lanetest.NewControl(t)
	cfg := c.Config()
	cfg.AdminListen = "127.0.0.1:0"
	lc := dial(t, cfg)
	idle := make([]net.Conn, 40)
	for n := range idle {
		conn, err := net.Dial("tcp", lc.Admin())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		idle[n] = conn
	}
	answer := make(chan error, 1)
	go func() {
		node := laneclient.NewAPI(laneclient.Config{Control: []string{"http://" + lc.Admin()}})
		answer <- node.Do(t.Context(), http.MethodGet, "/healthz", nil, nil)
		_ = node.Close()
	}()
	for _, conn := range idle {
		_ = conn.Close()
	}
	if err := <-answer; err != nil {
		t.Errorf("no answer once there is room: %v", err)
	}
}

func TestAdminListenIsForThisMachine(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:0": "", "[::1]:0": "", "localhost:80": "",
		":0": "AdminListen", "0.0.0.0:0": "AdminListen", "10.0.0.1:1": "AdminListen", "127.0.0.1": "AdminListen", "example.com:1": "AdminListen",
	} {
		cfg := laneclient.Config{AdminListen: address}
		err := cfg.Validate()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", address, err, want)
		}
	}
	cfg := laneclient.Config{AdminListen: "127.0.0.1:0", Admin: "127.0.0.1:1"}
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "leave out one") {
		t.Errorf("got %v for both", err)
	}
}
