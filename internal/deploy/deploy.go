// Package deploy runs a process as an instance of a service: it is what
// `laneway run` does, as a library.
//
// It promises: the process runs in a process group of its own with the
// environment of its instance; the instance is registered when the process
// listens and leaves the registry as soon as the process is gone, however it
// went; what the process leaves behind in its group is ended too; and on Linux
// the process does not outlive its supervisor, even one that is killed (those that
// it has started itself may: nobody is left to end them). It does not restart
// anything. It runs on Unix systems.
//
//	r, err := deploy.Start(ctx, deploy.Process{Service: "order", Lane: "green", Cmd: []string{"./order"}})
//	…
//	exit, err := r.Wait()
package deploy

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Defaults and bounds of a Process.
const (
	// DefaultDrain is how long what is left of a process group may take after
	// TERM before it is killed.
	DefaultDrain = 10 * time.Second
	// listenWarnAfter is when a process that does not listen is first warned of, and
	// listenWarnEvery how often from then on.
	listenWarnAfter = 3 * time.Second
	listenWarnEvery = 10 * time.Second
)

// Listen is one address that a process is expected to listen on.
type Listen struct {
	Protocol  string // lane.HTTP (also when empty), lane.GRPC, lane.Thrift, lane.TCP or another word
	Transport string // Thrift only: header (also when empty), framed or buffered
	Port      int    // 0: a free one is chosen; only the first can be told to the process, as PORT
}

// ParseListen reads "[PROTO=]PORT", where PROTO is http (default), grpc, thrift,
// thrift-framed, thrift-buffered or tcp, and PORT may be 0 for a free one.
func ParseListen(s string) (Listen, error) {
	proto, port, found := strings.Cut(s, "=")
	if !found {
		proto, port = "http", s
	}
	l := Listen{Protocol: proto}
	switch proto {
	case "http", "grpc", "tcp":
	case "thrift", "thrift-header":
		l.Protocol, l.Transport = "thrift", "header"
	case "thrift-framed":
		l.Protocol, l.Transport = "thrift", "framed"
	case "thrift-buffered":
		l.Protocol, l.Transport = "thrift", "buffered"
	default:
		return Listen{}, fmt.Errorf("listen %q: protocol %q: want http, grpc, thrift, thrift-framed, thrift-buffered or tcp", s, proto)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Listen{}, fmt.Errorf("listen %q: port %q: want a number from 0 (a free one) to 65535", s, port)
	}
	l.Port = int(n)
	return l, nil
}

// Process says what to run and as what. Service and Cmd are required; the zero value of
// every other field is usable. Start copies it: what is changed later has no effect.
type Process struct {
	Service string // a DNS label of at most 40 bytes without "--"
	Lane    string // that it belongs to; created with the default TTL where it is not there; empty: the baseline
	// Instance is its name, unique in the service, of at most 64 letters, digits, dots,
	// underscores and dashes. Default: "<service>-<4 hex digits>". One that is registered
	// already is taken over.
	Instance string
	Room     string   // data center or zone, which routing prefers; empty: none
	Listen   []Listen // registered when it listens on all of them; none: one HTTP port, chosen
	NoListen bool     // it only consumes: registered at start, without endpoints. Not with Listen
	// Advertise is the host under which others reach the process. Default
	// 127.0.0.1, or ::1 where the process listens there alone.
	Advertise string
	// Proxy is the host:port of a gateway's inside listener that the environment
	// names as HTTP proxy. Empty: none.
	Proxy    string
	NoCreate bool              // a lane that does not exist is an error instead of created
	Weight   int               // share of its lane's traffic, 1 to 1000; zero: 1
	Labels   map[string]string // for people; the control plane bounds them

	Cmd []string // program and arguments; a name without a slash is looked for in PATH
	Env []string // "K=V", added to the environment of this process; a later value wins
	Dir string   // working directory; empty: that of this process
	// Stdin, Stdout and Stderr are inherited by the process where they are files;
	// nil is the null device. Where one of them is this process's terminal, the
	// process is in its background until it reads from it, and gets the foreground
	// then: so Ctrl-C comes to this process, or to one that talks with a person.
	// Ctrl-Z stops and SIGCONT continues both. A writer that is no file is written to
	// from goroutines that have ended when Wait returns.
	Stdin          *os.File
	Stdout, Stderr io.Writer

	Control   []string          // URLs of the control plane; empty: laneclient.DefaultControl
	Transport http.RoundTripper // to it; nil: TCP
	TokenFile string            // with a bearer token for it, also for the process; empty: none
	TTL       time.Duration     // of the session, 5 s to 5 min; zero: laneclient.DefaultTTL
	Drain     time.Duration     // how long it may take to end when it is asked to; zero: DefaultDrain
	Log       *slog.Logger      // nil: discard
}

// Exit is how a process ended.
type Exit struct {
	Code   int       // its exit status, or 128 + the signal's number
	Signal os.Signal // nil: it was not ended by one
	// Served is false when the process ended before it listened on all its ports.
	Served bool
	// Missing lists ports that it did not listen on.
	Missing []int
	// Stopped says that it was asked to end by Stop or StopWith.
	Stopped bool
}

// LocalError is returned by [Start] for what is wrong on this side: a command that
// is not there, a port that is taken. Other errors are the control plane's, or of
// not reaching it, or of names ([lane.NameError]).
type LocalError struct{ Err error }

// Error is that of what is wrong.
func (e *LocalError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *LocalError) Unwrap() error { return e.Err }

// RefusedError is in the error of [Running.Wait] when the control plane would not
// register the instance; the process was stopped then.
type RefusedError struct{ Err error }

// Error says why.
func (e *RefusedError) Error() string { return "not registered: " + e.Err.Error() }

// Unwrap returns the control plane's answer.
func (e *RefusedError) Unwrap() error { return e.Err }

// Running is a process that was started. All methods may be called at once.
type Running struct {
	p *supervisor
}

// Start checks p, makes sure that the lane exists, starts the process and returns;
// registration goes on in the background (see [Running.Ready]). The process
// outlives ctx, which bounds starting only.
func Start(ctx context.Context, p Process) (*Running, error) { return start(ctx, p) }

// Instance returns the instance's name.
func (r *Running) Instance() string { return r.p.cfg.Instance }

// PID returns the process id of the direct child.
func (r *Running) PID() int { return r.p.pid() }

// Ready is closed once the instance is registered; never, where the process ends
// before: wait for [Running.Wait] beside it.
func (r *Running) Ready() <-chan struct{} { return r.p.registered }

// Signal passes a signal on to the process.
func (r *Running) Signal(sig os.Signal) error { return r.p.signal(sig) }

// Wait blocks until the process has ended, its instance is out of the registry
// and its group is gone. The error tells of a deregistration that failed: then the
// lease ends the instance. It may be called more than once.
func (r *Running) Wait() (Exit, error) {
	<-r.p.done
	return r.p.exit, r.p.err
}

// Stop takes the instance out of the registry's choice, asks the process to end
// with TERM, kills its group when it has not ended by the drain deadline, and
// waits as Wait does. drain zero: Process.Drain.
func (r *Running) Stop(drain time.Duration) (Exit, error) { return r.StopWith(syscall.SIGTERM, drain) }

// StopWith is Stop with another signal than TERM to ask by.
func (r *Running) StopWith(sig syscall.Signal, drain time.Duration) (Exit, error) {
	r.p.stop(sig, drain)
	return r.Wait()
}
