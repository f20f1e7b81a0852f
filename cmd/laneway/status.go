package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/internal/coloring"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newStatusCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Say what is well and what is not",
		Long: `Asks every replica of the control plane, and every node that is connected to it, how
they are: roles, registry, clocks, views that are stale, limits that are near, rules
that do not do what they say, static instances that fail their check. Those that cannot
be asked from here are named. The exit status is 1 where something needs attention.`,
		Example: "  laneway status\n  laneway status -o json --control http://127.0.0.1:7700",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.status(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.print(s, func(w io.Writer) error { return a.writeStatus(w, s) }); err != nil {
				return err
			}
			if !s.OK {
				return &exitError{code: exitFailed}
			}
			return nil
		},
	}
	a.addOutput(c)
	return c
}

// statusView is what `status` prints: what the control plane says, and what each node
// says of itself.
type statusView struct {
	laneclient.Status
	Nodes   []nodeStatus        `json:"nodes"`
	Engines []laneclient.Engine `json:"engines"` // that the registry knows
}

// status asks one replica, and then every replica and every node that it names.
func (a *app) status(ctx context.Context) (*statusView, error) {
	api := a.api()
	var v statusView
	began := time.Now()
	if err := api.Do(ctx, http.MethodGet, "/v1/status", nil, &v.Status); err != nil {
		return nil, err
	}
	took := time.Since(began)
	sessions, err := list[laneclient.Session](ctx, api, laneclient.ListOptions{})
	if err != nil {
		return nil, err
	}
	if v.Engines, err = list[laneclient.Engine](ctx, api, laneclient.ListOptions{}); err != nil && !laneclient.IsNotFound(err) { // of an older version
		return nil, err
	}
	offset := v.Time.Sub(began.Add(took / 2))
	nodes := nodesOf(sessions)
	askNodes(ctx, nodes, offset)
	v.Nodes = append(a.askReplicas(ctx, &v.Status, offset), nodes...)
	for _, n := range v.Nodes {
		if n.Asked && !n.OK && n.Name != v.Node { // whose own problems are there already
			v.OK = false
			v.Problems = append(v.Problems, fmt.Sprintf("%s at %s: %s", n.Name, n.Address, n.Fault))
		}
	}
	return &v, v.addRules(ctx, api)
}

// addRules adds the rules that are not ok at a gateway alone: the control plane has no
// keys of theirs.
func (v *statusView) addRules(ctx context.Context, api *api) error {
	at := map[string]string{}
	for _, n := range v.Nodes {
		maps.Copy(at, n.Rules)
	}
	if len(at) == 0 {
		return nil
	}
	rules, err := list[laneclient.Rule](ctx, api, laneclient.ListOptions{})
	if err != nil {
		return err
	}
	for _, r := range rules {
		text, skipped := at[r.Name]
		if !skipped || r.Status != coloring.StatusOK {
			continue
		}
		if v.NotOK == nil {
			v.NotOK = map[laneclient.Kind]int{}
		}
		v.NotOK[laneclient.KindRules]++
		if v.OK = false; v.NotOK[laneclient.KindRules] <= maxShown {
			v.Problems = append(v.Problems, fmt.Sprintf("rule %s does not do what it says: %s", r.Name, text))
		}
	}
	return nil
}

// askReplicas asks each replica of the control plane, by the URLs that are named and then
// by where the others listen, and adds what others than the first have to say to its
// status.
func (a *app) askReplicas(ctx context.Context, all *laneclient.Status, offset time.Duration) []nodeStatus {
	var nodes []nodeStatus
	answered := map[string]bool{}
	for _, u := range a.controlURLs() {
		n := nodeStatus{Name: "control", Role: "control", Address: strings.TrimPrefix(u, "http://"), Asked: true}
		one := n.askReplica(ctx, laneclient.Config{Control: []string{u}, TokenFile: a.getenv(laneclient.EnvTokenFile)}, offset)
		if answered[one.Node] {
			continue // two URLs of one
		}
		nodes = append(nodes, n)
		if one.Node != "" {
			answered[one.Node] = true
			addStale(all, one)
		}
	}
	here, _ := os.Hostname() // without it, no loopback address is this host's
	transport := nodeTransport()
	defer transport.CloseIdleConnections()
	for _, r := range all.Replicas {
		if answered[r.Name] {
			continue
		}
		n := nodeStatus{Name: r.Name, Role: "control", Host: r.Host, Address: r.Address}
		if n.Address == "" {
			n.Fault = "not asked: name its URL too, as in --control URL,URL"
		} else if n.reach(here); n.Asked {
			one := n.askReplica(ctx, laneclient.Config{Control: []string{"http://" + n.Address}, Transport: transport}, offset)
			switch one.Node {
			case r.Name:
				addStale(all, one)
			case "":
			default: // of a host that has the same name, say
				n = nodeStatus{Name: r.Name, Role: n.Role, Host: n.Host, Address: n.Address, Fault: "not asked: at its address " + one.Node + " answers"}
			}
		}
		nodes = append(nodes, n)
	}
	return nodes
}

