package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/laneway-dev/laneway/internal/run"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// closeDrain is what stopping may take beyond the drain deadline, which is that of
// requests: leaving the registry, closing the control plane.
const closeDrain = 5 * time.Second

func newServerCommand(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "server",
		Short: "Run an installation, or some of its roles",
		Long: `Runs the control plane, the gateway and a message engine in one process, with all
data in one directory, until it is interrupted. Each role can also run alone.

Flags go over environment variables (LANEWAY_ and the flag's name, as in
LANEWAY_DATA), and those over the file of --config.`,
		Example: `  laneway server
  laneway server --data /var/lib/laneway --domain lanes.example.com
  laneway server --listen control=127.0.0.1:0 --listen gateway=127.0.0.1:8080 --ready-file addresses.json
  laneway server --engine main=nats://10.0.0.1:4222,10.0.0.2:4222
  laneway server --roles gateway --control http://127.0.0.1:7700`,
		Args: exactArgs(),
	}
	addSettings(c.Flags())
	c.Flags().StringVar(&file, "config", "", "`FILE` in YAML (default LANEWAY_CONFIG)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig(cmd.Flags(), file)
		if err != nil {
			return usageError(err)
		}
		if err := cfg.validate(); err != nil {
			return usageError(err)
		}
		return a.serve(cmd.Context(), cfg)
	}
	return c
}

// envConfig names the file of a configuration where --config does not.
const envConfig = "LANEWAY_CONFIG"

func newCheckCommand(a *app) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "check --config FILE",
		Short: "Check a server's configuration and start nothing",
		Long: `Checks the configuration that a server would have, with flags and environment,
and reports every problem with the path of its field.`,
		Example: "  laneway check --config laneway.yaml",
		Args:    exactArgs(),
	}
	addSettings(c.Flags())
	c.Flags().StringVar(&file, "config", "", "`FILE` in YAML (default LANEWAY_CONFIG)")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig(cmd.Flags(), file)
		if err == nil {
			err = cfg.validate()
		}
		if err == nil {
			text := "The configuration is good."
			if cmp.Or(file, a.getenv(envConfig)) == "" {
				text = "Without a file only the defaults, flags and environment were checked, which are good: name one with --config FILE."
			}
			_, err = fmt.Fprintln(a.stdout, text)
			return err
		}
		for _, e := range flatten(err) {
			fmt.Fprintln(a.stderr, e)
		}
		n := len(flatten(err))
		if n == 1 {
			return errors.New("the configuration has a problem: correct it and check again")
		}
		return fmt.Errorf("the configuration has %d problems: correct them and check again", n)
	}
	return c
}

// flatten lists the errors that were joined.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

func addSettings(f *pflag.FlagSet) {
	for _, s := range settings() {
		if s.list {
			f.StringArray(s.flag, nil, s.usage)
		} else {
			f.String(s.flag, "", s.usage)
		}
	}
}

// loadConfig reads flags over environment over file over defaults.
func (a *app) loadConfig(flags *pflag.FlagSet, file string) (*config, error) {
	cfg := defaultConfig(a.getenv)
	if file == "" {
		file = a.getenv(envConfig)
	}
	if file != "" {
		if err := cfg.readFile(file); err != nil {
			return nil, err
		}
	}
	var errs []error
	for _, s := range settings() {
		if v := a.getenv(s.env()); v != "" {
			values := []string{v}
			if s.list {
				values = laneclient.SplitList(v)
			}
			if err := s.set(cfg, values); err != nil {
				errs = append(errs, problem(s.env(), "%w", err))
			}
		}
		if !flags.Changed(s.flag) {
			continue
		}
		values := []string{flags.Lookup(s.flag).Value.String()}
		if s.list {
			given, err := flags.GetStringArray(s.flag)
			if err != nil {
				return nil, err
			}
			values = laneclient.SplitList(strings.Join(given, ","))
		}
		if err := s.set(cfg, values); err != nil {
			errs = append(errs, problem("--"+s.flag, "%w", err))
		}
	}
	if a.control != "" || a.getenv(laneclient.EnvControl) != "" {
		cfg.Control = a.controlURLs()
	}
	return cfg, errors.Join(errs...)
}

