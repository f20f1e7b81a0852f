package httpgw

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
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
	if !validHost(r.Host) {
		return "the request's host is none: want a name or an address, and a port or none, without user and path"
	}
	// In HTTP/2 there may be a header beside the :authority.
	if hosts := r.Header["Host"]; len(hosts) > 1 || len(hosts) == 1 && !strings.EqualFold(hosts[0], r.Host) {
		return "the request has two hosts"
	}
	return ""
}

// validHost reports whether s is "host" or "host:port": RFC 3986, section 3.2, without a
// user. It reads bytes from outside and does not allocate.
func validHost(s string) bool {
	var port string
	if literal, ok := strings.CutPrefix(s, "["); ok {
		address, rest, closed := strings.Cut(literal, "]")
		if !closed || rest != "" && rest[0] != ':' {
			return false
		}
		if ip, err := netip.ParseAddr(address); err != nil || !ip.Is6() {
			return false
		}
		port = strings.TrimPrefix(rest, ":")
	} else {
		var name string
		name, port, _ = strings.Cut(s, ":")
		if name == "" || strings.ContainsAny(name, "[]") || !httpguts.ValidHostHeader(name) {
			return false
		}
	}
	if port == "" {
		return true
	}
	_, err := strconv.ParseUint(port, 10, 16)
	return err == nil
}

// sameHost compares a server name with a Host header.
func sameHost(name, host string) bool {
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:colon]
	}
	return strings.EqualFold(strings.TrimSuffix(name, "."), strings.TrimSuffix(host, "."))
}
