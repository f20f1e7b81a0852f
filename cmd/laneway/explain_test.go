package main

import (
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestAdminOf(t *testing.T) {
	session := func(id, role, instance, admin string) laneclient.Session {
		return laneclient.Session{Meta: laneclient.Meta{Name: id}, Role: role, Instance: instance, Admin: admin, Host: "here"}
	}
	sessions := []laneclient.Session{
		session("s1", laneclient.RoleGateway, "", "127.0.0.1:1"),
		session("s2", laneclient.RoleRun, "order/o1", "127.0.0.1:2"),
		session("s3", laneclient.RoleInstance, "order/o1", "127.0.0.1:3"),
		session("s4", laneclient.RoleRun, "pay/p1", "127.0.0.1:4"),
		session("s5", laneclient.RoleInstance, "pay/p1", ""),
		session("s6", laneclient.RoleRun, "mail/p1", "127.0.0.1:6"),
		session("s7", laneclient.RoleClient, "", ""),
	}
	for node, want := range map[string]string{
		"s1": "127.0.0.1:1", "gateway": "127.0.0.1:1",
		"order/o1": "127.0.0.1:3", "o1": "127.0.0.1:3", "s2": "127.0.0.1:2", "s3": "127.0.0.1:3",
		"pay/p1": "127.0.0.1:4", "mail/p1": "127.0.0.1:6", // those without an address of their own
		"p1": "names 2 nodes", "run": "names 3 nodes", "here": "names 4 nodes", "s7": "no node",
	} {
		got, err := adminOf(node, sessions)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("adminOf(%q) = %q, want %q", node, got, want)
		}
	}
}

// Every way to ask takes --at, or its help says who answers.
func TestExplainSaysWhoAnswers(t *testing.T) {
	a := &app{}
	for _, c := range newExplainCommand(a).Commands() {
		if c.Flags().Lookup("at") == nil && !strings.Contains(c.Long, "no --at NODE here") {
			t.Errorf("explain %s has no --at, and its help does not say who answers", c.Name())
		}
	}
}
