package test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

var updateGolden = flag.Bool("update", false, "rewrite golden files")

// varying is what differs from run to run, and what stands for it.
var varying = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+Z`), "<time>"},
	{regexp.MustCompile(`(in )?\b(\d+d)?(\d+h)?(\d+m)?\d+s ago|\bin \d+d\d+h|\bin \d+h\d+m|\bin \d+m\d+s`), "<ago>"},
	{regexp.MustCompile(`"revision": \d+`), `"revision": <n>`},
	{regexp.MustCompile(`revision: \d+`), "revision: <n>"},
	{regexp.MustCompile(`revision \d+`), "revision <n>"},
	{regexp.MustCompile(`"node": ".*"`), `"node": <node>`},
	{regexp.MustCompile(`node: .*`), `node: <node>`},
	{regexp.MustCompile(`answered by  .* at`), "answered by  <node> at"},
	{regexp.MustCompile(`(control plane +ok) .*`), "$1 <node>"},
	{regexp.MustCompile(`(replica +)\S+ since`), "$1<node> since"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{4,5} \(gateway on .*\)`), "<admin> (gateway on <host>)"},
	{regexp.MustCompile(`127\.0\.0\.1:\d{4,5} on \S+, revision`), "<admin> on <host>, revision"},
	{regexp.MustCompile(`lane\.localhost:\d+`), "lane.localhost:<port>"},
	{regexp.MustCompile(`session [a-z0-9]{26}`), "session <id>"},
	{regexp.MustCompile(`nats://127\.0\.0\.1:\d+`), "nats://<engine>"},
}

func settled(text string) string {
	for _, v := range varying {
		text = v.pattern.ReplaceAllString(text, v.with)
	}
	// A column is as wide as its widest cell, which varies with what was replaced.
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.Contains(text, "<ago>") && strings.Contains(line, "  ") && !strings.HasPrefix(line, "  ") {
			line = regexp.MustCompile(` {2,}`).ReplaceAllString(line, "  ")
		}
		lines[i] = strings.TrimRight(line, " ")
	}
	return strings.Join(lines, "\n")
}

// TestCommandLine runs the commands of a scenario one after the other and compares
// what they print and how they end.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	file := filepath.Join("testdata", "cli", "scenario.txt")
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !ok {
			continue
		}
		args := strings.Fields(command)
		for i, a := range args {
			if strings.HasPrefix(a, "cli/") {
				args[i] = filepath.Join("testdata", a)
			}
		}
		stdout, stderr, status := s.cli(t, args...)
		fmt.Fprintf(&got, "$ %s\n%s", command, settled(stdout))
		for l := range strings.Lines(settled(stderr)) {
			got.WriteString("! " + l)
		}
		if status != 0 {
			fmt.Fprintf(&got, "[exit status %d]\n", status)
		}
		got.WriteByte('\n')
	}
	text := strings.TrimSuffix(got.String(), "\n")
	if *updateGolden {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != string(want) {
		t.Errorf("%s differs (rewrite it with -update, and read the difference):\n%s", file, difference(string(want), text))
	}
}

// difference shows the first lines that are not alike.
func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			return fmt.Sprintf("line %d\n got: %s\nwant: %s", i+1, strings.Join(g[i:min(i+8, len(g))], "\n      "), strings.Join(w[i:min(i+8, len(w))], "\n      "))
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}

// TestExportIsWhatApplyReads copies an installation to another, and applies it to
// itself, which must change nothing.
func TestExportIsWhatApplyReads(t *testing.T) {
	t.Parallel()
	from, to := startServer(t), startServer(t)
	from.must(t, "apply", "-f", filepath.Join("testdata", "cli", "objects.yaml"))
	for _, format := range []string{"yaml", "json"} {
		exported := from.must(t, "export", "-o", format)
		for _, s := range []*server{from, to} {
			stdout, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, exported, "apply", "-f", "-", "--prune")
			if status != 0 {
				t.Fatal(stderr)
			}
			if s == from && !strings.HasPrefix(stdout, "0 changed") {
				t.Errorf("applying the %s export to its origin changes it:\n%s", format, stdout)
			}
		}
		if back := to.must(t, "export", "-o", format); back != exported {
			t.Errorf("%s export of the copy:\n%s\nwant\n%s", format, back, exported)
		}
	}
}

