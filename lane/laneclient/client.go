package laneclient

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

var _ lane.Directory = (*Client)(nil)

const (
	leaveTimeout = 3 * time.Second // for leaving, all calls together
	drainTimeout = 2 * time.Second
	needTimeout  = 5 * time.Second // of Need, where the caller's context has no deadline
)

// ClientStatus is how a client stands with the control plane.
type ClientStatus struct {
	Connected  bool      // a watch is open and in step
	Registered bool      // the instance is in the registry as it should be
	Session    string    // id; empty: none
	Control    string    // URL of the replica that is used
	Revision   uint64    // that the view has reached
	StaleSince time.Time // zero: the view is fresh
	FromFile   bool      // the view comes from the snapshot file
	LastError  string    // the last thing that went wrong, kept when it is right again; empty: nothing
	LastErrAt  time.Time
}

// Client is this process's connection to the control plane. It is a
// [lane.Directory].
type Client struct {
	*API
	cfg    Config
	log    *slog.Logger
	link   *link
	used   *usedSet
	view   atomic.Pointer[View]
	served atomic.Pointer[coverage]

	groups   consumption
	dispatch dispatcher
	saver    *saver // nil without Config.SnapshotFile

	stop     context.CancelFunc
	stopping <-chan struct{} // closed once stop was called
	running  sync.WaitGroup
	closing  sync.Once
	closed   chan struct{}
	leave    error // of Close; read after closed is
}

// coverage is which services' instances the view holds.
type coverage struct {
	all      bool
	services map[string]struct{}
}

