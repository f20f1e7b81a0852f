package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	demoDomain     = "lane.localhost" // the default of laneway server
	demoServerPoll = 10 * time.Millisecond
	demoServerStop = 5 * time.Second
)

// errServerEnded is returned where the demo's server ended before the demo.
var errServerEnded = errors.New("control plane and gateway have ended")

// demoServer is a `laneway server` in a process of its own.
type demoServer struct {
	control string // URL
	api     *api   // of the control plane; nil until it is ready
	gateway string // host:port of the edge
	engine  string // address of the message engine
	outside bool   // the engine is none of this server
	process *os.Process
	ended   chan error // one value, then closed
}

// startDemoServer starts a server on free ports and returns when it is ready.
// When ctx ends first, it is stopped.
func startDemoServer(ctx context.Context, self, dir, engine string, log *os.File) (*demoServer, error) {
	ready, config := filepath.Join(dir, "ready.json"), filepath.Join(dir, "laneway.yaml")
	outside := !engineConfig{URL: engine}.embedded()
	prefix := ""
	if outside { // others may use it, too
		prefix = "demo-" + strings.ToLower(rand.Text()[:8])
	}
	text := fmt.Sprintf("engines: [{name: %s, url: %q, prefix: %q}]\n", defaultEngine, engine, prefix)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, fmt.Errorf("write the demo's configuration: %w", err)
	}
	started := make(chan error, 1)
	s := &demoServer{ended: make(chan error, 1), outside: outside}
	go func() {
		defer close(s.ended)
		// The death signal belongs to the thread that started the process: it must
		// live as long as this goroutine, and so do nothing else.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		//nolint:noctx // it outlives ctx and is ended by stop
		cmd := exec.Command(self, "server",
			"--roles", "control,gateway,engine", "--data", filepath.Join(dir, "data"), "--ready-file", ready,
			"--listen", "control=127.0.0.1:0", "--listen", "gateway=127.0.0.1:0", "--listen", "inside=127.0.0.1:0",
			"--listen", "nats=127.0.0.1:0", "--config", config,
			"--domain", demoDomain)
		cmd.Env = demoServerEnv(os.Environ())
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = demoServerAttr()
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start laneway server: %w", err)
			return
		}
		s.process = cmd.Process
		started <- nil
		s.ended <- errors.Join(errServerEnded, cmd.Wait())
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	err := s.await(ctx, ready)
	if err == nil {
		err = s.findEngine(ctx)
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// demoServerEnv leaves out what would configure the server otherwise.
func demoServerEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, "LANEWAY_") })
}

// port is that of the gateway's edge.
func (s *demoServer) port() string {
	_, port, _ := net.SplitHostPort(s.gateway)
	return port
}

// await reads the addresses from the ready file once it is there.
func (s *demoServer) await(ctx context.Context, file string) error {
	tick := time.NewTicker(demoServerPoll)
	defer tick.Stop()
	for {
		text, err := os.ReadFile(file)
		if err == nil {
			var addrs struct{ Control, Gateway string }
			if err := json.Unmarshal(text, &addrs); err != nil {
				return fmt.Errorf("read the server's addresses: %w", err)
			}
			s.control, s.gateway = "http://"+addrs.Control, addrs.Gateway
			s.api = &api{laneclient.NewAPI(laneclient.Config{Control: []string{s.control}})}
			return nil
		}
		select {
		case <-tick.C:
		case err := <-s.ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("laneway server is not ready: %w", ctx.Err())
		}
	}
}

// findEngine asks the server where its message engine is.
func (s *demoServer) findEngine(ctx context.Context) (err error) {
	if s.engine, err = s.api.Engine(ctx, defaultEngine); err != nil {
		return fmt.Errorf("the message engine cannot be used: %w", err)
	}
	return nil
}

// clear deletes what the demo has made on an engine that goes on without it.
func (s *demoServer) clear() error {
	if !s.outside || s.engine == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), demoServerStop)
	defer cancel()
	e, err := openEngine(ctx, engineAt{engineConfig: engineConfig{Name: defaultEngine, URL: s.engine}})
	if err == nil {
		err = errors.Join(e.Drop(ctx), e.Close())
	}
	if err != nil {
		return fmt.Errorf("delete what the demo has made on its engine: %w", err)
	}
	return nil
}

// stop asks the server to end, kills it where that takes too long, and returns
// when it is gone.
func (s *demoServer) stop() {
	if s.api != nil {
		_ = s.api.Close()
	}
	_ = s.process.Signal(syscall.SIGTERM) // it may be gone already
	deadline := time.AfterFunc(demoServerStop, func() { _ = s.process.Kill() })
	defer deadline.Stop()
	for range s.ended { // until it is closed
	}
}
