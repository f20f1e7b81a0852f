package consume

import (
	"context"
	"sync"
	"time"
)

// MemoryProcess is one process's access to a [MemoryRegistry]. It has a session from the
// start, whose lease is renewed for as long as the process is not cut off; after a loss it
// has a new one, as a [Registry] promises.
//
// All of its methods may be called at once.
type MemoryProcess struct {
	r   *MemoryRegistry
	who MemoryIdentity

	mu      sync.Mutex // taken before the registry's
	entered Entered
	session string
	cut     bool
	cutAt   time.Time
	lost    bool // the session may have run out; it is not given again
	losing  int  // so many answers are lost
	closed  bool
}

var _ Registry = (*MemoryProcess)(nil)

// Connect lets one more process in, under a session of its own.
func (r *MemoryRegistry) Connect() *MemoryProcess {
	return &MemoryProcess{r: r, session: r.Open()}
}

// Cut takes the registry out of the process's reach: nothing that it asks for happens or is
// answered, its lease is not renewed and views stand still, until [MemoryProcess.Mend].
func (p *MemoryProcess) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		return
	}
	p.r.lock()
	defer p.r.mu.Unlock()
	p.cut, p.cutAt = true, p.r.now()
	if _, ok := p.r.sessions[p.session]; ok {
		p.r.sessions[p.session] = p.cutAt.Add(p.r.ttl)
		p.r.bump(false) // those who wait for a lease to run out look again
	}
}

// Mend ends a [MemoryProcess.Cut]. A session that may have run out by then is deleted, and a
// new one opened.
func (p *MemoryProcess) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.cut {
		return
	}
	p.remaining()
	p.r.lock()
	defer p.r.mu.Unlock()
	p.cut = false
	if _, ok := p.r.sessions[p.session]; ok && !p.lost {
		p.r.sessions[p.session] = time.Time{}
	}
	p.renew()
	p.r.bump(false)
}

// LoseAnswers lets the next n writes of the process take place and stay without an answer.
func (p *MemoryProcess) LoseAnswers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing = n
}

// Close ends the session. It may be called again.
func (p *MemoryProcess) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	p.r.End(p.session)
}

// remaining is how long the session surely lasts, and takes notice when it does not.
func (p *MemoryProcess) remaining() time.Duration {
	left := p.r.ttl - p.r.margin
	if p.cut {
		left -= p.r.now().Sub(p.cutAt)
	}
	if left <= 0 {
		p.lost = true
	}
	if p.lost {
		return 0
	}
	return left
}

// renew opens a new session where the present one is lost or over, with both locks held.
func (p *MemoryProcess) renew() {
	if _, ok := p.r.sessions[p.session]; ok && !p.lost {
		return
	}
	p.r.close(p.session)
	p.session, p.lost = p.r.open(), false
}

// Session is the process's session and how long it surely lasts: while it is renewed, TTL −
// margin. One that was ended is followed by a new one at once.
func (p *MemoryProcess) Session() (id string, remaining time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", 0
	}
	if !p.cut {
		p.r.lock()
		p.renew()
		p.r.mu.Unlock()
	}
	left := p.remaining()
	return p.session, left
}

// reach reports what keeps the process from the registry.
func (p *MemoryProcess) reach() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return ErrClosed
	case p.cut:
		return errCut
	}
	return nil
}

// Move does one write. A process that is cut off gets ErrDoubt at once.
func (p *MemoryProcess) Move(_ context.Context, w *Write) (Answer, error) {
	p.mu.Lock()
	if p.closed || p.cut {
		p.mu.Unlock()
		return Answer{}, ErrDoubt
	}
	lose := p.losing > 0
	if lose {
		p.losing--
	}
	p.mu.Unlock()
	a := p.r.applyLiving(w)
	if lose {
		return Answer{}, ErrDoubt
	}
	return a, nil
}

// Records reads all records of a group.
func (p *MemoryProcess) Records(_ context.Context, group string) ([]Stored, error) {
	if err := p.reach(); err != nil {
		return nil, err
	}
	return p.r.Records(group), nil
}

// Join makes a member known under m.Session, or, where that is empty, under the process's
// present session.
func (p *MemoryProcess) Join(_ context.Context, group string, m Member) error {
	if err := p.reach(); err != nil {
		return err
	}
	if m.Session == "" {
		m.Session, _ = p.Session()
	}
	return p.r.Join(group, m)
}

// Leave ends a member.
func (p *MemoryProcess) Leave(_ context.Context, group, member string, grace time.Duration) error {
	if err := p.reach(); err != nil {
		return err
	}
	p.r.Leave(group, member, grace)
	return nil
}

// Views delivers the picture of a group, and then whatever changes, until ctx ends; what
// changes meanwhile comes as one step. While the process is cut off nothing comes.
func (p *MemoryProcess) Views(ctx context.Context, group string) <-chan Update {
	out := make(chan Update)
	go func() {
		defer close(out)
		var known uint64
		for {
			u, changed, next := p.update(group, &known)
			if u != nil {
				select {
				case out <- *u:
				case <-ctx.Done():
					return
				}
			}
			if !waitChange(ctx, changed, next) {
				return
			}
		}
	}()
	return out
}

// update is what has changed since a revision, a channel that is closed at the next change,
// and how long it is at most until something runs out; 0: nothing will.
func (p *MemoryProcess) update(group string, known *uint64) (*Update, <-chan struct{}, time.Duration) {
	cut := p.reach() != nil
	r := p.r
	r.lock()
	defer r.mu.Unlock()
	next := r.nextEnd(group)
	if cut || *known == r.revision {
		return nil, r.changed, next
	}
	u := &Update{Records: r.since(group, *known)}
	u.Revision = r.revision // that nothing else has changed is told, too
	if r.seen > *known {
		u.View = r.view(group)
	}
	*known = r.revision
	return u, r.changed, next
}

// nextEnd is how long it is until the next lease or tombstone runs out; 0: none will.
func (r *MemoryRegistry) nextEnd(group string) time.Duration {
	var next time.Time
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, until := range r.sessions {
		sooner(until)
	}
	for _, m := range r.group(group).members {
		sooner(m.until)
	}
	if next.IsZero() {
		return 0
	}
	return max(next.Sub(r.now()), time.Nanosecond)
}

// waitChange waits for a change, or for so long if d is not 0. It reports false where ctx
// ended first.
func waitChange(ctx context.Context, changed <-chan struct{}, d time.Duration) bool {
	var end <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		end = t.C
	}
	select {
	case <-changed:
		return true
	case <-end:
		return true
	case <-ctx.Done():
		return false
	}
}
