package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

const (
	// engineTick is how often a server looks whether what it says of its engines is still
	// in the registry under its present session.
	engineTick = 500 * time.Millisecond
	// engineAgain is how soon it says so again where that was refused.
	engineAgain = 5 * time.Second
	// engineCall bounds one call for that.
	engineCall = 5 * time.Second
	// enginePatience is how long the start of a server waits for its engines to be in the
	// registry. Without a control plane those who have found an engine before go on with it,
	// and the other roles have their own work.
	enginePatience = 5 * time.Second
)

// servedEngine is one engine of this process.
type servedEngine struct {
	engineAt

	mu     sync.Mutex
	engine engine // nil: not open yet
	fault  error  // why it is not in the registry; nil: it is
	ours   string // the session under which it was written
	retry  time.Time
}

func (s *servedEngine) set(e engine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.engine = e
}

func (s *servedEngine) get() engine {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine
}

// openEngines opens what runs in this process: before the other roles start, and so that it
// closes after all of them.
func (n *node) openEngines(ctx context.Context) error {
	log := n.log.With(telemetry.KeyRole, roleEngine)
	for _, cfg := range n.cfg.engines() {
		s := &servedEngine{
			engineAt: engineAt{engineConfig: cfg, dir: filepath.Join(n.cfg.Data, "engines", cfg.Name), room: n.cfg.Room, log: log},
			fault:    errors.New("is not in the registry yet: is the control plane reachable?"),
		}
		n.engines = append(n.engines, s)
		n.close = append(n.close, func() error {
			if e := s.get(); e != nil {
				return e.Close()
			}
			return nil
		})
		if !s.embedded() {
			continue // which may be out of reach for a while
		}
		e, err := n.embed(ctx, s)
		if err != nil {
			return err
		}
		s.set(e)
		address, _, _ := strings.Cut(strings.TrimPrefix(e.URL(), "nats://"), "?")
		n.more[listenNATS] = address
	}
	return nil
}

// embed opens the embedded engine: it listens where it was told to, or else at the
// usual address if that is free, and anywhere if it is not.
func (n *node) embed(ctx context.Context, s *servedEngine) (engine, error) {
	s.listen = n.cfg.Listen[listenNATS]
	told := s.listen != ""
	if !told {
		s.listen = defaultNATS
		if taken(ctx, defaultNATS) {
			s.listen = n.anyAddress(ctx)
		}
	}
	e, err := openEngine(ctx, s.engineAt)
	if err != nil && s.listen == defaultNATS && !told && taken(ctx, defaultNATS) { // by another one that starts just now
		s.listen = n.anyAddress(ctx)
		e, err = openEngine(ctx, s.engineAt)
	}
	if err != nil {
		return nil, fmt.Errorf("%w; where its address is taken, choose another with --listen %s=HOST:PORT", err, listenNATS)
	}
	return e, nil
}

func (n *node) anyAddress(ctx context.Context) string {
	n.log.WarnContext(ctx, "the usual address of the message engine is taken: it listens on a free port", telemetry.KeyRole, roleEngine, telemetry.KeyAddress, defaultNATS)
	return "127.0.0.1:0"
}

// taken reports whether something listens at an address already.
func taken(ctx context.Context, address string) bool {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err == nil {
		_ = l.Close()
	}
	return errors.Is(err, syscall.EADDRINUSE)
}

// addEngines adds the part that keeps the engines in the registry.
func (n *node) addEngines() {
	p := &enginePart{node: n}
	n.addReadiness(roleEngine, p.check)
	n.group.Add(roleEngine, p.run)
}

// enginePart says in the registry where this process's engines are.
type enginePart struct {
	node   *node
	client *laneclient.Client
	begun  atomic.Bool // the server counts as started
}

// check is the readiness of all engines.
func (p *enginePart) check(ctx context.Context) error {
	var errs []error
	for _, s := range p.node.engines {
		s.mu.Lock()
		e, fault := s.engine, s.fault
		s.mu.Unlock()
		switch {
		case e == nil:
			fault = fmt.Errorf("has not been reached yet at %s: is it running?", s.URL)
		case fault == nil:
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			if err := e.Check(ctx); err != nil {
				fault = fmt.Errorf("does not answer: what is produced fails, what is consumed waits: %w", err)
			}
			cancel()
		}
		if fault != nil {
			errs = append(errs, fmt.Errorf("engine %s %w", s.Name, fault))
		}
	}
	return errors.Join(errs...)
}