// node is one process of an installation while it is put together: its open
// listeners, its parts, and what they share.
type node struct {
	cfg       *config
	log       *slog.Logger
	metrics   *prometheus.Registry
	listeners map[string]net.Listener
	more      map[string]string // addresses of what has no listener here, by its name
	engines   []*servedEngine   // the default one first
	group     run.Group
	traces    *sdktrace.TracerProvider // nil: no spans
	transport http.RoundTripper        // to the control plane of this process; nil: there is none
	tokenFile string
	readiness []readiness
	control   func(role string, check func(context.Context) error) // adds to the control plane's /readyz
	close     []func() error                                       // after all parts have stopped, the last one first
}

// readiness is whether a role is ready: check gives nil, or why not.
type readiness struct {
	role  string
	check func(context.Context) error
}

// addReadiness makes a role count for /readyz.
func (n *node) addReadiness(role string, check func(context.Context) error) {
	n.readiness = append(n.readiness, readiness{role, check})
	if n.control != nil {
		n.control(role, check)
	}
}

// health is how the roles of this process are.
func (n *node) health(ctx context.Context) laneclient.Health {
	health := laneclient.Health{OK: true}
	for _, e := range n.readiness {
		status := laneclient.RoleStatus{Role: e.role, Ready: true}
		if err := e.check(ctx); err != nil {
			status.Ready, status.Reason = false, sentence(err)
			health.OK = false
		}
		health.Roles = append(health.Roles, status)
	}
	return health
}

// serveReady answers /readyz of a process without a control plane.
func (n *node) serveReady(w http.ResponseWriter, r *http.Request) {
	health, status := n.health(r.Context()), http.StatusOK
	if !health.OK {
		status = http.StatusServiceUnavailable
	}
	laneclient.WriteAnswer(w, status, health)
}

// serve runs the roles until ctx ends.
func (a *app) serve(ctx context.Context, cfg *config) (err error) {
	level, err := cfg.level()
	if err != nil {
		return usageError(err)
	}
	n := &node{
		cfg: cfg, metrics: newMetrics(), listeners: map[string]net.Listener{}, more: map[string]string{}, tokenFile: a.getenv(laneclient.EnvTokenFile),
		log: telemetry.NewLog(a.stderr, cfg.Log.Format, level, isTerminal(a.stderr)),
	}
	library := telemetry.LibraryLog(n.log) // what has no other way to tell of peers: transports of net/http
	log.SetFlags(library.Flags())
	log.SetOutput(library.Writer())
	n.group = run.Group{Drain: time.Duration(cfg.Drain) + closeDrain, Log: n.log}
	defer func() {
		for _, f := range slices.Backward(n.close) {
			err = errors.Join(err, f())
		}
	}()
	if err := n.listen(ctx); err != nil {
		return err
	}
	n.addTraces(ctx)
	// Before all that uses them, so that they close after it.
	if err := n.openEngines(ctx); err != nil {
		return err
	}
	// The control plane comes before a gateway of this process, which reads from it, and
	// goes after it.
	if cfg.has(roleControl) {
		if err := n.addControl(ctx); err != nil {
			return err
		}
	}
	if cfg.has(roleGateway) {
		if err := n.addGateway(); err != nil {
			return err
		}
	}
	if cfg.has(roleEngine) {
		n.addEngines()
	}
	return n.group.Run(ctx, func() error { return a.announce(n) })
}

// addTraces has the roles make spans where the environment says so. Nothing else
// depends on it: what is wrong there is told of, and there are no spans.
func (n *node) addTraces(ctx context.Context) {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	traces, err := telemetry.Traces{
		Getenv: os.Getenv, Service: "laneway", Instance: host + "/" + cmp.Or(n.address(listenGateway), n.address(listenControl)),
		Version: version(), Log: n.log,
	}.Open(ctx)
	if err != nil {
		n.log.WarnContext(ctx, "requests are not traced", telemetry.KeyError, err)
	}
	if traces == nil {
		return
	}
	n.traces = traces
	n.group.Add("traces", func(ctx context.Context, ready func()) error {
		ready()
		<-ctx.Done()
		if err := telemetry.CloseTraces(ctx, traces); err != nil {
			n.log.WarnContext(ctx, "spans are lost", telemetry.KeyError, err)
		}
		return nil
	})
}

