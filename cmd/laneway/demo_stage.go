package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/laneway-dev/laneway/internal/demo"
	"github.com/laneway-dev/laneway/internal/deploy"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	demoDrain = 5 * time.Second // for a process to end when asked to
	// demoEntryRetry is how often the gateway is asked again for a service that it
	// has not heard of yet.
	demoEntryRetry  = 20 * time.Millisecond
	demoEntryWait   = 5 * time.Second
	demoRequestWait = 5 * time.Second
	demoAnswerBytes = 1 << 20
	demoTailBytes   = 600 // of a process's log that are shown where the demo fails
	demoLaunches    = 2   // how often E2 is started
)

// demoStage holds the processes of a demo. It is used from one goroutine.
type demoStage struct {
	progress io.Writer
	began    time.Time
	dir      string
	self     string // this binary
	engine   string // URL of the message engine, as the server is told
	server   *demoServer
	client   *http.Client
	actors   []*demoActor
	passedOn string // place of a green message that E2 left to E1; empty: there is none
	logs     []*os.File
	ended    chan *demoActor // each actor whose process has ended, once
	waiting  sync.WaitGroup  // for the goroutines that send to ended
}

// demoActor is an instance and its process.
type demoActor struct {
	demo.Instance
	running *deploy.Running
	exit    deploy.Exit // set before it is sent to ended
}

func newDemoStage(progress io.Writer, engine string) (*demoStage, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find the laneway binary to start services with: %w", err)
	}
	dir, err := os.MkdirTemp("", "laneway-demo-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the demo: %w", err)
	}
	return &demoStage{
		progress: progress,
		began:    time.Now(),
		dir:      dir,
		self:     self,
		engine:   engine,
		client:   &http.Client{Timeout: demoRequestWait, Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}},
		ended:    make(chan *demoActor, len(demo.Instances())+demoLaunches),
	}, nil
}

func (s *demoStage) say(format string, args ...any) {
	since := time.Since(s.began).Truncate(10 * time.Millisecond)
	_, _ = fmt.Fprintf(s.progress, "%6.2fs  %s\n", since.Seconds(), fmt.Sprintf(format, args...))
}

// start starts the server and then the services, the last of the chain first: the
// registry has one order, so whoever knows an instance of a knows all that a
// request needs.
func (s *demoStage) start(ctx context.Context) error {
	log, err := s.logFile("server")
	if err != nil {
		return err
	}
	s.say("starting control plane and gateway")
	s.server, err = startDemoServer(ctx, s.self, s.dir, s.engine, log)
	if err != nil {
		return err
	}
	links := demo.Chain()
	for _, link := range slices.Backward(links) {
		var batch []*demoActor
		for _, i := range demo.Instances() {
			if i.Service != link.Service {
				continue
			}
			actor, err := s.launch(ctx, i)
			if err != nil {
				return err
			}
			batch = append(batch, actor)
		}
		if err := s.registered(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// launch starts the process of one instance.
func (s *demoStage) launch(ctx context.Context, i demo.Instance) (*demoActor, error) {
	log, err := s.logFile(i.Name)
	if err != nil {
		return nil, err
	}
	p := deploy.Process{
		Service:  i.Service,
		Lane:     string(i.Lane),
		Instance: i.Name,
		NoListen: i.Protocol == demo.Queue,
		Cmd:      []string{s.self, "demo-service"},
		Stdout:   log,
		Stderr:   log,
		Control:  []string{s.server.control},
		Drain:    demoDrain,
		TTL:      demo.LeaseTTL,
	}
	if !p.NoListen {
		p.Listen = []deploy.Listen{{Protocol: i.Protocol}}
	}
	running, err := deploy.Start(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", i.Name, err)
	}
	actor := &demoActor{Instance: i, running: running}
	s.actors = append(s.actors, actor)
	s.waiting.Go(func() {
		// An error here is one of leaving the registry; the lease sees to that.
		actor.exit, _ = running.Wait()
		s.ended <- actor
	})
	return actor, nil
}

func (s *demoStage) registered(ctx context.Context, batch []*demoActor) error {
	var names []string
	for _, actor := range batch {
		select {
		case <-actor.running.Ready():
		case gone := <-s.ended:
			return fmt.Errorf("%s ended before the demo began: %s", gone.Name, gone.fate())
		case err := <-s.server.ended:
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("%s did not register: %w", actor.Name, ctx.Err())
		}
		if actor.Protocol == demo.Queue {
			if err := s.joined(ctx, actor); err != nil {
				return err
			}
		}
		names = append(names, actor.describe())
	}
	s.say("started %s", strings.Join(names, " and "))
	return nil
}

// joined waits until a consumer is a member of its group.
func (s *demoStage) joined(ctx context.Context, actor *demoActor) error {
	tick := time.NewTicker(demoEntryRetry)
	defer tick.Stop()
	for {
		members, _, err := laneclient.ListAll[laneclient.Member](ctx, s.server.api, laneclient.ListOptions{Group: demo.Group})
		if slices.ContainsFunc(members, func(m laneclient.Member) bool {
			return m.Session != "" && m.Lane == string(actor.Lane)
		}) {
			return nil
		}
		select {
		case <-tick.C:
		case gone := <-s.ended:
			return fmt.Errorf("%s ended before it consumed: %s", gone.Name, gone.fate())
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s did not join group %s: %w", actor.Name, demo.Group, ctx.Err()), err)
		}
	}
}

// forget leaves out a process that has ended and that nobody misses.
func (s *demoStage) forget(gone *demoActor) {
	s.actors = slices.DeleteFunc(s.actors, func(a *demoActor) bool { return a == gone })
}

func (a *demoActor) describe() string {
	return fmt.Sprintf("%s in %s (pid %d, %s)", a.Name, a.where(), a.running.PID(), a.Protocol)
}

func (a *demoActor) where() string {
	if a.Lane == lane.Baseline {
		return "the baseline"
	}
	return "lane " + string(a.Lane)
}

// fate tells how a process that has ended did so.
func (a *demoActor) fate() string {
	if a.exit.Signal != nil {
		return "signal " + a.exit.Signal.String()
	}
	return fmt.Sprintf("exit status %d", a.exit.Code)
}

// routes sends one request of every color and returns their routes. An error is
// one of this program or of the gateway; what goes wrong behind the gateway is in
// the routes.
func (s *demoStage) routes(ctx context.Context) ([]demo.Route, error) {
	s.say("sending one request of color %s and a plain one", demo.Green)
	if err := s.awaitEntry(ctx); err != nil {
		return nil, err
	}
	var routes []demo.Route
	for _, color := range demoColors() {
		route, err := s.send(ctx, color)
		if err != nil {
			return nil, err
		}
		routes = append(routes, route)
	}
	return routes, nil
}

// awaitEntry waits until the gateway knows service a, the last to be registered.
func (s *demoStage) awaitEntry(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoEntryWait)
	defer cancel()
	tick := time.NewTicker(demoEntryRetry)
	defer tick.Stop()
	for {
		status, _, err := s.get(ctx, lane.Baseline, demo.ReadyPath)
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("ask the gateway for service a: %w", err)
		}
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the gateway does not pass requests on to service a (status %d)", status)
		}
	}
}