// askReplica has n be what a replica says of itself, or that it does not; then the status
// is empty. offset is that of the clock to which its own is compared.
func (n *nodeStatus) askReplica(ctx context.Context, cfg laneclient.Config, offset time.Duration) (s laneclient.Status) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	api := laneclient.NewAPI(cfg)
	defer func() { _ = api.Close() }()
	began := time.Now()
	if err := api.Do(ctx, http.MethodGet, "/v1/status", nil, &s); err != nil {
		n.Fault = "no answer: " + sentence(reasonOf(err))
		return laneclient.Status{}
	}
	skew := s.Time.Sub(began.Add(time.Since(began) / 2))
	n.Name, n.OK, n.Fault, n.Revision, n.Roles = s.Node, s.OK, strings.Join(s.Problems, "; "), s.Registry.Cached, s.Roles
	n.Skew = negligible(skew-offset, 0)
	return s
}

// notOK says of objects of a kind that they do not do what they should, as lists of them do.
func notOK(kind laneclient.Kind) string {
	if kind == laneclient.KindInstances {
		return laneclient.HealthFailing
	}
	return "not ok"
}

// addStale adds the stale views of sessions that are renewed at another replica.
func addStale(all *laneclient.Status, one laneclient.Status) {
	for _, v := range one.Stale {
		if !slices.ContainsFunc(all.Stale, func(have laneclient.StaleView) bool { return have.Session == v.Session }) {
			all.Stale = append(all.Stale, v)
		}
	}
}

// maxShown is how many nodes that are well a table of the status shows.
const maxShown = 20

func (a *app) writeStatus(w io.Writer, s *statusView) error {
	p := a.painter()
	health := func(ok bool, detail string) string {
		if ok {
			return strings.TrimSpace(p.good("ok") + " " + detail)
		}
		return strings.TrimSpace(p.bad("not ok") + " " + detail)
	}
	g := a.newGrid("WHAT", "HOW IT IS")
	g.add("control plane", health(s.OK, s.Node+" "+s.Version))
	g.add("registry", health(s.Registry.OK, fmt.Sprintf("revision %d %s", s.Registry.Revision, s.Registry.Detail)))
	for _, r := range s.Roles {
		g.add("role "+r.Role, health(r.Ready, r.Reason))
	}
	for _, r := range s.Replicas {
		about := "since " + ago(r.Since, s.Time)
		if r.Leader {
			about += ", leads"
		}
		if r.Skew != 0 {
			about += ", its clock is off by " + time.Duration(r.Skew).String()
		}
		g.add("replica", r.Name+" "+about)
	}
	for _, e := range s.Engines {
		about := e.Address + " outside"
		if e.Session != "" {
			about = e.Address + " in a server, since " + ago(e.Since, s.Time)
		}
		if e.Default {
			about += ", the default one"
		}
		g.add("engine "+e.Name, about)
	}
	more := 0
	for i, n := range s.Nodes {
		switch {
		case n.OK && n.Name == s.Node: // has been said
		case n.OK && i >= maxShown:
			more++
		case n.Asked:
			g.add("node "+n.Name, health(n.OK, n.about()))
		default:
			g.add("node "+n.Name, strings.TrimSpace(n.Address+" "+n.Fault))
		}
	}
	if more > 0 {
		g.add("other nodes", health(true, fmt.Sprintf("%d of them; -o json lists all", more)))
	}
	for _, k := range slices.Sorted(maps.Keys(s.Objects)) {
		text := fmt.Sprint(s.Objects[k])
		if n := s.NotOK[k]; n > 0 {
			text += ", " + p.bad(fmt.Sprintf("%d %s", n, notOK(k)))
		}
		g.add(string(k), text)
	}
	for _, role := range slices.Sorted(maps.Keys(s.Sessions)) {
		g.add("sessions of "+role, fmt.Sprint(s.Sessions[role]))
	}
	for _, v := range s.Stale {
		who := v.Instance
		if who == "" {
			who = v.Role
		}
		g.add("stale view", p.bad(fmt.Sprintf("%s on %s is %s behind (session %s)", who, v.Host, time.Duration(v.Behind).Round(time.Millisecond), v.Session)))
	}
	for _, l := range s.Limits {
		if l.Near {
			g.add("limit "+l.Name, p.bad(fmt.Sprintf("%d of %d", l.Used, l.Limit)))
		}
	}
	for _, text := range s.Problems {
		g.add("problem", p.bad(text))
	}
	return g.write(w)
}