// TestPruneLeavesSessions has apply --prune delete what is not in the files, but no
// instance that lives by a session.
func TestPruneLeavesSessions(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "apply", "-f", filepath.Join("testdata", "cli", "objects.yaml"))
	s.runService(t, "http", nil, "--service", "cart", "--instance", "live", "--lane", "blue")
	s.registered(t, "cart", "live")
	const file = `[{"kind":"instances","service":"cart","name":"c2","endpoints":[{"protocol":"http","address":"127.0.0.1:9"}]},{"kind":"rules","name":"only","match":{"path":"/"},"lanes":[{"lane":"blue"}]}]`
	stdout, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, file, "apply", "-f", "-", "--prune")
	want := "+ instances/cart/c2\n+ rules/only\n- rules/testers\n- rules/canary\n- instances/cart/c1\n5 changed, 0 as they should be\n"
	if status != 0 || stdout != want {
		t.Errorf("exit status %d %s and\n%s\nwant\n%s", status, stderr, stdout, want)
	}
	left := s.instances(t, "cart")
	if _, ok := left["live"]; !ok || len(left) != 2 {
		t.Errorf("left are %v, want live and c2", left)
	}
	// Lanes, services and routes are of kinds that the file says nothing of.
	if out := s.must(t, "export", "lanes", "services", "routes"); strings.Count(out, "kind: ") != 7 {
		t.Errorf("kinds that the file does not have were pruned:\n%s", out)
	}
}

// TestApplyMessages applies a topic and a group twice. What others than people write into
// a group stays, and so do the messages of a topic that is pruned.
func TestApplyMessages(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const topic = "kind: topics\nname: orders\nengine: main\npartitions: %d\n---\n"
	const group = "kind: groups\nname: billing\nengine: main\ntopics: [orders]\nretry: [1s]\npaused: %t\n"
	apply := func(text string, status int, want string, flags ...string) {
		t.Helper()
		stdout, stderr, got := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, text, append([]string{"apply", "-f", "-"}, flags...)...)
		if got != status || !strings.Contains(stdout+stderr, want) {
			t.Errorf("exit status %d and %s%s, want %d and %q", got, stdout, stderr, status, want)
		}
	}
	apply(fmt.Sprintf(topic+group, 2, false), 0, "+ topics/orders\n+ groups/billing\n2 changed, 0 as they should be\n")
	s.must(t, "group", "reset", "billing", "--to", "earliest")
	apply(fmt.Sprintf(topic+group, 3, true), 0, "partitions: 2 -> 3\n")
	if shown := s.must(t, "topic", "show", "orders", "-o", "json"); strings.Count(shown, `"end":`) != 3 {
		t.Errorf("the engine has %s, want 3 partitions", shown)
	}
	api := laneclient.NewAPI(laneclient.Config{Control: []string{s.url()}})
	defer func() { _ = api.Close() }()
	var g laneclient.Group
	if err := api.Do(t.Context(), http.MethodGet, "/v1/groups/billing", nil, &g); err != nil || !g.Paused || g.Reset == nil {
		t.Errorf("the group is %+v, %v, want it paused, with its reset", g, err)
	}
	apply(fmt.Sprintf(topic+group, 3, true), 0, "0 changed, 2 as they should be")
	for _, flags := range [][]string{{"--dry-run"}, nil} {
		apply(fmt.Sprintf(topic, 1), 1, "partitions: is 1, but there are 3, which are never taken away", flags...)
	}
	apply(fmt.Sprintf(group, true)+"---\nkind: topics\nname: other\nengine: none\n", 1, "topics/other: no such message engine: none")
	s.must(t, "group", "delete", "billing")
	apply("kind: topics\nname: more\nengine: main\n", 0, "- topics/orders\n2 changed", "--prune")
	if out := s.must(t, "export", "topics", "groups", "engines"); strings.Count(out, "kind: ") != 1 || !strings.Contains(out, "name: more\n") {
		t.Errorf("exported is\n%s\nwant the topic more alone", out)
	}
	if out := s.must(t, "topic", "list"); !strings.Contains(out, "orders") {
		t.Errorf("the messages of orders are gone from the engine:\n%s", out)
	}
}

