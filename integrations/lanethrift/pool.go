package lanethrift

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

var (
	// ErrClosed is returned by calls on a closed [Client].
	ErrClosed = errors.New("lanethrift: client is closed")
	// errLeft is returned by a pool whose instance is no longer in the registry.
	errLeft = errors.New("the instance has left")
)

// pool holds the connections to one instance. To close one may take time, over TLS seconds,
// so that no lock is held meanwhile.
type pool struct {
	slots chan struct{} // holds one for each connection in use: bounds them
	left  chan struct{} // closed by close: those that wait for a slot go elsewhere

	mu     sync.Mutex
	idle   []*conn     // guarded by mu; the last one was used last
	sweep  *time.Timer // runs while there are idle ones; guarded by mu
	closed bool        // guarded by mu
}

func newPool(most int) *pool {
	return &pool{slots: make(chan struct{}, most), left: make(chan struct{})}
}

// gonePool is that of an instance which has left: it gives nothing.
func gonePool() *pool {
	p := newPool(0)
	p.close()
	return p
}

// get takes an idle connection that its peer has kept, or dials one. It blocks while as
// many as allowed are in use. Errors: errLeft; ctx's; [*dialError].
func (p *pool) get(ctx context.Context, dial func(context.Context) (*conn, error)) (*conn, error) {
	select {
	case p.slots <- struct{}{}:
	case <-p.left:
		return nil, errLeft
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for {
		c, err := p.pop()
		if err != nil {
			<-p.slots
			return nil, err
		}
		if c == nil {
			break
		}
		if c.alive() {
			return c, nil
		}
		c.close()
	}
	c, err := dial(ctx)
	if err != nil {
		<-p.slots
		return nil, err
	}
	return c, nil
}

// pop returns the idle connection that was used last, nil if there is none.
func (p *pool) pop() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errLeft
	}
	n := len(p.idle)
	if n == 0 {
		return nil, nil //nolint:nilnil // none idle is no error
	}
	c := p.idle[n-1]
	p.idle = p.idle[:n-1]
	return c, nil
}

// put gives a connection back; one that is broken is closed.
func (p *pool) put(c *conn, broken bool) {
	kept := !broken && p.keep(c)
	<-p.slots // others need not wait until it is closed
	if !kept {
		c.close()
	}
}

// keep reports whether a connection is idle now; if not, it is to be closed.
func (p *pool) keep(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle) >= maxIdle {
		return false
	}
	c.idle = time.Now()
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idleTimeout, p.expire)
	}
	return true
}

// expire closes connections that were idle for long, and comes back for the others.
func (p *pool) expire() { closeAll(p.expired()) }

// expired takes out the connections that were idle for long.
func (p *pool) expired() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	now := time.Now()
	young := slices.IndexFunc(p.idle, func(c *conn) bool { return now.Sub(c.idle) < idleTimeout })
	p.sweep = nil
	if young < 0 {
		young = len(p.idle)
	} else { // the first one has been idle for longest
		p.sweep = time.AfterFunc(idleTimeout-now.Sub(p.idle[young].idle), p.expire)
	}
	old := slices.Clone(p.idle[:young])
	p.idle = slices.Delete(p.idle, 0, young)
	return old
}

// close makes the pool give nothing any more, and returns the idle connections, which its
// caller closes; what is in use is closed when it is given back.
func (p *pool) close() (idle []*conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	close(p.left)
	if p.sweep != nil {
		p.sweep.Stop()
	}
	idle, p.idle = p.idle, nil
	return idle
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
