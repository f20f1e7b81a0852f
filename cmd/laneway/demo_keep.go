package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/demo"
)

// demoSettleWait bounds how long the routes may take to be new ones after a
// process has ended.
const demoSettleWait = 2 * time.Second

// advise tells what can be tried while the demo is kept.
func (s *demoStage) advise(w io.Writer) error {
	var b strings.Builder
	b.WriteString("\nThe demo runs on until it is interrupted (Ctrl-C).\n\nSend a request of a color, or a plain one:\n")
	for _, color := range demoColors() {
		fmt.Fprintf(&b, "  curl http://%s:%s/\n", demoHost(color), s.server.port())
	}
	control := " --control " + s.server.control
	fmt.Fprintf(&b, "\nAsk the control plane at %s:\n", s.server.control)
	fmt.Fprintf(&b, "  %s instance list%s\n", s.self, control)
	fmt.Fprintf(&b, "  %s explain call --service b --color %s --protocol grpc%s\n", s.self, demo.Green, control)
	b.WriteString("\nKill a process: it leaves the registry at once, and requests go where they may go then.\n")
	for _, actor := range s.actors {
		fmt.Fprintf(&b, "  kill -9 %-8d # %s, %s\n", actor.running.PID(), actor.Name, actor.where())
	}
	fmt.Fprintf(&b, "\nStart one again, in a terminal of its own:\n")
	fmt.Fprintf(&b, "  %s run%s --lane %s --service b --instance B2 --listen grpc=0 -- %s demo-service\n",
		s.self, control, demo.Green, s.self)
	fmt.Fprintf(&b, "\nLogs are in %s until then.\n", s.dir)
	_, err := fmt.Fprint(w, b.String())
	return err
}

// watch shows the routes again whenever a process has ended, until ctx ends.
func (s *demoStage) watch(ctx context.Context, w io.Writer, painted bool) error {
	for {
		var gone *demoActor
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.server.ended:
			return err
		case gone = <-s.ended:
		}
		_, _ = fmt.Fprintf(w, "\n%s has ended (%s) and is out of the registry. Requests now go:\n", gone.Name, gone.fate())
		routes := s.settled(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // being interrupted is how it is to end
		}
		if err := demo.WriteArrows(w, routes, painted); err != nil {
			return err
		}
	}
}

// settled sends requests until none of them has anything to do with a process
// that has ended: who calls it hears of that a moment later than the registry.
func (s *demoStage) settled(ctx context.Context) []demo.Route {
	deadline := time.Now().Add(demoSettleWait)
	tick := time.NewTicker(demoEntryRetry)
	defer tick.Stop()
	for {
		var routes []demo.Route
		broken := false
		for _, color := range demoColors() {
			route, err := s.send(ctx, color)
			if err != nil {
				route.Error = err.Error()
			}
			broken = broken || route.Error != "" && !strings.Contains(route.Error, "no instance of")
			routes = append(routes, route)
		}
		if !broken || time.Now().After(deadline) {
			return routes
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return routes
		}
	}
}
