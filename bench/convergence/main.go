// Command convergence measures how soon a change of membership is in force: from the
// registration, the clean leave and the kill -9 of an instance to the first request that
// lands by it, on the built binary with its embedded etcd, while a hundred clients in
// four other processes watch the same service over TCP.
//
//	make build && go run ./bench/convergence [-events 300] [-watchers 100] [-lanes 10000]
//
// With -lanes there are so many lanes more, with an instance of the service in each, which
// all of the clients hold.
//
// The clock starts before the register call, before the leave and at kill(2). One sender
// calls the service in the lane without pause; each answer names who gave it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laneway-dev/laneway/bench/programs"
	"github.com/laneway-dev/laneway/bench/turns"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
	"github.com/laneway-dev/laneway/lane/lanehttp"
)

const (
	service   = "order"
	color     = "green"
	processes = 4
	patience  = 10 * time.Second // for any one event
)

func main() {
	binary := flag.String("binary", "bin/laneway", "the built command")
	events := flag.Int("events", 300, "events of each kind")
	watchers := flag.Int("watchers", 100, "clients that watch the service")
	lanes := flag.Int("lanes", 0, "lanes beside the one that changes, with an instance each")
	watch := flag.Int("watch", 0, "internal: be a process with so many watching clients")
	serve := flag.Bool("serve", false, "internal: be an instance that serves on PORT")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *watch > 0:
		err = beWatchers(ctx, *watch)
	case *serve:
		err = beInstance()
	default:
		err = measure(ctx, *binary, *events, *watchers, *lanes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "convergence:", err)
		os.Exit(1)
	}
}

// beWatchers keeps clients that know the service until standard input ends.
func beWatchers(ctx context.Context, n int) error {
	var clients []*laneclient.Client
	for range n {
		c, err := laneclient.Dial(ctx, laneclient.FromEnv())
		if err != nil {
			return err
		}
		if err := c.Need(ctx, service); err != nil {
			return err
		}
		clients = append(clients, c)
	}
	errs := []error{programs.UntilEnd()}
	for _, c := range clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// who answers with a name.
func who(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name) // a caller that has gone needs no answer
	})
}

func beInstance() error {
	server := &http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), Handler: who(strconv.Itoa(os.Getpid())), ReadHeaderTimeout: patience}
	return server.ListenAndServe()
}

// world is what is measured: a server, watchers, and a sender.
type world struct {
	binary, control string
	client          *http.Client // sends by the lane of its context
	stops           []func() error
}

func measure(ctx context.Context, binary string, events, watchers, lanes int) (err error) {
	w := &world{binary: binary}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(ctx, watchers, lanes); err != nil {
		return err
	}
	fmt.Printf("%d events of each kind, %d watching clients in %d processes, %d other lanes, embedded etcd\n\n", events, watchers, processes, lanes)
	fmt.Printf("%-14s %6s %9s %9s %9s %9s %8s\n", "event", "n", "p50", "p90", "p99", "max", "failed")
	var registered, left, killed series
	for i := range events {
		if err := w.joinAndLeave(ctx, fmt.Sprintf("g%d", i), &registered, &left); err != nil {
			return err
		}
	}
	registered.print("registration")
	left.print("clean leave")
	for i := range events {
		if err := w.kill(ctx, fmt.Sprintf("k%d", i), &killed); err != nil {
			return err
		}
	}
	killed.print("kill -9")
	fmt.Println("\ntarget: p99 of 50ms or less; a killed instance's requests fail until it is out of the registry, they do not fall back silently.\n" +
		"One that leaves closes its port here as soon as the registry knows, without the drain that a service has.")
	return nil
}

