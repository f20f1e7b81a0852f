package chaos

import (
	"net"
	"sync"
	"testing"
)

// proxy passes connections on to an address, until they are cut.
type proxy struct {
	l  net.Listener
	to string
	wg sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]struct{}
	refuses bool // new connections are closed at once
	closed  bool
	// Closed: bytes pass, of who connected and back to it.
	asks, answers chan struct{}
}

func startProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to, conns: map[net.Conn]struct{}{}, asks: make(chan struct{}), answers: make(chan struct{})}
	close(p.asks)
	close(p.answers)
	p.wg.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.pass(c) })
	}
}

// pass joins a connection with one of its own until either ends.
func (p *proxy) pass(in net.Conn) {
	defer func() { _ = in.Close() }()
	if !p.add(in) {
		return
	}
	defer p.remove(in)
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer func() { _ = out.Close() }()
	if !p.add(out) {
		return
	}
	defer p.remove(out)
	var both sync.WaitGroup
	both.Go(func() { p.copy(out, in, &p.asks) })
	both.Go(func() { p.copy(in, out, &p.answers) })
	both.Wait()
}

// copy passes bytes on while their gate is open, and ends both connections when one has ended.
func (p *proxy) copy(to, from net.Conn, way *chan struct{}) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		gate := *way
		p.mu.Unlock()
		<-gate
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuses || p.closed {
		return false
	}
	p.conns[c] = struct{}{}
	return true
}

func (p *proxy) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}

// cut ends all connections; new ones can be made at once.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// refuse ends all connections and takes none, until mend.
func (p *proxy) refuse() {
	p.mu.Lock()
	p.refuses = true
	p.mu.Unlock()
	p.cut()
}

// silence lets nothing pass, and connections stand, until mend.
func (p *proxy) silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	shut(&p.asks)
	shut(&p.answers)
}

// mute lets no answers pass, until mend.
func (p *proxy) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	shut(&p.answers)
}

// mend undoes refuse, silence and mute.
func (p *proxy) mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = false
	open(p.asks)
	open(p.answers)
}

func shut(gate *chan struct{}) {
	select {
	case <-*gate:
		*gate = make(chan struct{})
	default:
	}
}

func open(gate chan struct{}) {
	select {
	case <-gate:
	default:
		close(gate)
	}
}

func (p *proxy) close() {
	_ = p.l.Close()
	p.mend()
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cut()
	p.wg.Wait()
}
