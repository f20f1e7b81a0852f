package coloring

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// hosts maps host and path to a service.
type hosts struct {
	exact  map[string]paths // by host
	wild   map[string]paths // by what stands behind the '*', with its dot
	any    paths
	domain []string // ".<domain>" and ".<cluster>.<domain>"
	short  lane.HostLabels
}

// paths are the routes of one host, longest prefix first.
type paths []*route

type route struct {
	src    *laneclient.Route
	prefix string // without '/' at its end; empty: any path
}

// found is where a request goes and the lane tag of its host.
type found struct {
	service string
	route   *laneclient.Route
	tag     lane.Name
}

func compileHosts(routes []laneclient.Route, opts *Options) *hosts {
	h := &hosts{exact: map[string]paths{}, wild: map[string]paths{}}
	if opts.Domain != "" {
		domain := strings.ToLower(strings.Trim(opts.Domain, "."))
		h.domain = append(h.domain, "."+domain)
		if opts.Cluster != "" {
			h.domain = append(h.domain, "."+strings.ToLower(opts.Cluster)+"."+domain)
		}
	}
	for _, service := range opts.Services {
		h.short.Add(service)
	}
	for n := range routes {
		src := &routes[n]
		if CheckRoute(src) != StatusOK {
			continue
		}
		h.add(src, cmp.Or(src.Cluster, opts.Cluster))
	}
	for _, table := range []map[string]paths{h.exact, h.wild, {"": h.any}} {
		for _, p := range table {
			p.sort()
		}
	}
	return h
}

func (h *hosts) add(src *laneclient.Route, cluster string) {
	r := &route{src: src, prefix: strings.TrimRight(src.Path, "/")}
	host := foldHost(src.Host)
	if host == "" {
		h.any = append(h.any, r)
		return
	}
	if suffix, wild := strings.CutPrefix(host, "*"); wild {
		h.wild[suffix] = append(h.wild[suffix], r)
		return // "*.<cluster>.example.com" is among what it matches
	}
	h.exact[host] = append(h.exact[host], r)
	label, rest, _ := strings.Cut(host, ".")
	h.short.Add(label)
	if cluster != "" && rest != "" {
		clustered := label + "." + strings.ToLower(cluster) + "." + rest
		h.exact[clustered] = append(h.exact[clustered], r)
	}
}

func (p paths) sort() {
	slices.SortStableFunc(p, func(a, b *route) int {
		return cmp.Or(cmp.Compare(len(b.prefix), len(a.prefix)), cmp.Compare(a.src.Name, b.src.Name))
	})
}

// find returns the route with the longest prefix of path, or nil.
func (p paths) find(path string) *laneclient.Route {
	for _, r := range p {
		if hasPathPrefix(path, r.prefix) {
			return r.src
		}
	}
	return nil
}

// hasPathPrefix reports whether path lies below prefix, which has no '/' at its
// end: "/api" has "/api" and "/api/v1" below it, not "/apis".
func hasPathPrefix(path, prefix string) bool {
	return prefix == "" || strings.HasPrefix(path, prefix) && (len(path) == len(prefix) || path[len(prefix)] == '/')
}

// find says where a request goes. host is as [cleanHost] gives it.
func (h *hosts) find(dir *lane.Snapshot, host, path string, inside bool) (f found, ok bool) {
	if r := h.exact[host].find(path); r != nil {
		return found{service: r.Service, route: r}, true
	}
	label, rest := host, ""
	if dot := strings.IndexByte(host, '.'); dot >= 0 {
		label, rest = host[:dot], host[dot:]
	}
	tag, sub, valid := lane.SplitHostLabel(label)
	if !valid { // such as "xn--…": a label like any other
		tag, sub = lane.Baseline, label
	}
	f.tag = tag
	candidates := h.short.Whose(label)
	if tag != lane.Baseline {
		if f.route = h.exact[host[len(label)-len(sub):]].find(path); f.route != nil {
			return f.of(f.route), true
		}
		for _, c := range candidates {
			if f.route = h.exact[c+rest].find(path); f.route != nil {
				return f.of(f.route), true
			}
		}
	}
	for suffix := rest; suffix != "" && len(h.wild) > 0; {
		if r := h.wild[suffix].find(path); r != nil {
			return f.of(r), true
		}
		dot := strings.IndexByte(suffix[1:], '.')
		if dot < 0 {
			break
		}
		suffix = suffix[1+dot:]
	}
	if inside && rest == "" || slices.Contains(h.domain, rest) {
		if dir.HasService(sub) {
			f.service = sub
			return f, true
		}
		for _, c := range candidates {
			if dir.HasService(c) {
				f.service = c
				return f, true
			}
		}
	}
	if r := h.any.find(path); r != nil {
		return f.of(r), true
	}
	return found{}, false
}

