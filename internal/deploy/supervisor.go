package deploy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// settle is how long views get to learn that an instance drains before its process is
// asked to end, since that may close its port at once: several times what a change needs
// to be in force on one site. It is a time because there is no event to wait for. The
// registry has the change when drain returns, but who routes by it tells how far its view
// is only with its next renewal, seconds later, and one that is cut off never does; a
// request that was given the instance just before is on its way in any case. Nobody
// chooses a process that does not listen, and so it is not waited for there.
const settle = 200 * time.Millisecond

// outputGrace is how long output is read on once all of the group have ended.
const outputGrace = 200 * time.Millisecond

// supervisor owns one process: a goroutine that starts and reaps it (child.go),
// and one that registers it when it listens.
type supervisor struct {
	cfg    Process
	reg    *registry
	log    *slog.Logger
	proc   *os.Process
	tty    terminal       // that the child was started at
	copied sync.WaitGroup // of output that goes to writers
	pipes  []*os.File     // that they are fed from

	registered chan struct{} // closed once registered
	exited     chan struct{} // closed when the direct child has ended
	done       chan struct{} // closed when all is over; exit and err are set before

	exit Exit
	err  error

	mu       sync.Mutex
	stopping bool
	served   bool
	missing  []int
	killAt   time.Time // when stopping: the group is killed then
	joining  *joining  // under way; nil: none is
	refused  error     // nil, or why it cannot be registered
}

// joining is one try to register.
type joining struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it is over; what it has registered and not finished is out again
}

func start(ctx context.Context, cfg Process) (*Running, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	s := &supervisor{
		cfg: cfg, log: cfg.Log.With(telemetry.KeyService, cfg.Service, telemetry.KeyInstance, cfg.Instance),
		registered: make(chan struct{}), exited: make(chan struct{}), done: make(chan struct{}),
	}
	// What is wrong on this side comes first: it should not leave a lane behind.
	if _, err := lookPath(s.cfg.Cmd[0]); err != nil {
		return nil, &LocalError{err}
	}
	if err := s.choosePorts(ctx); err != nil {
		return nil, &LocalError{err}
	}
	s.reg = newRegistry(&s.cfg)
	if err := s.reg.prepare(ctx); err != nil {
		return nil, err
	}
	started := make(chan error, 1)
	go s.supervise(started)
	if err := <-started; err != nil {
		return nil, &LocalError{err}
	}
	return &Running{p: s}, nil
}

