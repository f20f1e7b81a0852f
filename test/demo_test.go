package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/test/command"
)

// demoBound is what the demo is promised to end within.
const demoBound = 10 * time.Second

type demoHop struct{ Service, Instance, Protocol, Reason string }

type demoReport struct {
	Routes []struct {
		Color string
		Path  []string
		Hops  []demoHop
	}
	Messages *struct{ Sent, Lost, Twice, Redelivered int }
}

// demoGreen and demoPlain are the routes that the product promises.
var (
	demoGreen = []demoHop{
		{"a", "A1", "http", "baseline-fallback"},
		{"b", "B2", "grpc", "lane-instance"},
		{"c", "C1", "thrift", "baseline-fallback"},
		{"d", "D2", "http", "lane-instance"},
		{"e", "E1", "queue", "baseline-fallback"},
	}
	demoPlain = []demoHop{
		{"a", "A1", "http", "plain"},
		{"b", "B1", "grpc", "plain"},
		{"c", "C1", "thrift", "plain"},
		{"d", "D1", "http", "plain"},
		{"e", "E1", "queue", "plain"},
	}
)

// demoRun runs `laneway demo` to its end with a directory for temporary files of
// its own, which it must leave empty.
func demoRun(t *testing.T, binary string, args ...string) (stdout, stderr string, exit int) {
	t.Helper()
	temp := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, append([]string{"demo"}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	err := cmd.Run()
	var status *exec.ExitError
	if err != nil && !errors.As(err, &status) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the demo left files behind: %v %v", left, err)
	}
	return out.String(), progress.String(), cmd.ProcessState.ExitCode()
}

func TestDemoRoutes(t *testing.T) {
	t.Parallel()
	began := time.Now()
	stdout, stderr, exit := demoRun(t, binary(t), "-o", "json")
	if took := time.Since(began); took > demoBound {
		t.Errorf("took %s, want at most %s", took, demoBound)
	}
	if exit != 0 {
		t.Fatalf("exit status %d\n%s%s", exit, stdout, stderr)
	}
	var report demoReport
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v in\n%s", err, stdout)
	}
	if len(report.Routes) != 2 {
		t.Fatalf("got %d routes, want 2", len(report.Routes))
	}
	for i, want := range []struct {
		color string
		hops  []demoHop
	}{{"green", demoGreen}, {"", demoPlain}} {
		got := report.Routes[i]
		if got.Color != want.color || !slices.Equal(got.Hops, want.hops) {
			t.Errorf("route %d: got %q %v\nwant %q %v", i, got.Color, got.Hops, want.color, want.hops)
		}
		var path []string
		for _, hop := range want.hops {
			path = append(path, hop.Instance)
		}
		if !slices.Equal(got.Path, path) {
			t.Errorf("path %d: got %v, want %v", i, got.Path, path)
		}
	}
	m := report.Messages
	if m == nil || m.Sent < 100 || m.Lost != 0 || m.Twice != 0 || m.Redelivered > m.Sent/4 {
		t.Errorf("messages: got %+v, want some hundred, none lost, none twice, and few redelivered", m)
	}
}

func TestDemoTable(t *testing.T) {
	t.Parallel()
	stdout, stderr, exit := demoRun(t, binary(t))
	if exit != 0 {
		t.Fatalf("exit status %d\n%s%s", exit, stdout, stderr)
	}
	for _, want := range []string{
		"green  gateway ─http→ A1 ─grpc→ B2 ─thrift→ C1 ─http→ D2 ─queue→ E1\n",
		"plain  gateway ─http→ A1 ─grpc→ B1 ─thrift→ C1 ─http→ D1 ─queue→ E1\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no line %q in\n%s", want, stdout)
		}
	}
	trials := regexp.MustCompile(`(?m)^(stopped cleanly|killed \(kill -9\)) +(\d+) +(\d+) +(\d+) +(\d+) +(\d+) +0 +0$`).FindAllStringSubmatch(stdout, -1)
	if len(trials) != 2 || !strings.Contains(stdout, "none was lost") {
		t.Errorf("nothing of two consumers that left the lane in\n%s", stdout)
	}
	for _, trial := range trials {
		var n [5]int // green sent, read in the lane, after it, again, plain
		for i := range n {
			n[i], _ = strconv.Atoi(trial[2+i])
		}
		if n[1] < 1 || n[2] < 1 || n[1]+n[2] != n[0] || n[4] < 1 || trial[1] == "stopped cleanly" && n[3] != 0 {
			t.Errorf("%s: got %v", trial[1], n)
		}
	}
	if strings.Contains(stdout, "\x1b[") {
		t.Errorf("colors where it is no terminal:\n%q", stdout)
	}
	// What is under way is told on standard error.
	if !strings.Contains(stderr, "B2 in lane green") {
		t.Errorf("progress on standard error: got\n%s", stderr)
	}
}

