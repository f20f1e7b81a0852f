package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// What is asked of the control plane is answered as the gateway routes, which has
// header names of its own configuration.
func TestExplainKnowsTheGateway(t *testing.T) {
	t.Parallel()
	config := filepath.Join(t.TempDir(), "server.yaml")
	if err := os.WriteFile(config, []byte("gateway: {aliases: [x-env]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--config", config)
	s.must(t, "lane", "create", "green")
	const objects = "kind: instances\nname: fixed\nservice: order\nendpoints: [{protocol: http, address: \"127.0.0.1:1\"}]\n"
	if _, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, objects, "apply", "-f", "-"); status != 0 {
		t.Fatal(stderr)
	}
	poll(t, 10*time.Second, func() error { // until the gateway has it
		var e laneclient.Explanation
		out := s.must(t, "explain", "http", "--host", "order", "--inside", "--header", "x-env=green", "-o", "json")
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			return err
		}
		if e.Color != "green" || e.Rule != "trusted" || e.Note != "" || e.Service != "order" {
			return fmt.Errorf("%s: want green by an alias of the gateway", out)
		}
		return nil
	})
}

// Every process answers by its own view: the gateway, `laneway run`, and programs with
// the SDK, as those of the demo.
func TestExplainAtEveryNode(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "http", nil, "--service", "plain", "--instance", "p1", "--lane", "green")
	s.registered(t, "plain", "p1")
	s.runService(t, "admin", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	sessions := func(instance string) (out []laneclient.Session) {
		service, name, _ := strings.Cut(instance, "/")
		for _, one := range s.sessions(t, service, name) {
			if one.Admin == "" {
				t.Errorf("session %+v has no admin address", one)
			}
			out = append(out, one)
		}
		return out
	}
	if n := len(sessions("plain/p1")); n != 1 {
		t.Errorf("%d sessions of p1, want that of run", n)
	}
	if n := len(sessions("order/o1")); n != 2 {
		t.Errorf("%d sessions of o1, want that of run and its own", n)
	}
	for _, at := range []string{"gateway", "plain/p1", "o1", sessions("plain/p1")[0].Admin} {
		var e laneclient.Explanation
		out := s.must(t, "explain", "call", "--service", "plain", "--color", "green", "--at", at, "-o", "json")
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			t.Fatal(err)
		}
		node := strings.TrimPrefix(at, "plain/")
		if e.Reason != "lane-instance" || len(e.Instances) != 1 || e.Instances[0].Name != "p1" || (node == "p1" || node == "o1") && e.Node != node {
			t.Errorf("--at %s: %s, want p1 in green", at, out)
		}
	}
}

// A request that is not colored is told which rules were passed over and why.
func TestExplainSaysWhyNot(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "lane", "create", "blue")
	const objects = `{kind: instances, name: fixed, service: order, endpoints: [{protocol: http, address: "127.0.0.1:1"}]}
---
{kind: rules, name: by-header, match: {header: {name: x-try, value: blue}}, lanes: [{lane: blue}]}
---
{kind: rules, name: fifth, match: {path: /}, key: "header:x-user", lanes: [{lane: blue, percent: 0.01}]}
`
	if stderr, status := s.applies(t, objects); status != 0 {
		t.Fatal(stderr)
	}
	want := []laneclient.PassedRule{
		{Name: "by-header", Reason: `header x-try is "blu", not "blue"`},
		{Name: "fifth", Reason: `header x-user "1" is not in the 0.01 % of lane blue`},
	}
	ask := []string{"explain", "http", "--host", "order.lane.localhost", "--header", "x-user=1", "--header", "x-try=blu", "--header", "v-traffic-lane=blue"}
	poll(t, 10*time.Second, func() error { // until the gateway has it
		var e laneclient.Explanation
		out := s.must(t, append(ask, "-o", "json")...)
		if err := json.Unmarshal([]byte(out), &e); err != nil {
			return err
		}
		if e.Color != "" || !slices.Equal(e.PassedOver, want) || e.Dropped == "" {
			return fmt.Errorf("%s: want %v, and why the color is not believed", out, want)
		}
		return nil
	})
	table := s.must(t, ask...)
	for _, p := range want {
		if !strings.Contains(table, p.Name+": "+p.Reason+"\n") {
			t.Errorf("no %s: %s in\n%s", p.Name, p.Reason, table)
		}
	}
	if !strings.Contains(table, "a color came with the request") {
		t.Errorf("nothing of the color that came along in\n%s", table)
	}
}
