package lanetest

import (
	"net"
	"net/http"
	"syscall"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// errRefused is what dialing a stopped replica gives.
func errRefused() error {
	return &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
}

// memoryTransport serves requests in this process, by host. Answers stream.
type memoryTransport struct {
	hosts map[string]http.RoundTripper
	up    func(host string) bool
}

func (t *memoryTransport) add(host string, h http.Handler) { t.hosts[host] = laneclient.InMemory(h) }

// RoundTrip has the host's handler serve the request.
func (t *memoryTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	to := t.hosts[req.URL.Host]
	if to == nil {
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: &net.DNSError{Err: "no such host", Name: req.URL.Host, IsNotFound: true}}
	}
	if !t.up(req.URL.Host) {
		return nil, errRefused()
	}
	return to.RoundTrip(req)
}
