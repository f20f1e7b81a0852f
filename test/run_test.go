package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// seenAtOnce is well below any lease: what is seen within it was told, not timed
// out.
const seenAtOnce = 5 * time.Second

// child is the process id of the only child of a process.
func (p *process) child(t *testing.T) int {
	t.Helper()
	var pid int
	poll(t, 10*time.Second, func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.Cmd.Process.Pid, p.Cmd.Process.Pid))
		if err != nil {
			return err
		}
		// Children hang on the thread that forked them.
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Cmd.Process.Pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			more, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", p.Cmd.Process.Pid, task.Name()))
			text = append(text, more...)
		}
		fields := strings.Fields(string(text))
		if len(fields) == 0 {
			return errors.New("has no child yet")
		}
		pid, err = strconv.Atoi(fields[0])
		return err
	})
	return pid
}

func TestRunServersOfOtherLanguages(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	const node = `require('http').createServer((q, r) => r.end('node ' + (q.headers['v-traffic-lane'] || '-')))`
	tests := []struct {
		service string
		flags   []string
		command []string
		address string // pattern
		want    string
	}{
		{"python", nil, []string{"sh", "-c", `echo from python > "$1/index.html"; exec python3 -m http.server "$PORT" -d "$1"`, "sh", t.TempDir()}, `127\.0\.0\.1:\d+`, "from python\n"},
		{"node", nil, []string{"node", "-e", node + `.listen(process.env.PORT)`}, `127\.0\.0\.1:\d+`, "node green"},
		{"node6", nil, []string{"node", "-e", node + `.listen(process.env.PORT, '::1')`}, `\[::1\]:\d+`, "node green"},
	}
	for _, tt := range tests {
		t.Run(tt.service, func(t *testing.T) {
			t.Parallel()
			args := []string{"run", "--control", s.url(), "--service", tt.service, "--lane", "green", "--instance", "i1", "--"}
			p := startProcess(t, nil, append(args, tt.command...)...)
			i := s.registered(t, tt.service, "i1")
			if i.Lane != "green" || i.Generation != 1 || len(i.Endpoints) != 1 || !regexp.MustCompile("^"+tt.address+"$").MatchString(i.Endpoints[0].Address) {
				t.Errorf("got %+v, want one endpoint %s in lane green", i, tt.address)
			}
			poll(t, seenAtOnce, func() error {
				status, body, err := get(t, s.addresses["gateway"], "green--"+tt.service+".lane.localhost", "/")
				if err != nil || status != http.StatusOK || body != tt.want {
					return fmt.Errorf("got %d %q %w, want %q", status, body, err, tt.want)
				}
				return nil
			})
			p.Signal(syscall.SIGTERM)
			s.gone(t, tt.service, "i1", seenAtOnce)
			p.wait(t, 20*time.Second)
		})
	}
}

func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "http", []string{"OTEL_RESOURCE_ATTRIBUTES=team=x", "LANEWAY_ROOM=r7"}, "--service", "env", "--lane", "green", "--instance", "e1",
		"--proxy="+s.addresses["inside"], "--listen", "0", "--listen", "tcp=0", "--label", "commit=abc", "--weight", "3")
	// The second port is never listened on: so it is not registered, and is warned of.
	p := s.runService(t, "http", nil, "--service", "env", "--instance", "e2", "--proxy="+s.addresses["inside"], "--room", "r8", "--label", "commit=abc", "--weight", "3")
	i := s.registered(t, "env", "e2")
	if i.Labels["commit"] != "abc" || i.Weight != 3 || i.Room != "r8" {
		t.Errorf("got %+v, want label, weight and room", i)
	}
	if _, ok := s.instances(t, "env")["e1"]; ok {
		t.Error("e1 is registered though it does not listen on its second port")
	}
	var r serviceReport
	poll(t, seenAtOnce, func() (err error) {
		r, err = s.ask(t, "env.lane.localhost")
		return err
	})
	_, port, _ := strings.Cut(i.Endpoints[0].Address, ":")
	for key, want := range map[string]string{
		"LANEWAY_CONTROL": s.url(), "LANEWAY_SERVICE": "env", "LANEWAY_LANE": "", "LANEWAY_ROOM": "r8", "LANEWAY_INSTANCE": "e2", "PORT": port,
		"LANEWAY_TOKEN_FILE": "", "OTEL_RESOURCE_ATTRIBUTES": "service.name=env,service.instance.id=e2",
		"HTTP_PROXY": "http://" + s.addresses["inside"], "http_proxy": "http://" + s.addresses["inside"],
	} {
		if got, ok := r.Env[key]; !ok || got != want {
			t.Errorf("%s = %q (set: %v), want %q", key, got, ok, want)
		}
	}
	if r.PID != p.child(t) {
		t.Errorf("the service is process %d, the direct child is %d", r.PID, p.child(t))
	}
	if err := syscall.Kill(-r.PID, 0); err != nil {
		t.Errorf("the service leads no process group of its own: %v", err)
	}
}