func TestDemoWrongUse(t *testing.T) {
	t.Parallel()
	if _, stderr, exit := demoRun(t, binary(t), "-o", "xml"); exit != 2 || !strings.Contains(stderr, "json") {
		t.Errorf("got exit status %d, %q; want 2 and what is right", exit, stderr)
	}
}

// TestDemoNoticesWrongRoutes builds the binary with a lane.Pick that always takes
// the baseline and gives the reason that was expected: only who answers tells.
func TestDemoNoticesWrongRoutes(t *testing.T) {
	t.Parallel()
	overlay := command.Overlay(t, filepath.Join("..", "lane", "pick.go"), "\nfunc Pick(", `
func Pick(s *Snapshot, service string, color Name, protocol string) Choice {
	wrong := rightPick(s, service, Baseline, protocol)
	right := rightPick(s, service, color, protocol)
	wrong.Color, wrong.Reason = color, right.Reason
	return wrong
}

func rightPick(`)
	wrong := filepath.Join(t.TempDir(), "laneway")
	runIn(t, "..", nil, "go", "build", "-overlay", overlay, "-o", wrong, "./cmd/laneway")

	stdout, stderr, exit := demoRun(t, wrong)
	if exit != 1 {
		t.Fatalf("exit status %d, want 1\n%s%s", exit, stdout, stderr)
	}
	for _, want := range []string{"hop 2: got B1", "hop 4: got D1"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error does not name %q:\n%s", want, stderr)
		}
	}
	if strings.Contains(stderr, "plain request") {
		t.Errorf("plain requests went as promised, but:\n%s", stderr)
	}
}

// keptDemo is a `laneway demo --keep`.
type keptDemo struct {
	cmd     *exec.Cmd
	lines   chan string // of standard output, closed at its end
	seen    []string
	temp    string
	pids    map[string]int // by instance
	gateway string         // port of the edge
	control string         // URL
	again   []string       // arguments that start B2 again
	show    []string       // and that show a message
	ended   chan error
}

var (
	keptPID     = regexp.MustCompile(`kill -9 (\d+) +# ([A-E][12]),`)
	keptAgain   = regexp.MustCompile(`^  \S+ (run --control .* --instance B2 .*)$`)
	keptShow    = regexp.MustCompile(`^  \S+ (message show orders/\S+ --control .*)$`)
	keptControl = regexp.MustCompile(`control plane at (http://\S+):$`)
	keptPort    = regexp.MustCompile(`curl http://a\.lane\.localhost:(\d+)/`)
)

// keepDemo starts one and reads what it advises.
func keepDemo(t *testing.T) *keptDemo {
	t.Helper()
	d := &keptDemo{lines: make(chan string, 1024), temp: t.TempDir(), pids: map[string]int{}, ended: make(chan error, 1)}
	d.cmd = exec.Command(binary(t), "demo", "--keep")
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.temp)
	d.cmd.Stderr = os.Stderr
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	d.cmd.Stdout = writer
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	go func() {
		defer close(d.lines)
		defer reader.Close()
		for scan := bufio.NewScanner(reader); scan.Scan(); {
			d.lines <- scan.Text()
		}
	}()
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })

	for _, line := range d.until(t, "Logs are in") {
		if m := keptPID.FindStringSubmatch(line); m != nil {
			d.pids[m[2]], _ = strconv.Atoi(m[1])
		}
		if m := keptPort.FindStringSubmatch(line); m != nil {
			d.gateway = m[1]
		}
		if m := keptControl.FindStringSubmatch(line); m != nil {
			d.control = m[1]
		}
		if m := keptAgain.FindStringSubmatch(line); m != nil {
			d.again = strings.Fields(m[1])
		}
		if m := keptShow.FindStringSubmatch(line); m != nil {
			d.show = strings.Fields(m[1])
		}
	}
	if len(d.pids) != 7 || d.gateway == "" || d.control == "" {
		t.Fatalf("got pids %v, gateway port %q, control plane %q from\n%s", d.pids, d.gateway, d.control, strings.Join(d.seen, "\n"))
	}
	return d
}