// newMetrics is a registry with what every process tells of itself.
func newMetrics() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: telemetry.MetricBuild, Help: "Always 1; labeled with the version.",
		ConstLabels: prometheus.Labels{"version": version()},
	})
	build.Set(1)
	r.MustRegister(build)
	return r
}

// listen opens all listeners, so that every address is known, and a port that is
// taken is told of, before anything starts.
func (n *node) listen(ctx context.Context) error {
	for _, name := range n.cfg.listeners() {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", n.cfg.Listen[name])
		if err != nil {
			return fmt.Errorf("listen for %s: %w; end what listens there, or choose another address with --listen %s=HOST:PORT", name, err, name)
		}
		n.listeners[name] = l
		n.close = append(n.close, func() error {
			// Whoever serves it has closed it, unless it has never come to that.
			if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
	}
	return nil
}

func (n *node) address(name string) string {
	if l := n.listeners[name]; l != nil {
		return l.Addr().String()
	}
	return ""
}

// announce tells people and programs where to reach what is ready now.
func (a *app) announce(n *node) error {
	addresses := maps.Clone(n.more)
	for name := range n.listeners {
		addresses[name] = n.address(name)
	}
	for _, name := range slices.Concat(n.cfg.listeners(), slices.Sorted(maps.Keys(n.more))) {
		n.log.Info("listening", telemetry.KeyRole, name, telemetry.KeyAddress, addresses[name])
	}
	if isTerminal(a.stderr) {
		fmt.Fprintf(a.stderr, "\nReady. Try: laneway run %s--service hello -- sh -c 'exec python3 -m http.server $PORT'\n\n", n.controlFlag())
	}
	if n.cfg.readyFile == "" {
		return nil
	}
	text, err := json.Marshal(addresses)
	if err != nil {
		return err
	}
	if err := writeAtomically(n.cfg.readyFile, append(text, '\n')); err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	n.close = append(n.close, func() error {
		if err := os.Remove(n.cfg.readyFile); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	})
	return nil
}

// controlFlag is the flag by which other commands find this server's control plane; empty
// where they do without.
func (n *node) controlFlag() string {
	control := strings.Join(n.cfg.Control, ",")
	if address := n.address(listenControl); address != "" {
		control = "http://" + address
	}
	if control == laneclient.DefaultControl {
		return ""
	}
	return "--control " + control + " "
}

// writeAtomically replaces path by a file that is whole whenever it is there.
func writeAtomically(path string, text []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.Name()))
	}
	return err
}

// serveAdmin serves the admin listener from now on. about answers what is this process's
// own. end returns once the last request has been served; ctx does not end it.
func (n *node) serveAdmin(ctx context.Context, pattern string, about http.HandlerFunc, log *slog.Logger) (end func() error) {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(n.metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /readyz", n.serveReady)
	mux.HandleFunc(pattern, about)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- serveHTTP(ctx, n.listeners[listenAdmin], mux, time.Second, log) }()
	return func() error {
		stop()
		return <-served
	}
}

// serveHTTP serves on a listener until ctx ends, then lets what is under way
// finish for the time given, and cuts off the rest.
func serveHTTP(ctx context.Context, l net.Listener, handler http.Handler, drain time.Duration, log *slog.Logger) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	// Watches never end by themselves: a handler's context ends with the server.
	base, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s := &http.Server{
		Handler: handler, Protocols: &protocols,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return base },
		ErrorLog:    telemetry.LibraryLog(log),
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	cancel()
	stopping, done := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer done()
	err := s.Shutdown(stopping)
	if err != nil {
		err = errors.Join(err, s.Close())
	}
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
