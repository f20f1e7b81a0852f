package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/internal/demo"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// demoDeadline bounds the demo from its start to its table. It ends within
// seconds where a machine is not overloaded.
const demoDeadline = 60 * time.Second

func newDemoCommand(a *app) *cobra.Command {
	var keep bool
	engine := engineEmbedded
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on this machine how requests and messages go through a lane",
		Long: `Starts a server and seven processes: services a to e, one of each in the
baseline, and a second one of b and of d in lane green. A sends a request over
gRPC to b, b over Thrift to c, c over HTTP to d, d by a queue to e. Then it sends
one colored and one plain request to the gateway and shows which instance got
them at every hop, and why.

After that a second one of e joins the lane, consumes some messages and leaves with
others unread, once as asked and once by kill -9, and it shows who got which, and
that none was lost. All is as promised, or the exit status is 1.

Nothing needs to be installed, and nothing is left behind.`,
		Example: `  laneway demo
  laneway demo --keep      # leaves it running, to try requests and to kill processes
  laneway demo --engine nats://127.0.0.1:4222
  laneway demo -o json     # for programs`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkEngineURL(engine); err != nil {
				return usageError(fmt.Errorf("--engine %w", err))
			}
			return a.runDemo(cmd.Context(), engine, keep)
		},
	}
	a.addOutput(cmd)
	cmd.Flags().StringVar(&engine, "engine", engine, "`URL` of the message engine: embedded, or nats://HOST:PORT,…, from which the demo deletes again what it has made")
	cmd.Flags().BoolVar(&keep, "keep", false, "leave it running until interrupted")
	return cmd
}

func newDemoServiceCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:    "demo-service",
		Short:  "One service of the demo; started by laneway demo",
		Hidden: true,
		Args:   exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client := laneclient.FromEnv()
			client.Log = slog.New(slog.NewTextHandler(a.stderr, nil))
			cfg := demo.Config{Client: client}
			traces, err := telemetry.Traces{Getenv: os.Getenv, Service: client.Service, Log: client.Log}.Open(cmd.Context())
			switch {
			case err != nil:
				client.Log.Warn("calls are not traced", telemetry.KeyError, err)
			case traces != nil:
				cfg.Tracer = traces
				defer func() { _ = telemetry.CloseTraces(cmd.Context(), traces) }() // its handler tells of errors
			}
			cfg.Listen = func(ctx context.Context) (net.Listener, error) {
				port := a.getenv("PORT")
				if port == "" {
					return nil, errors.New("PORT is not set: this is started by `laneway demo`")
				}
				return new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", port))
			}
			return demo.Run(cmd.Context(), cfg)
		},
	}
}

// demoMeaning says what the table shows.
const demoMeaning = `
Lane green has instances of b and d alone. A green request goes to those, and to the
baseline's everywhere else: it leaves the lane and comes back into it, for its color
travels on. A plain request never sees the lane.
`

// errDemo is returned where the demo ran and something was not as promised.
var errDemo = errors.New("requests or messages did not go as promised; what differs is said above")

// errDemoInterrupted is returned where there is no table since the demo was
// interrupted before it.
var errDemoInterrupted = errors.New("interrupted before the demo was over")

// runDemo starts everything, shows the routes and stops everything again, also
// when ctx ends before it is done.
func (a *app) runDemo(ctx context.Context, engine string, keep bool) (err error) {
	if !signal.Ignored(syscall.SIGHUP) { // closing the terminal ends it as Ctrl-C does
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(ctx, syscall.SIGHUP)
		defer stop()
	}
	s, err := newDemoStage(a.stderr, engine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	showing, cancel := context.WithTimeout(ctx, demoDeadline)
	defer cancel()
	if err := s.start(showing); err != nil {
		if ctx.Err() != nil {
			return errDemoInterrupted
		}
		s.showLogs()
		return fmt.Errorf("start the demo: %w", err)
	}
	routes, err := s.routes(showing)
	if ctx.Err() != nil {
		return errDemoInterrupted
	}
	if err != nil {
		return err
	}
	if err := a.showDemo(showing, s, routes); err != nil {
		if ctx.Err() != nil {
			return errDemoInterrupted
		}
		return err
	}
	if !keep {
		s.say("try it by hand with: laneway demo --keep")
		return nil
	}
	out := a.stdout
	if a.output != outputTable { // which is for a program
		out = a.stderr
	}
	if err := s.advise(out); err != nil {
		return err
	}
	return s.watch(ctx, out, bool(a.painter()))
}

// showDemo tells of the routes, has messages sent, and tells of those.
func (a *app) showDemo(ctx context.Context, s *demoStage, routes []demo.Route) error {
	report := demo.NewReport(routes)
	people := a.output == outputTable
	if people {
		if err := a.printRoutes(routes); err != nil {
			return err
		}
	}
	faults := judge(routes)
	if len(faults) == 0 {
		trials, err := s.messages(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.showLogs()
			}
			return err
		}
		s.passedOn = trials[0].First(demo.Green, "E1")
		var all demo.MessageReport
		all, faults = demo.Sum(trials)
		report.Messages = &all
		if people {
			if err := a.printTrials(a.stdout, trials); err != nil {
				return err
			}
		}
	}
	if !people {
		if err := a.print(report, nil); err != nil {
			return err
		}
	}
	for _, fault := range faults {
		s.say("not as promised: %s", fault)
	}
	if len(faults) > 0 {
		return errDemo
	}
	return nil
}

func judge(routes []demo.Route) []string {
	var faults []string
	for _, r := range routes {
		faults = append(faults, demo.Judge(r)...)
	}
	return faults
}

func (a *app) printRoutes(routes []demo.Route) error {
	painted := bool(a.painter())
	if err := demo.WriteArrows(a.stdout, routes, painted); err != nil {
		return err
	}
	if _, err := io.WriteString(a.stdout, "\n"); err != nil {
		return err
	}
	if err := demo.WriteTable(a.stdout, routes, painted); err != nil {
		return err
	}
	_, err := io.WriteString(a.stdout, demoMeaning)
	return err
}

// demoColors lists the colors of the demo's requests.
func demoColors() []lane.Name { return []lane.Name{demo.Green, lane.Baseline} }