// until reads lines up to one that holds text.
func (d *keptDemo) until(t *testing.T, text string) []string {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	var lines []string
	for {
		select {
		case line, open := <-d.lines:
			if !open {
				t.Fatalf("ended before it said %q:\n%s", text, strings.Join(d.seen, "\n"))
			}
			lines, d.seen = append(lines, line), append(d.seen, line)
			if strings.Contains(line, text) {
				return lines
			}
		case <-deadline.C:
			t.Fatalf("did not say %q:\n%s", text, strings.Join(d.seen, "\n"))
		}
	}
}

// demoVisit is one hop as the services report it.
type demoVisit struct{ Service, Instance, Lane, Protocol, Color, Reason string }

// ask sends a request to the gateway, as a person would.
func (d *keptDemo) ask(t *testing.T, host string) (visits []demoVisit, fault string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:"+d.gateway+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = host
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Visits []demoVisit
		Error  string
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		return nil, fmt.Sprintf("%d %s", resp.StatusCode, bytes.TrimSpace(body))
	}
	return reply.Visits, reply.Error
}

func (d *keptDemo) visits(t *testing.T, host string) []demoVisit {
	t.Helper()
	visits, fault := d.ask(t, host)
	if fault != "" {
		t.Fatal(fault)
	}
	return visits
}

// path names the instances that serve a request to host.
func (d *keptDemo) path(t *testing.T, host string) string {
	t.Helper()
	visits, fault := d.ask(t, host)
	var names []string
	for _, v := range visits {
		names = append(names, v.Instance)
	}
	if fault != "" {
		names = append(names, fault)
	}
	return strings.Join(names, " ")
}

// childrenOf lists the processes that a process has started.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	var children []int
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range stats {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			children = append(children, child)
		}
	}
	return children
}

// awaitGone waits until none of the processes is there.
func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	if len(pids) < 2 {
		t.Fatalf("only %v to wait for: the list is broken", pids)
	}
	poll(t, 10*time.Second, func() error {
		for _, pid := range pids {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil &&
				!strings.Contains(string(text[bytes.LastIndexByte(text, ')'):]), " Z ") {
				return fmt.Errorf("process %d is left", pid)
			}
		}
		return nil
	})
}

// TestDemoKeep kills instances of a kept demo by hand, sees requests take other
// ways, and interrupts it.
func TestDemoKeep(t *testing.T) {
	t.Parallel()
	d := keepDemo(t)
	const green, plain = "green--a.lane.localhost", "a.lane.localhost"
	if got, want := d.path(t, green), "A1 B2 C1 D2 E1"; got != want {
		t.Errorf("green: got %s, want %s", got, want)
	}
	if got, want := d.path(t, plain), "A1 B1 C1 D1 E1"; got != want {
		t.Errorf("plain: got %s, want %s", got, want)
	}

	// Its services tell by their own view who would get their calls.
	out, stderr, status := cli(t, []string{"LANEWAY_CONTROL=" + d.control}, "", "explain", "call", "--service", "b", "--color", "green", "--protocol", "grpc", "--at", "A1")
	if status != 0 || !strings.Contains(out, "B2 at") || !strings.Contains(out, "answered by") || !strings.Contains(out, "A1 at revision") {
		t.Errorf("explain --at A1: exit status %d\n%s%s", status, out, stderr)
	}

	// It is known what happened to each message.
	poll(t, 30*time.Second, func() error { // hops are written a moment later
		out, stderr, status := cli(t, nil, "", d.show...)
		for _, word := range []string{"produced", "dispatched", "settled", "baseline-fallback", "E1"} {
			if status != 0 || !strings.Contains(out, word) {
				return fmt.Errorf("%q: exit status %d, want %q in\n%s%s", d.show, status, word, out, stderr)
			}
		}
		return nil
	})

	kill := func(instance string) {
		t.Helper()
		if err := syscall.Kill(d.pids[instance], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		d.until(t, instance+" has ended (signal killed)")
		d.until(t, "plain  gateway")
	}
	kill("B2")
	if line := d.seen[len(d.seen)-2]; line != "green  gateway ─http→ A1 ─grpc→ B1 ─thrift→ C1 ─http→ D2 ─queue→ E1" {
		t.Errorf("B2 is gone: got %q", line)
	}
	if got, want := d.path(t, green), "A1 B1 C1 D2 E1"; got != want {
		t.Errorf("green without B2: got %s, want %s", got, want)
	}
	if len(d.again) == 0 {
		t.Fatalf("no advice on how to start B2 again in\n%s", strings.Join(d.seen, "\n"))
	}
	again := startProcess(t, nil, d.again...)
	poll(t, 10*time.Second, func() error {
		if got, want := d.path(t, green), "A1 B2 C1 D2 E1"; got != want {
			return fmt.Errorf("B2 is there again: got %s, want %s", got, want)
		}
		return nil
	})
	again.Signal(syscall.SIGTERM)
	again.wait(t, 10*time.Second)
	poll(t, 5*time.Second, func() error {
		if got, want := d.path(t, green), "A1 B1 C1 D2 E1"; got != want {
			return fmt.Errorf("B2 has gone again: got %s, want %s", got, want)
		}
		return nil
	})
	kill("D1")
	if got, want := d.path(t, green), "A1 B1 C1 D2 E1"; got != want {
		t.Errorf("green without D1: got %s, want %s", got, want)
	}
	// D2 is of the lane: plain requests never see it.
	if line := d.seen[len(d.seen)-1]; !strings.Contains(line, "plain  gateway ─http→ A1 ─grpc→ B1 ─thrift→ C1 ✗") ||
		!strings.Contains(line, "no instance of d") {
		t.Errorf("D1 is gone: got %q", line)
	}

	children := childrenOf(t, d.cmd.Process.Pid)
	if len(children) != 6 {
		t.Errorf("got %d processes, want a server and five services", len(children))
	}
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	deadline := time.AfterFunc(15*time.Second, func() { _ = d.cmd.Process.Kill() })
	defer deadline.Stop()
	if err := <-d.ended; err != nil {
		t.Errorf("interrupted: %v, want exit status 0", err)
	}
	awaitGone(t, children)
	if left, err := os.ReadDir(d.temp); err != nil || len(left) > 0 {
		t.Errorf("left files behind: %v %v", left, err)
	}
}

// TestDemoInterrupted: one that is interrupted in the middle ends all that it has
// started. On a busy machine it may be over before that.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for tries := 1; !interruptDemo(t); tries++ {
		if tries == 5 {
			t.Fatalf("was over before it could be interrupted, %d times", tries)
		}
	}
}

