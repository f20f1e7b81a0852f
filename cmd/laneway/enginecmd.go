package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

func newEngineCommand(a *app) *cobra.Command {
	return groupCommand("engine", "List, show and delete message engines", "  laneway engine list",
		listCommand(a, laneclient.KindEngines, "  laneway engine list\n  laneway engine list -o json", nil,
			func(_ context.Context, w io.Writer, items []laneclient.Engine) error {
				now := time.Now()
				g := a.newGrid("NAME", "ADDRESS", "RUNS IN", "DEFAULT", "SINCE")
				for _, e := range items {
					in, first := "a cluster of its own", ""
					if e.Session != "" {
						in = "a server (session " + e.Session + ")"
					}
					if e.Default {
						first = "yes"
					}
					g.add(e.Name, e.Address, in, first, ago(e.Since, now))
				}
				return g.write(w)
			}),
		a.showCommand(laneclient.KindEngines, "engine", "  laneway engine show main"),
		a.deleteCommand(laneclient.KindEngines, "engine", "  laneway engine delete archive"),
	)
}