// TestRunProxy sends from within a process by its proxy setting alone.
func TestRunProxy(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "http", nil, "--service", "callee", "--instance", "c1")
	s.runService(t, "http", nil, "--service", "callee", "--instance", "c2", "--lane", "green")
	s.registered(t, "callee", "c1")
	s.registered(t, "callee", "c2")
	for color, want := range map[string]string{"": "c1", "green": "c2", "blue": "c1"} {
		proxy := http.ProxyURL(&url.URL{Scheme: "http", Host: s.addresses["inside"]})
		client := &http.Client{Transport: &http.Transport{Proxy: proxy, DisableKeepAlives: true}}
		poll(t, seenAtOnce, func() error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://callee/", nil)
			if err != nil {
				return err
			}
			if color != "" {
				req.Header.Set("v-traffic-lane", color)
			}
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer func() { _ = resp.Body.Close() }()
			var r serviceReport
			if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
				return err
			}
			if r.Instance != want || r.Color != color {
				return fmt.Errorf("color %q: got instance %s with color %q, want %s", color, r.Instance, r.Color, want)
			}
			return nil
		})
	}
}

func TestRunConsumer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "consumer", nil, "--service", "mailer", "--instance", "m1", "--lane", "green", "--no-listen")
	i := s.registered(t, "mailer", "m1")
	if len(i.Endpoints) != 0 || i.Lane != "green" {
		t.Errorf("got %+v, want an instance of green without endpoints", i)
	}
	poll(t, 10*time.Second, func() error {
		if got, want := p.stdout.String(), "consuming as m1 port \n"; got != want {
			return fmt.Errorf("got %q, want %q: standard output is passed through, and there is no PORT", got, want)
		}
		return nil
	})
	p.Signal(syscall.SIGINT)
	if status := p.wait(t, 20*time.Second); status != 0 {
		t.Errorf("exit status %d, want 0 as the consumer's own", status)
	}
	s.gone(t, "mailer", "m1", seenAtOnce)
}

