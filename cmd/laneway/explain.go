package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newExplainCommand(a *app) *cobra.Command {
	return groupCommand("explain", "Say who would get a request or a message, and why",
		"  laneway explain http --host green--order.lane.localhost --path /\n  laneway explain call --service order --color green",
		a.explainHTTP(), a.explainCall(), a.explainMessage())
}

func (a *app) explainCall() *cobra.Command {
	var service, color, protocol, at string
	c := &cobra.Command{
		Use: "call --service NAME", Short: "Say who would get a call from service to service",
		Long: `Asks who may serve a call of a color to a service, and why. The exit status is 0 also
where nobody would: that is what was asked for.`,
		Example: "  laneway explain call --service order --color green\n  laneway explain call --service pay --protocol grpc --at 127.0.0.1:7790",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if service == "" {
				return usageError(errors.New("which service is called? Say so with --service NAME"))
			}
			api, err := a.at(cmd.Context(), at)
			if err != nil {
				return err
			}
			e, err := laneclient.ExplainCall(cmd.Context(), api, service, color, protocol)
			if err != nil {
				return ofNode(err, at)
			}
			return a.printExplanation(*e)
		},
	}
	c.Flags().StringVar(&service, "service", "", "`NAME` of the service that is called")
	c.Flags().StringVar(&color, "color", "", "`LANE` that is the color of the call (default plain)")
	c.Flags().StringVar(&protocol, "protocol", lane.HTTP, "`PROTOCOL` of the call: http, grpc, thrift, …")
	a.addAt(c, &at)
	_ = c.RegisterFlagCompletionFunc("service", a.complete(laneclient.KindServices))
	_ = c.RegisterFlagCompletionFunc("color", a.complete(laneclient.KindLanes))
	a.addOutput(c)
	return c
}

func (a *app) explainHTTP() *cobra.Command {
	var in laneclient.HTTPRequest
	var headers, cookies []string
	var at string
	c := &cobra.Command{
		Use: "http --host HOST", Short: "Say who would get an HTTP request at the gateway",
		Example: `  laneway explain http --host green--order.lane.localhost
  laneway explain http --host shop.example.com --path '/cart?step=2' --header 'x-user=ann' --cookie beta=1`,
		Long: `Asks for a request as the gateway would see it: which color it gets, by which rule, and
which rules were passed over and why; and which instances may serve it.

The exit status is 0 also where the answer to the request would be an error: that is
what was asked for.`,
		Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fillRequest(&in, headers, cookies); err != nil {
				return usageError(err)
			}
			api, err := a.at(cmd.Context(), at)
			if err != nil {
				return err
			}
			var e laneclient.Explanation
			if err := api.Do(cmd.Context(), http.MethodPost, "/v1/explain/http", in, &e); err != nil {
				return ofNode(err, at)
			}
			return a.printExplanation(e)
		},
	}
	f := c.Flags()
	f.StringVar(&in.Host, "host", "", "`HOST` header")
	f.StringVar(&in.Path, "path", "/", "`PATH`, with a query where there is one")
	f.StringVar(&in.Method, "method", http.MethodGet, "`METHOD`")
	f.StringArrayVar(&headers, "header", nil, "`NAME=VALUE` of a header; repeatable")
	f.StringArrayVar(&cookies, "cookie", nil, "`NAME=VALUE` of a cookie; repeatable")
	f.StringVar(&in.Source, "source", "127.0.0.1", "`ADDRESS` that it comes from, by which percentages are given where nothing else is their key")
	f.BoolVar(&in.Trusted, "trusted", false, "it comes from a peer whose colors are believed")
	f.BoolVar(&in.Inside, "inside", false, "it comes to the inside listener")
	a.addAt(c, &at)
	a.addOutput(c)
	return c
}

// fillRequest takes over what flags have as text.
func fillRequest(in *laneclient.HTTPRequest, headers, cookies []string) error {
	if in.Host == "" {
		return errors.New("which host is asked? Say so with --host HOST")
	}
	if strings.ContainsAny(in.Host, "/?#@ ") {
		return fmt.Errorf("--host %q: want a host alone, as in --host shop.example.com; what follows it goes into --path", in.Host)
	}
	if path, query, found := strings.Cut(in.Path, "?"); found {
		in.Path, in.Query = path, query
	}
	path, err := url.PathUnescape(in.Path)
	if err != nil || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("--path %q: want a path that begins with /", in.Path)
	}
	in.Path = path
	in.Headers = map[string][]string{}
	for _, h := range headers {
		name, value, found := strings.Cut(h, "=")
		if !found {
			name, value, found = strings.Cut(h, ":")
		}
		if !found || name == "" {
			return fmt.Errorf("--header %q: want NAME=VALUE", h)
		}
		name = http.CanonicalHeaderKey(strings.TrimSpace(name))
		in.Headers[name] = append(in.Headers[name], strings.TrimSpace(value))
	}
	for _, c := range cookies {
		if name, _, found := strings.Cut(c, "="); !found || name == "" {
			return fmt.Errorf("--cookie %q: want NAME=VALUE", c)
		}
	}
	if len(cookies) > 0 {
		in.Headers["Cookie"] = append(in.Headers["Cookie"], strings.Join(cookies, "; "))
	}
	return nil
}

