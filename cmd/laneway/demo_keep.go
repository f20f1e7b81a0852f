package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/internal/demo"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
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
	fmt.Fprintf(&b, "  %s explain call --service b --color %s --protocol grpc --at A1%s  # by A1's own view\n", s.self, demo.Green, control)
	b.WriteString("\nLook at the queue between d and e:\n")
	fmt.Fprintf(&b, "  %s group show %s%s\n", s.self, demo.Group, control)
	fmt.Fprintf(&b, "  %s message list %s --color %s%s\n", s.self, demo.Topic, demo.Green, control)
	if s.passedOn != "" {
		b.WriteString("\nSee what happened to a green message that E2 left to E1, hop by hop:\n")
		fmt.Fprintf(&b, "  %s message show %s%s\n", s.self, s.passedOn, control)
	}
	b.WriteString("\nKill a process: it leaves the registry at once, and requests go where they may go then.\n")
	for _, actor := range s.actors {
		fmt.Fprintf(&b, "  kill -9 %-8d # %s, %s\n", actor.running.PID(), actor.Name, actor.where())
	}
	fmt.Fprintf(&b, "\nStart one again, in a terminal of its own:\n")
	fmt.Fprintf(&b, "  %s run%s --lane %s --service b --instance B2 --listen grpc=0 -- %s demo-service\n",
		s.self, control, demo.Green, s.self)
	fmt.Fprintf(&b, "\nLet e join the lane, too: its messages go there until it ends:\n")
	fmt.Fprintf(&b, "  %s run%s --lane %s --service e --instance E2 --no-listen -- %s demo-service\n",
		s.self, control, demo.Green, s.self)
	b.WriteString("\nThen have it handed plain messages that E1 has read, once more and in the lane:\n")
	fmt.Fprintf(&b, "  %s group replay %s %s --lane %s --color - --since 1h%s\n", s.self, demo.Group, demo.Topic, demo.Green, control)
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
// that has ended: who calls it hears of that a moment later than the registry. A
// request that nobody can serve has not; whoever could not pass it on must have known
// so before it was sent.
func (s *demoStage) settled(ctx context.Context) []demo.Route {
	deadline := time.Now().Add(demoSettleWait)
	tick := time.NewTicker(demoEntryRetry)
	defer tick.Stop()
	ends := map[lane.Name]int{} // by color: after how many visits nobody can go on
	for {
		var routes []demo.Route
		broken := false
		for _, color := range demoColors() {
			route, err := s.send(ctx, color)
			if err != nil {
				route.Error = err.Error()
			}
			routes = append(routes, route)
			if route.Error == "" {
				continue
			}
			if at, known := ends[color]; known && at == len(route.Visits) {
				continue
			}
			broken = true
			if s.ends(ctx, route) {
				ends[color] = len(route.Visits)
			}
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

// ends reports whether the last that a request has got to knows of nobody to pass it on
// to. It is asked itself: others hear of changes at other moments.
func (s *demoStage) ends(ctx context.Context, route demo.Route) bool {
	links := demo.Chain()
	if len(route.Visits) >= len(links) {
		return false
	}
	node := laneclient.RoleGateway
	if n := len(route.Visits); n > 0 {
		node = route.Visits[n-1].Instance
	}
	sessions, _, err := laneclient.ListAll[laneclient.Session](ctx, s.server.api, laneclient.ListOptions{})
	if err != nil {
		return false
	}
	admin, err := adminOf(node, sessions)
	if err != nil {
		return false
	}
	at := laneclient.NewAPI(laneclient.Config{Control: []string{"http://" + admin}})
	defer func() { _ = at.Close() }()
	next := links[len(route.Visits)]
	why, err := laneclient.ExplainCall(ctx, at, next.Service, string(route.Color), next.Protocol)
	return err == nil && (why.Reason == string(lane.ReasonNone) || why.Reason == string(lane.ReasonStrictNo))
}
