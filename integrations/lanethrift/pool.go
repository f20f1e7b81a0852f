package lanethrift

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed is returned by calls on a closed [Client].
var ErrClosed = errors.New("lanethrift: client is closed")

// pool holds the connections to one instance.
type pool struct {
	slots chan struct{} // one for each connection in use: bounds them

	mu     sync.Mutex
	idle   []*conn // guarded by mu; the last one was used last
	closed bool    // guarded by mu
}

func newPool(most int) *pool { return &pool{slots: make(chan struct{}, most)} }

// get takes an idle connection that its peer has kept, or dials one. It blocks while as
// many as allowed are in use.
func (p *pool) get(ctx context.Context, dial func(context.Context) (*conn, error)) (*conn, error) {
	select {
	case p.slots <- struct{}{}:
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
		if time.Since(c.idle) < idleTimeout && c.alive() {
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

func (p *pool) pop() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
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
	defer func() { <-p.slots }()
	p.mu.Lock()
	defer p.mu.Unlock()
	if broken || p.closed || len(p.idle) >= maxIdle {
		c.close()
		return
	}
	c.idle = time.Now()
	p.idle = append(p.idle, c)
	// The ones used longest ago are in front.
	for len(p.idle) > 0 && time.Since(p.idle[0].idle) > idleTimeout {
		p.idle[0].close()
		p.idle = p.idle[1:]
	}
}

// close closes what is idle; what is in use is closed when it is given back.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, c := range p.idle {
		c.close()
	}
	p.idle = nil
}