// demoHost is the host name that gives a request its color.
func demoHost(color lane.Name) string {
	return lane.HostLabel(color, demo.Chain()[0].Service) + "." + demoDomain
}

// get sends a request to the gateway's edge, as one from outside.
func (s *demoStage) get(ctx context.Context, color lane.Name, path string) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.server.gateway+path, nil)
	if err != nil {
		return 0, nil, err
	}
	// Not all resolvers know *.localhost; the Host header is what counts.
	req.Host = demoHost(color)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, demoAnswerBytes))
	return resp.StatusCode, body, err
}

// send sends one request and returns the route that the services report.
func (s *demoStage) send(ctx context.Context, color lane.Name) (demo.Route, error) {
	route := demo.Route{Color: color}
	status, body, err := s.get(ctx, color, "/")
	switch {
	case err != nil:
		return route, fmt.Errorf("send a request to %s: %w", demoHost(color), err)
	case status != http.StatusOK:
		route.Error = fmt.Sprintf("the gateway answered %d: %s", status, bytes.TrimSpace(body))
		return route, nil
	}
	if err := json.Unmarshal(body, &route.Reply); err != nil {
		return route, fmt.Errorf("read the answer of %s: %w", demoHost(color), err)
	}
	if len(route.Visits) == 0 {
		route.Error = "the answer names no visit"
		return route, nil
	}
	return route, s.explain(ctx, &route)
}

// explain asks why the gateway chose the first instance.
func (s *demoStage) explain(ctx context.Context, route *demo.Route) error {
	var why laneclient.Explanation
	question := laneclient.HTTPRequest{Host: demoHost(route.Color), Path: "/", Method: http.MethodGet}
	if err := s.server.api.Do(ctx, http.MethodPost, "/v1/explain/http", question, &why); err != nil {
		return fmt.Errorf("ask why %s got the request: %w", route.Visits[0].Instance, err)
	}
	served := func(i laneclient.Instance) bool { return i.Name == route.Visits[0].Instance }
	if !slices.ContainsFunc(why.Instances, served) {
		route.Error = fmt.Sprintf("the gateway sent the request to %s, which explain does not name",
			route.Visits[0].Instance)
		return nil
	}
	route.Visits[0].Reason = lane.Reason(why.Reason)
	return nil
}

// close stops the services, then the server, and removes what they left on disk.
func (s *demoStage) close() error {
	s.say("stopping")
	var stopping sync.WaitGroup
	for _, actor := range s.actors {
		stopping.Go(func() { _, _ = actor.running.Stop(demoDrain) })
	}
	stopping.Wait()
	s.waiting.Wait()
	var left error
	if s.server != nil {
		left = s.server.clear()
		s.server.stop()
	}
	for _, log := range s.logs {
		_ = log.Close()
	}
	if err := os.RemoveAll(s.dir); err != nil {
		return errors.Join(left, fmt.Errorf("remove the demo's directory: %w", err))
	}
	return left
}

func (s *demoStage) logFile(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(s.dir, name+".log"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make a log for %s: %w", name, err)
	}
	s.logs = append(s.logs, f)
	return f, nil
}

// showLogs shows the last lines that each process logged.
func (s *demoStage) showLogs() {
	for _, log := range s.logs {
		text, err := os.ReadFile(log.Name())
		if err != nil || len(text) == 0 {
			continue
		}
		text = bytes.TrimSpace(text[max(0, len(text)-demoTailBytes):])
		s.say("%s ends with:\n%s", filepath.Base(log.Name()), text)
	}
}
