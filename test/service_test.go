package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// serviceMode is the environment variable that makes this test binary a service
// for others to run: it says which one.
const serviceMode = "TEST_SERVICE"

// services are the programs that this binary can be.
func services() map[string]func() error {
	return map[string]func() error{
		"http":     serveHTTP,
		"slow":     serveSlowly,
		"loopback": serveLoopback6,
		"consumer": consumeOnly,
		"deaf":     ignoreTerm,
		"family":   haveChild,
		"signals":  noteSignals,
		"sdk":      useSDK,
		"admin":    tellAbout,
		"quit":     serveAndQuit,
		"abrupt":   serveAbruptly,
		"repl":     talk,
	}
}

// report is what the HTTP services answer.
type serviceReport struct {
	Instance string
	Color    string
	Trace    string // traceparent of the request
	PID      int
	Env      map[string]string
}

// say writes a line to standard output, which the test reads.
func say(words ...any) { _, _ = fmt.Fprintln(os.Stdout, words...) }

func answer(w http.ResponseWriter, r *http.Request) {
	report := serviceReport{
		Instance: os.Getenv("LANEWAY_INSTANCE"), Color: r.Header.Get("v-traffic-lane"), Trace: r.Header.Get("traceparent"), PID: os.Getpid(), Env: map[string]string{},
	}
	for _, e := range os.Environ() {
		k, v, _ := strings.Cut(e, "=")
		report.Env[k] = v
	}
	_ = json.NewEncoder(w).Encode(report)
}

// terminated is closed when the process is asked to end.
func terminated() <-chan struct{} {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	return ctx.Done()
}

func listenAndAnswer(address string, handler http.HandlerFunc) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	done := terminated()
	go func() { _ = server.Serve(l) }()
	<-done
	// Longer than the 5 s that net/http grants connections without a request yet.
	ctx, cancel := context.WithTimeout(context.Background(), 8*time.Second)
	defer cancel()
	return server.Shutdown(ctx)
}

func serveHTTP() error { return listenAndAnswer("127.0.0.1:"+os.Getenv("PORT"), answer) }

// serveSlowly takes a while for each answer, so that there is always one under way.
func serveSlowly() error {
	return listenAndAnswer("127.0.0.1:"+os.Getenv("PORT"), func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Millisecond)
		answer(w, r)
	})
}

// serveAbruptly closes its port as soon as it is asked to end, and takes its time to
// do so. It says in which state its instance was as it was asked.
func serveAbruptly() error {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second}
	done := terminated()
	go func() { _ = server.Serve(l) }()
	<-done
	var i laneclient.Instance
	api := laneclient.NewAPI(laneclient.FromEnv())
	err = api.Do(context.Background(), http.MethodGet, "/v1/instances/"+os.Getenv("LANEWAY_SERVICE")+"/"+os.Getenv("LANEWAY_INSTANCE"), nil, &i)
	if laneclient.IsNotFound(err) {
		i.State, err = "gone", nil
	}
	if err != nil {
		return err
	}
	say("asked to end while", i.State)
	_ = server.Close()
	time.Sleep(time.Second) // what others do meanwhile is what is tested
	os.Exit(5)
	return nil
}

func serveLoopback6() error { return listenAndAnswer("[::1]:"+os.Getenv("PORT"), answer) }

// consumeOnly listens on nothing.
func consumeOnly() error {
	say("consuming as", os.Getenv("LANEWAY_INSTANCE"), "port", os.Getenv("PORT"))
	<-terminated()
	return nil
}

// ignoreTerm cannot be asked to end.
func ignoreTerm() error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	say("deaf", os.Getpid())
	select {}
}

// haveChild leaves another process behind, of the kind that TEST_CHILD names, and
// ends with status 3 once it runs.
func haveChild() error {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), serviceMode+"="+os.Getenv("TEST_CHILD"))
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return err
	}
	say("child", child.Process.Pid)
	deadline := time.Now().Add(10 * time.Second)
	for os.Getenv("TEST_CHILD") == "http" && time.Now().Before(deadline) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+os.Getenv("PORT"))
		if err == nil {
			_ = conn.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	// Long enough for the supervisor to see that somebody listens.
	time.Sleep(time.Second)
	os.Exit(3)
	return nil
}