func TestRunExitStatus(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	tests := []struct {
		name   string
		args   []string
		want   int
		stderr string
	}{
		{"own", []string{"--no-listen", "--", "sh", "-c", "exit 7"}, 7, ""},
		{"good", []string{"--no-listen", "--", "true"}, 0, ""},
		{"killed", []string{"--no-listen", "--", "sh", "-c", "kill -KILL $$"}, 137, ""},
		{"terminated", []string{"--no-listen", "--", "sh", "-c", "kill -TERM $$"}, 143, ""},
		{"never listens", []string{"--", "true"}, 1, "give its own with --listen PORT, or say --no-listen"},
		{"never listens and fails", []string{"--", "sh", "-c", "exit 9"}, 9, "ended without ever listening on port"},
		{"no such command", []string{"--", "/does/not/exist"}, 1, `find the command "/does/not/exist"`},
		{"no command", nil, 2, "write it after --"},
		{"command before --", []string{"true"}, 2, "write the command after --"},
		{"bad port", []string{"--listen", "udp=1", "--", "true"}, 2, "want http, grpc"},
		{"bad name", []string{"--instance", "a b", "--", "true"}, 2, "instance name"},
		{"no lane", []string{"--lane", "nobody", "--no-create", "--", "true"}, 1, "laneway lane create nobody"},
		{"both", []string{"--listen", "1", "--no-listen", "--", "true"}, 2, "exclude each other"},
		{"port in use", []string{"--listen", port(s.addresses["control"]), "--", "true"}, 1, "is in use by another process"},
		{"unreachable", []string{"--control", "http://127.0.0.1:1", "--", "true"}, 1, "control plane not reachable at http://127.0.0.1:1: start `laneway server`"},
	}
	t.Run("commands", func(t *testing.T) { // returns when all of them have
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				_, stderr, status := s.cli(t, append([]string{"run", "--service", "exits"}, tt.args...)...)
				if status != tt.want || !strings.Contains(stderr, tt.stderr) {
					t.Errorf("exit status %d, want %d and %q in: %s", status, tt.want, tt.stderr, stderr)
				}
			})
		}
	})
	if left := s.instances(t, "exits"); len(left) != 0 {
		t.Errorf("left in the registry: %v", left)
	}
}

func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

func TestRunKilledChildIsSeenAtOnce(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "sdk", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	// Its own session, by the SDK, goes with it too.
	sessions := func() int { return len(s.sessions(t, "order", "o1")) }
	poll(t, 10*time.Second, func() error {
		if n := sessions(); n != 2 {
			return fmt.Errorf("got %d sessions of the instance, want run's and the SDK's", n)
		}
		return nil
	})
	if err := syscall.Kill(p.child(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := s.gone(t, "order", "o1", seenAtOnce)
	t.Logf("out of the registry %s after the kill", took)
	poll(t, seenAtOnce, func() error { // that of run is ended by itself, a moment later
		if n := sessions(); n != 0 {
			return fmt.Errorf("%d sessions of the instance are left", n)
		}
		return nil
	})
	if status := p.wait(t, 20*time.Second); status != 137 {
		t.Errorf("exit status %d, want 137", status)
	}
}

// TestRunKilledEarly kills a process that has opened a session but does not listen.
func TestRunKilledEarly(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "sdk", nil, "--service", "order", "--instance", "o1", "--listen", "0", "--listen", "0")
	poll(t, 20*time.Second, func() error {
		if !strings.Contains(p.stdout.String(), "session ") {
			return errors.New("no session yet")
		}
		return nil
	})
	if err := syscall.Kill(p.child(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(t, 20*time.Second); status != 137 {
		t.Errorf("exit status %d, want 137", status)
	}
	if left := s.sessions(t, "order", "o1"); len(left) != 0 {
		t.Errorf("sessions are left: %v", left)
	}
}

// TestRunKilled kills the supervisor: its child must not go on unsupervised, and
// the lease ends the instance.
func TestRunKilled(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "http", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	child := p.child(t)
	p.Kill()
	poll(t, seenAtOnce, func() error {
		if alive(child) {
			return fmt.Errorf("child %d runs on", child)
		}
		return nil
	})
	if _, ok := s.instances(t, "order")["o1"]; !ok {
		t.Log("the instance went at once")
	}
	s.gone(t, "order", "o1", laneclient.DefaultTTL+5*time.Second)
}

func childOf(t *testing.T, p *process, word string) int {
	t.Helper()
	var pid int
	poll(t, 10*time.Second, func() error {
		for line := range strings.Lines(p.stdout.String()) {
			if text, ok := strings.CutPrefix(strings.TrimSpace(line), word+" "); ok {
				var err error
				pid, err = strconv.Atoi(text)
				return err
			}
		}
		return fmt.Errorf("no line with %q", word)
	})
	return pid
}

// TestRunForks has a process that leaves another one behind, which listens: the
// instance ends with the direct child all the same.
func TestRunForks(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "family", []string{"TEST_CHILD=http"}, "--service", "forks", "--instance", "f1")
	grandchild := childOf(t, p, "child")
	s.registered(t, "forks", "f1")
	if status := p.wait(t, 20*time.Second); status != 3 {
		t.Errorf("exit status %d, want 3, that of the direct child", status)
	}
	if alive(grandchild) {
		t.Errorf("process %d of its group was left behind", grandchild)
	}
	s.gone(t, "forks", "f1", seenAtOnce)
}

func TestRunKillsWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	t.Run("left behind", func(t *testing.T) {
		t.Parallel()
		p := s.runService(t, "family", []string{"TEST_CHILD=deaf"}, "--service", "deaf", "--instance", "d1", "--no-listen", "--drain", "1s")
		deaf := childOf(t, p, "deaf")
		if status := p.wait(t, 20*time.Second); status != 3 {
			t.Errorf("exit status %d, want 3", status)
		}
		if alive(deaf) {
			t.Errorf("process %d was left behind", deaf)
		}
	})
	t.Run("itself", func(t *testing.T) {
		t.Parallel()
		p := s.runService(t, "deaf", nil, "--service", "deaf", "--instance", "d2", "--no-listen", "--drain", "1s")
		deaf := childOf(t, p, "deaf")
		s.registered(t, "deaf", "d2")
		p.Signal(syscall.SIGTERM)
		if status := p.wait(t, 20*time.Second); status != 137 {
			t.Errorf("exit status %d, want 137: killed at the drain deadline", status)
		}
		if alive(deaf) {
			t.Errorf("process %d runs on", deaf)
		}
		s.gone(t, "deaf", "d2", seenAtOnce)
	})
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "signals", nil, "--service", "signals", "--no-listen")
	said := func(want string) {
		t.Helper()
		poll(t, 10*time.Second, func() error {
			if !strings.HasSuffix(p.stdout.String(), want+"\n") {
				return fmt.Errorf("got %q, want it to end with %q", p.stdout.String(), want)
			}
			return nil
		})
	}
	said("noting")
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGINT} {
		p.Signal(sig)
		said("got " + sig.String())
	}
	p.Signal(syscall.SIGINT)
	if status := p.wait(t, 20*time.Second); status != 0 {
		t.Errorf("exit status %d, want 0", status)
	}
}