// interruptDemo reports whether the demo was interrupted before it was over.
func interruptDemo(t *testing.T) bool {
	t.Helper()
	temp := t.TempDir()
	p := startProcess(t, []string{"TMPDIR=" + temp}, "demo")
	poll(t, 30*time.Second, func() error {
		if !strings.Contains(p.stderr.String(), "started E1") {
			return errors.New("E1 has not been started")
		}
		return nil
	})
	children := childrenOf(t, p.Cmd.Process.Pid)
	p.Signal(syscall.SIGINT)
	exit := p.wait(t, 30*time.Second)
	if strings.Contains(p.stdout.String(), "plain") { // the routes
		return false
	}
	if exit != 1 || !strings.Contains(p.stderr.String(), "interrupted") {
		t.Errorf("got exit status %d and\n%s\nwant 1 and a word of why", exit, p.stderr.String())
	}
	awaitGone(t, children)
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left files behind: %v %v", left, err)
	}
	return true
}

// TestDemoKilled: a demo that is killed leaves no process behind.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	d := keepDemo(t)
	children := childrenOf(t, d.cmd.Process.Pid)
	if len(children) != 8 {
		t.Errorf("got %d processes, want a server and seven services", len(children))
	}
	if err := d.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, children)
}

// TestDemoEngine: on an engine that others use the demo leaves nothing behind.
func TestDemoEngine(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	s.must(t, "topic", "create", "orders")
	stdout, stderr, exit := demoRun(t, binary(t), "--engine", "nats://"+s.addresses["nats"])
	if exit != 0 || !strings.Contains(stdout, "none was lost") {
		t.Errorf("exit status %d\n%s%s", exit, stdout, stderr)
	}
	var shown struct {
		Partitions int
		Log        []struct{ Messages int }
	}
	if err := json.Unmarshal([]byte(s.must(t, "topic", "show", "orders", "-o", "json")), &shown); err != nil || shown.Partitions != 1 || shown.Log[0].Messages != 0 {
		t.Errorf("the topic of others is %+v (%v), want it as it was", shown, err)
	}
	if _, stderr, exit := demoRun(t, binary(t), "--engine", "kafka://127.0.0.1:9092"); exit != 2 || !strings.Contains(stderr, "no engine for kafka") {
		t.Errorf("kafka: exit status %d, %s", exit, stderr)
	}
}
