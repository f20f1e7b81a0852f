package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/internal/store/etcd/etcdtest"
)

// statusReport is what a test looks at of `laneway status -o json`.
type statusReport struct {
	OK       bool
	Problems []string
	Nodes    []struct {
		Name, Role, Address, Fault string
		Asked, OK                  bool
		Revision                   uint64
	}
}

// TestStatusOfEveryNode stops a process: status asks each one and says which is not
// well.
func TestStatusOfEveryNode(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "admin", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	status := func(want int) (r statusReport) {
		t.Helper()
		out, stderr, got := s.cli(t, "status", "-o", "json")
		if got != want {
			t.Errorf("exit status %d, want %d: %s%s", got, want, out, stderr)
		}
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	well := map[string]bool{}
	for _, n := range status(0).Nodes {
		well[n.Role] = n.Asked && n.OK && n.Revision > 0
	}
	for _, role := range []string{"control", "gateway", "run", "instance"} {
		if !well[role] {
			t.Errorf("%v are well, want a node of role %s among them", well, role)
		}
	}

	child := p.child(t)
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(child, syscall.SIGCONT) }()
	r := status(1)
	if len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0], "order/o1 at ") || !strings.Contains(r.Problems[0], "no answer") {
		t.Errorf("got %q, want o1 alone", r.Problems)
	}
}

// TestStatusOfReplicas takes one of two control planes away.
func TestStatusOfReplicas(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--registry", "mem")
	both := s.url() + ",http://127.0.0.1:1"
	out, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + both}, "", "status")
	if status != 1 || !strings.Contains(out, "no answer") || !strings.Contains(out, "127.0.0.1:1") {
		t.Errorf("exit status %d, want 1 and word of the second: %s%s", status, out, stderr)
	}
}

// TestStatusOfUnnamedReplicas names one of two replicas: it tells where the other is.
func TestStatusOfUnnamedReplicas(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartPlain(t, 1)
	s := startServer(t, "--registry", etcdURL(t, c))
	other := startServer(t, "--registry", etcdURL(t, c))
	poll(t, time.Minute, func() error {
		out, stderr, _ := s.cli(t, "status", "-o", "json")
		var r statusReport
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		well := map[string]bool{}
		for _, n := range r.Nodes {
			if n.Role == "control" {
				well[n.Address] = n.Asked && n.OK && n.Revision > 0
			}
		}
		if len(well) != 2 || !well[s.addresses["control"]] || !well[other.addresses["control"]] {
			return fmt.Errorf("want both replicas well: %s", out)
		}
		return nil
	})
}

// TestLaneShowURL follows the address that lane show gives.
func TestLaneShowURL(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "http", nil, "--service", "order", "--instance", "o1", "--lane", "green")
	s.registered(t, "order", "o1")
	want := "http://green--order.lane.localhost:" + port(s.addresses["gateway"]) + "/"
	if out := s.must(t, "lane", "show", "green"); !strings.Contains(out, want) {
		t.Errorf("no %s in\n%s", want, out)
	}
	poll(t, 10*time.Second, func() error {
		r, err := s.ask(t, "green--order.lane.localhost:"+port(s.addresses["gateway"]))
		if err == nil && r.Instance != "o1" {
			err = fmt.Errorf("got %s, want o1", r.Instance)
		}
		return err
	})
}

// TestStatusOfObjects has a rule for a lane that is not there, a rule that no gateway has
// the keys for, and a static instance that does not answer: each needs attention.
func TestStatusOfObjects(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "lane", "create", "green")
	s.must(t, "status")
	const objects = `{kind: services, name: price, check: {interval: 500ms}}
---
{kind: instances, service: price, name: p1, endpoints: [{protocol: http, address: "127.0.0.1:1"}]}
---
{kind: rules, name: nolane, match: {path: /}, lanes: [{lane: bleu}]}
---
{kind: rules, name: nokey, match: {user: {from: "jwt:sub"}}, lanes: [{lane: green}]}
---
{kind: rules, name: well, match: {path: /}, lanes: [{lane: green}]}
`
	if stderr, status := s.applies(t, objects); status != 0 {
		t.Fatal(stderr)
	}
	poll(t, 30*time.Second, func() error {
		out, stderr, status := s.cli(t, "status")
		for _, want := range []string{
			"3, 2 not ok", "1, 1 failing", "rule nolane does not do what it says: lanes[0]: there is no lane bleu",
			"rule nokey does not do what it says: match.user.from: the gateway has no key", "instance price/p1 fails its check",
		} {
			if !strings.Contains(out, want) || status != 1 {
				return fmt.Errorf("exit status %d, want 1 and %q: %s%s", status, want, out, stderr)
			}
		}
		return nil
	})
	for _, args := range [][]string{{"rule", "delete", "nolane", "nokey"}, {"instance", "delete", "price/p1"}} {
		s.must(t, args...)
	}
	poll(t, 30*time.Second, func() error {
		out, stderr, status := s.cli(t, "status")
		if status != 0 {
			return fmt.Errorf("exit status %d, want 0: %s%s", status, out, stderr)
		}
		return nil
	})
}
