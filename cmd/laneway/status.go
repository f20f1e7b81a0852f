package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newStatusCommand(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "status",
		Short: "Say what is well and what is not",
		Long: `Asks the control plane how it and those that are connected to it are. The exit
status is 1 where something needs attention.`,
		Example: "  laneway status\n  laneway status -o json --control http://127.0.0.1:7700",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var s laneclient.Status
			if err := a.api().call(cmd.Context(), http.MethodGet, "/v1/status", nil, &s); err != nil {
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

func (a *app) writeStatus(w io.Writer, s laneclient.Status) error {
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
	for _, k := range slices.Sorted(maps.Keys(s.Objects)) {
		g.add(string(k), fmt.Sprint(s.Objects[k]))
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
