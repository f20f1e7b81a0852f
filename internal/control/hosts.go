package control

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// CheckHost says what is wrong with an entry of [Config.Hosts], or returns nil: it is a
// host name of at most 253 bytes or an IP address, without scheme, port, brackets and
// path. Capital letters and a dot at the end make no difference.
func CheckHost(name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	switch {
	case name == "":
		return errors.New("a host is empty: want a name such as control.example.com")
	case len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return !isHostRune(r) }):
		return fmt.Errorf("%.80q is no host: want a name such as control.example.com, without scheme, port and path", name)
	}
	return nil
}

func isHostRune(r rune) bool {
	return r == '-' || r == '.' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// hosts are the names by which a control plane on loopback may be called, in small
// letters and without a dot at the end.
type hosts map[string]struct{}

func newHosts(names []string) (hosts, error) {
	h := hosts{"localhost": {}}
	for _, name := range names {
		if err := CheckHost(name); err != nil {
			return nil, err
		}
		h[plainHost(name)] = struct{}{}
	}
	return h, nil
}

// plainHost is the host of "host:port", as hosts has it.
func plainHost(hostPort string) string {
	host := hostPort
	if h, _, err := net.SplitHostPort(hostPort); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return host
}

// check refuses a request that came in on loopback under a name that is not ours: a
// page in a browser of this machine can have a name of its own resolve to 127.0.0.1,
// and would then be of the same origin as this API. Requests from elsewhere, or from
// within the process, and those of HTTP/1.0 that name no host, are not a browser's.
func (h hosts) check(r *http.Request) *laneclient.Problem {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if local == nil || !local.IP.IsLoopback() || r.Host == "" {
		return nil
	}
	host := plainHost(r.Host)
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsLoopback() {
		return nil
	}
	if _, ours := h[host]; ours {
		return nil
	}
	return problem(http.StatusMisdirectedRequest,
		"the request is for the host %q, which this control plane does not answer to on loopback: use localhost or 127.0.0.1, or add the host to control_hosts (--control-hosts)",
		clip(r.Host))
}
