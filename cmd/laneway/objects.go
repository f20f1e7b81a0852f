package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// someArgs wants at least one name.
func someArgs() cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usageError(fmt.Errorf("%q wants at least one NAME", shortPath(cmd)))
		}
		return nil
	}
}

// complete offers the names of objects of a kind to the shell.
func (a *app) complete(kind laneclient.Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		objects, _, err := laneclient.ListRaw(cmd.Context(), a.api(), kind, laneclient.ListOptions{})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, raw := range objects {
			var o struct{ Name, Service string }
			if json.Unmarshal(raw, &o) != nil {
				continue
			}
			if kind == laneclient.KindInstances {
				o.Name = o.Service + "/" + o.Name
			}
			if strings.HasPrefix(o.Name, prefix) && !slices.Contains(args, o.Name) {
				names = append(names, o.Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// listCommand is `list` of a kind; rows adds the table's rows.
func listCommand[T laneclient.Object](a *app, kind laneclient.Kind, example string, flags func(*cobra.Command) *laneclient.ListOptions, table func(context.Context, io.Writer, []T) error) *cobra.Command {
	opts := &laneclient.ListOptions{}
	c := &cobra.Command{
		Use: "list", Short: "List " + string(kind), Example: example, Args: exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			items, err := list[T](cmd.Context(), a.api(), *opts)
			if err != nil {
				return err
			}
			return a.print(items, func(w io.Writer) error { return table(cmd.Context(), w, items) })
		},
	}
	if flags != nil {
		opts = flags(c)
	}
	a.addOutput(c)
	return c
}

// showCommand is `show` of a kind: the object, in YAML where people read it.
func (a *app) showCommand(kind laneclient.Kind, word, example string) *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show a " + word, Example: example,
		Args: exactArgs("NAME"), ValidArgsFunction: a.complete(kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			var raw json.RawMessage
			if err := a.api().Do(cmd.Context(), http.MethodGet, laneclient.PathOf(kind, args[0]), nil, &raw); err != nil {
				return ofKind(err, word, args[0])
			}
			return a.print(raw, func(w io.Writer) error {
				text, err := toYAML(raw)
				if err != nil {
					return err
				}
				_, err = w.Write(text)
				return err
			})
		},
	}
	a.addOutput(c)
	return c
}

func (a *app) deleteCommand(kind laneclient.Kind, word, example string) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME…", Short: "Delete " + string(kind), Example: example,
		Args: someArgs(), ValidArgsFunction: a.complete(kind),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.deleteAll(cmd, kind, word, "deleted", args)
		},
	}
}

func newServiceCommand(a *app) *cobra.Command {
	return groupCommand("service", "List, show and delete services", "  laneway service list",
		listCommand(a, laneclient.KindServices, "  laneway service list\n  laneway service list -o json", nil,
			func(ctx context.Context, w io.Writer, items []laneclient.Service) error {
				instances, err := list[laneclient.Instance](ctx, a.api(), laneclient.ListOptions{})
				if err != nil {
					return err
				}
				offers := offered(instances)
				g := a.newGrid("NAME", "ENDPOINTS", "CHECK", "OWNER")
				for _, s := range items {
					check := ""
					if s.Check != nil {
						check = strings.TrimSpace(s.Check.Protocol + " " + s.Check.Path)
					}
					has := offers[s.Name]
					if has == "" && len(s.Endpoints) > 0 {
						has = endpoints(s.Endpoints) + " (no instance)"
					}
					g.add(s.Name, has, check, s.Owner)
				}
				return g.write(w)
			}),
		a.showCommand(laneclient.KindServices, "service", "  laneway service show order"),
		a.deleteCommand(laneclient.KindServices, "service", "  laneway service delete order"),
	)
}

func newInstanceCommand(a *app) *cobra.Command {
	return groupCommand("instance", "List, show and delete instances", "  laneway instance list --lane green",
		listCommand(a, laneclient.KindInstances, "  laneway instance list\n  laneway instance list --service order --lane green -o json",
			func(c *cobra.Command) *laneclient.ListOptions {
				var opts laneclient.ListOptions
				c.Flags().StringVar(&opts.Lane, "lane", "", "only those in `LANE`")
				c.Flags().StringVar(&opts.Service, "service", "", "only those of the service `NAME`")
				return &opts
			},
			func(ctx context.Context, w io.Writer, items []laneclient.Instance) error {
				lanes, err := list[laneclient.Lane](ctx, a.api(), laneclient.ListOptions{})
				if err != nil {
					return err
				}
				return a.writeInstances(w, items, lanes)
			}),
		a.showCommand(laneclient.KindInstances, "instance", "  laneway instance show order/order-7f3a"),
		a.deleteCommand(laneclient.KindInstances, "instance", "  laneway instance delete order/order-7f3a"),
	)
}

// writeInstances writes a table of instances. lanes are those that they may be in.
func (a *app) writeInstances(w io.Writer, items []laneclient.Instance, lanes []laneclient.Lane) error {
	now := time.Now()
	g := a.newGrid("SERVICE", "INSTANCE", "LANE", "ROOM", "ENDPOINTS", "STATE", "LIVES BY", "SINCE")
	for _, i := range items {
		state := i.State
		if i.Health == laneclient.HealthFailing {
			state = a.painter().bad(i.Health)
		}
		if over := outlived(i, lanes); over != "" {
			state = a.painter().bad(over)
		}
		by := "session"
		if i.Static {
			by = "static"
		}
		g.add(i.Service, i.Name, i.Lane, i.Room, endpoints(i.Endpoints), state, by, ago(i.Since, now))
	}
	return g.write(w)
}

