package laneclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

const (
	retryLeast = 100 * time.Millisecond
	retryMost  = 5 * time.Second
	// reopenJitter spreads the sessions that are opened after the control plane has
	// lost many at once.
	reopenJitter = 500 * time.Millisecond
	// refusedRetry is how long to wait where the registry refuses the instance, say
	// because its lane has ended: it may be created again.
	refusedRetry = 5 * time.Second
	// sessionMargin is by how much a session is taken for shorter than its TTL: longer than
	// any call to an engine takes.
	sessionMargin = 3 * time.Second
	// maxRenewalLanes bounds what one renewal names.
	maxRenewalLanes = 1024
)

// keeper keeps the session: it opens one, registers the instance, renews, and
// begins anew when the session is lost. One goroutine runs it.
type keeper struct {
	c       *Client
	id      string
	old     string    // a session that has to be deleted before the present one is told of
	sent    time.Time // when what gave the session its TTL last was sent
	ttl     time.Duration
	opened  uint64
	lost    bool
	reset   bool
	due     time.Time // of the next renewal
	retry   backoff
	refused time.Time // when to offer a refused instance again; zero: now
	unsent  []string  // lanes used that no renewal has brought across yet
	down    bool      // the last attempt failed
}

func (k *keeper) run(ctx context.Context) {
	k.ttl = k.c.cfg.TTL
	k.retry = backoff{least: retryLeast, most: min(retryMost, k.ttl/3)}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		wait := k.step(ctx)
		if wait <= 0 && ctx.Err() == nil {
			continue
		}
		timer.Reset(wait)
	idle:
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
				break idle
			case <-k.c.link.renew:
				k.due = time.Time{}
				if !k.down {
					break idle
				}
				// The timer is set to when it may be tried again.
			}
		}
	}
}

// step does what is due, and returns how long to wait.
func (k *keeper) step(ctx context.Context) time.Duration {
	at := int(k.c.current.Load())
	if k.isSpent() {
		k.c.log.WarnContext(ctx, "session may have run out while it could not be renewed: a new one is opened", "session", k.id)
		k.old = k.id
		k.drop()
	}
	var err error
	switch {
	case k.id == "":
		err = k.open(ctx)
	case k.old != "":
		err = k.endOld(ctx)
	case !time.Now().Before(k.due):
		err = k.renew(ctx)
	case k.registerDue():
		err = k.register(ctx)
	}
	if ctx.Err() != nil {
		return time.Hour
	}
	if err != nil {
		return k.failed(ctx, at, err)
	}
	if k.down {
		k.c.log.InfoContext(ctx, "control plane is reached again", "session", k.id)
	}
	k.down = false
	k.retry.reset()
	return k.wait()
}

// wait is how long there is nothing to do.
func (k *keeper) wait() time.Duration {
	if k.old != "" || k.isSpent() {
		return 0
	}
	next := k.due
	if k.registerWanted() && k.refused.Before(next) {
		next = k.refused
	}
	return max(0, time.Until(next))
}

// isSpent reports whether the present session must not be used any longer.
func (k *keeper) isSpent() (spent bool) {
	l := k.c.link
	l.read(func() { spent = k.id != "" && l.spent == k.id })
	return spent
}

func (k *keeper) leased() (leased bool) {
	l := k.c.link
	l.read(func() { leased = l.leased })
	return leased
}

// endOld ends a session that was replaced, and only then lets the new one be known. The
// instance goes over to the new one before, so that it is never gone.
func (k *keeper) endOld(ctx context.Context) error {
	if k.registerDue() {
		if err := k.register(ctx); err != nil {
			return err
		}
	}
	err := Delete[Session](ctx, k.c.API, k.old, InSession(k.old))
	if p := problemOf(err); err != nil && (p == nil || p.Status != http.StatusNotFound && p.Type != ProblemSessionGone) {
		return fmt.Errorf("end session %s, which may have run out: %w", k.old, err)
	}
	k.old = ""
	k.prove(k.opened)
	return nil
}

func (k *keeper) registerWanted() bool {
	if !k.c.cfg.registers() {
		return false
	}
	var wanted bool
	k.c.link.read(func() { wanted = !k.c.link.registered })
	return wanted
}

func (k *keeper) registerDue() bool { return k.registerWanted() && !time.Now().Before(k.refused) }

// failed notes what went wrong, and returns when to try again.
func (k *keeper) failed(ctx context.Context, at int, err error) time.Duration {
	switch {
	case isSessionGone(err):
		k.c.log.WarnContext(ctx, "session is lost: a new one is opened", "session", k.id)
		k.drop()
		return time.Millisecond + jitter(reopenJitter)
	case isStale(err):
		// This view is too old, or of another registry: read it anew elsewhere.
		k.c.log.WarnContext(ctx, "view is refused as too old: it is read anew", "session", k.id, "error", err)
		k.c.moveOn(at)
		k.drop()
		return time.Millisecond + jitter(reopenJitter)
	}
	k.c.moveOn(at)
	k.c.noteErr(err)
	if !k.down {
		k.c.log.WarnContext(ctx, "control plane cannot be used: the last view stays in use", "error", err)
	}
	k.down = true
	k.c.link.update(func() {
		k.c.link.failedSeq++
		if isPermanent(err) {
			k.c.link.fatal = err
		}
	})
	return k.retry.next()
}

