package lanethrift

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// dialPipe makes connections whose other ends are closed when they are.
func dialPipe(made *[]net.Conn) func(context.Context) (*conn, error) {
	return func(context.Context) (*conn, error) {
		near, far := net.Pipe()
		*made = append(*made, far)
		return newConn(near, TransportFramed, configuration())
	}
}

func isClosed(far net.Conn) bool {
	_ = far.SetReadDeadline(time.Now().Add(time.Millisecond)) // fails only where far itself is closed
	_, err := far.Read(make([]byte, 1))
	var timeout net.Error
	return !errors.As(err, &timeout) || !timeout.Timeout()
}

func TestIdleConnectionsClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made []net.Conn
		p, dial := newPool(3), dialPipe(&made)
		var taken []*conn
		for range 3 {
			c, err := p.get(t.Context(), dial)
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, c)
		}
		p.put(taken[0], false)
		time.Sleep(idleTimeout / 2)
		p.put(taken[1], false)
		p.put(taken[2], true) // broken
		if isClosed(made[0]) || isClosed(made[1]) || !isClosed(made[2]) {
			t.Error("want the broken one closed, the others not")
		}
		time.Sleep(idleTimeout/2 + time.Second)
		if !isClosed(made[0]) || isClosed(made[1]) {
			t.Error("want the one closed that has been idle for long, and no other")
		}
		c, err := p.get(t.Context(), dial)
		if err != nil || c != taken[1] {
			t.Errorf("got %p, %v; want the idle one", c, err)
		}
		time.Sleep(2 * idleTimeout) // it is in use
		if isClosed(made[1]) {
			t.Error("a connection in use was closed")
		}
		p.put(c, false)
		time.Sleep(idleTimeout + time.Second)
		if !isClosed(made[1]) {
			t.Error("the last idle one stayed")
		}
		closeAll(p.close())
	})
}

func TestPoolLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made []net.Conn
		p, dial := newPool(maxIdle+5), dialPipe(&made)
		var taken []*conn
		for range maxIdle + 5 {
			c, err := p.get(t.Context(), dial)
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, c)
		}
		full, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.get(full, dial); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one more than allowed: %v", err)
		}
		for _, c := range taken {
			p.put(c, false)
		}
		open := 0
		for _, far := range made {
			if !isClosed(far) {
				open++
			}
		}
		if open != maxIdle {
			t.Errorf("%d are kept, want %d", open, maxIdle)
		}
		waits := make(chan error)
		for range cap(p.slots) {
			p.slots <- struct{}{}
		}
		go func() {
			_, err := p.get(context.Background(), dial)
			waits <- err
		}()
		synctest.Wait()
		closeAll(p.close())
		closeAll(p.close())
		if err := <-waits; !errors.Is(err, errLeft) {
			t.Errorf("one that waited for a slot: %v", err)
		}
		for i, far := range made {
			if !isClosed(far) {
				t.Errorf("connection %d stayed", i)
			}
		}
	})
}

// slowConn takes its time to close: until it may.
type slowConn struct {
	net.Conn
	closing chan<- struct{} // told when it begins
	may     <-chan struct{}
}

func (c slowConn) Close() error {
	c.closing <- struct{}{}
	<-c.may
	return c.Conn.Close()
}

// TestSlowCloseHoldsNobodyUp closes connections in every way that a pool does, none of which
// comes to an end, while others take connections and give them back.
func TestSlowCloseHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	const others = 3
	for name, end := range map[string]func(p *pool, taken []*conn){
		"broken": func(p *pool, taken []*conn) { p.put(taken[0], true) },
		"one too many": func(p *pool, taken []*conn) {
			for _, c := range taken {
				p.put(c, false)
			}
		},
		"idle for long": func(p *pool, taken []*conn) {
			p.put(taken[0], false)
			time.Sleep(2 * idleTimeout)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			closing, may := make(chan struct{}, 100), make(chan struct{})
			slow := func(context.Context) (*conn, error) {
				near, far := net.Pipe()
				t.Cleanup(func() { _ = far.Close() })
				return newConn(slowConn{near, closing, may}, TransportFramed, configuration())
			}
			p := newPool(maxIdle + 1)
			var taken []*conn
			for range maxIdle + 1 {
				c, err := p.get(t.Context(), slow)
				if err != nil {
					t.Fatal(err)
				}
				taken = append(taken, c)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				end(p, taken)
			}()
			<-closing
			done := make(chan error)
			go func() { // needs the lock, and the place of the one that is closing
				for range others {
					c, err := p.get(t.Context(), slow)
					if err == nil {
						p.put(c, false)
					}
					done <- err
				}
			}()
			synctest.Wait()
			for range others {
				select {
				case err := <-done:
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					synctest.Wait()
				default:
					t.Errorf("%s: others wait until it is closed", name)
				}
			}
			close(may)
			<-ended
			closeAll(p.close())
		})
	}
}
