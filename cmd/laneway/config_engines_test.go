package main

import (
	"reflect"
	"strings"
	"testing"
)

var home = map[string]string{"HOME": "/h"}

func TestConfigEngines(t *testing.T) {
	embedded := []engineConfig{{Name: "main", URL: "embedded"}}
	for _, tt := range []struct {
		name string
		env  string
		file string
		args []string
		want []engineConfig
	}{
		{"by default", "", "", nil, embedded},
		{"without the role", "", "", []string{"--roles", "control,gateway"}, nil},
		{"the role alone", "", "", []string{"--roles", "engine"}, embedded},
		{"a registry of several processes", "", "", []string{"--registry", "etcd://127.0.0.1:2379"}, nil},
		{"the role alone, beside such a registry", "", "registry: etcd://127.0.0.1:2379\n", []string{"--roles", "engine"}, embedded},
		{
			"such a registry, and said so", "", "",
			[]string{"--registry", "etcd://127.0.0.1:2379", "--engine", "q=embedded"},
			[]engineConfig{{Name: "q", URL: "embedded"}},
		},
		{
			"flags", "", "",
			[]string{"--engine", "a=nats://h:1,nats://i:2,j", "--engine", "b=embedded"},
			[]engineConfig{{Name: "a", URL: "nats://h:1,nats://i:2,j"}, {Name: "b", URL: "embedded"}},
		},
		{
			"environment", "a=embedded,b=nats://h:1,i:2", "", nil,
			[]engineConfig{{Name: "a", URL: "embedded"}, {Name: "b", URL: "nats://h:1,i:2"}},
		},
		{
			"file", "", "engines:\n  - {name: a, durability: sync}\n  - {name: b, url: nats://h, replicas: 3, prefix: p, rooms: [x, y]}\n", nil,
			[]engineConfig{{Name: "a", Durability: "sync"}, {Name: "b", URL: "nats://h", Replicas: 3, Prefix: "p", Rooms: []string{"x", "y"}}},
		},
		{
			"TLS", "", "engines:\n  - {name: a, url: \"tls://h:1,i:2\", username: u, password_file: /dev/null}\n", nil,
			[]engineConfig{{Name: "a", URL: "tls://h:1,i:2", Username: "u", PasswordFile: "/dev/null"}},
		},
		{
			"a flag over the file", "", "engines:\n  - {name: a}\n  - {name: b, url: nats://h, replicas: 3}\n",
			[]string{"--engine", "b=nats://i"},
			[]engineConfig{{Name: "b", URL: "nats://i", Replicas: 3}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{"HOME": "/h", "LANEWAY_ENGINE": tt.env}
			cfg, err := load(t, env, tt.file, tt.args...)
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.engines(); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if err := cfg.validate(); err != nil {
				t.Errorf("has a problem: %v", err)
			}
		})
	}
	if _, err := load(t, home, "", "--engine", "nats://h:1"); err == nil || !strings.Contains(err.Error(), "want NAME=URL") {
		t.Errorf("an engine without a name: %v", err)
	}
}

func TestConfigEngineProblems(t *testing.T) {
	const file = `
listen: {nats: "0.0.0.0:7742"}
room: "room 1"
engines:
  - {name: "a b", durability: never}
  - {name: k, url: "kafka://h:9092"}
  - {name: k, url: "nats://user:secret@h:4222", replicas: 2}
  - {name: e, url: embedded, replicas: 3, prefix: "x.y", rooms: [r], creds_file: c}
  - {name: q, url: "nats://h?prefix=p"}
  - {name: n, url: "nats://"}
  - {name: m, url: there}
  - {name: s, url: "tls://h", username: u, creds_file: /none/c, nkey_file: /none/n, tls: {ca: /none/ca}}
  - {name: t, url: "tls://h", tls: {cert: c}}
`
	cfg, err := load(t, home, file)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"listen.nats: 0.0.0.0:7742 is not a loopback address",
		`room: "room 1": want no spaces`,
		"engines[0].name: ",
		`engines[0].durability: "never": want fast, bounded or sync`,
		`engines[1].url: "kafka://h:9092": there is no engine for kafka:// here; there are embedded, and nats://`,
		`engines[2].name: "k" stands there twice`,
		"engines[2].url: names a user",
		"engines[2].replicas: 2: want 1, 3 or 5",
		"engines[3].url: a b is embedded already",
		"engines[3]: is embedded, and asks nobody",
		"engines[3].replicas: 3: an embedded server keeps one",
		`engines[3].prefix: "x.y": want letters, digits and dashes`,
		`engines[3].rooms: ["r"]: an embedded server is in one`,
		`engines[4].url: "nats://h?prefix=p": write what follows`,
		`engines[5].url: "nats://" names no host`,
		`engines[6].url: "there" is no engine: want embedded, or nats://`,
		"engines[7]: has one of username and password_file",
		"engines[7]: has several of username, creds_file and nkey_file",
		"engines[7].tls.ca: open /none/ca: ",
		"engines[7].creds_file: open /none/c: ",
		"engines[7].nkey_file: open /none/n: ",
		"engines[8]: has one of cert and key",
	}
	got := flatten(cfg.validate())
	if len(got) != len(want) {
		t.Errorf("got %d problems, want %d:\n%v", len(got), len(want), cfg.validate())
	}
	for i, prefix := range want {
		if i < len(got) && !strings.HasPrefix(got[i].Error(), prefix) {
			t.Errorf("problem %d is %q, want one of %q", i, got[i], prefix)
		}
		if i < len(got) && strings.Contains(got[i].Error(), "secret") {
			t.Errorf("problem %d tells a password: %q", i, got[i])
		}
	}
	cfg, err = load(t, home, "", "--roles", "control", "--engine", "a=embedded")
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.validate(); err == nil || !strings.HasPrefix(err.Error(), "engines: are run by the role engine") {
		t.Errorf("engines without the role: %v", err)
	}
	if _, err := load(t, home, "engines:\n  - {name: a, replicas: three}\n"); err == nil || !strings.Contains(err.Error(), `engines[0].replicas: is "three": want a number`) {
		t.Errorf("replicas that are no number: %v", err)
	}
}

func TestEngineURL(t *testing.T) {
	for in, want := range map[string]string{
		"nats://h":                 "nats://h",
		"nats://h:1,nats://i, j:2": "nats://h:1,nats://i,nats://j:2",
		"tls://h:1,i:2":            "tls://h:1,tls://i:2",
	} {
		if got := engineURL(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