// TestApplyGoesOn tells of what cannot be applied and applies the rest.
func TestApplyGoesOn(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const file = "kind: lanes\nname: fix\nparent: nobody\n---\nkind: lanes\nname: good\n"
	stdout, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + s.url()}, file, "apply", "-f", "-")
	if status != 1 || stdout != "+ lanes/good\n1 changed, 0 as they should be\n" {
		t.Errorf("exit status %d and %q, want 1 and that good is there", status, stdout)
	}
	if !strings.Contains(stderr, "standard input:1: lanes/fix: ") || !strings.HasSuffix(stderr, "laneway: 1 of 2 changes were refused: correct them and apply again\n") {
		t.Errorf("standard error is %q", stderr)
	}
}

// TestHelp has an example in the help of every command, and an exit status of 0.
func TestHelp(t *testing.T) {
	t.Parallel()
	var visit func(path []string)
	commands := 0
	visit = func(path []string) {
		commands++
		stdout, _, status := cli(t, nil, "", append(path, "--help")...)
		name := strings.Join(append([]string{"laneway"}, path...), " ")
		if status != 0 || !strings.Contains(stdout, "Examples:\n") {
			t.Errorf("%s --help: exit status %d, want an example in: %s", name, status, stdout)
		}
		if unnamed := regexp.MustCompile(`--[a-z-]+ (string|stringArray|int|uint|duration)\b.*|.*\[=".*`).FindString(stdout); unnamed != "" {
			t.Errorf("%s --help: what does the flag take? %s", name, unnamed)
		}
		for line := range strings.Lines(stdout) {
			// A subcommand is indented and followed by its description.
			sub := regexp.MustCompile(`^  ([a-z-]+)  +[A-Z]`).FindStringSubmatch(line)
			if sub == nil || sub[1] == "help" || sub[1] == "completion" {
				continue
			}
			visit(append(append([]string{}, path...), sub[1]))
		}
	}
	visit(nil)
	if commands < 30 {
		t.Errorf("only %d commands were found", commands)
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := s.must(t, "completion", shell); !strings.Contains(out, "laneway") {
			t.Errorf("completion for %s is %q", shell, out)
		}
	}
	s.must(t, "lane", "create", "green")
	s.must(t, "lane", "create", "grey")
	if out, want := s.must(t, "__complete", "lane", "show", "gree"), "green\n:4\n"; out != want {
		t.Errorf("completing a lane: %q, want %q", out, want)
	}
}

// TestControlAddress names a control plane by its address, and, by mistake, a gateway.
func TestControlAddress(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	if _, stderr, status := cli(t, nil, "", "lane", "create", "green", "--control", s.addresses["control"]); status != 0 {
		t.Errorf("exit status %d: %s", status, stderr)
	}
	for _, listener := range []string{"gateway", "inside"} {
		for _, command := range []string{"lane list", "lane show green", "status", "run --service order -- true"} {
			_, stderr, status := cli(t, []string{"LANEWAY_CONTROL=http://" + s.addresses[listener]}, "", strings.Fields(command)...)
			if status != 1 || !strings.Contains(stderr, "that is a gateway, not a control plane") {
				t.Errorf("%s at %s: exit status %d and %q, want that it is a gateway", command, listener, status, stderr)
			}
		}
	}
}

// TestUnreachable has every command that asks the control plane say what to do.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"lane list", "lane create x", "lane show x", "lane delete x", "rule list", "route list", "service list", "instance list",
		"status", "export", "explain call --service x", "apply -f testdata/cli/objects.yaml",
	} {
		began := time.Now()
		_, stderr, status := cli(t, []string{"LANEWAY_CONTROL=http://127.0.0.1:1"}, "", strings.Fields(command)...)
		want := "laneway: control plane not reachable at http://127.0.0.1:1: start `laneway server`, or say where it is with --control or LANEWAY_CONTROL (dial tcp 127.0.0.1:1: connect: connection refused)\n"
		if status != 1 || stderr != want {
			t.Errorf("%s: exit status %d and %q, want 1 and %q", command, status, stderr, want)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s took %s", command, took)
		}
	}
	_, stderr, status := cli(t, []string{"LANEWAY_CONTROL=nonsense"}, "", "lane", "list")
	if status != 1 || !strings.Contains(stderr, "nonsense") {
		t.Errorf("exit status %d and %q, want that nonsense is no URL", status, stderr)
	}
}
