package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newLaneCommand(a *app) *cobra.Command {
	return groupCommand("lane", "Create, list and end lanes",
		"  laneway lane create green --ttl 24h --owner ann\n  laneway lane show green",
		a.laneCreate(), a.laneList(), a.laneShow(), a.laneExtend(), a.laneHold(), a.laneDelete())
}

func (a *app) laneCreate() *cobra.Command {
	var parent, owner string
	var ttl time.Duration
	c := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a lane",
		Long: `Creates a lane over the baseline, or over a parent, which must exist.

A lane whose name begins with strict- is strict: its traffic never falls back.
A lane ends when its time is up and nobody has used it; see extend and hold.`,
		Example: `  laneway lane create green
  laneway lane create green-fix --parent green --ttl 4h --owner ann
  laneway lane create strict-load`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := lane.ParseName(args[0]); err != nil {
				return usageError(err)
			}
			if ttl < 0 {
				return usageError(fmt.Errorf("--ttl %s: want a positive time such as 24h", ttl))
			}
			in := laneclient.Lane{Meta: laneclient.Meta{Name: args[0]}, Parent: parent, Owner: owner, TTL: laneclient.Duration(ttl)}
			var l laneclient.Lane
			if err := a.api().Do(cmd.Context(), http.MethodPost, "/v1/lanes", in, &l); err != nil {
				return err
			}
			return a.print(l, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "lane %s created, generation %d, expires %s\n", l.Name, l.Generation, ago(l.Expires, time.Now()))
				return err
			})
		},
	}
	c.Flags().StringVar(&parent, "parent", "", "`LANE` to fall back to (default the baseline)")
	c.Flags().StringVar(&owner, "owner", "", "`NAME` of whom it belongs to, for people")
	c.Flags().Var((*ttlValue)(&ttl), "ttl", "`TIME` after its last use that it ends, as 30m, 24h or 3d (default 72h)")
	a.addOutput(c)
	return c
}

// ttlValue is a flag for a long time: as time.ParseDuration reads it, or whole days.
type ttlValue time.Duration

func (v *ttlValue) String() string {
	if *v == 0 {
		return "" // the control plane's default
	}
	return time.Duration(*v).String()
}

func (*ttlValue) Type() string { return "duration" }

func (v *ttlValue) Set(s string) error {
	if days, found := strings.CutSuffix(s, "d"); found {
		const most = 10 * 365 // far from where a duration ends
		n, err := strconv.ParseUint(days, 10, 64)
		if err != nil || n > most {
			return fmt.Errorf("want a time such as 24h, or days up to %dd", most)
		}
		*v = ttlValue(time.Duration(n) * 24 * time.Hour)
		return nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return errors.New("want a time such as 30m, 72h or 3d")
	}
	*v = ttlValue(d)
	return nil
}

func (a *app) laneList() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "list", Short: "List lanes",
		Example: "  laneway lane list\n  laneway lane list --all -o json   # with those that have ended",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			lanes, err := list[laneclient.Lane](cmd.Context(), a.api(), laneclient.ListOptions{})
			if err != nil {
				return err
			}
			if !all {
				lanes = slices.DeleteFunc(lanes, func(l laneclient.Lane) bool { return l.State == string(lane.Ended) })
			}
			return a.print(lanes, func(w io.Writer) error {
				now := time.Now()
				g := a.newGrid("NAME", "PARENT", "STATE", "GENERATION", "OWNER", "LAST USE", "EXPIRES")
				for _, l := range lanes {
					g.add(l.Name, l.Parent, l.State, fmt.Sprint(l.Generation), l.Owner, lastUse(l, now), expires(l, now))
				}
				return g.write(w)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "list lanes that have ended too")
	a.addOutput(c)
	return c
}

// lastUse says when a lane was last used. While it is in use that is written about once per
// hundredth of its TTL, so that what is written is no closer than that.
func lastUse(l laneclient.Lane, now time.Time) string {
	const late = 5 * time.Second // renewals bring it, every few seconds
	if grain := time.Duration(l.TTL) / 100; !l.LastUse.IsZero() && now.Sub(l.LastUse) <= grain+late {
		return "within " + span(grain+late)
	}
	return ago(l.LastUse, now)
}

func expires(l laneclient.Lane, now time.Time) string {
	switch {
	case l.State == string(lane.Ended):
		return "ended " + ago(l.EndedAt, now)
	case l.Held:
		return "held"
	}
	return ago(l.Expires, now)
}

// laneView is what `lane show` prints.
type laneView struct {
	laneclient.Lane
	Labels    map[string]string     `json:"host_labels"` // by service: the first label of its host in this lane
	Hosts     map[string]string     `json:"hosts"`       // by service: that host
	URLs      map[string]string     `json:"urls"`        // by service: that host at a gateway which can be asked where it listens, or the host alone
	Instances []laneclient.Instance `json:"instances"`
	Groups    []laneGroup           `json:"groups"` // that have consumers in it, or its color apart
}

