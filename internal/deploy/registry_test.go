package deploy

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

// A page of a list is not the list: all sessions of the instance end, and no other.
func TestLeaveEndsAllSessions(t *testing.T) {
	c := lanetest.NewControl(t)
	api := c.API()
	open := func(instance string) {
		if _, err := laneclient.OpenSession(t.Context(), api, &laneclient.Session{Instance: instance, TTL: laneclient.Duration(laneclient.MaxTTL)}); err != nil {
			t.Fatal(err)
		}
	}
	const own = 1005
	for range own {
		open("order/o1")
	}
	open("order/o2")
	cfg := c.Config()
	r := newRegistry(&Process{Control: cfg.Control, Transport: cfg.Transport, Service: "order", Instance: "o1"})
	if err := r.leave(); err != nil {
		t.Fatal(err)
	}
	left, _, err := laneclient.ListAll[laneclient.Session](t.Context(), api, laneclient.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 1 || left[0].Instance != "order/o2" {
		t.Errorf("%d sessions are left, want that of order/o2 alone", len(left))
	}
}

// Views are waited for where one may have chosen the instance: not where it does not listen.
func TestWithdraw(t *testing.T) {
	c := lanetest.NewControl(t)
	cfg := c.Config()
	over := make(chan struct{})
	close(over)
	for name, noListen := range map[string]bool{"server": false, "consumer": true} {
		s := &supervisor{
			cfg: Process{
				Service: "order", Instance: name, NoListen: noListen, Control: cfg.Control, Transport: cfg.Transport,
				Log: slog.New(slog.DiscardHandler),
			},
			registered: make(chan struct{}), exited: make(chan struct{}),
		}
		s.reg = newRegistry(&s.cfg)
		var endpoints []laneclient.Endpoint
		if !noListen {
			endpoints = []laneclient.Endpoint{{Protocol: "http", Address: "127.0.0.1:1"}}
		}
		if chosen := s.withdraw(nil); chosen {
			t.Errorf("%s: chosen before it was registered", name)
		}
		if chosen := s.withdraw(&joining{cancel: func() {}, done: over}); chosen == noListen {
			t.Errorf("%s: chosen %t while it registers", name, chosen)
		}
		if err := s.reg.join(t.Context(), endpoints); err != nil {
			t.Fatal(err)
		}
		close(s.registered)
		if chosen := s.withdraw(nil); chosen == noListen {
			t.Errorf("%s: chosen %t once it is registered", name, chosen)
		}
		var now laneclient.Instance
		if err := c.API().Do(t.Context(), http.MethodGet, "/v1/instances/order/"+name, nil, &now); err != nil || now.State != string(lane.Draining) {
			t.Errorf("%s is %q, %v, want draining", name, now.State, err)
		}
		if err := s.reg.leave(); err != nil {
			t.Error(err)
		}
	}
}