func (p *enginePart) run(ctx context.Context, ready func()) (err error) {
	n := p.node
	log := n.log.With(telemetry.KeyRole, roleEngine)
	if n.listeners[listenAdmin] != nil && !n.cfg.has(roleGateway) { // whose it is then
		end := n.serveAdmin(ctx, "GET /healthz", p.serveHealth, log)
		defer func() { err = errors.Join(err, end()) }()
	}
	if len(n.engines) == 0 {
		log.InfoContext(ctx, "no message engine: name one with --engine NAME=URL")
		ready()
		<-ctx.Done()
		return nil
	}
	begin := func() {
		p.begun.Store(true)
		ready()
	}
	late := time.AfterFunc(enginePatience, begin)
	defer late.Stop()
	view := laneclient.Config{Control: n.cfg.Control, Transport: n.transport, TokenFile: n.tokenFile, Room: n.cfg.Room, Role: laneclient.RoleEngine, Log: log}
	if !n.cfg.has(roleGateway) {
		view.Admin = n.address(listenAdmin)
	}
	client, err := dialPatiently(ctx, view, log)
	if err != nil {
		return err
	}
	p.client = client
	defer func() {
		if err := client.Close(); err != nil {
			log.WarnContext(ctx, "left the registry uncleanly, the lease ends the session", telemetry.KeyError, err)
		}
	}()
	metrics := newEngineMetrics(n)
	if err := n.metrics.Register(metrics); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	var connecting sync.WaitGroup
	defer connecting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // also where an engine is refused, and the server is to end by that
	connecting.Go(func() { metrics.run(ctx) })
	for _, s := range n.engines {
		if s.get() == nil {
			connecting.Go(func() { s.connect(ctx) })
		}
	}
	return p.advertise(ctx, begin)
}

// connect opens an external engine as soon as it can be reached.
func (s *servedEngine) connect(ctx context.Context) {
	for retry := backoff.New(100*time.Millisecond, 5*time.Second); ; {
		e, err := openEngine(ctx, s.engineAt)
		if err == nil {
			s.set(e)
			return
		}
		delay := retry.Next()
		s.log.WarnContext(ctx, "message engine cannot be used yet, will try again", telemetry.KeyEngine, s.Name, telemetry.KeyError, err, telemetry.KeyDelay, delay)
		if !backoff.Wait(ctx, delay) {
			return
		}
	}
}

// advertise keeps the engines in the registry until ctx ends. Where another server has one of
// their names while this one starts, that is an error.
func (p *enginePart) advertise(ctx context.Context, begin func()) error {
	tick := time.NewTicker(engineTick)
	defer tick.Stop()
	for {
		all := true
		for i, s := range p.node.engines {
			err := p.advertiseOne(ctx, s, i == 0)
			if problem, refused := errors.AsType[*laneclient.Problem](err); refused && !p.begun.Load() && problem.Status == http.StatusConflict {
				return fmt.Errorf("engine %s: %w", s.Name, err)
			}
			all = all && err == nil
		}
		if all {
			begin()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// advertiseOne writes one engine where it is not written yet.
func (p *enginePart) advertiseOne(ctx context.Context, s *servedEngine, first bool) error {
	session, now := p.client.Status().Session, time.Now()
	s.mu.Lock()
	e, done, wait := s.engine, s.fault == nil && (s.ours == session || !s.embedded()), now.Before(s.retry)
	fault := s.fault
	s.mu.Unlock()
	switch {
	case e == nil || session == "":
		return cmp.Or(fault, errors.New("waits for a session"))
	case done:
		return nil
	case wait:
		return fault
	}
	ctx, cancel := context.WithTimeout(ctx, engineCall)
	defer cancel()
	if s.embedded() {
		if err := p.endFormer(ctx, s, session); err != nil {
			return err
		}
	}
	err := p.put(ctx, s, e.URL(), session, first)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.fault, s.ours = nil, session
		return nil
	}
	s.fault, s.retry = fmt.Errorf("is not in the registry: %w", err), now.Add(engineAgain)
	if _, refused := errors.AsType[*laneclient.Problem](err); !refused {
		s.retry = now
	}
	s.log.WarnContext(ctx, "message engine is not in the registry: others do not find it", telemetry.KeyEngine, s.Name, telemetry.KeyError, err)
	return err
}

func (p *enginePart) put(ctx context.Context, s *servedEngine, address, session string, first bool) error {
	e := laneclient.Engine{Meta: laneclient.Meta{Name: s.Name}, Scheme: s.scheme(), Address: address, Default: first}
	if !s.embedded() {
		session = ""
	}
	_, err := laneclient.Put(ctx, p.client, &e, laneclient.InSession(session))
	return err
}

// endFormer ends the session under which the process before this one had the engine, if it
// was killed: who has the folder knows that nobody else has it, and need not wait for a
// lease. Then it notes its own.
func (p *enginePart) endFormer(ctx context.Context, s *servedEngine, session string) error {
	file := filepath.Join(s.dir, "session")
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if former := strings.TrimSpace(string(text)); former != "" && former != session && len(former) <= 128 {
		err := laneclient.Delete[laneclient.Session](ctx, p.client, former, laneclient.InSession(former))
		// Gone already, or of another registry: what matters is the write after this.
		if _, answered := errors.AsType[*laneclient.Problem](err); err != nil && !answered {
			return err
		}
	}
	if err := writeAtomically(file, []byte(session+"\n")); err != nil {
		// Whoever starts after a crash then waits for the lease.
		s.log.WarnContext(ctx, "cannot note the session of the message engine", telemetry.KeyEngine, s.Name, telemetry.KeyError, err)
	}
	return nil
}

// serveHealth answers /healthz of a process of engines alone.
func (p *enginePart) serveHealth(w http.ResponseWriter, r *http.Request) {
	laneclient.WriteAnswer(w, http.StatusOK, laneclient.NodeHealth{Health: p.node.health(r.Context()), Time: time.Now().UTC()})
}