func (a *app) addAt(c *cobra.Command, at *string) {
	c.Flags().StringVar(at, "at", "", "`NODE` whose view is asked: an admin address, or the id, host or instance of a session (default the control plane)")
}

// at is the API of a node: the control plane, or one of those that have an admin
// address.
func (a *app) at(ctx context.Context, node string) (*api, error) {
	if node == "" {
		return a.api(), nil
	}
	address := node
	if !strings.Contains(node, ":") {
		sessions, err := list[laneclient.Session](ctx, a.api(), laneclient.ListOptions{})
		if err != nil {
			return nil, err
		}
		if address, err = adminOf(node, sessions); err != nil {
			return nil, err
		}
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	return a.apiAt(address), nil
}

// adminOf is the admin address of the session that node names: by its id, its role, its
// host, or its instance, with or without the service. Where an instance has several, the
// program comes before the `laneway run` around it: it is the one that calls others.
func adminOf(node string, sessions []laneclient.Session) (string, error) {
	var all, named []laneclient.Session
	for _, s := range sessions {
		if s.Admin == "" {
			continue
		}
		all = append(all, s)
		_, instance, _ := strings.Cut(s.Instance, "/")
		if node == s.Name || node == s.Role || node == s.Host || node == s.Instance || node == instance {
			named = append(named, s)
		}
	}
	programs := map[string]bool{}
	for _, s := range named {
		programs[s.Instance] = programs[s.Instance] || s.Role != laneclient.RoleRun
	}
	named = slices.DeleteFunc(named, func(s laneclient.Session) bool {
		return s.Role == laneclient.RoleRun && s.Name != node && s.Role != node && programs[s.Instance]
	})
	switch len(named) {
	case 0:
		return "", fmt.Errorf("no node %q that can be asked: there is %s", node, orNone(nodes(all)))
	case 1:
		return named[0].Admin, nil
	}
	return "", fmt.Errorf("%q names %d nodes: give the address of one: %s", node, len(named), strings.Join(nodes(named), ", "))
}

// maxNamed is how many nodes an error names.
const maxNamed = 8

// nodes says of sessions what can be told --at.
func nodes(sessions []laneclient.Session) []string {
	var out []string
	for _, s := range sessions {
		out = append(out, s.Admin+" ("+strings.TrimSpace(s.Role+" "+s.Instance)+" on "+s.Host+")")
	}
	slices.SortFunc(out, func(a, b string) int { // as people look for them
		return strings.Compare(a[strings.IndexByte(a, '('):], b[strings.IndexByte(b, '('):])
	})
	if more := len(out) - maxNamed; more > 0 {
		out = append(out[:maxNamed], fmt.Sprintf("and %d more, which `laneway status -o json` lists", more))
	}
	return out
}

// ofNode says of a node that gave no answer that it is not the control plane.
func ofNode(err error, node string) error {
	none, ok := errors.AsType[*unreachable](err)
	if node == "" || !ok {
		return err
	}
	return fmt.Errorf("node %s not reachable at %s: name one that runs, or leave --at out to ask the control plane (%s)",
		node, strings.Join(none.Control, ", "), none.cause())
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, ", ")
}

func (a *app) printExplanation(e laneclient.Explanation) error {
	return a.print(e, func(w io.Writer) error {
		color := e.Color
		if color == "" {
			color = "none: it is plain"
		}
		g := a.newGrid("SERVICE", cmp.Or(e.Service, "none"))
		g.add("protocol", e.Protocol)
		g.add("color", color)
		if e.Rule != "" {
			g.add("colored by", strings.TrimSpace(e.Rule+" "+e.RuleName))
		}
		if e.Dropped != "" {
			g.add("not believed", e.Dropped)
		}
		for _, r := range e.PassedOver {
			g.add("passed over", r.Name+": "+r.Reason)
		}
		if e.MorePassedOver > 0 {
			g.add("passed over", fmt.Sprintf("%d more rules", e.MorePassedOver))
		}
		g.add("reason", withText(e.Reason))
		if e.Error == "" {
			g.add("served by", laneOrBaseline(e.Lane))
		}
		for _, i := range e.Instances {
			g.add("instance", i.Name+" at "+endpoints(i.Endpoints))
		}
		if e.Error != "" {
			g.add("error", a.painter().bad(e.Error))
		}
		if e.Note != "" {
			g.add("note", e.Note)
		}
		g.add("answered by", fmt.Sprintf("%s at revision %d", e.Node, e.Revision))
		return g.write(w)
	})
}
