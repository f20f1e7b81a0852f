package deploy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"syscall"
	"time"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/telemetry"
)

// Ports are chosen below the range that systems take for outgoing connections, so
// that none of those can take one before the process listens.
const (
	firstPort = 20000
	portCount = 12000
)

var loopbacks = [...]string{"127.0.0.1", "::1"}

// choosePorts fills in ports that were left open, and makes sure that those that
// were given are free: else it would be a stranger that gets registered.
func (s *supervisor) choosePorts(ctx context.Context) error {
	taken := map[int]bool{}
	for _, l := range s.cfg.Listen {
		if l.Port == 0 {
			continue
		}
		if taken[l.Port] {
			return fmt.Errorf("port %d is given twice", l.Port)
		}
		taken[l.Port] = true
		if !free(ctx, l.Port) {
			return fmt.Errorf("port %d is in use by another process: end that one, or choose another port (0 takes a free one)", l.Port)
		}
	}
	for i := range s.cfg.Listen {
		if s.cfg.Listen[i].Port != 0 {
			continue
		}
		port, err := choosePort(ctx, taken)
		if err != nil {
			return err
		}
		taken[port] = true
		s.cfg.Listen[i].Port = port
	}
	return nil
}

func choosePort(ctx context.Context, taken map[int]bool) (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(portCount) //nolint:gosec // no secret: it only has to be another one most times
		if !taken[port] && free(ctx, port) {
			return port, nil
		}
	}
	return 0, errors.New("found no free port: give one with --listen")
}

// free reports whether nobody listens on the port, on any address of this host.
func free(ctx context.Context, port int) bool {
	for _, host := range append([]string{""}, loopbacks[:]...) {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err != nil {
			if host == "::1" && !errors.Is(err, syscall.EADDRINUSE) {
				continue // a host without IPv6
			}
			return false
		}
		_ = l.Close()
	}
	return true
}

// probe finds the loopback address at which the port is listened on.
func probe(ctx context.Context, port int) (address string, ok bool) {
	return firstListening(port, func(address string) bool { return listens(ctx, address) })
}

// firstListening returns the first of the loopback addresses that is listened on. A
// process that listens on both at once may begin to between two tries: a later address
// counts only where an earlier one still fails after it.
func firstListening(port int, listens func(address string) bool) (address string, ok bool) {
	for _, host := range loopbacks {
		if !listens(net.JoinHostPort(host, strconv.Itoa(port))) {
			continue
		}
		for _, earlier := range loopbacks {
			address := net.JoinHostPort(earlier, strconv.Itoa(port))
			if earlier == host || listens(address) {
				return address, true
			}
		}
	}
	return "", false
}

// listens reports whether somebody listens on an address.
func listens(ctx context.Context, address string) bool {
	const patience = 250 * time.Millisecond
	dialer := net.Dialer{Timeout: patience}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	// A connection to a port nobody listens on can meet itself.
	self := conn.LocalAddr().String() == conn.RemoteAddr().String()
	_ = conn.Close()
	return !self
}

// awaitListen returns the endpoints once every port is listened on; false: the
// process has ended before.
func (s *supervisor) awaitListen(ctx context.Context) (addresses []string, ok bool) {
	addresses = make([]string, len(s.cfg.Listen))
	const slowest = 250 * time.Millisecond
	warn := time.Now().Add(listenWarnAfter)
	for delay := 5 * time.Millisecond; ; delay = min(2*delay, slowest) {
		var missing []int
		for i, l := range s.cfg.Listen {
			if addresses[i] != "" {
				continue
			}
			address, found := probe(ctx, l.Port)
			if !found {
				missing = append(missing, l.Port)
				continue
			}
			addresses[i] = s.advertised(address)
		}
		s.mu.Lock()
		s.missing = missing
		s.mu.Unlock()
		if len(missing) == 0 {
			return addresses, true
		}
		if now := time.Now(); now.After(warn) {
			warn = now.Add(listenWarnEvery)
			s.log.WarnContext(ctx, "does not listen yet, so it gets no traffic: it should listen on the port that PORT names in its environment, or on that of --listen",
				telemetry.KeyPort, missing[0])
		}
		if !backoff.Wait(ctx, delay) {
			return nil, false
		}
	}
}

func (s *supervisor) advertised(address string) string {
	if s.cfg.Advertise == "" {
		return address
	}
	_, port, _ := net.SplitHostPort(address)
	return net.JoinHostPort(s.cfg.Advertise, port)
}
