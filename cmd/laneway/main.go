// Command laneway is the whole product in one binary: the roles of an
// installation, the supervisor of processes in a lane, and the commands by which
// people and programs ask and change what is there.
//
// Only this package reads flags, environment and files; everything else is
// configured by values.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/laneway-dev/laneway/internal/run"
	"github.com/spf13/cobra"
)

// Exit statuses. `laneway run` ends with that of its child instead.
const (
	exitFailed = 1
	exitUsage  = 2
)

// exitError ends the process with a status of its own. Without err nothing is
// printed: what there was to say has been said.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a command that was called wrongly.
func usageError(err error) error { return &exitError{code: exitUsage, err: err} }

func main() {
	ctx, stop := run.Signals(context.Background())
	// What libraries print of peers is nothing to whoever called a command; the server
	// has a log for it.
	log.SetOutput(io.Discard)
	root := newRootCommand(os.Stdin, os.Stdout, os.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	stop()
	os.Exit(report(os.Stderr, cmd, err))
}

// report says what went wrong, if anything, and gives the exit status.
func report(stderr io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	code := exitFailed
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
		if e.err == nil {
			return code
		}
	}
	fmt.Fprintf(stderr, "laneway: %s\n", sentence(err))
	if code == exitUsage && cmd != nil {
		fmt.Fprintf(stderr, "See `%s --help`.\n", cmd.CommandPath())
	}
	return code
}
