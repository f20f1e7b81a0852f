package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestAskNodes(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var sessions []laneclient.Session
	node := func(role, instance, on string, h laneclient.NodeHealth) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(h) }))
		t.Cleanup(server.Close)
		sessions = append(sessions, laneclient.Session{Role: role, Instance: instance, Host: on, Admin: strings.TrimPrefix(server.URL, "http://")})
	}
	well := laneclient.NodeHealth{Health: laneclient.Health{OK: true}, Revision: 7, Time: time.Now()}
	stale, late, unready := well, well, well
	stale.Roles = []laneclient.RoleStatus{{Role: "run", Ready: true, Reason: "the view is stale"}}
	late.Time = time.Now().Add(-time.Hour)
	unready.OK = false
	unready.Roles = []laneclient.RoleStatus{{Role: "gateway", Reason: "has no view"}}
	node(laneclient.RoleRun, "order/stale", host, stale)
	node(laneclient.RoleInstance, "order/late", host, late)
	node(laneclient.RoleGateway, "", host, unready)
	node(laneclient.RoleRun, "order/elsewhere", "another-host", well)
	node(laneclient.RoleRun, "order/well", host, well)
	sessions = append(sessions,
		laneclient.Session{Role: laneclient.RoleRun, Instance: "order/gone", Host: host, Admin: "127.0.0.1:1"},
		laneclient.Session{Role: laneclient.RoleClient, Host: host})

	nodes := nodesOf(sessions)
	askNodes(t.Context(), nodes, 0)
	var got []string
	for _, n := range nodes {
		got = append(got, fmt.Sprintf("%s %v %v %s", n.Name, n.Asked, n.OK, n.Fault))
	}
	want := []string{
		"gateway true false has no view",
		"order/elsewhere false false not asked: it listens",
		"order/gone true false no answer: ",
		"order/late true false its clock is off by -1h0m0",
		"order/stale true false the view is stale",
		"order/well true true ",
	}
	if len(got) != len(want) {
		t.Fatalf("got %d nodes: %s", len(got), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("got %q, want %q", got[i], want[i])
		}
	}
	// Where the control plane's clock is as much off, it is this machine's that is wrong.
	nodes = nodesOf(sessions[1:2])
	if askNodes(t.Context(), nodes, -time.Hour); !nodes[0].OK {
		t.Errorf("got %+v, want it well", nodes[0])
	}
}

func TestNodesAreBounded(t *testing.T) {
	sessions := make([]laneclient.Session, maxAsked+5)
	for i := range sessions {
		sessions[i] = laneclient.Session{Role: laneclient.RoleRun, Instance: fmt.Sprintf("order/o%d", i), Host: "h", Admin: "192.0.2.1:1"}
	}
	sessions[len(sessions)-1] = laneclient.Session{Role: laneclient.RoleGateway, Host: "h", Admin: "192.0.2.1:1"}
	nodes := nodesOf(sessions)
	asked := 0
	for _, n := range nodes {
		if n.Asked {
			asked++
		}
	}
	if asked != maxAsked || nodes[0].Role != laneclient.RoleGateway || !strings.Contains(nodes[maxAsked].Fault, "more than") {
		t.Errorf("%d are asked, %+v first and %+v not; want %d, gateways first", asked, nodes[0], nodes[maxAsked], maxAsked)
	}
}

func TestEdgeOf(t *testing.T) {
	for listen, want := range map[string]string{
		"":                        "green--x.example.com",
		"http://127.0.0.1:7780":   "http://green--x.example.com:7780/",
		"http://[::]:80":          "http://green--x.example.com/",
		"https://10.0.0.1:443":    "https://green--x.example.com/",
		"https://127.0.0.1:18443": "https://green--x.example.com:18443/",
	} {
		nodes := []nodeStatus{{}, {Listen: map[string]string{"gateway": listen}}}
		if got := edgeOf("green--x.example.com", nodes); got != want {
			t.Errorf("a gateway at %q: got %s, want %s", listen, got, want)
		}
	}
}