// outlived says why an instance does not count although it is there: its lane, or the
// generation of it that it was registered in, is over. "": it does.
func outlived(i laneclient.Instance, lanes []laneclient.Lane) string {
	if i.Lane == "" {
		return ""
	}
	n := slices.IndexFunc(lanes, func(l laneclient.Lane) bool { return l.Name == i.Lane })
	switch {
	case n < 0 || lanes[n].State == string(lane.Ended):
		return "lane ended"
	case lanes[n].Generation != i.Generation:
		return "old generation"
	}
	return ""
}

// offered is, by service, which protocols its instances have.
func offered(instances []laneclient.Instance) map[string]string {
	lists := map[string][]string{}
	for _, i := range instances {
		for _, e := range i.Endpoints {
			e.Address = ""
			if word := endpoints([]laneclient.Endpoint{e}); !slices.Contains(lists[i.Service], word) {
				lists[i.Service] = append(lists[i.Service], word)
			}
		}
	}
	out := map[string]string{}
	for service, words := range lists {
		slices.Sort(words)
		out[service] = strings.Join(words, ", ")
	}
	return out
}

// endpoints writes "http 127.0.0.1:80, thrift/framed 127.0.0.1:81".
func endpoints(list []laneclient.Endpoint) string {
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = e.Protocol
		if e.Transport != "" {
			parts[i] += "/" + e.Transport
		}
		if e.Address != "" {
			parts[i] += " " + e.Address
		}
	}
	return strings.Join(parts, ", ")
}

func newRouteCommand(a *app) *cobra.Command {
	return groupCommand("route", "List, show and delete host routes of the gateway", "  laneway route list",
		listCommand(a, laneclient.KindRoutes, "  laneway route list\n  laneway route list -o yaml", nil,
			func(_ context.Context, w io.Writer, items []laneclient.Route) error {
				g := a.newGrid("NAME", "HOST", "PATH", "SERVICE", "CLUSTER")
				for _, r := range items {
					g.add(r.Name, r.Host, r.Path, r.Service, r.Cluster)
				}
				return g.write(w)
			}),
		a.showCommand(laneclient.KindRoutes, "route", "  laneway route show shop"),
		a.deleteCommand(laneclient.KindRoutes, "route", "  laneway route delete shop"),
	)
}

func newRuleCommand(a *app) *cobra.Command {
	return groupCommand("rule", "List, show and delete coloring rules of the gateway", "  laneway rule list",
		listCommand(a, laneclient.KindRules, "  laneway rule list\n  laneway rule list -o yaml", nil,
			func(_ context.Context, w io.Writer, items []laneclient.Rule) error {
				g := a.newGrid("PRIORITY", "NAME", "MATCH", "LANES", "KEY", "STATUS")
				slices.SortStableFunc(items, func(x, y laneclient.Rule) int { return x.Priority - y.Priority })
				for _, r := range items {
					g.add(fmt.Sprint(r.Priority), r.Name, matchText(r.Match), shares(r.Lanes), keyText(r), r.Status)
				}
				return g.write(w)
			}),
		a.showCommand(laneclient.KindRules, "rule", "  laneway rule show testers"),
		a.deleteCommand(laneclient.KindRules, "rule", "  laneway rule delete testers"),
	)
}

// matchText names what a rule matches by, in one line.
func matchText(m laneclient.Match) string {
	var parts []string
	value := func(what string, v *laneclient.ValueMatch) {
		if v == nil {
			return
		}
		s := what + " " + v.Name
		if v.Value != "" {
			s += "=" + v.Value
		}
		parts = append(parts, s)
	}
	if m.Host != "" {
		parts = append(parts, "host "+m.Host)
	}
	value("header", m.Header)
	value("cookie", m.Cookie)
	value("query", m.Query)
	if m.Path != "" {
		parts = append(parts, "path "+m.Path)
	}
	if len(m.Method) > 0 {
		parts = append(parts, "method "+strings.Join(m.Method, "|"))
	}
	if m.User != nil {
		s := "user of " + m.User.From
		if n := len(m.User.List); n > 0 {
			s += fmt.Sprintf(" (%d listed)", n)
		}
		parts = append(parts, s)
	}
	if m.Source != "" {
		parts = append(parts, "source "+m.Source)
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// keyText is what the percentages of a rule stick to; "" where it has none.
func keyText(r laneclient.Rule) string {
	switch {
	case len(r.Lanes) == 1 && (r.Lanes[0].Percent == 0 || r.Lanes[0].Percent == 100):
		return r.Key
	case r.Key != "":
		return r.Key
	case r.Match.User != nil:
		return "user"
	}
	return "source"
}

func shares(list []laneclient.LaneShare) string {
	parts := make([]string, len(list))
	for i, s := range list {
		parts[i] = s.Lane
		if s.Percent != 0 {
			parts[i] += fmt.Sprintf(" %g%%", s.Percent)
		}
	}
	return strings.Join(parts, ", ")
}

// laneOrBaseline names a lane for people.
func laneOrBaseline(name string) string {
	if lane.Name(name) == lane.Baseline {
		return "baseline"
	}
	return "lane " + name
}
