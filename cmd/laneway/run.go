package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/internal/deploy"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// defaultInside is the inside listener that --proxy names when nothing is said.
const defaultInside = "127.0.0.1:7781"

type runOptions struct {
	process   deploy.Process
	listen    []string
	labels    []string
	logFormat telemetry.LogFormat
}

func newRunCommand(a *app) *cobra.Command {
	o := &runOptions{logFormat: telemetry.LogAuto}
	p := &o.process
	c := &cobra.Command{
		Use:   "run --service NAME [--lane LANE] [flags] -- COMMAND [ARG…]",
		Short: "Run a process as an instance, of the baseline or in a lane",
		Long: `Runs a command as an instance of a service and keeps its place in the registry:
it gets traffic once it listens, and none from the moment it has ended.

The command should listen on the port that PORT names in its environment, unless
--listen gives one. A lane that does not exist is created.

TERM or Ctrl-C takes the instance out of the routing, then goes to the command, which
is killed when --drain has passed; a second one goes to it at once. Other signals are
passed on. A command that reads the terminal gets Ctrl-C itself. The exit status is
the command's own.`,
		Example: `  laneway run --service order -- ./order
  laneway run --service order --lane green --listen 8000 -- python3 -m http.server 8000
  laneway run --service pay --listen grpc=9000 --listen http=9001 -- ./pay
  laneway run --service mailer --lane green --no-listen -- ./mailer`,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); len(args) > 0 && at != 0 {
				if p.Proxy == defaultInside && (at == 1 || checkProxy(args[0]) == nil) {
					return usageError(fmt.Errorf("unexpected %q: a proxy is named with =, as in --proxy=HOST:PORT; the command stands after --", args[0]))
				}
				return usageError(fmt.Errorf("unexpected %q: write the command after --, as in `laneway run --service order -- ./order`", args[0]))
			}
			if len(args) == 0 {
				return usageError(errors.New("no command to run: write it after --, as in `laneway run --service order -- ./order`"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			p.Cmd = args
			return a.run(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&p.Service, "service", a.getenv(laneclient.EnvService), "`NAME` of the service (default LANEWAY_SERVICE)")
	f.StringVar(&p.Lane, "lane", a.getenv(laneclient.EnvLane), "`LANE` that it is in (default LANEWAY_LANE, else the baseline)")
	f.StringVar(&p.Instance, "instance", "", "`NAME` of the instance (default the service's and four hex digits)")
	f.StringVar(&p.Room, "room", a.getenv(laneclient.EnvRoom), "`NAME` of the data center or zone (default LANEWAY_ROOM)")
	f.StringArrayVar(&o.listen, "listen", nil, "`[PROTO=]PORT` that it listens on; PROTO is http (default), grpc, thrift, thrift-framed, thrift-buffered or tcp; PORT 0 is chosen; repeatable")
	f.BoolVar(&p.NoListen, "no-listen", false, "it listens on nothing, it only consumes: registered at once")
	f.StringVar(&p.Advertise, "advertise", "", "`HOST` by which others reach it (default the loopback address it listens on)")
	f.Var((*proxyValue)(&p.Proxy), "proxy", "set HTTP_PROXY, http_proxy and JAVA_TOOL_OPTIONS to the gateway's inside listener; with =HOST:PORT to another one than "+defaultInside)
	f.Lookup("proxy").NoOptDefVal = proxyAddress
	f.BoolVar(&p.NoCreate, "no-create", false, "fail where the lane does not exist")
	f.IntVar(&p.Weight, "weight", 0, "`SHARE` of traffic among instances of its lane, 1 to 1000 (default 1)")
	f.StringArrayVar(&o.labels, "label", nil, "`KEY=VALUE` for people; repeatable")
	f.DurationVar(&p.Drain, "drain", deploy.DefaultDrain, "`TIME` that it may take to end, as 10s")
	f.Var(&o.logFormat, "log-format", "auto, text or json")
	_ = c.RegisterFlagCompletionFunc("lane", a.complete(laneclient.KindLanes))
	_ = c.RegisterFlagCompletionFunc("service", a.complete(laneclient.KindServices))
	return c
}

// proxyValue is a flag that has an address, or stands alone and has the default one.
type proxyValue string

// proxyAddress is what the flag is set to where it stands alone, and how help shows that
// it may have an address: "--proxy[=HOST:PORT]".
const proxyAddress = "HOST:PORT"

func (v *proxyValue) String() string { return string(*v) }

func (*proxyValue) Type() string { return "bool" } // of which help shows no name

func (v *proxyValue) Set(s string) error {
	if s == proxyAddress {
		s = defaultInside
	}
	*v = proxyValue(s)
	return nil
}

// checkProxy says whether s is an address that a proxy can be reached at.
func checkProxy(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || host == "" || strings.ContainsAny(host, "/@ ") {
		return fmt.Errorf("--proxy=%s: want --proxy=HOST:PORT, as in --proxy=%s, which --proxy alone means", s, defaultInside)
	}
	return nil
}

// fill takes over what flags have as text.
func (o *runOptions) fill() error {
	p := &o.process
	if p.Service == "" {
		return errors.New("which service is it? Say so with --service NAME")
	}
	for _, s := range o.listen {
		l, err := deploy.ParseListen(s)
		if err != nil {
			return fmt.Errorf("--%w", err)
		}
		p.Listen = append(p.Listen, l)
	}
	if p.NoListen && len(p.Listen) > 0 {
		return errors.New("--no-listen and --listen exclude each other")
	}
	for _, s := range o.labels {
		k, v, found := strings.Cut(s, "=")
		if !found || k == "" {
			return fmt.Errorf("--label %q: want KEY=VALUE", s)
		}
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[k] = v
	}
	if p.Proxy != "" {
		if err := checkProxy(p.Proxy); err != nil {
			return err
		}
	}
	if p.Weight < 0 || p.Weight > 1000 {
		return fmt.Errorf("--weight %d: want 1 to 1000", p.Weight)
	}
	return nil
}

func (a *app) run(ctx context.Context, o *runOptions) error {
	if err := o.fill(); err != nil {
		return usageError(err)
	}
	p := &o.process
	p.Stdin, p.Stdout, p.Stderr = os.Stdin, os.Stdout, os.Stderr
	p.Control, p.TokenFile = a.controlURLs(), a.getenv(laneclient.EnvTokenFile)
	p.Log = telemetry.NewLog(a.stderr, o.logFormat, slog.LevelInfo, isTerminal(a.stderr))

	// From here on signals are the child's. The first TERM or INT that came before
	// has ended ctx.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, passedOn()...)
	defer signal.Stop(signals)
	starting, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	running, err := deploy.Start(starting, *p)
	if err != nil {
		if _, ok := errors.AsType[*lane.NameError](err); ok {
			return usageError(err)
		}
		return startError(err)
	}
	var telling sync.WaitGroup
	until, done := context.WithCancel(ctx)
	telling.Go(func() { a.tellURL(until, running, p) })
	exit, err := superviseSignals(running, signals, p.Drain)
	done()
	telling.Wait()
	if refused, ok := errors.AsType[*deploy.RefusedError](err); ok {
		return refused
	}
	if err != nil {
		p.Log.WarnContext(ctx, "left the registry uncleanly, its lease ends it within seconds", telemetry.KeyService, p.Service, telemetry.KeyInstance, running.Instance(), telemetry.KeyError, err)
	}
	if exit.Code != 0 {
		return &exitError{code: exit.Code, err: unserved(running, exit)}
	}
	return unserved(running, exit)
}

// tellURL logs, once the instance is registered, where people reach it at the gateway. It
// returns when ctx ends, or when there is no more to tell.
func (a *app) tellURL(ctx context.Context, r *deploy.Running, p *deploy.Process) {
	select {
	case <-r.Ready():
	case <-ctx.Done():
		return
	}
	first := lane.HTTP
	if len(p.Listen) > 0 {
		first = p.Listen[0].Protocol
	}
	if p.NoListen || first != lane.HTTP && first != lane.GRPC {
		return // the gateway does not serve it
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	api := a.api()
	defer func() { _ = api.Close() }()
	var status laneclient.Status
	if err := api.Do(ctx, http.MethodGet, "/v1/status", nil, &status); err != nil {
		return // it serves without being told of
	}
	gateways, err := a.gateways(ctx, api)
	if err != nil {
		return
	}
	if u := edgeOf(hostOf(&status, lane.Name(p.Lane), p.Service), gateways); strings.Contains(u, "://") {
		p.Log.InfoContext(ctx, "can be reached at the gateway", telemetry.KeyURL, u)
	}
}

// startError tells how to reach the control plane where that is what failed.
func startError(err error) error {
	if _, ok := errors.AsType[*deploy.LocalError](err); ok {
		return err
	}
	return explainError(err)
}

// unserved is the error of a process that ended without having listened.
func unserved(r *deploy.Running, exit deploy.Exit) error {
	if exit.Served || exit.Stopped {
		return nil
	}
	ports := make([]string, len(exit.Missing))
	for i, port := range exit.Missing {
		ports[i] = fmt.Sprint(port)
	}
	return fmt.Errorf("%s ended without ever listening on port %s: let it listen on the port that PORT names, give its own with --listen PORT, or say --no-listen",
		r.Instance(), strings.Join(ports, " and "))
}

// passedOn are the signals that a child may want to see.
func passedOn() []os.Signal {
	return []os.Signal{
		syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
	}
}

// superviseSignals passes signals on until the process has ended. The first INT or
// TERM begins its stop: no new traffic, then the signal, then the drain deadline.
func superviseSignals(r *deploy.Running, signals <-chan os.Signal, drain time.Duration) (deploy.Exit, error) {
	type result struct {
		exit deploy.Exit
		err  error
	}
	ended := make(chan result, 1)
	go func() {
		exit, err := r.Wait()
		ended <- result{exit, err}
	}()
	stopping := false
	for {
		select {
		case sig := <-signals:
			if n, ok := sig.(syscall.Signal); ok && (n == syscall.SIGTERM || n == syscall.SIGINT) && !stopping {
				stopping = true
				go func() { _, _ = r.StopWith(n, drain) }() // ends with the process, and Wait tells of it
				continue
			}
			_ = r.Signal(sig) // one that has ended needs none
		case res := <-ended:
			return res.exit, res.err
		}
	}
}
