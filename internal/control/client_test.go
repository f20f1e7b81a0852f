package control_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/control"
	"github.com/laneway-dev/laneway/internal/store/etcd"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// TestClient holds the API against the client that everybody uses, over the storage
// that everybody uses: a lane's instance joins, gets calls, and leaves.
func TestClient(t *testing.T) {
	t.Parallel()
	s, err := etcd.Open(t.Context(), etcd.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := startOver(t, s, control.Config{})
	defer r.stop()
	r.must(http.StatusCreated, nil, "POST", "/v1/lanes", `{"name":"green"}`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	dial := func(cfg laneclient.Config) *laneclient.Client {
		t.Helper()
		cfg.Transport = laneclient.InMemory(r.c.Handler())
		c, err := laneclient.Dial(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	web := func(port string) []laneclient.Endpoint {
		return []laneclient.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:" + port}}
	}
	dial(laneclient.Config{Service: "order", Instance: "o1", Endpoints: web("1")})
	o2 := dial(laneclient.Config{Service: "order", Instance: "o2", Lane: "green", Endpoints: web("2")})
	caller := dial(laneclient.Config{})
	if err := caller.Need(ctx, "order"); err != nil {
		t.Fatal(err)
	}
	serves := func() string {
		c := lane.Pick(caller.Snapshot(), "order", "green", lane.HTTP)
		if len(c.Targets) != 1 {
			return ""
		}
		return c.Targets[0].Name
	}
	r.until("the lane's instance to serve", func() bool { return serves() == "o2" })
	caller.Used("green")
	r.until("the use to be noted", func() bool { return !r.lane("green").LastUse.IsZero() })
	if err := o2.Close(); err != nil {
		t.Error(err)
	}
	r.until("the baseline to serve", func() bool { return serves() == "o1" })

	// A session that is not renewed takes its instance with it, and one that was
	// bound anew stays.
	lost, kept := r.session(`{"ttl":"5s"}`), r.session(`{"ttl":"60s"}`)
	for _, name := range []string{"x", "y"} {
		r.must(http.StatusCreated, nil, "PUT", "/v1/instances/pay/"+name, instanceBody("", "127.0.0.1:3"), laneclient.SessionHeader, lost.Name)
	}
	r.must(http.StatusOK, nil, "PUT", "/v1/instances/pay/y", instanceBody("", "127.0.0.1:3"), laneclient.SessionHeader, kept.Name)
	w := r.watch("select=instances:service=pay")
	w.want("put instances pay/x")
	w.want("put instances pay/y")
	w.want("synced")
	w.want("delete instances pay/x")
	r.must(http.StatusOK, nil, "GET", "/v1/instances/pay/y", nil)
	r.refuse(http.StatusNotFound, "GET", "/v1/sessions/"+lost.Name, nil)
}
