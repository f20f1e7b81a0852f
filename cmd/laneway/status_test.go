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

func TestReach(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		host, address, here string
		want                string // empty: not asked
	}{
		"loopback":                    {"a", "127.0.0.1:7700", "a", "127.0.0.1:7700"},
		"loopback of another":         {"b", "127.0.0.1:7700", "a", ""},
		"loopback and no host":        {"", "[::1]:7700", "", ""},
		"an address":                  {"b", "192.0.2.1:7700", "a", "192.0.2.1:7700"},
		"a name":                      {"b", "control:7700", "a", "control:7700"},
		"every address":               {"a", "0.0.0.0:7700", "a", "localhost:7700"},
		"every address of another":    {"b", "[::]:7700", "a", "b:7700"},
		"every address, host unknown": {"b", "0.0.0.0:7700", "", "b:7700"},
	} {
		t.Run(name, func(t *testing.T) {
			n := nodeStatus{Host: tt.host, Address: tt.address}
			n.reach(tt.here)
			if n.Asked != (tt.want != "") || n.Asked && n.Address != tt.want || n.Asked != (n.Fault == "") {
				t.Errorf("got %+v, want %q", n, tt.want)
			}
		})
	}
}

// TestAskReplicas has one replica named and five known to it: those that can be are asked.
func TestAskReplicas(t *testing.T) {
	t.Parallel()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	start := func(s laneclient.Status) (address string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" && s.Node != "named" {
				t.Errorf("%s gets the token", s.Node)
			}
			s.Time = time.Now()
			_ = json.NewEncoder(w).Encode(s)
		}))
		t.Cleanup(server.Close)
		return strings.TrimPrefix(server.URL, "http://")
	}
	stale := func(session string) []laneclient.StaleView { return []laneclient.StaleView{{Session: session}} }
	named := start(laneclient.Status{Node: "named", OK: true, Stale: stale("s1")})
	well := start(laneclient.Status{Node: "well", OK: true, Stale: stale("s2")})
	ill := start(laneclient.Status{Node: "ill", Problems: []string{"this and that"}, Stale: stale("s1")})
	all := &laneclient.Status{Node: "named", Stale: stale("s1"), Replicas: []laneclient.ReplicaStatus{
		{Name: "named", Host: host, Address: named},
		{Name: "well", Host: host, Address: well},
		{Name: "ill", Host: host, Address: ill},
		{Name: "taken", Host: host, Address: well},
		{Name: "far", Host: host + "-2", Address: named},
		{Name: "old"},
	}}
	token := t.TempDir() + "/token"
	if err := os.WriteFile(token, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{control: "http://" + named, getenv: func(key string) string { return map[string]string{laneclient.EnvTokenFile: token}[key] }}
	var got []string
	for _, n := range a.askReplicas(t.Context(), all, 0) {
		got = append(got, fmt.Sprintf("%s %s %v %v %s", n.Name, n.Role, n.Asked, n.OK, n.Fault))
	}
	want := []string{
		"named control true true ",
		"well control true true ",
		"ill control true false this and that",
		"taken control false false not asked: at its address well answers",
		"far control false false not asked: it listens on the loopback address of its host alone",
		"old control false false not asked: name its URL too, as in --control URL,URL",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if len(all.Stale) != 2 || all.Stale[1].Session != "s2" {
		t.Errorf("stale views %+v, want those of s1 and s2", all.Stale)
	}
}