// noteSignals prints the signals that it gets, and ends with the second INT.
func noteSignals() error {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGINT)
	say("noting")
	for ints := 0; ints < 2; {
		sig := <-signals
		say("got", sig)
		if sig == syscall.SIGINT {
			ints++
		}
	}
	return nil
}

// talk reads lines from standard input, and ends at "bye"; an interrupt is no end.
func talk() error {
	signals := make(chan os.Signal, 10)
	signal.Notify(signals, syscall.SIGINT)
	go func() {
		for sig := range signals {
			say("noted", sig)
		}
	}()
	for scan := bufio.NewScanner(os.Stdin); scan.Scan(); {
		say("read", scan.Text())
		if scan.Text() == "bye" {
			os.Exit(4)
		}
	}
	return errors.New("standard input has ended")
}

// useSDK opens a session of its own beside that of its supervisor.
func useSDK() error {
	client, err := laneclient.Dial(context.Background(), laneclient.FromEnv())
	if err != nil {
		return err
	}
	say("session", client.Status().Session)
	err = serveHTTP()
	_ = client.Close()
	return err
}

// tellAbout uses the SDK and can be asked.
func tellAbout() error {
	cfg := laneclient.FromEnv()
	cfg.AdminListen = "127.0.0.1:0"
	client, err := laneclient.Dial(context.Background(), cfg)
	if err != nil {
		return err
	}
	err = serveHTTP()
	_ = client.Close()
	return err
}

// serveAndQuit listens for a moment and ends well.
func serveAndQuit() error {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Getenv("PORT"))
	if err != nil {
		return err
	}
	time.Sleep(time.Second)
	return l.Close()
}

// runService starts a service of this binary under `laneway run` and returns at
// once.
func (s *server) runService(t *testing.T, mode string, env []string, flags ...string) *process {
	t.Helper()
	args := append([]string{"run", "--control", s.url()}, flags...)
	return startProcess(t, append(env, serviceMode+"="+mode), append(args, "--", os.Args[0])...)
}

// ofService are the objects of a kind that a service has in the registry.
func ofService[T laneclient.Object](t *testing.T, s *server, service string) []T {
	t.Helper()
	api := laneclient.NewAPI(laneclient.Config{Control: []string{s.url()}})
	defer func() { _ = api.Close() }()
	objects, _, err := laneclient.ListAll[T](t.Context(), api, laneclient.ListOptions{Service: service})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// instances are those of a service, by name.
func (s *server) instances(t *testing.T, service string) map[string]laneclient.Instance {
	t.Helper()
	out := map[string]laneclient.Instance{}
	for _, i := range ofService[laneclient.Instance](t, s, service) {
		out[i.Name] = i
	}
	return out
}

// sessions are those of an instance.
func (s *server) sessions(t *testing.T, service, name string) []laneclient.Session {
	t.Helper()
	return slices.DeleteFunc(ofService[laneclient.Session](t, s, service), func(one laneclient.Session) bool {
		return one.Instance != service+"/"+name
	})
}

// registered waits until an instance is in the registry.
func (s *server) registered(t *testing.T, service, name string) laneclient.Instance {
	t.Helper()
	var i laneclient.Instance
	poll(t, 20*time.Second, func() error {
		var ok bool
		if i, ok = s.instances(t, service)[name]; !ok {
			return fmt.Errorf("instance %s/%s is not registered", service, name)
		}
		return nil
	})
	return i
}

// gone waits until an instance has left the registry and says how long that took.
func (s *server) gone(t *testing.T, service, name string, within time.Duration) time.Duration {
	t.Helper()
	began := time.Now()
	poll(t, within, func() error {
		if _, ok := s.instances(t, service)[name]; ok {
			return fmt.Errorf("instance %s/%s is in the registry", service, name)
		}
		return nil
	})
	return time.Since(began)
}

// ask sends a request through the edge and returns what the service that got it
// says.
func (s *server) ask(t *testing.T, host string) (serviceReport, error) {
	t.Helper()
	status, body, err := get(t, s.addresses["gateway"], host, "/")
	if err != nil {
		return serviceReport{}, err
	}
	if status != http.StatusOK {
		return serviceReport{}, fmt.Errorf("status %d: %s", status, body)
	}
	var r serviceReport
	return r, json.Unmarshal([]byte(body), &r)
}

// alive reports whether a process runs.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