// Dial opens a session, registers the instance if there is one to register (see
// [Config]), and reads lanes and services. It returns when all of this is done and
// the view is in step with the control plane.
//
// While the control plane cannot be reached, Dial tries again until ctx ends, and
// then returns an error that says what was in the way. One that answers and refuses
// (a bad token, a lane that does not exist) is an error at once, a [*Problem]. A
// client with All and a readable SnapshotFile does not wait: once every replica
// has failed to answer it returns with the view of that file, which [View.Stale]
// and Status say, and goes on trying.
//
// The client does not end with ctx. Close it.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := newClient(cfg)
	if c.err != nil {
		return nil, c.err
	}
	var admin *adminServer
	if cfg.AdminListen != "" {
		var err error
		if admin, err = newAdminServer(ctx, cfg.AdminListen, c); err != nil {
			return nil, err
		}
		c.cfg.Admin = admin.address()
	}
	v := newViewer(c)
	if cfg.SnapshotFile != "" {
		c.saver = &saver{path: cfg.SnapshotFile, wake: make(chan struct{}, 1)}
		c.readFile(ctx, v)
	}
	// What the client runs outlives the call; Close ends it.
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	c.stop, c.stopping = stop, runCtx.Done()
	k := &keeper{c: c}
	c.running.Go(func() { k.run(runCtx) })
	c.running.Go(func() { v.run(runCtx) })
	c.running.Go(func() { c.dispatch.run(runCtx) })
	if admin != nil {
		c.running.Go(func() { admin.run(runCtx, c.log) })
	}
	if c.saver != nil {
		c.running.Go(func() { c.saver.run(runCtx, c) })
	}
	if err := c.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func newClient(cfg Config) *Client {
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.Service != "" && cfg.Instance == "" {
		cfg.Instance = cfg.Service + "-" + randomHex()
	}
	if cfg.Role == "" {
		switch {
		case cfg.All:
			cfg.Role = RoleGateway
		case cfg.Service != "":
			cfg.Role = RoleInstance
		default:
			cfg.Role = RoleClient
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{API: NewAPI(cfg), cfg: cfg, log: cfg.Log, link: newLink(), used: newUsedSet(), closed: make(chan struct{})}
	c.dispatch.wake = make(chan struct{}, 1)
	c.view.Store(&View{Snapshot: lane.NewSnapshot(lane.Input{Room: cfg.Room}), Stale: true, StaleSince: time.Now()})
	c.served.Store(&coverage{all: cfg.All})
	return c
}

// randomHex returns four hex digits.
func randomHex() string {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// awaitReady waits until the client can be used.
func (c *Client) awaitReady(ctx context.Context) error {
	for {
		var ready bool
		var refused, last error
		l := c.link
		changed := l.read(func() {
			ready = l.proof.session != "" && l.reachedIn == l.proof.session && l.connected &&
				(l.registered || !c.cfg.registers())
			refused = errors.Join(l.fatal, l.stateErr)
			last = l.lastErr
			if c.view.Load().FromFile && l.failedSeq > 0 && l.fatal == nil {
				ready = true
			}
		})
		if ready || refused != nil {
			return refused
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if last == nil {
				return fmt.Errorf("laneclient: waiting for the control plane: %w", ctx.Err())
			}
			return fmt.Errorf("laneclient: waiting for the control plane: %w (%w)", ctx.Err(), last)
		}
	}
}

// View returns the present view. It takes no lock and is never nil.
func (c *Client) View() *View { return c.view.Load() }

// Snapshot returns View().Snapshot.
func (c *Client) Snapshot() *lane.Snapshot { return c.view.Load().Snapshot }

// Need implements [lane.Directory]. Where ctx has no deadline, it waits for 5 s at
// most. The view keeps the services of the first 128 names asked for apart; with
// more of them it holds the instances of all services.
func (c *Client) Need(ctx context.Context, service string) error {
	if c.served.Load().has(service) {
		return nil
	}
	if err := lane.CheckService(service); err != nil {
		return err
	}
	l := c.link
	l.update(func() {
		if len(l.needs) <= maxNeeds {
			l.needs[service] = struct{}{}
		}
	})
	signal(l.poke)
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, needTimeout)
		defer cancel()
	}
	for {
		changed := l.read(func() {})
		if c.served.Load().has(service) {
			return nil
		}
		select {
		case <-changed:
		case <-c.closed:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("read the instances of %s from the control plane: %w", service, ctx.Err())
		}
	}
}

func (cov *coverage) has(service string) bool {
	if cov.all {
		return true
	}
	_, ok := cov.services[service]
	return ok
}

// ErrClosed is returned by calls that wait while the client is closed.
var ErrClosed = errors.New("the client is closed")

// cover makes Need return for what the view now holds.
func (c *Client) cover(m *model) {
	cov := &coverage{all: c.cfg.All, services: map[string]struct{}{}}
	for s := range strings.SplitSeq(m.selects, selectSeparator) {
		if service, ok := strings.CutPrefix(s, selectInstancesOf); ok {
			cov.services[service] = struct{}{}
		}
		cov.all = cov.all || s == selectInstances
	}
	c.served.Store(cov)
	c.link.update(func() {})
}

// Subscribe implements [lane.Directory]. changed is also called when the view
// becomes stale or fresh; not when its revision alone moves.
func (c *Client) Subscribe(changed func()) (cancel func()) { return c.dispatch.subscribe(changed) }

// notify tells subscribers of a new view; content says that more than its
// staleness is new.
func (c *Client) notify(content bool) {
	signal(c.dispatch.wake)
	if content && c.saver != nil {
		signal(c.saver.wake)
	}
}

// Process implements [lane.Directory].
func (c *Client) Process() lane.Name { return lane.Name(c.cfg.Lane) }

// Used implements [lane.Directory]. Lanes that the view does not know are passed
// over.
func (c *Client) Used(color lane.Name) {
	if color == lane.Baseline {
		return
	}
	// Colors come from outside: only those of lanes that exist take up room.
	if _, known := c.view.Load().Snapshot.Lane(color); known {
		c.used.note(color)
	}
}

// Admin is the host:port where this process serves [Client.AdminHandler], with the
// port that Config.AdminListen got; empty: nowhere.
func (c *Client) Admin() string { return c.cfg.Admin }

// Instance is the name of this process's instance; empty: it is none.
func (c *Client) Instance() string { return c.cfg.Instance }

// SetState writes the state of the registered instance, lane.Ready or
// lane.Draining, and keeps it over the loss of a session. It returns when the
// control plane has it, refuses it, or ctx ends; the state then stays wanted all
// the same.
func (c *Client) SetState(ctx context.Context, state lane.State) error {
	if !c.cfg.registers() {
		return errors.New("laneclient: the client registers no instance, so it has no state to set")
	}
	if state != lane.Ready && state != lane.Draining {
		return fmt.Errorf("laneclient: state %q: want ready or draining", state)
	}
	l := c.link
	var seq uint64
	l.update(func() {
		l.stateSeq++
		seq = l.stateSeq
		l.state, l.registered = state, false
	})
	signal(l.renew)
	for {
		var done bool
		var err error
		changed := l.read(func() { done, err = l.stateDone >= seq, l.stateErr })
		if done {
			return err
		}
		select {
		case <-changed:
		case <-c.closed:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("write state %s of instance %s: %w", state, c.cfg.Instance, ctx.Err())
		}
	}
}

// Drain asks for no new traffic: it is SetState with lane.Draining, for at most two
// seconds. What goes wrong is in Status. Without an instance it does nothing.
func (c *Client) Drain() {
	if !c.cfg.registers() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	if err := c.SetState(ctx, lane.Draining); err != nil {
		c.noteErr(err)
	}
}

// Session is the id of the present session, and how long it surely lasts by this process's
// clocks if it is not renewed, also where the machine slept. Where it was lost, it is the last
// one, with nothing remaining; empty: there has been none. In a process that consumes, a
// session of which nothing remained is never given again as one that lasts: it is deleted, and
// a new one opened, as soon as the control plane is in reach.
func (c *Client) Session() (id string, remaining time.Duration) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.proof
	if p.session == "" || p.session == l.spent {
		return l.last, 0
	}
	if remaining = p.lasts.left(time.Now()); remaining > 0 {
		return p.session, remaining
	}
	if l.leased {
		l.spent = p.session
		signal(l.renew)
	}
	return p.session, 0
}

