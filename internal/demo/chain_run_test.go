package demo

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanetest"
)

func TestMain(m *testing.M) { os.Exit(lanetest.CheckMain(m)) }

// queue is an engine and a registry of its consumers, both in memory, for all services.
type queue struct {
	engine   *consume.Memory
	registry *consume.MemoryRegistry
}

func newQueue(t *testing.T) *queue {
	t.Helper()
	q := &queue{consume.NewMemory(consume.MemoryConfig{}), consume.NewMemoryRegistry(consume.MemoryRegistryConfig{})}
	t.Cleanup(func() { _ = q.engine.Close() })
	if err := q.registry.CreateLane(Green, ""); err != nil {
		t.Fatal(err)
	}
	return q
}

// shared is an engine that one service does not close for all.
type shared struct{ *consume.Memory }

func (shared) Close() error { return nil }

// of is what a service gets.
func (q *queue) of(i Instance) func(context.Context, *laneclient.Client) (Messages, error) {
	return func(context.Context, *laneclient.Client) (Messages, error) {
		return Messages{shared{q.engine}, q.registry.ConnectAs(consume.MemoryIdentity{Lane: i.Lane, Instance: i.Name})}, nil
	}
}

// startService runs one instance until the test ends, and returns when it serves.
func startService(t *testing.T, control *lanetest.Control, q *queue, i Instance) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String()
	client := control.Config()
	client.Service, client.Instance, client.Lane = i.Service, i.Name, string(i.Lane)
	client.Endpoints = []laneclient.Endpoint{{Protocol: i.Protocol, Address: address}}
	serving := make(chan struct{})
	if i.Protocol == Queue {
		_ = listener.Close()
		client.Endpoints, client.NoListen = nil, true
		close(serving) // messages wait
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		err := Run(ctx, Config{Client: client, Messages: q.of(i), Listen: func(context.Context) (net.Listener, error) {
			close(serving)
			return listener, nil
		}})
		if err != nil {
			t.Errorf("%s: %v", i.Name, err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	deadline, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	select {
	case <-serving:
	case <-deadline.Done():
		t.Fatalf("%s does not serve", i.Name)
	}
	return address
}

// TestChain runs all services in this process, on a control plane in memory, without
// a gateway: a colored request is sent to A1.
func TestChain(t *testing.T) {
	control := lanetest.NewControl(t)
	control.AddLane(string(Green))
	q := newQueue(t)
	entry := ""
	all := Instances()
	for _, i := range slices.Backward(all) {
		address := startService(t, control, q, i)
		if i.Name == "A1" {
			entry = address
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	for _, color := range []lane.Name{Green, lane.Baseline} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+entry+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		lane.Inject(req.Header, color)
		req.Header.Set(lane.ExplainHeader, "1")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		route := Route{Color: color}
		err = json.NewDecoder(resp.Body).Decode(&route.Reply)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(route.Visits) > 0 {
			route.Visits[0].Reason = Promised(color)[0].Reason // which is for the gateway to say
		}
		for _, fault := range Judge(route) {
			t.Error(fault)
		}
		// The SDK's own lines say the same of every call, over all protocols and the queue.
		lines := resp.Header.Values(lane.RouteHeader)
		if len(lines) != len(Chain())-1 {
			t.Fatalf("got %d route lines, want one for each call: %q", len(lines), lines)
		}
		for n, line := range lines {
			hop, err := lane.ParseHop(line)
			if err != nil {
				t.Fatal(err)
			}
			if want := Promised(color)[n+1]; hop.Instance != want.Instance || hop.Lane != want.Lane || hop.Reason != want.Reason {
				t.Errorf("line %d: got %q, want %s", n+1, line, want)
			}
		}
	}
}
