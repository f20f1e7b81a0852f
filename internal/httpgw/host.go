package httpgw

import (
	"net/http"
	"strings"

	"github.com/laneway-dev/laneway/internal/coloring"
)

// hostFault says why it cannot be told what host a request is for, or nothing. HTTP/2
// lets much into an :authority that net/http refuses in a Host header: RFC 9113, section
// 8.3.1.
func hostFault(r *http.Request) string {
	if r.Host == "" {
		if r.ProtoAtLeast(1, 1) {
			return "the request has no host"
		}
		return ""
	}
	if !coloring.ValidHost(r.Host) {
		return "the request's host is none: want a name or an address, and a port or none, without user and path"
	}
	// In HTTP/2 there may be a header beside the :authority.
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host) {
		return "the request has two hosts"
	}
	return ""
}

// sameHost compares a server name with a Host header.
func sameHost(name, host string) bool {
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:colon]
	}
	return strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(host, "."))
}