// TestRunStoppedAsItRegisters asks a process to end whose instance is in the registry
// already, and gets requests, while run has not read the registry yet: it is out of the
// choice first all the same.
func TestRunStoppedAsItRegisters(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	to, err := url.Parse(s.url())
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(to)
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/watch" {
			<-r.Context().Done()
			return
		}
		pass.ServeHTTP(w, r)
	}))
	defer control.Close()
	defer control.CloseClientConnections()
	p := s.runService(t, "abrupt", nil, "--control", control.URL, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	p.Signal(syscall.SIGTERM)
	if status := p.wait(t, 20*time.Second); status != 5 || !strings.Contains(p.stdout.String(), "asked to end while gone") {
		t.Errorf("exit status %d, want 5, and to be asked when the instance was gone: %s", status, p.stdout.String())
	}
}

// TestRunOutlivesTheControlPlane takes the control plane away and brings another
// one with an empty registry: the process runs on and is registered again.
func TestRunOutlivesTheControlPlane(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--registry", "mem")
	p := s.runService(t, "http", nil, "--service", "order", "--instance", "o1")
	s.registered(t, "order", "o1")
	child := p.child(t)
	s.Kill()
	s = startServer(t, "--registry", "mem", "--listen", "control="+s.addresses["control"])
	s.registered(t, "order", "o1")
	if !alive(child) {
		t.Fatal("the process has ended")
	}
	poll(t, seenAtOnce, func() error {
		r, err := s.ask(t, "order.lane.localhost")
		if err == nil && r.PID != child {
			err = fmt.Errorf("process %d answered, want %d", r.PID, child)
		}
		return err
	})
	s.Kill()
	if err := syscall.Kill(child, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(t, 15*time.Second); status != 137 {
		t.Errorf("exit status %d, want 137, without a control plane too", status)
	}
	if !strings.Contains(p.stderr.String(), "left the registry uncleanly") {
		t.Errorf("nothing is said of the instance that only its lease can end: %s", p.stderr.String())
	}
}

// TestRunStopsWithoutFailedRequests stops and starts instances again and again
// under load, cleanly.
func TestRunStopsWithoutFailedRequests(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.runService(t, "slow", nil, "--service", "order", "--instance", "stays")
	s.registered(t, "order", "stays")
	l := s.load(t, http.MethodPost, "order.lane.localhost")
	for n := range 4 {
		name := fmt.Sprintf("n%d", n)
		p := s.runService(t, "slow", nil, "--service", "order", "--instance", name)
		s.registered(t, "order", name)
		l.await(t, 50)
		p.Signal(syscall.SIGTERM)
		if status := p.wait(t, 20*time.Second); status != 0 {
			t.Errorf("exit status %d, want 0", status)
		}
	}
	l.stop(t)
	if !slices.ContainsFunc(l.who(), func(name string) bool { return name != "stays" }) {
		t.Errorf("only %v got requests: the others were never called", l.who())
	}
}

// TestRunTells has `run` say which lane it made and where the instance can be reached, and
// how a process ended that nobody had asked to.
func TestRunTells(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := s.runService(t, "http", nil, "--service", "order", "--instance", "o1", "--lane", "bleu", "--log-format", "text")
	host := "bleu--order.lane.localhost:" + port(s.addresses["gateway"])
	poll(t, 20*time.Second, func() error {
		log := p.stderr.String()
		for _, want := range []string{`msg="created the lane" lane=bleu`, "url=http://" + host + "/"} {
			if !strings.Contains(log, want) {
				return fmt.Errorf("no %s in %s", want, log)
			}
		}
		return nil
	})
	poll(t, 20*time.Second, func() error { // by what it says
		r, err := s.ask(t, host)
		if err == nil && r.Instance != "o1" {
			err = fmt.Errorf("got %s, want o1", r.Instance)
		}
		return err
	})
	if err := syscall.Kill(p.child(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if status := p.wait(t, 20*time.Second); status != 137 {
		t.Errorf("exit status %d, want 137", status)
	}
	if log := p.stderr.String(); !strings.Contains(log, "level=WARN msg=ended") || !strings.Contains(log, `reason="killed (signal 9)"`) {
		t.Errorf("no warning of signal 9 in %s", log)
	}
	p = s.runService(t, "http", nil, "--service", "order", "--instance", "o2", "--log-format", "text")
	s.registered(t, "order", "o2")
	poll(t, 20*time.Second, func() error {
		if !strings.Contains(p.stderr.String(), "url=http://order.lane.localhost:") {
			return fmt.Errorf("no URL in %s", p.stderr.String())
		}
		return nil
	})
	if log := p.stderr.String(); strings.Contains(log, "lane=") || strings.Contains(log, "created") {
		t.Errorf("an instance of the baseline tells of a lane: %s", log)
	}
}

// A command that cannot be started leaves no lane behind.
func TestRunWithoutACommandMakesNoLane(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for _, args := range [][]string{
		{"--", "/does/not/exist"},
		{"--listen", port(s.addresses["control"]), "--", "true"},
	} {
		_, stderr, status := s.cli(t, append([]string{"run", "--service", "order", "--lane", "bleu"}, args...)...)
		if status != 1 {
			t.Errorf("%v: exit status %d, want 1: %s", args, status, stderr)
		}
	}
	if out := s.must(t, "lane", "list", "-o", "json"); strings.Contains(out, "bleu") {
		t.Errorf("there is a lane: %s", out)
	}
}