func (w *world) close() error {
	var errs []error
	for _, stop := range slices.Backward(w.stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

func (w *world) start(ctx context.Context, watchers, lanes int) (err error) {
	server, err := programs.Serve(ctx, w.binary)
	if err != nil {
		return err
	}
	w.control, w.stops = server.Control, append(w.stops, server.Stop)
	api := laneclient.NewAPI(laneclient.Config{Control: []string{w.control}})
	defer func() { err = errors.Join(err, api.Close()) }()
	if err := api.Do(ctx, http.MethodPost, "/v1/lanes", laneclient.Lane{Meta: laneclient.Meta{Name: color}}, nil); err != nil {
		return err
	}
	if err := fill(ctx, api, lanes); err != nil {
		return err
	}
	if _, err := w.join(ctx, "base", ""); err != nil {
		return err
	}
	each := watchers / processes
	for range min(each, 1) * processes { // none where each would have none
		end, err := programs.Again(ctx, []string{laneclient.EnvControl + "=" + w.control}, "-watch", strconv.Itoa(each))
		if err != nil {
			return err
		}
		w.stops = append(w.stops, end)
	}
	sender, err := laneclient.Dial(ctx, laneclient.Config{Control: []string{w.control}})
	if err != nil {
		return err
	}
	w.stops = append(w.stops, sender.Close)
	w.client = &http.Client{Transport: lanehttp.Transport(nil, sender), Timeout: patience}
	return sender.Need(ctx, service)
}

// fill makes lanes with a static instance each, which nobody calls.
func fill(ctx context.Context, api *laneclient.API, lanes int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for n := range lanes {
		group.Go(func() error {
			name := fmt.Sprintf("other-%d", n)
			if _, err := laneclient.CreateLane(ctx, api, &laneclient.Lane{Meta: laneclient.Meta{Name: name}}); err != nil {
				return err
			}
			_, err := laneclient.Put(ctx, api, &laneclient.Instance{
				Meta: laneclient.Meta{Name: "in-" + name}, Service: service, Lane: name, Static: true,
				Endpoints: []laneclient.Endpoint{{Protocol: lane.HTTP, Address: "127.0.0.1:1"}},
			})
			return err
		})
	}
	return group.Wait()
}

// join serves as an instance in this process and registers it.
func (w *world) join(ctx context.Context, name, in string) (leave func() error, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: who(name), ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }() // ends with Close below
	client, err := laneclient.Dial(ctx, laneclient.Config{
		Control: []string{w.control}, Service: service, Lane: in, Instance: name,
		Endpoints: []laneclient.Endpoint{{Protocol: lane.HTTP, Address: listener.Addr().String()}},
	})
	if err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return func() error { return errors.Join(client.Close(), server.Close()) }, nil
}

// joinAndLeave registers an instance of the lane and has it leave again.
func (w *world) joinAndLeave(ctx context.Context, name string, registered, left *series) error {
	begun := make(chan error, 1)
	var leave func() error
	clock := time.Now()
	go func() {
		var err error
		leave, err = w.join(ctx, name, color)
		begun <- err
	}()
	if err := w.until(ctx, name, clock, registered); err != nil {
		return errors.Join(err, <-begun)
	}
	if err := <-begun; err != nil {
		return err
	}
	ended := make(chan error, 1)
	clock = time.Now()
	go func() { ended <- leave() }()
	return errors.Join(w.until(ctx, "base", clock, left), <-ended)
}

// kill runs an instance of the lane by `laneway run` and kills its process.
func (w *world) kill(ctx context.Context, name string, killed *series) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	run := exec.CommandContext(ctx, w.binary, "run", "--control", w.control, "--service", service, "--lane", color,
		"--instance", name, "--", self, "-serve")
	if err := run.Start(); err != nil {
		return err
	}
	var ignored series
	pid, err := w.untilOther(ctx, "base", &ignored)
	if err != nil {
		return errors.Join(err, programs.End(run))
	}
	clock := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return errors.Join(err, programs.End(run))
	}
	err = w.until(ctx, "base", clock, killed)
	_ = run.Wait() // it ends with its child, with the child's status
	return err
}

// until sends requests until one is answered by name, and notes how long that took.
func (w *world) until(ctx context.Context, name string, since time.Time, s *series) error {
	for time.Since(since) < patience {
		answer, err := w.ask(ctx)
		switch {
		case err != nil:
			s.failed++
		case answer == name:
			s.took = append(s.took, time.Since(since))
			return nil
		}
	}
	return fmt.Errorf("no request was answered by %s within %s", name, patience)
}

// untilOther sends requests until one is not answered by name; it returns the pid that
// answered instead.
func (w *world) untilOther(ctx context.Context, name string, s *series) (int, error) {
	for since := time.Now(); time.Since(since) < patience; {
		answer, err := w.ask(ctx)
		if err != nil {
			s.failed++
		} else if answer != name {
			return strconv.Atoi(answer)
		}
	}
	return 0, fmt.Errorf("all requests were answered by %s for %s", name, patience)
}

func (w *world) ask(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(lane.With(ctx, color), http.MethodGet, "http://"+service+"/", nil)
	if err != nil {
		return "", err
	}
	resp, err := w.client.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return strings.TrimSpace(string(body)), err
}

// series is what was measured of one kind of event.
type series struct {
	took   []time.Duration
	failed int // requests
}

func (s *series) print(what string) {
	if len(s.took) == 0 {
		return
	}
	at := func(q float64) time.Duration { return turns.Quantile(s.took, q).Round(10 * time.Microsecond) }
	fmt.Printf("%-14s %6d %9s %9s %9s %9s %8d\n", what, len(s.took), at(0.5), at(0.9), at(0.99), at(1), s.failed)
}
