package control_test

import (
	"net/http"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestThrough walks the whole path once: session, lane, instance, watch, explain,
// renewal, and the end of the session.
func TestThrough(t *testing.T) {
	t.Parallel()
	r := start(t)
	s := r.session(`{"instance":"order/o2","role":"instance"}`)
	w := r.watch("select=instances:service=order&select=lanes", laneclient.SessionHeader, s.Name)
	w.want("synced")

	var l laneclient.Lane
	r.must(http.StatusCreated, &l, "POST", "/v1/lanes", `{"name":"green","owner":"ann"}`)
	if l.Generation != 1 || l.State != "creating" || l.Kind != "ordinary" {
		t.Errorf("created: %+v", l)
	}
	w.want("put lanes green")
	var i laneclient.Instance
	r.must(http.StatusCreated, &i, "PUT", "/v1/instances/order/o2", instanceBody("green", "127.0.0.1:80"), laneclient.SessionHeader, s.Name)
	if i.Generation != 1 || i.State != "ready" || i.Session != s.Name || i.Static || i.Weight != 1 {
		t.Errorf("registered: %+v", i)
	}
	w.want("put instances order/o2")
	w.want("put lanes green") // ready

	var e laneclient.Explanation
	r.must(http.StatusOK, &e, "GET", "/v1/explain?service=order&color=green", nil)
	if e.Reason != "lane-instance" || len(e.Instances) != 1 || e.Instances[0].Name != "o2" || e.Revision == 0 {
		t.Errorf("explained: %+v", e)
	}
	var renewed laneclient.Renewed
	r.must(http.StatusOK, &renewed, "POST", "/v1/sessions/"+s.Name+"/renew", laneclient.Renewal{Reached: e.Revision, Lanes: []string{"green"}})
	if renewed.Revision < e.Revision {
		t.Errorf("renewal is answered with %d, before %d", renewed.Revision, e.Revision)
	}
	w.want("put lanes green") // used
	r.must(http.StatusNoContent, nil, "DELETE", "/v1/sessions/"+s.Name, nil)
	w.want("delete instances order/o2")
	r.must(http.StatusOK, &e, "GET", "/v1/explain?service=order&color=green", nil)
	if e.Reason != "none" || e.Error == "" {
		t.Errorf("explained after the end: %+v", e)
	}
}
