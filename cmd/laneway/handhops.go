package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"time"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane/consume"
)

// handHopsWait bounds how long a command waits at its end for its hops to be written.
const handHopsWait = 10 * time.Second

// addHops gives a command the flag that says where hops of messages are.
func addHops(cmd *cobra.Command, topic *string) {
	*topic = consume.HopsTopic
	cmd.Flags().StringVar(topic, "hops", *topic, "`TOPIC` that hops are kept in; where there is none, none is left")
}

// openHops opens what records the hops that a command leaves, n of them at most: nil, which
// records nothing, where no program of the engine keeps hops.
func openHops(ctx context.Context, e engine, topic string, n int) (*consume.Hops, error) {
	if _, err := e.Describe(ctx, topic); errors.Is(err, consume.ErrNoTopic) {
		return nil, nil //nolint:nilnil // which records nothing
	} else if err != nil {
		return nil, err
	}
	return consume.NewHops(e, outsider{}, consume.HopsConfig{Share: 1, Topic: topic, Queue: n, Service: "laneway", Instance: whoAsks()})
}

// closeHops writes the hops of a command. What it did is done, also where that fails.
func (a *app) closeHops(ctx context.Context, h *consume.Hops) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handHopsWait) // an interrupt has ended what they tell of, not that they are told
	defer cancel()
	if err := h.Close(ctx); err != nil {
		fmt.Fprintf(a.stderr, "laneway: that is done, but `laneway message show` will not tell of all of it: %s\n", sentence(err))
	}
}

// whoAsks is who calls a command, as user@machine.
func whoAsks() string {
	name, host := "", ""
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = "@" + h
	}
	return cmp.Or(name, "somebody") + host
}