func isStale(err error) bool {
	p := problemOf(err)
	return p != nil && p.Type == ProblemStaleView
}

// drop forgets the session.
func (k *keeper) drop() {
	k.id, k.lost = "", true
	k.c.link.update(func() {
		k.c.link.proof.session = ""
		k.c.link.registered = false
	})
	signal(k.c.link.poke)
}

func (k *keeper) open(ctx context.Context) error {
	cfg := &k.c.cfg
	s := &Session{Role: cfg.Role, Admin: cfg.Admin, TTL: Duration(cfg.TTL), Host: hostName()}
	if cfg.Owned || cfg.registers() {
		s.Instance = cfg.Service + "/" + cfg.Instance
	}
	started, before := time.Now(), k.c.View().Revision
	opened, err := OpenSession(ctx, k.c.API, s)
	if err != nil {
		return fmt.Errorf("open a session: %w", err)
	}
	if opened.Name == "" {
		return errors.New("open a session: the answer names none")
	}
	k.id, k.opened, k.refused = opened.Name, opened.Revision, time.Time{}
	k.reset = opened.Revision < before
	k.setTTL(time.Duration(opened.TTL), started)
	if k.old == "" {
		k.prove(opened.Revision)
	}
	k.c.log.InfoContext(ctx, "session is open", "session", k.id, "revision", opened.Revision)
	return nil
}

// setTTL takes the TTL of an answer, and plans the next renewal.
func (k *keeper) setTTL(ttl time.Duration, since time.Time) {
	if ttl >= time.Second && ttl <= MaxTTL {
		k.ttl = ttl
	}
	k.sent = since
	every := k.ttl / 3
	k.retry.most = min(retryMost, every)
	if k.leased() { // more tries before the margin is reached
		every = k.ttl / 4
		k.retry.most = k.ttl / 10
	}
	k.due = since.Add(every - jitter(every/10))
}

// prove tells the viewer what the control plane has answered.
func (k *keeper) prove(revision uint64) {
	l := k.c.link
	l.update(func() {
		if l.leased && l.proof.session == k.id && l.proof.lasts.left(time.Now()) <= 0 {
			l.spent = k.id // also where nobody has looked meanwhile
		}
		l.proof = proof{
			session: k.id, revision: revision, at: time.Now(), replica: int(k.c.current.Load()),
			seq: l.proof.seq + 1, opened: k.opened, lost: k.lost, reset: k.reset,
			lasts: leaseFrom(k.sent, k.ttl-sessionMargin),
		}
		l.last = k.id
		l.fatal = nil
	})
	signal(l.poke)
}

func (k *keeper) renew(ctx context.Context) error {
	l := k.c.link
	for _, name := range k.c.used.take() {
		if len(k.unsent) < maxRenewalLanes {
			k.unsent = append(k.unsent, name)
		}
	}
	r := &Renewal{Lanes: k.unsent}
	l.read(func() {
		if l.reachedIn == k.id {
			r.Reached = l.reached
		}
	})
	limit := min(callTimeout, max(time.Second, k.ttl/2))
	if k.leased() {
		limit = max(time.Second, k.ttl/5)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	started := time.Now()
	renewed, err := RenewSession(ctx, k.c.API, k.id, r)
	if p := problemOf(err); p != nil && (p.Status == http.StatusNotFound || p.Status == http.StatusGone) {
		p.Type = ProblemSessionGone
	}
	if err != nil {
		return fmt.Errorf("renew the session: %w", err)
	}
	k.unsent = k.unsent[:0]
	k.setTTL(time.Duration(renewed.TTL), started)
	k.prove(renewed.Revision)
	return nil
}

// register writes the instance as it is wanted.
func (k *keeper) register(ctx context.Context) error {
	l, cfg := k.c.link, &k.c.cfg
	var state lane.State
	var seq uint64
	l.read(func() { state, seq = l.state, l.stateSeq })
	i := &Instance{
		Meta: Meta{Name: cfg.Instance}, Service: cfg.Service, Lane: cfg.Lane, Room: cfg.Room,
		Endpoints: cfg.Endpoints, State: string(state), Weight: cfg.Weight, Labels: cfg.Labels,
	}
	_, err := Put(ctx, k.c.API, i, InSession(k.id))
	if err == nil {
		k.refused = time.Time{}
		l.update(func() {
			l.stateDone, l.stateErr = seq, nil
			l.registered = l.stateSeq == seq
		})
		return nil
	}
	err = fmt.Errorf("register instance %s/%s: %w", cfg.Service, cfg.Instance, err)
	if !isPermanent(err) {
		return err
	}
	// The control plane is there and says no: the session goes on without the
	// instance.
	k.refused = time.Now().Add(refusedRetry + jitter(refusedRetry))
	k.c.noteErr(err)
	k.c.log.ErrorContext(ctx, "instance is refused: it gets no traffic until it is accepted", "error", err)
	l.update(func() { l.stateDone, l.stateErr = seq, err })
	return nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