func (a *app) laneShow() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "Show a lane with its instances and host names",
		Example: "  laneway lane show green\n  laneway lane show green -o yaml",
		Args:    exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindLanes),
		RunE: func(cmd *cobra.Command, args []string) error {
			api := a.api()
			var v laneView
			if err := api.Do(cmd.Context(), http.MethodGet, laneclient.PathOf(laneclient.KindLanes, args[0]), nil, &v.Lane); err != nil {
				return ofKind(err, "lane", args[0])
			}
			var err error
			v.Instances, err = list[laneclient.Instance](cmd.Context(), api, laneclient.ListOptions{Lane: args[0]})
			if err != nil {
				return err
			}
			services, err := list[laneclient.Service](cmd.Context(), api, laneclient.ListOptions{})
			if err != nil {
				return err
			}
			var status laneclient.Status
			if err := api.Do(cmd.Context(), http.MethodGet, "/v1/status", nil, &status); err != nil {
				return err
			}
			gateways, err := a.gateways(cmd.Context(), api)
			if err != nil {
				return err
			}
			if v.Groups, err = a.groupsOf(cmd.Context(), args[0]); err != nil {
				return err
			}
			v.Labels, v.Hosts, v.URLs = map[string]string{}, map[string]string{}, map[string]string{}
			for _, s := range services {
				v.Labels[s.Name] = lane.HostLabel(lane.Name(v.Name), s.Name)
				v.Hosts[s.Name] = hostOf(&status, lane.Name(v.Name), s.Name)
				v.URLs[s.Name] = edgeOf(v.Hosts[s.Name], gateways)
			}
			return a.print(v, func(w io.Writer) error { return a.writeLane(w, v) })
		},
	}
	a.addOutput(c)
	return c
}

func (a *app) writeLane(w io.Writer, v laneView) error {
	now := time.Now()
	parent := v.Parent
	switch {
	case lane.Name(v.Name).Strict():
		parent = "none: a strict lane never falls back"
	case parent == "":
		parent = "the baseline"
	}
	g := a.newGrid("LANE", v.Name)
	g.add("kind", v.Kind)
	g.add("parent", parent)
	g.add("state", v.State)
	g.add("generation", fmt.Sprint(v.Generation))
	g.add("owner", v.Owner)
	g.add("ttl", span(time.Duration(v.TTL)))
	g.add("created", ago(v.Created, now))
	g.add("last use", lastUse(v.Lane, now))
	g.add("expires", expires(v.Lane, now))
	if err := g.write(w); err != nil {
		return err
	}
	if len(v.Instances) > 0 {
		if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		if err := a.writeInstances(w, v.Instances, []laneclient.Lane{v.Lane}); err != nil {
			return err
		}
	}
	if len(v.Groups) > 0 {
		g := a.newGrid("GROUP", "CONSUMERS IN THE LANE", "PARTITIONS APART", "WAITING")
		for _, v := range v.Groups {
			g.add(v.Group, strings.Join(v.Members, ", "), fmt.Sprint(len(v.Cursors)), count(v.Lag))
		}
		if err := writeBelow(w, g); err != nil {
			return err
		}
	}
	if len(v.Hosts) == 0 {
		return nil
	}
	g = a.newGrid("SERVICE", "AT THE GATEWAY")
	names := make([]string, 0, len(v.Hosts))
	for name := range v.Hosts {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		g.add(name, v.URLs[name])
	}
	return writeBelow(w, g)
}

// gateways are those that can be asked, and what they say.
func (a *app) gateways(ctx context.Context, api *api) ([]nodeStatus, error) {
	sessions, err := list[laneclient.Session](ctx, api, laneclient.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes := nodesOf(slices.DeleteFunc(sessions, func(s laneclient.Session) bool { return s.Role != laneclient.RoleGateway }))
	askNodes(ctx, nodes, 0)
	return nodes, nil
}

func (a *app) laneExtend() *cobra.Command {
	var ttl time.Duration
	c := &cobra.Command{
		Use: "extend NAME", Short: "Let a lane's time begin again",
		Example: "  laneway lane extend green\n  laneway lane extend green --ttl 168h",
		Args:    exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindLanes),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.laneAction(cmd, args[0], "extend", laneclient.Extension{TTL: laneclient.Duration(ttl)})
		},
	}
	c.Flags().Var((*ttlValue)(&ttl), "ttl", "the new `TIME`, as 30m, 24h or 3d (default as before)")
	a.addOutput(c)
	return c
}

func (a *app) laneHold() *cobra.Command {
	var release bool
	c := &cobra.Command{
		Use: "hold NAME", Short: "Keep a lane from expiring",
		Example: "  laneway lane hold green\n  laneway lane hold green --release",
		Args:    exactArgs("NAME"), ValidArgsFunction: a.complete(laneclient.KindLanes),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.laneAction(cmd, args[0], "hold", laneclient.Hold{Held: !release})
		},
	}
	c.Flags().BoolVar(&release, "release", false, "let it expire again")
	a.addOutput(c)
	return c
}

func (a *app) laneAction(cmd *cobra.Command, name, action string, in any) error {
	var l laneclient.Lane
	if err := a.api().Do(cmd.Context(), http.MethodPost, laneclient.PathOf(laneclient.KindLanes, name)+"/"+action, in, &l); err != nil {
		return ofKind(err, "lane", name)
	}
	return a.print(l, func(w io.Writer) error {
		until := "expires " + ago(l.Expires, time.Now())
		if l.Held {
			until = "does not expire until it is released with `laneway lane hold " + l.Name + " --release`"
		}
		_, err := fmt.Fprintf(w, "lane %s %s\n", l.Name, until)
		return err
	})
}

func (a *app) laneDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME…", Short: "End lanes: they drain, then their traffic goes to the parent",
		Example: "  laneway lane delete green",
		Args:    someArgs(), ValidArgsFunction: a.complete(laneclient.KindLanes),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.deleteAll(cmd, laneclient.KindLanes, "lane", "drains", args)
		},
	}
}

// deleteAll deletes objects one by one; the first that cannot be ends it.
func (a *app) deleteAll(cmd *cobra.Command, kind laneclient.Kind, word, done string, names []string) error {
	api := a.api()
	for _, name := range names {
		if err := api.Do(cmd.Context(), http.MethodDelete, laneclient.PathOf(kind, name), nil, nil); err != nil {
			return ofKind(err, word, name)
		}
		if _, err := fmt.Fprintf(a.stdout, "%s %s %s\n", word, name, done); err != nil {
			return err
		}
	}
	return nil
}