// Status says how the client stands with the control plane.
func (c *Client) Status() ClientStatus {
	v := c.View()
	s := ClientStatus{Control: c.urls[c.current.Load()], Revision: v.Revision, StaleSince: v.StaleSince, FromFile: v.FromFile}
	l := c.link
	l.read(func() {
		s.Connected, s.Registered, s.Session = l.connected, l.registered, l.proof.session
		if l.lastErr != nil {
			s.LastError, s.LastErrAt = l.lastErr.Error(), l.lastErrAt
		}
	})
	return s
}

func (c *Client) noteErr(err error) {
	c.link.update(func() { c.link.lastErr, c.link.lastErrAt = err, time.Now() })
}

// Close leaves: it deletes the instance that the client registered, ends the
// session, and returns when all goroutines of the client are gone, after three
// seconds at most; with moves under way, five. Moves that wait are in doubt then. Where
// the control plane does not answer, the lease ends what is left; the error says so. View
// goes on to return the last view. Calls after the first wait for it and return the same.
func (c *Client) Close() error {
	c.closing.Do(func() {
		defer close(c.closed)
		c.stop()
		c.running.Wait()
		if c.saver != nil {
			c.saver.flush(context.Background(), c)
		}
		c.groups.close()
		c.leave = c.quit()
		_ = c.API.Close()
	})
	<-c.closed
	return c.leave
}

// quit takes the instance and the session out of the registry.
func (c *Client) quit() error {
	var session string
	c.link.update(func() {
		session = c.link.proof.session
		c.link.connected, c.link.registered = false, false
	})
	if session == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if c.cfg.registers() {
		// On behalf of the session: where somebody else has taken the name over, the
		// instance is theirs and stays.
		err := Delete[Instance](ctx, c.API, c.cfg.Service+"/"+c.cfg.Instance, InSession(session))
		if err != nil && problemOf(err) == nil {
			return fmt.Errorf("leave: the lease ends the instance when it runs out: %w", err)
		}
	}
	if err := Delete[Session](ctx, c.API, session, InSession(session)); err != nil && !IsNotFound(err) {
		return fmt.Errorf("leave: the lease ends the session when it runs out: %w", err)
	}
	return nil
}
