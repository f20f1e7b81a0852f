package deploy

import (
	"testing"

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