// complete checks a Process and fills in what may be left out.
func (p *Process) complete() error {
	if err := lane.CheckService(p.Service); err != nil {
		return err
	}
	if p.Lane != "" {
		if _, err := lane.ParseName(p.Lane); err != nil {
			return err
		}
	}
	if p.Instance == "" {
		var b [2]byte
		_, _ = rand.Read(b[:]) // never fails
		p.Instance = p.Service + "-" + hex.EncodeToString(b[:])
	}
	if err := lane.CheckInstance(p.Instance); err != nil {
		return err
	}
	if len(p.Cmd) == 0 {
		return &LocalError{errors.New("no command to run")}
	}
	if p.NoListen && len(p.Listen) > 0 {
		return &LocalError{errors.New("a process that does not listen has no ports: leave out either of them")}
	}
	if p.Drain <= 0 {
		p.Drain = DefaultDrain
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	if !p.NoListen && len(p.Listen) == 0 {
		p.Listen = []Listen{{Protocol: lane.HTTP}}
	}
	p.Listen = append([]Listen(nil), p.Listen...)
	return nil
}

// supervise starts the child, registers it, reaps it and cleans up after it. The
// child is started and waited for on one OS thread: Linux ties the signal that
// ends an orphan to the life of the thread that forked it.
func (s *supervisor) supervise(started chan<- error) {
	defer close(s.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	spawned := make(chan error)
	reaped := make(chan Exit, 1)
	leftovers := make(chan struct{})
	go s.runChild(spawned, reaped, leftovers)
	if err := <-spawned; err != nil {
		started <- err
		return
	}
	started <- nil

	var registering sync.WaitGroup
	registering.Go(func() { s.register(ctx) })

	<-s.exited
	cancel()
	registering.Wait()
	leaving := make(chan error, 1)
	go func() { leaving <- s.reg.leave() }()
	s.endGroup()
	close(leftovers)
	exit := <-reaped
	for _, r := range s.pipes {
		// One who left the group may hold the other end for ever.
		_ = r.SetReadDeadline(time.Now().Add(outputGrace))
	}
	s.copied.Wait()
	left := <-leaving
	s.mu.Lock()
	exit.Served, exit.Missing, exit.Stopped = s.served, s.missing, s.stopping
	s.exit, s.err = exit, errors.Join(s.refused, left)
	s.mu.Unlock()
	s.tellEnd(exit)
}

// tellEnd logs how the process ended. One that nobody asked to end should not have failed.
func (s *supervisor) tellEnd(exit Exit) {
	level, attrs := slog.LevelInfo, []any{telemetry.KeyStatus, exit.Code}
	if exit.Code != 0 && !exit.Stopped {
		level = slog.LevelWarn
	}
	if sig, ok := exit.Signal.(syscall.Signal); ok {
		attrs = append(attrs, telemetry.KeyReason, fmt.Sprintf("%s (signal %d)", sig, int(sig)))
	}
	s.log.Log(context.Background(), level, "ended", attrs...)
}

// register waits until the process listens and registers its instance, again and
// again until it is registered or the process has ended. Then it looks after the lane.
func (s *supervisor) register(ctx context.Context) {
	addresses, ok := s.awaitListen(ctx)
	if !ok {
		return
	}
	endpoints := endpointsOf(s.cfg.Listen, addresses)
	s.mu.Lock()
	s.served = true
	s.mu.Unlock()
	for retry := backoff.New(50*time.Millisecond, 2*time.Second); ; {
		err := s.join(ctx, endpoints)
		if err == nil {
			break
		}
		if ctx.Err() != nil || errors.Is(err, errStopping) {
			return
		}
		if refused(err) {
			s.mu.Lock()
			s.refused = &RefusedError{err}
			s.mu.Unlock()
			go s.stop(syscall.SIGTERM, 0) // ends with the process
			return
		}
		delay := retry.Next()
		s.log.WarnContext(ctx, "not registered, will try again", telemetry.KeyError, err, telemetry.KeyDelay, delay)
		if !backoff.Wait(ctx, delay) {
			return
		}
	}
	attrs := []any{telemetry.KeyLane, s.cfg.Lane}
	if len(endpoints) > 0 {
		attrs = append(attrs, telemetry.KeyAddress, endpoints[0].Address)
	}
	s.log.InfoContext(ctx, "registered", attrs...)
	s.watchLane(ctx)
}

// errStopping is why nothing is registered any more.
var errStopping = errors.New("is being stopped")

// join makes one try to register. A stop cancels it, and none begins after that.
func (s *supervisor) join(ctx context.Context, endpoints []laneclient.Endpoint) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j := &joining{cancel: cancel, done: make(chan struct{})}
	defer close(j.done)
	s.mu.Lock()
	stopping := s.stopping
	s.joining = j
	s.mu.Unlock()
	if stopping {
		return errStopping
	}
	err := s.reg.join(ctx, endpoints)
	if err == nil {
		close(s.registered)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joining = nil
	if err != nil && s.stopping {
		return errStopping
	}
	return err
}

// stop begins the end: out of the choice, then the signal, then KILL at the
// deadline.
func (s *supervisor) stop(sig syscall.Signal, drain time.Duration) {
	if drain <= 0 {
		drain = s.cfg.Drain
	}
	s.mu.Lock()
	first, joining := !s.stopping, s.joining
	if first {
		s.stopping = true
		s.killAt = time.Now().Add(drain)
	}
	s.mu.Unlock()
	if !first {
		return
	}
	s.log.Info("asked to end", telemetry.KeyReason, sig.String(), telemetry.KeyDrain, drain)
	if s.withdraw(joining) {
		timer := time.NewTimer(settle)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-s.exited:
			return
		}
	}
	if err := s.signal(sig); err != nil {
		return // it has ended
	}
	deadline := time.NewTimer(time.Until(s.deadline()))
	defer deadline.Stop()
	select {
	case <-s.exited:
	case <-deadline.C:
		s.log.Warn("still running at the drain deadline, killed", telemetry.KeyDrain, drain)
		_ = s.kill()
	}
}

// withdraw takes the instance out of the choice. True: somebody may have chosen it
// until now, which nobody has where it does not listen.
func (s *supervisor) withdraw(joining *joining) bool {
	if joining != nil {
		// The registry may have the instance already, and requests go to it.
		joining.cancel()
		select {
		case <-joining.done:
		case <-s.exited:
			return false
		}
	}
	select {
	case <-s.exited:
		return false
	case <-s.registered:
		s.reg.drain()
		return !s.cfg.NoListen
	default:
		return joining != nil && !s.cfg.NoListen
	}
}

// deadline is when the process group is killed: the drain deadline of a stop, or
// one that begins now.
func (s *supervisor) deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopping {
		return time.Now().Add(s.cfg.Drain)
	}
	return s.killAt
}

func (s *supervisor) pid() int { return s.proc.Pid }

func (s *supervisor) ports() []int {
	ports := make([]int, len(s.cfg.Listen))
	for i, l := range s.cfg.Listen {
		ports[i] = l.Port
	}
	return ports
}

// outputs returns the files that the child writes to. A writer that is no file is
// fed from a pipe; after holds what to close once the child has its copies.
func (s *supervisor) outputs() (stdout, stderr *os.File, after []io.Closer, err error) {
	open := func(w io.Writer) (*os.File, error) {
		if f, ok := w.(*os.File); ok && f != nil {
			return f, nil
		}
		if w == nil {
			f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
			if err == nil {
				after = append(after, f)
			}
			return f, err
		}
		r, pw, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		after = append(after, pw)
		s.pipes = append(s.pipes, r)
		s.copied.Go(func() {
			_, _ = io.Copy(w, r) // ends with the last process that holds the other end, or at outputGrace
			_ = r.Close()
		})
		return pw, nil
	}
	if stdout, err = open(s.cfg.Stdout); err != nil {
		return nil, nil, after, fmt.Errorf("open output: %w", err)
	}
	if stderr, err = open(s.cfg.Stderr); err != nil {
		return nil, nil, after, fmt.Errorf("open output: %w", err)
	}
	return stdout, stderr, after, nil
}

// lookPath finds the command as a shell would.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("find the command %q: %w; give a path or install it", name, errors.Unwrap(err))
	}
	return path, nil
}

// endpointsOf is what an instance offers, given the address of each Listen.
func endpointsOf(listen []Listen, addresses []string) []laneclient.Endpoint {
	out := make([]laneclient.Endpoint, len(listen))
	for i, l := range listen {
		out[i] = laneclient.Endpoint{Protocol: l.Protocol, Transport: l.Transport, Address: addresses[i]}
		if l.Protocol == "" {
			out[i].Protocol = lane.HTTP
		}
	}
	return out
}