func (f found) of(r *laneclient.Route) found {
	f.route, f.service = r, r.Service
	return f
}

// cleanHost takes the port and a dot at the end off a host and lowers its case. It
// reads bytes from outside and takes anything.
func cleanHost(host string) string {
	if strings.HasPrefix(host, "[") { // an IPv6 address; no host of ours, but kept whole
		if end := strings.IndexByte(host, ']'); end >= 0 {
			return strings.ToLower(host[:end+1])
		}
		return strings.ToLower(host)
	}
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 {
		host = host[:colon]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// ValidHost reports whether s is a host that a request may be for, "host" or "host:port":
// RFC 3986, section 3.2, without a user. It reads bytes from outside and does not allocate.
func ValidHost(s string) bool {
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

// foldHost is the host of a route or rule in the form that requests are compared
// with.
func foldHost(host string) string { return strings.ToLower(strings.TrimSuffix(host, ".")) }

// matchesHost reports whether host, as [cleanHost] gives it, is what a rule asks
// for: the same, or under its wildcard.
func matchesHost(want, host string) bool {
	suffix, wild := strings.CutPrefix(want, "*")
	return host == want || wild && len(host) > len(suffix) && strings.HasSuffix(host, suffix)
}

// HostFault says what is wrong with the host of a route or rule, or nothing: it is
// a name, or a wildcard, without port. The empty one is any host.
func HostFault(host string) string {
	if host == "" {
		return ""
	}
	host = strings.TrimSuffix(host, ".")
	if suffix, wild := strings.CutPrefix(host, "*"); wild {
		if !strings.HasPrefix(suffix, ".") || len(suffix) < 2 {
			return `a wildcard is "*." and a domain, such as "*.example.com"`
		}
		host = suffix[1:]
	}
	if !PlainHost(host) {
		return "use a host name without port, such as api.example.com, *.example.com, or leave it out for any host"
	}
	return ""
}

// CheckRoute returns [StatusOK], or what is wrong with a route and what would be
// right, as one sentence.
func CheckRoute(r *laneclient.Route) string {
	if err := lane.CheckService(r.Service); err != nil {
		return "service: " + err.Error()
	}
	if fault := HostFault(r.Host); fault != "" {
		return "host: " + fault
	}
	if r.Cluster != "" && (!PlainHost(r.Cluster) || strings.Contains(r.Cluster, ".")) {
		return "cluster: use one DNS label, such as c1"
	}
	if r.Path != "" && r.Path[0] != '/' {
		return `path: a prefix begins with "/"`
	}
	if w := r.Rewrite; w != nil {
		if w.Prefix != "" && w.Prefix[0] != '/' {
			return `rewrite.prefix: begins with "/"`
		}
		if w.Host != "" && !PlainHost(strings.TrimSuffix(w.Host, ".")) {
			return "rewrite.host: use a host name without port"
		}
	}
	if t := r.Timeouts; t != nil && (t.Request < 0 || t.Idle < 0) {
		return "timeouts: use durations above zero, or leave them out for the defaults"
	}
	return StatusOK
}

// PlainHost reports whether s is labels of letters, digits, '-' and '_' with dots
// between, at most 253 bytes.
func PlainHost(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for i := range len(label) {
			c := label[i] | 0x20 // letters to lower case; '-' and digits stay
			if (c < 'a' || c > 'z') && (label[i] < '0' || label[i] > '9') && label[i] != '-' && label[i] != '_' {
				return false
			}
		}
	}
	return true
}
