package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// app is what all commands share: where they read and write, and the flags of the
// root.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	control        string // --control
	output         string // -o of those that have it
}

// newRootCommand builds the command with all its subcommands.
func newRootCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv}
	root := &cobra.Command{
		Use:   "laneway",
		Short: "One baseline, many lanes",
		Long: `Laneway gives everybody a lane of their own over one shared environment.

Traffic that carries a lane's tag goes to the lane's instances where there are
some and to the baseline where there are none, hop by hop.`,
		Example: `  laneway server                                            # an installation on this machine
  laneway run --service order -- ./order                    # an instance of the baseline
  laneway run --service order --lane green -- ./order       # one in the lane green
  curl -H 'Host: green--order.lane.localhost' 127.0.0.1:7780`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noSubcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError(err) })
	root.PersistentFlags().StringVar(&a.control, "control", "",
		"`URL` of the control plane, several separated by commas (default "+laneclient.EnvControl+", else "+laneclient.DefaultControl+")")
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.AddGroup(
		&cobra.Group{ID: groupStart, Title: "Run it:"},
		&cobra.Group{ID: groupObjects, Title: "Ask and change what is there:"},
	)
	for id, commands := range map[string][]*cobra.Command{
		groupStart: {newDemoCommand(a), newServerCommand(a), newRunCommand(a), newCheckCommand(a), newStatusCommand(a)},
		groupObjects: {
			newLaneCommand(a), newServiceCommand(a), newInstanceCommand(a), newRouteCommand(a), newRuleCommand(a),
			newEngineCommand(a), newTopicCommand(a), newGroupCommand(a), newMessageCommand(a),
			newApplyCommand(a), newExportCommand(a), newExplainCommand(a),
		},
	} {
		for _, c := range commands {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	root.AddCommand(newVersionCommand(a), newDemoServiceCommand(a))
	return root
}

const (
	groupStart   = "start"
	groupObjects = "objects"
)

// noSubcommand refuses arguments of a command that only groups others: they are
// subcommands that do not exist.
func noSubcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2 // of letters that differ
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return usageError(fmt.Errorf("there is no command %q%s", strings.TrimSpace(shortPath(cmd)+" "+args[0]), hint))
}

// shortPath is a command as messages name it, which begin with the program's name
// anyway.
func shortPath(cmd *cobra.Command) string {
	return strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
}

// groupCommand is a command that only groups others.
func groupCommand(use, short, example string, sub ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: noSubcommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usageError(fmt.Errorf("%q needs to be told what to do", shortPath(cmd)))
		},
	}
	c.AddCommand(sub...)
	return c
}

// exactArgs wants one argument for each name.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		if len(names) == 0 {
			return usageError(fmt.Errorf("%q takes no arguments, got %q", shortPath(cmd), strings.Join(args, " ")))
		}
		return usageError(fmt.Errorf("%q wants %s, got %d arguments", shortPath(cmd), strings.Join(names, " and "), len(args)))
	}
}

// controlURLs is where the control plane is.
func (a *app) controlURLs() []string {
	s := a.control
	if s == "" {
		s = a.getenv(laneclient.EnvControl)
	}
	if s == "" {
		s = laneclient.DefaultControl
	}
	urls := laneclient.SplitList(s)
	for i, u := range urls {
		if !strings.Contains(u, "://") && laneclient.CheckControl(u) == nil {
			urls[i] = "http://" + u // others, which take it for a URL, are told it too
		}
	}
	return urls
}
