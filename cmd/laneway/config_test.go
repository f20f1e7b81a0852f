package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// load reads a configuration as `server` does.
func load(t *testing.T, env map[string]string, file string, args ...string) (*config, error) {
	t.Helper()
	a := &app{getenv: func(key string) string { return env[key] }}
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "laneway.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := pflag.NewFlagSet("server", pflag.ContinueOnError)
	addSettings(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return a.loadConfig(flags, path)
}

func TestConfigPrecedence(t *testing.T) {
	env := map[string]string{"HOME": "/home/ann"}
	cfg, err := load(t, env, "")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Data != "/home/ann/.local/state/laneway" || cfg.Domain != "lane.localhost" {
		t.Errorf("defaults: data %q domain %q", cfg.Data, cfg.Domain)
	}
	if err := cfg.validate(); err != nil {
		t.Errorf("the defaults have a problem: %v", err)
	}

	const file = "data: /file\ndomain: file.example\ncluster: file\nlisten:\n  gateway: 127.0.0.1:1\n  inside: 127.0.0.1:2\ndrain: 3s\n"
	env["LANEWAY_DOMAIN"], env["LANEWAY_CLUSTER"], env["LANEWAY_LISTEN"] = "env.example", "env", "inside=127.0.0.1:3,control=127.0.0.1:4"
	cfg, err = load(t, env, file, "--cluster", "flag", "--listen", "control=127.0.0.1:5", "--roles", "control,gateway")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Data != "/file" || cfg.Domain != "env.example" || cfg.Cluster != "flag" {
		t.Errorf("got data %q, domain %q, cluster %q; want that of the file, the environment and the flag", cfg.Data, cfg.Domain, cfg.Cluster)
	}
	want := map[string]string{"control": "127.0.0.1:5", "gateway": "127.0.0.1:1", "inside": "127.0.0.1:3", "admin": "127.0.0.1:0"}
	if !reflect.DeepEqual(cfg.Listen, want) {
		t.Errorf("listen: got %v, want %v", cfg.Listen, want)
	}
}

func TestConfigStateHome(t *testing.T) {
	for env, want := range map[string]string{"/state": "/state/laneway", "relative": "/home/ann/.local/state/laneway", "": "/home/ann/.local/state/laneway"} {
		cfg, err := load(t, map[string]string{"XDG_STATE_HOME": env, "HOME": "/home/ann"}, "")
		if err != nil || cfg.Data != want {
			t.Errorf("XDG_STATE_HOME=%q: data %q, %v; want %q", env, cfg.Data, err, want)
		}
	}
}

func TestConfigUnknownKeys(t *testing.T) {
	_, err := load(t, nil, "gateway:\n  edge:\n    trust: [10.0.0.0/8]\nrols: [control]\n")
	if err == nil {
		t.Fatal("unknown keys were taken")
	}
	for _, want := range []string{"yaml:3: gateway.edge.trust: is no key: want one of tls, trusted", "yaml:4: rols: is no key: want one of ", "roles"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q says nothing of %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "main.") {
		t.Errorf("%q speaks of our types", err)
	}
}

// TestConfigMistyped: each value of a wrong type is told with its place, what it is and
// what it should be.
func TestConfigMistyped(t *testing.T) {
	const file = `roles: control
listen: [gateway]
data: {dir: /x}
drain: 10
log: loud
gateway:
  edge:
    trusted: {a: b}
    tls: [cert]
  access_log: maybe
  signing:
    - id: [k]
    - k2
  aliases: [[x]]
registry_peers: 127.0.0.1:7701
cluster: c1
cluster: c2
`
	_, err := load(t, map[string]string{"HOME": "/h"}, file)
	want := []string{
		`:1: roles: is "control": want a list, as in [a, b]`,
		`:2: listen: is a list: want a block of keys, each with a text`,
		`:3: data: is a block of keys: want a text`,
		`:4: drain: "10" is no duration: write a number with a unit, such as 10s`,
		`:5: log: is "loud": want a block with the keys format, level`,
		`:8: gateway.edge.trusted: is a block of keys: want a list, as in [a, b]`,
		`:9: gateway.edge.tls: is a list: want a block with the keys cert, client_ca, key`,
		`:10: gateway.access_log: is "maybe": want true or false`,
		`:12: gateway.signing[0].id: is a list: want a text`,
		`:13: gateway.signing[1]: is "k2": want a block with the keys file, id`,
		`:14: gateway.aliases[0]: is a list: want a text`,
		`:15: registry_peers: is "127.0.0.1:7701": want a list, as in [a, b]`,
		`:17: cluster: stands there twice, before in line 16: leave one out`,
	}
	got := flatten(err)
	if len(got) != len(want) {
		t.Errorf("got %d mistakes, want %d:\n%v", len(got), len(want), err)
	}
	for i, text := range want {
		if i < len(got) && !strings.HasSuffix(got[i].Error(), "laneway.yaml"+text) {
			t.Errorf("mistake %d is %q, want %q", i, got[i], text)
		}
	}
	for name, tt := range map[string]struct{ file, want string }{
		"no block":    {"control\n", `:1: the configuration: is "control": want a block with the keys `},
		"no YAML":     {"roles: [control\n", "laneway.yaml:1: did not find expected"},
		"two of them": {"cluster: a\n---\ncluster: b\n", "has a second document"},
	} {
		if _, err := load(t, map[string]string{"HOME": "/h"}, tt.file); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	for _, file := range []string{"", "# nothing\n", "data:\ncluster: 7\n", "gateway: &g {access_log: yes}\n", "x: 1\n"} {
		_, err := load(t, map[string]string{"HOME": "/h"}, file)
		if (err == nil) != (file != "x: 1\n") {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestConfigReportsAllProblems(t *testing.T) {
	const file = `
roles: [control, gatway]
listen: {control: 0.0.0.0:7700, gateway: nonsense, amp: 127.0.0.1:1}
registry: redis://x
domain: ""
cluster: a.b
drain: 0s
log: {level: loud, format: xml}
gateway:
  edge: {trusted: [10.0.0.0/8, here]}
  signing: [{id: k1, file: /does/not/exist}]
`
	cfg, err := load(t, map[string]string{"HOME": "/h"}, file)
	if err != nil {
		t.Fatal(err)
	}
	err = cfg.validate()
	if err == nil {
		t.Fatal("got nil")
	}
	want := []string{
		"roles[1]: ", "listen.amp: ", "listen.control: ", "listen.gateway: ", "registry: ", "domain: ", "cluster: ",
		"drain: ", "log.format: ", "log.level: ", "gateway.edge.trusted[1]: ", "gateway.signing[0].file: ",
	}
	got := flatten(err)
	if len(got) != len(want) {
		t.Errorf("got %d problems, want %d:\n%v", len(got), len(want), err)
	}
	for i, prefix := range want {
		if i < len(got) && !strings.HasPrefix(got[i].Error(), prefix) {
			t.Errorf("problem %d is %q, want one of %q", i, got[i], prefix)
		}
	}
}

func TestConfigControlWithoutTheRole(t *testing.T) {
	cfg, err := load(t, map[string]string{"HOME": "/h", "LANEWAY_CONTROL": "http://a:1,ftp://b"}, "", "--roles", "gateway", "--registry", "whatever")
	if err != nil {
		t.Fatal(err)
	}
	err = cfg.validate()
	if err == nil || !strings.HasPrefix(err.Error(), "control[1]: ") || len(flatten(err)) != 1 {
		t.Errorf("got %v, want one problem, with control[1]", err)
	}
}

func TestConfigFlagMistakes(t *testing.T) {
	_, err := load(t, map[string]string{"HOME": "/h", "LANEWAY_DRAIN": "soon"}, "", "--listen", "7700")
	if err == nil || len(flatten(err)) != 2 {
		t.Fatalf("got %v, want two problems", err)
	}
	for i, want := range []string{"--listen: ", "LANEWAY_DRAIN: "} {
		if got := flatten(err)[i].Error(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want it to begin with %q", got, want)
		}
	}
}
